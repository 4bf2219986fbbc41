/* See the header.  Does not do: hooks on tensors that the graph writes to afterwards, backward passes after a
 * hook on an older tensor, and, without fullgraph, hooks on tensors that the graph makes, whose gradients are
 * wanted outside and that mg_tensorhook_join refuses (a break keeps both halves compiled). */
#include "record/tensor/tensor_hooks.h"
#include <stdlib.h>
#include "entry/guard/source.h"
#include "entry/launch/config.h"
#include "entry/launch/trace.h"
#include "host/python/glue.h"
#include "host/python/hook_mode.h"
#include "host/python/names.h"
#include "host/python/pyobject.h"
#include "host/torch/function_stack.h"
#include "record/core/capture.h"
#include "record/core/identity.h"
#include "record/core/ops.h"
#include "record/core/recording.h"

static PyObject *hook_python(const char *name) {
  PyObject *m = mg_glue(GLUE_tensor_hooks), *f = m ? PyObject_GetAttrString(m, name) : NULL;
  Py_XDECREF(m);
  return f; /* functions of a module that is never unloaded */
}

static int hook_keep(MgRec *r, MgHook h) {
  MgIdent *d = r->ident;
  MgHook *p = mg_realloc(d->hook, (d->nhook + 1) * sizeof *p);
  if (!p) return PyErr_NoMemory(), -1;
  d->hook = p;
  p[d->nhook++] = h;
  return 0;
}

/* The handle that the program gets: an empty one, filled by the snapshot. */
static PyObject *hook_add(MgRec *r, PyObject *with, PyObject *tensor, PyObject *hook) {
  PyObject *handle = mg_new_instance(mg_torch.removable_handle);
  if (!handle) return NULL;
  MgHook h = {with,
              Py_NewRef(tensor),
              Py_NewRef(hook),
              Py_NewRef(handle),
              mg_standin_val(tensor),
              r->g->nnode,
              NULL,
              false,
              false};
  mg_fresh(handle);
  if (!hook_keep(r, h)) return handle;
  Py_DECREF(tensor);
  Py_DECREF(hook);
  Py_DECREF(handle);
  Py_DECREF(handle);
  return NULL;
}

typedef struct HookReads { /* of a node */
  const bool *grad;        /* by value: it is computed of the gradient that the hook was given */
  uint32_t n;              /* how many such values the node reads */
  bool first;              /* its first argument is one */
} HookReads;

static void hook_see_read(ValRef *v, void *arg) {
  HookReads *r = arg;
  r->n += *v && r->grad[*v];
}

/* Is what node n gives of the gradient proportional to it? */
static bool hook_node_is_linear(const MgNode *n, const HookReads *r) {
  switch (n->op->code) {
  case TOP_neg:
  case TOP_clone:
  case TOP_detach:
  case TOP_alias:
  case TOP__to_copy:
  case TOP_view:
  case TOP_t:
  case TOP_transpose_int: return true;
  case TOP_add_Tensor:
  case TOP_sub_Tensor: return r->n == 2;
  case TOP_mul_Tensor:
  case TOP_mul_Scalar: return r->n == 1;
  case TOP_div_Tensor:
  case TOP_div_Scalar: return r->n == 1 && r->first;
  default: return false;
  }
}

/* Is the result proportional to the gradient that was given?  Nodes from `first` on are the hook's. */
static bool hook_is_linear(const MgGraph *g, NodeRef first, ValRef given, ValRef result) {
  bool *grad = mg_calloc(g->nval + 1, sizeof *grad), linear = grad;
  if (grad) grad[given] = true;
  for (NodeRef k = first; linear && k < g->nnode; k++) {
    MgNode *n = mg_node(g, k);
    HookReads r = {grad, 0, n->narg && n->arg[0].tag == MA_val && grad[n->arg[0].u.val]};
    mg_node_each_tensor(n, hook_see_read, &r);
    if (!r.n) continue;
    linear = hook_node_is_linear(n, &r);
    for (int i = 0; i < n->nout; i++) grad[n->out[i]] = n->out[i] != 0;
  }
  linear = linear && grad[result];
  free(grad);
  return linear;
}

