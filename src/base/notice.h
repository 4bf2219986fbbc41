/* What the user should be told once: a setting that is ignored, a cache that is off.
 * Any layer adds a notice; host/python/notices takes them when it has the GIL and makes each a
 * RuntimeWarning.  Thread-safe. */
#ifndef MG_NOTICE_H
#define MG_NOTICE_H
#include <stdbool.h>
#include <stddef.h>

enum { MG_NOTICE_TEXT = 600 };

/* Adds a notice, unless there was one with these words before.  One that is too many is dropped. */
void mg_notice(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
const char *mg_notice_at(unsigned i); /* number i of all there were, taken or not; NULL: there are fewer */
bool mg_notice_waits(void);           /* is there one that nobody took? (cheap) */
/* Takes the oldest one.  false: there is none. */
bool mg_notice_take(char *text, size_t n);
#endif
