/* Parts that record_attr.c, record_call.c and record_seq.c share. */
#ifndef MG_FRONT_RECORD_OBJ_H
#define MG_FRONT_RECORD_OBJ_H
#include "front/rec.h"

/* Class lookup, guarded by name; borrowed, NULL without exception when absent. */
PyObject *mg_rec_lookup_special(PyTypeObject *t, PyObject *name);
PyObject *mg_rec_generic_getattr(PyObject *o, PyObject *name);          /* object.__getattribute__ */
int mg_rec_generic_setattr(PyObject *o, PyObject *name, PyObject *v);   /* object.__setattr__, __delattr__ */
/* Globals and module dicts. get: new, NULL without exception when absent; set: v NULL deletes. */
PyObject *mg_rec_namespace_get(PyObject *dict, PyObject *name);
int mg_rec_namespace_set(PyObject *dict, PyObject *name, PyObject *v);
/* An older instance of a dict subclass (or a dict too large to copy) that C code only reads: guards all of it. */
bool mg_rec_readable_dict(PyObject *o);
/* Is this one of torch's Python functions that the recorder does itself (replace.c)?  self: of a bound method, or NULL. */
bool mg_rec_replaced(PyObject *fn, PyObject *self, PyObject *const *arg, size_t nargsf, PyObject *kwnames, PyObject **out);
#endif
