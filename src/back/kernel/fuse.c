/* Groups loop nests into kernels.
 * In: the items of a schedule in program order.  Out: steps (kernels, extern calls) in an order that keeps
 * every
 * dependence through buffers.
 * Nests between two extern calls are visited in order.  A nest joins the kernel that it depends on last, or a
 * later one that touches the same memory, when
 *   - its ranges and the kernel's have a common refinement, one being a prefix of the other;
 *   - what it shares with each nest of the kernel through memory meets within one row
 *     (fu_row_local), rows being the
 *     leading ranges that no nest of the kernel reduces;
 *   - the rows are still enough for all threads, or the work is small.
 * Within a kernel, nests of equal ranges that meet only at equal elements share one set of inner loops (a
 * phase), so values pass between them in registers; a reduction's result is ready for later phases. */
#include "back/kernel/fuse_priv.h"
#include "base/assert.h"
#include <string.h>
#include "tuning.h"

typedef struct Touch { /* one nest's use of a buffer */
  uint32_t kernel;
  bool write;
} Touch;

typedef struct Uses {
  Touch *t;
  uint32_t n, cap;
} Uses;

typedef struct Fuser {
  MgSched *s;
  FuKernel **k;
  uint32_t n, cap; /* kernels since the last extern call */
  bool moved;      /* some of them need a later one */
  Uses *uses;      /* per buffer, in those kernels */
  BufRef *used;    /* the buffers that have some */
  uint32_t nused;
  uint32_t *users; /* per buffer: nests, extern calls and outputs that touch it, in the whole schedule */
  MgFused *out;
  FuKernel **grown; /* per step: its kernel before it was finished */
  uint32_t nempty;  /* nests without a point: in no kernel */
} Fuser;

/* ---- ranges ---- */

/* Common refinement of a and b from the outermost range on; the longer one's rest is appended.  False when
 * they do not nest. */
static bool refine(MgExprs *x, const SymRef *a, int na, const SymRef *b, int nb, SymRef *out, int *n) {
  int i = 0, j = 0;
  SymRef ra = na ? a[0] : 0, rb = nb ? b[0] : 0;
  *n = 0;
  while (i < na && j < nb) {
    SymRef part;
    if (*n == MG_MAX_RANK) return false;
    if (ra == rb) part = ra;
    else if (mg_sym_is(x, mg_sym_mod(x, ra, rb), 0)) part = rb;
    else if (mg_sym_is(x, mg_sym_mod(x, rb, ra), 0)) part = ra;
    else return false;
    out[(*n)++] = part;
    ra = ra == part ? 0 : mg_sym_floordiv(x, ra, part);
    rb = rb == part ? 0 : mg_sym_floordiv(x, rb, part);
    if (x->nomem) return false;
    if (!ra && ++i < na) ra = a[i];
    if (!rb && ++j < nb) rb = b[j];
  }
  if ((i < na && ra != a[i]) || (j < nb && rb != b[j])) return false; /* ended inside a range */
  for (; i < na; i++) {
    if (*n == MG_MAX_RANK) return false;
    out[(*n)++] = a[i];
  }
  for (; j < nb; j++) {
    if (*n == MG_MAX_RANK) return false;
    out[(*n)++] = b[j];
  }
  return true;
}

static int rows_of(const MgLoop *l) {
  return l->kind == ML_point ? fu_all(l) : l->kind == ML_scatter ? l->nfree : l->nouter;
}
static bool must_be_alone(const MgLoop *l) { return l->kind == ML_scatter || l->mode != ST_set || l->mask; }

/* ---- legality ---- */

typedef struct Meet { /* how two nests meet through memory */
  bool any, same_element;
} Meet;

static bool meet_pair(FuKernel *k, ExprRef a, ExprRef b, Meet *m) {
  m->any = true;
  if (a != b) m->same_element = false;
  return fu_row_local(k->s->x, a, b, k->range, k->shared);
}

