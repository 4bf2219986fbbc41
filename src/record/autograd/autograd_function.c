/* See the header.  In: calls of autograd.Function.apply.  Out: nodes, and MgFunction records on the capture.
 * Does not do: functions of torch itself (reentrant checkpoints look at the nodes of the gradient graph)
 * other than the one that backward hooks of modules go through, which has to be compiled together with a
 * backward pass of the program; in torch-level graphs forwards that change older objects.  Those break the
 * graph.  With arguments that are neither tensors nor constants, and with such changes, the call cannot be
 * made again from the graph's values, so it has to be compiled together with its backward. */
#include "record/autograd/autograd_function.h"
#include <string.h>
#include "entry/launch/trace.h"
#include "entry/run/snapshot_run.h"
#include "host/python/glue.h"
#include "host/python/hook_mode.h"
#include "host/python/names.h"
#include "host/python/pyobject.h"
#include "record/autograd/joint_trace.h"
#include "record/autograd/object_template.h"
#include "record/core/call_args.h"
#include "record/core/capture.h"
#include "record/core/identity.h"
#include "record/core/ops.h"
#include "record/core/recording.h"
#include "record/dispatch/dispatch.h"
#include "record/fx/fx.h"
#include "record/object/attributes.h"
#include "record/snapshot/snapshot.h"

/* ---- recording a call ---- */

/* Nothing but constants in it, so no tensor, which would have to be an input of the graph? */
static bool function_is_plain(PyObject *o, int depth) {
  PyObject **dict = _PyObject_GetDictPtr(o), *d = PyDict_CheckExact(o) ? o : NULL, *k, *v;
  if (mg_functree_is_constant(o)) return true;
  if (depth > 4) return false;
  for (Py_ssize_t i = 0; (PyTuple_CheckExact(o) || PyList_CheckExact(o)) && i < PySequence_Fast_GET_SIZE(o);
       i++)
    if (!function_is_plain(PySequence_Fast_GET_ITEM(o, i), depth + 1)) return false;
  if (PyTuple_CheckExact(o) || PyList_CheckExact(o)) return true;
  if (!d && (!dict || !(d = *dict) || mg_solid_base(Py_TYPE(o)) != &PyBaseObject_Type)) return false;
  for (Py_ssize_t at = 0; PyDict_Next(d, &at, &k, &v);)
    if (!function_is_plain(v, depth + 1)) return false;
  return true;
}

/* Such an instance from outside that the recording has not written to. */
static bool function_is_older(PyObject *o) {
  const MgOlder *e = mg_older(o);
  bool instance = e && e->orig == o && (e->kind == OLDER_object || e->kind == OLDER_itself);
  return instance && !e->attrs && !e->members && function_is_plain(o, 0);
}

/* What a node of a torch-level graph can be given: tensors, constants, containers of them, and objects from
 * outside: the node runs the function, which finds in them what it would find without us, so that which
 * objects they are is guarded. */
static bool function_can_show(PyObject *o) {
  if (mg_standin_check(o) || mg_standin_transformed(o) || mg_functree_is_constant(o)) return true;
  if (function_is_older(o)) return mg_older_pin(o), true;
  if (PyDict_CheckExact(o)) {
    PyObject *k, *v;
    for (Py_ssize_t at = 0; PyDict_Next(o, &at, &k, &v);)
      if (!PyUnicode_CheckExact(k) || !function_can_show(v)) return false;
    return true;
  }
  if (!PyTuple_CheckExact(o) && !PyList_CheckExact(o)) return false;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(o); i++)
    if (!function_can_show(PySequence_Fast_GET_ITEM(o, i))) return false;
  return true;
}

/* One of torch's own classes? */
static bool function_is_torchs(PyObject *cls) {
  PyObject *m = PyDict_GetItemWithError(mg_type_dict((PyTypeObject *)cls), mg_names.module);
  const char *name = m && PyUnicode_Check(m) ? PyUnicode_AsUTF8(m) : NULL;
  mg_clear_as_no();
  return name && (!strcmp(name, "torch") || !strncmp(name, "torch.", 6));
}

