/* What runs when an object goes out of use: __del__, what a generator has left,
 * callbacks of weak references. */
#ifndef MG_FINALIZER_WALK_H
#define MG_FINALIZER_WALK_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include "base/table.h"

typedef struct FinNode {
  PyObject *o;     /* borrowed: reached from the root, which lives */
  Py_ssize_t refs; /* references from other nodes */
  bool alive;      /* others hold it, or hold what holds it */
} FinNode;

typedef struct FinWalk {
  FinNode *v;
  uint32_t n, cap, done; /* done: nodes whose references were counted or followed */
  MgMap at;              /* object -> index */
  bool recording;        /* ask which objects the recording holds */
  bool full;             /* too many, or out of memory */
  bool runs;             /* one of them has a finalizer */
} FinWalk;
bool mg_fin_is_generator(PyObject *o);
/* Has it a weak reference with a callback that is not one of a guard set's? */
bool mg_fin_has_callback(PyObject *o);
/* Numbers, strings and what lives as long as the program. */
bool mg_fin_is_leaf(PyObject *o);
PyWeakReference *mg_fin_weakrefs(PyObject *o);
bool mg_fin_walk(FinWalk *w, PyObject *o);
void mg_fin_free(FinWalk *w);
/* Would code of the program run if nobody held o any more?  Looks through everything that would go with o.
 * At the start of a run: objects that others hold as well stay alive. */
bool mg_finalizer_reached(PyObject *o);
/* What the guards ask: a slot that is overwritten, an attribute. */
bool mg_finalizer_slot(PyObject *o);
bool mg_finalizer_attr(PyObject *o, PyObject *name);
bool mg_finalizer_first(PyObject *deque); /* the item that a full deque drops for the next one */
#endif
