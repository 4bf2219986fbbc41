/* Operators that a graph contains as one node with the parts that it runs: what a cond shares
 * with loops, and the loops. */
#ifndef MG_WHILE_SCAN_H
#define MG_WHILE_SCAN_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include "ir/graph/graph.h"

typedef struct MgPart MgPart;
typedef struct MgRec MgRec;

typedef struct MgHigher {
  MgRec *r;
  MgPart *part[2];       /* strong; the first may be NULL */
  ValRef *all;           /* what the node is given: inputs of both parts; arena */
  uint32_t nall, nfixed; /* of these nfixed are the predicate, or what is carried and the rows */
  PyObject *xs;          /* list: their stand-ins */
} MgHigher;

/* Collects what the parts read after `fixed`, the stand-ins of the values that are in h->all
 * already.  -1 with an exception. */
int mg_higher_collect(MgHigher *h, PyObject *const *fixed, uint32_t nfixed);
bool mg_higher_tracks(const MgHigher *h); /* does autograd track a result of a part? */
/* Appends the node magneto::<op>(xs, *head), with gradients if it tracks, and shows it in a torch-level
 * graph, where parts are not given the first `skip` tensors.  head is stolen.  The results, nested as those
 * of `body`: new; NULL with an exception. */
PyObject *mg_higher_emit(MgHigher *h, const char *op, PyObject *head, MgPart *body, bool tracks,
                         uint32_t skip);
void mg_higher_free(MgHigher *h);

/* while_loop(cond_fn, body_fn, carried_inputs, additional_inputs).  False: torch's Python has to do it. */
bool mg_loop_while(MgRec *r, PyObject *const *a, PyObject **out);
/* scan(fn, carried, xs, more), or map_impl(fn, xs, more) when nothing is carried.
 * False: it is to be unrolled. */
bool mg_loop_rows(MgRec *r, PyObject *fn, PyObject *carried, PyObject *xs, PyObject *more, PyObject **out);
int mg_loop_init(PyObject *module);
#endif
