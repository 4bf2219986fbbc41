/* The vector instructions that code may use: those of this CPU, at most those of the
 * level that MAGNETO_CPU names.
 * In: cpuid and MAGNETO_CPU, read once.  Out: MgCpu.  Everything of ours that exists in versions per
 * instruction set
 * (generated kernels, attention, packing, digests, oneDNN) asks here and nowhere else, so that one machine
 * can test and measure every level.  PyTorch's own kernels are not capped by it. */
#ifndef MG_CPU_H
#define MG_CPU_H
#include <stdbool.h>

/* The levels of the x86-64 psABI: v2 has SSE4.2; v3 AVX2, FMA and F16C; v4 AVX-512 F, BW, CD, DQ and VL. */
typedef enum MgCpuLevel { CPU_base = 1, CPU_v2, CPU_v3, CPU_v4 } MgCpuLevel;

typedef struct MgCpu {
  MgCpuLevel level; /* the highest one of which everything is there */
  bool capped; /* MAGNETO_CPU names this level: nothing beyond it may be used, even where the CPU has it */
  int vector_bits;                          /* 512, 256 or 128: of integers and floats */
  bool fma, avx2, f16c, avx512, avx512bf16; /* avx512: all of v4's parts */
} MgCpu;

const MgCpu *mg_cpu(void);
/* "x86-64-v3": as LLVM names a level; NULL: not capped, code is made for the host. */
const char *mg_cpu_cap(void);
/* The level of this CPU, whatever MAGNETO_CPU says: "x86-64-v4". */
const char *mg_cpu_host(void);
#endif
