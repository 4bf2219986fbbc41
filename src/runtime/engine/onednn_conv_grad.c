/* Gradients of a convolution: oneDNN's backward-data and backward-weights primitives.
 * When some activation is channels-last, all are wanted so; else the primitives choose.  Each primitive tries
 * other formats when it has no kernel for that one; activations are then copied.  Weights are reordered into
 * the format of the primitive on every call (a training step has just changed them), their
 * gradient is reordered from it. */
#include "runtime/engine/onednn_prim.h"
#include <stdlib.h>
#include <string.h>

enum { /* in the order they run: what makes the gradient of the input, then that of weight and bias */
       CG_g_data,
       CG_w,
       CG_data,
       CG_dx,
       CG_g_weights,
       CG_x,
       CG_weights,
       CG_dw,
       CG_N
};

typedef struct DnnConvGrad {
  MgEngine e;
  DnnCall call[CG_N]; /* copies have prim NULL where none is needed */
} DnnConvGrad;

typedef struct ConvGradState {
  DnnCallState call[CG_N];
} ConvGradState;

/* ---- running
 * ------------------------------------------------------------------------------------------------- */

static int conv_grad_run(const MgEngine *e, MgEngineArgs *a) {
  const DnnConvGrad *v = (const DnnConvGrad *)e;
  ConvGradState *st = a->state;
  for (int i = 0; i < CG_N; i++)
    if (dnn_call_run(&v->call[i], &st->call[i], a, NULL))
      return a->err = "oneDNN convolution backward failed", -1;
  return 0;
}

static void conv_grad_state_free(const MgEngine *e, void *state) {
  ConvGradState *st = state;
  for (int i = 0; st && i < CG_N; i++) dnn_call_state_free(&((const DnnConvGrad *)e)->call[i], &st->call[i]);
  free(st);
}

static void *conv_grad_state_new(const MgEngine *e) {
  ConvGradState *st = mg_calloc(1, sizeof *st);
  int bad = 0;
  for (int i = 0; st && i < CG_N && !bad; i++)
    bad = dnn_call_state(&((const DnnConvGrad *)e)->call[i], dnn_stream(), &st->call[i]);
  if (!bad) return st;
  conv_grad_state_free(e, st);
  return NULL;
}

static void conv_grad_free(MgEngine *e) {
  for (int i = 0; i < CG_N; i++) dnn_call_free(&((DnnConvGrad *)e)->call[i]);
  free(e);
}

static const MgEngineOps conv_grad_ops = {"onednn.conv_backward", conv_grad_run, conv_grad_state_new,
                                          conv_grad_state_free, conv_grad_free};

/* ---- making
 * -------------------------------------------------------------------------------------------------- */

typedef struct ConvGradMake {
  const MgConvGradDesc *d;
  DnnConvGrad *v;
  bool last; /* activations are wanted channels-last */
  uint64_t scratch;
  DnnMd g; /* format of the gradient of the output, once it is settled, and where it is; owned */
  DnnSlot g_at;
} ConvGradMake;

/* Formats of activations, in the order in which a primitive tries them.  The last has kernels for every
 * convolution: they make matrices of the windows.  On plain data these write the gradient of the
 * weight as PyTorch keeps it. */
enum { FORMAT_last, FORMAT_any, FORMAT_plain, FORMAT_N };

static DnnMd conv_grad_want(const ConvGradMake *m, int which, int format) {
  const MgTensorDesc *t = &m->d->t[which];
  int64_t stride[MG_DESC_RANK], n = format == FORMAT_last ? t->size[1] : 1;
  int dtype = dnn_dtype(t->dtype);
  if (format == FORMAT_any) return dnn_md_any(dtype, t->ndim, t->size);
  for (int i = t->ndim - 1; i >= 2; i--) stride[i] = n, n *= t->size[i];
  stride[1] = format == FORMAT_last ? 1 : n;
  stride[0] = format == FORMAT_last ? n : n * t->size[1];
  return dnn_md_strided(dtype, t->ndim, t->size, stride);
}

