/* Pointwise lowering: what a row's expression builder sees. */
#ifndef MG_LOWER_POINT_H
#define MG_LOWER_POINT_H
#include "back/lower/lower_priv.h"

typedef enum LwTyRule {            /* the type operands are converted to before the operation */
                        TR_result, /* compute type of the result */
                        TR_common, /* torch's promotion of all operands (comparisons, whose result is bool) */
                        TR_self    /* compute type of the first tensor argument */
} LwTyRule;

struct LwPt {
  Lower *L;
  MgNode *n;
  const LwRow *r;
  MgTy ty;                 /* see LwTyRule */
  int ndim;                /* of the result */
  ExprRef at[LW_MAX_NDIM]; /* idx(0..ndim-1) */
};

/* Lowers a node whose result is r->expr of its broadcast operands. */
MgRc lw_point(Lower *L, MgNode *n, const LwRow *r);
ExprRef pt_arg(LwPt *p, const char *name); /* an operand (tensor or number), converted to p->ty */
ExprRef pt_arg_as(LwPt *p, const char *name, MgTy ty);
ExprRef pt_raw(LwPt *p, const char *name); /* a tensor operand in its own compute type */
static inline bool pt_has(LwPt *p, const char *name) { return !lw_is_none(p->n, name); }
static inline double pt_float(LwPt *p, const char *name, double deflt) {
  return lw_arg_float(p->L->g, p->n, name, deflt);
}
static inline ExprRef pt_c(LwPt *p, double v) { return lw_const(p->L, p->ty, v); }
static inline ExprRef pt_1(LwPt *p, MgScalarOp op, ExprRef a) { return lw_op1(p->L, op, a); }
static inline ExprRef pt_2(LwPt *p, MgScalarOp op, ExprRef a, ExprRef b) { return lw_op2(p->L, op, a, b); }
static inline ExprRef pt_where(LwPt *p, ExprRef c, ExprRef a, ExprRef b) { return lw_where(p->L, c, a, b); }
#define ADD(a, b) pt_2(p, OP_add, a, b)
#define SUB(a, b) pt_2(p, OP_sub, a, b)
#define MUL(a, b) pt_2(p, OP_mul, a, b)
#define DIV(a, b) pt_2(p, OP_div, a, b)
#define MAX(a, b) pt_2(p, OP_max, a, b)
#define MIN(a, b) pt_2(p, OP_min, a, b)
#define LT(a, b) pt_2(p, OP_lt, a, b)
#define LE(a, b) pt_2(p, OP_le, a, b)
#define GT(a, b) pt_2(p, OP_lt, b, a)
#define GE(a, b) pt_2(p, OP_le, b, a)
#define EQ(a, b) pt_2(p, OP_eq, a, b)
#define NE(a, b) pt_2(p, OP_ne, a, b)
#define AND(a, b) pt_2(p, OP_and, a, b)
#define OR(a, b) pt_2(p, OP_or, a, b)
#define NOT(a) pt_1(p, OP_not, a)
#define NEG(a) pt_1(p, OP_neg, a)
#define EXP(a) pt_1(p, OP_exp, a)
#define C(v) pt_c(p, v)
#define WHERE(c, a, b) pt_where(p, c, a, b)
ExprRef pt_sigmoid(LwPt *p, ExprRef x); /* 1 / (1 + exp(-x)) */
#endif
