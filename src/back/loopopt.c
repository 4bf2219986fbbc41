/* Transformations of one nest: order and collapsing of its ranges, choice of the vector index.
 * In: a nest as lowering wrote it.  Out: an equivalent copy. */
#include "back/fuse.h"
#include <stdlib.h>
#include <string.h>

static void set_ranges(MgExprs *x, const MgLoop *l) {
  int n = l->nouter + l->nred;
  for (int k = 0; k < MG_MAX_IDX; k++) mg_ex_set_idx_range(x, k, k < n ? l->range[k] : 0);
}

/* Rewrites all expressions of a nest with idx(k) = to[k]; the ranges must be those of the new indices. */
static MgRc rewrite(MgExprs *x, MgLoop *l, const ExprRef *to, int n) {
  ExprRef *part[4] = {&l->body, &l->value, &l->index, &l->mask};
  for (int i = 0; i < 4; i++)
    if (*part[i]) *part[i] = mg_ex_subst(x, *part[i], to, n);
  return mg_exprs_ok(x);
}

/* ---- access patterns ---- */

typedef struct Stride { /* how the nest's accesses move along idx(k) */
  MgExprs *x;
  int k;
  int64_t worst;    /* largest |stride| in elements; INT64_MAX: not linear */
  bool contiguous;  /* every access is uniform or has stride 1 */
} Stride;

static void note_access(Stride *s, ExprRef index) {
  ExprRef coef, rest;
  int64_t v = INT64_MAX;
  if (!mg_ex_uses_idx(s->x, index, s->k)) return;
  if (mg_ex_linear(s->x, index, s->k, &coef, &rest)) {
    v = mg_sym_hint(s->x, coef);
    if (!mg_ex_const_int(s->x, coef, &v) && v == 1) v = 2; /* a symbolic stride may be 1 only by chance */
  }
  if (v < 0 && v != INT64_MIN) v = -v;
  if (v != 1) s->contiguous = false;
  if (v > s->worst) s->worst = v;
}

/* Loads are collected first: rewriting while walking would disturb the walk. */
typedef struct Loads {
  MgCtx *c;
  ExprRef *index;
  uint32_t n, cap;
  bool nomem;
} Loads;

static ExprRef note_load(MgExprs *x, ExprRef r, const ExprRef *src, void *arg) {
  Loads *l = arg;
  const MgExpr *e = mg_expr(x, r);
  (void)src;
  if (e->op != OP_load || l->nomem) return r;
  if (l->n == l->cap) {
    uint32_t cap = l->cap ? l->cap * 2 : 16;
    ExprRef *q = mg_ctx_grow(l->c, l->index, l->n * sizeof *q, cap * sizeof *q);
    if (!q) {
      l->nomem = true;
      return r;
    }
    l->index = q;
    l->cap = cap;
  }
  l->index[l->n++] = e->src[0];
  return r;
}

static MgRc loads_of(MgSched *s, const MgLoop *l, Loads *out) {
  const ExprRef part[4] = {l->body, l->value, l->index, l->mask};
  *out = (Loads){.c = s->c};
  for (int i = 0; i < 4; i++)
    if (part[i] && !mg_ex_map(s->x, part[i], note_load, out)) return MG_NOMEM;
  return out->nomem ? MG_NOMEM : MG_OK;
}

static Stride stride_of(MgSched *s, const MgLoop *l, const Loads *loads, int k) {
  Stride st = {.x = s->x, .k = k, .contiguous = true};
  for (uint32_t i = 0; i < loads->n; i++) note_access(&st, loads->index[i]);
  note_access(&st, l->index);
  return st;
}

/* ---- dropping, ordering and collapsing ranges ---- */

static MgRc drop_ones(MgSched *s, MgLoop *l) {
  ExprRef to[MG_MAX_RANK] = {0};
  int n = l->nouter + l->nred, m = 0, outer = 0;
  for (int k = 0; k < n; k++) {
    bool one = mg_sym_is(s->x, l->range[k], 1);
    to[k] = mg_sym(s->x, 0);
    if (one) continue;
    l->range[m] = l->range[k];
    mg_ex_set_idx_range(s->x, m, l->range[k]);
    to[k] = mg_ex_idx(s->x, m);
    outer += k < l->nouter;
    m++;
  }
  if (m == n) return MG_OK;
  l->nouter = (uint8_t)outer;
  l->nred = (uint8_t)(m - outer);
  set_ranges(s->x, l);
  return rewrite(s->x, l, to, n);
}

