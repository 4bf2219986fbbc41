/* See the header. */
#include "entry/grad/result_links.h"
#include <stdlib.h>
#include <string.h>
#include "base/bits.h"
#include "base/log.h"
#include "entry/grad/joint_plans.h"
#include "entry/grad/node_type.h"
#include "host/python/glue.h"
#include "host/python/names.h"
#include "host/python/pyobject.h"
#include "runtime/process/torch_abi.h"

typedef struct Linked { /* a result with a port */
  PyObject *raw;        /* strong; NULL once it has its port */
  PyObject *weak;       /* a weak reference to it, where others are computed from it; else NULL */
  const void *node;     /* its port in PyTorch's graph, only compared */
  int64_t version;      /* of the result when it was made */
} Linked;

typedef struct MgLinks {       /* of one forward run; its node and its ports hold it */
  PyObject_HEAD MgAutograd *a; /* strong */
  Linked *of;                  /* by result with a grad_fn; owned */
  bool watched;                /* a hook was put on a result that others are computed from */
  bool exact;                  /* what was found for the pass `task` */
  int task;                    /* the engine's number of a pass */
} MgLinks;

static _Thread_local PyObject *links_now; /* the result that is getting its port */
static PyObject *links_apply;             /* the forward class's apply */
static PyObject *links_register;          /* torch's _register_hook_dict */
static PyObject *links_post, *links_pre;  /* torch's register_hook and register_prehook of nodes */
static Py_ssize_t port_links, port_join,
    port_index; /* slots: MgLinks; the node of all results; the result's number, an int */

static PyObject *port_slot(PyObject *node, Py_ssize_t at) { return *(PyObject **)((char *)node + at); }

static void links_dealloc(PyObject *o) {
  MgLinks *s = (MgLinks *)o;
  for (uint32_t i = 0; s->of && i < s->a->nthrough; i++) {
    Py_XDECREF(s->of[i].raw);
    Py_XDECREF(s->of[i].weak);
  }
  free(s->of);
  Py_DECREF(s->a);
  PyObject_Free(o);
}

static PyTypeObject links_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "magneto._magneto.ResultLinks",
    .tp_basicsize = sizeof(MgLinks),
    .tp_dealloc = links_dealloc,
    .tp_flags = Py_TPFLAGS_DEFAULT,
};

static const uint64_t *links_row(const MgAutograd *a, uint32_t i) { return a->link + (size_t)a->words * i; }

bool mg_links_target(const PyObject *links, uint32_t i) {
  return ((const MgLinks *)links)->of[i].weak != NULL;
}

/* ---- forward ---- */

PyObject *mg_links_new(MgAutograd *a, PyObject **res) {
  MgLinks *s = PyObject_New(MgLinks, &links_type);
  if (!s) return NULL;
  s->a = (MgAutograd *)Py_NewRef((PyObject *)a);
  s->of = mg_calloc(a->nthrough + 1, sizeof *s->of);
  s->watched = s->exact = false;
  s->task = -1;
  if (!s->of) PyErr_NoMemory();
  for (uint32_t i = 0; s->of && i < a->nport; i++) {
    PyObject **r = &res[a->port[i]], *alias = PyObject_CallMethod(*r, "detach", NULL);
    if (!alias) break;
    s->of[a->port[i]].raw = *r;
    *r = alias;
  }
  if (!PyErr_Occurred()) return (PyObject *)s;
  Py_DECREF(s);
  return NULL;
}

/* What is asked of a result that others are computed from, when a pass comes. */
static int links_remember(Linked *l, PyObject *t) {
  PyObject *version = PyObject_GetAttrString(t, "_version");
  l->version = version ? PyLong_AsLongLong(version) : 0;
  Py_XDECREF(version);
  if (PyErr_Occurred() || !(l->weak = PyWeakref_NewRef(t, NULL))) return -1;
  if (mg_abi.grad_fn) l->node = *(const void *const *)mg_abi.grad_fn(mg_abi_tensor(t));
  return 0;
}

/* The port of result i.  The ports of what it is computed from are there. */
static int links_port(MgLinks *s, uint32_t i, PyObject **res, PyObject **arg) {
  const MgAutograd *a = s->a;
  uint32_t n = 0;
  arg[n++] = res[i];
  for (uint32_t k = 0; k < a->nthrough; k++)
    if (mg_bits_has(links_row(a, i), k)) arg[n++] = res[k];
  PyObject *join = PyObject_GetAttrString(res[i], "grad_fn"), *index = PyLong_FromUnsignedLong(i), *t = NULL,
           *node = NULL;
  if (join && index) {
    links_now = s->of[i].raw;
    t = PyObject_Vectorcall(links_apply, arg, n, NULL);
    links_now = NULL;
  }
  Py_CLEAR(s->of[i].raw);
  if (t && (node = PyObject_GetAttrString(t, "grad_fn"))) {
    *(PyObject **)((char *)node + port_links) = Py_NewRef((PyObject *)s);
    *(PyObject **)((char *)node + port_join) = Py_NewRef(join);
    *(PyObject **)((char *)node + port_index) = Py_NewRef(index);
    Py_SETREF(res[i], Py_NewRef(t));
  }
  Py_XDECREF(join);
  Py_XDECREF(index);
  Py_XDECREF(t);
  Py_XDECREF(node);
  return node ? 0 : -1;
}

