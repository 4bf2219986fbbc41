/* The map of compiled kernels that perf and others read: "address bytes name", in hexadecimal, a line each.
 * In: loaded functions, and their names once a plan has them.  Out: lines at the end of /tmp/perf-PID.map,
 * which CPython's own trampolines may write, too; and the symbols of images, which py-spy reads.  A forked
 * child writes all of them into a file of its own. Nothing is kept, and nothing written, without
 * MAGNETO_PERF=1.  A map that cannot be written is one notice.
 */
#include "runtime/code/perf_map.h"
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/ctx.h"
#include "base/env.h"
#include "base/fork.h"
#include "base/notice.h"
#include "runtime/code/perf_image.h"

typedef struct PerfFunction {
  uintptr_t fn;
  size_t bytes;
  char *label; /* NULL: no plan has named it yet */
} PerfFunction;

static PerfFunction *perf_function;
static uint32_t perf_count, perf_cap;
static pid_t perf_pid; /* whose file is open */
static int perf_file = -1;

bool mg_perf_on(void) {
  static atomic_int on = -1;
  if (on < 0) on = mg_env_switch(ENV_PERF, false);
  return on > 0;
}

static PerfFunction *perf_find(const void *fn) {
  for (uint32_t i = perf_count; i-- > 0;)
    if (perf_function[i].fn == (uintptr_t)fn) return &perf_function[i];
  return NULL;
}

static void perf_line(const PerfFunction *f) {
  char line[512];
  int n = snprintf(line, sizeof line, "%zx %zx %s\n", (size_t)f->fn, f->bytes, f->label);
  if (n >= (int)sizeof line) {
    n = sizeof line - 1;
    line[n - 1] = '\n';
  }
  if (write(perf_file, line, (size_t)n) != n) { /* the disk is full: that line is missing */
  }
}

/* In /tmp everybody may make a file of that name: it has to be a file of ours. */
static int perf_open(const char *path) {
  struct stat st;
  int file = open(path, O_CREAT | O_WRONLY | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (file < 0) return -1;
  if (fstat(file, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid()) return file;
  close(file);
  errno = EPERM;
  return -1;
}

/* The file of this process, which has what was named before it was forked. */
static bool perf_begin(void) {
  char path[64];
  if (perf_pid == getpid()) return perf_file >= 0;
  if (perf_file >= 0) close(perf_file);
  perf_pid = getpid();
  snprintf(path, sizeof path, "/tmp/perf-%ld.map", (long)perf_pid);
  perf_file = perf_open(path);
  if (perf_file < 0) {
    mg_notice("MAGNETO_PERF: %s cannot be written: %s", path, strerror(errno));
    return false;
  }
  for (uint32_t i = 0; i < perf_count; i++)
    if (perf_function[i].label) perf_line(&perf_function[i]);
  return true;
}

void mg_perf_loaded(const void *fn, size_t bytes) {
  mg_fork_lock(MG_LOCK_perf);
  if (perf_count < perf_cap || mg_grow(&perf_function, &perf_cap, sizeof *perf_function, 64))
    perf_function[perf_count++] = (PerfFunction){(uintptr_t)fn, bytes, NULL};
  mg_fork_unlock(MG_LOCK_perf);
}

void *mg_perf_memory(size_t bytes) {
  mg_fork_lock(MG_LOCK_perf);
  void *p = mg_perf_image_new(bytes);
  mg_fork_unlock(MG_LOCK_perf);
  return p;
}

/* The image that holds the function gets the names that are known. */
static void perf_symbols(uintptr_t fn) {
  size_t bytes;
  uint32_t n = 0;
  uintptr_t start = mg_perf_image_at(fn, &bytes);
  MgPerfSymbol *symbol = start ? mg_calloc(perf_count, sizeof *symbol) : NULL;
  for (uint32_t i = 0; symbol && i < perf_count; i++) {
    const PerfFunction *f = &perf_function[i];
    if (f->label && f->fn - start < bytes) symbol[n++] = (MgPerfSymbol){f->fn, f->bytes, f->label};
  }
  if (symbol) mg_perf_image_symbols(start, symbol, n);
  free(symbol);
}

void mg_perf_name(const void *fn, const char *label) {
  mg_fork_lock(MG_LOCK_perf);
  PerfFunction *f = perf_find(fn);
  if (f && !f->label) {
    bool begun = perf_begin();
    f->label = strdup(label);
    if (f->label && begun) perf_line(f);
    if (f->label) perf_symbols(f->fn);
  }
  mg_fork_unlock(MG_LOCK_perf);
}

void mg_perf_unloaded(const void *start, size_t bytes) {
  uint32_t kept = 0;
  uintptr_t at = (uintptr_t)start;
  mg_fork_lock(MG_LOCK_perf);
  for (uint32_t i = 0; i < perf_count; i++) {
    if (perf_function[i].fn - at < bytes) free(perf_function[i].label);
    else perf_function[kept++] = perf_function[i];
  }
  perf_count = kept;
  mg_perf_image_drop(at);
  mg_fork_unlock(MG_LOCK_perf);
}
