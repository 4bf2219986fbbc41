/* Builtin functions and methods that look at objects the recording has to know about. */
#ifndef MG_C_BUILTINS_H
#define MG_C_BUILTINS_H
#include "record/core/c_functions.h"

typedef struct MgCall MgCall;
typedef struct MgRec MgRec;
PyObject *mg_call_as_python(const MgCall *c); /* the function of magneto._glue.polyfills that has its name */
PyObject *mg_call_builtin(const MgCall *c, MgAction act); /* the actions that c_builtins.c does */
/* max or min of tensors with one element each and numbers, as a tensor; NULL without
 * exception: of something else. */
PyObject *mg_call_extreme(const MgCall *c);
PyObject *mg_call_id_of_new(const MgCall *c); /* id(o) of an object that is not older */
PyObject *mg_call_lru_cache(const MgCall *c);
PyObject *mg_call_object_reduce(const MgCall *c); /* object.__reduce_ex__: c_builtins.c */
/* Methods of namespaces and of class dicts, and functions that read the latter: no ordinary dicts here.  True
 * when *out is the result. */
bool mg_call_on_mapping(const MgCall *c, PyObject **out);
#endif
