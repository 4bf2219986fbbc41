/* What runs when an object goes out of use: __del__, what a generator has left of its try and with blocks,
 * callbacks of weak references. A recording writes to older objects when its segment ends, so what it takes
 * out of them dies too late: the segment has to end before. */
#ifndef MG_FINALIZERS_H
#define MG_FINALIZERS_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
/* A write drops what an older object held: o, an original or as the recording sees it, or NULL.  True: a
 * break, with MgBreakError. */
bool mg_rec_finalizes(PyObject *o);
/* The same for what an attribute of o (or a key of a namespace) was found to hold, now: the next run may find
 * something else there. name: or the descriptor of a member of a class with __slots__. */
bool mg_rec_finalizes_attr(PyObject *o, PyObject *name, PyObject *now);
/* The same for what a C method of an older container drops, and for `on op= other`. */
bool mg_finalizer_method(PyObject *f, PyObject *const *arg, Py_ssize_t npos, PyObject *kwnames);
bool mg_finalizer_inplace(PyObject *on, PyObject *other);
/* The same for an item or a slice of a list or dict; key: one that is there or not. */
bool mg_finalizer_item(PyObject *on, PyObject *key);
/* The same for an iterator at the end of its loop. */
bool mg_finalizer_iterator(PyObject *it);
/* Guards about keys, or elements of a set, hold them: a break if the end of one runs code of the program. */
bool mg_finalizer_keys(PyObject *keys);
/* Was o, an original that weak references refer to, dropped by this recording? */
bool mg_finalizer_dropped(PyObject *o);
#endif