/* Reads the methods that C code is going to call, so that they are guarded. */
static int function_guard_class(PyObject *cls) {
  static const char *const names[] = {"forward", "backward", "setup_context"};
  for (int i = 0; i < 3; i++) {
    PyObject *name = PyUnicode_InternFromString(names[i]), *m = name ? mg_rec_getattr(cls, name) : NULL;
    Py_XDECREF(name);
    if (!m) return -1;
    Py_DECREF(m);
  }
  return 0;
}

static MgFunction *function_new(MgRec *r, const MgCall *c, PyObject *const *out, Py_ssize_t nout) {
  MgFunction *f = mg_new(r->g->c, MgFunction, 1);
  if (!f) return NULL;
  f->nin = (uint32_t)c->n;
  f->nout = (uint32_t)nout;
  f->obj = mg_new(r->g->c, PyObject *, c->n + 1);
  f->in = mg_new(r->g->c, ValRef, c->n + 1);
  f->out = mg_new(r->g->c, ValRef, nout + 1);
  if (!f->obj || !f->in || !f->out) return NULL;
  f->apply = c->f;
  if (PyList_Append(r->cap->objs, c->f)) return NULL;
  for (Py_ssize_t i = 0; i < nout; i++)
    if (mg_standin_check(out[i])) f->out[i] = mg_standin_val(out[i]);
  return f;
}

static int function_take_args(MgRec *r, MgFunction *f, const MgCall *c) {
  for (uint32_t i = 0; i < f->nin; i++) {
    if (mg_standin_check(c->arg[i])) f->in[i] = mg_standin_val(c->arg[i]);
    else if (!mg_functree_is_constant(c->arg[i])) f->once = true; /* not kept: it may hold stand-ins */
    else if (PyList_Append(r->cap->objs, f->obj[i] = c->arg[i])) return -1;
  }
  return 0;
}

/* Autograd tracks what forward made: all of it, as far as this recording follows. */
static void function_mark(MgGraph *g, NodeRef first) {
  for (NodeRef n = first; n < g->nnode; n++)
    for (int i = 0; i < mg_node(g, n)->nout; i++) {
      MgVal *v = mg_node(g, n)->out[i] ? mg_val(g, mg_node(g, n)->out[i]) : NULL;
      if (v && (mg_dtype_is_float(v->dtype) || mg_dtype_is_complex(v->dtype))) v->requires_grad = true;
    }
}

/* What PyTorch's node of the call has saved. */
static int function_take_saved(MgRec *r, MgFunction *f, PyObject *const *out) {
  PyObject *node = NULL, *saved = NULL;
  int rc = -1;
  MgPause pause = mg_rec_pause();
  for (uint32_t i = 0; i < f->nout && !node; i++)
    if (mg_standin_check(out[i]) && mg_facts_requires_grad(out[i]) &&
        !(node = PyObject_GetAttrString(out[i], "grad_fn")))
      goto done;
  if (node && !(saved = PyObject_GetAttrString(node, "saved_tensors"))) goto done;
  rc = 0;
  if (!saved || !PyTuple_Check(saved)) goto done;
  if (!(f->saved = mg_new(r->g->c, ValRef, PyTuple_GET_SIZE(saved) + 1))) rc = -1;
  for (Py_ssize_t i = 0; !rc && i < PyTuple_GET_SIZE(saved); i++)
    if (mg_standin_check(PyTuple_GET_ITEM(saved, i)))
      f->saved[f->nsaved++] = mg_standin_val(PyTuple_GET_ITEM(saved, i));
done:
  mg_rec_resume(pause);
  Py_XDECREF(node);
  Py_XDECREF(saved);
  return rc;
}

/* Keeps the call; `args`: the values of its tensor arguments before it ran; `once`: running it
 * again would change something. */
