/* Convolutions: one oneDNN primitive with batch norm, bias, residual and activation fused, run on
 * channels-last data where that is given.
 * Weights are packed into the format that the primitive wants; the scale of a batch norm is applied on the
 * way and its shift becomes the bias.  Packed weights are kept while their source does not change
 * (weight_cache.h), else they go through scratch memory.  Tensors in another layout are
 * copied through scratch memory. */
#include "runtime/engine/weight_cache.h"
#include "runtime/engine/onednn_prim.h"
#include "runtime/engine/weight_pack.h"
#include "runtime/process/threads.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct DnnConv {
  MgEngine e;
  int64_t nchan; /* output channels */
  double eps;    /* of the batch norm */
  bool bn, bias; /* has a batch norm / a bias */
  bool packed;   /* weights go through `pack` (else the call `weights`, or they are read as they are) */
  uint64_t off_scale, off_shift,
      off_weights;       /* in scratch; with frozen weights the latter two are in `frozen` */
  uint64_t kept, source; /* bytes of packed weights and of what they are made of; 0: not kept */
  MgPack pack;
  DnnCall in, residual; /* copies to channels-last; prim NULL when not needed */
  DnnCall weights;      /* reorder of 16-bit weights */
  DnnCall conv;
  DnnCall out;     /* copy from channels-last */
  MgFrozen frozen; /* shift and packed weights */
} DnnConv;

enum { CALL_in, CALL_residual, CALL_weights, CALL_conv, CALL_out, CALL_N };
typedef struct DnnConvState {
  DnnCallState call[CALL_N];
  MgKeep keep; /* packed weights, unless frozen */
} DnnConvState;

static const DnnCall *conv_call(const DnnConv *v, int i) {
  const DnnCall *all[CALL_N] = {&v->in, &v->residual, &v->weights, &v->conv, &v->out};
  return all[i];
}

/* ---- running
 * ------------------------------------------------------------------------------------------------- */

static void conv_pack_range(void *const *buf, const int64_t *size, int64_t begin, int64_t end) {
  mg_pack_run(buf[0], buf[1], buf[2], buf[3], begin, end);
}

typedef struct ConvPrepare {
  const DnnConv *v;
  DnnConvState *st;
  const MgEngineArgs *a;
  char *weights; /* where packed weights are: the base of SLOT_owned */
} ConvPrepare;

/* The batch norm as a scale of the weights and a shift. */
static float *conv_fold(const DnnConv *v, const MgEngineArgs *a) {
  const float *w = a->ptr[CONV_bn_weight], *b = a->ptr[CONV_bn_bias], *bias = a->ptr[CONV_bias];
  const float *mean = a->ptr[CONV_bn_mean], *var = a->ptr[CONV_bn_var];
  float *scale = (float *)((char *)a->scratch + v->off_scale), eps = (float)v->eps;
  float *shift = (float *)((v->frozen.mem ? v->frozen.mem : (char *)a->scratch) + v->off_shift);
  for (int64_t i = 0; i < v->nchan; i++) {
    scale[i] = (w ? w[i] : 1.f) / sqrtf(var[i] + eps);
    shift[i] = (b ? b[i] : 0.f) + ((v->bias ? bias[i] : 0.f) - mean[i]) * scale[i];
  }
  return scale;
}

static int conv_pack(const ConvPrepare *p, float *scale) {
  const DnnConv *v = p->v;
  if (!v->packed) return dnn_call_run(&v->weights, &p->st->call[CALL_weights], p->a, p->weights);
  void *buf[4] = {(void *)&v->pack, p->a->ptr[CONV_w], scale,
                  p->weights + (v->frozen.mem ? v->off_weights : 0)};
  int64_t unit = v->pack.nelem * v->pack.lane, enough = 16384;
  MgRange r = {conv_pack_range, buf, NULL, v->pack.ngroup * v->pack.nlane, unit < enough ? enough / unit : 1};
  mg_threads_run(&r, 1, 0);
  return 0;
}

