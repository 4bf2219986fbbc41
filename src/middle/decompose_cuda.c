/* Products and convolutions of a GPU as cuBLAS and cuDNN are fast at them.
 * In: a node on a CUDA device.  Out: the same call on operands of other strides, which
 * the kernels that compute them write as they like, or a product in place of a convolution. */
#include "middle/decompose_priv.h"
#include "tuning.h"

#define V mg_arg_val

enum { ALIGNED = 4 }; /* numbers of float32 that 16 bytes hold */

static bool cuda_matrix(const MgGraph *g, ValRef v, int64_t *size, int64_t *stride) {
  const MgVal *m = mg_val(g, v);
  if (m->ndim != 2 || m->dtype != DT_f32 || m->device != DEV_cuda) return false;
  for (int i = 0; i < 2; i++)
    if (!mg_ex_const_int(g->x, m->size[i], &size[i]) || !mg_ex_const_int(g->x, m->stride[i], &stride[i]))
      return false;
  return size[0] * size[1] >= MG_TUNE_GPU_TURNED;
}

static ValRef cuda_contiguous(MgRewrite *rw, ValRef v) {
  return mg_dec(rw, TOP_clone, V(v), mg_arg_code(MA_memory_format, MF_contiguous));
}

/* An operand whose rows do not begin at multiples of 16 bytes while its columns would: its elements by
 * columns. v itself if that is no gain, or would be one more pass over memory. */
static ValRef cuda_operand(MgRewrite *rw, ValRef v) {
  int64_t size[2], stride[2];
  if (!mg_val(rw->g, v)->def || !cuda_matrix(rw->g, v, size, stride)) return v;
  if (stride[1] == 1 && stride[0] % ALIGNED && !(size[0] % ALIGNED))
    return mg_dec(rw, TOP_t, V(cuda_contiguous(rw, mg_dec(rw, TOP_t, V(v)))));
  if (stride[0] == 1 && stride[1] % ALIGNED && !(size[1] % ALIGNED)) return cuda_contiguous(rw, v);
  return v;
}

/* Rows of an odd length make every TF32 kernel of cuBLAS take its slow way: 1024x768x50257 takes 635 us by
 * rows and 210 by columns on an H200. */
ValRef mg_dec_cuda_columns(MgRewrite *rw, ValRef a, ValRef b) {
  int64_t size[2], stride[2];
  bool odd = cuda_matrix(rw->g, rw->n.out[0], size, stride) && stride[0] % ALIGNED && !(size[0] % ALIGNED);
  if (!odd) return 0;
  return mg_dec(rw, TOP_t, V(mg_dec(rw, TOP_mm, V(mg_dec(rw, TOP_t, V(b))), V(mg_dec(rw, TOP_t, V(a))))));
}

MgRc mg_dec_cuda_mm(MgRewrite *rw) {
  ValRef a = mg_dec_val(rw, "self"), b = mg_dec_val(rw, "mat2");
  ValRef turned = mg_dec_cuda_columns(rw, a, b);
  if (turned) return mg_dec_give(rw, 0, turned);
  ValRef x = cuda_operand(rw, a), y = cuda_operand(rw, b);
  if (x == a && y == b) return MG_UNSUP;
  return mg_dec_give(rw, 0, mg_dec(rw, TOP_mm, V(x), V(y)));
}

/* The numbers of a list of two; false: others, or not known. */
static bool cuda_pair(const MgRewrite *rw, const char *name, int64_t out[2]) {
  const MgArg *a = mg_dec_arg(rw, name);
  if (a->tag != MA_list || a->n != 2) return false;
  for (int i = 0; i < 2; i++)
    if (a->u.item[i].tag != MA_int || !mg_ex_const_int(rw->g->x, a->u.item[i].u.sym, &out[i])) return false;
  return true;
}

static bool cuda_sizes(const MgGraph *g, ValRef v, int64_t size[4]) {
  const MgVal *m = mg_val(g, v);
  if (m->device != DEV_cuda || m->ndim != 4) return false;
  for (int i = 0; i < 4; i++)
    if (!mg_ex_const_int(g->x, m->size[i], &size[i]) || !size[i]) return false;
  return true;
}

/* Does the convolution cut its input into patches that do not overlap? */
static bool cuda_cuts(const MgRewrite *rw, const int64_t in[4], const int64_t w[4]) {
  int64_t stride[2], padding[2], dilation[2], groups;
  const MgArg *transposed = mg_dec_arg(rw, "transposed"), *n = mg_dec_arg(rw, "groups");
  if (!cuda_pair(rw, "stride", stride) || !cuda_pair(rw, "padding", padding) ||
      !cuda_pair(rw, "dilation", dilation) || !mg_ex_const_int(rw->g->x, n->u.sym, &groups))
    return false;
  bool cuts = groups == 1 && !(transposed->tag == MA_bool && transposed->u.b);
  for (int i = 0; i < 2; i++)
    cuts &= stride[i] == w[2 + i] && !padding[i] && dilation[i] == 1 && in[2 + i] % stride[i] == 0;
  return cuts;
}

/* Patches of few channels as a product: cuDNN's kernels want a multiple of 4 channels, and take 170 us for
 * ViT's 16x3x224x224 by 768x3x16x16, of which the product takes 20 on an H200. */
