/* Correlations of planes: what a convolution of few channels a group is made of, and its gradients.
 * In: sizes and strides.  Out: a division of the work, and code that runs shares of it.
 *
 * A task is a block of rows of some groups of one batch item.  The rows of the source that it needs are
 * copied into scratch memory with zeros around them.  Columns that lie a stride apart become neighbours
 * there, so that every point of the window is one offset and vectors read without conditions.
 *
 * The gradient of the input is a correlation too, with the roles of input and result exchanged.  With a
 * stride s its rows and columns fall into s phases each, and every phase has points of the window of its own.
 */
#ifndef MG_CONV_PLANES_H
#define MG_CONV_PLANES_H
#include "runtime/engine/onednn.h"

/* One dimension.  Forward: out[j] += w[k] * src[j * stride + k * dilation - padding].
 * Backward: out[i] += w[k] * src[(i + padding - k * dilation) / stride] where the division has no rest. */
typedef struct ConvAxis {
  bool back;
  int64_t nsrc, nout, kernel, stride, padding, dilation;
  int64_t low, high; /* least and greatest distance of a source point from that of its result, in steps */
} ConvAxis;

static inline int64_t conv_source_step(const ConvAxis *a) { return a->back ? 1 : a->stride; }
static inline int64_t conv_phases(const ConvAxis *a) { return a->back ? a->stride : 1; }
/* Results in phase q: q, q + phases ... */
static inline int64_t conv_phase_size(const ConvAxis *a, int64_t q) {
  int64_t n = conv_phases(a);
  return q < a->nout ? (a->nout - q + n - 1) / n : 0;
}
/* The distance of point k of the window in phase q; false: that phase does not use it. */
bool conv_axis_point(const ConvAxis *a, int64_t q, int64_t k, int64_t *distance);

typedef struct ConvPoints { /* the points of the window that one phase uses, in all channels of a group */
  int64_t n;
  int32_t *at;     /* offsets in scratch memory */
  int32_t *weight; /* offsets in the weights of one result channel */
  bool dense;      /* these are 0, 1, 2 ... */
  int64_t tall;    /* points of a column of the window that lie a row of the result apart; 1: they do not */
} ConvPoints;

enum { CONV_PLANES_DIMS = 2, CONV_PLANES_LANES = 16 };

typedef struct ConvPlanes {
  ConvAxis axis[CONV_PLANES_DIMS];                       /* rows, columns */
  int64_t nbatch, ngroup, nsrc, nout;                    /* nsrc, nout: channels of a group */
  int64_t src[4], out[4];                                /* strides: batch, channel, row, column */
  int64_t w_group, w_src, w_out, w_at[CONV_PLANES_DIMS]; /* strides of the weights */
  /* what conv_planes_cut decides */
  int64_t together, rows;          /* groups and rows of a task; together may be given */
  int64_t ngblock, nrblock, ntask; /* of all groups; of the rows; ntask: with the batch */
  int64_t pitch, row, plane;       /* floats of a run of columns, of a row, and of a channel in scratch */
  int64_t most;                    /* points that a phase has at most */
  int64_t rows_copied;             /* source rows of a task */
  bool straight;                   /* rows are written to the result, else to scratch memory first */
  ConvPoints *point;               /* per phase, owned */
  int32_t *memory;                 /* owned: of the points */
} ConvPlanes;

/* What one call of a tile computes: rows of one channel in one phase. */
typedef struct ConvRows {
  const float *src; /* the first row's; `step` floats to the next row */
  int64_t step;
  const int32_t *at;
  const float *weight;
  int64_t npoint;
  int64_t tall; /* so many points after each other are one column of the window, a step apart */
  float first;  /* the sums begin here */
  float *out;
  int64_t pitch, nrow, ncol;
} ConvRows;

/* Products of rows with the gradient's: sums[p] += sum of grad[r][x] * src[at[p] + r * step + x]. */
typedef struct ConvDots {
  const float *src;
  int64_t step;
  const int32_t *at;
  int64_t npoint;
  const float *grad;
  int64_t pitch, nrow, ncol;
  double *sum;
} ConvDots;

typedef struct ConvCopy { /* to[r * pitch + i] = from[r * row + i * step] */
  float *to;
  const float *from;
  int64_t pitch, row, nrow, n, step;
} ConvCopy;

typedef struct ConvTurn { /* to[i * pitch + j] = from[j * row + i] */
  float *to;
  const float *from;
  int64_t pitch, row, ni, nj;
} ConvTurn;

typedef enum ConvAct {
  CONV_ACT_none,
  CONV_ACT_relu,
  CONV_ACT_leaky_relu,
  CONV_ACT_clip,
  CONV_ACT_hardswish,
  CONV_ACT_hardsigmoid
} ConvAct;

typedef struct ConvSet { /* the code of one instruction set */
  void (*rows)(const ConvRows *r);
  void (*copy)(const ConvCopy *c);
  void (*turn)(const ConvTurn *t);
  void (*dots)(const ConvDots *d);
  double (*total)(const float *p, int64_t n);
  /* p[i] = act(p[i] + residual[i * step]); residual: NULL if there is none */
  void (*finish)(float *p, int64_t n, const float *residual, int64_t step, ConvAct act, float a, float b);
} ConvSet;

const ConvSet *conv_set(void);
/* Strides of a tensor [n, c, spatial...] as batch, channel, row, column. */
void conv_strides(const MgTensorDesc *t, int64_t stride[4]);
/* Multiplications of all. */
double conv_planes_work(const ConvPlanes *p);
/* Divides the work for so many threads.  floats: of scratch memory that the source of a task may take. */
MgRc conv_planes_cut(ConvPlanes *p, int64_t threads, int64_t floats);
void conv_planes_free(ConvPlanes *p);
/* Floats of the source of a task in scratch memory. */
int64_t conv_planes_floats(const ConvPlanes *p);

typedef struct ConvTask {                  /* where a task is */
  int64_t batch, group, ngroup, row, nrow; /* rows: of phase 0, which has the most */
} ConvTask;
ConvTask conv_planes_task(const ConvPlanes *p, int64_t task);
/* Copies the source of a task into scratch memory.  first: of this slot in this run; tasks that have all rows
 * leave the zeros around them as they are. */
void conv_planes_copy(const ConvPlanes *p, const ConvTask *t, bool first, const float *src, float *to);

typedef struct ConvWork { /* a correlation with its tensors */
  const ConvPlanes *p;
  const float *src, *w;
  float *out;
  /* What the weights of a result channel are multiplied with, and what its sums begin with; may be NULL. */
  void (*begin)(void *arg, int64_t channel, float *scale, float *first);
  /* Called with rows of a result channel; may be NULL. */
  void (*finish)(void *arg, const ConvTask *t, int64_t channel, const ConvRows *rows);
  void *arg;
} ConvWork;
/* Floats of scratch memory of a thread. */
int64_t conv_work_floats(const ConvPlanes *p);
/* Runs share s of n with the scratch memory of one thread. */
void conv_work_run(const ConvWork *w, int64_t s, int64_t n, float *scratch);
#endif
