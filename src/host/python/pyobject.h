/* Small things about Python objects that CPython has no call for. */
#ifndef MG_PYOBJECT_H
#define MG_PYOBJECT_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

/* The layout of method-wrapper objects is not in CPython's headers, but has been this since 2.2. */
typedef struct MethodWrapper {
  PyObject_HEAD PyWrapperDescrObject *descr;
  PyObject *self;
} MethodWrapper;
PyTypeObject *mg_method_wrapper_type(void); /* borrowed: the class of bound slot methods, None.__str__ */
/* A module by its full name, new.  Unlike PyImport_ImportModule it does not ask the running frame for its
 * __import__, which generated code (namedtuple's __new__) has none of. */
PyObject *mg_import(const char *name);
/* `with ctx:` from C.  Entering takes ctx (NULL with an exception: stays NULL) and gives it back entered;
 * leaving takes it and keeps an exception that is set, unless leaving raises one: -1 then. */
PyObject *mg_context_enter(PyObject *ctx);
int mg_context_exit(PyObject *ctx);
PyTypeObject *
mg_solid_base(PyTypeObject *t);         /* the most derived base in C: what C code finds in an instance */
bool mg_has_finalizer(PyTypeObject *t); /* a class with a __del__ */
/* Would the program notice when o dies?  It has a __del__ or weak references to it; tensors
 * apart, which torch refers to. */
bool mg_death_is_seen(PyObject *o);
/* A new, empty instance, made by the base in C: no __new__ or __init__ of a Python class runs. */
PyObject *mg_new_instance(PyTypeObject *t);
PyObject *mg_new_value(PyTypeObject *t, PyObject *plain); /* new: an instance of a subclass of a C value type
                                                             (int, tuple ...), without its __new__ */
PyObject *mg_plain_value(PyObject *o); /* new: the plain int, str, frozenset ... in an instance of a subclass;
                                          NULL without exception when it is none */
/* The sign of an int: -1, 0 or 1. */
static inline int mg_int_sign(PyObject *v) {
#if PY_VERSION_HEX >= 0x030E0000
  int sign = 0;
  PyLong_GetSign(v, &sign); /* fails for other objects only */
  return sign;
#else
  return _PyLong_Sign(v);
#endif
}
static inline Py_hash_t mg_hash_pointer(const void *p) {
#if PY_VERSION_HEX >= 0x030D0000
  return Py_HashPointer(p);
#else
  return _Py_HashPointer(p);
#endif
}
/* An iterator over the keys of a dict or OrderedDict, in order, that no subclass can override. */
PyObject *mg_dict_iter(PyObject *dict);
int mg_dict_put(PyObject *dict, PyObject *key, PyObject *v); /* the same for setting */
/* What a view of a dict shows, borrowed, and the name of the method that makes it;
 * NULL when o is no such view. */
PyObject *mg_view_of(PyObject *o, const char **name);
PyObject *mg_view_new(PyObject *dict, PyObject *name); /* by the dict's base in C, whatever a subclass says */
/* The attributes that a threading.local has in this thread: borrowed; NULL without exception when it is none.
 * A class may have an __init__, which runs in each thread at its first use: NULL before that, but for the
 * first call with `begin`, which is such a use. */
PyObject *mg_local_dict(PyObject *local, bool begin);
/* Copies the table of a set into an empty one: the same order now, and after the same
 * changes.  -1 with an exception. */
int mg_set_copy(PyObject *to, PyObject *from);
/* self of a built-in method or method-wrapper (borrowed); NULL for everything else. */
PyObject *mg_policy_self(PyObject *callable);
/* The descriptor behind a method-wrapper (a bound slot of a C class), borrowed; NULL for everything else. */
PyObject *mg_policy_descr(PyObject *f);
/* def runs in each forked child, before the program goes on there.  -1 with an exception. */
int mg_after_fork(PyMethodDef *def);
/* Exceptions that end here: the name is the reason.  A KeyboardInterrupt is not lost: the signal comes again
 * at the next instruction of Python.  Without an exception they do nothing. */
void mg_clear_as_no(void); /* a question that raises is answered by no, or by "not there" */
void mg_clear_shown(void); /* the text would only be shown; something else is */
void mg_clear_for_another_way(
    void);                        /* it is done in another way, where an error of the program comes again */
void mg_clear_if(PyObject *type); /* only an exception of this type; another one stays set */
/* Was it left in the middle of a try or with block, the rest of which runs when it dies? */
bool mg_generator_cleans_up(PyObject *gen);
/* Dates, times and differences of module datetime, exactly of these classes, without a time zone or in UTC.
 */
int mg_date_init(void); /* -1 with an exception */
bool mg_date_is(PyObject *o);
PyObject *mg_date_copy(PyObject *o); /* another object with the same fields, new */
bool mg_date_same(PyObject *a,
                  PyObject *b); /* of one class: the same fields, `fold` as well, which == leaves out */
#endif
