/* Values from outside of a region, given to it as arguments. */
#include "record/fx/fx_lift.h"
#include "record/core/capture.h"
#include "record/fx/fx.h"
#include "record/fx/fx_graph.h"

/* The number of the placeholder for node o of the graph around; 0 with an exception. */
static uint32_t region_lift(MgCapture *cap, PyObject *o) {
  MgFx *f = cap->fx;
  uint32_t outer = mg_map_getp(&f->outer->by_node, o);
  for (uint32_t i = 0; i < f->nlift; i++)
    if (f->lift[i].outer == outer) return f->lift[i].number;
  if (f->nlift == f->cap_lift && !mg_grow(&f->lift, &f->cap_lift, sizeof *f->lift, 16))
    return PyErr_NoMemory(), 0;
  PyObject *name = PyObject_GetAttrString(o, "name"), *none = name ? PyTuple_New(0) : NULL;
  uint32_t number = none ? mg_fx_node(cap, "placeholder", name, none, NULL) : 0;
  Py_XDECREF(name);
  Py_XDECREF(none);
  if (!number) return 0;
  PyObject *moved =
      f->first ? PyObject_CallMethod(f->first, "prepend", "O", mg_fx_item(cap, number)) : Py_NewRef(Py_None);
  if (!moved) return 0;
  Py_DECREF(moved);
  f->lift[f->nlift++] = (MgFxLift){number, outer};
  return number;
}

/* The same for a value or, when val is 0, a number. */
static uint32_t region_take(MgCapture *cap, ValRef val, SrcRef src) {
  MgFx *f = cap->fx;
  cap->fx = f->outer;
  PyObject *o = val ? Py_XNewRef(mg_fx_of_val(cap, val)) : mg_fx_number(cap, src);
  cap->fx = f;
  uint32_t number = o ? region_lift(cap, o) : 0;
  Py_XDECREF(o); /* the graph holds it */
  return number;
}

PyObject *mg_fx_lift(MgCapture *cap, ValRef val) {
  uint32_t number = region_take(cap, val, 0);
  return number && !mg_fx_bind(cap->fx, val, number) ? mg_fx_item(cap, number) : NULL;
}

PyObject *mg_fx_lift_number(MgCapture *cap, SrcRef src) {
  MgFx *f = cap->fx;
  uint32_t number = region_take(cap, 0, src);
  if (!number || mg_map_put(&f->by_src, src + 2, number) ||
      PyList_SetItem(f->val, number - 1, Py_NewRef(Py_False)))
    return NULL;
  return mg_fx_item(cap, number);
}
