/* Parts of a recording that a graph calls as a whole: the branches of a cond, the body of a loop.
 * A part is recorded like everything else, then taken out of the graph; it becomes an object that runs its nodes one by one
 * through ATen, under autograd when that is on. */
#ifndef MG_FRONT_PART_H
#define MG_FRONT_PART_H
#include "front/standin.h"

typedef struct MgPartRun { /* a Python object: what runs the nodes of a part, on its own so that nothing refers to itself */
  PyObject_HEAD
  struct MgNodeRun *run;
  struct MgPartSizes *sizes; /* owned; NULL: all are constants */
  uint32_t nin, nout;
  uint32_t *pick;        /* which of the tensors that it is called with are its inputs, in order; malloc'ed, by mg_part_bind */
} MgPartRun;

typedef struct MgPart {  /* a Python object */
  PyObject_HEAD
  MgPartRun *run;        /* strong */
  PyObject *fast;        /* strong: the same compiled (magneto/branch.py); NULL at first */
  uint32_t nin, nout;
  PyObject *graph;       /* the same as a torch.fx.GraphModule of its inputs when one is wanted, or NULL: it has no symbols for sizes */
  PyObject *shown;       /* what torch-level graphs show as its body: a GraphModule, or NULL (fxpart.c); */
  PyObject *reads;       /* and the nodes around it that it reads, a list; both until the call is shown */
  PyObject *ints;        /* a list as long as the leaves of the result: an int, or None for a tensor; NULL: all are tensors */
  PyObject *spec;        /* how the tensors of the result are nested: a pytree's TreeSpec */
  bool grad;             /* autograd tracks some result */
  bool plain;            /* no node of it is a branch or a loop */
  uint32_t nnode;        /* nodes that it runs */
  ValRef *in, *out;      /* in the recording's arena, valid as long as that, like res */
  ValRef *res;           /* what the node gives that runs the part, nres values */
  uint32_t nres;
} MgPart;

/* Records fn(*arg).  New; NULL with an exception, or a break: side effects, writes to tensors from outside, random numbers, a result that
 * is no tree of tensors; ints: or of these. */
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
