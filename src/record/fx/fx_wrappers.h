/* Tensors that wrap others, and objects with fields, in the torch-level graph. */
#ifndef MG_FX_WRAPPERS_H
#define MG_FX_WRAPPERS_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include "host/python/hook_mode.h"
#include "ir/graph/graph.h"

typedef struct MgCapture MgCapture;

/* ---- glue: the class's own Python, unrecorded, without torch_function ---- */

typedef struct Glue {
  MgPause pause;
  PyObject *off;
} Glue;
PyObject *mg_wrapper_dict(PyObject *o);
bool mg_wrapper_enter(Glue *g);
PyObject *mg_wrapper_leave(Glue *g, PyObject *r);
/* ---- values of the torch-level graph ---- */
ValRef mg_wrapper_remember(MgCapture *cap, PyObject *o, ValRef val);
/* The value that stands for one in the torch-level graph; 0 with an exception. */
ValRef mg_wrapper_val(MgCapture *cap, PyObject *o);
bool mg_wrapper_made(PyObject *o); /* by the recording: of stand-ins */
/* A size of a jagged dimension (torch.SymInt)?  The tensor of the recording that has it, borrowed,
 * and its dimension; NULL: no. */
PyObject *mg_wrapper_with_size(MgCapture *cap, PyObject *number, Py_ssize_t *dim);
bool mg_wrapper_class(PyTypeObject *t); /* such a class? */
/* The value that stands for a wrapper in the FX graph; 0: o is none, or with an exception. */
ValRef mg_fxfunc_val(MgCapture *cap, PyObject *o);
/* The fields of a frozen dataclass instance by name, with which its class would make it again: a new dict;
 * NULL without an exception when o is something else. */
PyObject *mg_marked_fields(PyObject *o);
#endif