/* False when a and b meet across rows. */
static bool meet(FuKernel *k, const FuNest *a, const FuNest *b, Meet *m) {
  *m = (Meet){.same_element = true};
  if (a->l->buf == b->l->buf && !meet_pair(k, a->l->index, b->l->index, m)) return false;
  for (uint32_t i = 0; i < b->nload; i++)
    if (b->load[i].buf == a->l->buf && !meet_pair(k, a->l->index, b->load[i].index, m)) return false;
  for (uint32_t i = 0; i < a->nload; i++)
    if (a->load[i].buf == b->l->buf && !meet_pair(k, a->load[i].index, b->l->index, m)) return false;
  return true;
}

/* Can b run in the inner loops of phase p? */
static bool phase_takes(const FuKernel *k, int p, const FuNest *b) {
  bool some = false;
  for (uint32_t i = 0; i < k->n; i++) {
    const MgLoop *l = k->nest[i].l;
    if (l->phase != p) continue;
    some = true;
    if (l->kind == ML_scan || b->l->kind == ML_scan || fu_all(l) != fu_all(b->l)) return false;
    if (l->kind == ML_reduce && b->l->kind == ML_reduce && l->nouter != b->l->nouter) return false;
    /* a point nest of the rows alone would be repeated by an inner reduction of the same phase */
    if ((l->kind == ML_reduce || b->l->kind == ML_reduce) && fu_all(l) == k->shared) return false;
  }
  return some;
}

/* Finds b's phase in k (which has b's ranges already): `must`, unless that is -1.  False when some dependence
 * crosses rows. */
static bool place(FuKernel *k, FuNest *b, int must) {
  int least = 0;
  for (uint32_t i = 0; i < k->n; i++) {
    const FuNest *a = &k->nest[i];
    Meet m;
    if (!meet(k, a, b, &m)) return false;
    if (!m.any) continue;
    bool together = m.same_element && a->l->kind == ML_point && fu_all(a->l) == fu_all(b->l);
    int p = a->l->phase + !together;
    if (p > least) least = p;
  }
  for (int p = least; p < k->nphase; p++)
    if ((must < 0 || p == must) && phase_takes(k, p, b)) {
      b->l->phase = (uint8_t)p;
      return true;
    }
  if (must >= 0) return false;
  if (k->nphase == 255) return false;
  b->l->phase = (uint8_t)k->nphase++;
  return true;
}

/* ---- growing kernels ---- */

static MgRc kernel_append(FuKernel *k, const FuNest *b) {
  if (k->n == k->cap) {
    uint32_t cap = k->cap ? k->cap * 2 : 4;
    k->nest = mg_ctx_grow(k->s->c, k->nest, k->n * sizeof *k->nest, cap * sizeof *k->nest);
    TRYP(k->nest);
    k->cap = cap;
  }
  k->nest[k->n++] = *b;
  return MG_OK;
}

static uint32_t nest_ops(const MgExprs *x, const FuNest *b) {
  return (b->l->body ? mg_ex_count_ops(x, b->l->body) : 0) + mg_ex_count_ops(x, b->l->value);
}

static MgRc new_kernel(Fuser *f, const FuNest *b, FuKernel **out) {
  FuKernel *k = mg_new(f->s->c, FuKernel, 1);
  TRYP(k);
  k->s = f->s;
  k->nrange = fu_all(b->l);
  memcpy(k->range, b->l->range, sizeof *k->range * (size_t)k->nrange);
  k->shared = rows_of(b->l);
  k->alone = must_be_alone(b->l);
  k->nphase = 1;
  k->ops = nest_ops(f->s->x, b);
  TRY(kernel_append(k, b));
  if (f->n == f->cap) {
    uint32_t cap = f->cap ? f->cap * 2 : 32;
    f->k = mg_ctx_grow(f->s->c, f->k, f->n * sizeof *f->k, cap * sizeof *f->k);
    TRYP(f->k);
    f->cap = cap;
  }
  f->k[f->n++] = k;
  *out = k;
  return MG_OK;
}

/* A copy of nest n over the refined ranges. */
static MgRc split_copy(MgSched *s, const FuNest *n, const SymRef *range, int nrange, FuNest *out) {
  *out = *n;
  out->l = mg_new(s->c, MgLoop, 1);
  TRYP(out->l);
  *out->l = *n->l;
  int all = fu_all(n->l);
  if (all <= nrange && !memcmp(n->l->range, range, sizeof *range * (size_t)all)) return MG_OK;
  TRY(fu_split(s, out->l, range, nrange));
  return fu_nest_loads(s, out);
}

