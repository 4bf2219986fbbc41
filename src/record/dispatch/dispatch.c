/* The dispatch mode: torch calls it for every ATen op, factories included, after autograd, composite
 * decomposition and autocast have done their part.
 * In: an OpOverload and its arguments.  Out: one node of the graph, and stand-ins for its results.
 * Rules (each found by trying): in-place and out= ops return their argument; views and detach return a fresh
 * stand-in; undefined tensors are None; ops whose result depends on values break; composite ops, which arrive
 * whole under inference mode, are decomposed; profiler marks are run and forgotten. */
#include "record/dispatch/dispatch.h"
#include <stdlib.h>
#include <string.h>
#include "entry/guard/guard_add.h"
#include "entry/launch/config.h"
#include "host/python/names.h"
#include "host/python/pyobject.h"
#include "host/python/trace_rules.h"
#include "host/torch/literals.h"
#include "host/torch/tensor_facts.h"
#include "host/torch/torch_state.h"
#include "ir/infer/infer.h"
#include "record/core/recording.h"
#include "record/core/source_place.h"
#include "record/dispatch/constant_tensors.h"
#include "record/dispatch/data_shapes.h"
#include "record/dispatch/memory_legality.h"
#include "record/dispatch/meta_kernel.h"
#include "record/dispatch/meta_symbolic.h"
#include "record/dispatch/number_operands.h"
#include "record/dispatch/raising_ops.h"
#include "record/symbolic/item_numbers.h"
#include "record/symbolic/number.h"
#include "record/symbolic/number_ops.h"
#include "record/symbolic/sizes.h"
#include "record/symbolic/unbacked.h"
#include "record/tensor/inference_mode.h"
#include "record/tensor/input_overlap.h"
#include "record/tensor/mode_stack.h"
#include "record/tensor/standin.h"
#include "record/tensor/wrapper_subclass.h"

typedef struct MgModeObject {   /* the mode on torch's stack */
  PyObject_HEAD MgCapture *cap; /* NULL once the recording has ended */
} MgModeObject;
static PyObject *dispatch_disable; /* torch._C._DisableTorchDispatch */

/* ---- arguments ---- */

static int dispatch_element_kind(int kind) {
  switch (kind) {
  case AK_tensor_list:
  case AK_opt_tensor_list: return AK_tensor;
  case AK_int_list: return AK_int;
  case AK_float_list: return AK_float;
  case AK_bool_list: return AK_bool;
  case AK_scalar_list: return AK_scalar;
  default: return kind;
  }
}

static int dispatch_arg(MgCapture *cap, PyObject *o, int kind, MgArg *out);

/* Kernels of torch that take sizes as plain numbers (rms_norm's on CUDA) are handed c10::SymInt's own bits
 * where these are symbols: numbers below -2^62. */
static bool dispatch_lost_symbol(const MgCapture *cap, const MgArg *a) {
  int64_t v;
  return a->tag == MA_int && mg_ex_const_int(cap->rec->g->x, a->u.sym, &v) && v < -(INT64_C(1) << 62) &&
         !cap->sizes.off;
}

static int dispatch_list(MgCapture *cap, PyObject *seq, int kind, MgArg *out) {
  MgGraph *g = cap->rec->g;
  Py_ssize_t n = PySequence_Fast_GET_SIZE(seq);
  MgArg *item = mg_new(g->c, MgArg, n + 1);
  if (!item) return PyErr_NoMemory(), -1;
  kind = dispatch_element_kind(kind);
  for (Py_ssize_t i = 0; i < n; i++)
    if (dispatch_arg(cap, PySequence_Fast_GET_ITEM(seq, i), kind, &item[i])) return -1;
  for (Py_ssize_t i = 0; kind == AK_int && i < n; i++)
    if (dispatch_lost_symbol(cap, &item[i]))
      return mg_symsize_give_up(cap->rec, "an operator takes a size as a plain number"), -1;
  *out = (MgArg){.tag = MA_list, .n = (uint32_t)n, .u.item = item};
  return 0;
}

/* A number object where an int is wanted. */
static int dispatch_size(PyObject *o, MgArg *out) {
  MgSymNode *n = mg_symnode_of(o);
  if (!n) return mg_rec_break(BK_argument, "a %.100s where an op takes an int", Py_TYPE(o)->tp_name), -1;
  SymRef e = mg_symsize_of(n);
  if (e) *out = mg_arg_sym(e);
  if (e) return 0;
  PyObject *v = mg_symnode_number(n);
  if (!v) return -1;
  *out = mg_arg_int(n->cap->rec->g, PyLong_AsLongLong(v));
  Py_DECREF(v);
  return PyErr_Occurred() ? -1 : 0;
}

/* The current CUDA device, guarded; -1 with an exception, or where there is none. */
static int dispatch_current_device(MgRec *r) {
  if (r->device_asked) return r->device;
  r->device_asked = true;
  r->device = -1;
  PyObject *m = mg_import("torch._C"), *f = m ? PyObject_GetAttrString(m, "_cuda_getDevice") : NULL;
  PyObject *index = f ? PyObject_CallNoArgs(f) : NULL;
  if (index) {
    r->device = (int)PyLong_AsLong(index);
    mg_guard_pinned(r->guards, GK_answer, f, index);
  } else if (m && !f) mg_clear_if(PyExc_AttributeError); /* a torch without CUDA */
  Py_XDECREF(m);
  Py_XDECREF(f);
  Py_XDECREF(index);
  return r->device;
}

