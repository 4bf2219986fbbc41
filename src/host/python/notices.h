/* Notices (base/notice) as Python warnings, and the variables of the environment as Python sees them. */
#ifndef MG_NOTICES_H
#define MG_NOTICES_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>

int mg_notices_warn(
    void); /* a RuntimeWarning for each that waits; -1 with an exception if warnings are errors */
void mg_notices_tell(void); /* the same where no exception may leave: it goes to sys.unraisablehook */
int mg_notices_init(PyObject *module);
#endif
