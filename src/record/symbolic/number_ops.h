/* What a recording does with the number objects of number.h. */
#ifndef MG_NUMBER_OPS_H
#define MG_NUMBER_OPS_H
#include "entry/guard/source_kinds.h"
#include "ir/graph/graph.h"

typedef struct MgCapture MgCapture;
typedef struct MgSymNode MgSymNode;

int mg_symfloat_init(void);
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
/* A call of C begins, or has ended: between the two, sizes in texts that C++ makes are guarded only if the
 * call raised, for PyTorch writes some messages before it knows whether they are needed (rms_norm). */
void mg_symnode_texts_begin(MgCapture *cap);
void mg_symnode_texts_end(MgCapture *cap, bool raised);
/* The number, guarded; NULL with a break when it depends on tensors. */
PyObject *mg_symnode_number(MgSymNode *n);
PyObject *mg_symnode_python(MgSymNode *n); /* the same as an object of Python's own classes, for C++ */
ValRef mg_symnode_val(MgSymNode *n);       /* its value in the graph; 0 with an exception */
#endif
