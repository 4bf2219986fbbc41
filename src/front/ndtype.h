/* The object that stands for an array, and operations on it as ndarray.c does them. */
#ifndef MG_FRONT_NDTYPE_H
#define MG_FRONT_NDTYPE_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct MgArray {
  PyObject_HEAD
  PyObject *model;   /* a real array or scalar, strong */
  PyObject *tensor;  /* the stand-in with the values, strong */
} MgArray;

typedef struct MgArrayOp {
  PyObject *np;         /* what NumPy's half calls */
  PyObject **cache;     /* works on both halves: where to keep what graphs call */
  const char *method;   /* instead: this method of the first argument */
  uint32_t index;       /* else: number of NumPy's function */
  const char *name;     /* for messages */
  bool strong;          /* NumPy's scalars take part in the promotion of types */
} MgArrayOp;

PyObject *mg_array_new(PyObject *model, PyObject *tensor);
int mg_array_alive(void);                                  /* how many there are */
bool mg_array_is_class(PyTypeObject *t);                   /* numpy.ndarray itself? */
bool mg_array_find(PyObject *function, MgArrayOp *op); /* a function of NumPy that torch._numpy has, too */
PyObject *mg_array_apply(const MgArrayOp *op, PyObject *args, PyObject *kw); /* kw may be NULL */
#endif
