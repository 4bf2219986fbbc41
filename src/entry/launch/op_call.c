/* Calls of ATen nodes.
 * In: a graph node.  Out: an argument template: constants are objects already, tensors are positions.  A run
 * fills the
 * positions and makes one vectorcall of the OpOverload's _op, which does no Python-level work.  A plan calls
 * operators as C++ does where it can (runtime/process/cxxcall); what throws there is called again in the
 * first way, which gives Python's exception. */
#include "entry/launch/op_call.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "driver/compile.h"
#include "entry/launch/plan_call.h"
#include "host/python/names.h"
#include "host/python/pyobject.h"
#include "host/torch/literals.h"
#include "host/torch/tensor_wrap.h"
#include "host/torch/torch_state.h"
#include "ir/infer/graph_at.h"
#include "runtime/plan/gpu_attention.h"
#include "runtime/plan/gpu_seeds.h"
#include "runtime/process/cxxcall.h"
#include "runtime/process/torch_abi.h"

typedef struct CallArg {
  enum { CA_const, CA_tensor, CA_list, CA_size } kind;
  uint32_t n;           /* CA_list: items */
  SymRef size;          /* CA_size: an int that a run computes */
  PyObject *obj;        /* CA_const, and the number in a tensor's place (CA_tensor); strong */
  struct CallArg *item; /* CA_list that holds tensors, owned */
} CallArg;

struct MgNodeCall {
  PyObject *func;    /* torch._ops.OpOverload, borrowed, process lifetime */
  PyObject *fn;      /* its _op, borrowed, process lifetime */
  PyObject *kwnames; /* tuple or NULL, strong */
  CallArg *arg;      /* narg entries, the last ones by name */
  uint32_t narg, npos;
  uint32_t nin, nout;
  uint32_t ncopy; /* tensors that the op writes, when it runs on copies of them: the last results */
  uint32_t *copy; /* their positions among the nin tensors, owned */
  bool symbolic;  /* sizes are computed in every run */
  bool grad;      /* a plan runs it with grad mode on, although autograd is not asked */
  MgCxxCall *cxx; /* the same call without Python, or NULL; only plans use it */
  MgGpuAttention *attention; /* what a kernel of ours may do in its place, or NULL */
  int seeds;                 /* backward of attention with dropout: the position of the seeds; else 0 */
};

/* ---- building ---- */

/* Positions are counted in the order of mg_node_each_tensor. */
static int nodecall_arg(MgGraph *g, const MgArg *a, uint8_t kind, PyObject *objs, MgNodeCall *c,
                        CallArg *out) {
  if (kind == AK_tensor && (a->tag == MA_val || a->tag == MA_none)) {
    *out = (CallArg){.kind = CA_tensor};
    c->nin++;
    if (a->tag == MA_val || a->tag == MA_none) return 0;
    out->obj = mg_torchobj_from_arg(g, a, objs); /* a wrapped number keeps its position */
    return out->obj ? 0 : -1;
  }
  int64_t fixed;
  if (c->symbolic && a->tag == MA_int && !mg_ex_const_int(g->x, a->u.sym, &fixed)) {
    *out = (CallArg){.kind = CA_size, .size = a->u.sym};
    return 0;
  }
  bool sizes = false;
  for (uint32_t i = 0; c->symbolic && a->tag == MA_list && i < a->n; i++)
    sizes |= a->u.item[i].tag == MA_int && !mg_ex_const_int(g->x, a->u.item[i].u.sym, &fixed);
  if (a->tag != MA_list || (kind != AK_tensor_list && kind != AK_opt_tensor_list && !sizes)) {
    *out = (CallArg){.kind = CA_const, .obj = mg_torchobj_from_arg(g, a, objs)};
    return out->obj ? 0 : -1;
  }
  *out = (CallArg){.kind = CA_list, .item = mg_calloc(a->n, sizeof *out->item)};
  if (!out->item) return PyErr_NoMemory(), -1;
  for (; out->n < a->n; out->n++)
    if (nodecall_arg(g, &a->u.item[out->n], sizes ? AK_int : AK_tensor, objs, c, &out->item[out->n]))
      return -1;
  return 0;
}