/* Fills shift and packed weights, at the places where the convolution reads them. */
static int conv_prepare(void *arg) {
  ConvPrepare *p = arg;
  const DnnConv *v = p->v;
  MgKeep *k = &p->st->keep;
  float *scale = v->bn ? conv_fold(v, p->a) : NULL;
  if (!v->kept || v->frozen.mem) return conv_pack(p, scale);
  bool elsewhere;
  size_t nscale = scale ? sizeof *scale * (size_t)v->nchan : 0;
  bool fresh = mg_keep_fresh(k, v->kept, p->a->ptr[CONV_w], v->source, scale, nscale, &elsewhere);
  if (k->mem && !elsewhere) p->weights = k->mem;
  if (fresh || !conv_pack(p, scale)) return 0;
  mg_keep_drop(k);
  return -1;
}

static int conv_run(const MgEngine *e, MgEngineArgs *a) {
  const DnnConv *v = (const DnnConv *)e;
  DnnConvState *st = a->state;
  MgFrozen *once = &((DnnConv *)e)->frozen; /* the one part of an engine that changes after it was made */
  ConvPrepare p = {v, st, a, once->mem ? once->mem : (char *)a->scratch + v->off_weights};
  int bad = once->mem ? mg_frozen_fill(once, conv_prepare, &p) : conv_prepare(&p);
  if (bad || dnn_call_run(&v->in, &st->call[CALL_in], a, NULL) ||
      dnn_call_run(&v->residual, &st->call[CALL_residual], a, NULL) ||
      dnn_call_run(&v->conv, &st->call[CALL_conv], a, p.weights) ||
      dnn_call_run(&v->out, &st->call[CALL_out], a, NULL)) {
    a->err = "oneDNN convolution failed";
    return -1;
  }
  return 0;
}

static void conv_state_free(const MgEngine *e, void *state) {
  DnnConvState *st = state;
  if (!st) return;
  for (int i = 0; i < CALL_N; i++) dnn_call_state_free(conv_call((const DnnConv *)e, i), &st->call[i]);
  mg_keep_free(&st->keep);
  free(st);
}

static void *conv_state_new(const MgEngine *e) {
  DnnConvState *st = mg_calloc(1, sizeof *st);
  if (!st) return NULL;
  int bad = 0;
  for (int i = 0; i < CALL_N && !bad; i++)
    bad = dnn_call_state(conv_call((const DnnConv *)e, i), dnn_stream(), &st->call[i]);
  if (!bad) return st;
  conv_state_free(e, st);
  return NULL;
}

static void conv_free(MgEngine *e) {
  DnnConv *v = (DnnConv *)e;
  for (int i = 0; i < CALL_N; i++) dnn_call_free((DnnCall *)conv_call(v, i));
  mg_pack_free(&v->pack);
  mg_frozen_free(&v->frozen);
  free(v);
}

static const MgEngineOps conv_ops = {"onednn.conv", conv_run, conv_state_new, conv_state_free, conv_free};

/* ---- packing tables
 * ------------------------------------------------------------------------------------------ */

typedef struct ConvBlocks { /* a blocked format, as the library describes it */
  int64_t stride[DNN_MAX_NDIMS], padded[DNN_MAX_NDIMS];
  int nblk;
  int64_t blk[DNN_MAX_NDIMS], idx[DNN_MAX_NDIMS];
} ConvBlocks;

static bool conv_blocks(const struct dnnl_memory_desc *md, int ndim, ConvBlocks *b) {
  int kind = 0;
  const int64_t(*p)[DNN_MAX_NDIMS] = NULL;
  if (dnn.dnnl_memory_desc_query(md, DNN_query_format_kind, &kind) || kind != DNN_blocked) return false;
  if (dnn.dnnl_memory_desc_query(md, DNN_query_strides, &p)) return false;
  memcpy(b->stride, p, sizeof(int64_t) * ndim);
  if (dnn.dnnl_memory_desc_query(md, DNN_query_padded_dims, &p)) return false;
  memcpy(b->padded, p, sizeof(int64_t) * ndim);
  if (dnn.dnnl_memory_desc_query(md, DNN_query_inner_nblks, &b->nblk)) return false;
  if (!b->nblk) return true;
  if (dnn.dnnl_memory_desc_query(md, DNN_query_inner_blks, &p)) return false;
  memcpy(b->blk, p, sizeof(int64_t) * b->nblk);
  if (dnn.dnnl_memory_desc_query(md, DNN_query_inner_idxs, &p)) return false;
  memcpy(b->idx, p, sizeof(int64_t) * b->nblk);
  return true;
}

