/* Checks in place of calls whose results nobody reads.
 * In: a node that may raise (ir/graph/raises.def) and is not read.  Out: for each argument that decides,
 * comparisons that say which
 * of its elements are bad, and an mg::check of them.  Nothing else of the call is computed.
 * Types and messages are those of the lowered ops (back/lower/lower_index, lower_loss, lower_point). */
#include "middle/check.h"
#include "middle/decompose_priv.h"

enum { CHECK_MAX_NDIM = 10 }; /* LW_MAX_NDIM of back/: loops over more dimensions do not exist */

#define CHECK_OUT_OF_DIM "index is out of bounds for the dimension"
#define CHECK_OUT_OF_SELF "index out of range in self"

/* ---- which arguments decide ---- */

static bool check_index(const MgGraph *g, const MgArg *a) {
  if (a->tag != MA_val || !a->u.val) return false;
  const MgVal *m = mg_val(g, a->u.val);
  return m->device == DEV_cpu && m->ndim <= CHECK_MAX_NDIM && (m->dtype == DT_i64 || m->dtype == DT_i32);
}

/* Every index of the list.  Masks: how many elements they select, and whether values fit, is data. */
static bool check_list(const MgGraph *g, const MgArg *a) {
  bool any = false;
  if (a->tag != MA_list) return false;
  for (uint32_t i = 0; i < a->n; i++) {
    const MgArg *t = &a->u.item[i];
    if (t->tag != MA_val || !t->u.val) continue;
    if (!check_index(g, t)) return false;
    any = true;
  }
  return any;
}

/* The dimension that RA_dim names, or -1; a tensor without dimensions has one of size 1. */
static int check_dim(const MgGraph *g, const MgNode *n) {
  int64_t dim;
  int64_t span = mg_val(g, n->arg[RA_self].u.val)->ndim;
  if (!span) span = 1;
  if (n->arg[RA_dim].tag != MA_int || !mg_ex_const_int(g->x, n->arg[RA_dim].u.sym, &dim)) return -1;
  if (dim < 0) dim += span;
  return dim < 0 || dim >= span ? -1 : (int)dim;
}

static bool check_unit(const MgGraph *g, const MgArg *a) {
  const MgVal *m = mg_val(g, a->u.val);
  return m->device == DEV_cpu && m->ndim <= CHECK_MAX_NDIM && mg_dtype_is_float((MgDtype)m->dtype);
}

static bool check_divisor(const MgGraph *g, const MgArg *a) {
  const MgVal *m = mg_val(g, a->u.val);
  return m->device == DEV_cpu && m->ndim <= CHECK_MAX_NDIM && mg_dtype_has_ty((MgDtype)m->dtype) &&
         m->dtype != DT_bool;
}

bool mg_check_is(const MgGraph *g, const MgNode *n) {
  switch (mg_raise_of(g, n->op, n->arg)) {
  case RS_list: return check_list(g, &n->arg[RA_index]);
  case RS_dim:
  case RS_wrapped_dim: return check_index(g, &n->arg[RA_dim_index]) && check_dim(g, n) >= 0;
  case RS_flat:
  case RS_rows: return check_index(g, &n->arg[RA_index]);
  case RS_target:
    return check_index(g, &n->arg[RA_index]) && n->arg[RA_ignored].tag == MA_int &&
           mg_val(g, n->arg[RA_self].u.val)->ndim > 0;
  case RS_unit: return check_unit(g, &n->arg[RA_self]);
  case RS_divisor: return check_divisor(g, &n->arg[RA_divisor]);
  default: return false;
  }
}

/* The argument that decides, of all kinds but RS_list. */
static int check_position(MgRaise kind) {
  switch (kind) {
  case RS_dim:
  case RS_wrapped_dim: return RA_dim_index;
  case RS_unit: return RA_self;
  case RS_divisor: return RA_divisor;
  default: return RA_index;
  }
}

void mg_check_each_val(MgGraph *g, MgNode *n, void (*fn)(ValRef *v, void *arg), void *arg) {
  MgRaise kind = mg_raise_of(g, n->op, n->arg);
  if (kind != RS_list) {
    fn(&n->arg[check_position(kind)].u.val, arg);
    return;
  }
  for (uint32_t i = 0; i < n->arg[RA_index].n; i++) {
    MgArg *t = &n->arg[RA_index].u.item[i];
    if (t->tag == MA_val && t->u.val) fn(&t->u.val, arg);
  }
}

/* ---- the checks ---- */

static MgRc check_append(MgRewrite *rw, ValRef bad, const char *type, const char *message) {
  MgGraph *g = rw->g;
  if (!bad) return g->c->rc ? g->c->rc : MG_NOMEM;
  const MgOp *op = mg_op_by_code(TOP_mg_check);
  TRYP(op);
  NodeRef k = mg_graph_node(g, op, 3, 0);
  TRYP(k);
  MgNode *n = mg_node(g, k);
  *mg_node_arg(n, "bad") = mg_arg_val(bad);
  *mg_node_arg(n, "type") = (MgArg){.tag = MA_str, .u.str = type};
  *mg_node_arg(n, "message") = (MgArg){.tag = MA_str, .u.str = message};
  n->grad_mode = rw->n.grad_mode;
  return MG_OK;
}

