/* Names of compiled kernels for profilers of machine code (perf, py-spy), with MAGNETO_PERF=1:
 * /tmp/perf-PID.map, and files of symbols beside it (perf_image). */
#ifndef MG_PERF_MAP_H
#define MG_PERF_MAP_H
#include <stdbool.h>
#include <stddef.h>

bool mg_perf_on(void);
/* A function has been loaded; its code, with what only it calls, takes so many bytes. */
void mg_perf_loaded(const void *fn, size_t bytes);
/* What a loaded function is called.  The first name counts: equal kernels of several plans are one function.
 */
void mg_perf_name(const void *fn, const char *label);
/* Memory for code, readable and writable; NULL: take any other. */
void *mg_perf_memory(size_t bytes);
/* The memory has other code from now on. */
void mg_perf_unloaded(const void *start, size_t bytes);
#endif
