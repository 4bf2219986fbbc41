/* What the files that build a construction program share: snapshot.c drives, snapshot_code.c makes functions,
 * generators and classes, snapshot_write.c changes older objects. */
#ifndef MG_SNAPSHOT_BUILD_H
#define MG_SNAPSHOT_BUILD_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include "base/table.h"

typedef struct MgOlder MgOlder;
typedef struct MgSnapshot MgSnapshot;

typedef struct MgBuilder {
  MgSnapshot *s;
  MgMap memo;  /* object -> value number */
  MgMap out;   /* graph value -> output number */
  MgMap owner; /* instance dict of a fresh object that something else holds, too -> index into the list of
                  fresh objects */
  uint32_t *late, nlate, cap_late; /* pairs: an iterator, its state, set after the writes to older objects */
  PyObject *keep;                  /* list: temporaries that the memo names */
} MgBuilder;

enum { SNAP_FAIL = UINT32_MAX - 1 };           /* instead of a value number: a break or an exception is set */
bool mg_snap_written(const struct MgOlder *e); /* has the recording set attributes of it? */

/* Changes of older objects; false with a break. */
bool mg_snap_writes(MgBuilder *b);
/* Hooks that the program registered on tensors: at each run anew, in order.  The
 * handles are what that gives. */
bool mg_snap_hooks(MgBuilder *b);

/* The size of a jagged dimension, asked of a tensor that has it; false: o is none. */
bool mg_snap_size_of(MgBuilder *b, PyObject *o, uint32_t *me);
uint32_t mg_snap_function(MgBuilder *b, PyObject *o);
uint32_t mg_snap_generator(MgBuilder *b, PyObject *o);
uint32_t mg_snap_class(MgBuilder *b, PyObject *o); /* one that the recording made */
/* A list of (weak reference to the code, name of its module, position, line) of the
 * traceback of an exception: new. */
PyObject *mg_snap_traceback(PyObject *tb);
/* staticmethod, classmethod, property: the arguments that make it anew, new; NULL without
 * exception when o is none of them. */
PyObject *mg_snap_decorator_args(PyObject *o);
/* Generators that were left in the middle of a try or with block and are no part of the result: CPython would
 * run the rest when they die, which may have happened already.  False with a break when there is one. */
bool mg_snap_generators(MgBuilder *b);
#endif