/* What index i of dimension d adds to the offset. */
static int64_t conv_block_off(const ConvBlocks *b, int d, int64_t i) {
  int64_t step = 1, off = 0;
  for (int k = b->nblk - 1; k >= 0; k--) {
    if (b->idx[k] == d) off += i % b->blk[k] * step, i /= b->blk[k];
    step *= b->blk[k];
  }
  return off + i * b->stride[d];
}

/* The element dimensions of weights: input channel, then the window. */
typedef struct ConvElems {
  int n;
  int dim[4];              /* which dimension of the library's weights */
  int64_t size[4], src[4]; /* extent and source stride */
} ConvElems;

/* Fills offsets of all elements whose first index is in [from, to); returns how many.  Those of every further
 * first index differ from those of the first one by a constant. */
static int64_t conv_elem_table(const ConvElems *e, const ConvBlocks *b, int64_t from, int64_t to,
                               int32_t *dst, int32_t *src) {
  int64_t inner = 1, first = conv_block_off(b, e->dim[0], from);
  for (int k = 1; k < e->n; k++) inner *= e->size[k];
  for (int64_t j = 0; j < inner && from < to; j++) {
    int64_t rest = j, d = first, s = from * e->src[0];
    for (int k = e->n - 1; k >= 1; rest /= e->size[k], k--) {
      d += conv_block_off(b, e->dim[k], rest % e->size[k]);
      s += rest % e->size[k] * e->src[k];
    }
    dst[j] = (int32_t)d;
    if (src) src[j] = (int32_t)s;
  }
  for (int64_t c = from + 1; c < to; c++) {
    int64_t n = (c - from) * inner;
    int32_t d = (int32_t)(conv_block_off(b, e->dim[0], c) - first), s = (int32_t)((c - from) * e->src[0]);
    for (int64_t j = 0; j < inner; j++) dst[n + j] = dst[j] + d;
    for (int64_t j = 0; src && j < inner; j++) src[n + j] = src[j] + s;
  }
  return (to - from) * inner;
}

/* size, src: the library's weight dimensions [g,] o, i, window... and the strides of the source in them. */
static bool conv_pack_init(MgPack *p, const struct dnnl_memory_desc *md, int ndim, bool grouped,
                           const int64_t *size, const int64_t *src) {
  ConvBlocks b;
  if (!conv_blocks(md, ndim, &b)) return false;
  int o = grouped ? 1 : 0, i = o + 1;
  int inner = b.nblk ? (int)b.idx[b.nblk - 1] : -1;
  bool depthwise = grouped && size[1] == 1 && inner == 0; /* lanes are groups: treat them as outputs */
  int lanes = depthwise ? 0 : o;
  ConvElems e = {.n = ndim - i};
  int64_t total = 1, dense = 1, plane = 1;
  for (int k = 0; k < e.n; k++) {
    e.dim[k] = i + k, e.size[k] = size[i + k], e.src[k] = src[i + k];
    total *= e.size[k];
    if (k) plane *= e.size[k];
    if (e.size[k] > 1) dense += (e.size[k] - 1) * e.src[k];
  }
  int64_t block = inner == lanes ? b.blk[b.nblk - 1] : 1;
  p->lane = dense != total ? 1 : mg_pack_lane(block);
  p->ngroup = grouped && !depthwise ? size[0] : 1;
  p->nout = size[lanes];
  p->src_group = p->ngroup > 1 ? src[0] : 0;
  p->src_out = src[lanes];
  p->nlane = (b.padded[lanes] + p->lane - 1) / p->lane;
  p->nelem = total;
  p->npad = (b.padded[i] - size[i]) * plane;
  if (p->ngroup > 1 && b.padded[0] != size[0]) return false;
  for (int k = i + 1; k < ndim; k++)
    if (b.padded[k] != size[k]) return false;
  p->group_off = mg_calloc(p->ngroup, sizeof *p->group_off);
  p->lane_off = mg_calloc(p->nlane, sizeof *p->lane_off);
  p->elem_off = mg_calloc(total + p->npad, sizeof *p->elem_off);
  p->src_elem = mg_calloc(total, sizeof *p->src_elem);
  int32_t *at = mg_calloc(total, sizeof *at);
  if (!p->group_off || !p->lane_off || !p->elem_off || !p->src_elem || !at) {
    free(at);
    return false;
  }
  for (int64_t g = 0; g < p->ngroup; g++) p->group_off[g] = p->ngroup > 1 ? conv_block_off(&b, 0, g) : 0;
  for (int64_t l = 0; l < p->nlane; l++) p->lane_off[l] = conv_block_off(&b, lanes, l * p->lane);
  conv_elem_table(&e, &b, 0, size[i], at, p->src_elem);
  /* vectors walk the source in memory order; element by element any order will do */
  for (int64_t k = 0; k < total; k++) p->elem_off[p->lane > 1 ? p->src_elem[k] : k] = at[k];
  conv_elem_table(&e, &b, size[i], b.padded[i], p->elem_off + total, NULL);
  free(at);
  return true;
}

