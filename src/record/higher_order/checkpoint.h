/* torch.utils.checkpoint in a recording: the block's ops are recorded like all others and marked, so that its
 * values are not kept for backward but computed again there (middle/partition). */
#ifndef MG_CHECKPOINT_H
#define MG_CHECKPOINT_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

/* A call of torch.utils.checkpoint.checkpoint.  False: its arguments ask for more, torch's own Python does
 * it; else *out is the result, NULL with an exception. */
bool mg_checkpoint_call(PyObject *const *arg, size_t nargsf, PyObject *kwnames, PyObject **out);
#endif
