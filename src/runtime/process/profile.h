/* Scopes that torch.profiler shows, around what a plan runs.  Without a profiler a plan costs one test more.
 * A torch that lacks the functions: no scopes. */
#ifndef MG_PROFILE_H
#define MG_PROFILE_H
#include "runtime/process/torch_abi.h"

typedef struct MgRecordTls { /* at::RecordFunctionTLS: the callbacks of this thread, a std::vector */
  const void *begin, *end;
} MgRecordTls;

extern _Thread_local const MgRecordTls *mg_profile_tls; /* NULL: not asked for yet */
bool mg_profile_ask(void); /* the same as mg_profile_on, for the first time in a thread */

/* Does a profiler listen to this thread?  One of all threads is found by mg_profile_on_everywhere. */
static inline bool mg_profile_on(void) {
  const MgRecordTls *t = mg_profile_tls;
  return t ? t->begin != t->end : mg_profile_ask();
}
/* The same, and profilers of all threads: it costs as much as a small kernel. */
bool mg_profile_on_everywhere(void);

/* Can scopes be shown with this torch? */
bool mg_profile_works(void);
/* A new scope; NULL where none can be made.  name: until its end.  in: what it works on; NULL among them:
 * nothing. */
void *mg_profile_begin(const char *name, MgTensor *const *in, uint32_t nin);
void mg_profile_end(void *scope); /* NULL: nothing */
#endif
