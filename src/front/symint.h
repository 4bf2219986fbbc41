/* Integers that differ from call to call (dynfloat.c says which): 0-dim int64 inputs of the graph.  User code sees an object like an
 * int; it is no torch.SymInt: tensor arithmetic gets a 0-dim tensor in its place, every other C code that wants an int gets the
 * number, guarded by equality. */
#ifndef MG_FRONT_SYMINT_H
#define MG_FRONT_SYMINT_H
#include "front/rec.h"

int mg_symint_init(void);
bool mg_symint_is(PyObject *o);
/* An int read from src, within +-2^31: an input of the graph. */
PyObject *mg_symint_input(PyObject *value, SrcRef src);
/* May the int be an input?  Too large ones stay constants. */
bool mg_symint_fits(PyObject *value);
/* Operands of a binary operator or comparison (op: CPython's NB_* number; negative: a comparison), one of which may be a stand-in: *a and *b are
 * replaced by new references when this returns 1; 0: nothing to do; -1 with an exception. */
int mg_symint_operands(int op, PyObject **a, PyObject **b);
/* A subscript of a stand-in, with numbers in place of such ints; new. */
PyObject *mg_symint_key(PyObject *key);
/* A value that is stored into a stand-in; new. */
PyObject *mg_symint_value(PyObject *v);
/* Arguments for a C function: a new tuple, or NULL when they can stay (or with an exception). */
PyObject *mg_symint_args(PyObject *f, PyObject *const *arg, Py_ssize_t n);
#endif
