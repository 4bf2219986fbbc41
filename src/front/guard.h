/* Guard sets: sources, a flat program of guards, dict and type guards, and the torch state of one entry.
 * Built while recording (mg_guards_* below), sealed, then only checked (guard_run.c).
 * Ownership: objects that guards compare with are kept by the set (mg_guards_hold): strongly, except classes, instances of
 * nn.Module and objects whose death the program would notice, which are held by weak references; when one dies the set is
 * dead and its owner is told. So a dropped model frees its entries, and a raw pointer in a live set never dangles.
 * Instance dicts are borrowed from their owner, who is held. */
#ifndef MG_FRONT_GUARD_H
#define MG_FRONT_GUARD_H
#include "base/table.h"
#include "front/facts.h"
#include "front/ndheader.h"
#include "front/rec.h"
#include "front/source.h"
#include "front/state.h"

typedef enum MgGuardKind {
#define GUARD(name, text) GK_##name,
#include "front/guards.def"
  GK__COUNT
} MgGuardKind;

/* ABCMeta said that sub is no subclass; it says so again until some class is registered somewhere, which changes the token. */
typedef struct MgNotAbc { PyObject *sub; uint64_t token; } MgNotAbc; /* sub: borrowed from the set */

typedef struct MgGuardOp {
  uint32_t kind : 8;  /* MgGuardKind */
  uint32_t src2 : 24; /* the other source of same, distinct, offset */
  SrcRef src;     /* the value; 0 when the guard is about a pinned object in o */
  PyObject *o;    /* borrowed from the set: object compared with, or pinned object looked at */
  union {
    PyObject *want;   /* recorded content (borrowed from the set) */
    int64_t i;        /* length, slot number, distance in bytes */
    MgFacts *facts;   /* owned */
    MgNdFacts *array; /* owned */
    struct MgApart *apart; /* owned; alias.h */
    MgNotAbc *abc;    /* owned */
    void *p;          /* PyMethodDef */
  } u;
} MgGuardOp;

/* The keys that were read of one dict that is reached through an identity-guarded owner. */
typedef struct MgDictGuard {
  PyObject *dict;    /* borrowed from the set or from its owner */
  PyObject **slot;   /* where the owner keeps it, when it is an instance dict; else NULL */
  PyObject *owner;   /* borrowed: for printing and slot reads; NULL for globals and plain dicts */
  PyObject **key;    /* strong */
  PyObject **val;    /* borrowed from the set; NULL: the key was absent */
  int n, cap;
  Py_ssize_t size;   /* number of keys, checked when all is set */
  PyTypeObject *type; /* borrowed from the set: class of the owner, which may be reassigned */
  bool all;          /* the set of keys was used (iteration, len, copy) */
  bool all_exact;    /* and every value, numbers that change included */
  PyObject *order;   /* borrowed from the set: tuple of the keys in order, when all is set */
} MgDictGuard;

/* False: the owner has got another dict, and this one may be gone. */
static inline bool mg_dict_guard_lives(const MgDictGuard *d) { return !d->slot || *d->slot == d->dict; }

/* The attributes that were looked up on one class, and its special methods: C code finds those through type slots. */
typedef struct MgTypeGuard {
  PyTypeObject *type; /* borrowed from the set */
  PyObject **name, **val; /* name strong, val borrowed; val NULL: no such attribute */
  int n, cap;
  int nspecial;       /* special methods that it and its bases define; for tensor classes: attributes */
  PyTypeObject **mro; /* borrowed from the set: the order of its bases, when that was read; else NULL */
  int nmro;
} MgTypeGuard;

/* What a check touches when nothing changed: packed, one compare each. */
typedef struct MgFastDict { PyObject *dict; uint64_t version; } MgFastDict;
/* Changes with every change of the dict.  Deprecated in 3.12, gone in 3.14. */
static inline uint64_t mg_dict_version(PyObject *dict) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  return ((PyDictObject *)dict)->ma_version_tag;
#pragma GCC diagnostic pop
}
typedef struct MgFastSlot { PyObject **slot; PyObject *dict, *owner; PyTypeObject *type; } MgFastSlot;
typedef struct MgFastType { PyTypeObject *type; uint32_t version; } MgFastType;
enum { MG_GUARD_CHANGED = 8 }; /* dicts that changed since the last check, before all of them are compared */