/* "cuda" means the current device; so may a number that C++ has put into the call. */
static int dispatch_device(MgRec *r, MgArg *a) {
  if (a->tag != MA_device || a->u.code != DEV_cuda) return 0;
  int now = dispatch_current_device(r);
  if (a->dev_index < 0) a->dev_index = (int8_t)now;
  return PyErr_Occurred() ? -1 : 0;
}

/* One argument as torch passes it.  -1 with an exception or break. */
static int dispatch_arg(MgCapture *cap, PyObject *o, int kind, MgArg *out) {
  if (mg_standin_is(o)) {
    MgStandInfo *info = mg_standin_info(o);
    if (info->cap != cap) return mg_rec_break(BK_other_recording, "a stand-in of another recording"), -1;
    if (info->swapped && mg_abi.aoti_torch_grad_mode_is_enabled())
      return mg_rec_break(BK_tensor_attribute, "a leaf whose .data was assigned"), -1;
    *out = mg_arg_val(info->val);
    return cap->own_kernels ? mg_dispatch_reveal(cap, o, info->val) : 0;
  }
  if (PyList_CheckExact(o) || PyTuple_Check(o)) return dispatch_list(cap, o, kind, out);
  int done = mg_torchobj_to_arg(cap->rec->g, o, kind, out);
  if (done) return done < 0 ? -1 : dispatch_device(cap->rec, out);
  if (PyLong_Check(o))
    return mg_rec_break(BK_argument, "an int of more than 64 bits"),
           -1; /* torch makes it a uint64 where it fits */
  if (PyObject_TypeCheck(o, mg_torch.tensor)) {
    ValRef v = mg_standin_pin(cap, o);
    if (!v) return -1;
    *out = mg_arg_val(v);
    return 0;
  }
  if (kind == AK_int || (kind == AK_scalar && mg_symnode_of(o))) return dispatch_size(o, out);
  long i = mg_standin_object(cap, o);
  if (i < 0) return -1;
  *out = (MgArg){.tag = MA_object, .u.obj = (uint32_t)i};
  return 0;
}

/* The Python object of parameter i in a call, borrowed; NULL when the schema's default applies. */
static PyObject *dispatch_param(const MgFrontOp *fo, PyObject *args, PyObject *kwargs, int i) {
  if (i < PyTuple_GET_SIZE(args)) return PyTuple_GET_ITEM(args, i);
  return kwargs ? PyDict_GetItemWithError(kwargs, fo->name[i]) : NULL;
}

/* Is the argument of this name given, and True? */
static bool dispatch_flag(const MgFrontOp *fo, PyObject *args, PyObject *kwargs, const char *name) {
  int i = mg_op_param(fo->op, name);
  return i >= 0 && dispatch_param(fo, args, kwargs, i) == Py_True;
}

static int dispatch_args(MgCapture *cap, const MgFrontOp *fo, PyObject *args, PyObject *kwargs, MgArg *out) {
  for (int i = 0; i < fo->op->nparam; i++) {
    PyObject *o = dispatch_param(fo, args, kwargs, i);
    if (!o) o = fo->deflt[i];
    if (!o) {
      if (!PyErr_Occurred())
        mg_rec_break(BK_argument, "%s without argument %s", fo->op->full, fo->op->param[i].name);
      return -1;
    }
    if (dispatch_arg(cap, o, fo->op->param[i].kind, &out[i])) return -1;
  }
  return 0;
}

/* ---- autograd, followed only as far as "does this value need a grad_fn" ---- */

static bool dispatch_storage_grad(MgCapture *cap, uint32_t storage) {
  return storage < cap->cap_storage && cap->storage_grad[storage];
}

static int dispatch_mark_storage(MgCapture *cap, uint32_t storage) {
  if (storage >= cap->cap_storage) {
    uint32_t n = cap->cap_storage ? cap->cap_storage : 256;
    while (n <= storage) n *= 2;
    bool *p = mg_realloc(cap->storage_grad, n);
    if (!p) return PyErr_NoMemory(), -1;
    memset(p + cap->cap_storage, 0, n - cap->cap_storage);
    cap->storage_grad = p;
    cap->cap_storage = n;
  }
  cap->storage_grad[storage] = true;
  return 0;
}

struct dispatch_grad {
  MgCapture *cap;
  bool any;
};
static void dispatch_see_grad(ValRef *v, void *arg) {
  struct dispatch_grad *s = arg;
  if (!*v) return;
  const MgVal *val = mg_val(s->cap->rec->g, *v);
  if (val->requires_grad || dispatch_storage_grad(s->cap, val->storage)) s->any = true;
}

