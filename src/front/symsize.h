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
  bool outside;         /* of the bounds that it was marked with */
} MgSizeBound;

typedef struct MgSizeOf { /* where the graph gives a size that depends on data */
  ValRef val;           /* 0: the symbol has a source */
  int32_t dim;          /* a size of val; -1: element number `at` of an int64 value */
  uint32_t at;          /* (of true elements of a mask: the node that counts them) */
  ValRef mask;          /* the mask; 0: something else */
  MgSymNode *node;      /* the number of that element, borrowed; NULL: not asked for yet */
} MgSizeOf;

typedef struct MgSizeFact { int calc; SymRef a, b; } MgSizeFact; /* a comparison that holds */

typedef struct MgSymSizes { /* of one recording */
  SrcRef *src;          /* by symbol: how a run finds it; 0: it depends on data; malloc'ed */
  SymRef *ref;          /* by symbol: its expression; malloc'ed */
  MgSizeOf *of;         /* by symbol; malloc'ed */
  MgSizeBound *bound;   /* by symbol; malloc'ed */
  uint32_t nsrc, cap;
  MgMap by_src;         /* source of a symbol + 2 -> its number */
  MgMap expr, calc;     /* source + 2 -> what it computes; expression + 2 -> the source that computes it */
  uint32_t ndata;       /* how many of them depend on data (symdata.c) */
  MgMap node;           /* expression that depends on data + 2 -> index into cap->syms of its number */
  MgSizeFact *fact;     /* what was checked or taken for granted; malloc'ed */
  uint32_t nfact, cap_fact;
  const int64_t *probe; /* the symbols' values while a meta kernel is tried; NULL: none is */
  bool second;          /* it is the second try */
  bool inputs;          /* the tries are about sizes of inputs, none of which is settled by them */
  bool symbolic;        /* a meta kernel computes with the symbols themselves */
  bool exact;           /* and may not ask for the number of one */
  uint32_t asked;       /* how many sizes it asked for that only data tells (metafake.c) */
  bool unknown;         /* a question about data had no answer: what asked it has to be found in another way */
  bool off;             /* sizes of inputs are constants */
  PyObject *ints;       /* dict: one object per constant, since sources are told apart by identity */
  MgSizeAsk ask;
  MgSymEqual *equal;    /* sizes that guards say are equal; malloc'ed */
  uint32_t nequal, cap_equal;
  bool all;             /* every dimension may change */
  bool value_asked;     /* the value of a tensor was asked for that is computed of sizes alone: constants may tell it */
} MgSymSizes;

/* Lets inference ask.  off: every size is a constant. */
void mg_symsize_begin(MgCapture *cap, bool off);
void mg_symsize_end(MgCapture *cap);
/* Makes the dimensions of an input that may change symbols, and its guard accept other sizes. */
void mg_symsize_input(MgCapture *cap, PyObject *tensor, SrcRef src, ValRef val);
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
/* f(*arg), f being min or max, of sizes and ints, or of one list of them: a size that each run computes.  True when *r is the result. */
bool mg_symsize_choose(PyObject *f, PyObject *const *arg, Py_ssize_t n, PyObject **r);
/* The program was told that `size calc k` (size second: `k calc size`) is `yes`. */
void mg_symsize_answered(MgCapture *cap, int calc, SrcRef size, bool second, PyObject *k, bool yes);
/* Raises ConstraintViolationError when such answers left one value to a size that mark_dynamic() promised to be dynamic. */
int mg_symsize_promises(MgCapture *cap);
/* A new symbol; src 0: the graph gives it, as `of` says.  0 when out of memory. */
SymRef mg_symsize_symbol(MgCapture *cap, SrcRef src, const MgSizeOf *of, int64_t hint, int64_t lo, int64_t hi);
#define MG_SIZE_MOST MG_FACTS_MOST /* of a size; ints are within it on both sides */
/* Symbols whose values the entry's guards know. */
static inline uint32_t mg_symsize_inputs(const MgSymSizes *s) { return s->nsrc - s->ndata; }
/* Records the segment again with constant sizes; an exception is set. */
void mg_symsize_give_up(MgRec *r, const char *why);
/* Fills in the symbols' values for a run; false: some is no number in range. */
bool mg_symsize_values(const MgGuards *g, const SrcRef *src, uint32_t n, PyObject *const *vals, int64_t *out);
#endif
