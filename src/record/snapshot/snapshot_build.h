/* What the files that build a construction program share: snapshot.c drives, snapshot_code.c makes functions,
 * generators and classes, snapshot_write.c changes older objects. */
#ifndef MG_SNAPSHOT_BUILD_H
#define MG_SNAPSHOT_BUILD_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include "base/table.h"
#include "entry/run/snapshot_program.h"

typedef struct MgOlder MgOlder;

typedef struct MgSnapLate {
  uint8_t op; /* SN_set_state or SN_set_iterator */
  uint32_t me, state;
} MgSnapLate;

typedef struct MgBuilder {
  MgSnapshot *s;
  MgMap memo;  /* object -> value number */
  MgMap out;   /* graph value -> output number */
  MgMap owner; /* instance dict of a fresh object that something else holds, too -> index into the list of
                  fresh objects */
  MgSnapLate *late; /* states of iterators, set after the writes to older objects */
  uint32_t nlate, cap_late;
  PyObject *loop; /* iterator of a dict that a loop of the frame goes on with, borrowed; NULL: none */
  PyObject *keep; /* list: temporaries that the memo names */
} MgBuilder;

enum { SNAP_FAIL = UINT32_MAX - 1 };           /* instead of a value number: a break or an exception is set */
bool mg_snap_written(const struct MgOlder *e); /* has the recording set attributes of it? */

/* Sets the state of value me, an iterator, after all writes.  False on failure. */
bool mg_snap_late(MgBuilder *b, MgSnapOp op, uint32_t me, PyObject *state);
/* Is slots[i] an iterator that only a loop goes on with? */
void mg_snap_note_loop(MgBuilder *b, PyObject *const *slots, int i);
uint32_t mg_snap_dict_iterator(MgBuilder *b, PyObject *o); /* an iterator of a dict */

/* Changes of older objects; false with a break. */
bool mg_snap_writes(MgBuilder *b);
/* Fails the row `numbers` of retries.def when that applies. */
void mg_snap_numbers(void);
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
