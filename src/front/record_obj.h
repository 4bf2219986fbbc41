/* Parts that record_attr.c, record_call.c, record_builtin.c and record_seq.c share. */
#ifndef MG_FRONT_RECORD_OBJ_H
#define MG_FRONT_RECORD_OBJ_H
#include "front/policy.h"
#include "front/rec.h"

/* One call as the vectorcall protocol has it. */
typedef struct MgCall {
  PyObject *f;
  PyObject *const *arg; /* positional, then keyword values */
  size_t nargsf;
  PyObject *kwnames;
  Py_ssize_t npos, n;   /* positional arguments; all arguments */
  bool tail;            /* the result is that of the call instruction of the frame that is recorded */
} MgCall;

PyObject *mg_call_plain(const MgCall *c);
PyObject *mg_call_lru_cache(const MgCall *c);
/* max or min of tensors with one element each and numbers, as a tensor; NULL without exception: of something else. */
PyObject *mg_call_extreme(const MgCall *c);
bool mg_call_has_standin(const MgCall *c);
PyObject *mg_call_unknown(const MgCall *c); /* a break that names the function */
PyObject *mg_call_builtin(const MgCall *c, MgAction act); /* the actions that record_builtin.c does */

/* Methods of namespaces and of class dicts, and functions that read the latter: no ordinary dicts here.  True when *out is the result. */
bool mg_call_on_mapping(const MgCall *c, PyObject **out);

/* one_hot with the number of classes given: torch's own looks at the values to check their range.  Here each run does, unless a run
 * cannot be given up.  False: torch's own has to be called; else *r is the result (NULL with an exception). */
bool mg_one_hot(PyObject *x, PyObject *count, PyObject **r);
PyObject *mg_call_one_hot(const MgCall *c);               /* record_torch.c */
PyObject *mg_call_grad_mode(const MgCall *c);             /* torch._C._set_grad_enabled */
bool mg_call_by_torch(void);                              /* is it torch's Python that calls? */
PyObject *mg_call_with_numbers(const MgCall *c);
bool mg_call_tensor(const MgCall *c, PyObject **r); /* true when *r is the result */
PyObject *mg_call_exact(const MgCall *c); /* after a TypeError; NULL: it stays */
PyObject *mg_call_sizes(const MgCall *c, uint32_t nodes); /* after an exception in a graph with symbolic sizes; nodes: of the graph before the call */
bool mg_call_number_tensors(const MgCall *c, PyObject **r); /* number_args.c; false: it is another kind of call */
ValRef mg_call_out(const MgCall *c); /* what a stand-in given as out= stands for, or 0 */
PyObject *mg_call_made_tensor(const MgCall *c, PyObject *r, ValRef out); /* r is what c gave, a stand-in; stolen; out: mg_call_out before */
bool mg_call_legacy(const MgCall *c, PyObject **r);
PyObject *mg_call_script(const MgCall *c); /* a torch.jit.ScriptFunction */
PyObject *mg_rec_referent(PyObject *ref); /* what an older weak reference or proxy stands for, as the recording sees it */
PyObject *mg_call_args(const MgCall *c);   /* record_builtin.c: the positional arguments as a tuple; new */
PyObject *mg_call_kwargs(const MgCall *c); /* the keyword arguments as a dict; new */
PyObject *mg_call_as_python(const MgCall *c); /* the function of magneto.hop that has its name */
PyObject *mg_call_id_of_new(const MgCall *c);     /* id(o) of an object that is not older */
PyObject *mg_call_object_reduce(const MgCall *c); /* object.__reduce_ex__: record_builtin.c */
/* Has the user disabled this Python function?  A break then. */
bool mg_rec_disabled(PyObject *fn);

/* ---- tensor_class.c: making tensors of classes of the program ---- */
PyObject *mg_call_tensor_class(const MgCall *c);  /* Class(...) */
PyObject *mg_call_tensor_new(const MgCall *c);    /* TensorBase.__new__(Class, x) */
PyObject *mg_call_as_subclass(const MgCall *c);   /* x.as_subclass(Class) */
PyObject *mg_call_make_subclass(const MgCall *c); /* Tensor._make_subclass(Class, x, requires_grad) */

/* object.__getattribute__ and object.__setattr__ of a stand-in (v NULL: delete). */
PyObject *mg_rec_standin_getattr(PyObject *o, PyObject *name);
int mg_rec_standin_setattr(PyObject *o, PyObject *name, PyObject *v);
/* Class lookup, guarded by name; borrowed, NULL without exception when absent. */
PyObject *mg_rec_lookup_special(PyTypeObject *t, PyObject *name);
PyObject *mg_rec_generic_getattr(PyObject *o, PyObject *name);          /* object.__getattribute__ */
PyObject *mg_rec_object_getattr(PyObject *o, PyObject *name);           /* the same, of modules too, with the error that it raises */
int mg_rec_generic_setattr(PyObject *o, PyObject *name, PyObject *v);   /* object.__setattr__, __delattr__ */
/* Globals and module dicts. get: new, NULL without exception when absent; set: v NULL deletes. */
PyObject *mg_rec_namespace_get(PyObject *dict, PyObject *name);
int mg_rec_namespace_set(PyObject *dict, PyObject *name, PyObject *v);
/* The namespace itself, as a dict that globals() gives: new; its methods and subscripts go to the functions above. */
PyObject *mg_rec_namespace(PyObject *dict);
bool mg_rec_is_namespace(PyObject *o);
PyObject *mg_rec_namespace_call(const MgCall *c, PyObject *dict);
/* The dict behind a read-only view of a class (C.__dict__), borrowed; NULL when o is something else. */
PyObject *mg_rec_class_mapping(PyObject *o);
PyObject *mg_rec_class_mapping_get(PyObject *dict, PyObject *key); /* new, guarded; NULL without exception when absent */
PyObject *mg_rec_class_mapping_all(PyObject *dict);                /* new dict, guarded */
PyObject *mg_rec_class_mapping_call(const MgCall *c, PyObject *dict);
/* Leaves the context that writes to context variables made; later calls do nothing. */
void mg_rec_context_undo(MgRec *r);
/* An older instance of a dict subclass (or a dict too large to copy) that C code only reads: guards all of it. */
bool mg_rec_readable_dict(PyObject *o);
/* Is this one of torch's Python functions that the recorder does itself (replace.c)?  self: of a bound method, or NULL. */
bool mg_rec_replaced(PyObject *fn, PyObject *self, PyObject *const *arg, size_t nargsf, PyObject *kwnames, PyObject **out);
#endif
