/* See the header. */
#include "host/python/interrupt.h"
#include "base/log.h"
#include "host/python/pyframe.h"
#include "tuning.h"

static _Thread_local MgInterrupt *interrupt_work;

void mg_interrupt_begin(MgInterrupt *w, int given_up) {
  int doubled = given_up < MG_TUNE_SIGNAL_DOUBLED ? given_up : MG_TUNE_SIGNAL_DOUBLED;
  *w = (MgInterrupt){.outer = interrupt_work, .patience = MG_TUNE_SIGNAL_PATIENCE * (1 << doubled)};
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
