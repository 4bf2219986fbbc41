/* Functions that a program has marked for the recorder: allow_in_graph,
 * assume_constant_result, substitute_in_graph. */
#ifndef MG_MARKED_FUNCTIONS_H
#define MG_MARKED_FUNCTIONS_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

/* Is fn (bound to self, or NULL) marked?  Then *out is the result of the call, NULL with an exception. */
bool mg_rec_marked(PyObject *fn, PyObject *self, PyObject *const *arg, size_t nargsf, PyObject *kwnames,
                   PyObject **out);
/* The ids of functions that the program keeps out of graphs (torch._dynamo.disallow_in_graph), a new
 * reference; NULL: there are none. */
PyObject *mg_marked_refused_ids(void);
/* Is fn one of them?  A break is set then.  Only where the recording has such ids. */
bool mg_marked_refuses(PyObject *fn);
/* Is it a class of autograd functions that the program has allowed in graphs? */
bool mg_rec_marked_class(PyObject *cls);
/* A method of DTensor that takes it apart or moves it: one call in the graph.  False: not these arguments. */
bool mg_marked_distributed(PyObject *fn, PyObject *self, PyObject *const *arg, size_t nargsf,
                           PyObject *kwnames, PyObject **out);
/* A collective that writes into tensors: the functional ones that say the same.  False: it stays as it is. */
bool mg_marked_collective(PyObject *fn, PyObject *const *arg, size_t nargsf, PyObject *kwnames,
                          PyObject **out);
/* One node, too: torch's function for attention over jagged tensors, which asks them for values. */
bool mg_marked_attention(PyObject *fn, PyObject *const *arg, size_t nargsf, PyObject *kwnames,
                         PyObject **out);
int mg_marked_init(PyObject *module);
#endif
