/* Products and convolutions of a GPU as cuBLAS and cuDNN are fast at them.
 * In: a node on a CUDA device.  Out: the same call on operands of other strides, which
 * the kernels that compute them write as they like. */
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
MgRc mg_dec_cuda_mm(MgRewrite *rw) {
  MgGraph *g = rw->g;
  ValRef a = mg_dec_val(rw, "self"), b = mg_dec_val(rw, "mat2");
  int64_t size[2], stride[2];
  if (cuda_matrix(g, rw->n.out[0], size, stride) && stride[0] % ALIGNED && !(size[0] % ALIGNED)) {
    ValRef turned = mg_dec(rw, TOP_mm, V(mg_dec(rw, TOP_t, V(b))), V(mg_dec(rw, TOP_t, V(a))));
    return mg_dec_give(rw, 0, mg_dec(rw, TOP_t, V(turned)));
  }
  ValRef x = cuda_operand(rw, a), y = cuda_operand(rw, b);
  if (x == a && y == b) return MG_UNSUP;
  return mg_dec_give(rw, 0, mg_dec(rw, TOP_mm, V(x), V(y)));
}

/* cuDNN's kernels want channels-last data and turn other data each for themselves: what a convolution reads
 * from the program is turned once, and layout.c goes on with that. */
MgRc mg_dec_cuda_convolution(MgRewrite *rw) {
  const MgGraph *g = rw->g;
  ValRef x = mg_dec_val(rw, "input");
  const MgVal *m = mg_val(g, x);
  if (m->device != DEV_cuda || m->ndim != 4 || m->def || mg_sym_is(g->x, m->stride[1], 1)) return MG_UNSUP;
  ValRef turned = mg_dec(rw, TOP_clone, V(x), mg_arg_code(MA_memory_format, MF_channels_last));
  if (!turned) return g->c->rc;
  rw->n.arg[0] = V(turned);
  return mg_graph_keep(rw);
}
