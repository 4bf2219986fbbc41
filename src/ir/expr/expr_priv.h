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

/* The decompositions that scalar_ops.def names: the value of row op on the operands s, written in other rows.
 * 0 if the operands' type has none. */
#define DEC(name) ExprRef name(MgExprs *x, MgScalarOp op, const ExprRef *s)
/* expr_dec.c */
DEC(dec_libm);
DEC(dec_rem);
DEC(dec_swapped);
DEC(dec_tdiv);
DEC(dec_fmod);
DEC(dec_floordiv);
DEC(dec_mod);
DEC(dec_min);
DEC(dec_max);
DEC(dec_neg);
DEC(dec_abs);
DEC(dec_sign);
DEC(dec_rsqrt);
DEC(dec_isinf);
DEC(dec_signbit);
DEC(dec_shl);
DEC(dec_shr);
DEC(dec_pow);
/* expr_math.c */
DEC(dec_exp);
DEC(dec_exp2);
DEC(dec_expm1);
DEC(dec_log);
DEC(dec_log2);
DEC(dec_log10);
DEC(dec_log1p);
DEC(dec_tanh);
DEC(dec_erf);
DEC(dec_sin);
DEC(dec_cos);
DEC(dec_tan);
DEC(dec_far);
DEC(dec_powf);
#endif
