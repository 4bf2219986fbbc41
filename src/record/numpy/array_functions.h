/* NumPy's functions that can be recorded. */
#ifndef MG_ARRAY_FUNCTIONS_H
#define MG_ARRAY_FUNCTIONS_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

typedef struct MgArrayOp MgArrayOp;

typedef struct MgArrayNumpy { /* of the module numpy; strong, NULL until it has been imported */
  PyObject *errstate, *ufunc; /* the classes of these names */
  PyObject *errors;           /* what tells how NumPy treats errors of floating point */
} MgArrayNumpy;
extern MgArrayNumpy mg_array_numpy;

/* Before a recording: numpy may have been imported since the last one.  -1 with an exception. */
int mg_array_begin(void);
bool mg_array_function(PyObject *o);                   /* a function of NumPy that is recorded */
bool mg_array_find(PyObject *function, MgArrayOp *op); /* a function of NumPy that torch._numpy has, too */
/* What a graph calls for op: a magneto._glue.array_calls.ArrayCall.  New. */
PyObject *mg_array_twin(const MgArrayOp *op);
#endif
