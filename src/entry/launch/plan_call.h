/* A compiled plan called with Python tensors. */
#ifndef MG_PLAN_CALL_H
#define MG_PLAN_CALL_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include "base/ctx.h"
#include "results.h"

typedef struct MgPlan MgPlan;
typedef struct MgPlanCall MgPlanCall;

/* in: borrowed torch tensors in graph input order; sizes: values of the symbols, or NULL (mg_plan_run); outs:
 * new references in graph output order.  Releases the GIL while a long plan runs; bumps the version counters
 * of inputs that were written.  -1 with an exception: the one that eager raises when a check of data failed.
 * Others: MG_RUN_FAILED, MG_RUN_SIZES, MG_RUN_RAISED (results.h). */
int mg_planrun(MgPlan *p, PyObject *const *in, const int64_t *sizes, PyObject **outs);
/* The same in parts, see mg_plan_part: outs gets the results that became ready, NULL for the others.  *call:
 * NULL to begin and after the end, also that by an exception. */
int mg_planrun_part(MgPlan *p, MgPlanCall **call, uint32_t until, PyObject *const *in, const int64_t *sizes,
                    PyObject **outs);
/* The same, where check is called with the results that are asked for early (MgGraph.early) before anything
 * is written to an input.  What it returns, unless that is 0, is the result: then nothing was written. */
int mg_planrun_checked(MgPlan *p, PyObject *const *in, const int64_t *sizes, PyObject **outs,
                       int (*check)(void *arg, PyObject **outs), void *arg);
/* Turns autocast off when it is on, for calls of ATen whose casts are nodes already.  *off: what
 * mg_planrun_autocast_back takes (and frees); NULL: it was off.  -1 with an exception. */
int mg_planrun_autocast_off(PyObject **off);
int mg_planrun_autocast_back(PyObject *off);
/* Sets the exception of a failed run or compilation. */
void mg_planrun_raise(MgRc rc, const char *text);
#endif