static void nodecall_arg_free(CallArg *a) {
  for (uint32_t i = 0; i < a->n; i++) nodecall_arg_free(&a->item[i]);
  free(a->item);
  Py_XDECREF(a->obj);
}

static int nodecall_fill(MgNodeCall *c, MgGraph *g, NodeRef n, PyObject *objs) {
  const MgNode *node = mg_node(g, n);
  const MgFrontOp *op = mg_frontop_of(node->op);
  if (!op) return -1;
  c->func = op->func;
  c->fn = op->call;
  c->grad = op->fate == FATE_record_grad && node->grad_mode;
  c->nout = node->nout;
  if (!(c->arg = mg_calloc(node->narg, sizeof *c->arg))) return PyErr_NoMemory(), -1;
  while (c->npos < node->narg && !node->op->param[c->npos].kwarg_only) c->npos++;
  for (; c->narg < node->narg; c->narg++)
    if (nodecall_arg(g, &node->arg[c->narg], node->op->param[c->narg].kind, objs, c, &c->arg[c->narg]))
      return -1;
  if (c->narg == c->npos) return 0;
  if (!(c->kwnames = PyTuple_New(c->narg - c->npos))) return -1;
  for (int i = c->npos; i < c->narg; i++) PyTuple_SET_ITEM(c->kwnames, i - c->npos, Py_NewRef(op->name[i]));
  return 0;
}

MgNodeCall *mg_nodecall_new(MgGraph *g, NodeRef n, PyObject *objs) {
  return mg_nodecall_new_at(g, n, objs, false);
}

MgNodeCall *mg_nodecall_new_at(MgGraph *g, NodeRef n, PyObject *objs, bool symbolic) {
  MgNodeCall *c = mg_calloc(1, sizeof *c);
  if (!c) return (MgNodeCall *)PyErr_NoMemory();
  c->symbolic = symbolic;
  if (!nodecall_fill(c, g, n, objs)) return c;
  c->narg = mg_node(g, n)->narg; /* also the entry that failed holds something */
  mg_nodecall_free(c);
  return NULL;
}

void mg_nodecall_free(MgNodeCall *c) {
  if (!c) return;
  for (int i = 0; c->arg && i < c->narg; i++) nodecall_arg_free(&c->arg[i]);
  mg_cxxcall_free(c->cxx);
  free(c->attention);
  free(c->arg);
  free(c->copy);
  Py_XDECREF(c->kwnames);
  free(c);
}

int mg_nodecall_nin(const MgNodeCall *c) { return c->nin; }

/* ---- running ---- */

static PyObject *nodecall_size(const MgCallSizes *at, SymRef e) {
  if (!at->size) return PyLong_FromLongLong(mg_sym_eval(at->x, e, at->env));
  SymRef own = mg_sym_copy(at->to, at->x, e, at->copied);
  return own ? at->size(at->arg, own) : PyErr_NoMemory();
}

/* The argument's value; borrowed for constants and tensors, new for lists and sizes. */
static PyObject *nodecall_value(const CallArg *a, PyObject *const **vals, const MgCallSizes *at) {
  if (a->kind == CA_const) return a->obj;
  if (a->kind == CA_size) return nodecall_size(at, a->size);
  if (a->kind == CA_tensor) {
    PyObject *t = *(*vals)++;
    return t ? t : a->obj ? a->obj : Py_None;
  }
  PyObject *list = PyList_New(a->n);
  for (uint32_t i = 0; list && i < a->n; i++) {
    PyObject *o = nodecall_value(&a->item[i], vals, at);
    if (!o) {
      Py_CLEAR(list);
      break;
    }
    PyList_SET_ITEM(list, i, a->item[i].kind >= CA_list ? o : Py_NewRef(o));
  }
  return list;
}

/* Stores the tensors of a result, lists flattened; numbers among them are skipped. */
static int nodecall_results(PyObject *res, PyObject **outs, int *k, int nout) {
  if (PyTuple_Check(res) || PyList_Check(res)) {
    PyObject **item = PySequence_Fast_ITEMS(res);
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(res); i++)
      if (nodecall_results(item[i], outs, k, nout)) return -1;
    return 0;
  }
  if (PyLong_Check(res) || PyFloat_Check(res) || PyComplex_Check(res)) return 0;
  if (*k >= nout) {
    if (res == Py_None) return 0;
    PyErr_SetString(PyExc_SystemError, "magneto: an op returned more tensors than recorded");
    return -1;
  }
  outs[(*k)++] = res == Py_None ? NULL : Py_NewRef(res);
  return 0;
}