static bool worth_it(const FuKernel *k, const FuKernel *t, const FuNest *b) {
  const MgExprs *x = k->s->x;
  int64_t rows = fu_hint(x, t->range, 0, t->shared), before = fu_hint(x, k->range, 0, k->shared);
  int64_t alone = fu_hint(x, b->l->range, 0, rows_of(b->l)), work = fu_hint(x, t->range, 0, t->nrange);
  if (alone > before) before = alone;
  return rows >= (fu_on_gpu(k->s, b->l) ? MG_TUNE_FUSE_GPU_ROWS : MG_TUNE_FUSE_ROWS) || rows >= before ||
         work <= MG_TUNE_FUSE_SMALL;
}

/* On a GPU a reduction keeps its blocks: it does not run inside of fewer rows than it has results. */
static bool starves(const FuKernel *t, const FuNest *b) {
  const MgExprs *x = t->s->x;
  int64_t rows = fu_hint(x, t->range, 0, t->shared);
  if (!fu_on_gpu(t->s, b->l) || rows >= MG_TUNE_FUSE_GPU_FULL) return false;
  for (uint32_t i = 0; i <= t->n; i++) {
    const MgLoop *l = i < t->n ? t->nest[i].l : b->l;
    if (l->kind == ML_reduce && fu_hint(x, l->range, 0, l->nouter) >= 2 * rows) return true;
  }
  return false;
}

/* A scalar is not computed in a kernel over tensors: its code would then have their sizes in it, so that no
 * other kernel could be the same, and one thread would run all of it. */
static bool scalar_apart(const FuKernel *k, const FuNest *b) {
  for (uint32_t i = 0; i < k->n; i++)
    if (k->nest[i].l->kind != ML_point) return false;
  return b->l->kind == ML_point && (k->nrange == 0) != (fu_all(b->l) == 0);
}

/* Does a nest of points read memory across, as tiles do? */
static bool reads_across(MgSched *s, const FuNest *n) {
  MgExprs *x = s->x;
  int last = fu_all(n->l) - 1;
  ExprRef coef, rest;
  if (n->l->kind != ML_point || last < 1 || fu_hint(x, n->l->range, 0, last + 1) < MG_TUNE_GPU_TURNED)
    return false;
  fu_set_ranges(x, n->l->range, last + 1);
  if (!mg_ex_linear(x, n->l->index, last, &coef, &rest) || !mg_sym_is(x, coef, 1)) return false;
  for (uint32_t i = 0; i < n->nload; i++)
    if (mg_index_turned(x, n->load[i].index, last)) return true;
  return false;
}

/* Would rows of a GPU's kernel take the place of tiles? */
static bool loses_tiles(const FuKernel *k, const FuNest *b) {
  if (!fu_on_gpu(k->s, b->l)) return false;
  bool across = reads_across(k->s, b), rows = b->l->kind == ML_reduce;
  for (uint32_t i = 0; i < k->n; i++) {
    across |= reads_across(k->s, &k->nest[i]);
    rows |= k->nest[i].l->kind == ML_reduce;
  }
  return across && rows;
}

