/* The object that stands for an array, and operations on it as array_ops.c does them. */
#ifndef MG_ARRAY_TYPE_H
#define MG_ARRAY_TYPE_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct MgArrayOp {
  PyObject *np;       /* what NumPy's half calls */
  PyObject **cache;   /* works on both halves: where to keep what graphs call */
  const char *method; /* instead: this method of the first argument */
  uint32_t index;     /* else: number of NumPy's function */
  const char *name;   /* for messages */
  bool strong;        /* NumPy's scalars take part in the promotion of types */
} MgArrayOp;

PyObject *mg_array_new(PyObject *model, PyObject *tensor);
int mg_array_alive(void); /* how many there are */
bool mg_array_check(PyObject *o);
PyObject *mg_array_getattr(PyObject *o, PyObject *name);
int mg_array_init(void);
/* A method of an array that has been looked up (x.sum): what it is made of, borrowed.  False: o is none. */
bool mg_array_method_parts(PyObject *o, PyObject **self, PyObject **name);
PyObject *mg_array_model(PyObject *o);  /* borrowed */
PyObject *mg_array_tensor(PyObject *o); /* borrowed: the stand-in */
#endif
