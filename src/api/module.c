/* The Python module _magneto: collects what the files of front/ and api/ offer.
 * Each entry of the table adds its own functions and types to the module. */
#include "api/module.h"

static int (*const module_parts[])(PyObject *module) = {
  NULL
};

static int module_exec(PyObject *m) {
  for (size_t i = 0; module_parts[i]; i++)
    if (module_parts[i](m) < 0) return -1;
  return 0;
}

static PyModuleDef_Slot module_slots[] = {{Py_mod_exec, module_exec}, {0, NULL}};
static struct PyModuleDef module_def = {
  PyModuleDef_HEAD_INIT, .m_name = "magneto._magneto", .m_doc = "The compiler, in C.", .m_slots = module_slots};

PyMODINIT_FUNC PyInit__magneto(void) { return PyModuleDef_Init(&module_def); }
