/* Begin and end of a recording: objects. */
#include "host/python/pyobject.h"
#include "record/segment/lifetime.h"
#include "entry/guard/guard_add.h"
#include "entry/guard/guard_set.h"
#include "entry/run/snapshot_run.h"
#include "host/python/names.h"
#include "record/core/identity.h"
#include "record/core/recording.h"
#include "record/numpy/array_functions.h"
#include "record/object/class_writes.h"
#include "record/object/context_vars.h"
#include "record/object/fresh.h"
#include "record/object/lazy_constants.h"
#include "record/object/wrap.h"
#include "record/snapshot/torch_switches.h"
#include "record/tensor/tensor_hooks.h"

/* With torch.set_default_device() a mode is on the stack, whose device may be
 * another one at the next call. */
static void ident_guard_default_device(MgGuards *g) {
  if (!g->state.function_modes) return;
  PyObject *m = PyImport_GetModule(mg_names.device_module), *d = m ? PyModule_GetDict(m) : NULL, *now;
  if (d && (now = PyDict_GetItemWithError(d, mg_names.current_device)))
    mg_guard_dict_key(g, d, NULL, mg_names.current_device, now, false);
  Py_XDECREF(m);
  mg_clear_as_no();
}

/* Dual numbers carry a derivative that no guard of a tensor sees. */
static void ident_guard_forward_ad(MgGuards *g) {
  PyObject *m = PyImport_GetModule(mg_names.forward_ad), *d = m ? PyModule_GetDict(m) : NULL;
  PyObject *now = d ? PyDict_GetItemWithError(d, mg_names.current_level) : NULL;
  if (now) mg_guard_dict_key(g, d, NULL, mg_names.current_level, now, false);
  Py_XDECREF(m);
  mg_clear_as_no();
}

int mg_objects_begin(MgRec *r, const MgSlots *s) {
  if (mg_array_begin()) return -1;
  r->ident = mg_calloc(1, sizeof *r->ident);
  PyObject *code = s->func ? PyFunction_GET_CODE(s->func) : NULL;
  r->guards = mg_guards_new(s->names ? s->names : code ? ((PyCodeObject *)code)->co_localsplusnames : NULL);
  if (!r->ident || !r->guards) {
    if (!PyErr_Occurred()) PyErr_NoMemory();
    mg_objects_end(r);
    return -1;
  }
  MgIdent *d = r->ident;
  d->r = r;
  d->func = Py_XNewRef(s->func);
  d->keep = PyList_New(0);
  d->gens = PyList_New(0);
  d->absent = PyObject_CallNoArgs((PyObject *)&PyBaseObject_Type);
  if (!d->keep || !d->gens || !d->absent) {
    mg_objects_end(r);
    return -1;
  }
  mg_guard_type(r->guards, mg_torch.tensor);
  ident_guard_default_device(r->guards);
  ident_guard_forward_ad(r->guards);
  return 0;
}

void mg_objects_end(MgRec *r) {
  mg_guards_free(r->guards);
  r->guards = NULL;
  MgIdent *d = r->ident;
  if (!d) return;
  mg_classes_undo(r);
  mg_rec_context_undo(r);
  r->ident = NULL;
  for (uint32_t i = 0; i < d->n; i++) {
    MgOlder *e = &d->v[i];
    Py_XDECREF(e->pristine);
    Py_XDECREF(e->read);
    Py_XDECREF(e->attrs);
    Py_XDECREF(e->attrs0);
    Py_XDECREF(e->members);
    Py_DECREF(e->seen);
    Py_DECREF(e->orig);
  }
  free(d->v);
  free(d->compared);
  mg_map_free(&d->by_orig);
  mg_map_free(&d->by_seen);
  mg_map_free(&d->by_dict);
  mg_map_free(&d->dropped);
  mg_map_free(&d->fresh);
  mg_map_free(&d->fresh_gen);
  Py_XDECREF(d->keep);
  Py_XDECREF(d->gens);
  Py_XDECREF(d->absent);
  Py_XDECREF(d->vars);
  Py_XDECREF(d->rngs);
  mg_tensorhook_free(d);
  mg_unread_free(d);
  Py_XDECREF(d->func);
  free(d);
}

void mg_effects_undo(MgRec *r) {
  mg_generators_end(r);
  mg_setting_undo(r);
  mg_classes_undo(r);
  mg_rec_context_undo(r);
  if (!r->guards) return;
  MgTorchState now;
  mg_state_read(&now);
  if (mg_effect_apply(&now, &r->guards->state)) PyErr_Clear(); /* no room to undo: nobody can be told here */
}
