#include "base/strbuf.h"
#include "base/ctx.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool strbuf_room(MgStrbuf *s, size_t n) {
  if (s->failed) return false;
  if (s->len + n + 1 > s->cap) {
    size_t cap = s->cap ? s->cap * 2 : 256;
    while (cap < s->len + n + 1) cap *= 2;
    char *p = mg_realloc(s->p, cap);
    if (!p) {
      s->failed = true;
      return false;
    }
    s->p = p;
    s->cap = cap;
  }
  return true;
}

void mg_sb_vprintf(MgStrbuf *s, const char *fmt, va_list ap) {
  va_list again;
  va_copy(again, ap);
  int n = vsnprintf(s->p ? s->p + s->len : NULL, s->p ? s->cap - s->len : 0, fmt, ap);
  if (n >= 0 && (!s->p || s->len + (size_t)n + 1 > s->cap)) {
    if (strbuf_room(s, (size_t)n)) vsnprintf(s->p + s->len, s->cap - s->len, fmt, again);
  }
  va_end(again);
  if (n >= 0 && !s->failed) s->len += (size_t)n;
}

void mg_sb_printf(MgStrbuf *s, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  mg_sb_vprintf(s, fmt, ap);
  va_end(ap);
}

void mg_sb_puts_cut(MgStrbuf *s, const char *utf8, size_t most) {
  size_t n = strnlen(utf8, most);
  while (n == most && n && (utf8[n] & 0xC0) == 0x80) most = --n; /* inside of a character */
  mg_sb_printf(s, "%.*s", (int)n, utf8);
}

void mg_sb_write(MgStrbuf *s, const char *text, size_t n) {
  if (!strbuf_room(s, n)) return;
  memcpy(s->p + s->len, text, n);
  s->len += n;
  s->p[s->len] = 0;
}

void mg_sb_puts(MgStrbuf *s, const char *text) { mg_sb_write(s, text, strlen(text)); }

void mg_sb_putc(MgStrbuf *s, char c) {
  if (!strbuf_room(s, 1)) return;
  s->p[s->len++] = c;
  s->p[s->len] = 0;
}

void mg_sb_free(MgStrbuf *s) {
  free(s->p);
  *s = (MgStrbuf){0};
}
