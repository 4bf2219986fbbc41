/* Which calls may raise because of values.
 * In: an op and its arguments.  Out: how it can be told, see MgRaise.  What metadata decides is not looked
 * at: the recording
 * itself raises that. */
#include "ir/graph/graph.h"
#include <string.h>

static bool raise_whole(const MgGraph *g, const MgArg *a) {
  if (a->tag != MA_val) return a->tag == MA_int || a->tag == MA_bool;
  MgDtype dt = (MgDtype)mg_val(g, a->u.val)->dtype;
  return a->u.val && !mg_dtype_is_float(dt) && !mg_dtype_is_complex(dt);
}

/* A quotient of integers that is an integer: true division is one of floats. */
static bool raise_divides_integers(const MgGraph *g, const MgOp *op, const MgArg *arg) {
  if (op->nparam <= RA_divisor || arg[RA_divisor].tag != MA_val) return false;
  if (!raise_whole(g, &arg[RA_self]) || !raise_whole(g, &arg[RA_divisor])) return false;
  bool mode = op->nparam > RA_rounding && arg[RA_rounding].tag == MA_str;
  return mode || strncmp(op->full, "aten::div", strlen("aten::div"));
}

static bool raise_unchecked(const MgOp *op, const MgArg *arg) { /* _index_put_impl(unsafe=True) */
  int unsafe = mg_op_param(op, "unsafe");
  return unsafe >= 0 && arg[unsafe].tag == MA_bool && arg[unsafe].u.b;
}

MgRaise mg_raise_of(const MgGraph *g, const MgOp *op, const MgArg *arg) {
  switch (op->raises) {
  case RS_divisor: return raise_divides_integers(g, op, arg) ? RS_divisor : RS_none;
  case RS_list: return raise_unchecked(op, arg) ? RS_none : RS_list;
  default: return (MgRaise)op->raises;
  }
}

bool mg_node_raises(const MgGraph *g, const MgNode *n) {
  if (n->evaluated) return false;
  if (n->op->raises) return mg_raise_of(g, n->op, n->arg) != RS_none;
  return n->op->code == TOP_extern && !n->op->is_view && !strncmp(n->op->name, "aten::", strlen("aten::"));
}