static int function_keep(MgRec *r, const MgCall *c, const ValRef *args, NodeRef first, PyObject *res,
                         bool once) {
  bool many = PyTuple_Check(res), grad = false;
  PyObject *const *out = many ? &PyTuple_GET_ITEM(res, 0) : &res;
  Py_ssize_t nout = many ? PyTuple_GET_SIZE(res) : 1;
  for (Py_ssize_t i = 0; i < nout; i++) {
    if (!mg_standin_check(out[i])) continue;
    if (mg_standin_original(out[i]))
      return mg_rec_break(BK_autograd_function, "an autograd.Function that writes an input"), -1;
    grad |= mg_standin_check(out[i]) && mg_facts_requires_grad(out[i]);
  }
  if (!grad) return 0;
  MgFunction *f = function_new(r, c, out, nout), **end = &r->cap->function;
  if (!f || function_take_args(r, f, c) || function_take_saved(r, f, out))
    return PyErr_Occurred() ? -1 : (PyErr_NoMemory(), -1);
  memcpy(f->in, args, f->nin * sizeof *args);
  f->first = first;
  f->end = r->g->nnode;
  f->hooked = PyCFunction_GET_SELF(c->f) == mg_torch.backward_hook_function;
  f->once |= once || f->hooked;
  function_mark(r->g, first);
  while (*end) end = &(*end)->next;
  *end = f;
  return 0;
}

/* The arguments that the node has; *template: None, or how the call's own are made of them. */
static PyObject *function_show_args(const MgCall *c, Py_ssize_t first, PyObject **template) {
  PyObject *args = PyTuple_New(c->n - first), *leaves = NULL;
  bool plain = true;
  for (Py_ssize_t i = first; args && i < c->n; i++) {
    PyTuple_SET_ITEM(args, i - first, Py_NewRef(c->arg[i]));
    plain = plain && function_can_show(c->arg[i]);
  }
  if (plain) *template = Py_NewRef(Py_None);
  else if (args && (leaves = PyList_New(0)) && (*template = mg_functree_take(args, leaves)))
    Py_SETREF(args, PyList_AsTuple(leaves));
  Py_XDECREF(leaves);
  if (!*template) Py_CLEAR(args);
  return args;
}

/* What the node gives: all results, or where one is an object the tensors in them. */
static PyObject *function_show_results(PyObject *res, PyObject *target) {
  PyObject *all = PyTuple_Check(res) ? Py_NewRef(res) : PyTuple_Pack(1, res), *leaves = NULL,
           *template = NULL;
  bool plain = true;
  for (Py_ssize_t i = 0; all && i < PyTuple_GET_SIZE(all); i++) {
    PyObject *o = PyTuple_GET_ITEM(all, i);
    plain = plain && (mg_standin_check(o) || mg_standin_transformed(o) || mg_functree_is_constant(o));
  }
  if (!all || plain) return all;
  if ((leaves = PyList_New(0)) && (template = mg_functree_take(all, leaves)))
    Py_SETREF(all, PyList_AsTuple(leaves));
  else Py_CLEAR(all);
  Py_XDECREF(leaves);
  Py_XDECREF(template);
  if (!all && !PyErr_Occurred())
    mg_rec_break(BK_custom_backend, "an autograd.Function that gives objects with state in C");
  if (all && PyObject_SetAttrString(target, "flat", Py_True)) Py_CLEAR(all);
  return all;
}

/* Tensors among the results or arguments that autograd tracks. */
static PyObject *function_tracked(PyObject *const *v, Py_ssize_t n) {
  PyObject *list = PyList_New(0), *t = NULL;
  for (Py_ssize_t i = 0; list && i < n; i++)
    if (mg_standin_check(v[i]) && mg_facts_requires_grad(v[i]) && PyList_Append(list, v[i])) Py_CLEAR(list);
  if (list) t = PyList_AsTuple(list);
  Py_XDECREF(list);
  return t;
}

