/* torch's higher-order operators (cond, scan ...) in a recording. */
#ifndef MG_FRONT_HIGHER_H
#define MG_FRONT_HIGHER_H
#include "front/record_obj.h"

/* A call of an instance of torch._ops.HigherOrderOperator.  False: not one that is done here. */
bool mg_higher_call(const MgCall *c, PyObject **out);
int mg_higher_init(PyObject *module);
#endif
