/* Updates in place within one kernel, and the order of small kernels.
 * Code generation knows a load by buffer and index, so one kernel cannot read an element both before and
 * after it is stored.  A nest that reads what an earlier nest of the kernel has stored into memory that was
 * read before (an optimizer's moment that is updated and then used) takes the stored value itself in place of
 * the load: both run in the same inner loops, where that value is in a register. */
#include "back/kernel/fuse_priv.h"
#include <stdlib.h>
#include <string.h>
#include "tuning.h"

typedef struct Update { /* what an element of a buffer is after a store of the kernel */
  BufRef buf;
  ExprRef index, value;
} Update;

typedef struct Updates {
  Update u[MG_TUNE_UPDATES];
  int n;
  bool odd; /* a load that is masked, of another element or of another type was met */
} Updates;

static ExprRef updated_load(MgExprs *x, ExprRef r, const ExprRef *s, void *arg) {
  Updates *p = arg;
  const MgExpr e = *mg_expr(x, r);
  for (int i = 0; e.op == OP_load && i < p->n; i++) {
    const Update *u = &p->u[i];
    if ((BufRef)e.u.i != u->buf) continue;
    if (!e.src[1] && e.src[0] == u->index && e.ty == mg_expr(x, u->value)->ty) return u->value;
    p->odd = true;
  }
  return mg_ex_rebuild(x, r, s);
}

/* The nest of k that stored buf last, when some nest read buf before that; else NULL. */
static const FuNest *last_update(const FuKernel *k, BufRef buf) {
  const FuNest *store = NULL;
  bool read = false, update = false;
  for (uint32_t i = 0; i < k->n; i++) { /* in order of the schedule */
    const FuNest *a = &k->nest[i];
    for (uint32_t j = 0; j < a->nload; j++) read |= a->load[j].buf == buf;
    if (a->l->buf != buf) continue;
    store = a;
    update = read;
  }
  return update ? store : NULL;
}

MgRc fu_take_updates(FuKernel *k, FuNest *b, int *phase, bool *ok) {
  Updates p = {.n = 0};
  *phase = -1;
  *ok = true;
  for (uint32_t i = 0; i < b->nload; i++) {
    bool known = false;
    for (int j = 0; j < p.n; j++) known |= p.u[j].buf == b->load[i].buf;
    const FuNest *a = known ? NULL : last_update(k, b->load[i].buf);
    if (!a) continue;
    *ok = p.n < MG_TUNE_UPDATES && b->l->kind == ML_point && a->l->kind == ML_point &&
          fu_all(a->l) == fu_all(b->l) && (*phase < 0 || *phase == a->l->phase);
    if (!*ok) return MG_OK;
    *phase = a->l->phase;
    p.u[p.n++] = (Update){a->l->buf, a->l->index, a->l->value};
  }
  if (!p.n) return MG_OK;
  b->l->value = mg_ex_map(k->s->x, b->l->value, updated_load, &p);
  b->l->index = mg_ex_map(k->s->x, b->l->index, updated_load, &p);
  *ok = !p.odd;
  TRY(mg_exprs_ok(k->s->x));
  return fu_nest_loads(k->s, b);
}

/* ---- order ---- */

bool fu_needs(FuKernel *const *k, uint32_t after, uint32_t before) {
  uint32_t stack[64], n = 0, steps = 0;
  stack[n++] = after;
  while (n) {
    const FuKernel *a = k[stack[--n]];
    for (uint32_t i = 0; i < a->npred; i++) {
      if (a->pred[i] == before || n == 64 || ++steps > 1024)
        return true; /* too much to look at: as if it did */
      stack[n++] = a->pred[i];
    }
  }
  return false;
}

/* Appends kernel i after everything that it needs. */
static void place_after(FuKernel *const *k, uint32_t i, FuKernel **out, uint32_t *n) {
  if (k[i]->placed) return;
  k[i]->placed = true;
  for (uint32_t j = 0; j < k[i]->npred; j++) place_after(k, k[i]->pred[j], out, n);
  out[(*n)++] = k[i];
}

typedef struct Place { /* a kernel and how many others must have ended before it */
  FuKernel *k;
  uint32_t level, at;
} Place;

static int by_level(const void *a, const void *b) {
  const Place *p = a, *q = b;
  if (p->level != q->level) return p->level < q->level ? -1 : 1;
  return p->at < q->at ? -1 : p->at > q->at;
}

/* Does k use no temporary worth mentioning?  Moving it then costs neither memory nor locality. */
static bool movable(const FuKernel *k) {
  for (uint32_t i = 0; i < k->n; i++)
    for (uint32_t j = 0; j <= k->nest[i].nload; j++) {
      const MgBuf *b = &k->s->buf[j == k->nest[i].nload ? k->nest[i].l->buf : k->nest[i].load[j].buf];
      int64_t n;
      if (b->kind == MB_temp && (!mg_ex_const_int(k->s->x, b->nelem, &n) || n > MG_TUNE_UPDATE_TEMP))
        return false;
    }
  return true;
}

MgRc fu_order(MgSched *s, FuKernel **k, uint32_t n) {
  Place *p = mg_new(s->c, Place, n + 1);
  uint32_t *wrote = mg_new(s->c, uint32_t, s->nbuf), *read = mg_new(s->c, uint32_t, s->nbuf),
           most = 0; /* level + 1 */
  FuKernel **in = mg_new(s->c, FuKernel *, n + 1);
  uint32_t count = 0;
  TRYP(p && wrote && read && in);
  for (uint32_t i = 0; i < n; i++) place_after(k, i, in, &count);
  memcpy(k, in, n * sizeof *k);
  for (uint32_t i = 0; i < n; i++) {
    uint32_t level = movable(k[i]) ? 0 : most;
    for (uint32_t j = 0; j < k[i]->n; j++) {
      const FuNest *a = &k[i]->nest[j];
      for (uint32_t m = 0; m < a->nload; m++)
        if (level < wrote[a->load[m].buf]) level = wrote[a->load[m].buf];
      if (level < wrote[a->l->buf]) level = wrote[a->l->buf];
      if (level < read[a->l->buf]) level = read[a->l->buf];
    }
    p[i] = (Place){k[i], level, i};
    if (level > most) most = level;
    for (uint32_t j = 0; j < k[i]->n; j++) {
      const FuNest *a = &k[i]->nest[j];
      for (uint32_t m = 0; m < a->nload; m++)
        if (read[a->load[m].buf] <= level) read[a->load[m].buf] = level + 1;
      if (wrote[a->l->buf] <= level) wrote[a->l->buf] = level + 1;
    }
  }
  qsort(p, n, sizeof *p, by_level);
  for (uint32_t i = 0; i < n; i++) k[i] = p[i].k;
  return MG_OK;
}
