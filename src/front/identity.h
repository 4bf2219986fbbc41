/* Identity: what the recording sees for each object that is older than it, both ways.
 * In: objects read from sources.  Out: the object itself, a stand-in, or a copy whose content is wrapped as well.
 *
 *   class       decided by                 what the recording sees
 *   fresh       mg_fresh (positive mark)   the object; changed for real, rebuilt by the snapshot
 *   older       mg_wrap                    see MgOlderKind
 *   stand-in    the tensor side            itself
 *   constant    mg_guard_is_const          itself, guarded by value
 *
 * Invariants: an older object is never written to while recording: containers are copies, attributes go to an overlay.
 * What was written is the difference between a copy and its pristine content; snapshot.c replays it.
 * Every original and every seen object is kept alive to the end, so addresses are identities. */
#ifndef MG_FRONT_IDENTITY_H
#define MG_FRONT_IDENTITY_H
#include "base/table.h"
#include "front/guard.h"
#include "front/names.h"
#include "front/rec.h"

typedef enum MgOlderKind {
  OLDER_itself,  /* guarded by identity, or immutable: modules, classes, C objects */
  OLDER_object,  /* instance found by a path: type guarded, attributes guarded as they are read */
  OLDER_func,    /* Python function found by a path: code and globals guarded, closure by path */
  OLDER_tensor,  /* seen is a stand-in */
  OLDER_array,   /* seen stands for a NumPy array (ndarray.h) */
  OLDER_instdict,  /* an instance dict: seen is the full overlay of its owner, whose entry has the writes */
  OLDER_namespace, /* globals or a module's dict that was written to: attrs has the writes */
  OLDER_tuple,   /* seen is a tuple of wrapped items, or the tuple itself when nothing changed */
  OLDER_bound,   /* method, builtin method or partial bound anew to what the recording sees */
  OLDER_list, OLDER_dict, OLDER_set, OLDER_deque, OLDER_cell, /* seen is a copy; pristine is its content at first */
  OLDER_iter  /* the same; pristine is where it stood: iterator.h */
} MgOlderKind;

typedef struct MgOlder {
  PyObject *orig, *seen;  /* strong */
  PyObject *pristine;     /* strong: list, deque -> tuple, dict -> its copy, set -> frozenset, cell -> content or NULL */
  PyObject *read;         /* strong, of a dict that was looked at key by key so far (olderdict.c): what these hold; of a list that was
                             only appended to so far (olderlist.c): None; else NULL */
  PyObject *attrs;        /* strong: overlay of the instance dict: writes only, or all of it when full */
  PyObject *members;      /* strong: writes to __slots__ members: name -> value; NULL at first */
  PyObject *attrs0;       /* strong: the full overlay before any write; NULL while not full */
  SrcRef src;             /* 0: behind an identity-guarded owner */
  uint8_t kind;           /* MgOlderKind */
  bool compared;          /* whether it is another object than others matters: compared.c */
  bool full;              /* attrs mirrors the whole instance dict */
} MgOlder;

/* What a class was found to have under a name; guarded. */
typedef struct MgAttrFound { PyTypeObject *type; PyObject *name, *attr; unsigned version; } MgAttrFound;

/* How a class looks attributes up, of this version. */
typedef struct MgAttrClass {
  PyTypeObject *type;
  unsigned version;
  bool compares; /* keys of its dicts run code of the program when they are compared */
  bool generic;  /* its instances use object.__getattribute__; guarded */
} MgAttrClass;

/* A name of a namespace whose dict has this version: what it is, guarded, and seen as it is. */
typedef struct MgGlobalFound { PyObject *dict, *name, *value; uint64_t version; } MgGlobalFound;

struct MgInstr;

struct MgIdent {
  MgRec *r;
  MgOlder *v;             /* in the order they were met */
  uint32_t n, cap;
  MgMap by_orig, by_seen; /* object -> index into v */
  MgMap by_dict;          /* instance dict -> index of its owner, once attributes were looked at */
  MgMap fresh;
  MgMap fresh_gen;        /* fresh generators, by address; not kept alive */
  PyObject *gens;         /* list: weak references to them */
  PyObject *keep;         /* list: fresh objects */
  PyObject *absent;       /* marks a deleted attribute in an overlay */
  PyObject *func;         /* strong: the outer frame's function */
  PyObject *classes;      /* strong: dict of classes written to (classes.c); NULL at first */
  PyObject *context;      /* strong: copy of the context that is current while recording (contextvar.c); NULL: none written to */
  PyObject *rngs;         /* strong: dict of generator -> the copy that the recording draws from (draw.c); NULL at first */
  PyObject *vars;         /* strong: dict of the context variables written to */
  MgAttrFound found[256]; /* by a hash of class and name (record_attr.c) */
  MgAttrClass classes_seen[32];  /* by a hash of the class */
  MgGlobalFound globals[256];    /* by a hash of dict and name */
  struct MgUnread *unread; /* constants that were loaded, and may not have been looked at (unread.c); malloc'ed */
  uint32_t nunread, waiting; /* of these, how many have not been */
  MgMap by_unread;        /* what the recording sees of them -> index */
  bool loads;             /* the instruction does no more than to load what it finds */
  struct MgHook *hook;    /* hooks registered on tensors, in order (tensorhook.c); malloc'ed */
  uint32_t nhook;
  uint32_t *compared, ncompared; /* entries of objects that the program compares; malloc'ed */
  uint32_t nobject;       /* instances and functions found by a path */
  uint32_t nlazy;         /* dicts that are looked at key by key, lists that are only appended to */
  int depth;              /* containers that are being wrapped around the next object */
  int of_cell;            /* what a cell holds is wrapped at this depth; 0: no cell is */
  bool finalizers;        /* an object with a __del__ was met */
  bool unhooked;          /* the handle of an older hook was removed: its dict is written as a whole by the snapshot */
};

