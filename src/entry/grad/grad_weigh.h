/* What the backward pass of a graph takes: compiled, and under PyTorch's autograd.
 * In: the plans, the inputs of a call.  Out: milliseconds of either way.  Both run on aliases of the inputs,
 * which no hook of the program sees and no gradient is added to. */
#ifndef MG_GRAD_WEIGH_H
#define MG_GRAD_WEIGH_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

typedef struct MgAutograd MgAutograd;

typedef struct MgWeighed { /* milliseconds: compiled, op by op */
  float forward[2];        /* of a forward here */
  float pass[2];           /* of the pass behind it, with the making of the gradient it is handed */
} MgWeighed;

/* Nothing of it may be seen outside: a graph that writes inputs or draws random numbers is not weighed.
 * False: not known (errors are cleared). */
bool mg_gradweigh(MgAutograd *a, PyObject *const *in, MgWeighed *ms);
/* What forward and backward take in the program, where the forward takes `forward` milliseconds: it begins
 * with guards, or is CPython's. */
float mg_gradweigh_both(const MgWeighed *ms, bool nodes, float forward);
#endif
