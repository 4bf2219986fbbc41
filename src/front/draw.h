/* Numbers that a program draws from random.Random objects and itertools.count objects older than the recording, and numbers and arrays
 * from NumPy's generators.
 * In: calls of their methods with constant arguments.  Out: sources whose values every run of the entry draws anew, in the
 * program's order and before the graph runs; nothing else in a segment can see the generator's state, so this is when eager draws
 * them as far as anyone can tell.  A recording draws from copies. */
#ifndef MG_FRONT_DRAW_H
#define MG_FRONT_DRAW_H
#include "front/record_obj.h"
#include "front/source.h"

typedef struct MgDraw {
  PyObject *fn, *args, *kwargs; /* strong: called with the generator, *args, **kwargs; kwargs may be NULL */
  SrcRef rng, result;           /* the generator; the number or array, or 0 for a call that only changes the generator */
} MgDraw;

/* A Python method of random.Random on self (NULL: the first argument).  True: done here, *out is the result or NULL with an exception. */
bool mg_draw_method(const MgCall *c, PyObject *fn, PyObject *self, PyObject **out);
/* A bound method of an older RandomState (the functions of numpy.random) or Generator of NumPy.  True: as above. */
bool mg_draw_numpy(const MgCall *c, PyObject **out);
/* A method of _random.Random, bound or not. */
PyObject *mg_draw_call(const MgCall *c);
/* next() of an itertools.count older than the recording: a number as well. */
PyObject *mg_draw_next(PyObject *counter);
/* Does the number depend on one that was drawn?  Guards cannot ask for it. */
bool mg_draw_late(const MgGuards *g, SrcRef src);
/* Makes the draws of an entry that is about to run; vals gets new references.  -1 with an exception. */
int mg_draw_run(const MgGuards *g, PyObject **vals);
void mg_draw_free(MgGuards *g);
#endif