/* The library's view of weights: [g,] o, i, window... */
static int conv_grad_weight_dims(const MgConvGradDesc *d, const MgTensorDesc *w, int64_t *size,
                                 int64_t *stride) {
  int n = 0;
  int64_t per = w->size[0] / d->groups;
  if (d->groups > 1) size[n] = d->groups, stride[n++] = per * w->stride[0];
  size[n] = per, stride[n++] = w->stride[0];
  for (int i = 1; i < w->ndim; i++) size[n] = w->size[i], stride[n++] = w->stride[i];
  return n;
}

/* What the memory of pointer `which` looks like to the library. */
static DnnMd conv_grad_user(const MgConvGradDesc *d, int which) {
  const MgTensorDesc *t = &d->t[which];
  int64_t size[DNN_MAX_NDIMS], stride[DNN_MAX_NDIMS], n = t->size[1];
  if (which == CONV_GRAD_w || which == CONV_GRAD_dw) {
    int ndim = conv_grad_weight_dims(d, t, size, stride);
    return dnn_md_strided(dnn_dtype(t->dtype), ndim, size, stride);
  }
  bool last = t->size[1] == 1 || t->stride[1] == 1;
  stride[1] = 1;
  for (int i = t->ndim - 1; i >= 2; i--) stride[i] = n, n *= t->size[i];
  stride[0] = n;
  for (int i = 0; i < t->ndim; i++) last = last && (t->size[i] == 1 || t->stride[i] == stride[i]);
  return last ? dnn_md_strided(dnn_dtype(t->dtype), t->ndim, t->size, stride) : dnn_md(t);
}

/* Where tensor `which` is in the format of the primitive: in place, or in scratch memory with a copy by call
 * `copy`, after the primitive or before it. */
static bool conv_grad_place(ConvGradMake *m, int which, int copy, bool after,
                            const struct dnnl_memory_desc *want, DnnSlot *at) {
  DnnMd user = conv_grad_user(m->d, which), md = NULL;
  bool ok = user && want && !dnn.dnnl_memory_desc_clone(&md, want);
  *at = (DnnSlot){.ptr = which};
  if (ok && !dnn.dnnl_memory_desc_equal(user, md)) {
    m->scratch = dnn_align(m->scratch);
    *at = (DnnSlot){.ptr = SLOT_scratch, .off = m->scratch};
    m->scratch = dnn_align(m->scratch + dnn.dnnl_memory_desc_get_size(md));
    DnnCall *c = &m->v->call[copy];
    ok = !(after ? dnn_call_reorder(c, md, SLOT_scratch, at->off, user, which, 0, &m->scratch)
                 : dnn_call_reorder(c, user, which, 0, md, SLOT_scratch, at->off, &m->scratch));
  }
  if (user) dnn.dnnl_memory_desc_destroy(user);
  if (md) dnn.dnnl_memory_desc_destroy(md);
  return ok;
}

/* The gradient of the output is copied once when both primitives want it in one format. */
static bool conv_grad_place_g(ConvGradMake *m, int copy, const struct dnnl_memory_desc *want, DnnSlot *at) {
  if (m->g && want && dnn.dnnl_memory_desc_equal(m->g, want)) return *at = m->g_at, true;
  if (!conv_grad_place(m, CONV_GRAD_g, copy, false, want, at)) return false;
  if (m->g) return true;
  m->g_at = *at;
  return !dnn.dnnl_memory_desc_clone(&m->g, want);
}

/* Adds an argument of primitive `call` with the format that it settled on. */
static bool conv_grad_arg(ConvGradMake *m, int call, int arg, DnnSlot at, const struct dnnl_memory_desc *md) {
  DnnMd own = NULL;
  if (!md || dnn.dnnl_memory_desc_clone(&own, md)) return false;
  dnn_call_arg(&m->v->call[call], arg, at.ptr, at.off, own);
  return true;
}

/* A kernel made for the format; for plain data whatever ATen would run. */
static bool conv_grad_fits(DnnPd pd, int format) {
  const char *name = NULL;
  if (format == FORMAT_plain) return !dnn_is_reference(pd);
  return !dnn.dnnl_primitive_desc_query(pd, DNN_query_impl_info_str, 0, &name) && name &&
         (!strncmp(name, "jit", 3) || !strncmp(name, "brg", 3));
}

