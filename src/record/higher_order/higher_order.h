/* torch's higher-order operators (cond, scan ...) in a recording. */
#ifndef MG_HIGHER_ORDER_H
#define MG_HIGHER_ORDER_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

typedef struct MgCall MgCall;

/* A call of an instance of torch._ops.HigherOrderOperator.  False: not one that is done here. */
bool mg_higher_call(const MgCall *c, PyObject **out);
/* A call of torch.cond, whose Python must not be recorded: it calls the operator in another way when a
 * compiler is at work, and a break would leave that to eager. */
bool mg_higher_cond(PyObject *const *arg, size_t nargsf, PyObject *kwnames, PyObject **out);
/* A call of what torch.compiler.nested_compile_region puts around a function. */
bool mg_higher_nested(PyObject *const *arg, size_t nargsf, PyObject *kwnames, PyObject **out);
#endif
