/* Do the guards of an entry hold for a call? */
#ifndef MG_GUARD_CHECK_H
#define MG_GUARD_CHECK_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

typedef struct MgGuardFail MgGuardFail;
typedef struct MgGuards MgGuards;
typedef struct MgSlots MgSlots;
typedef struct MgStrbuf MgStrbuf;

/* vals receives the value of every source (borrowed), mg_guards_nsrc entries.  why may be NULL. */
bool mg_guards_check(const MgGuards *g, const MgSlots *s, PyObject **vals, MgGuardFail *why);
void mg_guards_print(const MgGuards *g, MgStrbuf *out);
#endif
