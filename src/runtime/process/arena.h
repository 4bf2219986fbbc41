/* Memory for intermediates, shared by all plans: contents live only while one plan runs, so a thread that
 * runs plan after plan keeps working in the same warm pages.  Thread-safe. */
#ifndef MG_ARENA_H
#define MG_ARENA_H
#include <stddef.h>
#include <stdint.h>

typedef struct MgArena {
  struct MgArena *next; /* idle list */
  uint8_t *mem;         /* 64-byte aligned */
  size_t bytes;
} MgArena;

MgArena *mg_arena_take(size_t bytes); /* at least that large; NULL: out of memory */
void mg_arena_give(MgArena *a);
void mg_arena_trim(void);    /* frees the idle ones */
size_t mg_arena_bytes(void); /* held in all */
#endif
