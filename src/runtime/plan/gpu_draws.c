/* See the header.  PyTorch's generator of the device is asked as its kernels ask, so that the numbers are
 * those of eager, and fit into whatever PyTorch captures. */
#include "runtime/plan/gpu_draws.h"
#include <stdlib.h>
#include "cuda/device.h"
#include "runtime/process/generator.h"

typedef struct DrawsEngine {
  MgEngine e;
  int device;
  uint64_t n;
} DrawsEngine;

static int draws_run(const MgEngine *e, MgEngineArgs *a) {
  const DrawsEngine *w = (const DrawsEngine *)e;
  void *stream = mg_cuda_stream(w->device);
  MgDraws d;
  uint64_t out = (uint64_t)(uintptr_t)a->ptr[0];
  if (!mg_draws(w->device, w->n, &d)) {
    a->err = "PyTorch's generator refuses";
    return -1;
  }
  int rc = mg_cuda_draw(w->device, out, d.seed, d.offset, d.within, mg_cuda_capturing(stream), stream);
  if (rc) a->err = mg_cuda_error(rc);
  return rc ? -1 : 0;
}

static void draws_free(MgEngine *e) { free(e); }

MgRc mg_draws_engine(MgCtx *c, int device, uint64_t n, MgEngine **out) {
  static const MgEngineOps ops = {.name = "draws", .run = draws_run, .free = draws_free};
  if (mg_draws_missing()) return MG_UNSUP;
  DrawsEngine *w = mg_calloc(1, sizeof *w);
  if (!w) return mg_fail(c, MG_NOMEM, "out of memory");
  *w = (DrawsEngine){.e = {.ops = &ops}, .device = device, .n = n};
  *out = &w->e;
  return MG_OK;
}