/* Which results of node n autograd would track; writes make every alias of the memory tracked. */
static int dispatch_follow_grad(MgCapture *cap, const MgFrontOp *fo, NodeRef n) {
  MgGraph *g = cap->rec->g;
  struct dispatch_grad s = {cap, false};
  if (mg_node(g, n)->grad_mode && !fo->detach) mg_node_each_val(mg_node(g, n), dispatch_see_grad, &s);
  if (mg_inference_mode_follow(cap, n, s.any)) return -1;
  if (!s.any) return 0;
  MgNode *node = mg_node(g, n);
  for (int i = 0; i < node->nout; i++) {
    if (!node->out[i]) continue;
    MgVal *v = mg_val(g, node->out[i]);
    if (mg_dtype_is_float(v->dtype) || mg_dtype_is_complex(v->dtype)) v->requires_grad = true;
    if (fo->op->mutates && dispatch_mark_storage(cap, v->storage)) return -1;
  }
  for (MgWritten w = {0};
       !fo->op->nret &&
       mg_node_written(mg_node(g, n), &w);) /* what it writes is no result: lists of tensors */
    if (dispatch_mark_storage(cap, mg_val(g, w.v)->storage)) return -1;
  return 0;
}

static bool dispatch_is_atens(const MgOp *op) { return !strncmp(op->full, "aten::", 6); }

int mg_dispatch_reveal(MgCapture *cap, PyObject *tensor, ValRef v) {
  MgGraph *g = cap->rec->g;
  NodeRef def = mg_val(g, v)->def;
  MgNode *n = def && !cap->rec->want_fx ? mg_node(g, def) : NULL;
  if (!n || n->grad_mode || n->op->mutates || dispatch_is_atens(n->op) || !mg_facts_requires_grad(tensor))
    return 0;
  const MgFrontOp *fo = mg_frontop_of(n->op);
  n->grad_mode = true;
  return fo ? dispatch_follow_grad(cap, fo, def) : -1;
}

/* ---- results ---- */

/* Which parameter a return is, when the op writes that parameter and gives it back; else -1. */
static int dispatch_written_param(const MgOp *op, int ret) {
  if (op->ret_alias[ret] < 0) return -1;
  for (int i = 0; i < op->nparam; i++)
    if (op->param[i].writes && op->param[i].alias_set == op->ret_alias[ret]) return i;
  return -1;
}

static bool dispatch_same_shape(const MgGraph *g, ValRef a, ValRef b) {
  const MgVal *x = mg_val(g, a), *y = mg_val(g, b);
  if (x->ndim != y->ndim || x->dtype != y->dtype) return false;
  for (int i = 0; i < x->ndim; i++)
    if (!mg_ex_same(x->size[i], y->size[i]) &&
        !(g->x->ask && g->x->ask->equal(g->x->ask->of, x->size[i], y->size[i])))
      return false;
  return true;
}

/* In-place and out= results: the argument itself, which now stands for the new value. */
static PyObject *dispatch_rebind(MgCapture *cap, const MgFrontOp *fo, PyObject *arg, ValRef val) {
  if (!arg || !mg_standin_is(arg))
    return mg_rec_break(BK_out_argument, "%s writes to a tensor that the recording did not make",
                        fo->op->full);
  MgStandInfo *info = mg_standin_info(arg);
  if (mg_val(cap->rec->g, info->val)->requires_grad)
    mg_val(cap->rec->g, val)->requires_grad = true; /* under no_grad, too */
  if (!fo->inplace_view && !dispatch_same_shape(cap->rec->g, info->val, val))
    return mg_rec_break(BK_out_argument, "%s resizes its output", fo->op->full);
  mg_val(cap->rec->g, val)->bits = mg_val(cap->rec->g, info->val)->bits;
  info->val = val;
  return Py_NewRef(arg);
}

static PyObject *dispatch_new(MgCapture *cap, ValRef val) {
  if (!val) Py_RETURN_NONE;
  return mg_standin_new(cap, val);
}

/* One call being recorded. */
typedef struct DispatchCall {
  MgCapture *cap;
  const MgFrontOp *fo;
  NodeRef n;
  PyObject *args, *kwargs; /* borrowed; kwargs may be NULL */
  PyObject *pyret;         /* what the meta kernel returned, for returns that are no tensors; or NULL */
} DispatchCall;

/* Return number `ret`, taking tensor results from *out on. */
static PyObject *dispatch_return(const DispatchCall *c, int ret, uint32_t *out) {
  const MgOp *op = c->fo->op;
  MgCapture *cap = c->cap;
  MgGraph *g = cap->rec->g;
  NodeRef n = c->n;
  if (op->ret_kind[ret] == AK_tensor) {
    ValRef val = *out < mg_node(g, n)->nout ? mg_node(g, n)->out[*out] : 0;
    ++*out;
    int w = dispatch_written_param(op, ret);
    return w < 0 ? dispatch_new(cap, val)
                 : dispatch_rebind(cap, c->fo, dispatch_param(c->fo, c->args, c->kwargs, w), val);
  }
  if (op->ret_kind[ret] != AK_tensor_list) {
    if (!c->pyret) return mg_rec_break(BK_op, "%s returns something that is not a tensor", op->full);
    return op->nret == 1 ? Py_NewRef(c->pyret) : PySequence_GetItem(c->pyret, ret);
  }
  /* A list takes what the later returns leave. */
  int later = 0;
  for (int i = ret + 1; i < op->nret; i++) later += op->ret_kind[i] == AK_tensor;
  uint32_t end = mg_node(g, n)->nout - later;
  PyObject *list = PyList_New(end > *out ? end - *out : 0);
  for (Py_ssize_t i = 0; list && *out < end; ++*out, i++) {
    PyObject *t = dispatch_new(cap, mg_node(g, n)->out[*out]);
    if (!t) Py_CLEAR(list);
    else PyList_SET_ITEM(list, i, t);
  }
  return list;
}

