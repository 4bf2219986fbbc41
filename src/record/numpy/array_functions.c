/* NumPy's functions that can be recorded (numpy.def), and what graphs call in their place.
 * In: the imported module numpy.  Out: a table from function to magneto._glue.array_calls.ArrayCall, made
 * when it is first asked for. */
#include "record/numpy/array_functions.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/table.h"
#include "host/python/glue.h"
#include "host/python/names.h"
#include "host/python/pyobject.h"
#include "host/torch/array_bridge.h"
#include "host/torch/array_header.h"
#include "record/numpy/array_type.h"

static MgMap nd_function;  /* function of NumPy -> index into nd_twin; all of them strong */
static PyObject **nd_twin; /* what graphs call, strong; NULL: not made yet */
static uint32_t nd_count;
static const char **nd_name; /* "linalg.norm" */
MgArrayNumpy mg_array_numpy;

static int nd_add(PyObject *f, const char *module, const char *name, int len) {
  static uint32_t room;
  if (mg_map_getp(&nd_function, f) != MG_MAP_NONE) return 0;
  if (nd_count == room) {
    uint32_t more = room ? 2 * room : 256;
    PyObject **twin = mg_realloc(nd_twin, more * sizeof *twin);
    if (twin) nd_twin = twin;
    const char **names = mg_realloc(nd_name, more * sizeof *names);
    if (names) nd_name = names;
    if (!twin || !names) return PyErr_NoMemory(), -1;
    room = more;
  }
  char *text = mg_malloc(strlen(module) + (size_t)len + 2);
  if (!text || mg_map_putp(&nd_function, f, nd_count) != MG_OK) {
    free(text);
    return PyErr_NoMemory(), -1;
  }
  const char *sub = module + strlen("numpy");
  sprintf(text, "%s%s%.*s", *sub ? sub + 1 : "", *sub ? "." : "", len, name);
  nd_name[nd_count] = text;
  nd_twin[nd_count++] = NULL;
  Py_INCREF(f);
  return 0;
}

static int nd_add_module(const char *module, const char *names) {
  PyObject *m = mg_import(module);
  int rc = m ? 0 : -1;
  for (const char *p = names; !rc && *p; p += *p == ' ') {
    int len = (int)strcspn(p, " ");
    char name[64];
    snprintf(name, sizeof name, "%.*s", len, p);
    PyObject *f = PyObject_GetAttrString(m, name);
    if (f) rc = nd_add(f, module, p, len);
    else PyErr_Clear(); /* of another version of NumPy */
    Py_XDECREF(f);
    p += len;
  }
  Py_XDECREF(m);
  return rc;
}

/* numpy.geterr, or, of NumPy 2, the function in C below it.  New. */
static PyObject *nd_find_errors(PyObject *np) {
  PyObject *m = mg_import("numpy._core.umath"), *f = m ? PyObject_GetAttrString(m, "_get_extobj_dict") : NULL;
  mg_clear_as_no();
  Py_XDECREF(m);
  return f ? f : PyObject_GetAttrString(np, "geterr");
}

int mg_array_begin(void) {
  static const struct {
    const char *module, *names;
  } rows[] = {
#define NUMPY(module, names) {module, names},
#include "record/numpy/numpy.def"
  };
  static bool busy; /* imports let other threads run: until this one is done, they do not know arrays */
  if (mg_array_numpy.ufunc || busy) return 0;
  PyObject *name = PyUnicode_FromString("numpy"), *np = name ? PyImport_GetModule(name) : NULL;
  int rc = np || !PyErr_Occurred() ? 0 : -1;
  Py_XDECREF(name);
  if (!np) return rc;
  busy = true;
  mg_nd_array = (PyTypeObject *)PyObject_GetAttrString(np, "ndarray");
  nd_generic = (PyTypeObject *)PyObject_GetAttrString(np, "generic");
  mg_array_numpy.errstate = PyObject_GetAttrString(np, "errstate");
  for (size_t i = 0; mg_array_numpy.errstate && !rc && i < sizeof rows / sizeof *rows; i++)
    rc = nd_add_module(rows[i].module, rows[i].names);
  if (!rc) mg_nd_init(np);
  if (!rc && !(mg_array_numpy.errors = nd_find_errors(np))) rc = -1;
  if (!rc && mg_nd_array && nd_generic && mg_array_numpy.errstate)
    mg_array_numpy.ufunc = PyObject_GetAttrString(np, "ufunc");
  Py_DECREF(np);
  busy = false;
  return mg_array_numpy.ufunc ? 0 : -1;
}

/* A new magneto._glue.array_calls.ArrayCall. */
static PyObject *nd_new_call(PyObject *what) {
  PyObject *m = mg_glue(GLUE_array_calls),
           *r = m && what ? PyObject_CallMethod(m, "ArrayCall", "O", what) : NULL;
  Py_XDECREF(m);
  return r;
}

PyObject *mg_array_twin(const MgArrayOp *op) {
  PyObject *name, *r;
  if (op->np && op->cache) {
    if (!*op->cache) *op->cache = nd_new_call(op->np);
    return Py_XNewRef(*op->cache);
  }
  if (!op->method && nd_twin[op->index]) return Py_NewRef(nd_twin[op->index]);
  name = op->method ? PyUnicode_FromFormat(".%s", op->method) : PyUnicode_FromString(nd_name[op->index]);
  r = nd_new_call(name);
  Py_XDECREF(name);
  if (r && !op->method) nd_twin[op->index] = Py_NewRef(r);
  return r;
}

bool mg_array_find(PyObject *f, MgArrayOp *op) {
  uint32_t i = mg_array_numpy.ufunc ? mg_map_getp(&nd_function, f) : MG_MAP_NONE;
  if (i == MG_MAP_NONE) return false;
  *op = (MgArrayOp){
      .np = f, .index = i, .name = nd_name[i], .strong = (PyObject *)Py_TYPE(f) == mg_array_numpy.ufunc};
  return true;
}

bool mg_array_function(PyObject *o) {
  return mg_array_numpy.ufunc && mg_map_getp(&nd_function, o) != MG_MAP_NONE;
}