/* What the arguments consist of: (template, tensors); None: no objects among them. */
static PyObject *function_contents(const MgCall *c) {
  bool plain = true;
  PyObject *args = PyTuple_New(c->n), *leaves = NULL, *template = NULL, *r = NULL;
  for (Py_ssize_t i = 0; args && i < c->n; i++) {
    plain &= mg_standin_check(c->arg[i]) || mg_functree_is_constant(c->arg[i]);
    PyTuple_SET_ITEM(args, i, Py_NewRef(c->arg[i]));
  }
  if (args && plain) r = Py_NewRef(Py_None);
  else if (args && (leaves = PyList_New(0)) && (template = mg_functree_take(args, leaves)))
    r = PyTuple_Pack(2, template, leaves);
  Py_XDECREF(args);
  Py_XDECREF(leaves);
  Py_XDECREF(template);
  return r;
}

static bool function_same_contents(PyObject *a, PyObject *b) {
  if (a == Py_None || b == Py_None) return a == b;
  PyObject *x = PyTuple_GET_ITEM(a, 1), *y = PyTuple_GET_ITEM(b, 1);
  bool same = PyList_GET_SIZE(x) == PyList_GET_SIZE(y);
  for (Py_ssize_t i = 0; same && i < PyList_GET_SIZE(x); i++)
    same = PyList_GET_ITEM(x, i) == PyList_GET_ITEM(y, i);
  same = same && PyObject_RichCompareBool(PyTuple_GET_ITEM(a, 0), PyTuple_GET_ITEM(b, 0), Py_EQ) == 1;
  mg_clear_as_no();
  return same;
}

/* The node gives its function objects made anew of tensors, and a back end may run backward while it
 * compiles, or not at all: one that changes something else than gradients breaks the graph. */
static int function_rehearse_backward(MgRec *r, const MgCall *c, PyObject *res) {
  bool many = PyTuple_Check(res);
  PyObject *roots =
      function_tracked(many ? &PyTuple_GET_ITEM(res, 0) : &res, many ? PyTuple_GET_SIZE(res) : 1);
  PyObject *leaves = roots ? function_tracked(c->arg, c->n) : NULL, *before = NULL, *after = NULL,
           *grads = NULL, *tangents = NULL;
  Py_ssize_t n = roots ? PyTuple_GET_SIZE(roots) : 0;
  NodeRef first = r->g->nnode;
  int rc = leaves && (!n || !PyTuple_GET_SIZE(leaves)) ? 0 : -1;
  if (!leaves || !rc || !(before = function_contents(c)) || !(tangents = PyTuple_New(n))) goto done;
  for (Py_ssize_t i = 0; i < n; i++) {
    PyObject *arg = PyTuple_Pack(1, PyTuple_GET_ITEM(roots, i)),
             *t = arg ? mg_dispatch_call(r->cap, "ones_like", "default", arg, NULL) : NULL;
    Py_XDECREF(arg);
    if (!t) goto done;
    PyTuple_SET_ITEM(tangents, i, t);
  }
  if (!(grads = mg_joint_rehearse(r, roots, tangents, leaves)) || !(after = function_contents(c))) goto done;
  if (function_same_contents(before, after)) rc = 0;
  else
    mg_rec_break(BK_custom_backend,
                 "a backward function that changes its arguments, in a graph for a custom backend");
done:
  r->g->nnode = first;
  Py_XDECREF(roots);
  Py_XDECREF(leaves);
  Py_XDECREF(before);
  Py_XDECREF(after);
  Py_XDECREF(tangents);
  Py_XDECREF(grads);
  return rc;
}

/* The call as one node of a torch-level graph, whose backward is the user's; arguments from `first` on are
 * its own.  The node gives a tuple. */
