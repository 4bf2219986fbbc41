/* Gradients of convolutions of few channels a group.
 * In: a description.  Out: an engine.  The gradient of the input is a correlation of the result's gradient
 * (conv_planes.h).  That of the weight has one sum for each point of the window: rows of the input, shifted
 * by the point, times rows of the gradient.  A thread has whole groups, so nothing is added up between
 * threads. Sums over rows are floats of one lane, those over blocks of rows and the batch are doubles. */
#include "runtime/direct/conv_direct.h"
#include <stdlib.h>
#include <string.h>
#include "runtime/direct/conv_planes.h"
#include "runtime/process/cpu.h"
#include "runtime/process/threads.h"
#include "tuning.h"

typedef struct DirectGrad {
  MgEngine e;
  bool data, weights;              /* which gradients are made here */
  MgEngine *rest;                  /* owned: makes the others; NULL if there are none */
  ConvPlanes to_data, to_weights;  /* of to_weights the result is the gradient that comes in */
  int64_t data_slots, data_floats; /* shares, and scratch memory of each */
  int64_t weight_slots, weight_floats;
  int64_t sums; /* of a task: points of all its channels, then its channels */
  int64_t db;   /* stride of the bias' gradient */
} DirectGrad;

typedef struct GradRun {
  const DirectGrad *v;
  void *const *ptr;
  float *scratch;
} GradRun;

/* ---- running ---- */

static void grad_data_range(void *const *buf, const int64_t *size, int64_t begin, int64_t end) {
  const GradRun *r = buf[0];
  const DirectGrad *v = r->v;
  ConvWork w = {
      .p = &v->to_data, .src = r->ptr[CONV_GRAD_g], .w = r->ptr[CONV_GRAD_w], .out = r->ptr[CONV_GRAD_dx]};
  for (int64_t s = begin; s < end; s++) conv_work_run(&w, s, v->data_slots, r->scratch + s * v->data_floats);
}

/* Rows of the gradient of n channels; where columns are apart they are moved to `rows`. */
static void grad_rows(const ConvPlanes *p, const ConvTask *t, int64_t n, const float *g, float *rows) {
  int64_t ncol = p->axis[1].nout;
  for (int64_t i = 0; i < t->nrow; i++) {
    ConvTurn turn = {rows + i * ncol, g + i * p->out[2], p->rows * ncol, p->out[3], n, ncol};
    if (p->out[1] == 1 && n > 1) {
      conv_set()->turn(&turn);
      continue;
    }
    for (int64_t c = 0; c < n; c++)
      for (int64_t x = 0; x < ncol; x++)
        rows[c * p->rows * ncol + i * ncol + x] = g[c * p->out[1] + i * p->out[2] + x * p->out[3]];
  }
}

/* Adds what a task gives to its sums. */
static void grad_task(const GradRun *r, const ConvTask *t, float *slot, double *sum) {
  const ConvPlanes *p = &r->v->to_weights;
  int64_t n = t->ngroup * p->nout, ncol = p->axis[1].nout;
  double *total = sum + p->together * p->nout * p->most;
  float *rows = slot + conv_planes_floats(p);
  const float *g = r->ptr[CONV_GRAD_g];
  g += t->batch * p->out[0] + t->group * p->nout * p->out[1] + t->row * p->out[2];
  if (!p->straight) grad_rows(p, t, n, g, rows);
  ConvDots d = {.step = p->row * p->axis[0].stride,
                .at = p->point[0].at,
                .npoint = p->point[0].n,
                .pitch = p->straight ? p->out[2] : ncol,
                .nrow = t->nrow,
                .ncol = ncol};
  for (int64_t c = 0; c < n; c++) {
    d.src = slot + c / p->nout * p->nsrc * p->plane;
    d.grad = p->straight ? g + c * p->out[1] : rows + c * p->rows * ncol;
    d.sum = sum + c * p->most;
    conv_set()->dots(&d);
    for (int64_t i = 0; i < d.nrow && r->ptr[CONV_GRAD_db]; i++)
      total[c] += conv_set()->total(d.grad + i * d.pitch, ncol);
  }
}

