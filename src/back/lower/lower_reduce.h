/* Reductions, for the ops that are made of them. */
#ifndef MG_LOWER_REDUCE_H
#define MG_LOWER_REDUCE_H
#include "back/lower/lower_priv.h"

typedef struct LwRed { /* a reduction being lowered: what is reduced, over which dims */
  Lower *L;
  ValRef src;
  int nd; /* of the source */
  const SymRef *size;
  bool red[LW_MAX_NDIM];   /* dims that are reduced */
  bool keep;               /* the result keeps them with size 1 */
  ExprRef at[LW_MAX_NDIM]; /* idx(0..nd-1) */
  MgTy ty;                 /* accumulator */
  SymRef count;            /* elements reduced into one */
} LwRed;

/* Over the dims of argument `dim` (an int, a list; all: None, or no such argument), kept if `keepdim` is set.
 */
bool lw_red_init(Lower *L, MgNode *n, MgTy ty, LwRed *q);
ExprRef lw_red_src(LwRed *q); /* the source's element, in the accumulator's type */
/* Reduces body (over the source's indices) into result v; value (over the result's) may use the red leaf.  A
 * result that nobody reads is left out. */
MgRc lw_red_into(LwRed *q, ValRef v, MgRedOp op, ExprRef body, ExprRef value);
/* Reduces body into a temporary; *read is its element as seen from the source's indices.
 * value is over those too. */
MgRc lw_red_temp(LwRed *q, MgRedOp op, ExprRef body, ExprRef value, MgDtype dt, ExprRef *read);
/* An expression over the source's indices that does not vary along reduced dims,
 * over the result's indices. */
ExprRef lw_red_outer(LwRed *q, ExprRef e);
static inline MgDtype lw_acc_dtype(MgTy ty) { return ty == TY_f64 ? DT_f64 : DT_f32; }
#endif
