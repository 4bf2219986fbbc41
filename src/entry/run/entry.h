/* One run of an entry. */
#ifndef MG_ENTRY_H
#define MG_ENTRY_H
#include "entry/run/entry_cache.h"

#define RESUME_SMALL MG_SMALL_VALS /* values that fit on the C stack */
/* Runs a segment on given slots: new_slots and ret as mg_snapshot_run.  vals: source
 * values of the guard check. */
int mg_entry_run(MgEntry *e, PyObject **vals, MgExecAt *at, PyObject **new_slots, PyObject **ret);
#endif