/* Orders kept ranges (and reduced ones among themselves, where order does not matter) by decreasing stride. */
static MgRc reorder(MgSched *s, MgLoop *l) {
  ExprRef to[MG_MAX_RANK] = {0};
  SymRef range[MG_MAX_RANK];
  int64_t key[MG_MAX_RANK];
  int order[MG_MAX_RANK], n = l->nouter + l->nred;
  Loads loads;
  bool arg = l->red_op == RED_argmax || l->red_op == RED_argmin, same = true;
  TRY(loads_of(s, l, &loads));
  for (int k = 0; k < n; k++) {
    /* The store decides among the kept ranges: writes are the dearest access. Loads decide where it is silent. */
    Stride st = {.x = s->x, .k = k, .contiguous = true}, all = stride_of(s, l, &loads, k);
    note_access(&st, l->index);
    key[k] = k < l->nouter && st.worst ? st.worst : all.worst;
    order[k] = k;
  }
  for (int i = 1; i < n; i++) /* stable insertion sort within the two parts */
    for (int j = i; j > 0 && j != l->nouter && key[order[j - 1]] < key[order[j]]; j--) {
      if (j > l->nouter && (arg || l->kind == ML_scan)) break;
      int t = order[j];
      order[j] = order[j - 1];
      order[j - 1] = t;
    }
  for (int i = 0; i < n; i++) {
    range[i] = l->range[order[i]];
    same &= order[i] == i;
  }
  if (same) return MG_OK;
  memcpy(l->range, range, sizeof *range * (size_t)n);
  set_ranges(s->x, l);
  for (int i = 0; i < n; i++) to[order[i]] = mg_ex_idx(s->x, i);
  return rewrite(s->x, l, to, n);
}

/* Divisions and remainders in an expression. */
static ExprRef count_div(MgExprs *x, ExprRef r, const ExprRef *src, void *arg) {
  int op = mg_expr(x, r)->op;
  (void)src;
  *(int *)arg += op == OP_floordiv || op == OP_mod || op == OP_div || op == OP_rem || op == OP_tdiv || op == OP_fmod;
  return r;
}
static int divisions(MgExprs *x, const MgLoop *l) {
  const ExprRef part[4] = {l->body, l->value, l->index, l->mask};
  int n = 0;
  for (int i = 0; i < 4; i++)
    if (part[i]) mg_ex_map(x, part[i], count_div, &n);
  return n;
}

/* Merges ranges k and k+1 when no expression needs to take them apart again. */
static MgRc try_collapse(MgSched *s, MgLoop *l, int k, bool *done) {
  MgLoop m = *l;
  ExprRef to[MG_MAX_RANK] = {0};
  int n = l->nouter + l->nred;
  SymRef inner = l->range[k + 1];
  m.range[k] = mg_sym_mul(s->x, l->range[k], inner);
  for (int j = k + 1; j + 1 < n; j++) m.range[j] = l->range[j + 1];
  if (k < l->nouter) m.nouter--;
  else m.nred--;
  set_ranges(s->x, &m);
  ExprRef joint = mg_ex_idx(s->x, k);
  for (int j = 0; j < n; j++) to[j] = mg_ex_idx(s->x, j <= k ? j : j - 1);
  to[k] = mg_sym_floordiv(s->x, joint, inner);
  to[k + 1] = mg_sym_mod(s->x, joint, inner);
  TRY(rewrite(s->x, &m, to, n));
  *done = divisions(s->x, &m) <= divisions(s->x, l);
  if (*done) *l = m;
  set_ranges(s->x, l);
  return MG_OK;
}

static MgRc collapse(MgSched *s, MgLoop *l) {
  for (int k = 0; k + 1 < l->nouter + l->nred;) {
    bool done = false;
    if (k + 1 != l->nouter && !(l->kind == ML_scan && k + 1 >= l->nouter)) TRY(try_collapse(s, l, k, &done));
    if (!done) k++;
  }
  return MG_OK;
}

MgRc mg_loop_normalize(MgSched *s, MgLoop *l) {
  set_ranges(s->x, l);
  if (l->kind != ML_scan) TRY(drop_ones(s, l));
  if (l->kind == ML_scatter) return MG_OK; /* colliding stores keep their order */
  TRY(reorder(s, l));
  return collapse(s, l);
}

MgRc mg_loop_plan(MgSched *s, const MgLoop *l, MgKernel *k) {
  MgLoop *m = mg_new(s->c, MgLoop, 1);
  Loads loads;
  TRYP(m);
  *m = *l;
  TRY(mg_loop_normalize(s, m));
  TRY(loads_of(s, m, &loads));
  k->loop[0] = m;
  m->vec = MG_NO_VEC;
  int outer = m->nouter, all = outer + m->nred;
  bool set = m->mode == ST_set;
  k->grain = 1;
  k->nshared = (uint8_t)outer;
  switch (m->kind) {
  case ML_scatter: k->nshared = 0; break;
  case ML_scan: break;
  case ML_point:
    if (outer && set) {
      m->vec = (uint8_t)(outer - 1);
      k->nshared = (uint8_t)(outer == 1 ? 1 : outer - 1);
    }
    break;
  default:
    if (!set) break;
    if (all > outer && (outer == 0 || stride_of(s, m, &loads, all - 1).contiguous)) {
      m->vec = (uint8_t)(all - 1);
    } else if (outer && stride_of(s, m, &loads, outer - 1).contiguous) {
      m->vec = (uint8_t)(outer - 1);
      k->nshared = (uint8_t)(outer == 1 ? 1 : outer - 1);
    }
    break;
  }
  return mg_exprs_ok(s->x);
}
