/* Parts of a recording that a graph calls as a whole: the branches of a cond, the body of a loop.
 * A part is recorded like everything else, then taken out of the graph; it becomes an object that runs its
 * nodes one by one through ATen, under autograd when that is on. */
#ifndef MG_SUBGRAPH_H
#define MG_SUBGRAPH_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include "ir/graph/graph.h"

typedef struct MgPart MgPart;
typedef struct MgRec MgRec;

/* Records fn(*arg).  New; NULL with an exception, or a break: side effects, writes to tensors from outside,
 * random numbers, a result that is no tree of tensors; ints: or of these. */
MgPart *mg_part_record(MgRec *r, PyObject *fn, PyObject *const *arg, Py_ssize_t n, bool ints);
/* The part will be called with the tensors all[0..n), which its inputs are among.  -1 with an exception. */
int mg_part_bind(MgPart *p, const ValRef *all, uint32_t n);
/* Do the results of two parts look alike? */
bool mg_part_alike(const MgGraph *g, const MgPart *a, const MgPart *b);
/* The leaves of a nested result, as a list; *spec, new: how they are nested.  New. */
PyObject *mg_part_flatten(PyObject *res, PyObject **spec);
/* The results of a call of the part, nested as they were; steals res, a list of tensors.  New. */
PyObject *mg_part_nest(const MgPart *p, PyObject *res);
int mg_part_init(PyObject *module);
#endif
