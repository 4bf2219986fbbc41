/* The construction program at the end of a segment: makes fresh objects anew, gives older objects back as
 * they are, and replays writes to them.  Built while recording (snapshot.c), run after the graph
 * (snapshot_run.c). Objects in the program are kept by its guard set's rule: modules are borrowed
 * (the entry dies with them). */
#ifndef MG_SNAPSHOT_H
#define MG_SNAPSHOT_H
#include "entry/run/snapshot_program.h"

typedef struct MgBuilder MgBuilder;
typedef struct MgOlder MgOlder;
/* The construction program of the outer frame at the end of a segment: slots[0..n) or the returned value ret.
 * NULL with a break set when something cannot be rebuilt. */
MgSnapshot *mg_snapshot_build(PyObject **slots, int n, const bool *untouched, PyObject *ret);
MgSnapOp mg_snap_attr_op(PyTypeObject *t,
                         PyObject *name); /* how an attribute in the instance dict of a t is written */
/* The value that o is at the end of the segment; every object is built once. */
uint32_t mg_snap_build(MgBuilder *b, PyObject *o);
/* Keys and values of a dict in order, the elements of a set, whatever a subclass says about iteration:
 * tuples, borrowed from b->keep. */
PyObject *mg_snap_dict_items(MgBuilder *b, PyObject *d);
/* One instruction over values that are there; obj is kept. */
uint32_t mg_snap_emit(MgBuilder *b, MgSnapOp op, PyObject *obj, uint32_t a, const uint32_t *arg,
                      uint32_t narg);
/* Builds items (NULL: value 0) and emits one instruction over them.  target != 0:
 * a fill, else a new value. */
uint32_t mg_snap_emit_over(MgBuilder *b, MgSnapOp op, PyObject *obj, uint32_t target, PyObject *const *item,
                           Py_ssize_t n);
/* The same for an instruction that makes an instance of t, from item unless that is NULL. */
uint32_t mg_snap_emit_typed(MgBuilder *b, MgSnapOp op, PyTypeObject *t, PyObject *item);
bool mg_snap_memo(MgBuilder *b, PyObject *o, uint32_t v); /* o is value v; false on failure */
uint32_t mg_snap_older(MgBuilder *b, struct MgOlder *e);
uint32_t mg_snap_refuse(PyObject *o); /* a break that names its class */
/* Room for `need` elements, p's content moved there; NULL: no memory, and p lives on. */
void *mg_snap_grow(void *p, uint32_t *cap, uint32_t need, size_t size);
PyObject *mg_snap_set_items(MgBuilder *b, PyObject *o);
#endif
