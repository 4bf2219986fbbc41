/* What small tensors of integers hold.  A program that takes a number out of one (a length, the index of an
 * expert) is recorded with that number, and its guard compares all numbers of the tensor. */
#ifndef MG_TENSOR_CONTENTS_H
#define MG_TENSOR_CONTENTS_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct MgGuards MgGuards;

/* The numbers of a CPU tensor of integers or booleans, in order of its elements: a new tuple.  NULL without
 * an exception: another kind of tensor, or more than MG_TUNE_CONTENT_ELEMENTS of them. */
PyObject *mg_contents_of(PyObject *tensor);
/* The guard's check: does the tensor hold these numbers? */
bool mg_contents_hold(PyObject *tensor, PyObject *want);
/* How many numbers of tensors do the guards compare? */
uint32_t mg_contents_guarded(const MgGuards *g);
#endif
