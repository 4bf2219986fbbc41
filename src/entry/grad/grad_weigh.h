/* What the backward pass of a graph takes: compiled, and under PyTorch's autograd.
 * In: the plans, the inputs of a call.  Out: milliseconds of either way.  Both run on aliases of the inputs,
 * which no hook of the program sees and no gradient is added to. */
#ifndef MG_GRAD_WEIGH_H
#define MG_GRAD_WEIGH_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

typedef struct MgAutograd MgAutograd;

/* ms[0]: compiled, ms[1]: op by op.  Nothing that may be seen outside: a graph that writes inputs or draws
 * random numbers is not weighed.  False: not known (errors are cleared). */
bool mg_gradweigh(MgAutograd *a, PyObject *const *in, float ms[2]);
#endif