struct MgGuards {
  MgSrc *src; uint32_t nsrc, cap_src;      /* src[0] unused */
  MgGuardOp *op; uint32_t nop, cap_op;     /* after seal: the last npinned are about pinned tensors */
  MgFactsOf *pinned; uint32_t npinned;     /* these, packed; equal facts are shared */
  MgDictGuard *dict; uint32_t ndict, cap_dict;
  MgTypeGuard *type; uint32_t ntype, cap_type;
  PyObject **empty; uint32_t nempty, cap_empty; /* hook dicts of modules that must stay empty (borrowed) */
  MgFastDict *fast_dict;                   /* ndict entries, by seal */
  MgFastSlot *fast_slot; uint32_t nslot;   /* instance dicts only */
  MgFastType *fast_type;                   /* ntype entries */
  bool watched;                            /* changes are told: changed lists them (guard_watch.c) */
  uint32_t changed[MG_GUARD_CHANGED], nchanged; /* dict numbers; more than fit: all */
  uint32_t nwatched;                       /* dicts with a record */
  struct MgDraw *draw; uint32_t ndraw, cap_draw; /* random numbers that a run draws, in order (draw.h) */
  struct MgCalcDone *done; uint32_t ndone; /* by source: what was computed last (source.c) */
  PyObject **preset;                       /* nsrc start values for vals: pinned objects, else NULL */
  PyObject *keep;                          /* list: strong references */
  PyObject *loose;                         /* after seal: the others (guard_loose.h) */
  PyObject *watch;                         /* list: weak references with a callback */
  const void **watch_class; uint32_t nwatch_class, cap_watch_class; /* of each: its class, when it is a module (transient.h), else NULL */
  PyObject *callback;                      /* called when a watched object dies */
  MgTorchState state;                      /* at the start of the recording */
  bool engine;                             /* the autograd engine ran while recording */
  MgMap by_src, by_dict, by_type, by_held, by_fact; /* while recording; freed by seal */
  uint32_t recent;      /* of dict[]: the last one asked for */
  PyObject *slot_names;                    /* co_localsplusnames of the outer frame, for printing */
  bool failed;                             /* out of memory while recording: seal fails */
  bool dead;                               /* a watched object died */
  void (*on_death)(void *arg);             /* told once, with the GIL held; may free the set */
  void *death_arg;
};

/* A new set for a recording that starts now; reads the torch state.  NULL with an exception. */
MgGuards *mg_guards_new(PyObject *slot_names);
void mg_guards_set_death(MgGuards *g, void (*fn)(void *arg), void *arg);
/* When o dies the set is dead. -1 with an exception. */
int mg_guards_die_with(MgGuards *g, PyObject *o);
/* Keeps o alive (or watches it, for modules) as long as the set lives. */
void mg_guards_hold(MgGuards *g, PyObject *o);
/* The object of a pinned source, or NULL: such an input is the same object at every call. */
PyObject *mg_guards_pinned(const MgGuards *g, SrcRef src);

