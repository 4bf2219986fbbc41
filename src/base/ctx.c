/* See the header. */
#include "base/ctx.h"
#include "base/assert.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct MgChunk {
  MgChunk *next;
  size_t cap, len;
  max_align_t data[];
};

static _Atomic long fault_count, fault_at;

long mg_fault_set(long n) {
  long done = fault_count;
  fault_count = 0;
  fault_at = n;
  return done;
}

static bool fault_hit(void) { return ++fault_count == fault_at; }

void *mg_malloc(size_t n) { return fault_hit() ? NULL : malloc(n ? n : 1); }
void *mg_calloc(size_t n, size_t size) { return fault_hit() ? NULL : calloc(n ? n : 1, size ? size : 1); }
void *mg_realloc(void *p, size_t n) { return fault_hit() ? NULL : realloc(p, n ? n : 1); }

bool mg_grow(void *array, uint32_t *cap, size_t size, uint32_t first) {
  uint32_t n = *cap ? *cap * 2 : first;
  void *p;
  memcpy(&p, array, sizeof p); /* a pointer of any type */
  if (!(p = mg_realloc(p, n * size))) return false;
  memcpy(array, &p, sizeof p);
  *cap = n;
  return true;
}

void mg_ctx_init(MgCtx *c) { memset(c, 0, sizeof *c); }

void mg_ctx_free(MgCtx *c) {
  for (MgChunk *k = c->chunks, *n; k; k = n) {
    n = k->next;
    free(k);
  }
  c->chunks = NULL;
  c->bytes = 0;
}

MgRc mg_ctx_poll(MgCtx *c) {
  c->asked = 0;
  if (!c->stopped && c->stop) c->stopped = c->stop();
  return c->stopped ? mg_fail(c, MG_NOMEM, "given up, since a signal waits") : MG_OK;
}

void *mg_ctx_alloc(MgCtx *c, size_t n) {
  enum { POLL = 256 }; /* allocations: some 10 microseconds */
  MgChunk *k = c->chunks;
  if (c->stop && (c->stopped || ++c->asked >= POLL) && mg_ctx_poll(c)) return NULL;
  if (n > SIZE_MAX - 64) goto nomem;
  n = (n + 15) & ~(size_t)15;
  if (!k || k->cap - k->len < n) {
    size_t cap = n > 32768 ? n : 65536 - sizeof *k;
    k = mg_malloc(sizeof *k + cap);
    if (!k) goto nomem;
    k->cap = cap;
    k->len = 0;
    if (c->chunks && n > 32768) { /* a large block goes behind the chunk that still has room */
      k->next = c->chunks->next;
      c->chunks->next = k;
    } else {
      k->next = c->chunks;
      c->chunks = k;
    }
  }
  void *p = (char *)k->data + k->len;
  k->len += n;
  c->bytes += n;
  return memset(p, 0, n);
nomem:
  mg_fail(c, MG_NOMEM, "out of memory (%zu bytes)", n);
  return NULL;
}

void *mg_ctx_grow(MgCtx *c, const void *p, size_t n, size_t cap) {
  MG_ASSERT(n <= cap, "a table grows to less than it has");
  void *q = mg_ctx_alloc(c, cap);
  if (q && n) memcpy(q, p, n);
  return q;
}

char *mg_ctx_strdup(MgCtx *c, const char *s) {
  size_t n = strlen(s) + 1;
  return mg_ctx_grow(c, s, n, n);
}

MgRc mg_fail_at(MgCtx *c, MgRc rc, const char *file, int line, const char *fmt, ...) {
  if (c->rc == MG_OK) { /* the first error wins; later ones are its consequences */
    va_list ap;
    c->rc = rc;
    c->file = file;
    c->line = line;
    va_start(ap, fmt);
    vsnprintf(c->msg, sizeof c->msg, fmt, ap);
    va_end(ap);
  }
  return rc;
}

const char *mg_rc_text(MgRc rc) {
  static const char *const text[] = {
#define REASON(name, text) text,
#include "reasons.def"
  };
  return (unsigned)rc < MG_RC__COUNT ? text[rc] : "?";
}
