/* Numbers that a graph computes with: floats that differ from call to call (dynfloat.c says which), and `.item()` of floating
 * tensors.  User code sees an object like a float; PyTorch sees a torch.SymFloat and hands it to the dispatch mode, which turns
 * it into a 0-dim float64 tensor.  Whoever wants the number itself gets it, guarded by equality, or ends the graph when it
 * depends on the values of tensors. */
#ifndef MG_FRONT_SYMFLOAT_H
#define MG_FRONT_SYMFLOAT_H
#include "front/rec.h"

struct MgFrontOp;
int mg_symfloat_init(void);
bool mg_symfloat_is(PyObject *o);     /* ours, or a torch.SymFloat around one of ours */
/* A float, or an int that fits (symint.h), read from src: an input of the graph. */
PyObject *mg_symfloat_input(PyObject *value, SrcRef src);
/* The number in a 0-dim float64 value of the graph. */
PyObject *mg_symfloat_item(MgCapture *cap, ValRef val);
/* The number itself, guarded, in place of such an object; anything else as it is.  New. */
PyObject *mg_symfloat_plain(PyObject *o);
/* What C code gave back: a bare torch.SymFloat becomes one of ours.  Steals o; NULL stays NULL. */
PyObject *mg_symfloat_dress(PyObject *o);
/* Where it is found at the end: 1 and *src (a source's own value), 0 and *val (computed by the graph). */
int mg_symfloat_origin(PyObject *o, SrcRef *src, ValRef *val);
/* Does a call have such an argument, lists included? */
bool mg_symfloat_among(PyObject *args, PyObject *kwargs);
/* The call with tensors in their place. */
PyObject *mg_symfloat_dispatch(MgCapture *cap, const struct MgFrontOp *fo, PyObject *args, PyObject *kwargs);
/* A real tensor that holds the number: what a run gives the graph.  New. */
PyObject *mg_symfloat_tensor(PyObject *value);
PyObject *mg_symfloat_read(PyObject *tensor); /* the number in a 0-dim float64 or int64 tensor on the CPU; new */

/* dispatch.c: records a call of aten::<name>.<overload> ("default" is none). */
PyObject *mg_dispatch_call(MgCapture *cap, const char *name, const char *overload, PyObject *args, PyObject *kwargs);
#endif
