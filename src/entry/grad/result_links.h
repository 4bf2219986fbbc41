/* Gradients between results of one compiled segment.
 * One node of PyTorch's gradient graph serves all results, so that graph has no way from one result to
 * another. A result that another one is computed from, and that other one, get a node each in front of it: a
 * port. Ports have the edges that eager's graph has.
 *
 *   a usual pass   a port hands its gradient to the node, and nothing to other ports: backward stays one plan
 *   an exact pass  somebody looks at the gradient of a result that others are computed from (hook,
 *   retain_grad, inputs= of a pass):
 *                  ports give each other what eager's nodes would, op by op; the node leaves
 *                  paths through other results out
 *
 * In: a->link and a->port.  Out: results with a grad_fn.
 * After an exact pass, forward runs op by op (a->asked): eager's own nodes give such gradients
 * without running forward twice.
 * Not exact: a second derivative that is itself looked at there, in the first pass that asks. */
#ifndef MG_RESULT_LINKS_H
#define MG_RESULT_LINKS_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include "base/ctx.h"

typedef struct MgAutograd MgAutograd;

/* Takes the results that get a port out of `res` and leaves aliases, which are to become results of the node.
 * New; NULL with an exception. */
PyObject *mg_links_new(MgAutograd *a, PyObject **res);
/* Puts them back into `res`, with their ports.  -1 with an exception. */
int mg_links_attach(PyObject *links, PyObject **res);
/* Is the pass that runs now an exact one?  -1 with an exception. */
int mg_links_exact(PyObject *links);
/* What stands for result i where other results are computed from it again: the result itself where the
 * gradient is to be differentiated, else a leaf with the value of `made`.  New; NULL with an exception. */
PyObject *mg_links_stand(PyObject *links, uint32_t i, PyObject *made, bool create);
/* Is result i one that others are computed from? */
bool mg_links_target(const PyObject *links, uint32_t i);
/* base: torch._C._FunctionBase; setup: the setup_context of functions that have
 * none.  -1 with an exception. */
int mg_links_init(PyObject *base, PyObject *setup);

/* ---- grad_node.c ---- */
/* The gradients of the results that result k is computed from, in their order, op by op.  node: that of all
 * results. New tuple. */
PyObject *mg_gradnode_between(PyObject *node, uint32_t k, PyObject *tangent);
#endif
