/* Sizes that differ from call to call.  A dimension that is known to change is a symbol of the recording's expressions, and so is
 * what is computed from it; Python sees a number object (symfloat.h) whose source computes it in every run.  What the recorder,
 * inference or torch asks about such a size is answered as it is in this run, and the answer is guarded; whoever needs the number
 * itself gets it, guarded by equality.  0 and 1 are never symbols. */
#ifndef MG_FRONT_SYMSIZE_H
#define MG_FRONT_SYMSIZE_H
#include "front/facts.h"
#include "front/symnode.h"

typedef struct MgSizeBound { /* what answers that the program took say about a size */
  int64_t lo, hi;
  bool promised;        /* marked by mark_dynamic() */
} MgSizeBound;

typedef struct MgSymSizes { /* of one recording */
  SrcRef *src;          /* by symbol: how a run finds it; malloc'ed */
  SymRef *ref;          /* by symbol: its expression; malloc'ed */
  MgSizeBound *bound;   /* by symbol; malloc'ed */
  uint32_t nsrc, cap;
  PyObject *ints;       /* dict: one object per constant, since sources are told apart by identity */
  MgSizeAsk ask;
  MgSymEqual *equal;    /* sizes that guards say are equal; malloc'ed */
  uint32_t nequal, cap_equal;
  bool all;             /* every dimension may change */
  bool in_graph;        /* one was made a tensor, whose value may be asked for */
} MgSymSizes;

/* Lets inference ask.  off: every size is a constant. */
void mg_symsize_begin(MgCapture *cap, bool off);
void mg_symsize_end(MgCapture *cap);
/* Makes the dimensions of an input that may change symbols, and its guard accept other sizes. */
void mg_symsize_input(MgCapture *cap, PyObject *tensor, SrcRef src, MgVal *v);
/* After an entry did not fit: notes the dimensions of a tensor that are others now. */
int mg_symsize_learn(PyObject **known, const MgGuards *g, SrcRef src, const MgFacts *was, PyObject *now);
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
/* The program was told that `size calc k` (size second: `k calc size`) is `yes`. */
void mg_symsize_answered(MgCapture *cap, int calc, SrcRef size, bool second, PyObject *k, bool yes);
/* Raises ConstraintViolationError when such answers left one value to a size that mark_dynamic() promised to be dynamic. */
int mg_symsize_promises(MgCapture *cap);
/* Records the segment again with constant sizes; an exception is set. */
void mg_symsize_give_up(MgRec *r, const char *why);
/* Fills in the symbols' values for a run; false: some is no number in range. */
bool mg_symsize_values(const MgGuards *g, const SrcRef *src, uint32_t n, PyObject *const *vals, int64_t *out);
#endif
