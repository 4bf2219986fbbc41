/* Switches of torch that Python sets through functions of torch._C: the attention back ends, mkldnn and cudnn
 * flags, determinism, the default dtype, saved-tensor hooks.  They are set for real while recording, since
 * they steer which ops arrive; undone when it ends; and replayed by the snapshot when the
 * segment leaves them changed. */
#ifndef MG_TORCH_SWITCHES_H
#define MG_TORCH_SWITCHES_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

typedef struct MgRec MgRec;

/* Calls the setter f, keeping the value from before.  New reference; NULL with an exception or break. */
PyObject *mg_setting_call(PyObject *f, PyObject *const *args, size_t nargsf, PyObject *kwnames);
/* Calls a function that reads a switch; the answer is guarded. */
PyObject *mg_setting_read(PyObject *f, PyObject *const *args, size_t nargsf, PyObject *kwnames);
/* Enters (how = 1) or leaves (-1) a level of forward-mode differentiation. */
PyObject *mg_setting_dual(PyObject *f, PyObject *const *args, size_t nargsf, PyObject *kwnames, int how);
/* Enters or leaves ctx, a torch._C._InferenceMode or a torch.device; f is its method.  A break
 * for other contexts of torch. */
PyObject *mg_setting_context(PyObject *f, PyObject *ctx, PyObject *const *args, size_t nargsf, bool enter);
/* What the segment leaves changed: a list of (setter, arguments), NULL when nothing.  -1 with a break: it
 * cannot be replayed. */
int mg_setting_changes(MgRec *r, PyObject **list);
void mg_setting_undo(MgRec *r); /* back to the values at the start; forgets them */
#endif
