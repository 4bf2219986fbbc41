/* Runs of a plan: tables that a call writes.  A call takes one and gives it back.
 * One idle run is taken without a lock.  Of a plan with symbols that may become a CUDA graph, a few runs keep
 * their sizes, since a graph is for the sizes of its run. */
#include <stdlib.h>
#include <string.h>
#include "base/fork.h"
#include "runtime/plan/plan_graph.h"
#include "runtime/plan/plan_priv.h"
#include "tuning.h"

static void runs_free(const MgPlan *p, PlanRun *r) {
  mg_plan_graph_free(p, r);
  for (uint32_t i = 0; r->tensor && i < p->ntensor; i++)
    if (r->tensor[i]) mg_abi.aoti_torch_delete_tensor_object(r->tensor[i]);
  if (r->gpu_arena) mg_abi.aoti_torch_delete_tensor_object(r->gpu_arena);
  for (uint32_t i = 0; r->state && i < p->nstep; i++) {
    const MgEngine *e = p->step[i].kind == PK_engine && !p->step[i].sized ? p->step[i].engine : NULL;
    void *state = e ? r->state[p->step[i].engine_index] : NULL;
    if (state) e->ops->state_free(e, state);
  }
  for (uint32_t i = 0; r->sized && i < p->nengine; i++) mg_sized_free(&r->sized[i]);
  free(r->sized);
  free(r->stage);
  free(r->offset);
  free(r->pack);
  free(r->work);
  free(r->slot);
  free(r->cell);
  free(r->arg);
  free(r->range);
  free(r->input);
  free(r->tensor);
  free(r->fresh);
  free(r->state);
  free(r);
}

static PlanRun *runs_new(const MgPlan *p) {
  PlanRun *r = mg_calloc(1, sizeof *r);
  if (!r) return NULL;
  r->slot = mg_calloc(p->s.nslot, sizeof *r->slot);
  r->arg = mg_calloc(p->narg, sizeof *r->arg);
  r->range = mg_calloc(p->nkernel, sizeof *r->range);
  r->input = mg_calloc(p->s.ninput, sizeof *r->input);
  r->tensor = mg_calloc(p->ntensor, sizeof *r->tensor);
  r->fresh = mg_calloc(p->s.nfresh, sizeof *r->fresh);
  r->state = mg_calloc(p->nengine, sizeof *r->state);
  r->offset = mg_calloc(p->s.nblock, sizeof *r->offset);
  r->stage = mg_calloc(p->s.ninput + 1, sizeof *r->stage);
  r->cell = mg_calloc(p->s.numbers.ncell + 1, sizeof *r->cell);
  if (p->sized) r->sized = mg_calloc(p->nengine, sizeof *r->sized);
  if (p->s.dynamic) {
    r->pack = mg_calloc(p->s.nblock, sizeof *r->pack);
    r->work = mg_malloc(mg_pack_room(p->s.nblock));
  }
  bool ok = r->offset && (!p->sized || r->sized) && (!p->s.dynamic || (r->pack && r->work)) && r->slot &&
            r->arg && r->range && r->input && r->tensor && r->fresh && r->state && r->stage && r->cell;
  if (ok && p->s.nslot) memcpy(r->slot, p->s.slot0, sizeof *r->slot * p->s.nslot);
  for (uint32_t i = 0; ok && i < p->nstep; i++) {
    const MgEngine *e = p->step[i].kind == PK_engine && !p->step[i].sized ? p->step[i].engine : NULL;
    if (e && e->ops->state_new) ok = (r->state[p->step[i].engine_index] = e->ops->state_new(e)) != NULL;
  }
  if (ok) return r;
  runs_free(p, r);
  return NULL;
}

void mg_plan_trim(MgPlan *p) {
  PlanRun *r = atomic_exchange(&p->idle, NULL), *next;
  if (r) runs_free(p, r);
  mg_fork_lock(MG_LOCK_list);
  r = p->more;
  p->more = NULL;
  p->nrun = 0;
  mg_fork_unlock(MG_LOCK_list);
  for (; r; r = next) {
    next = r->next;
    runs_free(p, r);
  }
}

PlanRun *mg_plan_run_take(MgPlan *p) {
  PlanRun *r = atomic_exchange_explicit(&p->idle, NULL, memory_order_acquire);
  if (!r) {
    mg_fork_lock(MG_LOCK_list);
    if ((r = p->more)) p->more = r->next;
    mg_fork_unlock(MG_LOCK_list);
    if (!r) r = runs_new(p);
  }
  return r;
}

void mg_plan_run_give(MgPlan *p, PlanRun *r) {
  PlanRun *none = NULL;
  if (r->arena) mg_arena_give(r->arena), r->arena = NULL;
  if (r->gpu_arena) mg_abi.aoti_torch_delete_tensor_object(r->gpu_arena), r->gpu_arena = NULL;
  if (atomic_compare_exchange_strong_explicit(&p->idle, &none, r, memory_order_release, memory_order_relaxed))
    return;
  mg_fork_lock(MG_LOCK_list);
  r->next = p->more;
  p->more = r;
  mg_fork_unlock(MG_LOCK_list);
}

/* Removes from the idle runs the one that `fits`, else, if it may be another's, the one that was used longest
 * ago.  NULL: there is none. */
static PlanRun *runs_pick(MgPlan *p, bool (*fits)(void *call, const PlanRun *r), void *call, bool any) {
  PlanRun **at = &p->more, **last = NULL;
  for (; *at && !fits(call, *at); at = &(*at)->next) last = at;
  if (!*at) at = any ? last : NULL;
  PlanRun *r = at ? *at : NULL;
  if (r) *at = r->next;
  return r;
}

PlanRun *mg_plan_run_take_sized(MgPlan *p, bool (*fits)(void *call, const PlanRun *r), void *call) {
  PlanRun *last = atomic_exchange_explicit(&p->idle, NULL, memory_order_acquire);
  if (last && fits(call, last)) return last;
  mg_fork_lock(MG_LOCK_list);
  if (last) { /* the one that was used last */
    last->next = p->more;
    p->more = last;
  }
  PlanRun *r = runs_pick(p, fits, call, p->nrun >= MG_TUNE_GRAPH_SIZES);
  p->nrun += !r;
  mg_fork_unlock(MG_LOCK_list);
  return r ? r : runs_new(p);
}