static PyObject *dispatch_results(const DispatchCall *c) {
  uint32_t out = 0;
  int nret = c->fo->op->nret;
  if (nret == 0) Py_RETURN_NONE;
  if (nret == 1) return dispatch_return(c, 0, &out);
  PyObject *tuple = PyTuple_New(nret);
  for (int i = 0; tuple && i < nret; i++) {
    PyObject *o = dispatch_return(c, i, &out);
    if (!o) Py_CLEAR(tuple);
    else PyTuple_SET_ITEM(tuple, i, o);
  }
  return tuple;
}

PyObject *mg_dispatch_emit(MgCapture *cap, const MgFrontOp *fo, PyObject *args, const ValRef *like,
                           uint32_t n, bool grad) {
  MgGraph *g = cap->rec->g;
  NodeRef at = mg_graph_node(g, fo->op, fo->op->nparam, 0);
  ValRef *out = mg_new(g->c, ValRef, n + 1);
  MgArg *arg = mg_new(g->c, MgArg, fo->op->nparam + 1);
  if (!at || !out || !arg) return PyErr_NoMemory();
  if (dispatch_args(cap, fo, args, NULL, arg)) return NULL;
  for (uint32_t i = 0; i < n; i++) {
    if (!(out[i] = mg_graph_val_like(g, like[i]))) return PyErr_NoMemory();
    mg_val(g, out[i])->def = at;
    mg_val(g, out[i])->out = (uint32_t)i;
    mg_val(g, out[i])->offset = mg_sym(g->x, 0);
    mg_val(g, out[i])->requires_grad = false;
  }
  MgNode *node = mg_node(g, at);
  memcpy(node->arg, arg, sizeof *arg * fo->op->nparam);
  node->out = out;
  node->nout = (uint32_t)n;
  node->line = mg_place_now(cap->rec, &node->file);
  node->again = cap->rec->checkpoint;
  node->grad_mode = grad;
  cap->asks_grad |= grad;
  PyObject *list = PyList_New(n);
  for (uint32_t i = 0; list && i < n; i++) {
    PyObject *t = mg_standin_new(cap, out[i]);
    if (!t) Py_CLEAR(list);
    else PyList_SET_ITEM(list, i, t);
  }
  return list;
}

/* ---- calling torch from the handler ---- */

/* Ops that change the metadata of their argument (t_, squeeze_ ...) are run on the stand-in itself, so that
 * torch's own view of its sizes follows. */
static int dispatch_rerun(const MgFrontOp *fo, PyObject *args, PyObject *kwargs) {
  PyObject *ctx = mg_context_enter(PyObject_CallNoArgs(dispatch_disable));
  if (!ctx) return -1;
  PyObject *r = PyObject_Call(fo->call, args, kwargs);
  if (mg_context_exit(ctx)) Py_CLEAR(r);
  Py_XDECREF(r);
  return r ? 0 : -1;
}

/* Runs a composite op's own decomposition with the mode on, so that its parts are recorded. */
static PyObject *dispatch_decompose(MgCapture *cap, const MgFrontOp *fo, PyObject *args, PyObject *kwargs) {
  return mg_dispatch_with_mode(cap, fo->parts, args, kwargs);
}

/* ---- one op ---- */

/* Is the default dtype one that the segment has set?  The graph has the one that it began with. */
static bool dispatch_odd_dtype(const MgGraph *g) {
  return mg_state_default_dtype() != (int8_t)g->default_dtype;
}

/* Fills in the node's results: in C, or by torch's meta kernel when the op is not known or its arguments are
 * wrong (torch then raises its own error).  *pyret: what the op returns when that is no tensor. */
static int dispatch_infer(MgCapture *cap, const MgFrontOp *fo, NodeRef n, bool data, PyObject **pyret) {
  MgRec *r = cap->rec;
  /* Inference in C takes one default dtype for the whole graph, of 32 or 64 bits;
   * otherwise torch itself decides. */
  bool usual = (r->g->default_dtype == DT_f32 || r->g->default_dtype == DT_f64) && !dispatch_odd_dtype(r->g);
  MgNode before = *mg_node(r->g, n);
  cap->sizes.unknown = data;
  MgRc rc = fo->plain && usual && !data ? mg_infer(r->g, n) : MG_UNSUP;
  if (r->abort) return -1;
  if (rc == MG_OK && !cap->sizes.unknown && cap->sizes.ndata) mg_symdata_sizes(r, n);
  if (rc == MG_OK && !cap->sizes.unknown) return 0;
  if (rc == MG_NOMEM) return PyErr_NoMemory(), -1;
  r->ctx->rc = MG_OK;
  bool refused = mg_infer_kernel_refuses(r->g, n) && (data || !fo->plain || !mg_metainfer_asks(r, fo, n));
  if (refused || (rc == MG_UNSUP && fo->plain && fo->op->mutates && mg_infer_cannot_store(r->g, n)))
    return mg_rec_break(BK_refused, "%s refuses its arguments", fo->op->full), -1;
  data = cap->sizes.unknown || (cap->sizes.ndata && mg_symdata_reads(cap, n));
  cap->sizes.asked = 0;
  if (!data && !mg_infer_doubts(r->g, n) && mg_symfollow(r, fo, n, pyret)) return 0;
  if (r->abort) return -1;
  data |= cap->sizes.asked > 0;
  int done = data ? META_DATA : mg_metainfer_run(r, fo, n, pyret);
  if (done != META_DATA) return done;
  mg_node(r->g, n)->out = before.out;
  mg_node(r->g, n)->nout = before.nout;
  if (mg_symdata_infer(r, fo, n)) return -1;
  mg_symdata_sizes(r, n);
  return 0;
}

