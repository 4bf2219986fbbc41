/* See the header.  Does not do: hooks on tensors that the graph writes to afterwards, backward passes after a
 * hook on an older tensor, and, without fullgraph, hooks on tensors that the graph makes and
 * whose gradients are wanted outside (a break keeps both halves compiled). */
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

/* What the engine calls for a tensor that the recording made.  at: the hook's number. */
static PyObject *hook_run_made(PyObject *at, PyObject *grad) {
  const MgIdent *d = mg_rec ? mg_rec->ident : NULL;
  size_t i = PyLong_AsSize_t(at);
  const MgHook *h = d && i < d->nhook ? &d->hook[i] : NULL;
  if (!h || h->removed || mg_rec->in_joint || mg_hook_mode != HOOK_record) Py_RETURN_NONE;
  return mg_ops.call(h->hook, &grad, 1, NULL);
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