int mg_nodecall_run(const MgNodeCall *c, PyObject *const *vals, PyObject **outs) {
  return mg_nodecall_run_at(c, vals, outs, NULL);
}

int mg_nodecall_run_at(const MgNodeCall *c, PyObject *const *vals, PyObject **outs, const MgCallSizes *at) {
  PyObject *stack[24], **argv = stack, *res = NULL;
  PyObject *const *first = vals;
  int rc = -1, n = 0, k = 0;
  for (int i = 0; i < c->nout; i++) outs[i] = NULL;
  if (c->narg > 24 && !(argv = mg_malloc(c->narg * sizeof *argv))) return PyErr_NoMemory(), -1;
  for (; n < c->narg; n++)
    if (!(argv[n] = nodecall_value(&c->arg[n], &vals, at))) goto done;
  res = PyObject_Vectorcall(c->fn, argv, c->npos, c->kwnames);
  if (!res) goto done;
  rc = nodecall_results(res, outs, &k, c->nout - c->ncopy);
  for (int i = 0; !rc && i < c->ncopy && k < c->nout; i++) outs[k++] = Py_NewRef(first[c->copy[i]]);
  if (!rc && k < c->nout) {
    PyErr_SetString(PyExc_SystemError, "magneto: an op returned fewer tensors than recorded");
    rc = -1;
  }
done:
  for (int i = 0; rc && i < c->nout; i++) Py_CLEAR(outs[i]);
  for (int i = 0; i < n; i++)
    if (c->arg[i].kind >= CA_list) Py_DECREF(argv[i]);
  Py_XDECREF(res);
  if (argv != stack) free(argv);
  return rc;
}

PyObject *mg_nodecall_describe(const MgNodeCall *c, PyObject *const *vals) {
  PyObject *pos = PyTuple_New(c->npos), *named = PyDict_New(), *r = NULL;
  bool ok = pos && named;
  for (uint32_t i = 0; ok && i < c->narg; i++) {
    PyObject *o = nodecall_value(&c->arg[i], &vals, NULL);
    if (o && c->arg[i].kind < CA_list) Py_INCREF(o);
    ok = o;
    if (ok && i < c->npos) {
      PyTuple_SET_ITEM(pos, i, o);
    } else if (ok) {
      ok = !PyDict_SetItem(named, PyTuple_GET_ITEM(c->kwnames, i - c->npos), o);
      Py_DECREF(o);
    }
  }
  if (ok) r = PyTuple_Pack(3, c->func, pos, named);
  Py_XDECREF(pos);
  Py_XDECREF(named);
  return r;
}

/* ---- the host of a plan ---- */

/* In a functional graph an op that writes arguments runs on copies, which are further
 * results (middle/functionalize). */
static int nodecall_on_copies(MgNodeCall *c, const MgNode *n) {
  int at = 0;
  if (!n->op->mutates) return 0;
  if (!(c->copy = mg_calloc(c->nin + 1, sizeof *c->copy))) return -1;
  for (int i = 0; i < n->narg; i++) {
    const MgArg *a = &n->arg[i];
    uint8_t kind = n->op->param[i].kind;
    bool list = a->tag == MA_list && (kind == AK_tensor_list || kind == AK_opt_tensor_list);
    uint32_t items = kind == AK_tensor && (a->tag == MA_val || a->tag == MA_none) ? 1 : list ? a->n : 0;
    for (uint32_t k = 0; k < items; k++, at++)
      if (n->op->param[i].writes && (list ? &a->u.item[k] : a)->tag == MA_val)
        c->copy[c->ncopy++] = (uint32_t)at;
  }
  return 0;
}

/* ---- without Python ---- */

enum { CXX_ITEMS = 32, CXX_PARAMS = 24 }; /* numbers in the lists of one call, and its parameters */

