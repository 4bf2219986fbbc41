/* What the files that build a construction program share: snapshot.c drives, snapshot_code.c makes functions, generators and
 * classes, snapshot_write.c changes older objects. */
#ifndef MG_FRONT_SNAPSHOT_BUILD_H
#define MG_FRONT_SNAPSHOT_BUILD_H
#include "base/table.h"
#include "front/snapshot.h"

typedef struct MgBuilder {
  MgSnapshot *s;
  MgMap memo;     /* object -> value number */
  MgMap out;      /* graph value -> output number */
  MgMap owner;    /* instance dict of a fresh object that something else holds, too -> index into the list of fresh objects */
  uint32_t *late, nlate, cap_late; /* pairs: an iterator, its state, set after the writes to older objects */
  PyObject *keep; /* list: temporaries that the memo names */
} MgBuilder;

enum { SNAP_FAIL = UINT32_MAX - 1 }; /* instead of a value number: a break or an exception is set */

/* The value that o is at the end of the segment; every object is built once. */
uint32_t mg_snap_build(MgBuilder *b, PyObject *o);
struct MgOlder;
uint32_t mg_snap_older(MgBuilder *b, struct MgOlder *e);
bool mg_snap_written(const struct MgOlder *e); /* has the recording set attributes of it? */
uint32_t mg_snap_refuse(PyObject *o); /* a break that names its class */
/* One instruction over values that are there; obj is kept. */
uint32_t mg_snap_emit(MgBuilder *b, MgSnapOp op, PyObject *obj, uint32_t a, const uint32_t *arg, uint32_t narg);
/* Builds items (NULL: value 0) and emits one instruction over them.  target != 0: a fill, else a new value. */
uint32_t mg_snap_emit_over(MgBuilder *b, MgSnapOp op, PyObject *obj, uint32_t target, PyObject *const *item, Py_ssize_t n);
/* The same for an instruction that makes an instance of t, from item unless that is NULL. */
uint32_t mg_snap_emit_typed(MgBuilder *b, MgSnapOp op, PyTypeObject *t, PyObject *item);
bool mg_snap_memo(MgBuilder *b, PyObject *o, uint32_t v); /* o is value v; false on failure */

/* Keys and values of a dict in order, the elements of a set, whatever a subclass says about iteration: tuples, borrowed from b->keep. */
PyObject *mg_snap_dict_items(MgBuilder *b, PyObject *d);
PyObject *mg_snap_set_items(MgBuilder *b, PyObject *o);
MgSnapOp mg_snap_attr_op(PyTypeObject *t, PyObject *name); /* how an attribute in the instance dict of a t is written */

/* Changes of older objects; false with a break. */
bool mg_snap_writes(MgBuilder *b);
/* Hooks that the program registered on tensors: at each run anew, in order.  The handles are what that gives. */
bool mg_snap_hooks(MgBuilder *b);

/* The size of a jagged dimension, asked of a tensor that has it; false: o is none. */
bool mg_snap_size_of(MgBuilder *b, PyObject *o, uint32_t *me);
uint32_t mg_snap_function(MgBuilder *b, PyObject *o);
uint32_t mg_snap_generator(MgBuilder *b, PyObject *o);
uint32_t mg_snap_class(MgBuilder *b, PyObject *o); /* one that the recording made */
/* A list of (weak reference to the code, name of its module, position, line) of the traceback of an exception: new. */
PyObject *mg_snap_traceback(PyObject *tb);
/* staticmethod, classmethod, property: the arguments that make it anew, new; NULL without exception when o is none of them. */
PyObject *mg_snap_decorator_args(PyObject *o);
/* Generators that were left in the middle of a try or with block and are no part of the result: CPython would run the rest
 * when they die, which may have happened already.  False with a break when there is one. */
bool mg_snap_generators(MgBuilder *b);
#endif
