/* Numbers that a program draws from random.Random objects and itertools.count objects older than the
 * recording, and numbers and arrays from NumPy's generators.
 * In: calls of their methods with constant arguments.  Out: sources whose values every run of the entry draws
 * anew, in the
 * program's order and before the graph runs; nothing else in a segment can see the generator's state, so this
 * is when eager draws them as far as anyone can tell.  A recording draws from copies. */
#ifndef MG_HOST_RANDOM_H
#define MG_HOST_RANDOM_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

typedef struct MgCall MgCall;
typedef struct MgGuards MgGuards;

/* A Python method of random.Random on self (NULL: the first argument).  True: done here, *out is the result
 * or NULL with an exception. */
bool mg_draw_method(const MgCall *c, PyObject *fn, PyObject *self, PyObject **out);
/* A bound method of an older RandomState (the functions of numpy.random) or Generator
 * of NumPy.  True: as above. */
bool mg_draw_numpy(const MgCall *c, PyObject **out);
/* A method of _random.Random, bound or not. */
PyObject *mg_draw_call(const MgCall *c);
/* next() of an itertools.count older than the recording: a number as well. */
PyObject *mg_draw_next(PyObject *counter);
#endif
