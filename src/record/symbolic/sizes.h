/* Sizes that differ from call to call.  A dimension that is known to change is a symbol of the recording's
 * expressions, and so is what is computed from it; Python sees a number object (number.h) whose source
 * computes it in every run.  What the recorder, inference or torch asks about such a size is answered as it
 * is in this run, and the answer is guarded; whoever needs the number itself gets it, guarded by equality.  0
 * and 1 are never symbols. */
#ifndef MG_SIZES_H
#define MG_SIZES_H
#include "entry/guard/source_kinds.h"
#include "ir/expr/expr.h"
#include "ir/graph/graph.h"

typedef struct MgCapture MgCapture;
typedef struct MgGuards MgGuards;
typedef struct MgRec MgRec;
typedef struct MgSizeOf MgSizeOf;
typedef struct MgSymNode MgSymNode;
/* Makes the dimensions of an input that may change symbols, and its guard accept other sizes. */
void mg_symsize_input(MgCapture *cap, PyObject *tensor, SrcRef src, ValRef val);
/* An int that is an input of the recording is a symbol as well. */
void mg_symsize_int(MgCapture *cap, SrcRef src, PyObject *value);
/* The size that a number object stands for; 0: none, or sizes are constants. */
SymRef mg_symsize_of(MgSymNode *n);
/* How a run computes an expression that is no constant; 0 with a break when Python has no word for it. */
SrcRef mg_symsize_src(MgCapture *cap, SymRef e);
int mg_symsize_number(const MgCapture *cap, SrcRef src); /* of the symbol with that source; -1: none */
/* The number object, or int, of a size.  New. */
PyObject *mg_symsize_object(MgCapture *cap, SymRef e);
/* Shapes and strides that torch gave back: bare torch.SymInt in them become number objects.  Steals o. */
PyObject *mg_symsize_dress(MgCapture *cap, PyObject *o);
/* -1: not to be proven; else the answer of a comparison (MgCalc). */
int mg_symsize_known(MgCapture *cap, int op, MgSymNode *x, PyObject *a, MgSymNode *y, PyObject *b);
/* f(*arg), f being min or max, of sizes and ints, or of one list of them: a size that each run computes.
 * True when *r is the result. */
bool mg_symsize_choose(PyObject *f, PyObject *const *arg, Py_ssize_t n, PyObject **r);
/* The program was told that `size calc k` (size second: `k calc size`) is `yes`. */
void mg_symsize_answered(MgCapture *cap, int calc, SrcRef size, bool second, PyObject *k, bool yes);
/* Raises ConstraintViolationError when such answers left one value to a size that
 * mark_dynamic() promised to be dynamic. */
int mg_symsize_promises(MgCapture *cap);
/* A new symbol; src 0: the graph gives it, as `of` says.  0 when out of memory. */
SymRef mg_symsize_symbol(MgCapture *cap, SrcRef src, const MgSizeOf *of, int64_t hint, int64_t lo,
                         int64_t hi);
/* Records the segment again with constant sizes; an exception is set. */
void mg_symsize_give_up(MgRec *r, const char *why);
/* One object per constant.  Borrowed. */
PyObject *mg_symsize_int_in(MgCapture *cap, int64_t v);
SrcRef mg_symsize_calc(MgCapture *cap, int op, SymRef a, SymRef b);
#endif
