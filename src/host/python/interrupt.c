/* See the header. */
#include "host/python/interrupt.h"
#include "base/log.h"
#include "host/python/pyframe.h"

#define INTERRUPT_PATIENCE                                                                                   \
  50.0                           /* milliseconds: with what a poll may be late, a signal acts in about 0.1 s \
                                  */
enum { INTERRUPT_DOUBLED = 10 }; /* the longest patience is 51 s: more than any recording takes */

static _Thread_local MgInterrupt *interrupt_work;

void mg_interrupt_begin(MgInterrupt *w, int given_up) {
  int doubled = given_up < INTERRUPT_DOUBLED ? given_up : INTERRUPT_DOUBLED;
  *w = (MgInterrupt){.outer = interrupt_work, .patience = INTERRUPT_PATIENCE * (1 << doubled)};
  interrupt_work = w;
}

void mg_interrupt_end(MgInterrupt *w) { interrupt_work = w->outer; }

bool mg_interrupt_due(void) {
  MgInterrupt *w = interrupt_work;
  if (!w) return false;
  if (w->due) return true;
  if (!mg_pyframe_waits()) {
    w->since = 0;
    return false;
  }
  double now = mg_now_ms();
  if (!w->since) w->since = now;
  return w->due = now - w->since >= w->patience;
}
