/* Arithmetic on numbers of the CPU in a plan for a GPU: the host does it before the steps run.
 * In: MgSched.number.  Out: a program without pointers that a plan keeps. */
#ifndef MG_NUMBERS_H
#define MG_NUMBERS_H
#include "back/kernel/loop_nest.h"
#include "runtime/plan/plan_spec.h"

/* buf: the index of each number's buffer becomes its cell. */
MgRc mg_numbers_program(const MgSched *s, MgPlanBuf *buf, MgPlanNumbers *out);
#endif
