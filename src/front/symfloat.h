/* Numbers that a recording computes with: floats and ints that differ from call to call (dynfloat.c says which), and those that
 * depend on values of tensors (symvalue.c).  User code sees an object like a float, int or bool.  Arithmetic is done by Python in
 * every run; answers to questions about the former are guarded.  PyTorch sees a torch.SymFloat or SymInt and
 * hands it to the dispatch mode, which turns it into a 0-dim tensor.  Whoever wants the number itself gets it, guarded by
 * equality, or ends the graph when it depends on the values of tensors. */
#ifndef MG_FRONT_SYMFLOAT_H
#define MG_FRONT_SYMFLOAT_H
#include "front/rec.h"

struct MgFrontOp;
int mg_symfloat_init(void);
bool mg_symfloat_is(PyObject *o);     /* ours, or a torch.SymFloat, SymInt or SymBool around one of ours */
bool mg_symfloat_is_bool(PyObject *o); /* such a truth value */
PyTypeObject *mg_symfloat_class(PyObject *o); /* float, int or bool, or NumPy's class of a number; borrowed */
bool mg_symfloat_is_numpy(PyObject *o);       /* such a number of one of NumPy's classes */
/* A float or int read from src, or a number of NumPy's. */
PyObject *mg_symfloat_input(PyObject *value, SrcRef src);
/* One that every run draws from a random generator (draw.h); value: drawn by the recording. */
PyObject *mg_symfloat_drawn(PyObject *value, SrcRef src);
/* The number itself, guarded, in place of such an object; anything else as it is.  New. */
PyObject *mg_symfloat_plain(PyObject *o);
/* An int beside a tensor, where torch would ask for the number: as a 0-dim tensor, when types are promoted as for a number.
 * 1: *a and *b are new references; 0: they stay; -1 with an exception. */
int mg_symfloat_operands(PyObject **a, PyObject **b);
/* f, a function of one number whose result depends on nothing else, of such a number; NULL without an exception: not computed by runs. */
PyObject *mg_symfloat_call(PyObject *o, PyObject *f);
/* Python's f of one such number (int, float, round, what module math has): computed by each run.  False: something else. */
bool mg_symfloat_apply(PyObject *f, PyObject *const *arg, Py_ssize_t n, PyObject **r);
/* A stand-in of its 0-dim value.  New. */
PyObject *mg_symfloat_standin(PyObject *o);
/* What C code gave back: a bare torch.SymFloat or SymInt becomes one of ours.  Steals o; NULL stays NULL. */
PyObject *mg_symfloat_dress(PyObject *o);
/* Does a call have such an argument where it takes a number, lists included? */
bool mg_symfloat_among(const struct MgFrontOp *fo, PyObject *args, PyObject *kwargs);
/* The call with tensors in their place. */
PyObject *mg_symfloat_dispatch(MgCapture *cap, const struct MgFrontOp *fo, PyObject *args, PyObject *kwargs);
/* A real tensor that holds the number: what a run gives the graph.  New. */
PyObject *mg_symfloat_tensor(PyObject *value);

/* dispatch.c: records a call of aten::<name>.<overload> ("default" is none). */
PyObject *mg_dispatch_call(MgCapture *cap, const char *name, const char *overload, PyObject *args, PyObject *kwargs);
#endif