/* The groups of one block, over the whole batch. */
static void grad_block(const GradRun *r, int64_t block, bool begin, float *slot) {
  const DirectGrad *v = r->v;
  const ConvPlanes *p = &v->to_weights;
  const ConvPoints *points = &p->point[0];
  double *sum = (double *)(slot + v->weight_floats) - v->sums;
  float *dw = r->ptr[CONV_GRAD_dw], *db = r->ptr[CONV_GRAD_db];
  ConvTask t;
  memset(sum, 0, (size_t)v->sums * sizeof *sum);
  for (int64_t n = 0; n < p->nbatch; n++)
    for (int64_t b = 0; b < p->nrblock; b++) {
      t = conv_planes_task(p, (n * p->ngblock + block) * p->nrblock + b);
      conv_planes_copy(p, &t, begin && !n && !b, r->ptr[CONV_GRAD_x], slot);
      grad_task(r, &t, slot, sum);
    }
  for (int64_t c = 0; c < t.ngroup * p->nout; c++) {
    int64_t channel = t.group * p->nout + c;
    float *to = dw + channel / p->nout * p->w_group + channel % p->nout * p->w_out;
    for (int64_t i = 0; i < points->n; i++) to[points->weight[i]] = (float)sum[c * p->most + i];
    if (db) db[channel * v->db] = (float)sum[p->together * p->nout * p->most + c];
  }
}

static void grad_weights_range(void *const *buf, const int64_t *size, int64_t begin, int64_t end) {
  const GradRun *r = buf[0];
  const DirectGrad *v = r->v;
  for (int64_t s = begin; s < end; s++) {
    int64_t all = v->to_weights.ngblock, first = all * s / v->weight_slots;
    for (int64_t block = first; block < all * (s + 1) / v->weight_slots; block++)
      grad_block(r, block, block == first, r->scratch + s * v->weight_floats);
  }
}

static int grad_run(const MgEngine *e, MgEngineArgs *a) {
  GradRun r = {(const DirectGrad *)e, a->ptr, a->scratch};
  void *buf[1] = {&r};
  MgRange range[2];
  uint32_t n = 0;
  if (r.v->data) range[n++] = (MgRange){grad_data_range, buf, NULL, r.v->data_slots, 1};
  if (r.v->weights) range[n++] = (MgRange){grad_weights_range, buf, NULL, r.v->weight_slots, 1};
  mg_threads_run(range, n, 0);
  return r.v->rest ? r.v->rest->ops->run(r.v->rest, a) : 0;
}

static void *grad_state_new(const MgEngine *e) {
  const MgEngine *rest = ((const DirectGrad *)e)->rest;
  return rest->ops->state_new(rest);
}

static void grad_state_free(const MgEngine *e, void *state) {
  const MgEngine *rest = ((const DirectGrad *)e)->rest;
  rest->ops->state_free(rest, state);
}

static void grad_free(MgEngine *e) {
  conv_planes_free(&((DirectGrad *)e)->to_data);
  conv_planes_free(&((DirectGrad *)e)->to_weights);
  MgEngine *rest = ((DirectGrad *)e)->rest;
  if (rest) rest->ops->free(rest);
  free(e);
}

static const MgEngineOps grad_ops = {"direct.conv_backward", grad_run, NULL, NULL, grad_free};
static const MgEngineOps grad_mixed_ops = {"direct.conv_backward with a library's", grad_run, grad_state_new,
                                           grad_state_free, grad_free};

/* ---- setting up ---- */

static bool grad_takes(const MgConvGradDesc *d) {
  if (d->nsp < 1 || d->nsp > 2 || d->groups < 2) return false;
  for (int i = 0; i < CONV_GRAD_NPTR; i++) {
    const MgTensorDesc *t = &d->t[i];
    if (!t->present) continue;
    if (t->dtype != 6 /* float32 */) return false;
    for (int k = 0; k < t->ndim; k++)
      if (t->size[k] < 1 || (i > CONV_GRAD_w && t->size[k] > 1 && t->stride[k] < 1)) return false;
  }
  if (d->t[CONV_GRAD_w].size[1] > MG_TUNE_DIRECT_CHANNELS) return false;
  return d->t[CONV_GRAD_dw].present || !d->t[CONV_GRAD_db].present;
}

