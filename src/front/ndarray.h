/* NumPy arrays while recording.  What the recording sees in place of an array is an object with two halves: a model, which is a
 * real NumPy array (or scalar) of the same dtype, shape and strides with values of no meaning, and a stand-in tensor that
 * shares the array's memory.  Every operation is done twice: NumPy does it on the models, and says what comes out (an array or
 * a scalar, dtype, shape, a view or a copy, an exception); torch._numpy does it on the tensors, and so it becomes part of the
 * graph.  Where the two disagree about anything but values, the graph breaks. */
#ifndef MG_FRONT_NDARRAY_H
#define MG_FRONT_NDARRAY_H
#include "front/record_obj.h"

int mg_array_init(void);
/* Before a recording: numpy may have been imported since the last one.  -1 with an exception. */
int mg_array_begin(void);
bool mg_array_check(PyObject *o);
bool mg_array_function(PyObject *o);    /* a function of NumPy that is recorded */
PyObject *mg_array_model(PyObject *o);  /* borrowed */
PyObject *mg_array_tensor(PyObject *o); /* borrowed: the stand-in */
bool mg_array_is_scalar(PyObject *o);   /* a NumPy scalar, not an array */
/* An older array, or one that each run draws (draw.h): a graph input.  NULL with an exception, or without one: of a kind that no tensor can share memory with. */
PyObject *mg_array_wrap(PyObject *array, SrcRef src);
/* What tensor.numpy() gives for a stand-in. */
PyObject *mg_array_of_tensor(PyObject *standin, bool force);
PyObject *mg_array_getattr(PyObject *o, PyObject *name);
/* Calls that concern arrays: functions of NumPy, methods of its classes, functions of torch that are given arrays.
 * 1: *out is the result, or NULL with an exception; 0: not such a call. */
int mg_array_call(const MgCall *c, PyObject **out);
/* o with the stand-ins of the arrays in it: an index of a tensor.  New. */
PyObject *mg_array_index(PyObject *o);
/* A method of an array that has been looked up (x.sum): what it is made of, borrowed.  False: o is none. */
bool mg_array_method_parts(PyObject *o, PyObject **self, PyObject **name);
/* A real array or scalar from a real tensor: the end of a run.  New. */
typedef enum MgArrayKind { ARRAY_plain, ARRAY_scalar, ARRAY_readonly } MgArrayKind;
MgArrayKind mg_array_kind(PyObject *o);
PyObject *mg_array_from_tensor(PyObject *tensor, MgArrayKind kind);
/* A real tensor over the memory of a real array: the start of a run.  New. */
PyObject *mg_array_to_tensor(PyObject *array);
#endif
