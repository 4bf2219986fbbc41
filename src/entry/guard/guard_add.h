/* Guard sets: sources, a flat program of guards, dict and type guards, and the torch state of one entry.
 * Built while recording (mg_guards_* below), sealed, then only checked (guard_check.c).
 * Ownership: objects that guards compare with are kept by the set (mg_guards_hold): strongly, except classes,
 * instances of nn.Module and objects whose death the program would notice, which are held by weak references;
 * when one dies the set is dead and its owner is told. So a dropped model frees its entries, and a raw
 * pointer in a live set never dangles. Instance dicts are borrowed from their owner, who is held. */
#ifndef MG_GUARD_ADD_H
#define MG_GUARD_ADD_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include "entry/guard/guard_set.h"
#include "entry/guard/source_kinds.h"

/* Instead of a length, in GK_deque: any, where the first item of a deque with a limit runs no code at its
 * end. */
enum { MG_DEQUE_ANY = -1 };

/* A new set for a recording that starts now; reads the torch state.  NULL with an exception. */
MgGuards *mg_guards_new(PyObject *slot_names);
bool mg_guard_is_callback(PyObject *f); /* is it what a guard set's weak references call? */
void mg_guards_set_death(MgGuards *g, void (*fn)(void *arg), void *arg);
/* When o dies the set is dead. -1 with an exception. */
int mg_guards_die_with(MgGuards *g, PyObject *o);
/* Keeps o alive (or watches it, for modules) as long as the set lives. */
void mg_guards_hold(MgGuards *g, PyObject *o);
/* The object of a pinned source, or NULL: such an input is the same object at every call. */
PyObject *mg_guards_pinned(const MgGuards *g, SrcRef src);

/* ---- adding guards; errors stick in g->failed ---- */
void mg_guard_add(MgGuards *g, MgGuardKind kind, SrcRef src, PyObject *o, int64_t i);
void mg_guard_value(
    MgGuards *g, SrcRef src,
    PyObject *o); /* its class and the plain value in it: it is not held, for its end may be seen */
/* About two values: same, distinct, disjoint; offset: b's data lies i bytes after a's. */
void mg_guard_pair(MgGuards *g, MgGuardKind kind, SrcRef a, SrcRef b, int64_t i);
void mg_guard_apart(MgGuards *g, struct MgApart *a); /* takes it over */
void mg_guard_pinned(MgGuards *g, MgGuardKind kind, PyObject *owner,
                     PyObject *want); /* cell_is, list_is ... */
void mg_guard_tensor(MgGuards *g, SrcRef src, PyObject *tensor);
MgFacts *mg_guard_facts(MgGuards *g, SrcRef src); /* of the tensor at src; NULL: it is not guarded */
/* Nothing depends on which tensors require grad. Called before mg_guards_seal. */
void mg_guards_any_grad(MgGuards *g);
void mg_guard_array(MgGuards *g, SrcRef src, PyObject *array);
void mg_guard_member(MgGuards *g, PyObject *owner, PyObject *descr, PyObject *value);
void mg_guard_context(MgGuards *g, PyObject *var, PyObject *value); /* of a ContextVar; NULL: it has none */
void mg_guard_instance(MgGuards *g, PyObject *owner);               /* its class and which dict it has */
/* May one object take the other's place at every call: tensors, containers of one type,
 * instances of one plain class? */
bool mg_guard_may_move(PyObject *was, PyObject *now);
/* After guards failed: notes where such objects were replaced by others.  The next recording asks whether a
 * key (NULL: anything in a list) is one of those. */
void mg_guards_note_moves(const MgGuards *g);
/* The recording puts another such object at this key (a tensor into this list), which the guards so far have
 * by identity: true, once. */
bool mg_guard_expect_move(MgGuards *g, PyObject *dict, PyObject *key, PyObject *now);
bool mg_guard_expect_list_move(PyObject *list);
bool mg_guard_key_moves(PyObject *container, PyObject *key);
/* Key of a dict behind an identity-guarded owner; val NULL: absent. owner is the instance when dict is its
 * __dict__. is_input: it is known to change (mg_dynfloat_key has its source), and
 * only its presence is guarded. */
void mg_guard_dict_key(MgGuards *g, PyObject *dict, PyObject *owner, PyObject *key, PyObject *val,
                       bool is_input);
/* inputs: so are those of its values that are known to change. */
void mg_guard_dict_all(MgGuards *g, PyObject *dict, PyObject *owner, bool inputs);
/* val mg_any_float: of a number that is known to change; the caller takes its source
 * (mg_dynfloat_class_attr). */
void mg_guard_type_attr(MgGuards *g, PyTypeObject *t, PyObject *name, PyObject *val);
/* Its bases were asked for in their order. */
void mg_guard_type_mro(MgGuards *g, PyTypeObject *t);
/* ABCMeta said that `sub` is none of abc's subclasses, which a class registered later changes. */
void mg_guard_not_registered(MgGuards *g, PyObject *abc, PyObject *sub);
void mg_guard_type(MgGuards *g, PyTypeObject *t); /* its special methods only */
/* The next special method in the dicts of t and its bases (mro[*i], entry *pos); all
 * attributes of tensor classes. */
PyObject *mg_guard_next_special(PyTypeObject *t, Py_ssize_t *i, Py_ssize_t *pos);
void mg_guard_empty(MgGuards *g, PyObject *dict); /* a hook dict of a module */
/* Are a and b the same constant (type and value; floats by bits, containers of
 * constants element by element)? */
bool mg_guard_same_const(PyObject *a, PyObject *b);
bool mg_guard_is_const(PyObject *o);
bool mg_guard_is_value(
    PyObject *o); /* an instance of a class of the program that is an int, float, str or bytes */
bool mg_guard_same_value(PyObject *a, PyObject *b); /* by the C type below their classes, which have no say */
/* Guards a frozenset by its elements, when these compare by identity or are constants; false: they do not. */
bool mg_guard_frozenset(MgGuards *g, SrcRef src, PyObject *v);
/* Do two sets hold the same elements in the same order of iteration? */
bool mg_guard_same_order(PyObject *a, PyObject *b);
uint32_t mg_guard_type_version(PyTypeObject *t); /* assigns one when needed; 0: none to be had */
void mg_guards_free(MgGuards *g);
int mg_guards_nsrc(const MgGuards *g);
int mg_guards_seal(MgGuards *g); /* end of recording: take dict versions / watchers; -1 with exception */
#endif