/* A factory that was called under a default dtype of the segment's own says which it was: the
 * node may run under another. */
static void dispatch_name_dtype(const MgCapture *cap, MgNode *node) {
  if (node->nout != 1 || !dispatch_odd_dtype(cap->rec->g)) return;
  for (int i = 0; i < node->op->nparam; i++)
    if (node->arg[i].tag == MA_val) return;
  MgArg *dtype = mg_node_arg(node, "dtype");
  if (dtype && dtype->tag == MA_none)
    *dtype = (MgArg){.tag = MA_dtype, .u.code = mg_val(cap->rec->g, node->out[0])->dtype};
}

/* Does an op's result have a default dtype that the segment has set, while a call of ATen when the graph runs
 * would give another?  Kernels of ours compute in the dtype that was recorded. */
static bool dispatch_needs_odd_dtype(const MgGraph *g, const MgFrontOp *fo, const MgNode *node) {
  if (!node->nout || !node->out[0] || !dispatch_odd_dtype(g)) return false;
  bool of_values = false;
  for (int i = 0; i < node->narg; i++) {
    if (node->arg[i].tag != MA_val) continue;
    MgDtype d = (MgDtype)mg_val(g, node->arg[i].u.val)->dtype;
    if (mg_dtype_is_float(d) || mg_dtype_is_complex(d)) return false;
    of_values = true;
  }
  MgDtype d = (MgDtype)mg_val(g, node->out[0])->dtype;
  return of_values && (mg_dtype_is_complex(d) || (mg_dtype_is_float(d) && !fo->plain));
}

/* ATen writes tensor by tensor, and torch counts these writes; the op itself has no part in that. */
static int dispatch_count_writes(const DispatchCall *c) {
  const MgOp *op = c->fo->op;
  for (int i = 0; op->mutates && i < op->nparam; i++) {
    PyObject *list = op->param[i].writes && op->param[i].kind == AK_tensor_list
                         ? dispatch_param(c->fo, c->args, c->kwargs, i)
                         : NULL;
    if (list && !strncmp(op->full, "aten::_foreach_", strlen("aten::_foreach_")) &&
        mg_facts_count_writes(list))
      return -1;
  }
  return 0;
}

/* The op raises because of values, inside of a block that would catch that: noted.  -1: a break, or an
 * exception. */
static int dispatch_note_raises(MgRec *r, const MgOp *op) {
  int fate = mg_raises_fate(r);
  if (fate < 0) return -1;
  bool observed = fate != MG_RAISES_leaves;
  r->swallows |= fate == MG_RAISES_caught;
  if (observed && mg_retry_denied(r, RETRY_raises)) {
    mg_rec_break(BK_caught_error, "%s may raise inside of a block that would catch it", op->full);
    return -1;
  }
  r->raises |= observed;
  return 0;
}

