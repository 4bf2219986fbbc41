/* Extern items of mg:: ops -> engines of runtime/: views and arguments become descriptions with plain
 * numbers; where views have symbols, those of the hints. */
#include "driver/engine_choice.h"
#include <stdio.h>
#include <string.h>
#include "back/kernel/loop_nest.h"
#include "base/env.h"
#include "driver/engine_timing.h"
#include "driver/options.h"
#include "ir/graph/graph.h"
#include "ir/graph/ops_mg.h"
#include "runtime/direct/conv_direct.h"
#include "runtime/direct/int4_product.h"
#include "runtime/engine/attention.h"
#include "runtime/engine/blas.h"
#include "runtime/engine/gemm.h"
#include "runtime/engine/onednn.h"
#include "runtime/engine/sized_engines.h"
#include "runtime/plan/gpu_draws.h"

/* Where the arguments of aten::convolution_backward stand. */
enum { CB_stride = 4, CB_padding, CB_dilation, CB_transposed, CB_output_padding, CB_groups };

typedef struct EngineOut { /* what comes out */
  MgEngine *engine;
  MgSized *sized; /* NULL: no view has symbols */
  bool symbols;
} EngineOut;

static int64_t engine_size(const MgSched *s, SymRef e, EngineOut *o) {
  int64_t v;
  if (mg_ex_const_int(s->x, e, &v)) return v;
  o->symbols = true;
  return mg_sym_hint(s->x, e);
}

static bool engine_tensor(const MgSched *s, const MgView *v, MgTensorDesc *d, EngineOut *o) {
  *d = (MgTensorDesc){0};
  if (!v->buf) return true;
  if (v->ndim > MG_DESC_RANK) return false;
  d->present = true;
  d->ndim = v->ndim;
  d->dtype = v->dtype;
  for (int i = 0; i < v->ndim; i++) {
    d->size[i] = engine_size(s, v->size[i], o);
    d->stride[i] = engine_size(s, v->stride[i], o);
  }
  return true;
}

/* Inputs, then the one output. */
static bool engine_tensors(const MgSched *s, const MgExtern *e, MgTensorDesc *d, int n, EngineOut *o) {
  if (e->nin != n - 1 || e->nout != 1) return false;
  for (int i = 0; i < n - 1; i++)
    if (!engine_tensor(s, &e->in[i], &d[i], o)) return false;
  return engine_tensor(s, &e->out[0], &d[n - 1], o);
}

static bool engine_ints(const MgSched *s, const MgArg *a, int64_t *out, int max) {
  if (a->tag != MA_list || a->n > (uint32_t)max) return false;
  for (uint32_t i = 0; i < a->n; i++)
    if (!mg_ex_const_int(s->x, a->u.item[i].u.sym, &out[i])) return false;
  return true;
}

static MgActDesc engine_act(const MgArg *a) {
  return (MgActDesc){a[0].u.str, (float)a[1].u.f, (float)a[2].u.f};
}

/* Weights may be kept in the library's format when they are parameters: inputs that eager could train. */
static bool engine_frozen(const MgSched *s, const MgExtern *e, const MgOptions *o, int from, int to,
                          int weight) {
  if (!o || !o->freeze) return false;
  for (int i = from; i <= to; i++)
    if (e->in[i].buf && s->buf[e->in[i].buf].kind != MB_input) return false;
  const MgBuf *w = &s->buf[e->in[weight].buf];
  return mg_val(s->g, s->g->input[w->index])->requires_grad;
}