/* What the engine calls for a tensor that the recording made.  at: the hook's number. */
static PyObject *hook_run_made(PyObject *at, PyObject *grad) {
  const MgIdent *d = mg_rec ? mg_rec->ident : NULL;
  size_t i = PyLong_AsSize_t(at);
  const MgHook *h = d && i < d->nhook ? &d->hook[i] : NULL;
  if (!h || h->removed || mg_hook_mode != HOOK_record) Py_RETURN_NONE;
  NodeRef first = mg_rec->g->nnode;
  PyObject *r = mg_ops.call(h->hook, &grad, 1, NULL);
  if (!mg_rec->in_joint || !r || r == Py_None) return r;
  bool plain = mg_standin_is(grad) && mg_standin_is(r);
  mg_rec->ident->bent |= !plain || !hook_is_linear(mg_rec->g, first, mg_standin_val(grad), mg_standin_val(r));
  return r;
}
static PyMethodDef hook_made_def = {"hook", hook_run_made, METH_O, NULL};

/* Gives the stand-in this dict of hooks.  -1 with an exception. */
static int hook_set(PyObject *standin, PyObject *name, PyObject *dict) {
  PyObject *d = PyObject_GetAttr((PyObject *)mg_torch.tensor, name), *off = d ? mg_fmodes_off() : NULL;
  PyObject *set = off ? PyObject_CallMethod(d, "__set__", "OO", standin, dict) : NULL;
  if (off && mg_context_exit(off)) Py_CLEAR(set);
  Py_XDECREF(d);
  Py_XDECREF(set);
  return set ? 0 : -1;
}

/* The dict of hooks of a tensor that the recording made, for the first of them: its gradient node keeps it.
 * As Tensor.register_hook() does it. */
static PyObject *hook_dict_made(PyObject *standin) {
  PyObject *name = PyUnicode_InternFromString("_backward_hooks"), *dict = name ? PyDict_New() : NULL;
  PyObject *node = dict && !hook_set(standin, name, dict) ? PyObject_GetAttrString(standin, "grad_fn") : NULL;
  PyObject *off = node && node != Py_None ? mg_fmodes_off() : NULL;
  PyObject *done = off ? PyObject_CallMethod(node, "_register_hook_dict", "O", standin) : NULL;
  if (off && mg_context_exit(off)) Py_CLEAR(done);
  bool ok = done || node == Py_None;
  Py_XDECREF(done);
  Py_XDECREF(node);
  Py_XDECREF(name);
  if (!ok) Py_CLEAR(dict);
  return dict;
}

/* Adds hook number `at` to the dict of its tensor. */
static int hook_set_made(MgIdent *d, uint32_t at) {
  MgHook *h = &d->hook[at];
  for (uint32_t i = 0; i < at && !h->dict; i++)
    if (d->hook[i].tensor == h->tensor) h->dict = Py_XNewRef(d->hook[i].dict);
  if (!h->dict && !(h->dict = hook_dict_made(h->tensor))) return -1;
  PyObject *key = PyLong_FromLong((long)at), *f = key ? PyCFunction_New(&hook_made_def, key) : NULL;
  int rc = f ? PyDict_SetItem(h->dict, key, f) : -1;
  Py_XDECREF(key);
  Py_XDECREF(f);
  return rc;
}

static PyObject *hook_made(MgRec *r, PyObject *self, PyObject *hook) {
  PyObject *handle = hook_add(r, NULL, self, hook);
  if (!handle) return NULL;
  r->ident->hook[r->ident->nhook - 1].made = true;
  if (hook_set_made(r->ident, r->ident->nhook - 1)) Py_CLEAR(handle);
  return handle;
}

/* On a tensor that the graph makes. */
static PyObject *hook_inside(MgRec *r, PyObject *self, PyObject *hook) {
  static PyObject *point, *finish; /* the op, and magneto._glue.tensor_hooks.finish */
  if (!r->want_fx && !mg_retry_denied(r, RETRY_hooked)) return hook_made(r, self, hook);
  if (mg_retry_denied(r, RETRY_hook) || !(r->want_fx || r->cfg->fullgraph)) {
    mg_joint_links(self);
    return mg_rec_break(BK_hook_inside, "a hook on a tensor that is made here");
  }
  MgPause pause = mg_rec_pause();
  if (!point) point = hook_python("point");
  if (!finish) finish = hook_python("finish");
  mg_rec_resume(pause);
  PyObject *mark = point && finish ? PyObject_CallOneArg(point, self) : NULL;
  PyObject *handle = mark ? hook_add(r, finish, mark, hook) : NULL;
  Py_XDECREF(mark);
  return handle;
}

