/* Engines over oneDNN: matmul and convolution with fused bias, activation and residual, on the CPU.
 * In: descriptions with constant sizes and strides.  Out: MgEngine (engine.h).
 * Weights are read on every call, so a change of parameters is always seen; only `frozen` packs them once. */
#ifndef MG_ONEDNN_H
#define MG_ONEDNN_H
#include "runtime/engine/engine.h"

#define MG_DESC_RANK 6

typedef struct MgTensorDesc { /* a tensor as an engine sees it */
  bool present;               /* false: an absent optional tensor; its pointer is NULL */
  uint8_t ndim;
  uint8_t dtype; /* c10::ScalarType */
  int64_t size[MG_DESC_RANK];
  int64_t stride[MG_DESC_RANK]; /* elements */
} MgTensorDesc;

typedef struct MgActDesc { /* elementwise function of the result */
  const char *name;        /* "" (none), "relu", "gelu" ...: the table in onednn.c */
  float a, b;              /* its parameters: slope, bounds */
} MgActDesc;

/* out = act(x @ w + bias + residual).  x: [..., m, k]; w: [..., k, n], leading sizes equal to x's or 1; bias
 * and residual broadcast to out: [..., m, n]. */
enum { MATMUL_x, MATMUL_w, MATMUL_bias, MATMUL_residual, MATMUL_out, MATMUL_NPTR };
typedef struct MgMatmulDesc {
  MgTensorDesc t[MATMUL_NPTR]; /* in the order of the pointers */
  MgActDesc act;
  bool frozen; /* w never changes: packed at the first run */
} MgMatmulDesc;

/* out = act(bn(conv(x, w) + bias) + residual). */
enum {
  CONV_x,
  CONV_w,
  CONV_bias,
  CONV_bn_weight,
  CONV_bn_bias,
  CONV_bn_mean,
  CONV_bn_var,
  CONV_residual,
  CONV_out,
  CONV_NPTR
};
typedef struct MgConvDesc {
  MgTensorDesc t[CONV_NPTR]; /* in the order of the pointers; x: [n, c, spatial...], w as PyTorch has it */
  double eps;                /* of the batch norm */
  MgActDesc act;
  int nsp; /* spatial dimensions: 1, 2, 3 */
  int64_t stride[3], padding[3], dilation[3], output_padding[3];
  int64_t groups;
  bool transposed;
  bool frozen; /* weights and batch norm never change: packed at the first run */
} MgConvDesc;

/* Gradients of a convolution (not a transposed one): of x, w and the bias, each may be absent. */
enum { CONV_GRAD_g, CONV_GRAD_x, CONV_GRAD_w, CONV_GRAD_dx, CONV_GRAD_dw, CONV_GRAD_db, CONV_GRAD_NPTR };
typedef struct MgConvGradDesc {
  MgTensorDesc
      t[CONV_GRAD_NPTR]; /* in the order of the pointers; g: the gradient of the convolution's result */
  int nsp;               /* spatial dimensions: 1, 2, 3 */
  int64_t stride[3], padding[3], dilation[3];
  int64_t groups;
} MgConvGradDesc;

/* Finds the library: `path` (may be NULL), then libdnnl.so.3 in the prefix that torch is installed in, then
 * by the loader's rules.  MAGNETO_ONEDNN=<path> comes before all that, MAGNETO_ONEDNN=0 means none.  NULL, or
 * why not (static text).  Thread-safe; only the first call does anything. */
const char *mg_onednn_load(const char *path);
bool mg_onednn_ready(void);  /* the same as mg_onednn_load(NULL) == NULL */
int mg_onednn_version(void); /* as one number; 0: there is no library */
bool mg_onednn_bf16(void);   /* and this CPU multiplies bfloat16 fast */
/* MG_UNSUP without an error in the context: this library does not take it. */
MgRc mg_onednn_matmul(MgCtx *c, const MgMatmulDesc *d, MgEngine **out);
MgRc mg_onednn_conv(MgCtx *c, const MgConvDesc *d, MgEngine **out);
MgRc mg_onednn_conv_grad(MgCtx *c, const MgConvGradDesc *d, MgEngine **out);
#endif
