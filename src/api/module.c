/* PyInit__magneto: creates the module and lets every part register itself.  Holds no state of its own. */
#include "api/module.h"
#include "base/env.h"
#include "base/log.h"
#include "host/python/notices.h"
#include "runtime/process/measure.h"

static int (*const module_parts[])(PyObject *) = {
#define MODULE_PART(file) mg_##file##_init,
#include "api/parts.def"
};

static PyObject *module_set_logs(PyObject *self, PyObject *arg) {
  const char *spec = PyUnicode_AsUTF8(arg);
  if (!spec) return NULL;
  const char *bad = mg_log_set(spec);
  if (bad) return PyErr_Format(PyExc_ValueError, "unknown log channel in %R, at \"%s\"", arg, bad);
  Py_RETURN_NONE;
}

static PyMethodDef module_methods[] = {
    {"set_logs", module_set_logs, METH_O, "Replaces the set of log channels (as MAGNETO_LOGS does)."},
    {NULL, NULL, 0, NULL}};

static struct PyModuleDef module_def = {PyModuleDef_HEAD_INIT, "magneto._magneto", "The C core of magneto.",
                                        -1, module_methods};

PyMODINIT_FUNC PyInit__magneto(void) {
  PyObject *m = PyModule_Create(&module_def);
  if (!m) return NULL;
  for (size_t i = 0; i < sizeof module_parts / sizeof *module_parts; i++)
    if (module_parts[i](m)) {
      Py_DECREF(m);
      return NULL;
    }
  /* A wrong value in the environment must not make the import fail: it is
   * reported, and the default is used. */
  mg_log_set(mg_env(ENV_LOGS));
  mg_env_check();
  if (mg_env(ENV_REPORT)) mg_measure_start();
  if (mg_notices_warn()) Py_CLEAR(m);
  return m;
}
