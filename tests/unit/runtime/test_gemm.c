/* Products by register tiles equal sums in double, for random sizes, strides, broadcasts and activations.
 * Nothing outside of the result and the scratch memory is written. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "check.h"
#include "runtime/engine/gemm.h"

enum { CASES = 400, DEEP = 40, GUARD = 16, RANK = 4 };
static const char *const acts[] = {"",          "relu",        "leaky_relu", "clip", "gelu",
                                   "gelu_tanh", "silu",        "sigmoid",    "tanh", "elu",
                                   "hardswish", "hardsigmoid", "mish"};

static uint32_t seed = 1;
static int pick(int n) {
  seed = seed * 1664525u + 1013904223u;
  return (int)((seed >> 8) % (uint32_t)n);
}
static float number(void) { return (float)(pick(2001) - 1000) / 500.f; }

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }
static double clip(double x, double lo, double hi) { return x < lo ? lo : x > hi ? hi : x; }

static double act_of(const char *name, double x, double a, double b) {
  if (!strcmp(name, "relu")) return x > 0 ? x : 0;
  if (!strcmp(name, "leaky_relu")) return x > 0 ? x : a * x;
  if (!strcmp(name, "clip")) return clip(x, a, b);
  if (!strcmp(name, "gelu")) return 0.5 * x * (1 + erf(x / sqrt(2)));
  if (!strcmp(name, "gelu_tanh")) return x * sigmoid(2 * sqrt(2 / M_PI) * (x + 0.044715 * x * x * x));
  if (!strcmp(name, "silu")) return x * sigmoid(x);
  if (!strcmp(name, "sigmoid")) return sigmoid(x);
  if (!strcmp(name, "tanh")) return tanh(x);
  if (!strcmp(name, "elu")) return x > 0 ? x : a * expm1(x);
  if (!strcmp(name, "hardswish")) return x * clip(x / 6 + 0.5, 0, 1);
  if (!strcmp(name, "hardsigmoid")) return clip(x / 6 + 0.5, 0, 1);
  if (!strcmp(name, "mish")) return x * tanh(log1p(exp(x)));
  return x;
}

typedef struct Operand {
  MgTensorDesc *d;
  float *memory, *first;
  size_t n;
} Operand;

/* A tensor of that size with random order of its last two dimensions, and room between rows. */
static void operand_new(Operand *o, MgTensorDesc *d, int ndim, const int64_t *size, bool dense) {
  int64_t step = 1;
  bool turned = pick(2), apart = !dense && pick(2);
  *d = (MgTensorDesc){.present = true, .ndim = (uint8_t)ndim, .dtype = 6};
  memcpy(d->size, size, sizeof *size * (size_t)ndim);
  for (int i = ndim - 1; i >= 0; i--) {
    int at = turned && ndim >= 2 && i >= ndim - 2 ? 2 * ndim - 3 - i : i;
    d->stride[at] = step;
    step = step * size[at] + (apart ? 3 : 0);
  }
  if (!dense && ndim > 2 && !pick(4)) d->stride[0] = 0; /* expanded */
  *o = (Operand){.d = d, .n = (size_t)step + 2 * GUARD};
  o->memory = malloc(o->n * sizeof(float));
  o->first = o->memory + GUARD;
  for (size_t i = 0; i < o->n; i++) o->memory[i] = number();
}

/* The element at an index of the result's shape; the operand may broadcast. */
static float *operand_at(const Operand *o, int ndim, const int64_t *at) {
  float *p = o->first;
  for (int i = 0; i < o->d->ndim; i++)
    if (o->d->size[i] != 1) p += at[ndim - o->d->ndim + i] * o->d->stride[i];
  return p;
}

static double wanted(const Operand *t, const MgMatmulDesc *d, int ndim, const int64_t *at, int64_t k,
                     double *size) {
  int64_t x[RANK], w[RANK];
  double sum = 0;
  memcpy(x, at, sizeof x);
  memcpy(w, at, sizeof w);
  *size = 0;
  for (int64_t i = 0; i < k; i++) {
    x[ndim - 1] = w[ndim - 2] = i;
    double product = (double)*operand_at(&t[MATMUL_x], ndim, x) * *operand_at(&t[MATMUL_w], ndim, w);
    sum += product;
    *size += fabs(product);
  }
  for (int i = MATMUL_bias; i <= MATMUL_residual; i++)
    if (d->t[i].present) sum += *operand_at(&t[i], ndim, at);
  return act_of(d->act.name, sum, d->act.a, d->act.b);
}

