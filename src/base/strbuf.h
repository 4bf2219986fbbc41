/* Growing text.  Errors stick: after a failed allocation every call is a no-op and mg_sb_ok is false. */
#ifndef MG_STRBUF_H
#define MG_STRBUF_H
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct MgStrbuf {
  char *p; /* NUL-terminated when len > 0; malloc'ed */
  size_t len;
  size_t cap;
  bool failed; /* an allocation failed */
} MgStrbuf;

void mg_sb_printf(MgStrbuf *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void mg_sb_vprintf(MgStrbuf *s, const char *fmt, va_list ap);
void mg_sb_puts(MgStrbuf *s, const char *text);
void mg_sb_write(MgStrbuf *s, const char *text, size_t n); /* n bytes of it */
void mg_sb_puts_cut(MgStrbuf *s, const char *utf8,
                    size_t most); /* at most that many bytes, whole characters */
void mg_text_mend(char *utf8);    /* what a cut has left of a character becomes question marks */
void mg_sb_putc(MgStrbuf *s, char c);
void mg_sb_free(MgStrbuf *s);
static inline const char *mg_sb_text(const MgStrbuf *s) { return s->p ? s->p : ""; }
static inline bool mg_sb_ok(const MgStrbuf *s) { return !s->failed; }
#endif
