/* See the header.  A captured backward reads what each replay of a captured forward writes; a number of the
 * CPU would stay what it was. */
#include "runtime/plan/gpu_seeds.h"
#include "cuda/device.h"

enum { SEED_LONG = 4, SEED_CPU = 0 }; /* torch's numbers of a dtype and a device */

/* A new tensor of the CPU with the number of t; it waits for the device.  NULL: out of memory. */
static MgTensor *seed_fetch(MgTensor *t) {
  MgTensor *got = NULL;
  if (mg_abi.aoti_torch_empty_strided(0, NULL, NULL, SEED_LONG, SEED_CPU, 0, &got)) return NULL;
  if (!mg_abi.aoti_torch_copy_(got, t, 0)) return got;
  mg_abi.aoti_torch_delete_tensor_object(got);
  return NULL;
}

bool mg_gpu_seeds_move(int32_t device, MgTensor *const *seed, MgTensor **moved) {
  bool captured = mg_cuda_capturing(mg_cuda_stream(device)), ok = true;
  for (int i = 0; i < MG_SEEDS; i++) moved[i] = NULL;
  for (int i = 0; ok && i < MG_SEEDS; i++) {
    int32_t kind = -1;
    mg_abi.aoti_torch_get_device_type(seed[i], &kind);
    if (captured) ok = kind == MG_TORCH_CUDA;
    else if (kind == MG_TORCH_CUDA) ok = (moved[i] = seed_fetch(seed[i])) != NULL;
  }
  for (int i = 0; !ok && i < MG_SEEDS; i++)
    if (moved[i]) mg_abi.aoti_torch_delete_tensor_object(moved[i]), moved[i] = NULL;
  return ok;
}
