/* Signals that come while a frame is recorded or compiled.
 * Their Python handlers cannot run there: the program's state is not what the handlers would see in eager.
 * In: places that poll.  Out: whether the work has to be given up; the driver then has CPython run the frame,
 * and the handlers first.
 * A signal waits a little, so that a timer that ticks all the time does not keep
 * programs from being compiled. */
#ifndef MG_INTERRUPT_H
#define MG_INTERRUPT_H
#include <stdbool.h>

typedef struct MgInterrupt { /* one piece of work of this thread */
  struct MgInterrupt
      *outer;      /* the work that this one is a part of (a custom back end may compile), or NULL */
  double patience; /* milliseconds that a signal waits */
  double since;    /* when a poll first saw one wait; 0: none waits */
  bool due;        /* it has waited long enough: stays set */
} MgInterrupt;

/* given_up: how often such work was given up already.  Each time makes it more patient, or a
 * timer could stop it for ever. */
void mg_interrupt_begin(MgInterrupt *w, int given_up);
void mg_interrupt_end(MgInterrupt *w);
/* Is the work of this thread to be given up?  Also how arenas ask (MgCtx.stop). */
bool mg_interrupt_due(void);
#endif