int mg_links_attach(PyObject *links, PyObject **res) {
  MgLinks *s = (MgLinks *)links;
  const MgAutograd *a = s->a;
  PyObject **arg = mg_malloc((a->nthrough + 1) * sizeof *arg);
  int rc = arg ? 0 : (PyErr_NoMemory(), -1);
  for (uint32_t i = 0; !rc && i < a->nport; i++) rc = links_port(s, a->port[i], res, arg);
  for (uint32_t i = 0; !rc && i < a->nport; i++)
    for (uint32_t k = 0; !rc && k < a->nthrough; k++)
      if (mg_bits_has(links_row(a, a->port[i]), k) && !s->of[k].weak) rc = links_remember(&s->of[k], res[k]);
  free(arg);
  return rc;
}

static PyObject *port_forward(PyObject *self, PyObject *const *arg, Py_ssize_t n) {
  if (PyObject_SetAttrString(arg[0], "materialize_grads", Py_False)) return NULL;
  return Py_NewRef(links_now);
}

/* ---- backward ---- */

/* libstdc++'s std::unordered_map<Node *, ExecInfo>: what a pass with inputs= runs and captures. */
typedef struct ExecNode {
  const struct ExecNode *next;
  const void *node;
  bool needed;
  const void *captures;
} ExecNode;
typedef struct ExecMap {
  const void *buckets;
  size_t nbucket;
  const ExecNode *first;
  size_t count;
} ExecMap;

/* Does the pass capture the gradient of a result that others are computed from?  Without an answer, yes. */
static bool links_captured(const MgLinks *s) {
  const ExecMap *map = mg_abi.exec_info && mg_abi.grad_fn ? mg_abi.exec_info() : NULL;
  if (!map) return true;
  const ExecNode *e = map->first;
  for (size_t i = 0; i < map->count && e; i++, e = e->next)
    for (uint32_t k = 0; e->captures && k < s->a->nport; k++)
      if (s->of[s->a->port[k]].node == e->node) return true;
  return false;
}

/* new; NULL without an exception when the tensor is gone */
static PyObject *links_alive(const Linked *l) {
  PyObject *t = l->weak ? mg_weakref_target(l->weak) : NULL;
  return t && t != Py_None ? Py_NewRef(t) : NULL;
}

/* Did the program call retain_grad?  -1 with an exception. */
static int links_retained(const MgLinks *s) {
  int yes = 0;
  for (uint32_t i = 0; !yes && i < s->a->nport; i++) {
    PyObject *t = links_alive(&s->of[s->a->port[i]]),
             *r = t ? PyObject_GetAttrString(t, "retains_grad") : NULL;
    if (t) yes = r ? PyObject_IsTrue(r) : -1;
    Py_XDECREF(r);
    Py_XDECREF(t);
  }
  return yes;
}

int mg_links_exact(PyObject *links) {
  MgLinks *s = (MgLinks *)links;
  int task = mg_abi.graph_task ? mg_abi.graph_task() : -1;
  if (task >= 0 && task == s->task) return s->exact;
  int exact = s->watched || links_captured(s) ? 1 : links_retained(s);
  if (exact < 0) return -1;
  s->task = task;
  s->exact = exact;
  if (exact && !s->a->asked) {
    s->a->asked = true;
    mg_log(MG_LOG_fallback,
           "a compiled graph runs op by op from now on: gradients between its results are asked for");
  }
  return exact;
}

PyObject *mg_links_stand(PyObject *links, uint32_t i, PyObject *made, bool create) {
  const Linked *l = &((MgLinks *)links)->of[i];
  PyObject *t = NULL, *version = NULL;
  if (!create) {
    PyObject *leaf = PyObject_CallMethod(made, "detach", NULL);
    if (leaf && PyObject_SetAttrString(leaf, "requires_grad", Py_True)) Py_CLEAR(leaf);
    return leaf;
  }
  if ((t = links_alive(l)) && (version = PyObject_GetAttrString(t, "_version")) &&
      PyLong_AsLongLong(version) == l->version) {
    mg_abi.aoti_torch_grad_mode_set_enabled(true);
    Py_DECREF(version);
    PyObject *r = PyObject_CallMethod(t, "view_as", "O", t);
    Py_DECREF(t);
    return r;
  }
  Py_XDECREF(t);
  Py_XDECREF(version);
  if (!PyErr_Occurred())
    PyErr_SetString(PyExc_RuntimeError,
                    "magneto: the gradient between two results of a compiled function cannot be "
                    "differentiated, since one of them was freed or modified by an inplace operation; run "
                    "the function without "
                    "magneto for that");
  return NULL;
}

