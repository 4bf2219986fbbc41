/* Random numbers of Python and NumPy that a run draws once its guards hold. */
#ifndef MG_LATE_DRAWS_H
#define MG_LATE_DRAWS_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include "entry/guard/source_kinds.h"

typedef struct MgGuards MgGuards;

typedef struct MgDraw {
  PyObject *fn, *args, *kwargs; /* strong: called with the generator, *args, **kwargs; kwargs may be NULL */
  SrcRef rng,
      result; /* the generator; the number or array, or 0 for a call that only changes the generator */
} MgDraw;
/* fn(rng, *args, **kwargs) */
PyObject *mg_draw_make(PyObject *fn, PyObject *rng, PyObject *args, PyObject *kwargs);
/* Does the number depend on one that was drawn?  Guards cannot ask for it. */
bool mg_draw_late(const MgGuards *g, SrcRef src);
/* Makes the draws of an entry that is about to run; vals gets new references.  -1 with an exception. */
int mg_draw_run(const MgGuards *g, PyObject **vals);
void mg_draw_free(MgGuards *g);
#endif
