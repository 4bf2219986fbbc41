/* Scopes for torch.profiler.
 * In: names, and tensors whose shapes are shown.  Out: at::RecordFunction objects, made by functions of
 * torch's C ABI.  Whether a profiler is on is read from the thread's list of callbacks, which every operator
 * of torch looks at as well; its place is asked for once a thread. Invariant: scopes of a thread end in the
 * opposite order of their beginnings. */
#include "runtime/process/profile.h"
#include <stdlib.h>

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

void *mg_profile_begin(const char *name, MgTensor *const *in, uint32_t nin) {
  ProfileMap none = {.nbucket = 1, .most_load = 1};
  void *scope = NULL;
  none.bucket = &none.single;
  if (!name || !mg_profile_works()) return NULL;
  bool shaped = nin && mg_abi.tensor_to_ivalue && mg_abi.ivalue_delete;
  void **value = shaped ? malloc(nin * sizeof *value) : NULL; /* NULL: a scope without shapes */
  uint32_t n = 0;
  for (uint32_t i = 0; value && i < nin; i++)
    if (in[i] && !mg_abi.tensor_to_ivalue(in[i], &value[n])) n++;
  if (mg_abi.record_start(name, &none, value, n, &scope)) scope = NULL;
  for (uint32_t i = 0; i < n; i++) mg_abi.ivalue_delete(value[i]);
  free(value);
  return scope;
}

void mg_profile_end(void *scope) {
  if (scope) mg_abi.record_end(scope);
}
