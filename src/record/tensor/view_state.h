/* What tensors are of each other beside memory: views and their bases, and version
 * counters.  See view_state.c. */
#ifndef MG_VIEW_STATE_H
#define MG_VIEW_STATE_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include "ir/graph/graph.h"

typedef struct MgCapInput MgCapInput;

typedef struct MgCapture MgCapture;
typedef struct MgRec MgRec;

/* ---- while recording: what the program is told of a stand-in; NULL with an exception or a break ---- */
PyObject *mg_viewstate_version(PyObject *standin); /* `_version` */
PyObject *mg_viewstate_base(PyObject *standin);    /* `_base` */
/* The recording ends: by how much it has moved the version counters of its inputs.  -1 with an exception. */
int mg_viewstate_take(MgCapture *cap);

/* ---- runs ---- */
typedef struct MgViewState MgViewState;
/* ---- what the program reads ---- */
const MgCapInput *mg_view_owner(const MgCapture *cap, ValRef v, int *n);
#endif
