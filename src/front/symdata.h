/* Sizes that depend on values of tensors: `x.item()` used as a size, rows of nonzero() or x[mask].  They are symbols whose values
 * a run learns when the graph has come that far (stages.c).  Nothing is guarded: a question is answered by ranges and by what the
 * program has checked; where inference has to know more it takes what torch.compile takes for granted (such a size is neither 0 nor
 * 1, and two that must be equal are), and a run whose sizes are others is repeated with the graph broken. */
#ifndef MG_FRONT_SYMDATA_H
#define MG_FRONT_SYMDATA_H
#include "front/symnode.h"
#include "front/torchobj.h"

/* May this recording have them?  shape: as a size of a result, else as a number out of a tensor. */
bool mg_symdata_may(MgCapture *cap, bool shape);
/* Do graphs for custom backends have numbers (shape: sizes) that depend on data?  When torch's own switch says so, and where a break is an error. */
bool mg_symdata_wanted(const MgRec *r, bool shape);
/* Does it depend on data? */
bool mg_symdata_in(const MgCapture *cap, SymRef e);
/* A number that depends on data as a size; 0: it cannot be one. */
SymRef mg_symdata_number(MgSymNode *n);
MgSymNode *mg_symdata_node(MgCapture *cap, SymRef e); /* the number of any size, borrowed; NULL with a break */
/* The number object of a size.  New. */
PyObject *mg_symdata_object(MgCapture *cap, SymRef e);
/* What inference asks (MgSizeAsk). */
int mg_symdata_compare(MgCapture *cap, SymRef a, SymRef b);
bool mg_symdata_equal(MgCapture *cap, SymRef a, SymRef b);
int64_t mg_symdata_value(MgCapture *cap, SymRef e);
/* Follows an answer (MgCalc) from what was checked?  -1: no. */
int mg_symdata_fact(const MgCapture *cap, int op, SymRef a, SymRef b);
/* The answer holds from here on. */
void mg_symdata_assume(MgSymNode *answer);
/* The results of node n when inference cannot tell them: 0, -1 with a break or exception. */
int mg_symdata_infer(MgRec *r, const MgFrontOp *fo, NodeRef n);
/* The same when its arguments' sizes come from inputs alone: torch's meta kernel, tried at two assignments, says which sizes of the
 * results follow theirs.  False: not all are found; the results may have been changed. */
bool mg_symdata_twice(MgRec *r, const MgFrontOp *fo, NodeRef n);
bool mg_symdata_reads(const MgCapture *cap, NodeRef n); /* does node n read such sizes? */
/* The results of node n have sizes, which are not negative. */
void mg_symdata_sizes(MgRec *r, NodeRef n);
/* Does a size of the graph depend on data? */
bool mg_symdata_used(const MgRec *r);
#endif
