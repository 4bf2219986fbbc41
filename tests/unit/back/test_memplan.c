/* The memory plan over random schedules: no two buffers that are alive together share bytes, except an output
 * that takes over its dying input in place; the arena is not larger than all buffers together. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "back/kernel/back.h"
#include "check.h"

static uint64_t seed = 1;
static uint32_t rnd(uint32_t n) {
  seed = seed * 6364136223846793005ull + 1442695040888963407ull;
  return (uint32_t)(seed >> 33) % n;
}

enum { MAXBUF = 40, MAXSTEP = 60 };
typedef struct Live {
  uint32_t first, last;
} Live;

/* A chain of pointwise kernels over random temporaries; some read with another index (no in-place then). */
static void random_schedule(MgSched *s, MgFused *f, Live *live) {
  uint32_t nbuf = 2 + rnd(MAXBUF - 2), nstep = 1 + rnd(MAXSTEP);
  for (uint32_t i = 0; i < nbuf; i++)
    CHECK(
        mg_sched_buf(s, MB_temp, rnd(4) ? DT_f32 : DT_f64, mg_sym(s->x, rnd(5) ? 64 : 1 + rnd(1000)), NULL));
  for (uint32_t i = 0; i <= nbuf; i++) live[i] = (Live){UINT32_MAX, 0};
  f->step = mg_new(s->c, MgStepIR, nstep);
  f->nstep = nstep;
  for (uint32_t i = 0; i < nstep; i++) {
    BufRef out = 1 + rnd(nbuf), in[3];
    uint32_t nin = 1 + rnd(3);
    MgKernel *k = mg_new(s->c, MgKernel, 1);
    MgLoop *l = mg_new(s->c, MgLoop, 1);
    ExprRef idx = mg_ex_idx(s->x, 0), v = 0;
    k->buf = mg_new(s->c, BufRef, 4);
    for (uint32_t n = 0; n < nin; n++) {
      in[n] = 1 + rnd(nbuf);
      MgTy ty = mg_dtype_ty(s->buf[in[n]].dtype);
      ExprRef at = rnd(3) ? idx : mg_sym_add(s->x, idx, mg_sym(s->x, 1));
      ExprRef e = mg_ex_cvt(s->x, TY_f32, mg_ex_load(s->x, ty, in[n], at, 0, 0));
      v = v ? mg_ex_op(s->x, OP_add, v, e, 0) : e;
      k->buf[k->nbuf++] = in[n];
    }
    *l = (MgLoop){.kind = ML_point, .nouter = 1, .value = v, .buf = out, .index = idx};
    l->range[0] = mg_sym(s->x, 64);
    k->buf[k->nbuf++] = out;
    k->loop = mg_new(s->c, MgLoop *, 1);
    k->loop[k->nloop++] = l;
    f->step[i] = (MgStepIR){.kind = MS_kernel, .u.kernel = k};
    for (uint32_t n = 0; n < k->nbuf; n++) {
      Live *t = &live[k->buf[n]];
      if (t->first == UINT32_MAX) t->first = i;
      t->last = i;
    }
  }
}

/* In place is allowed only where out's birth is in's death in one kernel whose loads of in are all at the
 * store's index: looked up again here, independently of the planner. */
static bool may_share(const MgSched *s, const MgFused *f, BufRef in, BufRef out, uint32_t step) {
  const MgLoop *l = f->step[step].u.kernel->loop[0];
  if (l->buf != out || mg_dtype_size(s->buf[in].dtype) != mg_dtype_size(s->buf[out].dtype)) return false;
  ExprRef stack[64];
  int n = 0;
  stack[n++] = l->value;
  while (n) {
    const MgExpr *e = mg_expr(s->x, stack[--n]);
    if (e->op == OP_load && e->u.i == in && e->src[0] != l->index) return false;
    for (int i = 0; i < e->nsrc; i++)
      if (e->src[i]) stack[n++] = e->src[i];
  }
  return true;
}

#define OFFSET(i) m.block[m.of_buf[i] - 1].offset

static void test_random(uint32_t *shared) {
  MgCtx c;
  MgExprs x;
  MgGraph g;
  MgSched s;
  MgFused f = {0};
  MgMemPlan m;
  Live live[MAXBUF + 1];
  mg_ctx_init(&c);
  CHECK(mg_exprs_init(&x, &c) == MG_OK && mg_graph_init(&g, &c, &x) == MG_OK &&
        mg_sched_init(&s, &g) == MG_OK);
  random_schedule(&s, &f, live);
  CHECK(mg_memplan(&s, &f, &m) == MG_OK && !m.dynamic);
  uint64_t sum = 0;
  for (BufRef a = 1; a < s.nbuf; a++) {
    int64_t n;
    CHECK(mg_ex_const_int(&x, s.buf[a].nelem, &n));
    uint64_t size_a = (uint64_t)n * mg_dtype_size(s.buf[a].dtype);
    sum += (size_a + 63) & ~63ull;
    if (live[a].first == UINT32_MAX) continue;
    CHECK(OFFSET(a) % 64 == 0 && OFFSET(a) + size_a <= m.bytes);
    for (BufRef b = 1; b < s.nbuf; b++) {
      if (a == b || live[b].first == UINT32_MAX || live[a].first > live[b].last ||
          live[b].first > live[a].last)
        continue;
      CHECK(mg_ex_const_int(&x, s.buf[b].nelem, &n));
      uint64_t size_b = (uint64_t)n * mg_dtype_size(s.buf[b].dtype);
      if (OFFSET(a) + size_a <= OFFSET(b) || OFFSET(b) + size_b <= OFFSET(a)) continue;
      BufRef in = live[a].last <= live[b].first ? a : b, out = in == a ? b : a;
      CHECK(live[in].last == live[out].first && OFFSET(a) == OFFSET(b));
      CHECK(may_share(&s, &f, in, out, live[out].first));
      ++*shared;
    }
  }
  CHECK(m.bytes <= sum);
  mg_ctx_free(&c);
}

int main(void) {
  uint32_t shared = 0;
  for (int i = 0; i < 3000; i++) test_random(&shared);
  CHECK(shared > 100); /* in-place reuse does happen */
  return test_done();
}
