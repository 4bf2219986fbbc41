/* What an FX graph says beside its calls: source lines, names of parameters, what every
 * tensor is (magneto/_backends/fx_meta.py). */
#ifndef MG_FX_META_H
#define MG_FX_META_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>

typedef struct MgRec MgRec;

/* The user's frames that are being recorded, for the node that is made now; None when no frame is.  New. */
PyObject *mg_fxmeta_frames(MgRec *r);
/* Completes the nodes.  val and where: lists parallel to nodes: the graph value of a node or None, and its
 * frames; inputs: dict of placeholder -> real tensor.  -1 with an exception. */
int mg_fxmeta_finish(MgRec *r, PyObject *nodes, PyObject *val, PyObject *where, PyObject *inputs);
#endif