static MgRc make_matmul(MgCtx *c, const void *d, MgEngine **out) {
  MgRc rc = mg_blas_matmul(c, d, out);
  if (rc == MG_UNSUP) rc = mg_gemm_matmul(c, d, out);
  return rc == MG_UNSUP ? mg_onednn_matmul(c, d, out) : rc;
}
static MgRc make_tiles(MgCtx *c, const void *d, MgEngine **out) { return mg_gemm_any(c, d, out); }
static MgRc make_library(MgCtx *c, const void *d, MgEngine **out) { return mg_onednn_matmul(c, d, out); }
static MgRc make_blas(MgCtx *c, const void *d, MgEngine **out) { return mg_blas_any(c, d, out); }
static MgRc make_conv(MgCtx *c, const void *d, MgEngine **out) {
  MgRc rc = mg_direct_conv(c, d, out);
  return rc == MG_UNSUP ? mg_onednn_conv(c, d, out) : rc;
}
static MgRc make_conv_grad(MgCtx *c, const void *d, MgEngine **out) {
  MgRc rc = mg_direct_conv_grad(c, d, out);
  return rc == MG_UNSUP ? mg_onednn_conv_grad(c, d, out) : rc;
}
static MgRc make_int4(MgCtx *c, const void *d, MgEngine **out) { return mg_int4_product(c, d, out); }
static MgRc make_sdpa(MgCtx *c, const void *d, MgEngine **out) { return mg_sdpa_make(c, d, out); }

/* The engine of a description, which begins with ntensor tensors; with symbols also how
 * to make it for other sizes. */
static MgRc engine_done(MgSched *s, MgRc (*make)(MgCtx *, const void *, MgEngine **), const void *desc,
                        size_t bytes, uint32_t ntensor, EngineOut *o) {
  if (o->symbols) {
    TRYP((o->sized = mg_new(s->c, MgSized, 1)) && (o->sized->desc = mg_ctx_grow(s->c, desc, bytes, bytes)));
    o->sized->make = make;
    o->sized->bytes = bytes;
    o->sized->ntensor = ntensor;
  }
  return make(s->c, desc, &o->engine);
}

/* A product of sizes that are numbers.  The environment may name the engine; weights that are packed once go
 * by the rules. */
static MgRc engine_timed_matmul(MgCtx *c, const MgMatmulDesc *d, bool search, MgEngine **out) {
  static const MgEngineMake other[] = {make_tiles, make_library, make_blas};
  const MgTensorDesc *o = &d->t[MATMUL_out], *x = &d->t[MATMUL_x];
  char op[96];
  snprintf(op, sizeof op, "matmul %s %a %a", d->act.name, (double)d->act.a, (double)d->act.b);
  MgTiming t = {.desc = d, .op = op, .t = d->t, .ntensor = MATMUL_NPTR, .weight = MATMUL_w, .search = search};
  t.rule = make_matmul;
  t.other = other;
  t.nother = sizeof other / sizeof *other;
  t.nquick = 2;
  if (d->frozen || mg_env(ENV_GEMM) || mg_env(ENV_BLAS) || !x->ndim) return make_matmul(c, d, out);
  t.work = (double)x->size[x->ndim - 1];
  for (int i = 0; i < o->ndim; i++) t.work *= (double)o->size[i];
  return mg_timing_engine(c, &t, out);
}

static MgRc engine_matmul(MgSched *s, const MgExtern *e, const MgOptions *o, EngineOut *out) {
  MgMatmulDesc d = {.act = engine_act(mg_node(s->g, e->node)->arg + MM_act)};
  if (!engine_tensors(s, e, d.t, MATMUL_NPTR, out)) return MG_UNSUP;
  d.frozen = engine_frozen(s, e, o, MATMUL_w, MATMUL_w, MATMUL_w);
  if (!out->symbols) return engine_timed_matmul(s->c, &d, o && o->search, &out->engine);
  return engine_done(s, make_matmul, &d, sizeof d, MATMUL_NPTR, out);
}

static MgRc engine_conv(MgSched *s, const MgExtern *e, const MgOptions *o, EngineOut *out) {
  const MgArg *a = mg_node(s->g, e->node)->arg;
  MgConvDesc d = {.act = engine_act(a + CV_act), .eps = a[CV_eps].u.f, .transposed = a[CV_transposed].u.b};
  if (!engine_tensors(s, e, d.t, CONV_NPTR, out)) return MG_UNSUP;
  d.frozen = engine_frozen(s, e, o, CONV_w, CONV_bn_var, CONV_w);
  d.nsp = d.t[CONV_x].ndim - 2;
  if (d.nsp < 1 || d.nsp > 3 || !mg_ex_const_int(s->x, a[CV_groups].u.sym, &d.groups)) return MG_UNSUP;
  if (!engine_ints(s, &a[CV_stride], d.stride, d.nsp) || !engine_ints(s, &a[CV_padding], d.padding, d.nsp) ||
      !engine_ints(s, &a[CV_dilation], d.dilation, d.nsp) ||
      !engine_ints(s, &a[CV_output_padding], d.output_padding, d.nsp))
    return MG_UNSUP;
  return engine_done(s, make_conv, &d, sizeof d, CONV_NPTR, out);
}