/* data: how large its results are depends on its data. */
static PyObject *dispatch_record_as(MgCapture *cap, const MgFrontOp *fo, PyObject *args, PyObject *kwargs,
                                    bool data) {
  MgRec *r = cap->rec;
  MgGraph *g = r->g;
  const MgOp *op = fo->op;
  PyObject *res = NULL;
  if (mg_interrupt_break()) return NULL; /* a backward pass has no instructions */
  DispatchCall c = {.cap = cap, .fo = fo, .args = args, .kwargs = kwargs};
  /* The shape of an older tensor is its owner's: a graph writes memory, never metadata. */
  if (fo->inplace_view && PyTuple_GET_SIZE(args) && mg_standin_is(PyTuple_GET_ITEM(args, 0)) &&
      mg_standin_info(PyTuple_GET_ITEM(args, 0))->input)
    return mg_rec_break(BK_outside_shape, "%s changes the shape of a tensor from outside", op->full);
  MgArg small[16], *arg = op->nparam <= 16 ? small : mg_new(g->c, MgArg, op->nparam);
  if (!arg) return PyErr_NoMemory();
  if (dispatch_args(cap, fo, args, kwargs, arg)) return NULL;
  if (!mg_memform_known(g, op, arg))
    return mg_rec_break(BK_view_outside, "%s outside of its tensor", op->full);
  if (mg_memform_counts(op, arg) && arg[0].tag == MA_val) mg_alias_guard_start(r, arg[0].u.val);
  bool caught = mg_raises_caught(r), values = caught && !r->cfg->fullgraph && mg_raises_by_values(r, op, arg);
  if (values && dispatch_note_raises(r, op)) return NULL;
  int ntensor = 0;
  for (int i = 0; i < op->nret; i++) ntensor += op->ret_kind[i] == AK_tensor;
  NodeRef n = c.n = mg_graph_node(g, op, op->nparam, ntensor);
  if (!n) return PyErr_NoMemory();
  MgNode *node = mg_node(g, n);
  memcpy(node->arg, arg, sizeof *arg * op->nparam);
  if (mg_memform_odd(g, op, n)) {
    mg_rec_break(mg_memform_statistics_meet(g, n) ? BK_batch_norm_statistics : BK_memory_overlap,
                 "%s into memory that overlaps or has gaps", op->full);
    goto done;
  }
  if (caught && !values && !data &&
      mg_metainfer_rejects(r, fo, n)) { /* maybe only zeros: the program's own call decides */
    if (!r->cfg->fullgraph)
      mg_rec_break(BK_caught_error, "%s raises inside of a block that would catch it", op->full);
    goto done;
  }
  node->line = mg_place_now(r, &node->file);
  node->again = r->checkpoint;
  node->grad_mode = mg_abi.aoti_torch_grad_mode_is_enabled();
  cap->own_kernels |= !node->grad_mode && !dispatch_is_atens(op);
  cap->asks_grad |= node->grad_mode;
  cap->sizes.guessed = false;
  if (dispatch_infer(cap, fo, n, data, &c.pyret) || mg_symdata_note_guess(cap, n)) goto done;
  if (dispatch_needs_odd_dtype(g, fo, mg_node(g, n))) {
    mg_rec_break(BK_default_dtype, "%s under a default dtype that the segment has set", op->full);
    goto done;
  }
  mg_lazybits_follow(g, n);
  dispatch_name_dtype(cap, mg_node(g, n));
  if (dispatch_follow_grad(cap, fo, n)) goto done;
  if (fo->inplace_view && dispatch_rerun(fo, args, kwargs)) goto done;
  if (dispatch_count_writes(&c)) goto done;
  res = dispatch_results(&c);
done:
  /* A node that failed, or that only answered a question about metadata, is no part of the
   * graph; ops without results act. */
  if (n + 1 == g->nnode && (!res || (!mg_node(g, n)->nout && !op->mutates && op->nret))) g->nnode--;
  Py_XDECREF(c.pyret);
  return res;
}

static PyObject *dispatch_record(MgCapture *cap, const MgFrontOp *fo, PyObject *args, PyObject *kwargs) {
  return dispatch_record_as(cap, fo, args, kwargs, false);
}

/* torch.tensor(...) made a real tensor from Python data: its value is part of the
 * recording, each run gets a copy. */
static PyObject *dispatch_lift(MgCapture *cap, PyObject *args) {
  static const MgFrontOp *clone;
  if (!clone) {
    const MgOp *op = mg_op_by_name("aten::clone");
    if (!op)
      op = mg_op_from_schema(cap->rec->ctx,
                             "aten::clone(Tensor self, *, MemoryFormat? memory_format=None) -> Tensor");
    if (!op || !(clone = mg_frontop_of(op))) return NULL;
  }
  return dispatch_record(cap, clone, args, NULL);
}

/* The zero tensors of forward-mode differentiation have no memory, which kernels would read: plain zeros. */
static PyObject *dispatch_zeros(MgCapture *cap, PyObject *args, PyObject *kwargs) {
  static const MgFrontOp *zeros;
  if (!zeros) {
    PyObject *ops = mg_import("torch"), *o = ops ? PyObject_GetAttrString(ops, "ops") : NULL, *f = NULL;
    static const char *const path[] = {"aten", "zeros", "default"};
    for (int i = 0; o && i < 3; i++) {
      f = PyObject_GetAttrString(o, path[i]);
      Py_SETREF(o, f);
    }
    zeros = o ? mg_frontop_find(o) : NULL;
    Py_XDECREF(ops);
    Py_XDECREF(o);
    if (!zeros) return NULL;
  }
  return dispatch_record(cap, zeros, args, kwargs);
}

/* Is one of the index tensors a mask, whose result has as many rows as it has true elements? */
static bool dispatch_masked(MgCapture *cap, PyObject *args) {
  PyObject *list = PyTuple_GET_SIZE(args) > 1 ? PyTuple_GET_ITEM(args, 1) : NULL;
  if (!list || !PyList_Check(list)) return true;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); i++) {
    PyObject *x = PyList_GET_ITEM(list, i);
    if (x == Py_None) continue;
    if (!mg_standin_is(x)) return true;
    int dtype = mg_val(cap->rec->g, mg_standin_val(x))->dtype;
    if (dtype == DT_bool || dtype == DT_u8) return true;
  }
  return false;
}

static bool dispatch_differentiates(const MgCapture *cap, PyObject *args) {
  bool tracked = false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args) && mg_abi.aoti_torch_grad_mode_is_enabled(); i++) {
    PyObject *x = PyTuple_GET_ITEM(args, i);
    tracked |= mg_standin_is(x) && mg_val(cap->rec->g, mg_standin_val(x))->requires_grad;
  }
  return tracked;
}

