/* Many copies within a device's memory by one kernel.
 * In: addresses and lengths, in the kernel's own parameter.  Out: queued work.  A block copies at most
 * COPIES_CHUNK bytes; it finds its copy by halving the table of first blocks. */
#include <stddef.h>
#include "cuda/device.h"

enum { COPIES_CHUNK = 1 << 15, COPIES_THREADS = 256 };
_Static_assert(offsetof(MgCopies, from) == 1024 && offsetof(MgCopies, bytes) == 2048 &&
                   offsetof(MgCopies, first) == 3072 && offsetof(MgCopies, n) == 3584 &&
                   sizeof(MgCopies) == 3592,
               "as the kernel's text has it");

static const char copies_text[] = ".version 8.0\n.target sm_80\n.address_size 64\n"
                                  ".visible .entry mg_copies(.param .align 8 .b8 list[3592])\n"
                                  "{\n"
                                  "  .reg .pred %p<4>;\n"
                                  "  .reg .b32 %r<16>;\n"
                                  "  .reg .b64 %d<24>;\n"
                                  "  mov.u32 %r1, %ctaid.x;\n"
                                  "  mov.b64 %d1, list;\n"
                                  "  mov.u32 %r2, 0;\n" /* the copy is in [r2, r3) */
                                  "  ld.param.u32 %r3, [list+3584];\n"
                                  "halve:\n"
                                  "  add.u32 %r4, %r2, 1;\n"
                                  "  setp.ge.u32 %p1, %r4, %r3;\n"
                                  "  @%p1 bra found;\n"
                                  "  add.u32 %r4, %r2, %r3;\n"
                                  "  shr.u32 %r4, %r4, 1;\n"
                                  "  mul.wide.u32 %d2, %r4, 4;\n"
                                  "  add.u64 %d2, %d1, %d2;\n"
                                  "  ld.param.u32 %r5, [%d2+3072];\n"
                                  "  setp.le.u32 %p1, %r5, %r1;\n"
                                  "  selp.u32 %r2, %r4, %r2, %p1;\n"
                                  "  selp.u32 %r3, %r3, %r4, %p1;\n"
                                  "  bra halve;\n"
                                  "found:\n"
                                  "  mul.wide.u32 %d2, %r2, 4;\n"
                                  "  add.u64 %d2, %d1, %d2;\n"
                                  "  ld.param.u32 %r5, [%d2+3072];\n"
                                  "  mul.wide.u32 %d2, %r2, 8;\n"
                                  "  add.u64 %d2, %d1, %d2;\n"
                                  "  ld.param.u64 %d3, [%d2];\n"
                                  "  ld.param.u64 %d4, [%d2+1024];\n"
                                  "  ld.param.u64 %d5, [%d2+2048];\n"
                                  "  sub.u32 %r6, %r1, %r5;\n"
                                  "  mul.wide.u32 %d6, %r6, 32768;\n" /* where the block's part begins */
                                  "  add.u64 %d7, %d6, 32768;\n"
                                  "  min.u64 %d7, %d7, %d5;\n" /* and ends */
                                  "  mov.u32 %r7, %tid.x;\n"
                                  "  cvt.u64.u32 %d8, %r7;\n"
                                  "  or.b64 %d9, %d3, %d4;\n"
                                  "  and.b64 %d9, %d9, 15;\n"
                                  "  setp.ne.u64 %p1, %d9, 0;\n"
                                  "  mov.b64 %d10, %d6;\n"
                                  "  @%p1 bra bytes;\n"
                                  "  sub.u64 %d11, %d7, %d6;\n"
                                  "  and.b64 %d11, %d11, -16;\n"
                                  "  add.u64 %d10, %d6, %d11;\n" /* the end of whole vectors */
                                  "  shl.b64 %d12, %d8, 4;\n"
                                  "  add.u64 %d12, %d6, %d12;\n"
                                  "vectors:\n"
                                  "  setp.ge.u64 %p2, %d12, %d10;\n"
                                  "  @%p2 bra bytes;\n"
                                  "  add.u64 %d13, %d4, %d12;\n"
                                  "  add.u64 %d14, %d3, %d12;\n"
                                  "  ld.global.v4.u32 {%r8, %r9, %r10, %r11}, [%d13];\n"
                                  "  st.global.v4.u32 [%d14], {%r8, %r9, %r10, %r11};\n"
                                  "  add.u64 %d12, %d12, 4096;\n"
                                  "  bra vectors;\n"
                                  "bytes:\n"
                                  "  add.u64 %d12, %d10, %d8;\n"
                                  "each:\n"
                                  "  setp.ge.u64 %p2, %d12, %d7;\n"
                                  "  @%p2 bra done;\n"
                                  "  add.u64 %d13, %d4, %d12;\n"
                                  "  add.u64 %d14, %d3, %d12;\n"
                                  "  ld.global.u8 %r8, [%d13];\n"
                                  "  st.global.u8 [%d14], %r8;\n"
                                  "  add.u64 %d12, %d12, 256;\n"
                                  "  bra each;\n"
                                  "done:\n"
                                  "  ret;\n"
                                  "}\n";

const char *mg_cuda_copies_text(void) { return copies_text; }

static void copies_write(MgStrbuf *text, uint32_t form) { mg_sb_puts(text, copies_text); }

/* The kernel on a device; NULL: the driver refuses it. */
static void *copies_kernel(int device) {
  static MgCudaLazy *kernel[MG_CUDA_DEVICES];
  static const MgCudaKept copies = {"mg_copies", copies_write, 1, kernel};
  return mg_cuda_kept(&copies, device, 0);
}

bool mg_cuda_copies_ready(int device) { return copies_kernel(device) != NULL; }

void mg_cuda_copies_add(MgCopies *l, void *to, const void *from, size_t bytes) {
  if (!bytes) return;
  l->to[l->n] = (uint64_t)(uintptr_t)to;
  l->from[l->n] = (uint64_t)(uintptr_t)from;
  l->bytes[l->n] = bytes;
  l->first[l->n] = l->blocks;
  l->blocks += (uint32_t)((bytes + COPIES_CHUNK - 1) / COPIES_CHUNK);
  l->n++;
}

int mg_cuda_copies_launch(int device, MgCopies *l, void *stream) {
  void *arg[] = {l};
  int rc = l->n ? mg_cuda_launch(copies_kernel(device), l->blocks, COPIES_THREADS, arg, stream) : 0;
  l->n = l->blocks = 0;
  return rc;
}