/* ---- making
 * -------------------------------------------------------------------------------------------------- */

/* Channels-last strides of a tensor of n, c, spatial... */
static MgTensorDesc conv_last(const MgTensorDesc *t) {
  MgTensorDesc r = *t;
  int64_t n = t->size[1];
  r.stride[1] = 1;
  for (int i = t->ndim - 1; i >= 2; i--) r.stride[i] = n, n *= t->size[i];
  r.stride[0] = n;
  return r;
}

static bool conv_is_last(const MgTensorDesc *t) {
  MgTensorDesc l = conv_last(t);
  for (int i = 0; i < t->ndim; i++)
    if (t->size[i] > 1 && t->stride[i] != l.stride[i]) return false;
  return true;
}

/* Formats to try.  Data that is not channels-last: such a convolution stands alone, between copies from and
 * to plain memory, and those are cheapest for channels in blocks of 16.  The library has no more than its
 * reference implementation for some channels-last convolutions (groups of a few channels): copies
 * to plain memory beat that. */
enum { FORMAT_blocked, FORMAT_any, FORMAT_plain, FORMAT_reference, FORMAT_N };

static DnnMd conv_plain(const MgTensorDesc *t) {
  int64_t stride[DNN_MAX_NDIMS], n = 1;
  for (int i = t->ndim - 1; i >= 0; i--) stride[i] = n, n *= t->size[i];
  return dnn_md_strided(dnn_dtype(t->dtype), t->ndim, t->size, stride);
}

/* What the convolution is asked to work on: channels-last data as it is, else the format to be tried. */
static DnnMd conv_want(const MgTensorDesc *t, int format, bool source) {
  static const int blocked[] = {[3] = DNN_tag_aBc16b, [4] = DNN_tag_aBcd16b, [5] = DNN_tag_aBcde16b};
  MgTensorDesc l = conv_last(t);
  int dtype = dnn_dtype(t->dtype);
  DnnMd md = NULL;
  if (format == FORMAT_plain) return conv_plain(t);
  if (conv_is_last(t)) return dnn_md_strided(dtype, l.ndim, l.size, l.stride);
  if (format != FORMAT_blocked) return dnn_md_any(dtype, t->ndim, t->size);
  if (source && t->size[1] < 4) return dnn_md(t); /* images: read as they are */
  if (t->size[1] % 16) return NULL;
  return dnn.dnnl_memory_desc_create_with_tag(&md, t->ndim, t->size, dtype, blocked[t->ndim]) ? NULL : md;
}

/* Where one activation tensor is at run time: in place when it has the format `md`, else in scratch memory
 * with a copy before (into) or after (out of it) the convolution. */
