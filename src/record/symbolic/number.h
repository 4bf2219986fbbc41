/* Numbers that a recording computes with: floats and ints that differ from call to call (automatic_dynamic.c
 * says which), and those that depend on values of tensors (item_numbers.c).  User code sees an object like a
 * float, int or bool.  Arithmetic is done by Python in every run; answers to questions about the former are
 * guarded.  PyTorch sees a torch.SymFloat or SymInt and hands it to the dispatch mode, which turns it into a
 * 0-dim tensor.  Whoever wants the number itself gets it, guarded by equality, or ends the graph when it
 * depends on the values of tensors. */
#ifndef MG_NUMBER_H
#define MG_NUMBER_H
#include "entry/guard/source_kinds.h"
#include "ir/graph/graph.h"

typedef struct MgCapture MgCapture;
typedef struct MgSymNode MgSymNode;

struct MgFrontOp;
int mg_symfloat_init(void);
bool mg_symfloat_is(PyObject *o);      /* ours, or a torch.SymFloat, SymInt or SymBool around one of ours */
bool mg_symfloat_is_bool(PyObject *o); /* such a truth value */
PyTypeObject *mg_symfloat_class(PyObject *o); /* float, int or bool, or NumPy's class of a number; borrowed */
bool mg_symfloat_is_numpy(PyObject *o);       /* such a number of one of NumPy's classes */
/* A float or int read from src, or a number of NumPy's. */
PyObject *mg_symfloat_input(PyObject *value, SrcRef src);
/* One that every run draws from a random generator (host_random.h); value: drawn by the recording. */
PyObject *mg_symfloat_drawn(PyObject *value, SrcRef src);
/* The number itself, guarded, in place of such an object; anything else as it is.  New. */
PyObject *mg_symfloat_plain(PyObject *o);
/* f, a function of one number whose result depends on nothing else, of such a number; NULL without an
 * exception: not computed by runs. */
PyObject *mg_symfloat_call(PyObject *o, PyObject *f);
/* Python's f of one such number (int, float, round, what module math has): computed by each
 * run.  False: something else. */
bool mg_symfloat_apply(PyObject *f, PyObject *const *arg, Py_ssize_t n, PyObject **r);
/* A stand-in of its 0-dim value.  New. */
PyObject *mg_symfloat_standin(PyObject *o);
/* What C code gave back: a bare torch.SymFloat or SymInt becomes one of ours.  Steals o; NULL stays NULL. */
PyObject *mg_symfloat_dress(PyObject *o);
/* What the arithmetic of number objects gives (MgCalc; b NULL for unary ones): a number
 * object, or an answer.  New. */
PyObject *mg_symfloat_compute(PyObject *a, PyObject *b, int calc);
PyObject *mg_symfloat_of(MgSymNode *n); /* the number object of a node, which is stolen; NULL stays NULL */
void mg_symnode_expect(MgCapture *cap, SrcRef src, PyObject *want); /* guards what it is */
/* hint is stolen, NULL for numbers that depend on tensors. */
MgSymNode *mg_symnode_new(MgCapture *cap, SrcRef src, PyObject *hint);
PyObject *
mg_symnode_number(MgSymNode *n);       /* the number, guarded; NULL with a break when it depends on tensors */
MgSymNode *mg_symnode_of(PyObject *o); /* of a node or a number object, borrowed; NULL: something else */
PyObject *mg_symnode_python(MgSymNode *n); /* the same as an object of Python's own classes, for C++ */
ValRef mg_symnode_val(MgSymNode *n);       /* its value in the graph; 0 with an exception */
MgSymNode *mg_symnode_value(MgCapture *cap,
                            char kind); /* new, for item_numbers.c to fill; NULL with an exception */
#endif
