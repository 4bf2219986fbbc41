/* Matrix products: one oneDNN matmul with bias, residual and activation fused.
 * Operands are read through their own strides, transposed or batched, so views cost nothing; an operand that
 * the fast implementations refuse is copied to dense rows in scratch memory first. */
#include "runtime/engine/onednn_prim.h"
#include "runtime/process/cpu.h"
#include "runtime/process/threads.h"
#include <stdlib.h>
#include <string.h>
#include "tuning.h"

typedef struct DnnMatmul {
  MgEngine e;
  DnnCall copy[2]; /* of x and w to dense rows; unused (prim NULL) as a rule */
  DnnCall pack;    /* frozen: of w into the format the primitive likes best */
  MgFrozen frozen; /* w in that format */
  DnnCall mm;
} DnnMatmul;

typedef struct DnnMatmulState {
  DnnCallState copy[2], pack, mm;
} DnnMatmulState;

typedef struct MatmulPack {
  const DnnMatmul *m;
  DnnMatmulState *st;
  const MgEngineArgs *a;
} MatmulPack;

static int matmul_pack(void *arg) {
  const MatmulPack *p = arg;
  return dnn_call_run(&p->m->pack, &p->st->pack, p->a, p->m->frozen.mem);
}

static int matmul_run(const MgEngine *e, MgEngineArgs *a) {
  const DnnMatmul *m = (const DnnMatmul *)e;
  DnnMatmulState *st = a->state;
  MatmulPack pack = {m, st, a};
  MgFrozen *once = &((DnnMatmul *)e)->frozen; /* the one part of an engine that changes after it was made */
  int team = m->e.single ? mg_threads_single() : 1;
  bool bad = (once->mem && mg_frozen_fill(once, matmul_pack, &pack)) ||
             dnn_call_run(&m->copy[0], &st->copy[0], a, NULL) ||
             dnn_call_run(&m->copy[1], &st->copy[1], a, NULL) ||
             dnn_call_run(&m->mm, &st->mm, a, m->frozen.mem);
  mg_threads_together(team);
  if (bad) a->err = "oneDNN matmul failed";
  return bad ? -1 : 0;
}

static void matmul_state_free(const MgEngine *e, void *state) {
  const DnnMatmul *m = (const DnnMatmul *)e;
  DnnMatmulState *st = state;
  if (!st) return;
  for (int i = 0; i < 2; i++) dnn_call_state_free(&m->copy[i], &st->copy[i]);
  dnn_call_state_free(&m->pack, &st->pack);
  dnn_call_state_free(&m->mm, &st->mm);
  free(st);
}

static void *matmul_state_new(const MgEngine *e) {
  const DnnMatmul *m = (const DnnMatmul *)e;
  DnnMatmulState *st = mg_calloc(1, sizeof *st);
  if (!st) return NULL;
  int bad =
      dnn_call_state(&m->mm, dnn_stream(), &st->mm) || dnn_call_state(&m->pack, dnn_stream(), &st->pack);
  for (int i = 0; i < 2 && !bad; i++) bad = dnn_call_state(&m->copy[i], dnn_stream(), &st->copy[i]);
  if (!bad) return st;
  matmul_state_free(e, st);
  return NULL;
}

static void matmul_clear(DnnMatmul *m) {
  for (int i = 0; i < 2; i++) dnn_call_free(&m->copy[i]);
  dnn_call_free(&m->pack);
  dnn_call_free(&m->mm);
  mg_frozen_free(&m->frozen);
}

static void matmul_free(MgEngine *e) {
  matmul_clear((DnnMatmul *)e);
  free(e);
}

static const MgEngineOps matmul_ops = {"onednn.matmul", matmul_run, matmul_state_new, matmul_state_free,
                                       matmul_free};

