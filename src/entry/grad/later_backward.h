/* Saved tensors for later backward passes through one node.
 * A compiled forward has one node for all of its results, which PyTorch frees after the first pass without
 * retain_graph.  In eager code results that share nothing saved can be differentiated one after the other.
 * In: what such a pass has used.  Out: the same for the next, with PyTorch's check of versions
 * made for what that one reads. */
#ifndef MG_LATER_BACKWARD_H
#define MG_LATER_BACKWARD_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

typedef struct MgAutograd MgAutograd;

/* done: the set (base/bits.h) of the tangents of passes that have freed what they read.  Is there a result
 * that a later pass may start from? */
bool mg_gradleft_any(const MgAutograd *a, const uint64_t *done);
/* What is left after them; saved: tuple of a->nsaved.  New; NULL with an exception. */
PyObject *mg_gradleft_new(const MgAutograd *a, PyObject *saved, const uint64_t *done);
const uint64_t *mg_gradleft_done(PyObject *left); /* borrowed */
/* The saved tensors for a pass with these tangents; borrowed.  NULL with PyTorch's own errors. */
PyObject *mg_gradleft_saved(const MgAutograd *a, PyObject *left, const uint64_t *given);
#endif
