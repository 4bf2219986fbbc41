/* What a guard set is made of: its operations, the tables of the fast check, and the slots
 * of a frame that it reads. */
#ifndef MG_GUARD_SET_H
#define MG_GUARD_SET_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include "base/table.h"
#include "entry/guard/source_kinds.h"
#include "host/torch/torch_state.h"

typedef struct MgApart MgApart;
typedef struct MgDraw MgDraw;
typedef struct MgGuardCost MgGuardCost;
typedef struct MgGuards MgGuards;
typedef struct MgNdFacts MgNdFacts;

/* What guards and snapshots see of a frame: its slots (locals, cells, then stack) and its function. On a hit
 * from the callable these are the bound arguments and no frame exists.  Frames that wait for this one, and
 * may be recorded with it, follow: the function, then the slots of each. */
typedef struct MgSlots {
  PyObject **slot; /* borrowed; NULL entries are unbound */
  int n;
  PyObject *func; /* the PyFunctionObject */
  PyObject
      *names; /* recording: of the slots, None for those of a value stack; NULL: the locals of func's code */
} MgSlots;
typedef struct MgGuardFail {
  int index;
  bool of_tensor;    /* it is about the facts of a tensor, or what its sizes compute to */
  bool of_module;    /* another module instance of the same class is there */
  bool other_module; /* another module */
  char text[400];    /* only when asked for */
} MgGuardFail;
typedef enum MgGuardKind {
#define GUARD(name, text) GK_##name,
#include "entry/guard/guards.def"
  GK__COUNT
} MgGuardKind;
/* ABCMeta said that sub is no subclass; it says so again until some class is registered
 * somewhere, which changes the token. */
typedef struct MgNotAbc {
  PyObject *sub;
  uint64_t token;
} MgNotAbc; /* sub: borrowed from the set */
typedef struct MgGuardOp {
  uint32_t kind : 8;  /* MgGuardKind */
  uint32_t src2 : 24; /* the other source of same, distinct, offset */
  SrcRef src;         /* the value; 0 when the guard is about a pinned object in o */
  PyObject *o;        /* borrowed from the set: object compared with, or pinned object looked at */
  union {
    PyObject *want;        /* recorded content (borrowed from the set) */
    int64_t i;             /* length, slot number, distance in bytes */
    MgFacts *facts;        /* owned */
    MgNdFacts *array;      /* owned */
    struct MgApart *apart; /* owned; input_overlap.h */
    MgNotAbc *abc;         /* owned */
    void *p;               /* PyMethodDef */
  } u;
} MgGuardOp;
/* The keys that were read of one dict that is reached through an identity-guarded owner. */
typedef struct MgDictGuard {
  PyObject *dict;  /* borrowed from the set or from its owner */
  PyObject **slot; /* where the owner keeps it, when it is an instance dict; else NULL */
  PyObject *owner; /* borrowed: for printing and slot reads; NULL for globals and plain dicts */
  PyObject **key;  /* strong */
  PyObject **val;  /* borrowed from the set; NULL: the key was absent */
  int n, cap;
  Py_ssize_t size;    /* number of keys, checked when all is set */
  PyTypeObject *type; /* borrowed from the set: class of the owner, which may be reassigned */
  bool all;           /* the set of keys was used (iteration, len, copy) */
  bool all_exact;     /* and every value, numbers that change included */
  PyObject *order;    /* borrowed from the set: tuple of the keys in order, when all is set */
} MgDictGuard;
/* False: the owner has got another dict, and this one may be gone. */
static inline bool mg_dict_guard_lives(const MgDictGuard *d) { return !d->slot || *d->slot == d->dict; }
/* The attributes that were looked up on one class, and its special methods: C code finds
 * those through type slots. */
