/* See the header. */
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

static void strbuf_number(MgStrbuf *s, uint64_t v, bool negative) {
  char text[24], *p = text + sizeof text;
  do *--p = (char)('0' + v % 10);
  while (v /= 10);
  if (negative) *--p = '-';
  mg_sb_write(s, p, (size_t)(text + sizeof text - p));
}

static void strbuf_signed(MgStrbuf *s, int64_t v) {
  strbuf_number(s, v < 0 ? 0 - (uint64_t)v : (uint64_t)v, v < 0);
}

static void strbuf_by_libc(MgStrbuf *s, const char *fmt, va_list ap) {
  va_list again;
  va_copy(again, ap);
  int n = vsnprintf(s->p ? s->p + s->len : NULL, s->p ? s->cap - s->len : 0, fmt, ap);
  if (n >= 0 && (!s->p || s->len + (size_t)n + 1 > s->cap)) {
    if (strbuf_room(s, (size_t)n)) vsnprintf(s->p + s->len, s->cap - s->len, fmt, again);
  }
  va_end(again);
  if (n >= 0 && !s->failed) s->len += (size_t)n;
}

/* Plain conversions are done here: libc's become several times slower once some library in the process has
 * registered conversions of its own, and a good part of compiling is writing the text of kernels. */
void mg_sb_vprintf(MgStrbuf *s, const char *fmt, va_list ap) {
  for (const char *p; (p = strchr(fmt, '%')); fmt = p) {
    mg_sb_write(s, fmt, (size_t)(p - fmt));
    const char *text;
    switch (p[1]) {
    case 'd': strbuf_signed(s, va_arg(ap, int)); break;
    case 'u': strbuf_number(s, va_arg(ap, unsigned), false); break;
    case 'c': mg_sb_putc(s, (char)va_arg(ap, int)); break;
    case 's':
      text = va_arg(ap, const char *);
      mg_sb_puts(s, text ? text : "(null)");
      break;
    case '%': mg_sb_putc(s, '%'); break;
    default:
      if (!strncmp(p, "%lld", 4)) strbuf_signed(s, va_arg(ap, long long));
      else if (!strncmp(p, "%llu", 4)) strbuf_number(s, va_arg(ap, unsigned long long), false);
      else {
        strbuf_by_libc(s, p, ap); /* with all that follows */
        return;
      }
      p += 2;
    }
    p += 2;
  }
  mg_sb_puts(s, fmt);
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

void mg_text_mend(char *utf8) {
  for (unsigned char *p = (unsigned char *)utf8; *p;) {
    int more = *p < 0x80 ? 0 : *p < 0xC0 ? -1 : *p < 0xE0 ? 1 : *p < 0xF0 ? 2 : 3, k = 0;
    while (k < more && (p[1 + k] & 0xC0) == 0x80) k++;
    if (k == more) p += 1 + more;
    else *p++ = '?';
  }
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
