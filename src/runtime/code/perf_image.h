/* Memory for code that profilers know by a file: with MAGNETO_PERF=1 compiled kernels lie in a mapping of
 * /tmp/magneto-PID-N.so, whose symbols are the kernels.  py-spy knows no other way, and perf takes it, too.
 * The caller holds MG_LOCK_perf. */
#ifndef MG_PERF_IMAGE_H
#define MG_PERF_IMAGE_H
#include <stddef.h>
#include <stdint.h>

typedef struct MgPerfSymbol {
  uintptr_t fn;
  size_t bytes;
  const char *name;
} MgPerfSymbol;

/* Zeroed memory, readable and writable, of whole pages, which may be made executable.  NULL: none can be had
 * that way, as where /tmp allows no code. */
void *mg_perf_image_new(size_t bytes);
/* Where the image that holds an address begins; 0: in none.  *bytes: its size. */
uintptr_t mg_perf_image_at(uintptr_t at, size_t *bytes);
/* The image that begins at `start` gets these symbols instead of those that it has. */
void mg_perf_image_symbols(uintptr_t start, const MgPerfSymbol *symbol, uint32_t n);
/* The file goes; the caller unmaps the memory. */
void mg_perf_image_drop(uintptr_t start);
#endif
