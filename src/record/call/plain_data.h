/* C functions whose result depends on values alone where what they get is plain data. */
#ifndef MG_PLAIN_DATA_H
#define MG_PLAIN_DATA_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>

typedef struct MgCall MgCall;

/* Calls such a function on numbers, strings and containers of them; a graph break for anything else. */
PyObject *mg_call_plain_data(const MgCall *c);
#endif
