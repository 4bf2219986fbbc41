/* Subscripts by numbers that runs compute: of tensors, and of dicts.
 *
 * A dict of the recording may have such a number as a key.  What is guarded is which of the dict's other keys
 * it equals, so another number serves as well next time.  The dict itself keeps the number object, under the
 * hash of the number that it was while recording (MgRec.hashing).
 * Only the functions here may look such a dict up.  C code that would do so by itself, as dict.update or ==,
 * first has these numbers guarded by equality (mg_numkey_settle). */
#ifndef MG_NUMBER_INDEX_H
#define MG_NUMBER_INDEX_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include "ir/graph/graph.h"

typedef struct MgCapture MgCapture;
typedef struct MgSymNode MgSymNode;

/* The node of a number that depends on data; NULL: something else. */
MgSymNode *mg_ask_late(PyObject *o);
/* x[key], where the key is such a number, one from sizes, or a 0-dim tensor of integers, or a tuple with
 * some: by select(), which does not ask for it; NULL without an exception: something else. */
PyObject *mg_symask_item(PyObject *tensor, PyObject *key);
/* Is o a number out of a tensor that may be no size, and picks by being a tensor (mg_symdata_picks)? */
bool mg_pick_may(PyObject *o);
/* tensor.select(dim, number) and tensor.roll(number, dim) with such a number; 0 <= dim < tensor.ndim.  New.
 */
PyObject *mg_pick_select(PyObject *tensor, Py_ssize_t dim, PyObject *number);
PyObject *mg_pick_roll(PyObject *tensor, PyObject *number, Py_ssize_t dim);
/* What is selected so is a copy where eager has a view.  Fails the retry `picked` if that can be seen: the
 * copy, or what it was selected from, is written later, or the copy is among the results. */
void mg_pick_check(MgCapture *cap, const ValRef *out, int nout);
/* dict[key] where one of them is a number that runs compute.  *same is the key of the dict that equals `key`,
 * borrowed; what it equals is guarded.
 * 1 found; 0 there is none; -1 with an exception; MG_ASK_PYTHON: there is no such number, or too many keys.
 */
int mg_numkey_find(PyObject *dict, PyObject *key, PyObject **same);
/* The dict's operations with a key that mg_numkey_find gave; a new key keeps being a number object. */
PyObject *mg_numkey_get(PyObject *dict, PyObject *same);
int mg_numkey_set(PyObject *dict, PyObject *key, PyObject *v); /* v NULL: deletes */
void mg_numkey_note(PyObject *key);                            /* a number object is a key of some dict now */
/* Are there dicts with such keys among these objects (NULL: none), or in them? */
bool mg_numkey_reached(PyObject *const *o, Py_ssize_t n);
void mg_numkey_settle(void);                   /* guards all numbers that are keys by equality */
void mg_numkey_seen(PyObject *a, PyObject *b); /* C code looks at both: settles if such dicts are in them */
PyObject *mg_numkey_list(PyObject *keys);      /* new: the keys of a dict, or the elements of a set */
/* Lets the recorder's own code hash such keys; gives what to put back. */
bool mg_numkey_begin(void);
void mg_numkey_end(bool before);
#endif
