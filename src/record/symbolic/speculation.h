/* Questions about tensors where the other answer only raises: `assert (x > 0).all()`, checks of torch's own
 * libraries, and, unless a break is an error or a custom back end gets the graph, `if (x > 1).any(): raise
 * ...` of the program.  The recording takes the answer for granted.  Each run looks at it before anything is
 * written; one that finds the other is given up, and the frame runs as it would have without a compiler: the
 * program's own exception, from its own line. */
#ifndef MG_SPECULATION_H
#define MG_SPECULATION_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

typedef struct MgCapture MgCapture;
typedef struct MgInstr MgInstr;
typedef struct MgLoop MgLoop;
typedef struct MgRec MgRec;
/* The truth of a tensor or number in any other place, when it is expected
 * (expected_truth.h): as mg_claim_truth. */
int mg_claim_expected(MgCapture *cap, PyObject *condition, bool *yes);
/* Takes the truth of a number of the recording for *yes: as mg_claim_truth. */
int mg_claim_number(MgRec *r, PyObject *condition, bool *yes);
/* Takes the one element of a tensor for true.  Where runs of this recording cannot be given up, they raise a
 * RuntimeError with that text.  1; -1 with an exception. */
int mg_claim(MgRec *r, PyObject *tensor, const char *text);
/* After a recording: can a run that finds the other answer be given up?  If not, the segment is
 * recorded again without claims. */
bool mg_claim_holds(MgRec *r);
int mg_claim_refuse(MgRec *r); /* the graph has no plan that does: -1 with an exception, see mg_claim_holds */
/* Can a run that raises be given up and left to CPython: is nothing written, drawn or done until then? */
bool mg_claim_repeats(MgRec *r);
bool mg_claim_draws(const MgRec *r); /* does a run that may be given up draw random numbers? */
bool mg_claim_allowed(const MgRec *r);
/* Takes the truth of a tensor or a number for *yes.  1: done, or *yes is what it is known to be; 0:
 * cannot; -1 with an exception. */
int mg_claim_add(MgRec *r, PyObject *condition, bool *yes);
#endif
