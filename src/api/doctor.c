/* What was found on this machine: the facts that `python -m magneto.doctor` prints.
 * In: nothing.  Out: one dict; loading the libraries is part of finding out. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include "runtime/code/load_llvm.h"
#include "runtime/engine/onednn.h"
#include "runtime/process/cpu.h"
#include "runtime/process/profile.h"
#include "runtime/process/torch_abi.h"

/* Adds text under key; NULL is None. */
static int machine_put(PyObject *d, const char *key, const char *text) {
  PyObject *v = text ? PyUnicode_FromString(text) : Py_NewRef(Py_None);
  int rc = v ? PyDict_SetItemString(d, key, v) : -1;
  Py_XDECREF(v);
  return rc;
}

static PyObject *machine_facts(PyObject *self, PyObject *arg) {
  const char *onednn_path = arg == Py_None ? NULL : PyUnicode_AsUTF8(arg);
  if (arg != Py_None && !onednn_path) return NULL;
  const char *abi = mg_abi_load(), *llvm = mg_llvm_open(), *onednn = mg_onednn_load(onednn_path);
  uint32_t threads = 1;
  if (mg_abi.torch_get_num_threads) mg_abi.torch_get_num_threads(&threads);
  PyObject *d = Py_BuildValue(
      "{s:i,s:I,s:O,s:O,s:O,s:O}", "vector_bytes", llvm ? 0 : mg_cpu()->vector_bits / 8, "threads",
      (unsigned)threads, "openmp", mg_abi.gomp_parallel ? Py_True : Py_False, "tensor_layout",
      mg_abi.tensor_offset ? Py_True : Py_False, "wrap", mg_abi.thpvariable_wrap ? Py_True : Py_False,
      "profiler", mg_profile_works() ? Py_True : Py_False);
  if (!d) return NULL;
  if (machine_put(d, "abi_error", abi) || machine_put(d, "llvm_error", llvm) ||
      machine_put(d, "onednn_error", onednn) ||
      machine_put(d, "llvm_library", llvm ? NULL : mg_llvm_library()) ||
      machine_put(d, "cpu", llvm ? NULL : mg_llvm_cpu()) || machine_put(d, "cpu_cap", mg_cpu_cap()) ||
      machine_put(d, "cpu_host", mg_cpu_host()))
    Py_CLEAR(d);
  return d;
}

static PyMethodDef machine_methods[] = {
    {"machine", machine_facts, METH_O, "machine(onednn_path): what was found on this machine, as a dict."},
    {NULL, NULL, 0, NULL}};

int mg_machine_init(PyObject *module) { return PyModule_AddFunctions(module, machine_methods); }