/* ---- adding guards; errors stick in g->failed ---- */
void mg_guard_add(MgGuards *g, MgGuardKind kind, SrcRef src, PyObject *o, int64_t i);
void mg_guard_value(MgGuards *g, SrcRef src, PyObject *o); /* its class and the plain value in it: it is not held, for its end may be seen */
/* About two values: same, distinct, disjoint; offset: b's data lies i bytes after a's. */
void mg_guard_pair(MgGuards *g, MgGuardKind kind, SrcRef a, SrcRef b, int64_t i);
void mg_guard_apart(MgGuards *g, struct MgApart *a); /* takes it over */
void mg_guard_pinned(MgGuards *g, MgGuardKind kind, PyObject *owner, PyObject *want); /* cell_is, list_is ... */
void mg_guard_tensor(MgGuards *g, SrcRef src, PyObject *tensor);
MgFacts *mg_guard_facts(MgGuards *g, SrcRef src); /* of the tensor at src; NULL: it is not guarded */
void mg_guard_array(MgGuards *g, SrcRef src, PyObject *array);
void mg_guard_member(MgGuards *g, PyObject *owner, PyObject *descr, PyObject *value);
void mg_guard_context(MgGuards *g, PyObject *var, PyObject *value); /* of a ContextVar; NULL: it has none */
void mg_guard_instance(MgGuards *g, PyObject *owner); /* its class and which dict it has */
/* May one object take the other's place at every call: tensors, containers of one type, instances of one plain class? */
bool mg_guard_may_move(PyObject *was, PyObject *now);
/* After guards failed: notes where such objects were replaced by others.  The next recording asks whether a key (NULL: anything
 * in a list) is one of those. */
void mg_guards_note_moves(const MgGuards *g);
/* The recording puts another such object at this key (a tensor into this list), which the guards so far have by identity: true, once. */
bool mg_guard_expect_move(MgGuards *g, PyObject *dict, PyObject *key, PyObject *now);
bool mg_guard_expect_list_move(PyObject *list);
bool mg_guard_key_moves(PyObject *container, PyObject *key);
/* Key of a dict behind an identity-guarded owner; val NULL: absent. owner is the instance when dict is its __dict__.
 * is_input: it is known to change (mg_dynfloat_key has its source), and only its presence is guarded. */
void mg_guard_dict_key(MgGuards *g, PyObject *dict, PyObject *owner, PyObject *key, PyObject *val, bool is_input);
/* inputs: so are those of its values that are known to change. */
void mg_guard_dict_all(MgGuards *g, PyObject *dict, PyObject *owner, bool inputs);
/* val mg_any_float: of a number that is known to change; the caller takes its source (mg_dynfloat_class_attr). */
void mg_guard_type_attr(MgGuards *g, PyTypeObject *t, PyObject *name, PyObject *val);
/* Its bases were asked for in their order. */
void mg_guard_type_mro(MgGuards *g, PyTypeObject *t);
/* ABCMeta said that `sub` is none of abc's subclasses, which a class registered later changes. */
void mg_guard_not_registered(MgGuards *g, PyObject *abc, PyObject *sub);
uint64_t mg_guard_abc_token(void); /* changes when a class is registered with any ABC */
void mg_guard_type(MgGuards *g, PyTypeObject *t); /* its special methods only */
/* The next special method in the dicts of t and its bases (mro[*i], entry *pos); all attributes of tensor classes. */
PyObject *mg_guard_next_special(PyTypeObject *t, Py_ssize_t *i, Py_ssize_t *pos);
void mg_guard_empty(MgGuards *g, PyObject *dict); /* a hook dict of a module */
/* Are a and b the same constant (type and value; floats by bits, containers of constants element by element)? */
bool mg_guard_same_const(PyObject *a, PyObject *b);
bool mg_guard_is_const(PyObject *o);
/* 'f' or 'i': a number of one of NumPy's types that a double or int64 holds; 0: anything else. */
char mg_guard_numpy_number(PyObject *o);
bool mg_guard_is_value(PyObject *o); /* an instance of a class of the program that is an int, float, str or bytes */
bool mg_guard_same_value(PyObject *a, PyObject *b); /* by the C type below their classes, which have no say */
/* Guards a frozenset by its elements, when these compare by identity or are constants; false: they do not. */
bool mg_guard_frozenset(MgGuards *g, SrcRef src, PyObject *v);
/* Do two sets hold the same elements in the same order of iteration? */
bool mg_guard_same_order(PyObject *a, PyObject *b);
/* Does one guard hold?  Loads store what they find in vals. */
bool mg_guard_op_holds(const MgGuards *g, const MgGuardOp *op, PyObject **vals, const MgSlots *s, uint64_t turn);
uint32_t mg_guard_type_version(PyTypeObject *t); /* assigns one when needed; 0: none to be had */
#endif