static PyObject *function_show(MgRec *r, const MgCall *c, PyObject *cls, Py_ssize_t first) {
  MgCapture *cap = r->cap;
  PyObject *template = NULL, *args = function_show_args(c, first, &template), *m = NULL, *target = NULL,
           *res = NULL, *all = NULL;
  MgFxCall call = {0};
  if (!args) return PyErr_Occurred() ? NULL : mg_call_unknown(c);
  MgPause pause = mg_rec_pause();
  if ((m = mg_glue(GLUE_fx_targets))) target = PyObject_CallMethod(m, "FunctionCall", "OO", cls, template);
  int rc = target ? mg_fx_before(cap, args, NULL, &call) : -1;
  mg_rec_resume(pause);
  if (!rc) {
    bool quiet = cap->quiet;
    cap->quiet = true;
    res = mg_call_plain(c);
    cap->quiet = quiet;
  }
  if (res) all = function_show_results(res, target);
  pause = mg_rec_pause();
  if (res && (!all || mg_fx_after(cap, target, args, NULL, &call, all))) Py_CLEAR(res);
  mg_rec_resume(pause);
  mg_fx_drop(&call);
  Py_XDECREF(template);
  Py_XDECREF(args);
  Py_XDECREF(m);
  Py_XDECREF(target);
  Py_XDECREF(all);
  return res;
}

bool mg_function_transformed(const MgCall *c, PyObject **out) {
  MgRec *r = mg_rec;
  if (!r->want_fx || r->cap->quiet || mg_fx_is_aten(r->cap) || c->kwnames || c->n < 1 ||
      !PyType_Check(c->arg[0]))
    return false;
  *out = function_show(r, c, c->arg[0], 1);
  return true;
}

/* Runs it.  When forward has changed something that is older than the recording, which the snapshot writes,
 * nothing may call it again: not the graph, and so a break where it has to show the call. */
static PyObject *function_record(MgRec *r, const MgCall *c) {
  ValRef small[16], *args = c->n <= 16 ? small : mg_new(r->g->c, ValRef, c->n);
  if (!args) return PyErr_NoMemory();
  for (Py_ssize_t i = 0; i < c->n; i++) args[i] = mg_standin_check(c->arg[i]) ? mg_standin_val(c->arg[i]) : 0;
  MgSnapshot *before = mg_snapshot_build(NULL, 0, NULL, Py_None), *after = NULL;
  NodeRef first = r->g->nnode;
  bool whole = mg_ops.marked_class(PyCFunction_GET_SELF(c->f)); /* nothing but its ops is recorded */
  MgPause pause = {0};
  if (whole) pause = mg_rec_pause();
  PyObject *res = !before                        ? NULL
                  : r->want_fx && !r->cap->quiet ? function_show(r, c, PyCFunction_GET_SELF(c->f), 0)
                                                 : mg_call_plain(c);
  if (whole) mg_rec_resume(pause);
  if (res && !(after = mg_snapshot_build(NULL, 0, NULL, Py_None))) Py_CLEAR(res);
  bool once = res && !mg_snapshot_same(before, after);
  bool shown = r->want_fx && !r->cap->quiet && !r->in_joint;
  if (res && ((once && r->want_fx) || (shown && function_rehearse_backward(r, c, res)) ||
              function_keep(r, c, args, first, res, once))) {
    Py_CLEAR(res);
    if (!PyErr_Occurred() && !r->abort) mg_call_unknown(c);
  }
  mg_snapshot_free(before);
  mg_snapshot_free(after);
  return res;
}

