/* Objects that were made while recording. */
#ifndef MG_FRESH_H
#define MG_FRESH_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

typedef struct MgIdent MgIdent;
typedef struct MgRec MgRec;

/* Does code of the program run when o (or NULL), which is older than the recording, dies: a __del__, what a
 * generator has left of a try or with block? */
bool mg_end_runs_code(PyObject *o);
/* The same for a class whose __set_name__ or __init_subclass__ C code has called. */
int mg_fresh_class(PyObject *const *slot, PyCodeObject *co);
/* A Python function with this code starts on self: when it is an __init__ that C
 * code has called, self is new. */
void mg_fresh_init(PyObject *self, PyCodeObject *co);
int mg_older_self(PyObject **slot,
                  PyCodeObject *co); /* wraps the first slot of a frame that C code calls where it is an older
                                        object; -1: exception or break */
/* The next living generator that the recording made, from *i on; borrowed, NULL at the end. */
PyObject *mg_fresh_generator(const MgIdent *d, Py_ssize_t *i);
/* Those that stand at a yield end without running their finally clauses on the user's objects; torch's own,
 * which ran unrecorded, tidy up for real. */
void mg_generators_end(MgRec *r);
#endif
