/* Attributes of objects, as the program reads, sets and deletes them while it is recorded. */
#ifndef MG_ATTRIBUTES_H
#define MG_ATTRIBUTES_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>

PyObject *mg_rec_generic_getattr(PyObject *o, PyObject *name);        /* object.__getattribute__ */
int mg_rec_generic_setattr(PyObject *o, PyObject *name, PyObject *v); /* object.__setattr__, __delattr__ */
/* Class lookup, guarded by name; borrowed, NULL without exception when absent. */
PyObject *mg_rec_lookup_special(PyTypeObject *t, PyObject *name);
PyObject *mg_rec_object_getattr(PyObject *o,
                                PyObject *name); /* the same, of modules too, with the error that it raises */
/* object.__getattribute__ and object.__setattr__ of a stand-in (v NULL: delete). */
PyObject *mg_rec_standin_getattr(PyObject *o, PyObject *name);
int mg_rec_standin_setattr(PyObject *o, PyObject *name, PyObject *v);
PyObject *mg_rec_getattr(PyObject *o, PyObject *name);
/* nn.Module.__getattr__ of an older module, without its __dict__ reads: only the keys that decide are
 * guarded. */
PyObject *mg_rec_submodule(PyObject *o, PyObject *name);
/* getattr(o, name) of a module by a string that is another one at other calls: a parameter, buffer or
 * submodule, whichever string that is.  NULL without exception: it is looked up as usual, and name looked at.
 */
PyObject *mg_rec_getattr_moving(PyObject *o, PyObject *name);
int mg_rec_setattr(PyObject *o, PyObject *name, PyObject *v); /* v NULL: delete */
PyObject *mg_rec_special(PyObject *o, PyObject *name);        /* type lookup + bind (__enter__ ...) */
#endif