typedef struct GradShape { /* what the choice depends on */
  bool flat; /* one spatial dimension: for the library a row of an image, whose tiles stay empty */
  bool last; /* channels-last input; the gradient that comes in is a small copy away */
  bool depthwise, few, dense; /* few: groups that do not fill a vector; dense: a stride of 1 */
} GradShape;

static GradShape grad_shape(const MgConvGradDesc *d) {
  const MgTensorDesc *x = &d->t[CONV_GRAD_x], *w = &d->t[CONV_GRAD_w];
  GradShape s = {.flat = d->nsp == 1, .few = w->size[1] < MG_TUNE_DIRECT_CHANNELS, .dense = true};
  s.last = x->size[1] > 1 && x->stride[1] == 1;
  s.depthwise = w->size[1] == 1 && w->size[0] == d->groups;
  for (int i = 0; i < d->nsp; i++) s.dense = s.dense && d->stride[i] == 1;
  return s;
}

/* With AVX-512 the library's kernels are slow where groups have some channels that do not fill a vector. */
static bool grad_wide_takes(const MgConvGradDesc *d) {
  GradShape s = grad_shape(d);
  return s.dense && d->t[CONV_GRAD_w].size[1] <= MG_TUNE_DIRECT_WIDE && (!s.depthwise || d->groups % 16);
}

/* Are these loops faster for the gradient of the input?  With a stride, its rows are woven of phases. */
static bool grad_data_wins(const MgConvGradDesc *d) {
  GradShape s = grad_shape(d);
  return s.flat || (s.dense && (!s.last || (s.few && !s.depthwise)));
}

/* And for that of the weight?  The library has fast kernels for windows of 3 x 3, and they read channels
 * side by side, so that short rows do not matter. */
static bool grad_weights_wins(const MgConvGradDesc *d) {
  GradShape s = grad_shape(d);
  const MgTensorDesc *w = &d->t[CONV_GRAD_w], *g = &d->t[CONV_GRAD_g];
  if (s.flat) return true;
  if (w->size[2] * w->size[3] > MG_TUNE_DIRECT_WINDOW) return s.depthwise || !s.last;
  if (s.last || !s.few) return false;
  return g->size[3] >= MG_TUNE_DIRECT_COLUMNS || (!s.depthwise && s.dense);
}

static ConvAxis grad_axis(const MgConvGradDesc *d, int i, bool back) {
  if (i < 0) return (ConvAxis){.back = back, .nsrc = 1, .nout = 1, .kernel = 1, .stride = 1, .dilation = 1};
  int64_t x = d->t[CONV_GRAD_x].size[2 + i], g = d->t[CONV_GRAD_g].size[2 + i];
  return (ConvAxis){.back = back,
                    .nsrc = back ? g : x,
                    .nout = back ? x : g,
                    .kernel = d->t[CONV_GRAD_w].size[2 + i],
                    .stride = d->stride[i],
                    .padding = d->padding[i],
                    .dilation = d->dilation[i]};
}

static void grad_describe(const MgConvGradDesc *d, bool back, ConvPlanes *p) {
  const MgTensorDesc *w = &d->t[back ? CONV_GRAD_w : CONV_GRAD_dw];
  int64_t out = w->size[0] / d->groups;
  p->axis[0] = grad_axis(d, d->nsp - 2, back);
  p->axis[1] = grad_axis(d, d->nsp - 1, back);
  p->nbatch = d->t[CONV_GRAD_x].size[0];
  p->ngroup = d->groups;
  p->nsrc = back ? out : w->size[1];
  p->nout = back ? w->size[1] : out;
  conv_strides(&d->t[back ? CONV_GRAD_g : CONV_GRAD_x], p->src);
  conv_strides(&d->t[back ? CONV_GRAD_dx : CONV_GRAD_g], p->out);
  p->w_group = out * w->stride[0];
  p->w_src = w->stride[back ? 0 : 1];
  p->w_out = w->stride[back ? 1 : 0];
  if (!back) p->together = 1; /* its threads have whole blocks */
  p->w_at[0] = d->nsp == 2 ? w->stride[2] : 0;
  p->w_at[1] = w->stride[w->ndim - 1];
}

