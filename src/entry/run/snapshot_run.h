/* Runs the program that rebuilds the frame and repeats effects. */
#ifndef MG_SNAPSHOT_RUN_H
#define MG_SNAPSHOT_RUN_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include "ir/graph/graph.h"

typedef struct MgTorchState MgTorchState;

typedef struct MgSnapshot MgSnapshot;

/* Marks the outputs that the claims of the program read. */
void mg_snapshot_claimed(const MgSnapshot *s, bool *out);
/* Looks at the claims alone, whose outputs are there.  0, MG_CLAIM_FALSE, -1 with an exception. */
int mg_snapshot_claims(const MgSnapshot *s, PyObject **outs, PyObject **vals);
/* Runs it: outs are the graph's results, vals the source values.  Fills new_slots (new references; NULL stays
 * unbound; entries of untouched slots are left alone) and *ret.  Replays effects in program order. */
int mg_snapshot_run(const MgSnapshot *s, PyObject **outs, PyObject **vals, PyObject **new_slots,
                    PyObject **ret);
/* o.name(arg), name being a method of the pickle protocol; new reference or NULL with an exception.  On 3.12
 * iterators of itertools warn that they will lose it, but the user asked for no copy: warnings' filters are
 * another list meanwhile (CPython reads them on each warning; nothing remembers having seen them). */
PyObject *
mg_snapshot_pickle_call(PyObject *o, PyTypeObject *t, PyObject *name,
                        PyObject *arg); /* t's method, t being o's type or a base of it; arg may be NULL */
int mg_setting_apply(PyObject *action);
/* Sets every field that differs. -1 with an exception. */
int mg_effect_apply(const MgTorchState *from, const MgTorchState *to);
int mg_setting_replay(PyObject *list);
/* On results of a graph: t becomes an instance of class c, or, shared with others, gets an
 * alias that is one.  Steals t. */
PyObject *mg_subclass_dress(PyObject *t, PyTypeObject *c, bool shared);
/* Which graph values the snapshot needs, in order: they become the graph's outputs. */
int mg_snapshot_outputs(const MgSnapshot *s, const ValRef **vals);
/* Do two snapshots do the same to objects that are older than the recording? */
bool mg_snapshot_same(const MgSnapshot *a, const MgSnapshot *b);
void mg_snapshot_free(MgSnapshot *s);
#endif
