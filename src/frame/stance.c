/* The stance: a switch of the process that says whether compiled callables compile, and
 * whether they use what they have.
 * In: names from set_stance(); torch's own switch, read from its module whenever that module has changed.
 * Out: MgStance.  Everything with the GIL held. */
#include "frame/stance.h"
#include <limits.h>
#include <string.h>
#include "entry/guard/guard_set.h"
#include "host/python/pyobject.h"

static const struct {
  const char *name;
  MgStance stance;
} stance_names[] = {
    {"default", STANCE_default},
    {"force_eager", STANCE_force_eager},
    {"eager_on_recompile", STANCE_eager_on_recompile},
    {"fail_on_recompile", STANCE_fail_on_recompile},
    {"eager_then_compile", STANCE_eager_then_compile},
    {"aot_eager_then_compile", STANCE_eager_then_compile},
};

static MgStance stance_own, stance_torch;
static const char *stance_text = "default";
static PyObject *stance_backend; /* strong; NULL: none is forced */
static PyObject *stance_modules; /* sys.modules, borrowed from the interpreter */
static PyObject *stance_module;  /* dict of torch._dynamo.eval_frame, strong; NULL until it is imported */
static uint64_t stance_seen_modules, stance_seen; /* versions of both when they were last read */
static PyObject *stance_object;                   /* torch's, when its name was last read; strong */
static PyObject *stance_eval_frame, *stance_name; /* "torch._dynamo.eval_frame", "_stance" */

/* The row of a name, or -1. */
static int stance_find(const char *name) {
  for (size_t i = 0; i < sizeof stance_names / sizeof *stance_names; i++)
    if (!strcmp(stance_names[i].name, name)) return (int)i;
  return -1;
}

static void stance_read_torch(void) {
  PyObject *now = PyDict_GetItemWithError(stance_module, stance_name);
  if (now && now == stance_object) return; /* torch never changes one */
  Py_XSETREF(stance_object, Py_XNewRef(now));
  PyObject *text = now ? PyObject_GetAttrString(now, "stance") : NULL;
  const char *name = text && PyUnicode_Check(text) ? PyUnicode_AsUTF8(text) : NULL;
  int row = name ? stance_find(name) : -1;
  stance_torch = row < 0 ? STANCE_default : stance_names[row].stance;
  Py_XDECREF(text);
  mg_clear_as_no();
}

MgStance mg_stance(void) {
  if (!stance_module && !mg_dict_is_at(stance_modules, stance_seen_modules)) {
    stance_seen_modules = mg_dict_version(stance_modules);
    PyObject *m = PyDict_GetItemWithError(stance_modules, stance_eval_frame);
    if (m && PyModule_Check(m)) stance_module = Py_NewRef(PyModule_GetDict(m));
  }
  if (stance_module && !mg_dict_is_at(stance_module, stance_seen)) {
    stance_seen = mg_dict_version(stance_module);
    stance_read_torch();
  }
  return stance_own ? stance_own : stance_torch;
}

PyObject *mg_stance_backend(void) { return stance_backend; }

/* set_stance(name, backend=..., /): the previous name and, where one was forced, back end, as
 * arguments of another call. */
static PyObject *stance_set(PyObject *self, PyObject *args) {
  const char *name;
  PyObject *backend = NULL;
  if (!PyArg_ParseTuple(args, "s|O:set_stance", &name, &backend)) return NULL;
  int row = stance_find(name);
  if (row < 0) return PyErr_Format(PyExc_ValueError, "unknown stance '%s'", name);
  PyObject *before =
      stance_backend ? Py_BuildValue("(sO)", stance_text, stance_backend) : Py_BuildValue("(s)", stance_text);
  if (!before) return NULL;
  stance_own = stance_names[row].stance;
  stance_text = stance_names[row].name;
  Py_XINCREF(backend);
  Py_XSETREF(stance_backend, backend);
  return before;
}

static PyMethodDef stance_methods[] = {
    {"set_stance", stance_set, METH_VARARGS,
     "set_stance(name, backend=..., /): what compiled callables do from now on; the previous arguments."},
    {NULL, NULL, 0, NULL}};

int mg_stance_init(PyObject *module) {
  stance_modules = PyImport_GetModuleDict();
  stance_eval_frame = PyUnicode_InternFromString("torch._dynamo.eval_frame");
  stance_name = PyUnicode_InternFromString("_stance");
  PyObject *names = stance_eval_frame && stance_name ? PyList_New(0) : NULL;
  for (size_t i = 0; names && i < sizeof stance_names / sizeof *stance_names; i++) {
    PyObject *s = PyUnicode_FromString(stance_names[i].name);
    if (!s || PyList_Append(names, s)) Py_CLEAR(names);
    Py_XDECREF(s);
  }
  int rc = names ? PyModule_AddObjectRef(module, "stances", names) : -1;
  Py_XDECREF(names);
  return rc ? rc : PyModule_AddFunctions(module, stance_methods);
}
