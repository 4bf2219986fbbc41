/* The extension of builds for interpreters that magneto does not know.  It is empty, and is never imported.
 */
#include <Python.h>

static struct PyModuleDef no_core_def = {PyModuleDef_HEAD_INIT, "_no_core", NULL, 0, NULL};

PyMODINIT_FUNC PyInit__no_core(void) { return PyModuleDef_Init(&no_core_def); }
