/* See the header.  Notices stay in the table after they were taken, so that the same words come only once. */
#include "base/notice.h"
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include "base/fork.h"

enum { NOTICE_MOST = 64 };

/* Guarded by MG_LOCK_notice. */
static char notice_text[NOTICE_MOST][MG_NOTICE_TEXT];
static atomic_uint notice_n, notice_taken;

void mg_notice(const char *fmt, ...) {
  char text[MG_NOTICE_TEXT];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  mg_fork_lock(MG_LOCK_notice);
  unsigned i = 0;
  while (i < notice_n && strcmp(notice_text[i], text)) i++;
  if (i == notice_n && i < NOTICE_MOST) {
    memcpy(notice_text[i], text, sizeof text);
    notice_n++;
  }
  mg_fork_unlock(MG_LOCK_notice);
}

bool mg_notice_waits(void) { return notice_taken < notice_n; }

bool mg_notice_take(char *text, size_t n) {
  mg_fork_lock(MG_LOCK_notice);
  bool found = notice_taken < notice_n;
  if (found) snprintf(text, n, "%s", notice_text[notice_taken++]);
  mg_fork_unlock(MG_LOCK_notice);
  return found;
}

const char *mg_notice_at(unsigned i) { return i < notice_n ? notice_text[i] : NULL; }