static MgRc engine_conv_grad(MgSched *s, const MgExtern *e, const MgOptions *o, EngineOut *out) {
  const MgArg *a = mg_node(s->g, e->node)->arg;
  MgConvGradDesc d = {.nsp = 0};
  if (e->nin != 3 || e->nout != 3 || a[CB_transposed].u.b) return MG_UNSUP;
  for (int i = 0; i < CONV_GRAD_NPTR; i++)
    if (!engine_tensor(s, i < 3 ? &e->in[i] : &e->out[i - 3], &d.t[i], out)) return MG_UNSUP;
  d.nsp = d.t[CONV_GRAD_x].ndim - 2;
  if (d.nsp < 1 || d.nsp > 3 || !mg_ex_const_int(s->x, a[CB_groups].u.sym, &d.groups)) return MG_UNSUP;
  if (!engine_ints(s, &a[CB_stride], d.stride, d.nsp) || !engine_ints(s, &a[CB_padding], d.padding, d.nsp) ||
      !engine_ints(s, &a[CB_dilation], d.dilation, d.nsp))
    return MG_UNSUP;
  return engine_done(s, make_conv_grad, &d, sizeof d, CONV_GRAD_NPTR, out);
}

static MgRc engine_sdpa(MgSched *s, const MgExtern *e, const MgOptions *o, EngineOut *out) {
  const MgArg *a = mg_node(s->g, e->node)->arg;
  MgSdpaDesc d = {.causal = a[SD_is_causal].u.b, .scale = (float)a[SD_scale].u.f};
  if (!engine_tensors(s, e, d.t, SDPA_NPTR, out)) return MG_UNSUP;
  return engine_done(s, make_sdpa, &d, sizeof d, SDPA_NPTR, out);
}

static MgRc engine_int4(MgSched *s, const MgExtern *e, const MgOptions *o, EngineOut *out) {
  MgInt4Desc d = {.group = 0};
  const MgArg *group = mg_node_arg(mg_node(s->g, e->node), "qGroupSize");
  if (!engine_tensors(s, e, d.t, INT4_NPTR, out) || !mg_ex_const_int(s->x, group->u.sym, &d.group))
    return MG_UNSUP;
  return engine_done(s, make_int4, &d, sizeof d, INT4_NPTR, out);
}

static MgRc engine_draws(MgSched *s, const MgExtern *e, const MgOptions *o, EngineOut *out) {
  int64_t n;
  const MgArg *given = mg_node_arg(mg_node(s->g, e->node), "n");
  if (!mg_ex_const_int(s->x, given->u.sym, &n)) return MG_UNSUP;
  return mg_draws_engine(s->c, mg_graph_cuda(s->g), (uint64_t)n, &out->engine);
}

static const struct EngineRow {
  uint16_t code;
  MgRc (*make)(MgSched *s, const MgExtern *e, const MgOptions *o, EngineOut *out);
} engine_rows[] = {
    {TOP_mg_matmul, engine_matmul},
    {TOP_mg_conv, engine_conv},
    {TOP_mg_sdpa, engine_sdpa},
    {TOP_mg_draws, engine_draws},
    {TOP_convolution_backward, engine_conv_grad},
    {TOP__weight_int4pack_mm_for_cpu, engine_int4},
};

MgRc mg_engine_make(MgSched *s, const MgExtern *e, const MgOptions *o, MgEngine **out,
                    const MgSized **sized) {
  uint16_t code = mg_node(s->g, e->node)->op->code;
  EngineOut made = {0};
  MgRc rc = MG_UNSUP;
  for (size_t i = 0; i < sizeof engine_rows / sizeof *engine_rows && rc == MG_UNSUP; i++)
    if (engine_rows[i].code == code) rc = engine_rows[i].make(s, e, o, &made);
  *out = made.engine;
  *sized = rc == MG_OK ? made.sized : NULL;
  return rc;
}