static bool conv_place(const MgConvDesc *d, int which, DnnCall *copy, bool after, DnnMd md, DnnSlot *at,
                       uint64_t *scratch) {
  const MgTensorDesc *t = &d->t[which];
  *at = (DnnSlot){.ptr = which};
  DnnMd user = conv_is_last(t) ? conv_want(t, FORMAT_any, false) : dnn_md(t);
  if (!user) return false;
  int bad = 0;
  if (!dnn.dnnl_memory_desc_equal(user, md)) {
    *scratch = dnn_align(*scratch);
    *at = (DnnSlot){.ptr = SLOT_scratch, .off = *scratch};
    *scratch = dnn_align(*scratch + dnn.dnnl_memory_desc_get_size(md));
    bad = after ? dnn_call_reorder(copy, md, SLOT_scratch, at->off, user, which, 0, scratch)
                : dnn_call_reorder(copy, user, which, 0, md, SLOT_scratch, at->off, scratch);
  }
  dnn.dnnl_memory_desc_destroy(user);
  return !bad;
}

/* The library's view of the weights: [g,] o, i, window..., with the strides of PyTorch's tensor. */
static int conv_weight_dims(const MgConvDesc *d, int64_t *size, int64_t *src) {
  const MgTensorDesc *w = &d->t[CONV_w];
  int n = 0, out = d->transposed ? 1 : 0, in = 1 - out;
  int64_t per = w->size[0] / d->groups;
  if (d->groups > 1) size[n] = d->groups, src[n++] = per * w->stride[0];
  size[n] = out ? w->size[1] : per, src[n++] = w->stride[out];
  size[n] = in ? w->size[1] : per, src[n++] = w->stride[in];
  for (int i = 0; i < d->nsp; i++) size[n] = w->size[2 + i], src[n++] = w->stride[2 + i];
  return n;
}

static bool conv_pd(const MgConvDesc *d, DnnMd src, DnnMd w, DnnMd bias, DnnMd dst, DnnAttr attr, DnnPd *pd) {
  int64_t dil[3], left[3], right[3];
  for (int i = 0; i < d->nsp; i++) {
    dil[i] = d->dilation[i] - 1;
    left[i] = d->padding[i];
    right[i] = d->padding[i] - (d->transposed ? d->output_padding[i] : 0);
  }
  int rc = d->transposed
               ? dnn.dnnl_deconvolution_forward_primitive_desc_create(pd, dnn_engine, DNN_forward_inference,
                                                                      DNN_deconvolution_direct, src, w, bias,
                                                                      dst, d->stride, dil, left, right, attr)
               : dnn.dnnl_convolution_forward_primitive_desc_create(pd, dnn_engine, DNN_forward_inference,
                                                                    DNN_convolution_direct, src, w, bias, dst,
                                                                    d->stride, dil, left, right, attr);
  return rc == 0;
}

/* Bytes that the tensor covers; 0 where they are not one dense piece. */
static uint64_t conv_dense_bytes(const MgTensorDesc *t) {
  uint64_t n = 1, span = 1;
  for (int i = 0; i < t->ndim; i++) {
    n *= (uint64_t)t->size[i];
    if (t->size[i] > 1) span += (uint64_t)(t->size[i] - 1) * (uint64_t)t->stride[i];
  }
  return n != span ? 0 : n * (t->dtype == 6 ? sizeof(float) : sizeof(uint16_t));
}

/* Weights in the format the primitive wants: as they are, packed by us, or (16-bit types)
 * reordered by the library. */