/* Adds b to k when that is legal and worth it; *why is NULL then, else what speaks against it. */
static MgRc try_add(FuKernel *k, const FuNest *b, const char **why) {
  MgSched *s = k->s;
  FuKernel t = *k;
  FuNest nb;
  int phase;
  bool ok;
  uint32_t ops = k->ops + nest_ops(s->x, b);
  *why = "a scalar is not computed among tensors";
  if (scalar_apart(k, b)) return MG_OK;
  *why = "a nest that scatters, or updates memory in place, has a kernel of its own";
  if (k->alone || must_be_alone(b->l)) return MG_OK;
  *why = "rows would take the place of tiles";
  if (loses_tiles(k, b)) return mg_exprs_ok(s->x);
  *why = "the kernel is large enough (FUSE_NESTS, FUSE_OPS)";
  if (k->n >= MG_TUNE_FUSE_NESTS || ops > MG_TUNE_FUSE_OPS) return MG_OK;
  *why = "their ranges do not nest";
  if (!refine(s->x, k->range, k->nrange, b->l->range, fu_all(b->l), t.range, &t.nrange))
    return mg_exprs_ok(s->x);
  t.nest = mg_new(s->c, FuNest, k->n + 1);
  TRYP(t.nest);
  t.cap = k->n + 1;
  for (uint32_t i = 0; i < k->n; i++) TRY(split_copy(s, &k->nest[i], t.range, t.nrange, &t.nest[i]));
  TRY(split_copy(s, b, t.range, t.nrange, &nb));
  t.shared = rows_of(nb.l);
  for (uint32_t i = 0; i < t.n; i++)
    if (rows_of(t.nest[i].l) < t.shared) t.shared = rows_of(t.nest[i].l);
  fu_set_ranges(s->x, t.range, t.nrange);
  *why = "the rows that they share are too few for the threads (FUSE_ROWS)";
  if (!worth_it(k, &t, b) || starves(&t, &nb)) return mg_exprs_ok(s->x);
  TRY(fu_take_updates(&t, &nb, &phase, &ok));
  *why = "one needs other rows of the other's result";
  if (!ok || !place(&t, &nb, phase)) return mg_exprs_ok(s->x);
  TRY(kernel_append(&t, &nb));
  fu_set_ranges(s->x, t.range, t.nrange);
  *why = "a reduction would jump through memory";
  if (fu_spoils_vectors(k, &t, b)) return mg_exprs_ok(s->x);
  t.ops = ops;
  *k = t;
  *why = NULL;
  return mg_exprs_ok(s->x);
}

/* ---- the pass ---- */

static MgRc touch(Fuser *f, BufRef b, uint32_t kernel, bool write) {
  Uses *u = &f->uses[b];
  if (u->n && u->t[u->n - 1].kernel == kernel && u->t[u->n - 1].write >= write) return MG_OK;
  if (u->n == u->cap) {
    uint32_t cap = u->cap ? u->cap * 2 : 4;
    u->t = mg_ctx_grow(f->s->c, u->t, u->n * sizeof *u->t, cap * sizeof *u->t);
    TRYP(u->t);
    u->cap = cap;
  }
  if (!u->n) f->used[f->nused++] = b;
  u->t[u->n++] = (Touch){kernel, write};
  return MG_OK;
}

/* Must `kernel` come before a nest that touches the buffer as t does? */
static bool depends(const Touch *t, bool write) { return write || t->write; }

/* May b join kernel k without k coming before what b depends on?  Kernels behind k may move before it when
 * they compute scalars only. */
static bool in_order(Fuser *f, const FuNest *b, uint32_t k) {
  for (uint32_t i = 0; i <= b->nload; i++) {
    bool write = i == b->nload;
    const Uses *u = &f->uses[write ? b->l->buf : b->load[i].buf];
    for (uint32_t j = 0; j < u->n; j++) {
      uint32_t d = u->t[j].kernel;
      if (d == k || !depends(&u->t[j], write)) continue;
      if (d > k && f->k[d]->nrange) return false;
      if ((d > k || f->moved) && fu_needs(f->k, d, k)) return false;
    }
  }
  return true;
}

static void candidate(uint32_t *out, int *n, uint32_t kernel) {
  for (int m = 0; m < *n; m++)
    if (out[m] == kernel) return;
  if (*n < MG_TUNE_FUSE_TRIES) out[(*n)++] = kernel;
}

/* Small kernels of a GPU over b's ranges, the last ones first: b and they share a launch, if no memory. */
static int candidates_beside(const Fuser *f, const FuNest *b, uint32_t *out, int n) {
  int all = fu_all(b->l), rows = rows_of(b->l);
  if (!fu_on_gpu(f->s, b->l) || fu_hint(f->s->x, b->l->range, 0, all) > MG_TUNE_GPU_BESIDE) return n;
  for (uint32_t k = f->n; k-- > 0 && f->n - k <= MG_TUNE_GPU_BESIDE_KERNELS;) {
    const FuKernel *c = f->k[k];
    if (c->nrange == all && c->shared == rows &&
        !memcmp(c->range, b->l->range, sizeof *c->range * (size_t)all))
      candidate(out, &n, k);
  }
  return n;
}

