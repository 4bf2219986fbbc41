/* Numbers that depend on the values of tensors: `.item()`, items of `.tolist()`, int(t), float(t), bool(t),
 * and what the program computes from them.  The graph gives the values of the tensors; the rest is computed
 * by Python at the end of a run, exactly as the program would, or by the graph where an op needs it.  Only
 * operations that never raise and always give the same class stay; whatever else asks for
 * the number ends the graph. */
#ifndef MG_ITEM_NUMBERS_H
#define MG_ITEM_NUMBERS_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include "ir/graph/graph.h"

typedef struct MgCapture MgCapture;
typedef struct MgSymNode MgSymNode;

/* May the numbers in the tensor stay in the graph of this recording? */
bool mg_symvalue_can(MgCapture *cap, PyObject *tensor);
/* The number in a tensor of one element; new. */
PyObject *mg_symvalue_item(MgCapture *cap, PyObject *tensor);
/* t.tolist(); new. */
PyObject *mg_symvalue_list(MgCapture *cap, PyObject *tensor);
/* a op b (x, y: their nodes, NULL for constants; b NULL for one operand).  New; NULL without an exception
 * when only the numbers themselves can tell. */
PyObject *mg_symvalue_compute(int calc, MgSymNode *x, PyObject *a, MgSymNode *y, PyObject *b);
/* 1 for math.isfinite, -1 for math.isnan and math.isinf: they take any number and
 * never raise; 0 for others. */
int mg_symvalue_asks(PyObject *f);
/* f(x), f being one of them; new. */
PyObject *mg_symvalue_ask(MgSymNode *x, PyObject *f);
/* Its 0-dim value in the graph; 0 with an exception. */
ValRef mg_symvalue_lower(MgSymNode *n);
/* bool(o), int(o), float(o), min(a, b), max(a, b): true when *r is the result. */
bool mg_symvalue_convert(PyObject *f, PyObject *const *arg, Py_ssize_t n, PyObject **r);
/* torch._check_with(error, condition, message) where the condition is such a number:
 * checked at the end of each run. */
bool mg_symvalue_check(PyObject *const *arg, Py_ssize_t n);
#endif
