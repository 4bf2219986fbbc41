/* Groups loop nests into kernels.
 * In: the items of a schedule in program order.  Out: steps (kernels, extern calls) in an order that keeps every
 * dependence through buffers. */
#include "back/fuse.h"
#include <stdio.h>
#include <string.h>

static MgRc bufs_add(MgSched *s, BufRef **buf, uint32_t *n, uint32_t *cap, BufRef b) {
  for (uint32_t i = 0; i < *n; i++)
    if ((*buf)[i] == b) return MG_OK;
  if (*n == *cap) {
    uint32_t c = *cap ? *cap * 2 : 16;
    *buf = mg_ctx_grow(s->c, *buf, *n * sizeof **buf, c * sizeof **buf);
    TRYP(*buf);
    *cap = c;
  }
  (*buf)[(*n)++] = b;
  return MG_OK;
}

typedef struct Collect {
  MgSched *s;
  BufRef *buf;
  uint32_t n, cap;
  MgRc rc;
} Collect;

static ExprRef collect_load(MgExprs *x, ExprRef r, const ExprRef *src, void *arg) {
  Collect *c = arg;
  const MgExpr *e = mg_expr(x, r);
  (void)src;
  if (e->op == OP_load && c->rc == MG_OK) c->rc = bufs_add(c->s, &c->buf, &c->n, &c->cap, (BufRef)e->u.i);
  return r;
}

static MgRc collect(Collect *c, const MgLoop *l) {
  const ExprRef part[4] = {l->body, l->value, l->index, l->mask};
  for (int i = 0; i < 4; i++)
    if (part[i] && !mg_ex_map(c->s->x, part[i], collect_load, c)) return MG_NOMEM;
  return c->rc;
}

/* Arguments and name of a finished kernel. */
static MgRc finish_kernel(MgSched *s, MgKernel *k, uint32_t number) {
  Collect c = {.s = s};
  k->outer = mg_sym(s->x, 1);
  for (int i = 0; i < k->nshared; i++) k->outer = mg_sym_mul(s->x, k->outer, k->loop[0]->range[i]);
  for (uint32_t i = 0; i < k->nloop; i++) {
    TRY(collect(&c, k->loop[i]));
    TRY(bufs_add(s, &c.buf, &c.n, &c.cap, k->loop[i]->buf));
  }
  k->buf = mg_new(s->c, BufRef, c.n);
  TRYP(k->buf);
  for (uint32_t i = 0; i < c.n; i++)
    if (s->buf[c.buf[i]].kind != MB_local) k->buf[k->nbuf++] = c.buf[i];
  snprintf(k->name, sizeof k->name, "k%u", number);
  return mg_exprs_ok(s->x);
}

/* A nest whose ranges are empty does nothing. */
static bool is_empty(const MgExprs *x, const MgLoop *l) {
  for (int i = 0; i < l->nouter; i++)
    if (mg_sym_is(x, l->range[i], 0)) return true;
  return false;
}

MgRc mg_fuse(MgSched *s, MgFused *out) {
  out->nstep = 0;
  out->step = mg_new(s->c, MgStepIR, s->nitem ? s->nitem : 1);
  TRYP(out->step);
  for (uint32_t i = 0; i < s->nitem; i++) {
    MgStepIR *st = &out->step[out->nstep];
    if (s->item[i].kind == MI_extern) {
      st->kind = MS_extern;
      st->u.ext = s->item[i].u.ext;
      out->nstep++;
      continue;
    }
    if (is_empty(s->x, s->item[i].u.loop)) continue;
    MgKernel *k = mg_new(s->c, MgKernel, 1);
    TRYP(k);
    k->loop = mg_new(s->c, MgLoop *, 1);
    TRYP(k->loop);
    k->nloop = 1;
    TRY(mg_loop_plan(s, s->item[i].u.loop, k));
    TRY(finish_kernel(s, k, i));
    st->kind = MS_kernel;
    st->u.kernel = k;
    out->nstep++;
  }
  return MG_OK;
}
