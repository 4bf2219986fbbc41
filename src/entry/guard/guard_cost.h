/* What reports tell of the guards of a set: the line that asked for each, what it costs, how often it failed.
 * Only while mg_measure_on; a set that was recorded before has none, and so has one that is out of memory. */
#ifndef MG_GUARD_COST_H
#define MG_GUARD_COST_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

typedef struct MgGuardOp MgGuardOp;
typedef struct MgGuards MgGuards;
typedef struct MgSlots MgSlots;

/* What a check consists of: first the operations, one by one, then these. */
typedef enum MgGuardGroup {
  GROUP_state,
  GROUP_slots,
  GROUP_dicts,
  GROUP_types,
  GROUP_hooks,
  GROUP__COUNT
} MgGuardGroup;

void mg_guard_cost_begin(MgGuards *g);                      /* of a new set */
void mg_guard_cost_place(MgGuards *g, const MgGuardOp *op); /* op was added by the line that is recorded */
void mg_guard_cost_failed(MgGuards *g, uint32_t op);
void mg_guard_cost_failed_group(MgGuards *g, MgGuardGroup group);
/* The guards hold with vals: measures each of them, for the first few calls. */
void mg_guard_cost_sample(MgGuards *g, const MgSlots *s, PyObject **vals);
/* A list of (text, nanoseconds or None, failures, path or None, line); new, NULL with an exception. */
PyObject *mg_guard_cost_list(const MgGuards *g);
void mg_guard_cost_free(MgGuards *g);
#endif