static PyObject *port_backward(PyObject *node, PyObject *const *tangent, Py_ssize_t n) {
  MgLinks *s = (MgLinks *)port_slot(node, port_links);
  PyObject *join = port_slot(node, port_join), *index = port_slot(node, port_index);
  if (!s || !join || !index || n != 1)
    return PyErr_Format(PyExc_RuntimeError, "magneto: backward of a result: %zd gradients", n);
  uint32_t i = (uint32_t)PyLong_AsUnsignedLong(index), nlink = 0;
  for (uint32_t k = 0; k < s->a->nthrough; k++) nlink += mg_bits_has(links_row(s->a, i), k);
  int exact = nlink && tangent[0] != Py_None ? mg_links_exact((PyObject *)s) : 0;
  if (exact < 0) return NULL;
  PyObject *between = exact ? mg_gradnode_between(join, i, tangent[0]) : NULL, *r = NULL;
  if (exact && !between) return NULL;
  if ((r = PyTuple_New(1 + (Py_ssize_t)nlink))) PyTuple_SET_ITEM(r, 0, Py_NewRef(tangent[0]));
  for (uint32_t k = 0; r && k < nlink; k++)
    PyTuple_SET_ITEM(r, 1 + k, Py_NewRef(between ? PyTuple_GET_ITEM(between, k) : Py_None));
  Py_XDECREF(between);
  return r;
}

/* ---- hooks ---- */

static void port_watch(PyObject *node) {
  MgLinks *s = (MgLinks *)port_slot(node, port_links);
  PyObject *index = port_slot(node, port_index);
  if (s && index && mg_links_target((PyObject *)s, (uint32_t)PyLong_AsUnsignedLong(index))) s->watched = true;
}

/* The first hook on a result.  A pass may run its port without a gradient, and eager
 * would not run its node then. */
static PyObject *port_hook(PyObject *node, PyObject *tensor) {
  port_watch(node);
  PyObject *m = mg_glue(GLUE_tensor_hooks);
  PyObject *r = m ? PyObject_CallMethod(m, "register_reached", "OOO", links_register, node, tensor) : NULL;
  Py_XDECREF(m);
  return r;
}

static PyObject *port_post_hook(PyObject *node, PyObject *hook) {
  port_watch(node);
  return PyObject_CallFunctionObjArgs(links_post, node, hook, NULL);
}

static PyObject *port_pre_hook(PyObject *node, PyObject *hook) {
  port_watch(node);
  return PyObject_CallFunctionObjArgs(links_pre, node, hook, NULL);
}

/* ---- the two classes ---- */

static PyMethodDef port_methods[] = {
    {"apply", (PyCFunction)(void *)port_backward, METH_FASTCALL, NULL},
    {"_register_hook_dict", port_hook, METH_O, NULL},
    {"register_hook", port_post_hook, METH_O, NULL},
    {"register_prehook", port_pre_hook, METH_O, NULL},
};
static PyMethodDef port_forward_def = {"forward", (PyCFunction)(void *)port_forward, METH_FASTCALL, NULL};

static int port_fill(PyObject *type) {
  for (size_t i = 0; i < sizeof port_methods / sizeof *port_methods; i++) {
    PyObject *f = PyDescr_NewMethod((PyTypeObject *)type, &port_methods[i]);
    int rc = f ? PyObject_SetAttrString(type, port_methods[i].ml_name, f) : -1;
    Py_XDECREF(f);
    if (rc) return -1;
  }
  return 0;
}

int mg_links_init(PyObject *base, PyObject *setup) {
  PyObject *body = Py_BuildValue("{s:(sss),s:s,s:O,s:O}", "__slots__", "_links", "_join", "_index",
                                 "__module__", "magneto._magneto", "clear_saved_tensors_on_access", Py_False,
                                 "boxed_grads_call", Py_False);
  PyObject *bwd = mg_nodetype_backward("MagnetoResultBackward", base, body), *fwd = NULL, *forward = NULL;
  int rc = -1;
  if (!bwd || PyType_Ready(&links_type)) goto done;
  if (mg_nodetype_slot(bwd, "_links", &port_links) || mg_nodetype_slot(bwd, "_join", &port_join)) goto done;
  if (mg_nodetype_slot(bwd, "_index", &port_index)) goto done;
  if (!(links_register = PyObject_GetAttrString(base, "_register_hook_dict"))) goto done;
  if (!(links_post = PyObject_GetAttrString(base, "register_hook"))) goto done;
  if (!(links_pre = PyObject_GetAttrString(base, "register_prehook"))) goto done;
  if (port_fill(bwd) || !(forward = PyCFunction_New(&port_forward_def, NULL))) goto done;
  body = Py_BuildValue("{s:O,s:O,s:O,s:s,s:O,s:O}", "_backward_cls", bwd, "forward", forward, "setup_context",
                       setup, "__module__", "magneto._magneto", "clear_saved_tensors_on_access", Py_False,
                       "boxed_grads_call", Py_False);
  if (!(fwd = mg_nodetype_forward("MagnetoResult", base, body)) ||
      !(links_apply = PyObject_GetAttrString(fwd, "apply")))
    goto done;
  rc = 0;
done:
  Py_XDECREF(bwd);
  Py_XDECREF(fwd);
  Py_XDECREF(forward);
  return rc;
}
