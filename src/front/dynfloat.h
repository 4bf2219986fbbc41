/* Floats and ints that differ from call to call (a learning rate under a scheduler, a counter): from the second value on they are inputs of the graph
 * instead of constants.  What is known is kept per code object, as names of places. */
#ifndef MG_FRONT_DYNFLOAT_H
#define MG_FRONT_DYNFLOAT_H
#include "front/guard.h"

/* In a dict guard: any float, any int that may be an input (symint.h) will do; strong, process lifetime. */
extern PyObject *mg_any_float, *mg_any_int;
int mg_dynfloat_init(void);
/* An entry did not fit: adds the places of numbers that are others now to *known (a set; NULL: made when needed). */
int mg_dynfloat_learn(PyObject **known, const MgGuards *g, const MgSlots *s);
/* Is this value at src a number that is known to change? */
bool mg_dynfloat_at(SrcRef src, PyObject *val);
/* The same for a value of a dict behind a fixed owner: its source, or 0. owner: whose instance dict it is, or NULL. */
SrcRef mg_dynfloat_key(PyObject *dict, PyObject *owner, PyObject *key, PyObject *val);
#endif