static PyObject *dispatch_op(MgCapture *cap, const MgFrontOp *fo, PyObject *func, PyObject *args,
                             PyObject *kwargs) {
  if (cap->syms && mg_symfloat_among(fo, args, kwargs)) return mg_symfloat_dispatch(cap, fo, args, kwargs);
  switch ((MgOpFate)fo->fate) {
  case FATE_record: break;
  case FATE_record_grad: /* tracers cut backward out of a forward without autograd, which leaves nothing to it
                          */
    if (cap->fx && dispatch_differentiates(cap, args))
      return mg_rec_break(BK_custom_backend, "gradients of %s in a custom back end", fo->op->full);
    break;
  case FATE_record_dense:
    if (dispatch_flag(fo, args, kwargs, "sparse")) return dispatch_decompose(cap, fo, args, kwargs);
    break;
  case FATE_break_value: {
    PyObject *known = mg_constval_call(cap, func, args);
    if (known || PyErr_Occurred()) return known;
    PyObject *x = PyTuple_GET_SIZE(args) == 1 ? PyTuple_GET_ITEM(args, 0) : NULL;
    if (x && !strcmp(fo->op->full, "aten::_local_scalar_dense") && mg_symvalue_can(cap, x))
      return mg_symvalue_item(cap, x);
    if (fo->data_shape && mg_symdata_may(cap, true)) return dispatch_record_as(cap, fo, args, kwargs, true);
    return mg_rec_break(BK_data_dependent, "%s", fo->op->full);
  }
  case FATE_break_mask: {
    if (!dispatch_masked(cap, args)) break;
    PyObject *known = mg_constval_index(cap, args), *r = NULL;
    if (known) r = dispatch_record(cap, fo, known, kwargs);
    else if (!PyErr_Occurred() && mg_symdata_may(cap, true))
      r = dispatch_record_as(cap, fo, args, kwargs, true);
    else if (!PyErr_Occurred()) mg_rec_break(BK_data_dependent, "%s with a mask", fo->op->full);
    Py_XDECREF(known);
    return r;
  }
  case FATE_break_memory: return mg_rec_break(BK_memory_change, "%s", fo->op->full);
  case FATE_break_layout: return mg_rec_break(BK_layout_op, "%s", fo->op->full);
  case FATE_break_op: return mg_rec_break(BK_op, "%s", fo->op->full);
  case FATE_decompose: return dispatch_decompose(cap, fo, args, kwargs);
  case FATE_run: return PyObject_Call(fo->call, args, kwargs);
  }
  if (fo->lift_fresh && PyTuple_GET_SIZE(args) == 1 && !mg_standin_is(PyTuple_GET_ITEM(args, 0)))
    return dispatch_lift(cap, args);
  if (fo->zero_tensor) return dispatch_zeros(cap, args, kwargs);
  return dispatch_record(cap, fo, args, kwargs);
}

PyObject *mg_dispatch_call(MgCapture *cap, const char *name, const char *overload, PyObject *args,
                           PyObject *kwargs) {
  static PyObject *aten; /* torch.ops.aten */
  if (!aten) {
    PyObject *torch = mg_import("torch"), *ops = torch ? PyObject_GetAttrString(torch, "ops") : NULL;
    aten = ops ? PyObject_GetAttrString(ops, "aten") : NULL;
    Py_XDECREF(ops);
    Py_XDECREF(torch);
  }
  PyObject *packet = aten ? PyObject_GetAttrString(aten, name) : NULL;
  PyObject *func = packet ? PyObject_GetAttrString(packet, overload) : NULL;
  const MgFrontOp *fo = func ? mg_frontop_find(func) : NULL;
  PyObject *r =
      fo ? dispatch_op(cap, fo, func, args, kwargs && PyDict_GET_SIZE(kwargs) ? kwargs : NULL) : NULL;
  Py_XDECREF(packet);
  Py_XDECREF(func);
  return r;
}

/* A higher-order operator that record/higher_order/higher_order does not know: a break. */
static const MgFrontOp *dispatch_higher(PyObject *op) {
  PyObject *name = PyObject_GetAttrString(op, "_name");
  const char *text = name && PyUnicode_Check(name) ? PyUnicode_AsUTF8(name) : NULL;
  if (text) mg_rec_break(BK_higher_order, "torch.ops.higher_order.%s", text);
  Py_XDECREF(name);
  return NULL;
}

/* Takes torch's own Python between the mode and an operator out of the traceback of the exception that is
 * set: eager calls C++ there. */
static void dispatch_trim_traceback(void) {
  PyObject *t, *v, *tb;
  PyErr_Fetch(&t, &v, &tb);
  for (bool torchs = tb != NULL; torchs && tb;) {
    PyTracebackObject *at = (PyTracebackObject *)tb;
    PyCodeObject *code = PyFrame_GetCode(at->tb_frame);
    if ((torchs = mg_skip_is_torch(code))) Py_SETREF(tb, Py_XNewRef((PyObject *)at->tb_next));
    Py_DECREF(code);
  }
  if (v && PyExceptionInstance_Check(v))
    PyException_SetTraceback(v, tb ? tb : Py_None); /* NULL changes nothing */
  PyErr_Restore(t, v, tb);
}