/* A list of numbers; its items are kept in room. */
static bool nodecall_cxx_list(MgGraph *g, const MgArg *a, int64_t *room, int *used, MgCxxArg *out) {
  if (a->tag != MA_list || *used + a->n > CXX_ITEMS) return false;
  out->n = a->n;
  out->ints = room + *used;
  out->floats = (const double *)out->ints;
  for (uint32_t i = 0; i < a->n; i++, ++*used) {
    const MgArg *item = &a->u.item[i];
    if (out->type == CXX_floats && item->tag == MA_float) memcpy(&room[*used], &item->u.f, sizeof item->u.f);
    else if (out->type == CXX_bools && item->tag == MA_bool) room[*used] = item->u.b;
    else if (out->type != CXX_ints || item->tag != MA_int || !mg_sym_settle(g->x, item->u.sym, &room[*used]))
      return false;
  }
  return true;
}

/* A number, for a parameter that takes one of any kind or only floating point. */
static bool nodecall_cxx_number(MgGraph *g, const MgArg *a, MgCxxArg *out) {
  out->scalar = a->tag == MA_float ? 'd' : a->tag == MA_bool ? 'b' : 'i';
  if (a->tag == MA_float) return out->d = a->u.f, true;
  if (a->tag == MA_bool) out->i = a->u.b;
  else if (a->tag != MA_int || !mg_sym_settle(g->x, a->u.sym, &out->i)) return false;
  out->d = (double)out->i;
  return true;
}

static bool nodecall_cxx_arg(MgGraph *g, const MgArg *a, const MgParam *p, int64_t *room, int *used,
                             MgCxxArg *out) {
  static const int8_t type[AK_other + 1] = {/* and one more; 0: no such calls */
                                            [AK_tensor] = CXX_tensor + 1,
                                            [AK_tensor_list] = CXX_tensors + 1,
                                            [AK_int] = CXX_int + 1,
                                            [AK_int_list] = CXX_ints + 1,
                                            [AK_float] = CXX_float + 1,
                                            [AK_float_list] = CXX_floats + 1,
                                            [AK_bool] = CXX_bool + 1,
                                            [AK_scalar] = CXX_scalar + 1,
                                            [AK_bool_list] = CXX_bools + 1,
                                            [AK_dtype] = CXX_dtype + 1,
                                            [AK_layout] = CXX_layout + 1,
                                            [AK_device] = CXX_device + 1,
                                            [AK_memory_format] = CXX_memory_format + 1,
                                            [AK_str] = CXX_str + 1,
                                            [AK_generator] = CXX_generator + 1};
  if (!type[p->kind]) return false;
  *out = (MgCxxArg){.type = (uint8_t)(type[p->kind] - 1), .optional = p->optional};
  if (p->kind == AK_tensor) return a->tag == MA_val || a->tag == MA_none;
  out->none = a->tag == MA_none;
  if (out->none) return p->optional;
  out->i = a->u.code;
  out->index = a->dev_index;
  switch ((MgArgKind)p->kind) {
  case AK_tensor_list:
    for (uint32_t i = 0; a->tag == MA_list && i < a->n; i++)
      if (a->u.item[i].tag != MA_val) return false;
    out->n = a->n;
    return a->tag == MA_list;
  case AK_int: return a->tag == MA_int && mg_sym_settle(g->x, a->u.sym, &out->i);
  case AK_bool_list:
  case AK_int_list:
  case AK_float_list: return nodecall_cxx_list(g, a, room, used, out);
  case AK_float:
  case AK_scalar: return nodecall_cxx_number(g, a, out);
  case AK_bool: return out->i = a->u.b, a->tag == MA_bool;
  case AK_str: return out->str = a->u.str, a->tag == MA_str;
  case AK_dtype: return a->tag == MA_dtype;
  case AK_layout: return a->tag == MA_layout;
  case AK_device: return a->tag == MA_device;
  case AK_memory_format: return a->tag == MA_memory_format;
  default: return false;
  }
}

