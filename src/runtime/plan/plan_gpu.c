/* What a plan does otherwise on a GPU: memory from PyTorch's allocator, launches on its current stream.
 * In: a run with bound arguments.  Out: queued work.  Nothing here waits for the device. */
#include <string.h>
#include "runtime/plan/plan_graph.h"
#include "runtime/plan/plan_priv.h"

enum { GPU_ALIGN = 16, GPU_MOST_BLOCKS = 0x7fffffff };

/* The memory goes back when the call ends, although its kernels may still be to run: PyTorch gives it out
 * again on this stream only. */
bool mg_plan_gpu_arena(const MgPlan *p, PlanRun *r) {
  const int64_t n = (int64_t)r->total, one = 1;
  void *mem = NULL;
  if (mg_abi.aoti_torch_empty_strided(1, &n, &one, 0, MG_TORCH_CUDA, p->s.device, &r->gpu_arena))
    return r->gpu_arena = NULL, false;
  mg_abi.aoti_torch_get_data_ptr(r->gpu_arena, &mem);
  if (mem != r->mem) r->mem = mem, r->bound = false;
  return true;
}

const char *mg_plan_gpu_prepare(const MgPlan *p, const PlanRun *r, const PlanKernel *k, PlanLaunch *l) {
  uint64_t bits = 0;
  uint32_t nsym = p->s.nsym;
  l->n = k->narg + nsym;
  if (l->n > PLAN_GPU_ARGS) return "a kernel with too many arguments";
  for (uint32_t i = 0; i < k->narg; i++) {
    void *ptr = r->arg[k->arg + i];
    int bytes = k->gpu.number ? k->gpu.number[i] : 0;
    l->arg[i] = &l->value[i];
    l->value[i] = bytes ? 0 : (uint64_t)(uintptr_t)ptr;
    if (bytes && ptr) memcpy(&l->value[i], ptr, (size_t)bytes);
    if (!bytes) bits |= l->value[i];
  }
  for (uint32_t i = 0; i < nsym; i++) {
    l->value[k->narg + i] = (uint64_t)r->slot[i];
    l->arg[k->narg + i] = &l->value[k->narg + i];
  }
  bool odd = k->gpu.other && bits % GPU_ALIGN;
  const MgPlanGrid *grid = odd ? &k->gpu.plain : &k->gpu.shape;
  int64_t blocks = r->slot[grid->blocks];
  l->fn = odd ? mg_cuda_lazy_get(k->gpu.other) : (void *)k->fn;
  if (!l->fn) return "the driver refuses a kernel";
  if (blocks > GPU_MOST_BLOCKS) return "a kernel of too many blocks";
  l->blocks = blocks > 0 ? (uint32_t)blocks : 0;
  l->threads = grid->threads;
  return NULL;
}

const char *mg_plan_gpu_launch(const MgPlan *p, PlanRun *r, uint32_t first, uint32_t n) {
  void *stream = mg_cuda_stream(p->s.device);
  PlanLaunch l;
  for (uint32_t i = first; i < first + n; i++) {
    const char *why = mg_plan_gpu_prepare(p, r, &p->kernel[i], &l);
    if (why) return why;
    if (!l.blocks) continue;
    int rc = mg_cuda_launch(l.fn, l.blocks, l.threads, l.arg, stream);
    if (rc) return mg_cuda_error(rc);
    if (r->capturing && !mg_plan_graph_note(r, i, &l, stream)) return "a kernel is not in the graph";
  }
  return NULL;
}
