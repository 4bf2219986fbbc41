/* Convolutions of few channels a group.
 * In: a description.  Out: an engine that copies a task's source into scratch memory, computes rows of each
 * result channel there (conv_planes.h), and applies residual and activation to rows that are in cache.
 * A batch norm is a factor of the weights and a shift.
 * Invariant: a slot of scratch memory belongs to one thread. */
#include "runtime/direct/conv_direct.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "runtime/direct/conv_planes.h"
#include "runtime/process/cpu.h"
#include "runtime/process/threads.h"
#include "tuning.h"

static const char *const direct_acts[] = {"", "relu", "leaky_relu", "clip", "hardswish", "hardsigmoid"};

typedef struct DirectConv {
  MgEngine e;
  ConvPlanes p;
  int64_t nslot, slot_floats;
  int64_t residual[4]; /* strides; of an absent one 0 */
  double eps;
  ConvAct act;
  float act_a, act_b;
} DirectConv;

/* ---- running ---- */

typedef struct DirectRun {
  const DirectConv *v;
  void *const *ptr;
  float *scratch;
} DirectRun;

/* Bias and batch norm. */
static void direct_begin(void *arg, int64_t c, float *scale, float *first) {
  const DirectRun *r = arg;
  const float *bias = r->ptr[CONV_bias], *var = r->ptr[CONV_bn_var];
  const float *w = r->ptr[CONV_bn_weight], *b = r->ptr[CONV_bn_bias], *mean = r->ptr[CONV_bn_mean];
  if (bias) *first = bias[c];
  if (!var) return;
  *scale = (w ? w[c] : 1.f) / sqrtf(var[c] + (float)r->v->eps);
  *first = (b ? b[c] : 0.f) + (*first - mean[c]) * *scale;
}

/* Residual and activation. */
static void direct_finish(void *arg, const ConvTask *t, int64_t c, const ConvRows *q) {
  const DirectRun *r = arg;
  const DirectConv *v = r->v;
  const int64_t *by = v->residual;
  const float *residual = r->ptr[CONV_residual];
  if (residual) residual += t->batch * by[0] + c * by[1] + t->row * by[2];
  for (int64_t i = 0; i < q->nrow; i++)
    conv_set()->finish(q->out + i * q->pitch, q->ncol, residual ? residual + i * by[2] : NULL, by[3], v->act,
                       v->act_a, v->act_b);
}

static void direct_range(void *const *buf, const int64_t *size, int64_t begin, int64_t end) {
  DirectRun *r = buf[0];
  const DirectConv *v = r->v;
  bool finish = v->act != CONV_ACT_none || r->ptr[CONV_residual];
  ConvWork w = {.p = &v->p,
                .src = r->ptr[CONV_x],
                .w = r->ptr[CONV_w],
                .out = r->ptr[CONV_out],
                .begin = direct_begin,
                .finish = finish ? direct_finish : NULL,
                .arg = r};
  for (int64_t s = begin; s < end; s++) conv_work_run(&w, s, v->nslot, r->scratch + s * v->slot_floats);
}

static int direct_run(const MgEngine *e, MgEngineArgs *a) {
  DirectRun r = {(const DirectConv *)e, a->ptr, a->scratch};
  void *buf[1] = {&r};
  MgRange all = {direct_range, buf, NULL, r.v->nslot, 1};
  mg_threads_run(&all, 1, 0);
  return 0;
}

static void direct_free(MgEngine *e) {
  conv_planes_free(&((DirectConv *)e)->p);
  free(e);
}

static const MgEngineOps direct_ops = {"direct.conv", direct_run, NULL, NULL, direct_free};

/* ---- setting up ---- */

static bool direct_last(const MgTensorDesc *t) { return t->size[1] > 1 && t->stride[1] == 1; }

static bool direct_act(DirectConv *v, const MgActDesc *act) {
  const char *name = act->name ? act->name : "";
  size_t n = sizeof direct_acts / sizeof *direct_acts, i = 0;
  while (i < n && strcmp(direct_acts[i], name)) i++;
  v->act = (ConvAct)i;
  v->act_a = act->a;
  v->act_b = act->b;
  return i < n;
}

/* The same with AVX-512: the library's kernels want 16 channels, and are slow for a few that fill no vector.
 * Depthwise ones want a multiple of 16 groups.  With strides its kernels are the faster ones. */
static bool direct_wins_wide(const MgConvDesc *d) {
  const MgTensorDesc *w = &d->t[CONV_w];
  int64_t channels = w->size[1];
  bool last = direct_last(&d->t[CONV_x]) || direct_last(&d->t[CONV_out]);
  for (int i = 0; i < d->nsp; i++)
    if (d->stride[i] > 1) return false;
  if (d->groups < 2 || channels > MG_TUNE_DIRECT_WIDE) return false;
  if (channels == 1 && w->size[0] == d->groups) return d->groups % 16 && !last;
  return !last || d->t[CONV_out].size[1 + d->nsp] >= 8; /* shorter rows are mostly turned around */
}

