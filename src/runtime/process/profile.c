/* Scopes for torch.profiler.
 * In: names.  Out: at::RecordFunction objects, made by functions of torch's C ABI.  Whether a profiler is on
 * is read from the
 * thread's list of callbacks, which every operator of torch looks at as well; its
 * place is asked for once a thread.
 * Invariant: scopes of a thread end in the opposite order of their beginnings. */
#include "runtime/process/profile.h"

_Thread_local const MgRecordTls *mg_profile_tls;

/* An empty std::unordered_map of libstdc++: one bucket, which lies in it. */
typedef struct ProfileMap {
  void **bucket;
  size_t nbucket;
  void *first;
  size_t n;
  float most_load;
  size_t next_resize;
  void *single;
} ProfileMap;

static const MgRecordTls profile_none; /* stands for a torch without profilers that can be told */

bool mg_profile_works(void) { return mg_abi.record_start && mg_abi.record_end && mg_abi.record_tls; }

bool mg_profile_ask(void) {
  mg_profile_tls = mg_profile_works() ? mg_abi.record_tls() : &profile_none;
  return mg_profile_tls->begin != mg_profile_tls->end;
}

bool mg_profile_on_everywhere(void) {
  return mg_profile_on() || (mg_profile_works() && mg_abi.record_global && mg_abi.record_global());
}

void *mg_profile_begin(const char *name) {
  ProfileMap none = {.nbucket = 1, .most_load = 1};
  void *scope = NULL;
  none.bucket = &none.single;
  if (!name || !mg_profile_works()) return NULL;
  return mg_abi.record_start(name, &none, NULL, 0, &scope) ? NULL : scope;
}

void mg_profile_end(void *scope) {
  if (scope) mg_abi.record_end(scope);
}