/* mds: {input, weight, bias or NULL, output} of the convolution. */
static DnnPd conv_grad_pd(const MgConvGradDesc *d, bool data, int format, DnnMd mds[4]) {
  int64_t dil[3];
  DnnPd pd = NULL;
  DnnAttr attr = dnn_attr(&(MgActDesc){.name = ""}, NULL);
  for (int i = 0; i < d->nsp; i++) dil[i] = d->dilation[i] - 1;
  int bad = !attr || !mds[0] || !mds[1] || !mds[3];
  if (!bad)
    bad = data ? dnn.dnnl_convolution_backward_data_primitive_desc_create(
                     &pd, dnn_engine, DNN_convolution_direct, mds[0], mds[1], mds[3], d->stride, dil,
                     d->padding, d->padding, NULL, attr)
               : dnn.dnnl_convolution_backward_weights_primitive_desc_create(
                     &pd, dnn_engine, DNN_convolution_direct, mds[0], mds[1], mds[2], mds[3], d->stride, dil,
                     d->padding, d->padding, NULL, attr);
  if (attr) dnn.dnnl_primitive_attr_destroy(attr);
  if (!bad && !conv_grad_fits(pd, format)) bad = 1;
  if (bad && pd) dnn.dnnl_primitive_desc_destroy(pd), pd = NULL;
  return pd;
}

static void conv_grad_drop(DnnMd mds[4]) {
  for (int i = 0; i < 4; i++)
    if (mds[i]) dnn.dnnl_memory_desc_destroy(mds[i]), mds[i] = NULL;
}

/* The primitive for the first format that has a kernel, and what it was asked for; NULL if there is none. */
static DnnPd conv_grad_choose(const ConvGradMake *m, bool data, DnnMd mds[4]) {
  const MgConvGradDesc *d = m->d;
  const MgTensorDesc *db = &d->t[CONV_GRAD_db];
  int64_t size[DNN_MAX_NDIMS], stride[DNN_MAX_NDIMS];
  int ndim = conv_grad_weight_dims(d, &d->t[CONV_GRAD_w], size, stride),
      dtype = dnn_dtype(d->t[CONV_GRAD_w].dtype);
  bool bias = !data && db->present;
  for (int format = m->last ? FORMAT_last : FORMAT_any; format < FORMAT_N; format++) {
    mds[0] = conv_grad_want(m, data ? CONV_GRAD_dx : CONV_GRAD_x, format);
    mds[1] = dnn_md_any(dtype, ndim, size);
    mds[2] = bias ? dnn_md_strided(dtype, 1, db->size, (int64_t[]){1}) : NULL;
    mds[3] = conv_grad_want(m, CONV_GRAD_g, format);
    DnnPd pd = bias && !mds[2] ? NULL : conv_grad_pd(d, data, format, mds);
    if (pd) return pd;
    conv_grad_drop(mds);
  }
  return NULL;
}

/* The call of what pd describes when everything has its place, ok; takes pd and mds. */
static bool conv_grad_finish(ConvGradMake *m, int call, DnnPd pd, DnnMd mds[4], bool ok) {
  if (ok) ok = !dnn_call_prim(&m->v->call[call], pd, &m->scratch);
  else if (pd) dnn.dnnl_primitive_desc_destroy(pd);
  conv_grad_drop(mds);
  return ok;
}

static bool conv_grad_data(ConvGradMake *m) {
  DnnMd mds[4] = {0};
  DnnPd pd = conv_grad_choose(m, true, mds);
  DnnSlot g, w, dx;
  bool ok = pd;
  if (ok) {
    const struct dnnl_memory_desc *gm = dnn.dnnl_primitive_desc_query_md(pd, DNN_query_diff_dst_md, 0);
    const struct dnnl_memory_desc *wm = dnn.dnnl_primitive_desc_query_md(pd, DNN_query_weights_md, 0);
    const struct dnnl_memory_desc *xm = dnn.dnnl_primitive_desc_query_md(pd, DNN_query_diff_src_md, 0);
    ok = conv_grad_place_g(m, CG_g_data, gm, &g) && conv_grad_place(m, CONV_GRAD_w, CG_w, false, wm, &w) &&
         conv_grad_place(m, CONV_GRAD_dx, CG_dx, true, xm, &dx) &&
         conv_grad_arg(m, CG_data, DNN_ARG_DIFF_DST, g, gm) &&
         conv_grad_arg(m, CG_data, DNN_ARG_WEIGHTS, w, wm) &&
         conv_grad_arg(m, CG_data, DNN_ARG_DIFF_SRC, dx, xm);
  }
  return conv_grad_finish(m, CG_data, pd, mds, ok);
}