/* Kernels that b may join, best first: the last one that it depends on, then later ones that touch its
 * memory, then earlier ones that it depends on, then any that it can stand beside. */
static int candidates(Fuser *f, const FuNest *b, uint32_t *out) {
  int n = 0;
  uint32_t bound = 0;
  bool some = false;
  for (int pass = 0; pass < 3; pass++) {
    for (uint32_t i = 0; i <= b->nload; i++) {
      bool write = i == b->nload;
      const Uses *u = &f->uses[write ? b->l->buf : b->load[i].buf];
      for (uint32_t j = u->n; j-- > 0 && (pass == 0 || u->n - j <= 8);) {
        uint32_t k = u->t[j].kernel;
        bool needed = depends(&u->t[j], write);
        if (pass == 0 && needed) some = true, bound = k > bound ? k : bound;
        if (pass == 1 && k >= bound) candidate(out, &n, k);
        if (pass == 2 && needed && k < bound) candidate(out, &n, k);
      }
    }
    if (pass == 0 && some) candidate(out, &n, bound);
  }
  return candidates_beside(f, b, out, n);
}

/* Kernel `at` comes after everything that b, now part of it, depends on. */
static MgRc add_preds(Fuser *f, const FuNest *b, uint32_t at) {
  FuKernel *k = f->k[at];
  for (uint32_t i = 0; i <= b->nload; i++) {
    bool write = i == b->nload;
    const Uses *u = &f->uses[write ? b->l->buf : b->load[i].buf];
    for (uint32_t j = 0; j < u->n; j++) {
      uint32_t d = u->t[j].kernel;
      bool known = d == at || !depends(&u->t[j], write);
      for (uint32_t m = 0; m < k->npred && !known; m++) known = k->pred[m] == d;
      if (known) continue;
      if (k->npred == k->cap_pred) {
        uint32_t cap = k->cap_pred ? k->cap_pred * 2 : 4;
        k->pred = mg_ctx_grow(f->s->c, k->pred, k->npred * sizeof *k->pred, cap * sizeof *k->pred);
        TRYP(k->pred);
        k->cap_pred = cap;
      }
      k->pred[k->npred++] = d;
      f->moved |= d > at;
    }
  }
  return MG_OK;
}

/* Counts the buffers that a nest touches as it is in its kernel. */
static void count_users(Fuser *f, const FuNest *n) {
  for (uint32_t i = 0; i < n->nload; i++) {
    bool first = true;
    for (uint32_t j = 0; j < i; j++) first &= n->load[j].buf != n->load[i].buf;
    f->users[n->load[i].buf] += first;
  }
  f->users[n->l->buf]++;
}

static MgRc add_nest(Fuser *f, const MgLoop *l, uint32_t seq) {
  FuNest b;
  uint32_t cand[MG_TUNE_FUSE_TRIES], at = 0;
  const char *why = "it touches no memory of a kernel since the last library call";
  const char *first = NULL;
  for (int i = 0; i < l->nouter; i++)
    if (mg_sym_is(f->s->x, l->range[i], 0)) { /* nothing to do */
      f->nempty++;
      return MG_OK;
    }
  TRY(fu_nest_init(f->s, l, seq, &b));
  int n = f->s->alone ? 0 : candidates(f, &b, cand);
  for (int i = 0; i < n && why; i++) {
    at = cand[i];
    why = "a kernel between them has to run first";
    if (in_order(f, &b, at)) TRY(try_add(f->k[at], &b, &why));
    if (!first) first = why;
  }
  if (why) {
    FuKernel *k;
    at = f->n;
    TRY(new_kernel(f, &b, &k));
    k->apart = first ? first : why;
    k->apart_from = n ? f->k[cand[0]] : NULL;
  }
  TRY(add_preds(f, &b, at));
  for (uint32_t i = 0; i < b.nload; i++) TRY(touch(f, b.load[i].buf, at, false));
  TRY(touch(f, b.l->buf, at, true));
  count_users(f, &f->k[at]->nest[f->k[at]->n - 1]);
  return MG_OK;
}