/* __torch_dispatch__(self, func, types, args, kwargs) */
static PyObject *dispatch_handle(PyObject *self, PyObject *const *a, Py_ssize_t n) {
  MgCapture *cap = ((MgModeObject *)self)->cap;
  if (!cap || n < 3) return PyErr_Format(PyExc_RuntimeError, "magneto: dispatch outside of a recording");
  if (mg_wrapper_declined(cap)) Py_RETURN_NOTIMPLEMENTED;
  if (cap->next_result) {
    ValRef v = cap->next_result;
    cap->next_result = 0;
    return mg_standin_new(cap, v);
  }
  /* Python that torch runs below is not the user's program; and autograd may call from its own threads. */
  MgPause pause = mg_rec_pause();
  mg_rec = cap->rec;
  PyObject *res = NULL, *kwargs = n > 3 && PyDict_Check(a[3]) && PyDict_GET_SIZE(a[3]) ? a[3] : NULL;
  cap->inside++;
  /* The class of a wrapping tensor answers questions about sizes, which C++ asks whatever has happened. */
  if (!mg_wrapper_dispatch(cap, a, kwargs, &res)) {
    if (cap->rec->abort) {
      PyErr_SetString(MgBreakError, cap->rec->reason);
    } else if (cap->refused) {
      mg_rec_break(BK_cached_function, "%s", cap->refused);
    } else {
      const MgFrontOp *fo =
          PyObject_TypeCheck(a[0], mg_torch.higher_order) ? dispatch_higher(a[0]) : mg_frontop_find(a[0]);
      if (fo && !(res = dispatch_op(cap, fo, a[0], a[2], kwargs))) dispatch_trim_traceback();
    }
  }
  cap->inside--;
  mg_rec_resume(pause);
  return res;
}

/* ---- the mode type ---- */

static PyMethodDef dispatch_methods[] = {
    {"__torch_dispatch__", (PyCFunction)(void *)dispatch_handle, METH_FASTCALL, NULL}, {NULL, NULL, 0, NULL}};

static PyTypeObject dispatch_mode_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "magneto._magneto.DispatchMode",
    .tp_basicsize = sizeof(MgModeObject),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_methods = dispatch_methods,
};

int mg_dispatch_init(PyObject *module) {
  if (PyType_Ready(&dispatch_mode_type) ||
      PyDict_SetItemString(dispatch_mode_type.tp_dict, "supports_higher_order_operators", Py_True))
    return -1;
  PyObject *c = mg_import("torch._C");
  if (!c) return -1;
  mg_dispatch_push = PyObject_GetAttrString(c, "_push_on_torch_dispatch_stack");
  mg_dispatch_pop = PyObject_GetAttrString(c, "_pop_torch_dispatch_stack");
  dispatch_disable = PyObject_GetAttrString(c, "_DisableTorchDispatch");
  Py_DECREF(c);
  return mg_dispatch_push && mg_dispatch_pop && dispatch_disable ? 0 : -1;
}

PyObject *mg_dispatch_mode_new(MgCapture *cap) {
  MgModeObject *m = PyObject_New(MgModeObject, &dispatch_mode_type);
  if (m) m->cap = cap;
  return (PyObject *)m;
}

void mg_dispatch_mode_end(PyObject *mode) { ((MgModeObject *)mode)->cap = NULL; }

void mg_lazybits_follow(MgGraph *g, NodeRef n) {
  const MgNode *node = mg_node(g, n);
  const MgOp *op = node->op;
  if (!op->is_view || op->mutates) return;
  for (int i = 0; i < node->narg; i++) {
    if (op->param[i].alias_set < 0 || node->arg[i].tag != MA_val) continue;
    uint8_t bits = mg_val(g, node->arg[i].u.val)->bits ^ mg_op_bit(op);
    for (int k = 0; bits && k < node->nout; k++)
      if (node->out[k]) mg_val(g, node->out[k])->bits = bits;
    return;
  }
}

typedef struct InferenceSeek {
  const MgCapture *cap;
  bool any;
} InferenceSeek;

static void inference_mode_see(ValRef *v, void *arg) {
  InferenceSeek *s = arg;
  if (*v) s->any |= mg_inference_mode_of(s->cap, *v);
}

/* Outside of the mode: they are not saved for backward, and not written to. */
static int inference_mode_check(MgCapture *cap, NodeRef n, bool grad) {
  const MgGraph *g = cap->rec->g;
  InferenceSeek s = {cap, false};
  if (grad) mg_node_each_val(mg_node(g, n), inference_mode_see, &s);
  if (s.any)
    return mg_rec_break(BK_inference_tensor, "an inference tensor in an op that autograd tracks"), -1;
  for (MgWritten t = {0}; mg_node_written(mg_node(g, n), &t);)
    if (mg_inference_mode_of(cap, t.v))
      return mg_rec_break(BK_inference_tensor, "a write to an inference tensor"), -1;
  return 0;
}

int mg_inference_mode_follow(MgCapture *cap, NodeRef n, bool grad) {
  MgGraph *g = cap->rec->g;
  if (!mg_inference_mode_on()) return cap->cap_inference ? inference_mode_check(cap, n, grad) : 0;
  for (int i = 0; i < mg_node(g, n)->nout; i++) {
    ValRef v = mg_node(g, n)->out[i];
    if (v && mg_val(g, v)->storage == v && mg_inference_mode_mark(cap, v)) return -1;
  }
  return 0;
}
