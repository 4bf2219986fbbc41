/* What the files of the expression engine (expr*.c) share. */
#ifndef MG_EXPR_PRIV_H
#define MG_EXPR_PRIV_H
#include "ir/expr/expr.h"

ExprRef expr_bad(MgExprs *x, const char *what); /* records MG_BUG; 0 */
ExprRef expr_node(MgExprs *x, const MgExpr *e);
ExprRef expr_raw(MgExprs *x, MgScalarOp op, MgTy ty, int nsrc, ExprRef a, ExprRef b, ExprRef c,
                 int64_t i); /* as is */
ExprRef expr_const(MgExprs *x, MgTy ty, MgScalar v);
/* Simpler forms; 0 when there is none.  expr_fold may reorder s[]. */
ExprRef expr_fold(MgExprs *x, MgScalarOp op, MgTy ty, ExprRef s[3]);
ExprRef expr_fold_cvt(MgExprs *x, MgTy ty, ExprRef a);
ExprRef expr_fold_where(MgExprs *x, ExprRef p, ExprRef a, ExprRef b);
ExprRef expr_index_fold(MgExprs *x, MgScalarOp op, ExprRef s[3]); /* rows over i64 operands */
#endif