typedef struct MgTypeGuard {
  PyTypeObject *type;     /* borrowed from the set */
  PyObject **name, **val; /* name strong, val borrowed; val NULL: no such attribute */
  int n, cap;
  int nspecial;       /* special methods that it and its bases define; for tensor classes: attributes */
  PyTypeObject **mro; /* borrowed from the set: the order of its bases, when that was read; else NULL */
  int nmro;
} MgTypeGuard;
/* What a check touches when nothing changed: packed, one compare each. */
typedef struct MgFastDict {
  PyObject *dict;
  uint64_t version;
} MgFastDict;
/* Changes with every change of the dict.  0: not known, as on 3.14 and later, where dicts have none. */
static inline uint64_t mg_dict_version(PyObject *dict) {
#if PY_VERSION_HEX >= 0x030E0000
  return 0;
#else
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  return ((PyDictObject *)dict)->ma_version_tag;
#pragma GCC diagnostic pop
#endif
}
/* Has the dict stayed as it was at a version?  False where that is not known. */
static inline bool mg_dict_is_at(PyObject *dict, uint64_t version) {
  return version && version == mg_dict_version(dict);
}
typedef struct MgFastSlot {
  PyObject **slot;
  PyObject *dict, *owner;
  PyTypeObject *type;
} MgFastSlot;
typedef struct MgFastType {
  PyTypeObject *type;
  uint32_t version;
} MgFastType;
enum { MG_GUARD_CHANGED = 8 }; /* dicts that changed since the last check, before all of them are compared */
struct MgGuards {
  MgSrc *src;
  uint32_t nsrc, cap_src; /* src[0] unused */
  MgGuardOp *op;
  uint32_t nop, cap_op; /* after seal: the last npinned are about pinned tensors */
  MgFactsOf *pinned;
  uint32_t npinned; /* these, packed; equal facts are shared */
  MgDictGuard *dict;
  uint32_t ndict, cap_dict;
  MgTypeGuard *type;
  uint32_t ntype, cap_type;
  PyObject **empty;
  uint32_t nempty, cap_empty; /* hook dicts of modules that must stay empty (borrowed) */
  MgFastDict *fast_dict;      /* ndict entries, by seal */
  MgFastSlot *fast_slot;
  uint32_t nslot;                               /* instance dicts only */
  MgFastType *fast_type;                        /* ntype entries */
  bool watched;                                 /* changes are told: changed lists them (dict_watch.c) */
  uint32_t changed[MG_GUARD_CHANGED], nchanged; /* dict numbers; more than fit: all */
  uint32_t nwatched;                            /* dicts with a record */
  struct MgDraw *draw;
  uint32_t ndraw, cap_draw; /* random numbers that a run draws, in order (host_random.h) */
  struct MgCalcDone *done;
  uint32_t ndone;    /* by source: what was computed last (source.c) */
  PyObject **preset; /* nsrc start values for vals: pinned objects, else NULL */
  PyObject *keep;    /* list: strong references */
  PyObject *loose;   /* after seal: the others (gc_holder.h) */
  PyObject *watch;   /* list: weak references with a callback */
  const void **watch_class;
  uint32_t nwatch_class,
      cap_watch_class; /* of each: its class, when it is a module (transient_modules.h), else NULL */
  PyObject *callback;  /* called when a watched object dies */
  MgTorchState state;  /* at the start of the recording */
  bool engine;         /* the autograd engine ran while recording */
  MgMap by_src, by_dict, by_type, by_held, by_fact; /* while recording; freed by seal */
  uint32_t recent;                                  /* of dict[]: the last one asked for */
  PyObject *slot_names;                             /* co_localsplusnames of the outer frame, for printing */
  bool failed;                                      /* out of memory while recording: seal fails */
  bool dead;                                        /* a watched object died */
  void (*on_death)(void *arg);                      /* told once, with the GIL held; may free the set */
  void *death_arg;
  MgGuardCost *cost; /* for reports; NULL: there is none */
};

/* What guards ask of the recording of this thread; a table, since record lies above.
 * record/segment/ops.c fills it. */
typedef struct MgGuardAsks {
  bool (*is_fresh)(PyObject *o); /* was o made while recording? */
  bool (*is_older)(PyObject *o); /* has the recording met o, which is older? */
  SrcRef (*changing_key)(PyObject *dict, PyObject *owner, PyObject *key, PyObject *val); /* mg_dynfloat_key */
  uint32_t (*place)(const char **path); /* the line that is recorded, and its file; 0: none */
} MgGuardAsks;
extern const MgGuardAsks mg_guard_asks;
#endif