static bool conv_grad_weights(ConvGradMake *m) {
  DnnMd mds[4] = {0};
  DnnPd pd = conv_grad_choose(m, false, mds);
  DnnSlot g, x, dw;
  bool ok = pd;
  if (ok) {
    const struct dnnl_memory_desc *gm = dnn.dnnl_primitive_desc_query_md(pd, DNN_query_diff_dst_md, 0);
    const struct dnnl_memory_desc *wm = dnn.dnnl_primitive_desc_query_md(pd, DNN_query_diff_weights_md, 0);
    const struct dnnl_memory_desc *xm = dnn.dnnl_primitive_desc_query_md(pd, DNN_query_src_md, 0);
    ok = conv_grad_place_g(m, CG_g_weights, gm, &g) && conv_grad_place(m, CONV_GRAD_x, CG_x, false, xm, &x) &&
         conv_grad_place(m, CONV_GRAD_dw, CG_dw, true, wm, &dw) &&
         conv_grad_arg(m, CG_weights, DNN_ARG_DIFF_DST, g, gm) &&
         conv_grad_arg(m, CG_weights, DNN_ARG_SRC, x, xm) &&
         conv_grad_arg(m, CG_weights, DNN_ARG_DIFF_WEIGHTS, dw, wm);
  }
  if (ok && mds[2])
    ok = conv_grad_arg(m, CG_weights, DNN_ARG_DIFF_BIAS, (DnnSlot){.ptr = CONV_GRAD_db}, mds[2]);
  return conv_grad_finish(m, CG_weights, pd, mds, ok);
}

/* All of one type the library takes, each element at its own place. */
static bool conv_grad_takes(const MgConvGradDesc *d) {
  for (int i = 0; i < CONV_GRAD_NPTR; i++) {
    const MgTensorDesc *t = &d->t[i];
    if (!t->present) continue;
    if (dnn_dtype(t->dtype) != DNN_f32) return false;
    for (int k = 0; k < t->ndim; k++)
      if (t->size[k] < 1 || (t->size[k] > 1 && t->stride[k] < 1)) return false;
  }
  const MgTensorDesc *db = &d->t[CONV_GRAD_db];
  return !db->present || (d->t[CONV_GRAD_dw].present && (db->size[0] == 1 || db->stride[0] == 1));
}

MgRc mg_onednn_conv_grad(MgCtx *c, const MgConvGradDesc *d, MgEngine **out) {
  if (!mg_onednn_ready() || !conv_grad_takes(d)) return MG_UNSUP;
  ConvGradMake m = {.d = d, .v = mg_calloc(1, sizeof *m.v)};
  if (!m.v) return mg_fail(c, MG_NOMEM, "convolution engine");
  m.v->e.ops = &conv_grad_ops;
  for (int i = 0; i < CONV_GRAD_NPTR; i++)
    if (i != CONV_GRAD_w && i < CONV_GRAD_dw && d->t[i].present && d->t[i].size[1] > 1)
      m.last |= d->t[i].stride[1] == 1;
  bool ok = !d->t[CONV_GRAD_dx].present || conv_grad_data(&m);
  if (ok && (d->t[CONV_GRAD_dw].present || d->t[CONV_GRAD_db].present)) ok = conv_grad_weights(&m);
  if (m.g) dnn.dnnl_memory_desc_destroy(m.g);
  m.v->e.scratch = m.scratch;
  if (ok) return *out = &m.v->e, MG_OK;
  conv_grad_free(&m.v->e);
  return MG_UNSUP;
}
