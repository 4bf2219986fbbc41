/* What the checks of arguments share (infer_check.c: rules of ops, infer_refuse.c: what kernels refuse).
 * Each answers whether a fact may hold; absent tensors are for the op's rule to judge. */
#ifndef MG_INFER_FACTS_H
#define MG_INFER_FACTS_H
#include <string.h>
#include "ir/infer/infer.h"

typedef struct Check { /* the node under the op whose rules apply: an in-place op is checked as its twin */
  MgInfer *in;
  const MgOp *op;
} Check;
typedef bool (*CheckRule)(const Check *c);

bool mg_check_conv(const Check *c);
bool mg_check_batch_norm(const Check *c);
bool mg_check_pow(const Check *c);
/* Dimensions exist, and none is named twice. */
bool mg_check_dims(const Check *c, const char *name);
/* Do the kernels refuse this, although meta kernels may accept it? */
bool mg_check_refused(const Check *c);

static inline const MgVal *check_val(const Check *c, const char *name) {
  ValRef v = mg_infer_nth(c->in, mg_op_param(c->op, name));
  return v ? mg_val(c->in->g, v) : NULL;
}

static inline bool check_rank(const MgVal *v, int lo, int hi) {
  return !v || (v->ndim >= lo && v->ndim <= hi);
}

static inline bool check_dtypes(const MgVal *a, const MgVal *b) { return !a || !b || a->dtype == b->dtype; }

static inline bool check_index(const MgVal *v) { return !v || v->dtype == DT_i64 || v->dtype == DT_i32; }

static inline bool check_eq(const Check *c, SymRef a, SymRef b) { return mg_infer_eq(c->in, a, b) != 0; }

static inline bool check_float(const MgVal *v) {
  return !v || mg_dtype_is_float(v->dtype) || mg_dtype_is_complex(v->dtype);
}

static inline bool check_vector(const Check *c, const MgVal *v, SymRef n) {
  return !v || (v->ndim == 1 && check_eq(c, v->size[0], n));
}

/* Every integer of a list argument is at least lo. */
static inline bool check_at_least(const Check *c, const char *name, int64_t lo) {
  const MgArg *a = mg_infer_arg(c->in, name);
  const MgArg *item = a->tag == MA_list ? a->u.item : a;
  uint32_t n = a->tag == MA_list ? a->n : 1;
  int64_t v;
  for (uint32_t i = 0; i < n; i++)
    if (item[i].tag == MA_int && mg_ex_const_int(c->in->x, item[i].u.sym, &v) && v < lo) return false;
  return true;
}

/* Sizes that depend on data are not asked about. */
static inline bool check_late(const Check *c, SymRef e) {
  const MgSizeAsk *ask = c->in->x->ask;
  return ask && ask->late && ask->late(ask->of, e);
}

/* Is size below n? */
static inline bool check_less(const Check *c, SymRef size, SymRef n) {
  if (check_late(c, size) || check_late(c, n)) return false;
  return mg_infer_less(c->in, size, n) == 1;
}

static inline bool check_divides(const Check *c, SymRef size, int64_t by) {
  return by > 0 && (check_late(c, size) ||
                    mg_infer_is(c->in, mg_sym_mod(c->in->x, size, mg_infer_c(c->in, by)), 0) != 0);
}

/* A constant number argument; false when it is none. */
static inline bool check_number(const Check *c, const char *name, double *v) {
  const MgArg *a = mg_infer_arg(c->in, name);
  int64_t i;
  if (a->tag == MA_float) return *v = a->u.f, true;
  if (a->tag != MA_int || !mg_ex_const_int(c->in->x, a->u.sym, &i)) return false;
  return *v = (double)i, true;
}

static inline bool check_nonempty(const Check *c) {
  const MgVal *x = check_val(c, "self");
  for (int i = 0; x && i < x->ndim; i++)
    if (mg_infer_is(c->in, x->size[i], 0) == 1) return false;
  return true;
}
#endif