/* Sizes lead-padded with 1 to ndim, for operands that broadcast. */
static void matmul_pad(MgTensorDesc *t, int ndim) {
  int add = ndim - t->ndim;
  if (!t->present || add <= 0) return;
  memmove(t->size + add, t->size, sizeof *t->size * t->ndim);
  memmove(t->stride + add, t->stride, sizeof *t->stride * t->ndim);
  for (int i = 0; i < add; i++) t->size[i] = 1, t->stride[i] = 1;
  t->ndim = ndim;
}

/* Stride 0 means the same values along a dimension: as a size-1 dimension that broadcasts. */
static void matmul_unexpand(MgTensorDesc *t, int ndim) {
  for (int i = 0; i < ndim; i++)
    if (t->stride[i] == 0) t->size[i] = 1;
}

static void matmul_dense(MgTensorDesc *t) {
  int64_t n = 1;
  for (int i = t->ndim - 1; i >= 0; i--) t->stride[i] = n, n *= t->size[i];
}

/* Ways to set the product up, tried in order. */
enum {
  WAY_frozen, /* w in the format the primitive likes best */
  WAY_plain,  /* operands as they are */
  WAY_dense,  /* operands copied to dense rows where they are not */
  WAY_slow,   /* the reference implementation will do */
  WAY_N
};

/* Frozen weights: the descriptor the primitive chose replaces *w, and the reorder into it is set up. */
static bool matmul_freeze(DnnMatmul *m, DnnPd pd, DnnMd *w, uint64_t *scratch) {
  DnnMd want = NULL;
  if (dnn.dnnl_memory_desc_clone(&want, dnn.dnnl_primitive_desc_query_md(pd, DNN_query_weights_md, 0)))
    return false;
  int bad = dnn_call_reorder(&m->pack, *w, MATMUL_w, 0, want, SLOT_owned, 0, scratch) ||
            mg_frozen_init(&m->frozen, dnn.dnnl_memory_desc_get_size(want));
  dnn.dnnl_memory_desc_destroy(*w);
  *w = want;
  return !bad;
}

static bool matmul_make(const MgMatmulDesc *d, DnnMatmul *m, int way) {
  DnnMd md[MATMUL_NPTR] = {0}, plain[2] = {0}, any = NULL;
  DnnAttr attr = NULL;
  DnnPd pd = NULL;
  bool ok = false;
  uint64_t off[2] = {0}, scratch = 0;
  const MgTensorDesc *w = &d->t[MATMUL_w];
  for (int i = 0; i < MATMUL_NPTR; i++)
    if (d->t[i].present && !(md[i] = dnn_md(&d->t[i]))) goto done;
  for (int i = 0; i < 2 && way == WAY_dense; i++) {
    MgTensorDesc t = d->t[i];
    matmul_dense(&t);
    if (!(plain[i] = dnn_md(&t))) goto done;
    if (dnn.dnnl_memory_desc_equal(plain[i], md[i])) continue;
    off[i] = scratch;
    scratch = dnn_align(scratch + dnn.dnnl_memory_desc_get_size(plain[i]));
    if (dnn_call_reorder(&m->copy[i], md[i], i, 0, plain[i], SLOT_scratch, off[i], &scratch)) goto done;
    DnnMd t2 = md[i];
    md[i] = plain[i], plain[i] = t2;
  }
  if (way == WAY_frozen && !(any = dnn_md_any(dnn_dtype(w->dtype), w->ndim, w->size))) goto done;
  if (!(attr = dnn_attr(&d->act, md[MATMUL_residual]))) goto done;
  if (dnn.dnnl_matmul_primitive_desc_create(&pd, dnn_engine, md[MATMUL_x], any ? any : md[MATMUL_w],
                                            md[MATMUL_bias], md[MATMUL_out], attr))
    goto done;
  if ((way != WAY_slow && dnn_is_reference(pd)) || (any && !matmul_freeze(m, pd, &md[MATMUL_w], &scratch))) {
    dnn.dnnl_primitive_desc_destroy(pd);
    goto done;
  }
  static const int arg[MATMUL_NPTR] = {DNN_ARG_SRC, DNN_ARG_WEIGHTS, DNN_ARG_BIAS, 0, DNN_ARG_DST};
  for (int i = 0; i < MATMUL_NPTR; i++) {
    if (!md[i]) continue;
    bool copied = i < 2 && m->copy[i].prim;
    int at = copied ? SLOT_scratch : any && i == MATMUL_w ? SLOT_owned : i;
    dnn_call_arg(&m->mm, arg[i] ? arg[i] : dnn_post_op_base | DNN_ARG_SRC_1, at, copied ? off[i] : 0, md[i]);
    md[i] = NULL;
  }
  ok = !dnn_call_prim(&m->mm, pd, &scratch);
  m->e.scratch = scratch;
done:
  for (int i = 0; i < MATMUL_NPTR; i++)
    if (md[i]) dnn.dnnl_memory_desc_destroy(md[i]);
  for (int i = 0; i < 2; i++)
    if (plain[i]) dnn.dnnl_memory_desc_destroy(plain[i]);
  if (any) dnn.dnnl_memory_desc_destroy(any);
  if (attr) dnn.dnnl_primitive_attr_destroy(attr);
  return ok;
}