/* The call as C++ makes it, for what only gives new tensors. */
static MgCxxCall *nodecall_cxx(MgGraph *g, const MgNode *n) {
  MgCxxArg arg[CXX_PARAMS];
  int64_t room[CXX_ITEMS];
  int used = 0;
  if (n->op->mutates || strncmp(n->op->name, "aten::", 6) || n->narg > CXX_PARAMS || n->nout != n->op->nret)
    return NULL;
  for (int i = 0; i < n->op->nret; i++)
    if (n->op->ret_kind[i] != AK_tensor) return NULL;
  for (int i = 0; i < n->narg; i++)
    if (!nodecall_cxx_arg(g, &n->arg[i], &n->op->param[i], room, &used, &arg[i])) return NULL;
  return mg_cxxcall_new(n->op->name + 6, n->op->overload, arg, n->narg, n->op->nret);
}

static bool nodecall_is_sized(const CallArg *a) {
  bool sized = a->kind == CA_size;
  for (uint32_t i = 0; i < a->n; i++) sized |= nodecall_is_sized(&a->item[i]);
  return sized;
}

MgNodeCall *mg_nodecall_new_plain(MgGraph *g, NodeRef n, PyObject *objs) {
  MgNodeCall *c = mg_nodecall_new_at(g, n, objs, true);
  bool sized = !c || mg_node(g, n)->op->random; /* a call that raises is made again */
  for (uint32_t i = 0; c && i < c->narg; i++) sized |= nodecall_is_sized(&c->arg[i]);
  if (!sized) c->cxx = nodecall_cxx(g, mg_node(g, n));
  return c;
}

bool mg_nodecall_run_plain(const MgNodeCall *c, PyObject *const *vals, PyObject **outs) {
  enum { SMALL = 16 };
  MgTensor *in[SMALL], *out[SMALL];
  bool ok = true;
  if (!c->cxx || c->nin > SMALL || c->nout > SMALL) return false;
  for (uint32_t i = 0; i < c->nin; i++) {
    if (vals[i] && !Py_IS_TYPE(vals[i], (PyTypeObject *)mg_torch.tensor)) return false;
    in[i] = vals[i] ? mg_abi_tensor(vals[i]) : NULL;
  }
  if (!mg_cxxcall_run(c->cxx, in, out)) return false;
  for (uint32_t i = 0; i < c->nout; i++) {
    outs[i] = out[i] ? mg_tensor_wrap(out[i]) : NULL;
    ok &= !out[i] || outs[i];
  }
  for (uint32_t i = 0; !ok && i < c->nout; i++) Py_CLEAR(outs[i]);
  if (!ok) PyErr_Clear(); /* out of memory: the other way says so, too */
  return ok;
}

typedef struct CallTable {
  MgNodeCall **call;
  uint32_t n, cap;
  PyObject *objs; /* borrowed, while compiling */
} CallTable;

/* NULL: another op, or one with dropout. */
static MgGpuAttention *nodecall_attention(const MgGraph *g, const MgNode *n) {
  if (n->op->code != TOP__scaled_dot_product_efficient_attention || n->nout != 4) return NULL;
  const MgArg *dropout = mg_node_arg(n, "dropout_p"), *scale = mg_node_arg(n, "scale");
  if (dropout->tag != MA_float || dropout->u.f != 0) return NULL;
  if (scale->tag != MA_none && (scale->tag != MA_float || !isfinite(scale->u.f) || scale->u.f == 0))
    return NULL;
  MgGpuAttention *a = mg_calloc(1, sizeof *a);
  if (!a) return NULL;
  a->lse = mg_node_flag(n, "compute_log_sumexp");
  a->causal = mg_node_flag(n, "is_causal");
  a->scale = scale->tag == MA_float ? scale->u.f : 0;
  return a;
}

/* The position of the seeds among the tensors of a backward that draws what forward drew; 0: another op, or
 * one whose seeds are always on the device. */
static int nodecall_seeds(const MgNode *n) {
  if (n->op->code != TOP__scaled_dot_product_efficient_attention_backward) return 0;
  const MgArg *dropout = mg_node_arg(n, "dropout_p");
  bool drops = dropout->tag != MA_float || dropout->u.f != 0;
  return drops ? mg_op_param(n->op, "philox_seed") : 0; /* all before it are tensors */
}

