/* Objects that are older than the recording, and what it sees in their place. */
#ifndef MG_IDENTITY_H
#define MG_IDENTITY_H
#include "base/table.h"
#include "entry/guard/source_kinds.h"

typedef struct MgGuards MgGuards;

typedef struct MgHook MgHook;
typedef struct MgRec MgRec;
typedef struct MgUnread MgUnread;

typedef enum MgOlderKind {
  OLDER_itself,    /* guarded by identity, or immutable: modules, classes, C objects */
  OLDER_object,    /* instance found by a path: type guarded, attributes guarded as they are read */
  OLDER_func,      /* Python function found by a path: code and globals guarded, closure by path */
  OLDER_tensor,    /* seen is a stand-in */
  OLDER_array,     /* seen stands for a NumPy array (array_ops.h) */
  OLDER_instdict,  /* an instance dict: seen is the full overlay of its owner, whose entry has the writes */
  OLDER_namespace, /* globals or a module's dict that was written to: attrs has the writes */
  OLDER_tuple,     /* seen is a tuple of wrapped items, or the tuple itself when nothing changed */
  OLDER_bound,     /* method, builtin method or partial bound anew to what the recording sees */
  OLDER_list,
  OLDER_dict,
  OLDER_set,
  OLDER_deque,
  OLDER_cell, /* seen is a copy; pristine is its content at first */
  OLDER_iter  /* the same; pristine is where it stood: older_iterators.h */
} MgOlderKind;
typedef struct MgOlder {
  PyObject *orig, *seen; /* strong */
  PyObject *pristine; /* strong: list, deque -> tuple, dict -> its copy, set -> frozenset, cell -> content or
                         NULL */
  PyObject *read; /* strong, of a dict that was looked at key by key so far (older_dict.c): what these hold;
                     of a list that was  only appended to so far (older_list.c): None; else NULL */
  const struct MgLoop *loaded_by; /* with read: the frame that loaded it first; compared only */
  PyObject *attrs;   /* strong: overlay of the instance dict: writes only, or all of it when full */
  PyObject *members; /* strong: writes to __slots__ members: name -> value; NULL at first */
  PyObject *attrs0;  /* strong: the full overlay before any write; NULL while not full */
  SrcRef src;        /* 0: behind an identity-guarded owner */
  uint8_t kind;      /* MgOlderKind */
  bool compared;     /* whether it is another object than others matters: distinct_objects.c */
  bool full;         /* attrs mirrors the whole instance dict */
} MgOlder;
struct MgOlder;
/* What a class was found to have under a name; guarded. */
typedef struct MgAttrFound {
  PyTypeObject *type;
  PyObject *name, *attr;
  unsigned version;
} MgAttrFound;
/* How a class looks attributes up, of this version. */
typedef struct MgAttrClass {
  PyTypeObject *type;
  unsigned version;
  bool compares; /* keys of its dicts run code of the program when they are compared */
  bool generic;  /* its instances use object.__getattribute__; guarded */
} MgAttrClass;
/* A name of a namespace whose dict has this version: what it is, guarded, and seen as it is. */
typedef struct MgGlobalFound {
  PyObject *dict, *name, *value;
  uint64_t version;
} MgGlobalFound;
typedef struct MgIdent MgIdent; /* wrap.c: original <-> what the recording sees */
struct MgIdent;
struct MgIdent {
  MgRec *r;
  MgOlder *v; /* in the order they were met */
  uint32_t n, cap;
  MgMap by_orig, by_seen; /* object -> index into v */
  MgMap by_dict;          /* instance dict -> index of its owner, once attributes were looked at */
  MgMap fresh;
  MgMap fresh_gen;   /* fresh generators, by address; not kept alive */
  PyObject *gens;    /* list: weak references to fresh generators and coroutines */
  PyObject *keep;    /* list: fresh objects */
  PyObject *absent;  /* marks a deleted attribute in an overlay */
  PyObject *func;    /* strong: the outer frame's function */
  PyObject *classes; /* strong: dict of classes written to (class_writes.c); NULL at first */
  PyObject *context; /* strong: copy of the context that is current while recording (context_vars.c); NULL:
                        none written to */
  PyObject *rngs; /* strong: dict of generator -> the copy that the recording draws from (host_random.c); NULL
                     at first */
  PyObject *vars; /* strong: dict of the context variables written to */
  MgAttrFound found[256];       /* by a hash of class and name (attributes.c) */
  MgAttrClass classes_seen[32]; /* by a hash of the class */
  MgGlobalFound globals[256];   /* by a hash of dict and name */
  struct MgUnread
      *unread; /* constants that were loaded, and may not have been looked at (lazy_constants.c); malloc'ed */
  uint32_t nunread, waiting; /* of these, how many have not been */
  MgMap by_unread;           /* what the recording sees of them -> index */
  bool loads;                /* the instruction does no more than to load what it finds */
  bool may_stop;             /* a break can still be placed before what looks at one */
  bool stops;                /* that is wanted: a string that keeps changing would be looked at */
  struct MgHook *hook;       /* hooks registered on tensors, in order (tensor_hooks.c); malloc'ed */
  uint32_t nhook;
  uint32_t *compared, ncompared; /* entries of objects that the program compares; malloc'ed */
  uint32_t nobject;              /* instances and functions found by a path */
  uint32_t nlazy;                /* dicts that are looked at key by key, lists that are only appended to */
  int depth;                     /* containers that are being wrapped around the next object */
  int of_cell;                   /* what a cell holds is wrapped at this depth; 0: no cell is */
  MgMap dropped; /* originals with weak references that older objects do not hold any more (finalizers.c) */
  bool bent;     /* a hook ran in the gradient graph whose result is not proportional to its gradient */
  bool unhooked; /* the handle of an older hook was removed: its dict is written as a whole by the snapshot */
};
/* ---- wrapping ---- */
MgGuards *mg_ident_guards(void);
/* The entry of an object that the recording sees; NULL when it is not an older one.
 * Valid until the next mg_wrap. */
MgOlder *mg_older(PyObject *seen);
/* The original of a seen object, or the object itself. Borrowed. */
PyObject *mg_older_orig(PyObject *seen);
/* Registers seen as the older object orig. -1 with an exception. */
int mg_older_add(PyObject *orig, PyObject *seen, SrcRef src, MgOlderKind kind);
/* The recording depends on which object o is (its hash, its id): guarded when it may be
 * another one at the next call. */
void mg_older_pin(PyObject *o);
/* Is the object found by a path at every call (and may be another one then)? */
bool mg_older_by_path(const MgOlder *e);
/* One object was reached by a second path. */
void mg_older_alias(const MgOlder *e, SrcRef src);
void mg_fresh(PyObject *o); /* made while recording; keeps it alive until the end */
bool mg_is_fresh(PyObject *o);
SrcRef mg_src_slot(int slot); /* an entry of MgSlots */
SrcRef mg_src_closure(int i); /* cell i of the outermost frame's function */
#endif
