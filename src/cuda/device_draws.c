/* The seed and the offset of random numbers in memory of the device.
 * A graph of random calls reads them where PyTorch has them for graphs; its first node stores them there. */
#include "cuda/device.h"

static const char seed_text[] = ".version 8.0\n.target sm_80\n.address_size 64\n"
                                ".visible .entry mg_seed(.param .u64 a, .param .u64 b, .param .u64 s, "
                                ".param .u64 o)\n"
                                "{\n"
                                "  .reg .b64 %d<5>;\n"
                                "  ld.param.u64 %d1, [a];\n"
                                "  ld.param.u64 %d2, [b];\n"
                                "  ld.param.u64 %d3, [s];\n"
                                "  ld.param.u64 %d4, [o];\n"
                                "  st.global.u64 [%d1], %d3;\n"
                                "  st.global.u64 [%d2], %d4;\n"
                                "  ret;\n"
                                "}\n";

static void seed_write(MgStrbuf *text, uint32_t form) { mg_sb_puts(text, seed_text); }

void *mg_cuda_seed_kernel(int device) {
  static MgCudaLazy *kernel[MG_CUDA_DEVICES];
  static const MgCudaKept seed = {"mg_seed", seed_write, 1, kernel};
  return mg_cuda_kept(&seed, device, 0);
}

static const char draw_text[] = ".version 8.0\n.target sm_80\n.address_size 64\n"
                                ".visible .entry mg_draw(.param .u64 out, .param .u64 s, .param .u64 o, "
                                ".param .u32 w, .param .u32 c)\n"
                                "{\n"
                                "  .reg .pred %p;\n"
                                "  .reg .b32 %r<3>;\n"
                                "  .reg .b64 %d<5>;\n"
                                "  ld.param.u64 %d1, [out];\n"
                                "  ld.param.u64 %d2, [s];\n"
                                "  ld.param.u64 %d3, [o];\n"
                                "  ld.param.u32 %r1, [w];\n"
                                "  ld.param.u32 %r2, [c];\n"
                                "  setp.eq.u32 %p, %r2, 0;\n"
                                "  @%p bra given;\n"
                                "  ld.global.u64 %d2, [%d2];\n"
                                "  ld.global.u64 %d3, [%d3];\n"
                                "  cvt.u64.u32 %d4, %r1;\n"
                                "  add.u64 %d3, %d3, %d4;\n"
                                "given:\n"
                                "  shr.u64 %d3, %d3, 2;\n"
                                "  st.global.u64 [%d1], %d2;\n"
                                "  st.global.u64 [%d1+8], %d3;\n"
                                "  ret;\n"
                                "}\n";

const char *mg_cuda_draw_text(bool draw) { return draw ? draw_text : seed_text; }

static void draw_write(MgStrbuf *text, uint32_t form) { mg_sb_puts(text, draw_text); }

int mg_cuda_draw(int device, uint64_t out, uint64_t seed, uint64_t offset, uint32_t within, bool captured,
                 void *stream) {
  static MgCudaLazy *kernel[MG_CUDA_DEVICES];
  static const MgCudaKept draw = {"mg_draw", draw_write, 1, kernel};
  void *fn = mg_cuda_kept(&draw, device, 0);
  uint32_t addresses = captured;
  void *arg[] = {&out, &seed, &offset, &within, &addresses};
  return fn ? mg_cuda_launch(fn, 1, 1, arg, stream) : -1;
}

int64_t mg_cuda_draw_threads(int device) {
  enum { BLOCK = 256 };
  int sms = mg_cuda_attribute(device, MG_CUDA_multiprocessors),
      threads = mg_cuda_attribute(device, MG_CUDA_threads);
  return (int64_t)sms * (threads / BLOCK) * BLOCK;
}