static MgRc calltable_add(void *self, MgGraph *g, NodeRef n, uint32_t *id) {
  CallTable *t = self;
  if (t->n == t->cap && !mg_grow(&t->call, &t->cap, sizeof *t->call, 8))
    return mg_fail(g->c, MG_NOMEM, "out of memory");
  PyGILState_STATE gil = PyGILState_Ensure();
  MgNodeCall *c = mg_nodecall_new(g, n, t->objs);
  if (c && nodecall_on_copies(c, mg_node(g, n))) {
    mg_nodecall_free(c);
    c = (MgNodeCall *)PyErr_NoMemory();
  }
  if (c && !c->grad) c->cxx = nodecall_cxx(g, mg_node(g, n));
  if (c && !c->grad) c->attention = nodecall_attention(g, mg_node(g, n));
  if (c) c->seeds = nodecall_seeds(mg_node(g, n));
  PyGILState_Release(gil);
  if (!c) return mg_fail(g->c, MG_PYERR, "%s cannot be called from a plan", mg_node(g, n)->op->full);
  *id = t->n;
  t->call[t->n++] = c;
  return MG_OK;
}

/* With grad mode on, below autograd: as autograd calls kernels. */
static int calltable_run_grad(const MgNodeCall *c, PyObject *const *vals, PyObject **outs) {
  PyObject *below = mg_context_enter(PyObject_CallNoArgs(mg_torch.below_autograd));
  bool was = mg_abi.aoti_torch_grad_mode_is_enabled();
  if (!below) return -1;
  mg_abi.aoti_torch_grad_mode_set_enabled(true);
  int rc = mg_nodecall_run(c, vals, outs);
  mg_abi.aoti_torch_grad_mode_set_enabled(was);
  if (!mg_context_exit(below) || rc) return rc;
  for (int i = 0; i < c->nout; i++) Py_CLEAR(outs[i]);
  return -1;
}

/* vals has room for nin objects, and is empty; outs for nout. */
static int calltable_run_in(const MgNodeCall *c, MgTensor *const *in, int nin, MgTensor **out, int nout,
                            PyObject **vals, PyObject **outs) {
  for (int n = 0; n < nin; n++)
    if (in[n] && !(vals[n] = mg_abi.thpvariable_wrap(in[n]))) return -1;
  for (int i = 0; i < c->ncopy; i++) {
    MgTensor *t;
    if (mg_abi.aoti_torch_clone_preserve_strides(in[c->copy[i]], &t)) {
      PyErr_SetString(PyExc_SystemError, "magneto: no copy of an argument");
      return -1;
    }
    Py_SETREF(vals[c->copy[i]], mg_tensor_wrap(t));
    if (!vals[c->copy[i]]) return -1;
  }
  int rc = c->grad ? calltable_run_grad(c, vals, outs) : mg_nodecall_run(c, vals, outs);
  if (rc) return rc;
  for (int i = 0; i < nout; i++) {
    if (!outs[i]) continue;
    if (!rc && mg_abi.aoti_torch_new_tensor_handle(mg_abi_tensor(outs[i]), &out[i])) {
      PyErr_SetString(PyExc_SystemError, "magneto: no handle for a result");
      rc = -1;
    }
    Py_DECREF(outs[i]);
  }
  return rc;
}

static int calltable_run(const MgNodeCall *c, MgTensor *const *in, int nin, MgTensor **out, int nout) {
  enum { SMALL = 64 };
  PyObject *few[SMALL], **vals = few;
  size_t n = (size_t)nin + (size_t)nout;
  if (n > SMALL && !(vals = mg_malloc(n * sizeof *vals))) return PyErr_NoMemory(), -1;
  memset(vals, 0, n * sizeof *vals);
  int rc = calltable_run_in(c, in, nin, out, nout, vals, vals + nin);
  for (int i = 0; i < nin; i++) Py_XDECREF(vals[i]);
  if (vals != few) free(vals);
  return rc;
}

static int calltable_call_on(const MgNodeCall *c, MgTensor *const *in, int nin, MgTensor **out, int nout) {
  bool fits = nin == (int)c->nin && nout == (int)c->nout;
  if (c->attention && fits && mg_gpu_attention_run(c->attention, in, out)) return 0;
  if (c->cxx && fits && mg_cxxcall_run(c->cxx, in, out)) return 0;
  PyGILState_STATE gil = PyGILState_Ensure();
  int rc = -1;
  if (!fits)
    PyErr_SetString(PyExc_SystemError,
                    "magneto: a plan calls an op with another number of tensors than recorded");
  else rc = calltable_run(c, in, nin, out, nout);
  PyGILState_Release(gil);
  return rc;
}

