/* Globals, module dicts and class dicts. */
#ifndef MG_NAMESPACES_H
#define MG_NAMESPACES_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

typedef struct MgCall MgCall;

bool mg_builtin_looks_up(const char *name);
/* What a method that looks up arg[first] gives when it found v, which is stolen (NULL: nothing,
 * unless an exception is set). */
PyObject *mg_builtin_found(const MgCall *c, Py_ssize_t first, const char *name, PyObject *v);
/* The dict behind a read-only view of a class (C.__dict__), borrowed; NULL when o is something else. */
PyObject *mg_rec_class_mapping(PyObject *o);
PyObject *mg_rec_class_mapping_get(PyObject *dict,
                                   PyObject *key);  /* new, guarded; NULL without exception when absent */
PyObject *mg_rec_class_mapping_all(PyObject *dict); /* new dict, guarded */
PyObject *mg_rec_class_mapping_call(const MgCall *c, PyObject *dict);
/* The namespace itself, as a dict that globals() gives: new; its methods and subscripts
 * go to the functions above. */
PyObject *mg_rec_namespace(PyObject *dict);
bool mg_rec_is_namespace(PyObject *o);
PyObject *mg_rec_namespace_call(const MgCall *c, PyObject *dict);
PyObject *mg_rec_referent(
    PyObject *ref); /* what an older weak reference or proxy stands for, as the recording sees it */
/* An older instance of a dict subclass (or a dict too large to copy) that C code
 * only reads: guards all of it. */
bool mg_rec_readable_dict(PyObject *o);
/* Globals and module dicts. get: new, NULL without exception when absent; set: v NULL deletes. */
PyObject *mg_rec_namespace_get(PyObject *dict, PyObject *name);
int mg_rec_namespace_set(PyObject *dict, PyObject *name, PyObject *v);
PyObject *mg_rec_load_global(PyObject *globals, PyObject *builtins, PyObject *name);
int mg_rec_store_global(PyObject *globals, PyObject *name, PyObject *v); /* v NULL: delete */
#endif