/* Ends the current kernels; their steps follow in order. */
static MgRc flush(Fuser *f) {
  if (f->n > 1) TRY(fu_order(f->s, f->k, f->n));
  for (uint32_t i = 0; i < f->n; i++) {
    MgStepIR *st = &f->out->step[f->out->nstep++];
    st->kind = MS_kernel;
    st->u.kernel = mg_new(f->s->c, MgKernel, 1);
    TRYP(st->u.kernel);
    f->grown[f->out->nstep - 1] = f->k[i]; /* finished when the users of every buffer are known */
    f->k[i]->step = (int32_t)f->out->nstep - 1;
  }
  f->n = 0;
  f->moved = false;
  while (f->nused) f->uses[f->used[--f->nused]].n = 0;
  return MG_OK;
}

static void count_views(Fuser *f, const MgView *v, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) f->users[v[i].buf]++;
}

/* Replaces reductions that threads could not share by two stages. */
static MgRc expand(MgSched *s, MgItem **item, uint32_t *n, uint32_t *early_end) {
  *item = mg_new(s->c, MgItem, 2 * s->nitem + 1);
  TRYP(*item);
  *n = 0;
  for (uint32_t i = 0; i < s->nitem; i++) {
    if (i + 1 == s->early_end) *early_end = *n + 1;
    MgLoop *two[2];
    int parts = 0;
    if (s->item[i].kind == MI_loop) TRY(fu_two_stages(s, s->item[i].u.loop, two, &parts));
    if (!parts) (*item)[(*n)++] = s->item[i];
    for (int j = 0; j < parts; j++) (*item)[(*n)++] = (MgItem){.kind = MI_loop, .u.loop = two[j]};
  }
  return MG_OK;
}

/* How many nests and calls are in the steps, or have nothing to do? */
static uint32_t count_work(const Fuser *f) {
  uint32_t n = f->nempty;
  for (uint32_t i = 0; i < f->out->nstep; i++) n += f->out->step[i].kind == MS_kernel ? f->grown[i]->n : 1;
  return n;
}

/* Why step i is a kernel of its own. */
static void note_apart(const Fuser *f, uint32_t i) {
  MgKernel *k = f->out->step[i].u.kernel;
  const FuKernel *g = f->grown[i];
  k->apart = g->apart;
  k->apart_from = g->apart_from ? g->apart_from->step : -1;
}

MgRc mg_fuse(MgSched *s, MgFused *out) {
  Fuser f = {.s = s, .out = out};
  MgItem *item;
  uint32_t nitem, early_end = 0, number = 0;
  TRY(expand(s, &item, &nitem, &early_end));
  out->nstep = out->early_end = 0;
  out->step = mg_new(s->c, MgStepIR, nitem ? nitem : 1);
  f.uses = mg_new(s->c, Uses, s->nbuf);
  f.used = mg_new(s->c, BufRef, s->nbuf);
  f.users = mg_new(s->c, uint32_t, s->nbuf);
  f.grown = mg_new(s->c, FuKernel *, nitem ? nitem : 1);
  if (!out->step || !f.uses || !f.used || !f.users || !f.grown) return MG_NOMEM;
  for (uint32_t i = 0; i < nitem; i++) {
    if (i + 1 == early_end) {
      TRY(flush(&f));
      out->early_end = out->nstep + 1;
    }
    if (item[i].kind == MI_loop) {
      TRY(add_nest(&f, item[i].u.loop, i));
      continue;
    }
    TRY(flush(&f));
    MgStepIR *st = &out->step[out->nstep++];
    st->kind = MS_extern;
    st->u.ext = item[i].u.ext;
    count_views(&f, st->u.ext->in, st->u.ext->nin);
    count_views(&f, st->u.ext->out, st->u.ext->nout);
  }
  TRY(flush(&f));
  MG_ASSERT(count_work(&f) == nitem, "a nest or call is in no step, or in two");
  count_views(&f, s->out, s->nout);
  for (uint32_t i = 0; i < s->ncopy; i++) count_views(&f, &s->copy[i].from, 1);
  for (uint32_t i = 0; i < out->nstep; i++) {
    if (out->step[i].kind != MS_kernel) continue;
    TRY(fu_finish(f.grown[i], f.users, out->step[i].u.kernel, number++));
    note_apart(&f, i);
  }
  return mg_exprs_ok(s->x);
}
