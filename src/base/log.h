/* MAGNETO_LOGS=<channel,...>: readable dumps of each stage, on standard error. */
#ifndef MG_LOG_H
#define MG_LOG_H
#include <stdbool.h>

typedef enum MgLog {
#define DUMP(name, what) MG_LOG_##name,
#include "dumps.def"
  MG_LOG__COUNT
} MgLog;

extern unsigned mg_log_mask;
static inline bool mg_log_on(MgLog ch) { return mg_log_mask >> ch & 1; }
/* Replaces the set of channels; "all" is every channel.  Returns the first unknown name (static text inside
 * spec), or NULL. */
const char *mg_log_set(const char *spec);
/* One message; several lines are fine, each is prefixed by the channel. */
void mg_log(MgLog ch, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void mg_log_text(MgLog ch, const char *title, const char *text);
/* Receives complete lines instead of standard error (explain, tests); NULL restores it. */
void mg_log_sink(void (*sink)(void *arg, MgLog ch, const char *line), void *arg);
/* A line about work that takes long, overwritten in place; only when standard error is a
 * terminal. NULL clears it. */
void mg_log_progress(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
double mg_now_ms(void); /* monotonic clock, milliseconds */
#endif
