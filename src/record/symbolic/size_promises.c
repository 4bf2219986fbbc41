/* In: equalities that a recording guards.  Out: bounds of marked sizes (MgSizeBound).
 * An equality of one symbol settles that symbol when no other size near by fulfils it: `s * 2 == 8` does, `s
 * % 2 == 0` does not. An equality of two symbols settles neither.  Comparisons by
 * order are noted in sizes.c. */
#include "entry/guard/source.h"
#include "record/core/capture.h"
#include "record/core/recording.h"
#include "record/symbolic/size_promises.h"
#include "tuning.h"

bool mg_promise_any(const MgCapture *cap) {
  const MgSymSizes *s = &cap->sizes;
  uint32_t i = 0;
  while (i < s->nsrc && !s->bound[i].promised) i++;
  return i < s->nsrc;
}

typedef struct PromiseSymbol {
  uint32_t symbol, n; /* of n different ones, the last */
} PromiseSymbol;

static bool promise_count(const MgExprs *x, ExprRef e, void *arg) {
  PromiseSymbol *p = arg;
  const MgExpr *n = mg_expr(x, e);
  if (n->op == OP_sym) p->symbol = (uint32_t)n->u.i, p->n++;
  return p->n > 1;
}

/* Is `difference` 0 for another value of this symbol, within its bounds? */
static bool promise_free(const MgCapture *cap, SymRef difference, uint32_t symbol, int64_t *env) {
  const MgSizeBound *b = &cap->sizes.bound[symbol];
  int64_t hint = env[symbol], lo = hint - MG_TUNE_PROMISE_NEAR, hi = hint + MG_TUNE_PROMISE_NEAR;
  if (lo < b->lo) lo = b->lo;
  if (hi > b->hi) hi = b->hi;
  for (int64_t v = lo; v <= hi; v++) {
    env[symbol] = v;
    if (v != hint && mg_sym_eval(cap->rec->x, difference, env) == 0) return true;
  }
  return false;
}

void mg_promise_equal(MgCapture *cap, SymRef a, SymRef b) {
  MgExprs *x = cap->rec->x;
  PromiseSymbol p = {0};
  SymRef difference = mg_promise_any(cap) ? mg_sym_sub(x, a, b) : 0;
  if (!difference) return;
  mg_ex_any(x, difference, promise_count, &p);
  MgSizeBound *bound = p.n == 1 && p.symbol < cap->sizes.nsrc ? &cap->sizes.bound[p.symbol] : NULL;
  if (!bound || !bound->promised || bound->outside || bound->lo >= bound->hi) return;
  int64_t *env = mg_new(cap->rec->ctx, int64_t, x->nsym);
  if (!env) return; /* the recording fails for want of memory */
  for (uint32_t k = 0; k < x->nsym; k++) env[k] = x->sym[k].hint;
  if (!promise_free(cap, difference, p.symbol, env)) bound->lo = bound->hi = x->sym[p.symbol].hint;
}

void mg_promise_number(MgCapture *cap, SymRef e) {
  if (e) mg_promise_equal(cap, e, mg_sym(cap->rec->x, mg_sym_hint(cap->rec->x, e)));
}

void mg_promise_answered(MgCapture *cap, int calc, SymRef a, SymRef b, PyObject *k, bool yes) {
  int over = 0;
  if ((calc != CALC_eq && calc != CALC_ne) || yes != (calc == CALC_eq)) return;
  if ((!a || !b) && !PyLong_CheckExact(k)) return;
  int64_t v = a && b ? 0 : PyLong_AsLongLongAndOverflow(k, &over);
  if (!a) a = mg_sym(cap->rec->x, v);
  if (!b) b = mg_sym(cap->rec->x, v);
  if (a && b && !over) mg_promise_equal(cap, a, b);
}