/* Has the library nothing better?  For channels-last data it has kernels for depthwise convolutions, and for
 * groups that fill a vector where rows of a window are no rows of the next.  Other data it copies twice. */
static bool direct_wins(const MgConvDesc *d) {
  const MgTensorDesc *x = &d->t[CONV_x], *w = &d->t[CONV_w], *o = &d->t[CONV_out];
  int64_t channels = w->size[1], y = d->nsp - 2;
  bool tall = d->nsp == 2 && d->stride[y] == 1 && d->dilation[y] == 1 && w->size[2] > 1;
  if (mg_cpu()->level >= CPU_v4) return direct_wins_wide(d);
  if (d->groups < 2 || channels > (tall ? MG_TUNE_DIRECT_TALL : MG_TUNE_DIRECT_CHANNELS)) return false;
  if (d->nsp == 1 || !(direct_last(x) || direct_last(o))) return true;
  if (channels == 1 && w->size[0] == d->groups) return false; /* depthwise */
  return channels < MG_TUNE_DIRECT_CHANNELS || (tall && channels == MG_TUNE_DIRECT_CHANNELS);
}

static bool direct_takes(const MgConvDesc *d) {
  if (d->transposed || d->nsp < 1 || d->nsp > 2) return false;
  for (int i = 0; i < CONV_NPTR; i++) {
    const MgTensorDesc *t = &d->t[i];
    if (!t->present) continue;
    if (t->dtype != 6 /* float32 */) return false;
    for (int k = 0; k < t->ndim; k++)
      if (t->size[k] < 1 || (t->size[k] > 1 && t->stride[k] < 1)) return false;
    bool vector = i >= CONV_bias && i <= CONV_bn_var;
    if (vector &&
        (t->ndim != 1 || t->size[0] != d->t[CONV_out].size[1] || (t->size[0] > 1 && t->stride[0] != 1)))
      return false;
  }
  return true;
}

static ConvAxis direct_axis(const MgConvDesc *d, int i) {
  if (i < 0) return (ConvAxis){.nsrc = 1, .nout = 1, .kernel = 1, .stride = 1, .dilation = 1};
  return (ConvAxis){.nsrc = d->t[CONV_x].size[2 + i],
                    .nout = d->t[CONV_out].size[2 + i],
                    .kernel = d->t[CONV_w].size[2 + i],
                    .stride = d->stride[i],
                    .padding = d->padding[i],
                    .dilation = d->dilation[i]};
}

static void direct_describe(const MgConvDesc *d, ConvPlanes *p) {
  const MgTensorDesc *w = &d->t[CONV_w];
  p->axis[0] = direct_axis(d, d->nsp - 2);
  p->axis[1] = direct_axis(d, d->nsp - 1);
  p->nbatch = d->t[CONV_x].size[0];
  p->ngroup = d->groups;
  p->nsrc = w->size[1];
  p->nout = w->size[0] / d->groups;
  conv_strides(&d->t[CONV_x], p->src);
  conv_strides(&d->t[CONV_out], p->out);
  p->w_out = w->stride[0];
  p->w_group = p->nout * p->w_out;
  p->w_src = w->stride[1];
  p->w_at[0] = d->nsp == 2 ? w->stride[2] : 0;
  p->w_at[1] = w->stride[w->ndim - 1];
}

MgRc mg_direct_conv(MgCtx *c, const MgConvDesc *d, MgEngine **out) {
  DirectConv v = {.e.ops = &direct_ops, .eps = d->eps};
  if (!direct_takes(d) || !direct_wins(d) || !direct_act(&v, &d->act)) return MG_UNSUP;
  direct_describe(d, &v.p);
  ConvPlanes *p = &v.p;
  if (d->t[CONV_residual].present) conv_strides(&d->t[CONV_residual], v.residual);
  v.e.single = conv_planes_work(p) <= MG_TUNE_MATMUL_SMALL;
  int64_t threads = v.e.single ? 1 : mg_abi_threads();
  MgRc rc = conv_planes_cut(p, threads, MG_TUNE_DIRECT_BYTES / (int64_t)sizeof(float));
  DirectConv *e = rc == MG_OK ? mg_malloc(sizeof *e) : NULL;
  if (!e) {
    conv_planes_free(p);
    return rc == MG_UNSUP ? rc : mg_fail(c, MG_NOMEM, "convolution engine");
  }
  v.nslot = threads < p->ntask ? threads : p->ntask;
  v.slot_floats = conv_work_floats(p);
  v.e.scratch = (uint64_t)(v.nslot * v.slot_floats) * sizeof(float);
  *e = v;
  *out = &e->e;
  return MG_OK;
}
