/* The nodes of a recording's torch.fx graph.
 * Placeholders are the older tensors in order of first use, named after their sources as torch.compile names
 * them.  A stand-in carries the number of the FX node that made its value; no stand-in is kept.  When some
 * output came from a call that the function mode cannot see, the graph is written from the ATen nodes
 * instead (fx_aten.c), so it is never wrong. */
#include <string.h>
#include "entry/guard/source.h"
#include "entry/launch/trace.h"
#include "host/python/hook_mode.h"
#include "host/python/dynamo_config.h"
#include "host/python/names.h"
#include "host/python/pyobject.h"
#include "record/core/capture.h"
#include "record/core/recording.h"
#include "record/fx/fx.h"
#include "record/fx/fx_graph.h"
#include "record/fx/fx_lift.h"
#include "record/fx/fx_meta.h"

uint32_t mg_fx_adopt(MgFx *f, PyObject *n, PyObject *where, bool input) {
  if (PyList_Append(f->nodes, n) || PyList_Append(f->val, Py_None) || PyList_Append(f->where, where))
    return 0;
  if (!f->first && !input) f->first = n;
  uint32_t number = (uint32_t)PyList_GET_SIZE(f->nodes);
  return mg_map_putp(&f->by_node, n, number) ? (PyErr_NoMemory(), 0) : number;
}

uint32_t mg_fx_node(MgCapture *cap, const char *op, PyObject *target, PyObject *args, PyObject *kwargs) {
  MgFx *f = cap->fx;
  PyObject *empty = kwargs ? NULL : PyDict_New();
  PyObject *n =
      PyObject_CallMethod(f->graph, "create_node", "sOOO", op, target, args, kwargs ? kwargs : empty);
  Py_XDECREF(empty);
  if (!n) return 0;
  bool input = !strcmp(op, "placeholder");
  PyObject *where = !input && !f->incomplete ? mg_fxmeta_frames(cap->rec) : Py_NewRef(Py_None);
  uint32_t number = where ? mg_fx_adopt(f, n, where, input) : 0;
  Py_XDECREF(where);
  Py_DECREF(n); /* the list holds it */
  return number;
}

uint32_t mg_fx_call(MgCapture *cap, PyObject *target, PyObject *args, PyObject *kwargs) {
  return mg_fx_node(cap, "call_function", target, args, kwargs);
}

PyObject *mg_fx_item(MgCapture *cap, uint32_t number) { return mg_fx_at(cap->fx, number); }

void mg_fx_use_aten(MgCapture *cap) { cap->fx->incomplete = true; }

bool mg_fx_is_aten(const MgCapture *cap) { return cap->fx->incomplete; }

bool mg_fx_takes_engine(MgCapture *cap) {
  if (cap->fx->incomplete) return true;
  PyObject *on = mg_rec_dynamo_config("trace_autograd_ops");
  if (on == Py_True) cap->fx->incomplete = true;
  Py_XDECREF(on);
  return cap->fx->incomplete;
}

int mg_fx_bind(MgFx *f, ValRef val, uint32_t number) {
  if (PyList_GET_ITEM(f->val, number - 1) == Py_None) { /* the first: what the call gave */
    PyObject *v = PyLong_FromUnsignedLong(val);
    if (!v || PyList_SetItem(f->val, number - 1, v)) return -1;
  }
  if (mg_map_put(&f->by_val, val + 2, number)) return PyErr_NoMemory(), -1;
  for (uint32_t i = 0; i < f->nlift; i++) /* written to inside of a region: outside it is the same tensor */
    if (f->lift[i].number == number) return mg_fx_bind(f->outer, val, f->lift[i].outer);
  return 0;
}

int mg_fx_same(MgCapture *cap, ValRef now, ValRef was) {
  MgPause pause = mg_rec_pause();
  PyObject *n = mg_fx_of_val(cap, was);
  uint32_t number = n ? mg_map_getp(&cap->fx->by_node, n) : MG_MAP_NONE;
  mg_rec_resume(pause);
  if (PyErr_Occurred()) return -1;
  return number == MG_MAP_NONE ? 0 : mg_fx_bind(cap->fx, now, number);
}

