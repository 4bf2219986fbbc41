/* Scopes of steps for profilers, with the shapes of what the steps read.
 * In: labels and shapes that the planner wrote, sizes of the run.  Out: scopes of runtime/process/profile.
 * What a step reads may have no tensor: the scope shows one of that shape, whose memory nobody may read.
 * Only called while a profiler is on. */
#include "runtime/plan/plan_scope.h"
#include "runtime/process/profile.h"

enum { SCOPE_TENSORS = 64, SCOPE_RANK = 64 }; /* of a step; of a tensor */

MgRc mg_plan_scope_keep(MgCtx *mem, MgPlanScope *scope) {
  MgPlanShape *shape = mg_new(mem, MgPlanShape, scope->nshape + 1);
  if (scope->label) TRYP(scope->label = mg_ctx_strdup(mem, scope->label));
  TRYP(shape);
  for (uint32_t i = 0; i < scope->nshape; i++) {
    int64_t *size = mg_new(mem, int64_t, scope->shape[i].ndim + 1u);
    TRYP(size);
    for (int k = 0; k < scope->shape[i].ndim; k++) size[k] = scope->shape[i].size[k];
    shape[i] = scope->shape[i];
    shape[i].size = size;
  }
  scope->shape = shape;
  return MG_OK;
}

/* A tensor of that shape over no memory; NULL: none. */
static MgTensor *scope_tensor(const int64_t *slot, const MgPlanShape *s) {
  static char memory; /* not NULL: torch would allocate */
  int64_t size[SCOPE_RANK], stride[SCOPE_RANK], n = 1;
  MgTensor *t = NULL;
  if (s->ndim > SCOPE_RANK) return NULL;
  for (int k = s->ndim; k--;) {
    size[k] = s->size[k] < 0 ? slot[-1 - s->size[k]] : s->size[k];
    stride[k] = n;
    n *= size[k] > 1 ? size[k] : 1;
    if (size[k] < 0) return NULL;
  }
  bool failed =
      mg_abi.aoti_torch_create_tensor_from_blob(&memory, s->ndim, size, stride, 0, s->dtype, 0, 0, &t);
  return failed ? NULL : t;
}

void *mg_plan_scope_begin(const int64_t *slot, const MgPlanScope *scope, const char *otherwise) {
  MgTensor *in[SCOPE_TENSORS] = {0};
  uint32_t n = 0;
  for (uint32_t i = 0; i < scope->nshape && n < SCOPE_TENSORS; i++)
    if ((in[n] = scope_tensor(slot, &scope->shape[i]))) n++;
  void *begun = mg_profile_begin(scope->label ? scope->label : otherwise, in, n);
  for (uint32_t i = 0; i < n; i++) mg_abi.aoti_torch_delete_tensor_object(in[i]);
  return begun;
}