/* Which elements of t are not in [low, high)? */
static ValRef check_outside(MgRewrite *rw, ValRef t, SymRef low, SymRef high) {
  ValRef below = mg_dec(rw, TOP_lt_Scalar, mg_arg_val(t), mg_arg_sym(low));
  ValRef above = below ? mg_dec(rw, TOP_ge_Scalar, mg_arg_val(t), mg_arg_sym(high)) : 0;
  return above ? mg_dec(rw, TOP_logical_or, mg_arg_val(below), mg_arg_val(above)) : 0;
}

/* Indices of [0, size), or of [-size, size). */
static MgRc check_range(MgRewrite *rw, const MgArg *t, SymRef size, bool wrap, const char *type,
                        const char *message) {
  MgExprs *x = rw->g->x;
  SymRef zero = mg_sym(x, 0);
  SymRef low = wrap ? mg_sym_sub(x, zero, size) : zero;
  return check_append(rw, check_outside(rw, t->u.val, low, size), type, message);
}

static MgRc check_emit_list(MgRewrite *rw) {
  const MgArg *list = &rw->n.arg[RA_index];
  for (uint32_t i = 0; i < list->n; i++) {
    if (list->u.item[i].tag != MA_val || !list->u.item[i].u.val) continue;
    SymRef size = mg_val(rw->g, rw->n.arg[RA_self].u.val)->size[i];
    TRY(check_range(rw, &list->u.item[i], size, true, "IndexError", CHECK_OUT_OF_DIM));
  }
  return MG_OK;
}

/* gather and scatter raise another class than the ops on slices do; index_add of rows as well. */
static MgRc check_emit_dim(MgRewrite *rw, bool wrap) {
  const MgNode *n = &rw->n;
  const MgVal *self = mg_val(rw->g, n->arg[RA_self].u.val);
  SymRef size = self->ndim ? self->size[check_dim(rw->g, n)] : mg_sym(rw->g->x, 1);
  switch (n->op->code) {
  case TOP_index_select:
  case TOP_index_copy:
  case TOP_index_fill_int_Scalar:
  case TOP_index_fill_int_Tensor:
    return check_range(rw, &n->arg[RA_dim_index], size, wrap, "IndexError", CHECK_OUT_OF_SELF);
  case TOP_index_add:
    return check_range(rw, &n->arg[RA_dim_index], size, wrap, self->ndim > 1 ? "RuntimeError" : "IndexError",
                       CHECK_OUT_OF_SELF);
  default: return check_range(rw, &n->arg[RA_dim_index], size, wrap, "RuntimeError", CHECK_OUT_OF_DIM);
  }
}

static MgRc check_emit_target(MgRewrite *rw) {
  const MgVal *self = mg_val(rw->g, rw->n.arg[RA_self].u.val);
  ValRef t = rw->n.arg[RA_index].u.val;
  ValRef bad = check_outside(rw, t, mg_sym(rw->g->x, 0), self->size[self->ndim > 1 ? 1 : 0]);
  ValRef used = bad ? mg_dec(rw, TOP_ne_Scalar, mg_arg_val(t), rw->n.arg[RA_ignored]) : 0;
  if (used) bad = mg_dec(rw, TOP_logical_and, mg_arg_val(bad), mg_arg_val(used));
  return check_append(rw, used ? bad : 0, "IndexError", "nll_loss: target is out of bounds");
}

/* NaN is not from 0 to 1. */
static MgRc check_emit_unit(MgRewrite *rw) {
  ValRef x = rw->n.arg[RA_self].u.val;
  ValRef low = mg_dec(rw, TOP_ge_Scalar, mg_arg_val(x), mg_arg_int(rw->g, 0));
  ValRef high = low ? mg_dec(rw, TOP_le_Scalar, mg_arg_val(x), mg_arg_int(rw->g, 1)) : 0;
  ValRef both = high ? mg_dec(rw, TOP_logical_and, mg_arg_val(low), mg_arg_val(high)) : 0;
  ValRef bad = both ? mg_dec(rw, TOP_logical_not, mg_arg_val(both)) : 0;
  return check_append(rw, bad, "RuntimeError", "all elements of input should be between 0 and 1");
}

MgRc mg_check_emit(MgRewrite *rw) {
  MgGraph *g = rw->g;
  const MgNode *n = &rw->n;
  ValRef self = n->arg[RA_self].u.val;
  switch (mg_raise_of(g, n->op, n->arg)) {
  case RS_list: return check_emit_list(rw);
  case RS_dim: return check_emit_dim(rw, false);
  case RS_wrapped_dim: return check_emit_dim(rw, true);
  case RS_flat:
    return check_range(rw, &n->arg[RA_index], mg_val_numel(g, self), true, "IndexError",
                       "out of range: tried to access an element outside of the tensor");
  case RS_rows:
    return check_range(rw, &n->arg[RA_index], mg_val(g, self)->size[0], false, "IndexError",
                       CHECK_OUT_OF_SELF);
  case RS_target: return check_emit_target(rw);
  case RS_unit: return check_emit_unit(rw);
  case RS_divisor:
    return check_append(rw, mg_dec(rw, TOP_eq_Scalar, n->arg[RA_divisor], mg_arg_int(g, 0)), "RuntimeError",
                        "ZeroDivisionError");
  default: return mg_fail(g->c, MG_BUG, "no check in place of %s", n->op->full);
  }
}