/* Without AVX-512 the library's float32 products of a packed w run on one thread in many sizes, at half the
 * speed of a plain w (Zen 3, two threads, w 1024 x 4096: up to 128 rows), and are as
 * fast at best from 64 rows on. */
static bool matmul_packs(const MgMatmulDesc *d) {
  enum { FLOAT = 6 };
  return d->frozen && (d->t[MATMUL_w].dtype != FLOAT || mg_cpu()->level >= CPU_v4);
}

/* Does a product take less than a team of threads costs?  oneDNN wakes one for 10 x 10. */
static bool matmul_is_small(const MgMatmulDesc *d) {
  const MgTensorDesc *x = &d->t[MATMUL_x], *o = &d->t[MATMUL_out];
  double n = (double)x->size[x->ndim - 1];
  for (int i = 0; i < o->ndim; i++) n *= (double)o->size[i];
  return n <= MG_TUNE_MATMUL_SMALL;
}

static MgRc matmul_engine(const void *desc, MgEngine **out) {
  MgMatmulDesc d = *(const MgMatmulDesc *)desc;
  for (int i = 0; i < MATMUL_NPTR; i++) matmul_pad(&d.t[i], d.t[MATMUL_out].ndim);
  int nbatch = d.t[MATMUL_out].ndim - 2;
  for (int i = 0; i < 2; i++) matmul_unexpand(&d.t[i], nbatch);
  matmul_unexpand(&d.t[MATMUL_bias], d.t[MATMUL_bias].ndim);
  matmul_unexpand(&d.t[MATMUL_residual], d.t[MATMUL_residual].ndim);
  DnnMatmul *m = mg_calloc(1, sizeof *m);
  if (!m) return MG_NOMEM;
  bool small = matmul_is_small(&d), made = false;
  int team = small ? mg_threads_single() : 1; /* primitives insist on the team that they were made for */
  for (int way = matmul_packs(&d) ? WAY_frozen : WAY_plain; way < WAY_N && !made; way++) {
    *m = (DnnMatmul){.e = {.ops = &matmul_ops, .single = small}};
    if (!(made = matmul_make(&d, m, way))) matmul_clear(m);
  }
  mg_threads_together(team);
  if (made) *out = &m->e;
  else free(m);
  return made ? MG_OK : MG_UNSUP;
}

MgRc mg_onednn_matmul(MgCtx *c, const MgMatmulDesc *d, MgEngine **out) {
  if (!mg_onednn_ready()) return MG_UNSUP;
  MgRc rc = dnn_exact_wanted(&d->act)
                ? dnn_exact_make(matmul_engine, d, sizeof *d, &d->act, &d->t[MATMUL_out], MATMUL_out, out)
                : matmul_engine(d, out);
  return rc == MG_NOMEM ? mg_fail(c, MG_NOMEM, "matmul engine") : rc;
}
