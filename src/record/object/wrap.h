/* Identity: what the recording sees for each object that is older than it, both ways.
 * In: objects read from sources.  Out: the object itself, a stand-in, or a copy
 * whose content is wrapped as well.
 *
 *   class       decided by                 what the recording sees
 *   fresh       mg_fresh (positive mark)   the object; changed for real, rebuilt by the snapshot
 *   older       mg_wrap                    see MgOlderKind
 *   stand-in    the tensor side            itself
 *   constant    mg_guard_is_const          itself, guarded by value
 *
 * Invariants: an older object is never written to while recording: containers are copies, attributes go to an
 * overlay. What was written is the difference between a copy and its pristine content; snapshot.c replays it.
 * Every original and every seen object is kept alive to the end, so addresses are identities. */
#ifndef MG_WRAP_H
#define MG_WRAP_H
#include "entry/guard/source_kinds.h"

typedef struct MgLoop MgLoop;
typedef struct MgSlots MgSlots;

struct MgInstr;
/* Is it an older object whose state lives in C, which C code may therefore not touch?
 * (not a copy, not a tensor) */
bool mg_older_opaque(PyObject *seen);
/* mg_wrap for what C code gave back, which may be something that the recording sees already. */
PyObject *mg_wrap_result(PyObject *v);
/* What is under a key of a dict that is known by identity (v, or NULL: nothing), guarded. */
PyObject *mg_wrap_key(PyObject *dict, PyObject *name, PyObject *v);

/* ---- attributes of older instances; e is the entry of o ---- */
/* Looks name up in the instance dict: new reference, or NULL without exception when
 * absent, or NULL with one. */
PyObject *mg_older_attr(PyObject *o, PyObject *name);
int mg_older_set_attr(PyObject *o, PyObject *name,
                      PyObject *v); /* v NULL: delete; AttributeError when absent */
/* The same without wrapping a container that has no copy yet: *raw is the original value
 * (borrowed) and NULL is returned. */
PyObject *mg_older_attr_raw(PyObject *o, PyObject *name, PyObject **raw);
/* The whole instance dict as the recording sees it: borrowed; NULL with an exception. */
PyObject *mg_older_dict(PyObject *o);

/* ---- dicts (older_dict.c) ---- */
PyObject *mg_olderdict_wrap(PyObject *v, SrcRef src); /* mg_wrap for a dict that is met for the first time */
/* Is it a dict of which only single keys have been looked at?  Its copy is empty: what is none of the
 * functions below fills it first. */
bool mg_olderdict_lazy(PyObject *seen);
int mg_olderdict_fill(PyObject *seen); /* 0 when it is not lazy */
int mg_olderdict_look(
    PyObject *seen); /* it is being loaded: fills it, unless it will be asked for one key, and nothing else */
/* Is a copy for one use of what is loaded by this instruction: by the program, or (around: containers that
 * are being wrapped around it) as what a cell holds?  next: says whether the
 * instruction after it is such a use. */
bool mg_older_loads_for(int around, bool (*next)(const struct MgLoop *l, const struct MgInstr *in));
/* What is under the key of a lazy dict, new; NULL without exception: nothing, or the
 * dict is not lazy any more. */
PyObject *mg_olderdict_get(PyObject *seen, PyObject *key);
/* 0, 1; -1 with an exception; MG_ASK_PYTHON: the dict is not lazy any more. */
int mg_olderdict_contains(PyObject *seen, PyObject *key);

/* ---- lists and deques (older_list.c) ---- */
PyObject *mg_olderlist_wrap(PyObject *v, SrcRef src);  /* mg_wrap for a list that is met for the first time */
PyObject *mg_olderdeque_wrap(PyObject *v, SrcRef src); /* the same for a deque */
/* Is it a list or deque that was only appended to?  Its copy has what was appended; the
 * items before it are unknown. */
bool mg_olderlist_lazy(PyObject *seen);

/* ---- dicts and lists ---- */
int mg_older_fill(PyObject *seen); /* 0 when it is not lazy */
int mg_older_look(PyObject *seen); /* it is being loaded: fills it, unless it will be used as a lazy one may,
                                      and in no other way */
int mg_older_fill_others(PyObject *seen,
                         uint32_t from); /* all but this one among the entries from there on */

/* ---- comparisons (distinct_objects.c) ---- */
/* The program compares o, or what is in it, with others by ==, or by hash: that different objects
 * are different is guarded. */
void mg_compared(PyObject *o);
/* The instance dict of an older container, wrapped into that of its copy; at: its entry. */
int mg_older_copy_attrs(uint32_t at, PyObject *v, PyObject *c, SrcRef src);
/* Before a function runs unrecorded: nothing guards what it reads of the objects that it is given (an
 * operator that is called), so it is for these only. */
void mg_rec_pin_arguments(PyObject *const *slot, int n);
/* What the recording sees for an object read from src (0: reached through an identity-guarded owner, so the
 * read itself is guarded by its owner's dict/type guard): the object itself, a stand-in, or a shadow copy. */
PyObject *mg_wrap(PyObject *v, SrcRef src);
#endif
