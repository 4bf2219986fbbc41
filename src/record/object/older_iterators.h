/* Iterators that are older than the recording: of lists, tuples and ranges, enumerate, zip and reversed.
 * The recording reads from a copy at the same position; the iterator itself is moved to where the copy is
 * when a run ends. Where it stands is guarded.  That is a recompile for each position, so where a position
 * has changed before (dynfloat learns it) the iterator stays what it is, and taking from it breaks the graph.
 * The same under the loops of the outermost frame (its value stack), unless the recording gets through all
 * that is left of such a loop: the loop broke in an earlier turn only. */
#ifndef MG_OLDER_ITERATORS_H
#define MG_OLDER_ITERATORS_H
#include "entry/guard/source_kinds.h"

typedef struct MgRec MgRec;

/* The copy of v: new; NULL without exception when it is no such iterator, or may not be copied. */
PyObject *mg_iterator_wrap(PyObject *v, SrcRef src);
/* Does the frame with these slots still go round in a loop whose older iterator was copied?  Then the segment
 * is recorded again with unroll denied (retries.def), and taking from it breaks the graph. */
bool mg_iterator_unfinished(const MgRec *r, PyObject *const *slot, int n);
#endif