PyObject *mg_tensorhook_register(PyObject *self, PyObject *hook, bool accumulate) {
  MgStandInfo *info = mg_standin_info(self);
  MgRec *r = info->cap ? info->cap->rec : NULL;
  if (!r || mg_rec != r || r->in_joint || mg_standin_transformed(self))
    return mg_rec_break(BK_hook, "a hook on a tensor");
  if (r->ident->unhooked) return mg_rec_break(BK_hook, "a hook is registered after another one was removed");
  const MgVal *v = mg_val(r->g, info->val);
  if (!v->requires_grad)
    return PyErr_Format(PyExc_RuntimeError,
                        "cannot register a hook on a tensor that doesn't require gradient");
  if (!info->input)
    return accumulate ? mg_rec_break(BK_hook_inside, "a hook on a leaf that is made here")
                      : hook_inside(r, self, hook);
  const MgCapInput *in = &info->cap->input[info->input - 1];
  if (in->val != info->val) return mg_rec_break(BK_hook_written, "a hook on a tensor that was written to");
  if (accumulate && in->nonleaf)
    return PyErr_Format(PyExc_RuntimeError,
                        "post accumulate grad hooks cannot be registered on non-leaf tensors");
  return hook_add(r, mg_torch.hook_register[accumulate], self, hook);
}

/* ---- hooks that are older ---- */

/* What the engine calls: self is the dict as the recording sees it. */
static PyObject *hook_run(PyObject *hooks, PyObject *arg, const char *name, PyObject **function) {
  if (!mg_rec || mg_rec->in_joint || mg_hook_mode != HOOK_record)
    Py_RETURN_NONE; /* for joint_trace.c: the tensor itself runs them */
  MgPause pause = mg_rec_pause();
  if (!*function) *function = hook_python(name);
  mg_rec_resume(pause);
  PyObject *args[] = {hooks, arg};
  return *function ? mg_ops.call(*function, args, 2, NULL) : NULL;
}
static PyObject *hook_run_gradient(PyObject *hooks, PyObject *grad) {
  static PyObject *function;
  return hook_run(hooks, grad, "run_gradient", &function);
}
static PyObject *hook_run_accumulated(PyObject *hooks, PyObject *leaf) {
  static PyObject *function;
  return hook_run(hooks, leaf, "run_accumulated", &function);
}
static PyMethodDef hook_defs[] = {{"hooks", hook_run_gradient, METH_O, NULL},
                                  {"hooks", hook_run_accumulated, METH_O, NULL}};

int mg_tensorhook_older(MgRec *r, PyObject *standin, PyObject *hooks, SrcRef src, bool accumulate) {
  PyObject *name = PyUnicode_InternFromString(accumulate ? "_post_accumulate_grad_hooks" : "_backward_hooks");
  PyObject *seen = name ? mg_ops.wrap(hooks, mg_source(r->guards, SRC_attr, src, 0, name)) : NULL;
  PyObject *run = seen ? PyCFunction_New(&hook_defs[accumulate], seen) : NULL,
           *dict = run ? PyDict_New() : NULL;
  int rc = dict && !PyDict_SetItemString(dict, "0", run) ? hook_set(standin, name, dict) : -1;
  Py_XDECREF(dict);
  Py_XDECREF(run);
  Py_XDECREF(seen);
  Py_XDECREF(name);
  return rc;
}

static MgHook *hook_of(PyObject *handle) {
  MgIdent *d = mg_rec ? mg_rec->ident : NULL;
  for (uint32_t i = 0; d && i < d->nhook; i++)
    if (d->hook[i].handle == handle) return &d->hook[i];
  return NULL;
}

bool mg_tensorhook_is_handle(PyObject *o) { return Py_TYPE(o) == mg_torch.removable_handle && hook_of(o); }

int mg_tensorhook_remove(PyObject *handle) {
  MgHook *h = hook_of(handle);
  if (h) h->removed = true;
  if (h || !mg_rec) return h != NULL;
  if (mg_rec->ident->nhook)
    return mg_rec_break(BK_hook, "a hook is removed after another one was registered"), -1;
  mg_rec->ident->unhooked = true;
  return 0;
}

/* Is its memory written to after the hook was registered, through it or another view? */
static bool hook_is_overwritten(const MgRec *r, const MgHook *h) {
  if (mg_standin_val(h->tensor) != h->val) return true;
  uint32_t storage = mg_val(r->g, h->val)->storage;
  for (NodeRef n = h->after; n < r->g->nnode; n++)
    for (MgWritten w = {0}; mg_node_written(mg_node(r->g, n), &w);)
      if (mg_val(r->g, w.v)->storage == storage) return true;
  return false;
}

int mg_tensorhook_check(MgRec *r) {
  for (uint32_t i = 0; i < r->ident->nhook; i++)
    if (!hook_is_overwritten(r, &r->ident->hook[i])) continue;
    else if (r->ident->hook[i].made) mg_retry_fail(r, RETRY_hooked);
    else return mg_rec_break(BK_hook_written, "a tensor with a hook is written to"), -1;
  return 0;
}

