/* The parts of the Python module _magneto.  A file that offers something to Python defines
 * `int mg_<file>_init(PyObject *module)` (0, or -1 with an exception) and is listed in module.c. */
#ifndef MG_MODULE_H
#define MG_MODULE_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#define MODULE_PART(file) int mg_##file##_init(PyObject *module);
#include "api/parts.def"
#endif