/* "L['self'].fc.weight" -> "L_self_fc_weight_": letters and digits, runs of others as one underscore. */
static void fx_name(MgRec *r, const MgCapInput *in, uint32_t number, char *out, size_t n) {
  MgStrbuf text = {0};
  size_t k = 0;
  if (in->src && r->guards) mg_source_print(r->guards, in->src, &text);
  for (const char *p = mg_sb_text(&text); *p && k + 2 < n; p++) {
    bool word = (*p >= '0' && *p <= '9') || (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z');
    if (word || (k && out[k - 1] != '_')) out[k++] = word ? *p : '_';
  }
  if (k && out[k - 1] != '_') out[k++] = '_';
  out[k] = 0;
  /* Tensors behind an identity guard (parameters) have no path from the frame: numbered,
   * so that names are stable. */
  if (!k || (out[0] >= '0' && out[0] <= '9') || strstr(mg_sb_text(&text), " at 0x"))
    snprintf(out, n, "%s_%u", Py_TYPE(in->real) == mg_torch.parameter ? "param" : "tensor", number);
  mg_sb_free(&text);
}

/* The placeholder of an input: made at its first use, moved in front of all other nodes. */
uint32_t mg_fx_placeholder(MgCapture *cap, uint32_t index) {
  MgFx *f = cap->fx;
  char name[200];
  if (f->ninput == f->cap_input) {
    uint32_t n = f->cap_input ? f->cap_input * 2 : 16;
    void *p = mg_realloc(f->input, n * sizeof *f->input);
    if (!p) return PyErr_NoMemory(), 0;
    f->input = p;
    if (!(p = mg_realloc(f->input_node, n * sizeof *f->input_node))) return PyErr_NoMemory(), 0;
    f->input_node = p;
    f->cap_input = n;
  }
  bool symbol = index & MG_FX_SYMBOL;
  if (symbol) snprintf(name, sizeof name, "s%u", index & ~MG_FX_SYMBOL);
  else fx_name(cap->rec, &cap->input[index], f->ninput, name, sizeof name - 12);
  uint64_t key = mg_hash_bytes(name, strlen(name), 0) | 2; /* L['n'] and -L['n'] */
  if (mg_map_get(&f->by_name, key) != MG_MAP_NONE) sprintf(name + strlen(name), "_%u", f->ninput);
  else if (mg_map_put(&f->by_name, key, 1)) return PyErr_NoMemory(), 0;
  PyObject *target = PyUnicode_FromString(name), *none = PyTuple_New(0);
  uint32_t number = target && none ? mg_fx_node(cap, "placeholder", target, none, NULL) : 0;
  Py_XDECREF(target);
  Py_XDECREF(none);
  PyObject *moved =
      number && f->first ? PyObject_CallMethod(f->first, "prepend", "O", mg_fx_at(f, number)) : NULL;
  Py_XDECREF(moved);
  if (!number || (f->first && !moved)) return 0;
  f->input_node[f->ninput] = number;
  f->input[f->ninput++] = index;
  return !symbol && mg_fx_bind(f, cap->input[index].val, number) ? 0 : number;
}

/* An object that FX has no literal for (a generator), or a real tensor that the recording keeps:
 * an attribute of the module. */
PyObject *mg_fx_constant(MgCapture *cap, PyObject *tensor, const char *prefix) {
  MgFx *f = cap->fx;
  char name[40];
  uint32_t known = mg_map_getp(&f->by_node, tensor);
  if (known != MG_MAP_NONE) return Py_NewRef(mg_fx_at(f, known));
  bool real = PyObject_TypeCheck(tensor, mg_torch.tensor);
  Py_ssize_t n = prefix ? 0 : PyDict_GET_SIZE(f->root);
  do snprintf(name, sizeof name, "%.24s%zd", prefix ? prefix : real ? "_tensor_constant" : "_constant", n++);
  while (PyDict_GetItemString(f->root, name));
  if (PyDict_SetItemString(f->root, name, tensor)) return NULL;
  PyObject *target = PyUnicode_FromString(name), *none = PyTuple_New(0);
  uint32_t number = target && none ? mg_fx_node(cap, "get_attr", target, none, NULL) : 0;
  Py_XDECREF(target);
  Py_XDECREF(none);
  if (!number || mg_map_putp(&f->by_node, tensor, number))
    return NULL; /* the module's dict keeps the tensor alive */
  return Py_NewRef(mg_fx_at(f, number));
}

PyObject *mg_fx_of_val(MgCapture *cap, ValRef val) {
  uint32_t number = mg_map_get(&cap->fx->by_val, val + 2);
  if (number != MG_MAP_NONE) return mg_fx_at(cap->fx, number);
  if (cap->fx->outer) return mg_fx_lift(cap, val);
  const MgVal *v = mg_val(cap->rec->g, val);
  if (v->def || v->out >= cap->ninput || cap->input[v->out].val != val) return NULL;
  if (cap->input[v->out].pinned) return NULL;
  number = mg_fx_placeholder(cap, v->out);
  return number ? mg_fx_at(cap->fx, number) : NULL;
}
