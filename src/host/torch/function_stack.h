/* The stack of torch function modes. */
#ifndef MG_FUNCTION_STACK_H
#define MG_FUNCTION_STACK_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* torch._C.<name>(arg); arg NULL: no argument.  New. */
PyObject *mg_fmodes_call(const char *name, PyObject *arg);
/* For undoing: what failed for want of memory is tried again. */
void mg_fmodes_insist(const char *name, PyObject *arg);
PyObject *mg_fmodes_at(Py_ssize_t i); /* borrowed from torch's stack; NULL with an exception */
PyObject *mg_fmodes_off(void);    /* a context without modes and subclasses, entered: see mg_context_exit */
PyObject *mg_fmodes_only(void);   /* the same without subclasses: modes are active */
Py_ssize_t mg_fmodes_depth(void); /* of torch's stack, ours included */
void mg_fmodes_leave(void);       /* takes all from the stack, until mg_fmodes_restore */
#endif
