/* Context of one compilation: its memory, its first error, and fault injection.
 * In: nothing.  Out: MgCtx, mg_fail, TRY.
 * Every allocation of a compilation comes from the context's arena, and is freed by mg_ctx_free on every
 * exit. Not thread-safe: one context belongs to one thread. */
#ifndef MG_CTX_H
#define MG_CTX_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum MgRc {
#define REASON(name, text) MG_##name,
#include "reasons.def"
  MG_RC__COUNT
} MgRc;

typedef struct MgChunk MgChunk;

typedef struct MgCtx {
  MgChunk *chunks;  /* arena, newest first */
  size_t bytes;     /* bytes handed out */
  MgRc rc;          /* first error; MG_OK while all is well */
  char msg[512];    /* its message */
  const char *file; /* where it was raised */
  int line;
  bool (*stop)(
      void); /* asked now and then: is the work to be given up?  Allocations fail from then on.  Or NULL */
  uint32_t asked; /* allocations since it was asked */
  bool stopped;   /* it said so */
} MgCtx;

void mg_ctx_init(MgCtx *c);
void mg_ctx_free(MgCtx *c);
/* Zeroed memory, 16-byte aligned, alive until mg_ctx_free; NULL (and MG_NOMEM in the
 * context) when there is none. */
void *mg_ctx_alloc(MgCtx *c, size_t n);
/* A copy of [p, p+n) with room for cap bytes (growing tables). */
void *mg_ctx_grow(MgCtx *c, const void *p, size_t n, size_t cap);
char *mg_ctx_strdup(MgCtx *c, const char *s);
/* Asks c->stop.  MG_NOMEM when the work is to be given up: what follows is what follows a lack of memory. */
MgRc mg_ctx_poll(MgCtx *c);
/* Records the first error; returns rc. */
MgRc mg_fail_at(MgCtx *c, MgRc rc, const char *file, int line, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
const char *mg_rc_text(MgRc rc);
/* Fault injection for tests: the n-th allocation of this process fails (0: off).
 * Returns allocations so far. */
long mg_fault_set(long n);
/* malloc/realloc that take part in fault injection; for memory that outlives a compilation. */
void *mg_malloc(size_t n);
void *mg_calloc(size_t n, size_t size);
void *mg_realloc(void *p, size_t n);
/* Makes an array of elements of `size` bytes twice as long, or `first` elements if it was empty.
 * array: the address of the pointer to it; cap: how many elements fit.
 * False: out of memory, and nothing has changed. */
bool mg_grow(void *array, uint32_t *cap, size_t size, uint32_t first);

#define mg_fail(c, rc, ...) mg_fail_at((c), (rc), __FILE__, __LINE__, __VA_ARGS__)
#define mg_new(c, T, n) ((T *)mg_ctx_alloc((c), sizeof(T) * (size_t)(n)))
#define TRY(e)                                                                                               \
  do {                                                                                                       \
    MgRc try_rc_ = (e);                                                                                      \
    if (try_rc_ != MG_OK) return try_rc_;                                                                    \
  } while (0)
#define TRYP(p)                                                                                              \
  do {                                                                                                       \
    if (!(p)) return MG_NOMEM;                                                                               \
  } while (0)
#endif