/* The shares of both gradients, and scratch memory for them. */
static MgRc grad_cut(DirectGrad *v) {
  int64_t floats = MG_TUNE_DIRECT_BYTES / (int64_t)sizeof(float);
  v->e.single = conv_planes_work(v->data ? &v->to_data : &v->to_weights) <= MG_TUNE_MATMUL_SMALL;
  int64_t threads = v->e.single ? 1 : mg_abi_threads(), most = 0;
  if (v->data) {
    ConvPlanes *p = &v->to_data;
    TRY(conv_planes_cut(p, threads, floats));
    v->data_slots = threads < p->ntask ? threads : p->ntask;
    v->data_floats = conv_work_floats(p);
    most = v->data_slots * v->data_floats;
  }
  if (v->weights) {
    ConvPlanes *p = &v->to_weights;
    TRY(conv_planes_cut(p, 1, floats));
    v->weight_slots = threads < p->ngblock ? threads : p->ngblock;
    v->sums = p->together * p->nout * (p->most + 1);
    int64_t rows = p->straight ? 0 : p->together * p->nout * p->rows * p->axis[1].nout;
    int64_t all = conv_planes_floats(p) + rows + 2 * v->sums + CONV_PLANES_LANES;
    v->weight_floats = (all + CONV_PLANES_LANES - 1) / CONV_PLANES_LANES * CONV_PLANES_LANES;
    if (v->weight_slots * v->weight_floats > most) most = v->weight_slots * v->weight_floats;
  }
  v->e.scratch = (uint64_t)most * sizeof(float);
  return MG_OK;
}

/* The library makes what these loops would be slower at; where it cannot, they make all. */
static MgRc grad_rest(MgCtx *c, const MgConvGradDesc *d, DirectGrad *v) {
  MgConvGradDesc rest = *d;
  if (v->data) rest.t[CONV_GRAD_dx].present = false;
  if (v->weights) rest.t[CONV_GRAD_dw].present = rest.t[CONV_GRAD_db].present = false;
  if (!rest.t[CONV_GRAD_dx].present && !rest.t[CONV_GRAD_dw].present) return MG_OK;
  MgRc rc = mg_onednn_conv_grad(c, &rest, &v->rest);
  if (rc == MG_OK) v->e.ops = &grad_mixed_ops;
  if (rc != MG_UNSUP) return rc;
  v->data = d->t[CONV_GRAD_dx].present;
  v->weights = d->t[CONV_GRAD_dw].present;
  return MG_OK;
}

static MgRc grad_make(MgCtx *c, const MgConvGradDesc *d, DirectGrad *v) {
  TRY(grad_rest(c, d, v));
  if (v->data) grad_describe(d, true, &v->to_data);
  if (v->weights) grad_describe(d, false, &v->to_weights);
  if (d->t[CONV_GRAD_db].present) v->db = d->t[CONV_GRAD_db].stride[0];
  TRY(grad_cut(v));
  if (v->rest && v->rest->scratch > v->e.scratch) v->e.scratch = v->rest->scratch;
  if (v->rest) v->e.single = v->e.single && v->rest->single;
  return MG_OK;
}

MgRc mg_direct_conv_grad(MgCtx *c, const MgConvGradDesc *d, MgEngine **out) {
  if (!grad_takes(d) || (mg_cpu()->level >= CPU_v4 && !grad_wide_takes(d))) return MG_UNSUP;
  bool data = d->t[CONV_GRAD_dx].present && grad_data_wins(d);
  bool weights = d->t[CONV_GRAD_dw].present && grad_weights_wins(d);
  if (!data && !weights) return MG_UNSUP;
  DirectGrad *v = mg_calloc(1, sizeof *v);
  if (!v) return mg_fail(c, MG_NOMEM, "convolution engine");
  v->e.ops = &grad_ops;
  v->data = data;
  v->weights = weights;
  MgRc rc = grad_make(c, d, v);
  if (rc == MG_OK) return *out = &v->e, MG_OK;
  grad_free(&v->e);
  return rc == MG_NOMEM ? mg_fail(c, MG_NOMEM, "convolution engine") : rc;
}