/* deep: of so many rows and terms that each panel of columns keeps sums of its own. */
static void one_case(bool deep) {
  static const int64_t sizes[] = {1, 2, 3, 5, 6, 7, 8, 12, 15, 16, 17, 31, 33, 64, 100, 193, 390, 800};
  enum { SIZES = sizeof sizes / sizeof *sizes };
  int ndim = 2 + pick(3);
  int64_t out[RANK], x[RANK], w[RANK], k = sizes[pick(SIZES)], term[RANK];
  for (int i = 0; i < ndim; i++) out[i] = i < ndim - 2 ? 1 + pick(deep ? 2 : 4) : sizes[pick(SIZES)];
  if (deep) out[ndim - 2] = 90 + pick(60), k = 1500 + pick(200);
  memcpy(x, out, sizeof x);
  memcpy(w, out, sizeof w);
  x[ndim - 1] = w[ndim - 2] = k;
  for (int i = 0; i < ndim - 2; i++)
    if (pick(2)) w[i] = 1;
  MgMatmulDesc d = {.act = {acts[pick(sizeof acts / sizeof *acts)], -0.5f, 0.75f}};
  Operand t[MATMUL_NPTR] = {{0}};
  operand_new(&t[MATMUL_x], &d.t[MATMUL_x], ndim, x, false);
  operand_new(&t[MATMUL_w], &d.t[MATMUL_w], ndim, w, false);
  operand_new(&t[MATMUL_out], &d.t[MATMUL_out], ndim, out, true);
  if (pick(2)) operand_new(&t[MATMUL_bias], &d.t[MATMUL_bias], 1, &out[ndim - 1], true);
  memcpy(term, out, sizeof term);
  for (int i = 0; i < ndim; i++)
    if (!pick(3)) term[i] = 1;
  if (pick(2)) operand_new(&t[MATMUL_residual], &d.t[MATMUL_residual], ndim, term, false);
  MgCtx c;
  mg_ctx_init(&c);
  MgEngine *e = NULL;
  CHECK(mg_gemm_matmul(&c, &d, &e) == MG_OK);
  char *scratch = aligned_alloc(64, (e->scratch + 127) / 64 * 64);
  memset(scratch + e->scratch, 77, 64);
  void *ptr[MATMUL_NPTR];
  for (int i = 0; i < MATMUL_NPTR; i++) ptr[i] = t[i].first;
  float before[GUARD], after[GUARD];
  memcpy(before, t[MATMUL_out].memory, sizeof before);
  memcpy(after, t[MATMUL_out].memory + t[MATMUL_out].n - GUARD, sizeof after);
  MgEngineArgs a = {.ptr = ptr, .scratch = scratch};
  CHECK(!e->ops->run(e, &a));
  int64_t total = 1;
  for (int i = 0; i < ndim; i++) total *= out[i];
  for (int64_t n = 0, step = total > 3000 ? total / 1500 | 1 : 1; n < total; n += step) {
    int64_t at[RANK], rest = n;
    for (int i = ndim - 1; i >= 0; i--) at[i] = rest % out[i], rest /= out[i];
    double size, want = wanted(t, &d, ndim, at, k, &size);
    double got = *operand_at(&t[MATMUL_out], ndim, at);
    CHECK(fabs(got - want) <= 2e-6 + 4e-7 * (size + fabs(want)));
  }
  CHECK(!memcmp(before, t[MATMUL_out].memory, sizeof before));
  CHECK(!memcmp(after, t[MATMUL_out].memory + t[MATMUL_out].n - GUARD, sizeof after));
  for (int i = 0; i < 64; i++) CHECK(scratch[e->scratch + i] == 77);
  e->ops->free(e);
  free(scratch);
  for (int i = 0; i < MATMUL_NPTR; i++) free(t[i].memory);
  mg_ctx_free(&c);
}

/* A NaN or an infinity of x reaches exactly its row, as in eager. */
static void special_values(int m, int n, int k) {
  MgMatmulDesc d = {.act = {"relu", 0, 0}};
  float *x = malloc(sizeof *x * (size_t)(m * k)), *w = malloc(sizeof *w * (size_t)(k * n)),
        *out = malloc(sizeof *out * (size_t)(m * n));
  for (int i = 0; i < m * k; i++) x[i] = 1;
  for (int i = 0; i < k * n; i++) w[i] = 1;
  x[2 * k + 3] = NAN;
  x[(m - 1) * k] = INFINITY;
  d.t[MATMUL_x] = (MgTensorDesc){true, 2, 6, {m, k}, {k, 1}};
  d.t[MATMUL_w] = (MgTensorDesc){true, 2, 6, {k, n}, {n, 1}};
  d.t[MATMUL_out] = (MgTensorDesc){true, 2, 6, {m, n}, {n, 1}};
  MgCtx c;
  mg_ctx_init(&c);
  MgEngine *e = NULL;
  CHECK(mg_gemm_matmul(&c, &d, &e) == MG_OK);
  void *ptr[MATMUL_NPTR] = {x, w, NULL, NULL, out}, *scratch = aligned_alloc(64, (e->scratch + 63) / 64 * 64);
  MgEngineArgs a = {.ptr = ptr, .scratch = scratch};
  CHECK(!e->ops->run(e, &a));
  for (int i = 0; i < m * n; i++)
    CHECK(i / n == 2 ? isnan(out[i]) : i / n == m - 1 ? isinf(out[i]) : out[i] == (float)k);
  free(scratch);
  free(x), free(w), free(out);
  e->ops->free(e);
  mg_ctx_free(&c);
}

int main(void) {
  setenv("MAGNETO_GEMM", "1", 1);
  for (int i = 0; i < CASES; i++) one_case(false);
  for (int i = 0; i < DEEP; i++) one_case(true);
  special_values(7, 17, 20);
  special_values(29, 70, 820);
  special_values(100, 33, 1601);
  return test_done();
}
