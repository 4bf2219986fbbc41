/* Flags of torch._dynamo that programs set, where they have imported it. */
#include "host/python/dynamo_config.h"
#include "host/python/hook_mode.h"
#include "host/python/names.h"
#include "host/python/pyobject.h"
#include "tuning.h"

void mg_raise_dynamo_error(const char *name, const char *format, ...) {
  PyObject *m = PyDict_GetItemString(PyImport_GetModuleDict(), "torch._dynamo.exc");
  PyObject *error = m ? PyObject_GetAttrString(m, name) : NULL;
  mg_clear_as_no();
  va_list ap;
  va_start(ap, format);
  PyErr_FormatV(error ? error : PyExc_RuntimeError, format, ap);
  va_end(ap);
  Py_XDECREF(error);
  /* Its __init__ is Python, and no part of the program. */
  MgHookMode mode = mg_hook_mode;
  mg_hook_mode = HOOK_off;
  PyObject *t, *v, *tb;
  PyErr_Fetch(&t, &v, &tb);
  PyErr_NormalizeException(&t, &v, &tb);
  PyErr_Restore(t, v, tb);
  mg_hook_mode = mode;
}

PyObject *mg_rec_dynamo_config(const char *name) {
  MgPause pause = mg_rec_pause();
  PyObject *m = PyImport_GetModule(mg_names.dynamo_config), *v = m ? PyObject_GetAttrString(m, name) : NULL;
  Py_XDECREF(m);
  mg_clear_as_no();
  mg_rec_resume(pause);
  return v;
}

int mg_stance_recompile_limit(int given, bool *exact) {
  PyObject *set = given ? NULL : mg_rec_dynamo_config("recompile_limit");
  long n = set && PyLong_Check(set) ? PyLong_AsLong(set) : -1;
  Py_XDECREF(set);
  mg_clear_as_no();
  *exact = given || (n >= 0 && n != MG_TUNE_RECOMPILE_LIMIT && n <= INT_MAX);
  return given ? given : *exact ? (int)n : MG_TUNE_RECOMPILE_LIMIT;
}

bool mg_stance_set(const char *name) {
  PyObject *set = mg_rec_dynamo_config(name);
  bool yes = set == Py_True;
  Py_XDECREF(set);
  return yes;
}
