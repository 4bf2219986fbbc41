/* Numbers that differ from call to call (a learning rate under a scheduler, a counter of steps): from the second value on they
 * are inputs instead of constants.  What is known is kept per code object, as names of places. */
#ifndef MG_FRONT_DYNFLOAT_H
#define MG_FRONT_DYNFLOAT_H
#include "front/guard.h"

extern PyObject *mg_any_float;   /* in a dict guard: something is there, its source is guarded; strong, process lifetime */
int mg_dynfloat_init(void);
/* An entry did not fit: adds the places of numbers that are others now to *known (a set; NULL: made when needed). */
int mg_dynfloat_learn(PyObject **known, const MgGuards *g, const MgSlots *s);
/* Have iterators been elsewhere at other calls of this code? */
bool mg_dynfloat_iterators(void);
/* torch.compiler.config.dynamic_sources or unbacked_sources: a list of compiled patterns, new; NULL: none. */
PyObject *mg_dynfloat_sources(bool unbacked);
bool mg_dynfloat_listed(SrcRef src, bool unbacked);
/* Is the number, or the tuple with numbers, at src known to change? */
bool mg_dynfloat_at(SrcRef src, PyObject *val);
/* The same, or is another object put there at every call, for a value of a dict behind a fixed owner: its source, or 0.
 * owner: whose instance dict it is, or NULL. */
SrcRef mg_dynfloat_key(PyObject *dict, PyObject *owner, PyObject *key, PyObject *val);
/* The same for an attribute of a class that is a number, or a tuple with some. */
SrcRef mg_dynfloat_class_attr(PyTypeObject *t, PyObject *name, PyObject *val);
/* Guards what a dict that is known by identity has under a key: that very object, or, where the program keeps assigning
 * tensors or containers, whatever is there (its source; else 0).  owner: whose instance dict it is, or NULL. */
SrcRef mg_dynfloat_guard_key(MgGuards *g, PyObject *dict, PyObject *owner, PyObject *name, PyObject *v);
#endif
