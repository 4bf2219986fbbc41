/* Seeds of attention's dropout, from PyTorch's forward kernel to its backward kernel.
 * Step by step both kernels have them in the CPU's memory, in a CUDA graph in the GPU's. */
#ifndef MG_GPU_SEEDS_H
#define MG_GPU_SEEDS_H
#include <stdbool.h>
#include "runtime/process/torch_abi.h"

enum { MG_SEEDS = 2 }; /* the seed and the offset */

/* The seeds where the backward kernel looks for them now: moved[i] is a new tensor, or NULL where seed[i] is
 * there already. device: that of the kernel.  False: they cannot be moved, and nothing is. */
bool mg_gpu_seeds_move(int32_t device, MgTensor *const *seed, MgTensor **moved);
#endif
