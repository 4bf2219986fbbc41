/* Parts that attributes.c, call.c, c_builtins.c and items.c share. */
#ifndef MG_CALL_ARGS_H
#define MG_CALL_ARGS_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

/* One call as the vectorcall protocol has it. */
typedef struct MgCall {
  PyObject *f;
  PyObject *const *arg; /* positional, then keyword values */
  size_t nargsf;
  PyObject *kwnames;
  Py_ssize_t npos, n; /* positional arguments; all arguments */
  bool tail;          /* the result is that of the call instruction of the frame that is recorded */
} MgCall;
PyObject *mg_call_plain(const MgCall *c);
PyObject *mg_call_unknown(const MgCall *c); /* a break that names the function */
PyObject *mg_call_args(const MgCall *c);    /* c_builtins.c: the positional arguments as a tuple; new */
PyObject *mg_call_kwargs(const MgCall *c);  /* the keyword arguments as a dict; new */
bool mg_call_has_standin(const MgCall *c);
bool mg_call_by_torch(void); /* is it torch's Python that calls? */
#endif
