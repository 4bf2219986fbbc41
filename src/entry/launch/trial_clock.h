/* How long one way of running took, for the trials that compare two of them.  Tests say it instead of the
 * clock, so that what a trial decides does not depend on the machine's load.
 * In: when the way began.  Out: milliseconds.  With the GIL held. */
#ifndef MG_TRIAL_CLOCK_H
#define MG_TRIAL_CLOCK_H

typedef enum MgTrialWay {
  WAY_recorded, /* compiled, and something was recorded */
  WAY_compiled,
  WAY_eager,
  WAY_between, /* from one frame to the next */
  WAY__COUNT
} MgTrialWay;

/* t0: mg_now_ms() when it began. */
double mg_trial_took(MgTrialWay way, double t0);
/* The same in milliseconds of the processor that this thread got, which other programs do not change.  It
 * takes a call of the kernel to ask. */
double mg_trial_cpu_ms(void);
double mg_trial_took_cpu(MgTrialWay way, double t0);
#endif
