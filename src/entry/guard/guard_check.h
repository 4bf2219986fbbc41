/* Do the guards of an entry hold for a call? */
#ifndef MG_GUARD_CHECK_H
#define MG_GUARD_CHECK_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stdint.h>
#include "entry/guard/guard_cost.h"

typedef struct MgGuardFail MgGuardFail;
typedef struct MgGuardOp MgGuardOp;
typedef struct MgGuards MgGuards;
typedef struct MgSlots MgSlots;
typedef struct MgStrbuf MgStrbuf;

/* vals receives the value of every source (borrowed), mg_guards_nsrc entries.  why may be NULL. */
bool mg_guards_check(const MgGuards *g, const MgSlots *s, PyObject **vals, MgGuardFail *why);
void mg_guards_print(const MgGuards *g, MgStrbuf *out);
void mg_guard_put(const MgGuards *g, const MgGuardOp *op, MgStrbuf *out); /* one, without a newline */
bool mg_guards_group_holds(MgGuards *g, MgGuardGroup group); /* the guards that are no operations */
uint64_t mg_guard_abc_token(void); /* changes when a class is registered with any ABC */
/* Does one guard hold?  Loads store what they find in vals. */
bool mg_guard_op_holds(const MgGuards *g, const MgGuardOp *op, PyObject **vals, const MgSlots *s,
                       uint64_t turn);
/* Does an OrderedDict have its keys in the order in which they were added?  Other dicts do. */
bool mg_guard_plain_order(PyObject *dict);
#endif