/* The call with other arguments: a tuple of (positional, keywords). */
static PyObject *function_go_on(const MgCall *c, PyObject *bound) {
  PyObject *args = PyTuple_GET_ITEM(bound, 0), *kwargs = PyTuple_GET_ITEM(bound, 1);
  PyObject *kwnames = PyDict_Check(kwargs) ? PySequence_Tuple(kwargs) : NULL, *v = NULL, *r = NULL;
  Py_ssize_t npos = PyTuple_Check(args) ? PyTuple_GET_SIZE(args) : 0,
             nkw = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
  if (kwnames) v = PyTuple_New(npos + nkw);
  for (Py_ssize_t i = 0; v && i < npos + nkw; i++) {
    PyObject *o = i < npos ? PyTuple_GET_ITEM(args, i)
                           : PyDict_GetItemWithError(kwargs, PyTuple_GET_ITEM(kwnames, i - npos));
    PyTuple_SET_ITEM(v, i, Py_XNewRef(o));
  }
  if (v) {
    mg_rec->bound = true;
    mg_rec->tail_call = c->tail;
    r = mg_ops.call(c->f, &PyTuple_GET_ITEM(v, 0), (size_t)npos, nkw ? kwnames : NULL);
  }
  Py_XDECREF(kwnames);
  Py_XDECREF(v);
  return r;
}

bool mg_function_begin(const MgCall *c, PyObject **out) {
  PyObject *cls = PyCFunction_Check(c->f) ? PyCFunction_GET_SELF(c->f) : NULL;
  bool bound = mg_rec->bound;
  mg_rec->bound = false;
  if (bound || !cls || !PyType_Check(cls)) return false;
  MgPause pause = mg_rec_pause();
  PyObject *m = mg_glue(GLUE_polyfills), *f = m ? PyObject_GetAttrString(m, "begin_apply") : NULL, *v = NULL,
           *r;
  mg_rec_resume(pause);
  Py_XDECREF(m);
  *out = NULL;
  if (!f || f == Py_None) return Py_XDECREF(f), !f;
  if ((v = PyTuple_New(c->n + 1))) {
    PyTuple_SET_ITEM(v, 0, Py_NewRef(cls));
    for (Py_ssize_t i = 0; i < c->n; i++) PyTuple_SET_ITEM(v, i + 1, Py_NewRef(c->arg[i]));
    r = mg_ops.call(f, &PyTuple_GET_ITEM(v, 0), (size_t)c->npos + 1, c->kwnames);
    if (r && PyTuple_CheckExact(r) && PyTuple_GET_SIZE(r) == 2) *out = function_go_on(c, r);
    else if (r && PyList_CheckExact(r) && PyList_GET_SIZE(r) == 1) *out = Py_NewRef(PyList_GET_ITEM(r, 0));
    Py_XDECREF(r);
  }
  Py_XDECREF(v);
  Py_DECREF(f);
  return true;
}

PyObject *mg_function_apply(const MgCall *c) {
  MgRec *r = mg_rec;
  PyObject *cls = PyCFunction_Check(c->f) ? PyCFunction_GET_SELF(c->f) : NULL;
  if (mg_retry_denied(r, RETRY_function) || (r->want_fx && mg_fx_is_aten(r->cap)) || c->kwnames || !cls ||
      !PyType_Check(cls))
    return mg_call_unknown(c);
  if (function_guard_class(cls)) return NULL;
  bool hooks = cls == mg_torch.backward_hook_function && !r->want_fx;
  return function_is_torchs(cls) && !hooks ? mg_call_unknown(c) : function_record(r, c);
}

PyObject *mg_function_hook(const MgCall *c) {
  PyObject *node = c->n ? c->arg[0] : NULL;
  if (PyCFunction_Check(c->f)) node = PyCFunction_GET_SELF(c->f);
  MgPause pause = mg_rec_pause();
  PyObject *cls = node ? PyObject_GetAttrString(node, "_forward_cls") : NULL, *handle = NULL;
  bool hooked =
      cls && cls == mg_torch.backward_hook_function; /* made here: nodes of older tensors are not to be had */
  Py_XDECREF(cls);
  mg_clear_as_no();
  if (hooked) handle = PyObject_Vectorcall(c->f, c->arg, c->nargsf, c->kwnames);
  mg_rec_resume(pause);
  if (handle) mg_fresh(handle);
  return hooked ? handle : mg_call_unknown(c);
}
