/* Python objects for tensors that C++ made. */
#include "host/torch/tensor_wrap.h"
#include <execinfo.h>
#include "runtime/process/cxxcall.h"

/* ---- tensors across the border ---- */

/* Loads what glibc loads when a thread ends or a backtrace is asked for: out of memory,
 * that would end the process. */
static void tensor_load_unwinder(void) {
  void *frame[1];
  backtrace(frame, 1); /* loads libgcc_s */
}

int mg_tensor_init(void) {
  const char *why = mg_abi_load();
  MgTensor *t = NULL;
  PyObject *o = NULL;
  if (mg_abi.tensor_offset) return 0;
  tensor_load_unwinder();
  if (!why && !mg_abi.thpvariable_wrap) why = "this torch does not export THPVariable_Wrap";
  if (!why && !(t = mg_abi_selftest_tensor())) why = "torch could not make a tensor";
  if (!why && (o = mg_abi.thpvariable_wrap(t))) why = mg_abi_selftest(o, t, sizeof(PyObject));
  if (t) mg_abi.aoti_torch_delete_tensor_object(t);
  Py_XDECREF(o);
  if (mg_abi.tensor_offset) return mg_cxxcall_init(), 0;
  if (!PyErr_Occurred()) PyErr_Format(PyExc_ImportError, "magneto: %s", why ? why : "self-test failed");
  return -1;
}

PyObject *mg_tensor_wrap(MgTensor *t) {
  PyObject *o = mg_abi.thpvariable_wrap(t);
  mg_abi.aoti_torch_delete_tensor_object(t);
  return o;
}
