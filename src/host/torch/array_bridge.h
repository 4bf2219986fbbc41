/* Tensors out of NumPy arrays and numbers, and back. */
#ifndef MG_ARRAY_BRIDGE_H
#define MG_ARRAY_BRIDGE_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

extern PyTypeObject *mg_nd_array, *nd_generic;
/* A real array or scalar from a real tensor: the end of a run.  New. */
typedef enum MgArrayKind { ARRAY_plain, ARRAY_scalar, ARRAY_readonly } MgArrayKind;
/* A real tensor over the memory of a real array: the start of a run.  New. */
PyObject *mg_array_to_tensor(PyObject *array);
PyObject *mg_array_from_tensor(PyObject *tensor, MgArrayKind kind);
/* A real tensor that holds the number: what a run gives the graph.  New. */
PyObject *mg_symfloat_tensor(PyObject *value);
MgArrayKind mg_array_kind(PyObject *o);
bool mg_array_is_class(PyTypeObject *t); /* numpy.ndarray itself? */
bool mg_array_is_scalar(PyObject *o);    /* a NumPy scalar, not an array */
/* What a run reads out of a tensor: element number `at`.  New. */
PyObject *mg_symvalue_read(PyObject *tensor, uint32_t at);
PyObject *mg_symvalue_size(PyObject *tensor, int dim); /* a size of it; new */
typedef struct MgArray {
  PyObject_HEAD PyObject *model; /* a real array or scalar, strong */
  PyObject *tensor;              /* the stand-in with the values, strong */
} MgArray;
#endif
