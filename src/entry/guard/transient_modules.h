/* Modules that a program makes anew for each call (losses, matchers, small wrappers).  Modules are guarded by
 * identity, which costs a hit next to nothing; an entry for one that is gone never holds again.  So when an
 * entry has run a few times only and its modules die, their classes are noted, per code object: from then on
 * it looks at instances of these as at other objects, along the path that leads to them.  Not where one with
 * parameters is among the dead: that is a model, and the next one is used for longer. */
#ifndef MG_TRANSIENT_MODULES_H
#define MG_TRANSIENT_MODULES_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

typedef struct MgGuards MgGuards;
typedef struct MgMap MgMap;

typedef struct MgParted { /* modules of entries that are gone, which may be dying just now */
  struct MgPartedRef {
    PyObject *ref;     /* weak reference, strong */
    const void *class; /* an address, never followed */
  } *v;
  uint32_t n, cap;
} MgParted;

const void *
mg_transient_kind(PyObject *module); /* what is noted of it: its class, unless there are parameters in it */
void mg_transient_part(MgParted *p,
                       const MgGuards *g); /* a module of g has died; nothing is added when memory runs out */
void mg_transient_learn(MgMap *classes,
                        MgParted *p); /* the classes of those that are dead by now; empties p */
void mg_transient_free(MgParted *p);
#endif