static bool conv_weights(const MgConvDesc *d, DnnConv *v, DnnPd pd, uint64_t *scratch, uint64_t *owned,
                         DnnSlot *at, DnnMd *md) {
  int64_t size[DNN_MAX_NDIMS], src[DNN_MAX_NDIMS];
  int ndim = conv_weight_dims(d, size, src), dtype = dnn_dtype(d->t[CONV_w].dtype);
  const struct dnnl_memory_desc *want = dnn.dnnl_primitive_desc_query_md(pd, DNN_query_weights_md, 0);
  DnnMd plain = dnn_md_strided(dtype, ndim, size, src);
  if (!plain || !want || dnn.dnnl_memory_desc_clone(md, want)) {
    if (plain) dnn.dnnl_memory_desc_destroy(plain);
    return false;
  }
  bool ok = true;
  *at = (DnnSlot){.ptr = CONV_w};
  if (v->bn || !dnn.dnnl_memory_desc_equal(want, plain)) {
    uint64_t *room = d->frozen ? owned : scratch;
    v->off_weights = *room = dnn_align(*room);
    *room = dnn_align(*room + dnn.dnnl_memory_desc_get_size(want));
    *at = (DnnSlot){.ptr = SLOT_owned, .off = d->frozen ? v->off_weights : 0};
    v->packed = dtype == DNN_f32;
    v->kept = dnn.dnnl_memory_desc_get_size(want);
    if (!(v->source = conv_dense_bytes(&d->t[CONV_w]))) v->kept = 0;
    ok = v->packed ? conv_pack_init(&v->pack, want, ndim, d->groups > 1, size, src)
                   : !dnn_call_reorder(&v->weights, plain, CONV_w, 0, *md, at->ptr, at->off, scratch);
  }
  dnn.dnnl_memory_desc_destroy(plain);
  return ok;
}

static bool conv_vector(const MgTensorDesc *t, int64_t n, int dtype) {
  return !t->present ||
         (t->ndim == 1 && t->size[0] == n && (n == 1 || t->stride[0] == 1) && dnn_dtype(t->dtype) == dtype);
}

/* The primitive descriptor, and copies of the descriptors it settled on for data (want: src, dst, residual;
 * replaced). A residual has the format of dst, so when the library chooses that, a first try
 * without residual asks for it. */
static DnnPd conv_choose(const MgConvDesc *d, DnnMd want[3], DnnMd weights, DnnMd bias) {
  static const int query[2] = {DNN_query_src_md, DNN_query_dst_md};
  bool ask = d->t[CONV_residual].present;
  for (;;) {
    DnnPd pd = NULL;
    DnnAttr attr = dnn_attr(&d->act, want[2]);
    bool ok = attr && conv_pd(d, want[0], weights, bias, want[1], attr, &pd);
    if (attr) dnn.dnnl_primitive_attr_destroy(attr);
    for (int i = 0; i < 2 && ok; i++) {
      DnnMd md = NULL;
      ok = !dnn.dnnl_memory_desc_clone(&md, dnn.dnnl_primitive_desc_query_md(pd, query[i], 0));
      if (ok) dnn.dnnl_memory_desc_destroy(want[i]), want[i] = md;
    }
    if (ok && ask) ok = !dnn.dnnl_memory_desc_clone(&want[2], want[1]);
    if (ok && !ask) return pd;
    if (pd) dnn.dnnl_primitive_desc_destroy(pd);
    if (!ok) return NULL;
    ask = false;
  }
}

/* Blocked: a kernel made for the format, as opposed to one that unpacks into a matrix first. */
static bool conv_fits(DnnPd pd, int format) {
  const char *name = NULL;
  if (format != FORMAT_blocked) return format == FORMAT_reference || !dnn_is_reference(pd);
  return !dnn.dnnl_primitive_desc_query(pd, DNN_query_impl_info_str, 0, &name) && name &&
         !strncmp(name, "jit", 3);
}

