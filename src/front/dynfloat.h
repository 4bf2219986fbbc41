/* Floats that differ from call to call (a learning rate under a scheduler): from the second value on they are inputs of the graph
 * instead of constants.  What is known is kept per code object, as names of places. */
#ifndef MG_FRONT_DYNFLOAT_H
#define MG_FRONT_DYNFLOAT_H
#include "front/guard.h"

extern PyObject *mg_any_float;   /* in a dict guard: any float will do; strong, process lifetime */
int mg_dynfloat_init(void);
/* An entry did not fit: adds the places of floats that are others now to *known (a set; NULL: made when needed). */
int mg_dynfloat_learn(PyObject **known, const MgGuards *g, const MgSlots *s);
/* Is the float at src known to change? */
bool mg_dynfloat_at(SrcRef src);
/* The same for a value of a dict behind a fixed owner: its source, or 0. owner: whose instance dict it is, or NULL. */
SrcRef mg_dynfloat_key(PyObject *dict, PyObject *owner, PyObject *key, PyObject *val);
#endif
