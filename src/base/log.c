/* See the header. */
#include "base/log.h"
#include "base/strbuf.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

unsigned mg_log_mask;
static void (*log_sink)(void *, MgLog, const char *);
static void *log_sink_arg;
static const char *const log_name[] = {
#define DUMP(name, what) #name,
#include "dumps.def"
};

const char *mg_log_set(const char *spec) {
  unsigned mask = 0;
  const char *bad = NULL;
  for (const char *p = spec ? spec : ""; *p;) {
    size_t n = strcspn(p, ", ");
    int hit = n == 0;
    if (n == 3 && !strncmp(p, "all", 3)) mask = ~0u, hit = 1;
    for (int i = 0; i < MG_LOG__COUNT && !hit; i++)
      if (strlen(log_name[i]) == n && !strncmp(p, log_name[i], n)) mask |= 1u << i, hit = 1;
    if (!hit && !bad) bad = p;
    p += n;
    p += strspn(p, ", ");
  }
  mg_log_mask = mask;
  return bad;
}

void mg_log_sink(void (*sink)(void *, MgLog, const char *), void *arg) {
  log_sink = sink;
  log_sink_arg = arg;
}

void mg_log_text(MgLog ch, const char *title, const char *text) {
  if (!mg_log_on(ch)) return;
  if (log_sink) {
    log_sink(log_sink_arg, ch, text);
    return;
  }
  if (title) fprintf(stderr, "[magneto %s] %s\n", log_name[ch], title);
  while (*text) {
    size_t n = strcspn(text, "\n");
    fprintf(stderr, "[magneto %s] %.*s\n", log_name[ch], (int)n, text);
    text += n + (text[n] == '\n');
  }
}

void mg_log(MgLog ch, const char *fmt, ...) {
  if (!mg_log_on(ch)) return;
  MgStrbuf s = {0};
  va_list ap;
  va_start(ap, fmt);
  mg_sb_vprintf(&s, fmt, ap);
  va_end(ap);
  mg_log_text(ch, NULL, mg_sb_text(&s));
  mg_sb_free(&s);
}

void mg_log_progress(const char *fmt, ...) {
  if (!isatty(STDERR_FILENO)) return;
  fputs("\r\033[K", stderr);
  if (fmt) {
    va_list ap;
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
  }
  fflush(stderr);
}

double mg_now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}