static MgRc cuda_patches(MgRewrite *rw) {
  MgGraph *g = rw->g;
  ValRef x = mg_dec_val(rw, "input"), weight = mg_dec_val(rw, "weight"), bias = mg_dec_val(rw, "bias");
  int64_t in[4], w[4];
  if (!cuda_sizes(g, x, in) || !cuda_sizes(g, weight, w) || in[1] % ALIGNED == 0 ||
      !mg_val_is_contiguous(g, weight) || !cuda_cuts(rw, in, w))
    return MG_UNSUP;
  int64_t rows = in[2] / w[2], cols = in[3] / w[3], len = w[1] * w[2] * w[3];
  const int64_t cut[] = {in[0], in[1], rows, w[2], cols, w[3]}, order[] = {0, 2, 4, 1, 3, 5},
                flat[] = {in[0] * rows * cols, len}, filters[] = {w[0], len},
                image[] = {in[0], rows, cols, w[0]}, back[] = {0, 3, 1, 2};
  ValRef parts = mg_dec(rw, TOP_permute, V(mg_dec(rw, TOP_view, V(x), mg_arg_ints(g, cut, 6))),
                        mg_arg_ints(g, order, 6));
  parts = mg_dec(rw, TOP_view, V(cuda_contiguous(rw, parts)), mg_arg_ints(g, flat, 2));
  weight = mg_dec(rw, TOP_t, V(mg_dec(rw, TOP_view, V(weight), mg_arg_ints(g, filters, 2))));
  ValRef y =
      bias ? mg_dec(rw, TOP_addmm, V(bias), V(parts), V(weight)) : mg_dec(rw, TOP_mm, V(parts), V(weight));
  y = mg_dec(rw, TOP_view, V(y), mg_arg_ints(g, image, 4));
  return mg_dec_give(rw, 0, mg_dec(rw, TOP_permute, V(y), mg_arg_ints(g, back, 4)));
}

/* An operand of four dimensions that is the program's and that cuDNN would turn. */
static bool cuda_turns(const MgGraph *g, ValRef v) {
  const MgVal *m = mg_val(g, v);
  return m->device == DEV_cuda && m->ndim == 4 && !m->def && !mg_sym_is(g->x, m->stride[1], 1);
}

static bool cuda_one_group(const MgRewrite *rw) {
  const MgArg *groups = mg_dec_arg(rw, "groups");
  return groups->tag == MA_int && mg_sym_is(rw->g->x, groups->u.sym, 1);
}

/* Is it a filter of more than one place, in a convolution without groups? */
static bool cuda_filters(const MgRewrite *rw, ValRef v) {
  const MgVal *m = mg_val(rw->g, v);
  const MgArg *transposed = mg_dec_arg(rw, "transposed");
  return cuda_one_group(rw) && !(transposed->tag == MA_bool && transposed->u.b) &&
         !(mg_sym_is(rw->g->x, m->size[2], 1) && mg_sym_is(rw->g->x, m->size[3], 1)) &&
         !mg_sym_is(rw->g->x, m->size[1], 1);
}

/* cuDNN's kernels want channels-last operands and turn others each for themselves, at each call: what a
 * convolution or its gradients read from the program is turned once, and layout.c goes on with that.  False:
 * nothing is. */
static bool cuda_turn_operands(MgRewrite *rw) {
  ValRef x = mg_dec_val(rw, "input"), w = mg_dec_val(rw, "weight");
  bool data = cuda_turns(rw->g, x), weight = cuda_turns(rw->g, w) && cuda_filters(rw, w);
  if (data) x = mg_dec(rw, TOP_clone, V(x), mg_arg_code(MA_memory_format, MF_channels_last));
  if (weight) w = mg_dec(rw, TOP_clone, V(w), mg_arg_code(MA_memory_format, MF_channels_last));
  if ((!data && !weight) || !x || !w) return false;
  *mg_node_arg(&rw->n, "input") = V(x);
  *mg_node_arg(&rw->n, "weight") = V(w);
  return true;
}

static MgRc cuda_turned(MgRewrite *rw) {
  if (cuda_turn_operands(rw)) return mg_graph_keep(rw);
  return rw->g->c->rc ? rw->g->c->rc : MG_UNSUP;
}

MgRc mg_dec_cuda_convolution(MgRewrite *rw) {
  MgRc cut = cuda_patches(rw);
  if (cut != MG_UNSUP) return cut;
  return cuda_turned(rw);
}

/* One of the gradients by a call of its own. */
static MgRc cuda_gradient(MgRewrite *rw, const MgNode *both, bool data) {
  MgGraph *g = rw->g;
  MgNode *n = &rw->n;
  *n = *both;
  n->arg = mg_ctx_grow(g->c, both->arg, both->narg * sizeof *n->arg, both->narg * sizeof *n->arg);
  n->out = mg_new(g->c, ValRef, both->nout);
  MgArg *mask = n->arg ? mg_node_arg(n, "output_mask") : NULL,
        *item = mg_new(g->c, MgArg, mask ? mask->n : 1);
  TRYP(mask && n->out && item);
  for (uint32_t i = 0; i < mask->n; i++) {
    bool wanted = (i == 0) == data && both->out[i];
    item[i] = mg_arg_bool(wanted);
    n->out[i] = wanted ? both->out[i] : 0;
  }
  mask->u.item = item;
  return mg_graph_keep(rw);
}

/* The gradients of the data and of the filters by two calls, of which a CUDA graph can run one beside others.
 */
MgRc mg_dec_cuda_convolution_backward(MgRewrite *rw) {
  const MgGraph *g = rw->g;
  ValRef w = mg_dec_val(rw, "weight");
  const MgArg *mask = mg_dec_arg(rw, "output_mask");
  const MgVal *m = mg_val(g, w);
  bool two = m->device == DEV_cuda && m->ndim == 4 && rw->n.nout == 3 && rw->n.out[0] && rw->n.out[1] &&
             mask->tag == MA_list && mask->n == 3 && cuda_one_group(rw);
  if (!two) return cuda_turned(rw);
  cuda_turn_operands(rw);
  TRY(g->c->rc);
  const MgNode both = rw->n;
  TRY(cuda_gradient(rw, &both, true));
  return cuda_gradient(rw, &both, false);
}
