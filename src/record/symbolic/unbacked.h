/* Sizes that depend on values of tensors: `x.item()` used as a size, rows of nonzero() or x[mask].  They are
 * symbols whose values a run learns when the graph has come that far (staged_exec.c).  Nothing is guarded: a
 * question is answered by ranges and by what the program has checked; where inference has to know more it
 * takes what torch.compile takes for granted (such a size is neither 0 nor 1, and two that must be equal
 * are), and a run whose sizes are others is repeated with the graph broken. */
#ifndef MG_UNBACKED_H
#define MG_UNBACKED_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include "ir/graph/graph.h"

typedef struct MgCapture MgCapture;
typedef struct MgFrontOp MgFrontOp;
typedef struct MgRec MgRec;
typedef struct MgSymNode MgSymNode;

enum { DATA_HINT = 37 }; /* what tentative answers compute with */

/* Where it may not: may such a number pick by being a tensor (number_index.h)? */
bool mg_symdata_picks(MgCapture *cap);
/* May this recording have them?  shape: as a size of a result, else as a number out of a tensor. */
bool mg_symdata_may(MgCapture *cap, bool shape);
/* Do graphs for custom backends have numbers (shape: sizes) that depend on data?  When torch's own switch
 * says so, and where a break is an error. */
bool mg_symdata_wanted(const MgRec *r, bool shape);
/* Does it depend on data? */
bool mg_symdata_in(const MgCapture *cap, SymRef e);
/* A number that depends on data as a size; 0: it cannot be one. */
SymRef mg_symdata_number(MgSymNode *n);
MgSymNode *mg_symdata_node(MgCapture *cap,
                           SymRef e); /* the number of any size, borrowed; NULL with a break */
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
/* Notes whether inference of node n took such sizes for granted.  A run whose sizes are others cannot be
 * repeated after a write to an input: -1 with a break. */
int mg_symdata_note_guess(MgCapture *cap, NodeRef n);
bool mg_symdata_reads(const MgCapture *cap, NodeRef n); /* does node n read such sizes? */
/* Does a size of the graph depend on data? */
bool mg_symdata_used(const MgRec *r);
/* a op 0, of an expression that is a symbol and a constant. */
void mg_data_narrow(MgCapture *cap, int op, SymRef a, SymRef b);
#endif