/* The same with the seeds where the kernel looks for them. */
static int calltable_call_seeded(const MgNodeCall *c, MgTensor *const *in, int nin, MgTensor **out,
                                 int nout) {
  enum { MOST = 16 };
  MgTensor *all[MOST], *moved[MG_SEEDS];
  int32_t device = 0;
  bool fits = nin <= MOST && c->seeds + MG_SEEDS <= nin;
  if (fits) mg_abi.aoti_torch_get_device_index(in[0], &device);
  if (!fits || !mg_gpu_seeds_move(device, in + c->seeds, moved)) {
    PyGILState_STATE gil = PyGILState_Ensure();
    PyErr_SetString(PyExc_RuntimeError, "magneto: the seeds of attention's dropout are on another device");
    PyGILState_Release(gil);
    return -1;
  }
  for (int i = 0; i < nin; i++) all[i] = in[i];
  for (int i = 0; i < MG_SEEDS; i++)
    if (moved[i]) all[c->seeds + i] = moved[i];
  int rc = calltable_call_on(c, all, nin, out, nout);
  for (int i = 0; i < MG_SEEDS; i++)
    if (moved[i]) mg_abi.aoti_torch_delete_tensor_object(moved[i]);
  return rc;
}

static int calltable_call(void *self, uint32_t id, MgTensor *const *in, int nin, MgTensor **out, int nout) {
  const MgNodeCall *c = ((CallTable *)self)->call[id];
  return c->seeds ? calltable_call_seeded(c, in, nin, out, nout) : calltable_call_on(c, in, nin, out, nout);
}

/* Modes of the program would see the call. */
static bool calltable_watched(void) {
  PyObject *c = mg_import("torch._C"),
           *n = c ? PyObject_CallMethod(c, "_len_torch_dispatch_stack", NULL) : NULL;
  bool watched = !n || PyLong_AsLong(n) != 0 || mg_state_functorch();
  Py_XDECREF(c);
  Py_XDECREF(n);
  return watched;
}

static bool calltable_eval(void *self, MgGraph *g, NodeRef n, MgTensor *const *in, int nin, MgTensor **out,
                           int nout) {
  PyGILState_STATE gil = PyGILState_Ensure();
  PyObject *cast = NULL;
  MgNodeCall *c = NULL;
  bool ok = !PyErr_Occurred() && !calltable_watched() && !mg_planrun_autocast_off(&cast);
  bool grad = mg_abi.aoti_torch_grad_mode_is_enabled();
  mg_abi.aoti_torch_grad_mode_set_enabled(false);
  if (ok)
    ok = (c = mg_nodecall_new(g, n, ((CallTable *)self)->objs)) != NULL && c->nin == nin && c->nout == nout;
  for (int i = 0; i < nout; i++) out[i] = NULL;
  if (ok) ok = !calltable_run(c, in, nin, out, nout);
  for (int i = 0; i < nout; i++) ok = ok && out[i];
  for (int i = 0; !ok && i < nout; i++)
    if (out[i]) mg_abi.aoti_torch_delete_tensor_object(out[i]);
  mg_nodecall_free(c);
  mg_abi.aoti_torch_grad_mode_set_enabled(grad);
  if (mg_planrun_autocast_back(cast)) ok = false;
  PyErr_Clear(); /* ok says it */
  PyGILState_Release(gil);
  return ok;
}

static void calltable_free(void *self) {
  CallTable *t = self;
  PyGILState_STATE gil = PyGILState_Ensure();
  for (uint32_t i = 0; i < t->n; i++) mg_nodecall_free(t->call[i]);
  PyGILState_Release(gil);
  free(t->call);
  free(t);
}

int mg_nodecall_hostops(PyObject *objs, MgHostOps *h) {
  CallTable *t = mg_calloc(1, sizeof *t);
  if (!t) return PyErr_NoMemory(), -1;
  if (mg_tensor_init()) return free(t), -1;
  t->objs = objs;
  *h = (MgHostOps){.add_call = calltable_add,
                   .eval = calltable_eval,
                   .host = {.self = t, .call = calltable_call, .free = calltable_free}};
  return 0;
}