bool mg_tensorhook_inside(const MgRec *r) {
  for (uint32_t i = 0; i < r->ident->nhook; i++)
    if (!r->ident->hook[i].made && mg_val(r->g, r->ident->hook[i].val)->def) return true;
  return false;
}

bool mg_tensorhook_waits(const MgRec *r) {
  for (uint32_t i = 0; i < r->ident->nhook; i++)
    if (!r->ident->hook[i].made) return true;
  return false;
}

bool mg_tensorhook_any_made(const MgRec *r) {
  for (uint32_t i = 0; i < r->ident->nhook; i++)
    if (r->ident->hook[i].made) return true;
  return false;
}

/* Is it a constant, or what the program finds again at its place? */
static bool hook_may_hold(PyObject *o) {
  if (o == Py_None || PyBool_Check(o) || PyLong_CheckExact(o) || PyFloat_CheckExact(o) ||
      PyUnicode_CheckExact(o) || PyModule_Check(o))
    return true;
  if (PyFunction_Check(o)) return !mg_is_fresh(o) && !PyFunction_GET_CLOSURE(o);
  return PyCFunction_Check(o) || (PyType_Check(o) && !mg_is_fresh(o)) ||
         (mg_older(o) && PyObject_TypeCheck(o, mg_torch.module));
}

static bool hook_may_hold_all(PyObject *tuple) {
  for (Py_ssize_t i = 0; tuple && i < PyTuple_GET_SIZE(tuple); i++)
    if (!hook_may_hold(PyTuple_GET_ITEM(tuple, i))) return false;
  return true;
}

/* Does the function work on other tensors than stand-ins, too?  It holds none, and nothing that the recording
 * has made. */
static bool hook_is_plain(PyObject *f) {
  if (PyMethod_Check(f)) {
    if (!hook_may_hold(PyMethod_GET_SELF(f))) return false;
    f = PyMethod_GET_FUNCTION(f);
  }
  if (!PyFunction_Check(f) || PyFunction_GET_KW_DEFAULTS(f)) return false;
  PyObject *cells = PyFunction_GET_CLOSURE(f);
  for (Py_ssize_t i = 0; cells && i < PyTuple_GET_SIZE(cells); i++) {
    PyObject *o = PyCell_GET(PyTuple_GET_ITEM(cells, i));
    if (!o || !hook_may_hold(o)) return false;
  }
  return hook_may_hold_all(PyFunction_GET_DEFAULTS(f));
}

int mg_tensorhook_join(MgRec *r) {
  MgHooked *first = NULL, **end = &first;
  r->cap->hooked = NULL;
  for (uint32_t i = 0; i < r->ident->nhook; i++) {
    const MgHook *h = &r->ident->hook[i];
    if (!h->made || h->removed) continue;
    if (!mg_val(r->g, h->val)->def || !hook_is_plain(h->hook)) return 0;
    MgHooked *p = mg_new(r->g->c, MgHooked, 1);
    if (!p) return PyErr_NoMemory(), -1;
    *p = (MgHooked){NULL, h->val, h->hook};
    if (PyList_Append(r->cap->objs, h->hook)) return -1;
    *end = p;
    end = &p->next;
  }
  r->cap->hooked = first;
  return 1;
}

bool mg_tensorhook_on_result(const MgRec *r, const ValRef *out, int nout) {
  for (uint32_t i = 0; i < r->ident->nhook; i++) {
    const MgHook *h = &r->ident->hook[i];
    for (int k = 0; h->made && k < nout; k++)
      if (mg_val(r->g, out[k])->storage == mg_val(r->g, h->val)->storage) return true;
  }
  return false;
}

/* The list magneto._glue.tensor_hooks.traced; its items are the runs of the op on tensors without data. */
static PyObject *hook_traced(void) {
  static PyObject *list;
  if (!list) list = hook_python("traced");
  return list;
}

void mg_tensorhook_watch(void) {
  PyObject *list = hook_traced();
  if (!list || PyList_SetSlice(list, 0, PY_SSIZE_T_MAX, NULL)) PyErr_Clear(); /* the list stays as it was */
}

bool mg_tensorhook_traced(void) {
  PyObject *list = hook_traced();
  return list && PyList_GET_SIZE(list);
}

void mg_tensorhook_free(MgIdent *d) {
  for (uint32_t i = 0; i < d->nhook; i++) {
    Py_DECREF(d->hook[i].tensor);
    Py_DECREF(d->hook[i].hook);
    Py_DECREF(d->hook[i].handle);
    Py_XDECREF(d->hook[i].dict);
  }
  free(d->hook);
}
