/* A second stream beside the one that is captured.  Its work becomes a branch of the CUDA graph.
 * Streams live as long as the process, since libraries keep memory by stream; there is one for each stream on
 * which graphs are replayed, so that no two of them use that memory at a time. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include "cuda/device.h"

static struct {
  int (*stream)(void **, unsigned);
  int (*event)(void **, unsigned);
  int (*event_free)(void *);
  int (*record)(void *, void *);
  int (*wait)(void *, void *, unsigned);
  int (*guard_new)(void *, int32_t, void **); /* aoti_torch_create_cuda_stream_guard */
  int (*guard_delete)(void *);
} branch_fn;

static pthread_once_t branch_once = PTHREAD_ONCE_INIT;
static pthread_mutex_t branch_lock = PTHREAD_MUTEX_INITIALIZER;
static bool branch_can;
enum { BRANCH_STREAMS = 16 };
static struct {
  int device;
  void *replays, *side;
} branch_of[BRANCH_STREAMS];
static int branch_n;

static bool branch_get(void *lib, const char *name, void *to) {
  return lib && (*(void **)to = dlsym(lib, name)) != NULL;
}

static void branch_find(void) {
  bool known = !mg_cuda_graphs_missing();
  void *h = known ? dlopen("libcuda.so.1", RTLD_NOW) : NULL,
       *torch = dlopen("libtorch_cuda.so", RTLD_LAZY | RTLD_NOLOAD);
  branch_can = branch_get(h, "cuStreamCreate", &branch_fn.stream) &&
               branch_get(h, "cuEventCreate", &branch_fn.event) &&
               branch_get(h, "cuEventDestroy_v2", &branch_fn.event_free) &&
               branch_get(h, "cuEventRecord", &branch_fn.record) &&
               branch_get(h, "cuStreamWaitEvent", &branch_fn.wait) &&
               branch_get(torch, "aoti_torch_create_cuda_stream_guard", &branch_fn.guard_new) &&
               branch_get(torch, "aoti_torch_delete_cuda_stream_guard", &branch_fn.guard_delete);
}

/* NULL: there are too many streams. */
static void *branch_side(int device, void *replays) {
  enum { NON_BLOCKING = 1 };
  int i = 0;
  pthread_mutex_lock(&branch_lock);
  while (i < branch_n && (branch_of[i].device != device || branch_of[i].replays != replays)) i++;
  void *s = i < branch_n ? branch_of[i].side : NULL;
  if (i == branch_n && i < BRANCH_STREAMS && !branch_fn.stream(&s, NON_BLOCKING)) {
    branch_of[branch_n].device = device;
    branch_of[branch_n].replays = replays;
    branch_of[branch_n++].side = s;
  }
  pthread_mutex_unlock(&branch_lock);
  return s;
}

bool mg_cuda_branch_begin(int device, void *main, void *replays, MgBranch *out) {
  enum { NO_TIMING = 2 };
  *out = (MgBranch){.device = device, .main = main};
  pthread_once(&branch_once, branch_find);
  if (!branch_can || !(out->side = branch_side(device, replays))) return false;
  if (!branch_fn.event(&out->event, NO_TIMING)) return true;
  out->side = NULL;
  return false;
}

/* What `to` gets from now on comes after what `from` has got. */
static bool branch_after(const MgBranch *b, void *to, void *from) {
  return !branch_fn.record(b->event, from) && !branch_fn.wait(to, b->event, 0);
}

bool mg_cuda_branch_enter(MgBranch *b) {
  if (!b->side || !branch_after(b, b->side, b->main)) return false;
  b->open = true;
  return !branch_fn.guard_new(b->side, b->device, &b->guard);
}

void mg_cuda_branch_leave(MgBranch *b) {
  branch_fn.guard_delete(b->guard);
  b->guard = NULL;
}

bool mg_cuda_branch_join(MgBranch *b) {
  bool ok = !b->open || branch_after(b, b->main, b->side);
  b->open = false;
  return ok;
}

void mg_cuda_branch_end(MgBranch *b) {
  if (b->side) branch_fn.event_free(b->event);
  *b = (MgBranch){0};
}
