/* Python objects for tensors that C++ made. */
#ifndef MG_TENSOR_WRAP_H
#define MG_TENSOR_WRAP_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include "runtime/process/torch_abi.h"

/* Tensors across the border.  Both need mg_abi.tensor_offset (mg_tensor_init). */
PyObject *mg_tensor_wrap(MgTensor *t); /* steals t; new reference; NULL with an exception */
/* Loads the ABI and checks the layout of tensors once.  -1 with an exception. */
int mg_tensor_init(void);
#endif