/* The entry of an object that the recording sees; NULL when it is not an older one.  Valid until the next mg_wrap. */
MgOlder *mg_older(PyObject *seen);
/* The original of a seen object, or the object itself. Borrowed. */
PyObject *mg_older_orig(PyObject *seen);
/* Is it an older object whose state lives in C, which C code may therefore not touch? (not a copy, not a tensor) */
bool mg_older_opaque(PyObject *seen);
/* The next living generator that the recording made, from *i on; borrowed, NULL at the end. */
PyObject *mg_fresh_generator(const MgIdent *d, Py_ssize_t *i);
/* Was it left in the middle of a try or with block, the rest of which runs when it dies? */
bool mg_generator_cleans_up(PyObject *gen);
/* Those that stand at a yield end without running their finally clauses on the user's objects; torch's own, which ran
 * unrecorded, tidy up for real. */
void mg_generators_end(MgRec *r);
/* The recording depends on which object o is (its hash, its id): guarded when it may be another one at the next call. */
void mg_older_pin(PyObject *o);
/* Registers seen as the older object orig. -1 with an exception. */
int mg_older_add(PyObject *orig, PyObject *seen, SrcRef src, MgOlderKind kind);

/* mg_wrap for what C code gave back, which may be something that the recording sees already. */
PyObject *mg_wrap_result(PyObject *v);
/* What is under a key of a dict that is known by identity (v, or NULL: nothing), guarded. */
PyObject *mg_wrap_key(PyObject *dict, PyObject *name, PyObject *v);

/* ---- attributes of older instances; e is the entry of o ---- */
/* Looks name up in the instance dict: new reference, or NULL without exception when absent, or NULL with one. */
PyObject *mg_older_attr(PyObject *o, PyObject *name);
int mg_older_set_attr(PyObject *o, PyObject *name, PyObject *v); /* v NULL: delete; AttributeError when absent */
/* The same without wrapping a container that has no copy yet: *raw is the original value (borrowed) and NULL is returned. */
PyObject *mg_older_attr_raw(PyObject *o, PyObject *name, PyObject **raw);
/* Is the object found by a path at every call (and may be another one then)? */
bool mg_older_by_path(const MgOlder *e);
/* The whole instance dict as the recording sees it: borrowed; NULL with an exception. */
PyObject *mg_older_dict(PyObject *o);

/* ---- dicts (olderdict.c) ---- */
PyObject *mg_olderdict_wrap(PyObject *v, SrcRef src); /* mg_wrap for a dict that is met for the first time */
/* Is it a dict of which only single keys have been looked at?  Its copy is empty: what is none of the functions below fills it first. */
bool mg_olderdict_lazy(PyObject *seen);
int mg_olderdict_fill(PyObject *seen); /* 0 when it is not lazy */
int mg_olderdict_look(PyObject *seen); /* it is being loaded: fills it, unless it will be asked for one key, and nothing else */
/* Is a copy for one use of what is loaded by this instruction: by the program, or (around: containers that are being wrapped around it)
 * as what a cell holds?  next: says whether the instruction after it is such a use. */
bool mg_older_loads_for(int around, bool (*next)(const struct MgLoop *l, const struct MgInstr *in));
/* What is under the key of a lazy dict, new; NULL without exception: nothing, or the dict is not lazy any more. */
PyObject *mg_olderdict_get(PyObject *seen, PyObject *key);
int mg_olderdict_contains(PyObject *seen, PyObject *key); /* 0, 1; -1 with an exception; -2: the dict is not lazy any more */

/* ---- lists (olderlist.c) ---- */
PyObject *mg_olderlist_wrap(PyObject *v, SrcRef src); /* mg_wrap for a list that is met for the first time */
/* Is it a list that was only appended to?  Its copy has what was appended; the items before it are unknown. */
bool mg_olderlist_lazy(PyObject *seen);

/* ---- dicts and lists ---- */
int mg_older_fill(PyObject *seen); /* 0 when it is not lazy */
int mg_older_look(PyObject *seen); /* it is being loaded: fills it, unless it will be used as a lazy one may, and in no other way */
int mg_older_fill_others(PyObject *seen, uint32_t from); /* all but this one among the entries from there on */

/* ---- comparisons (compared.c) ---- */
/* The program compares o, or what is in it, with others by ==, or by hash: that different objects are different is guarded. */
void mg_compared(PyObject *o);
void mg_compared_tensor(PyObject *standin);

/* One object was reached by a second path. */
void mg_older_alias(const MgOlder *e, SrcRef src);
/* The instance dict of an older container, wrapped into that of its copy; at: its entry. */
int mg_older_copy_attrs(uint32_t at, PyObject *v, PyObject *c, SrcRef src);
#endif
