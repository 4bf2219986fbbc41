/* Numbers that differ from call to call (a learning rate under a scheduler, a counter of steps): from the
 * second value on they are inputs instead of constants. Strings that differ (the name of an adapter) may
 * then be keys of dicts without being guarded: see mg_unread_key.  What is known is kept per code
 * object, as names of places. */
#ifndef MG_AUTOMATIC_DYNAMIC_H
#define MG_AUTOMATIC_DYNAMIC_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include "entry/guard/source_kinds.h"

typedef struct MgGuards MgGuards;
typedef struct MgSlots MgSlots;

extern PyObject
    *mg_any_float; /* in a dict guard: something is there, its source is guarded; strong, process lifetime */

int mg_dynfloat_init(void);
/* An entry did not fit: adds the places of numbers that are others now to *known (a
 * set; NULL: made when needed). */
int mg_dynfloat_learn(PyObject **known, const MgGuards *g, const MgSlots *s);
/* Adds what `from` knows of objects by their addresses, which is true in other code as well.  -1 with an
 * exception. */
int mg_dynfloat_hand_on(PyObject **known, PyObject *from);
PyObject *mg_dynfloat_name(const MgGuards *g, SrcRef src);
/* "the string of this name has changed": new; steals name, which may be NULL with an exception. */
PyObject *mg_dynfloat_text_name(PyObject *name);
/* A place has reached the recompile limit.  Strings among what changed are looked at no more from here on:
 * 1; 0: there are none, or that was tried; -1 with an exception. */
int mg_dynfloat_break_texts(PyObject *known);
bool mg_dynfloat_texts_break(PyObject *known); /* has that been done? */
/* "the keys of this dict": by its source, or by itself when src is 0 or pinned. */
PyObject *mg_dynfloat_keys_name(const MgGuards *g, SrcRef src, PyObject *dict);
/* "this container has come to hold another number of items, often": the same. */
PyObject *mg_dynfloat_lengths_name(const MgGuards *g, SrcRef src, PyObject *container);
bool mg_dynfloat_is_number(PyObject *o);
bool mg_dynfloat_has_parts(PyObject *o);  /* a tuple or slice, whose parts are numbers of their own */
bool mg_dynfloat_may_change(PyObject *o); /* a number, a string, or what has parts, which may be some */
/* The dimension whose size times stride is the stride of dimension k, as in a dense tensor; -1: none. */
int mg_symsize_inner(const MgFacts *f, int k);
PyObject *mg_symsize_name(const MgGuards *g, SrcRef src, const char *what, int k);
/* ---- which dimensions ---- */

/* torch._dynamo.config.<name>, when that module is there. */
bool mg_symsize_config(const char *name, bool dflt);
/* After an entry did not fit: notes the dimensions of a tensor that are others now. */
int mg_symsize_learn(PyObject **known, const MgGuards *g, SrcRef src, const MgFacts *was, PyObject *now);
bool mg_state_knows(PyObject *known, int i);
/* "a dimension of this size has come to have another", for sources that no entry has met so far. */
PyObject *mg_symsize_value_name(int64_t size);
/* "a segment leaves a tensor at this source that has another size there" */
PyObject *mg_symsize_grows_name(const MgGuards *g, SrcRef src, int k);
/* "an entry has a tensor at this source" */
PyObject *mg_symsize_seen_name(const MgGuards *g, SrcRef src);
/* Such a guard of an entry failed: notes it in *known; the code's next recordings stop guarding such answers
 * when that has happened often.  -1 with an exception. */
int mg_symstate_learn(PyObject **known);
/* Is the source computed from a number in a tensor? */
bool mg_symstate_reads(const MgGuards *g, SrcRef src);
/* of: the dict, or the class whose attribute it is */
PyObject *mg_dynfloat_key_name(PyObject *of, PyObject *key);
#endif
