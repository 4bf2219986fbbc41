/* Geometry of correlations, and the copies of their sources. */
#include "runtime/direct/conv_planes.h"
#include <stdlib.h>
#include <string.h>
#include "runtime/engine/simd.h"
#include "runtime/process/cpu.h"

#define SIMD_SET any
#define SIMD_LANES 4
#include "runtime/engine/simd.h"
#include "runtime/direct/conv_tile.h"
#include "runtime/engine/simd_end.h"
#if defined(__x86_64__)
MG_TARGET_BEGIN("avx2,fma")
#define SIMD_SET avx2
#define SIMD_LANES 8
#include "runtime/engine/simd.h"
#include "runtime/direct/conv_tile.h"
#include "runtime/engine/simd_end.h"
MG_TARGET_END
#endif

const ConvSet *conv_set(void) {
#if defined(__x86_64__)
  if (mg_cpu()->avx2 && mg_cpu()->fma) return &conv_set_avx2;
#endif
  return &conv_set_any;
}

static int64_t planes_min(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t planes_max(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t planes_up(int64_t a, int64_t by) { return (a + by - 1) / by; }

/* ---- geometry ---- */

bool conv_axis_point(const ConvAxis *a, int64_t q, int64_t k, int64_t *distance) {
  if (!a->back) return *distance = k * a->dilation - a->padding, true;
  int64_t n = q + a->padding - k * a->dilation;
  *distance = n / a->stride;
  return n % a->stride == 0;
}

void conv_strides(const MgTensorDesc *t, int64_t stride[4]) {
  bool flat = t->ndim == 3; /* one row */
  stride[0] = t->stride[0];
  stride[1] = t->stride[1];
  stride[2] = flat ? 0 : t->stride[2];
  stride[3] = t->stride[t->ndim - 1];
}

double conv_planes_work(const ConvPlanes *p) {
  const ConvAxis *y = &p->axis[0], *x = &p->axis[1];
  double points = (double)(y->kernel * x->kernel) * (double)(p->nsrc * p->nout * p->ngroup * p->nbatch);
  return points * (double)(y->back ? y->nsrc : y->nout) * (double)(x->back ? x->nsrc : x->nout);
}

/* The bounds of an axis over all its phases. */
static void planes_bounds(ConvAxis *a) {
  int64_t distance;
  bool any = false;
  for (int64_t q = 0; q < conv_phases(a); q++)
    for (int64_t k = 0; k < a->kernel; k++) {
      if (!conv_axis_point(a, q, k, &distance)) continue;
      a->low = any ? planes_min(a->low, distance) : distance;
      a->high = any ? planes_max(a->high, distance) : distance;
      any = true;
    }
}

/* Points go column by column. */
static void planes_points(const ConvPlanes *p, int64_t qy, int64_t qx, ConvPoints *o) {
  const ConvAxis *y = &p->axis[0], *x = &p->axis[1];
  int64_t dy, dx, step = conv_source_step(x);
  for (int64_t c = 0; c < p->nsrc; c++)
    for (int64_t kx = 0; kx < x->kernel; kx++) {
      if (!conv_axis_point(x, qx, kx, &dx)) continue;
      int64_t far = dx - x->low, column = c * p->plane + far % step * p->pitch + far / step;
      for (int64_t k = 0; k < y->kernel; k++) {
        int64_t ky = y->back ? y->kernel - 1 - k : k; /* distances rise */
        if (!conv_axis_point(y, qy, ky, &dy)) continue;
        o->at[o->n] = (int32_t)(column + (dy - y->low) * p->row);
        o->weight[o->n] = (int32_t)(c * p->w_src + ky * p->w_at[0] + kx * p->w_at[1]);
        o->dense = o->dense && o->weight[o->n] == o->n;
        o->n++;
      }
    }
  bool next = conv_source_step(y) == 1 && conv_phases(y) == 1 && y->dilation == 1;
  o->tall = next ? y->kernel : 1;
}

/* Rows of a task, so that its source fits; more tasks where there are few. */
static void planes_rows(ConvPlanes *p, int64_t threads, int64_t floats) {
  const ConvAxis *y = &p->axis[0];
  int64_t all = conv_phase_size(y, 0), halo = y->high - y->low + 1, step = conv_source_step(y);
  int64_t row = p->row * p->nsrc * p->together, room = floats / row;
  p->rows = planes_min(all, planes_max(1, (room - halo) / step + 1));
  p->ngblock = planes_up(p->ngroup, p->together);
  int64_t want =
      planes_up(2 * threads, p->nbatch * p->ngblock); /* blocks of rows that are worth their halo */
  if (threads > 1 && want > 1) p->rows = planes_min(p->rows, planes_max(planes_up(all, want), 8));
  p->nrblock = planes_up(all, p->rows);
  p->rows = planes_up(all, p->nrblock);
  p->ntask = p->nbatch * p->ngblock * p->nrblock;
}

MgRc conv_planes_cut(ConvPlanes *p, int64_t threads, int64_t floats) {
  ConvAxis *y = &p->axis[0], *x = &p->axis[1];
  planes_bounds(y);
  planes_bounds(x);
  int64_t step = conv_source_step(x), columns = (conv_phase_size(x, 0) - 1) * step + x->high - x->low + 1;
  p->pitch = planes_up(columns, step) + CONV_PLANES_LANES;
  p->row = p->pitch * step;
  bool last = p->src[1] == 1 || p->out[1] == 1; /* whole cache lines of channels */
  int64_t all = conv_phase_size(y, 0), rows = (all - 1) * conv_source_step(y) + y->high - y->low + 1;
  int64_t room = floats / 4 / (p->row * rows * p->nsrc); /* small planes, to have fewer tasks */
  int64_t share = p->nbatch * p->ngroup / (4 * threads);
  if (last) p->together = planes_up(CONV_PLANES_LANES, planes_min(p->nsrc, p->nout));
  else if (!p->together) p->together = planes_max(1, planes_min(room, share));
  p->together = planes_min(p->together, p->ngroup);
  planes_rows(p, threads, floats);
  p->rows_copied = (p->rows - 1) * conv_source_step(y) + y->high - y->low + 1;
  p->plane = p->rows_copied * p->row;
  int64_t nphase = conv_phases(y) * conv_phases(x);
  p->straight = nphase == 1 && (p->out[3] == 1 || x->nout == 1);
  p->most = p->nsrc * y->kernel * x->kernel;
  if (p->plane * p->nsrc * p->together > INT32_MAX / 2 || p->most * p->w_out > INT32_MAX / 2) return MG_UNSUP;
  p->point = mg_calloc((size_t)nphase, sizeof *p->point);
  p->memory = mg_calloc((size_t)(2 * p->most * nphase), sizeof *p->memory);
  if (!p->point || !p->memory) return MG_NOMEM;
  for (int64_t q = 0; q < nphase; q++) {
    ConvPoints *o = &p->point[q];
    o->at = p->memory + 2 * q * p->most;
    o->weight = o->at + p->most;
    o->dense = true;
    planes_points(p, q / conv_phases(x), q % conv_phases(x), o);
  }
  return MG_OK;
}

void conv_planes_free(ConvPlanes *p) {
  free(p->point);
  free(p->memory);
}

int64_t conv_planes_floats(const ConvPlanes *p) { return p->plane * p->nsrc * p->together; }

ConvTask conv_planes_task(const ConvPlanes *p, int64_t task) {
  ConvTask t = {.row = task % p->nrblock * p->rows};
  task /= p->nrblock;
  t.group = task % p->ngblock * p->together;
  t.batch = task / p->ngblock;
  t.ngroup = planes_min(p->together, p->ngroup - t.group);
  t.nrow = planes_min(p->rows, conv_phase_size(&p->axis[0], 0) - t.row);
  return t;
}

/* ---- copying ---- */

typedef struct PlanesSpan { /* scratch columns of a phase that lie in the source, and the first one's place */
  int64_t begin, end, at;
} PlanesSpan;

static PlanesSpan planes_span(const ConvPlanes *p, int64_t phase) {
  const ConvAxis *x = &p->axis[1];
  int64_t step = conv_source_step(x), n = p->pitch - CONV_PLANES_LANES;
  int64_t first = x->low + phase; /* source column of scratch column 0 */
  int64_t begin = first < 0 ? planes_min(n, planes_up(-first, step)) : 0;
  int64_t end = first < x->nsrc ? planes_min(n, planes_up(x->nsrc - first, step)) : 0;
  return (PlanesSpan){begin, planes_max(begin, end), (first + begin * step) * p->src[3]};
}

/* nrow rows of nchan channels, phase by phase.  zero: write the zeros beside them, too. */
static void planes_copy_rows(const ConvPlanes *p, bool zero, int64_t nrow, int64_t nchan, const float *src,
                             float *to) {
  const ConvSet *set = conv_set();
  int64_t step = conv_source_step(&p->axis[1]), by = p->src[3] * step, n = p->pitch - CONV_PLANES_LANES;
  bool last = p->src[1] == 1 && nchan > 1;
  for (int64_t q = 0; q < step; q++, to += p->pitch) {
    PlanesSpan s = planes_span(p, q);
    for (int64_t r = 0; r < nrow && last && s.end > s.begin; r++) {
      float *row = to + r * p->row + s.begin;
      ConvTurn t = {row, src + r * p->src[2] + s.at, p->plane, by, nchan, s.end - s.begin};
      set->turn(&t);
    }
    for (int64_t c = 0; c < nchan && !last && s.end > s.begin; c++) {
      const float *from = src + c * p->src[1] + s.at;
      ConvCopy t = {to + c * p->plane + s.begin, from, p->row, p->src[2], nrow, s.end - s.begin, by};
      set->copy(&t);
    }
    for (int64_t c = 0; c < nchan && zero; c++)
      for (int64_t r = 0; r < nrow; r++) {
        float *row = to + c * p->plane + r * p->row;
        memset(row, 0, (size_t)s.begin * sizeof *to);
        memset(row + s.end, 0, (size_t)(n - s.end) * sizeof *to);
      }
  }
}

void conv_planes_copy(const ConvPlanes *p, const ConvTask *t, bool first, const float *src, float *to) {
  const ConvAxis *y = &p->axis[0];
  int64_t step = conv_source_step(y), nrow = (t->nrow - 1) * step + y->high - y->low + 1;
  int64_t nchan = t->ngroup * p->nsrc, above = t->row * step + y->low;
  bool zero = p->nrblock > 1;
  int64_t begin = planes_min(nrow, planes_max(0, -above)), end = planes_min(nrow, y->nsrc - above);
  end = planes_max(begin, end);
  if (first && !zero) memset(to, 0, (size_t)conv_planes_floats(p) * sizeof *to);
  for (int64_t c = 0; c < nchan && zero; c++) {
    float *plane = to + c * p->plane;
    memset(plane, 0, (size_t)(begin * p->row) * sizeof *to);
    memset(plane + end * p->row, 0, (size_t)((nrow - end) * p->row) * sizeof *to);
  }
  src += t->batch * p->src[0] + t->group * p->nsrc * p->src[1] + (above + begin) * p->src[2];
  planes_copy_rows(p, zero, end - begin, nchan, src, to + begin * p->row);
}

/* ---- running ---- */

int64_t conv_work_floats(const ConvPlanes *p) {
  int64_t rows = p->straight ? 0 : p->together * p->nout * p->rows * conv_phase_size(&p->axis[1], 0);
  return planes_up(conv_planes_floats(p) + p->most + rows, CONV_PLANES_LANES) * CONV_PLANES_LANES;
}

/* The weights of a result channel in the order of the points: as they lie, or in `to`. */
static const float *work_weights(const ConvWork *w, const ConvPoints *points, int64_t channel, float *to,
                                 float *first) {
  const ConvPlanes *p = w->p;
  const float *from = w->w + channel / p->nout * p->w_group + channel % p->nout * p->w_out;
  float scale = 1;
  *first = 0;
  if (w->begin) w->begin(w->arg, channel, &scale, first);
  if (points->dense && scale == 1) return from;
  for (int64_t i = 0; i < points->n; i++) to[i] = from[points->weight[i]] * scale;
  return to;
}

/* Moves rows of n channels, `plane` floats apart, from scratch memory to where they belong. */
static void work_store(const ConvPlanes *p, const ConvRows *q, int64_t n, const float *from, int64_t plane,
                       float *to) {
  int64_t row = p->out[2] * conv_phases(&p->axis[0]), column = p->out[3] * conv_phases(&p->axis[1]);
  for (int64_t i = 0; i < q->nrow; i++, from += q->pitch, to += row) {
    ConvTurn t = {to, from, column, plane, q->ncol, n};
    if (p->out[1] == 1) conv_set()->turn(&t);
    else
      for (int64_t c = 0; c < n; c++)
        for (int64_t x = 0; x < q->ncol; x++) to[c * p->out[1] + x * column] = from[c * plane + x];
  }
}

/* One phase of a task. */
static void work_phase(const ConvWork *w, const ConvTask *t, int64_t qy, int64_t qx, float *slot) {
  const ConvPlanes *p = w->p;
  const ConvAxis *y = &p->axis[0], *x = &p->axis[1];
  const ConvPoints *points = &p->point[qy * conv_phases(x) + qx];
  int64_t left = conv_phase_size(y, qy) - t->row, first = t->group * p->nout;
  ConvRows q = {.step = p->row * conv_source_step(y),
                .at = points->at,
                .npoint = points->n,
                .tall = points->tall,
                .nrow = planes_min(t->nrow, left),
                .ncol = conv_phase_size(x, qx)};
  if (q.nrow < 1 || q.ncol < 1) return;
  int64_t plane = p->rows * q.ncol;
  float *weights = slot + conv_planes_floats(p), *rows = weights + p->most;
  float *out = w->out + t->batch * p->out[0] + first * p->out[1];
  out += (qy + t->row * conv_phases(y)) * p->out[2] + qx * p->out[3];
  q.pitch = p->straight ? p->out[2] : q.ncol;
  for (int64_t c = 0; c < t->ngroup * p->nout; c++) {
    q.weight = work_weights(w, points, first + c, weights, &q.first);
    q.src = slot + c / p->nout * p->nsrc * p->plane;
    q.out = p->straight ? out + c * p->out[1] : rows + c * plane;
    conv_set()->rows(&q);
    if (w->finish) w->finish(w->arg, t, first + c, &q);
  }
  if (!p->straight) work_store(p, &q, t->ngroup * p->nout, rows, plane, out);
}

void conv_work_run(const ConvWork *w, int64_t s, int64_t n, float *scratch) {
  const ConvPlanes *p = w->p;
  int64_t first = p->ntask * s / n, last = p->ntask * (s + 1) / n;
  for (int64_t task = first; task < last; task++) {
    ConvTask t = conv_planes_task(p, task);
    conv_planes_copy(p, &t, task == first, w->src, scratch);
    for (int64_t qy = 0; qy < conv_phases(&p->axis[0]); qy++)
      for (int64_t qx = 0; qx < conv_phases(&p->axis[1]); qx++) work_phase(w, &t, qy, qx, scratch);
  }
}