static bool conv_make(const MgConvDesc *d, DnnConv *v, int format) {
  DnnMd data[3] = {0}, bias = NULL, any = NULL, wmd = NULL; /* data: src, dst, residual */
  DnnSlot src_at, dst_at, res_at, w_at;
  DnnPd pd = NULL;
  bool ok = false;
  uint64_t scratch = 0, owned = 0;
  int dtype = dnn_dtype(d->t[CONV_x].dtype);
  int64_t size[DNN_MAX_NDIMS], stride[DNN_MAX_NDIMS];
  v->nchan = d->t[CONV_out].size[1];
  v->eps = d->eps;
  v->bn = d->t[CONV_bn_var].present;
  v->bias = d->t[CONV_bias].present;
  if (!dtype || (v->bn && dtype != DNN_f32)) return false;
  for (int i = CONV_bias; i <= CONV_bn_var; i++)
    if (!conv_vector(&d->t[i], v->nchan, dtype)) return false;
  if (v->bn) {
    uint64_t *room = d->frozen ? &owned : &scratch;
    v->off_scale = scratch;
    scratch = dnn_align(scratch + sizeof(float) * v->nchan);
    v->off_shift = *room;
    *room = dnn_align(*room + sizeof(float) * v->nchan);
  }
  if ((v->bn || v->bias) && !(bias = dnn_md_strided(dtype, 1, &v->nchan, (int64_t[]){1}))) goto done;
  if (!(any = dnn_md_any(dtype, conv_weight_dims(d, size, stride), size))) goto done;
  if (!(data[0] = conv_want(&d->t[CONV_x], format, true))) goto done;
  if (!(data[1] = conv_want(&d->t[CONV_out], format, false))) goto done;
  if (!(pd = conv_choose(d, data, any, bias))) goto done;
  if (!conv_fits(pd, format)) {
    dnn.dnnl_primitive_desc_destroy(pd);
    goto done;
  }
  if (!conv_place(d, CONV_x, &v->in, false, data[0], &src_at, &scratch) ||
      !conv_place(d, CONV_out, &v->out, true, data[1], &dst_at, &scratch) ||
      (data[2] && !conv_place(d, CONV_residual, &v->residual, false, data[2], &res_at, &scratch)) ||
      !conv_weights(d, v, pd, &scratch, &owned, &w_at, &wmd)) {
    dnn.dnnl_primitive_desc_destroy(pd);
    goto done;
  }
  DnnSlot bias_at = {.ptr = CONV_bias};
  if (v->bn) bias_at = (DnnSlot){.ptr = d->frozen ? SLOT_owned : SLOT_scratch, .off = v->off_shift};
  dnn_call_arg(&v->conv, DNN_ARG_SRC, src_at.ptr, src_at.off, data[0]);
  dnn_call_arg(&v->conv, DNN_ARG_DST, dst_at.ptr, dst_at.off, data[1]);
  dnn_call_arg(&v->conv, DNN_ARG_WEIGHTS, w_at.ptr, w_at.off, wmd);
  if (bias) dnn_call_arg(&v->conv, DNN_ARG_BIAS, bias_at.ptr, bias_at.off, bias);
  if (data[2]) dnn_call_arg(&v->conv, dnn_post_op_base | DNN_ARG_SRC_1, res_at.ptr, res_at.off, data[2]);
  data[0] = data[1] = data[2] = bias = wmd = NULL; /* the call has them now */
  ok = !dnn_call_prim(&v->conv, pd, &scratch);
  v->e.scratch = scratch;
  if (ok) ok = !mg_frozen_init(&v->frozen, owned);
done:;
  DnnMd drop[] = {data[0], data[1], data[2], bias, any, wmd};
  for (size_t i = 0; i < sizeof drop / sizeof *drop; i++)
    if (drop[i]) dnn.dnnl_memory_desc_destroy(drop[i]);
  return ok;
}

static MgRc conv_engine(const void *desc, MgEngine **out) {
  const MgConvDesc *d = desc;
  bool last = conv_is_last(&d->t[CONV_x]) || conv_is_last(&d->t[CONV_out]);
  for (int format = last ? FORMAT_any : FORMAT_blocked; format < FORMAT_N; format++) {
    DnnConv *v = mg_calloc(1, sizeof *v);
    if (!v) return MG_NOMEM;
    v->e.ops = &conv_ops;
    if (conv_make(d, v, format)) {
      *out = &v->e;
      return MG_OK;
    }
    conv_free(&v->e);
  }
  return MG_UNSUP;
}

MgRc mg_onednn_conv(MgCtx *c, const MgConvDesc *d, MgEngine **out) {
  if (!mg_onednn_ready()) return MG_UNSUP;
  MgRc rc = dnn_exact_wanted(&d->act)
                ? dnn_exact_make(conv_engine, d, sizeof *d, &d->act, &d->t[CONV_out], CONV_out, out)
                : conv_engine(d, out);
  return rc == MG_NOMEM ? mg_fail(c, MG_NOMEM, "convolution engine") : rc;
}
