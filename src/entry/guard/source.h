/* Sources: how a value is found again at the next call, starting from the frame's slots and function.
 * A source is hash-consed in its guard set: the same path is loaded once per check.  SrcRef 0 is "none": the
 * object hangs on an owner that is guarded by identity, so the owner's dict or type guard covers it. */
#ifndef MG_SOURCE_H
#define MG_SOURCE_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include "entry/guard/source_kinds.h"

typedef struct MgGuards MgGuards;
typedef struct MgSlots MgSlots;
typedef struct MgStrbuf MgStrbuf;

/* The source of a path, made on first use together with its load. 0 with an
 * exception set when out of memory. */
SrcRef mg_source(MgGuards *g, MgSrcKind kind, SrcRef parent, int32_t idx, PyObject *key);
/* a op b, where one of the operands may be a constant instead of a source (then its source is 0); a unary op
 * has neither b nor a constant.  Operators are those of the table in source.c. */
SrcRef mg_source_calc(MgGuards *g, int op, SrcRef a, SrcRef b, PyObject *constant);
/* The value of a source when the loads have run: new; NULL when computing raised.
 * Within one turn, with the same vals, each operation is done once; 0: a turn of its own. */
PyObject *mg_source_value(const MgGuards *g, SrcRef src, PyObject *const *vals, uint64_t turn);
uint64_t mg_source_turn(void);
void mg_source_forget(MgGuards *g); /* what was computed */
/* Computes as a source of kind calc would; b NULL for unary ops.  New. */
PyObject *mg_source_compute(int op, PyObject *a, PyObject *b);
/* The number in a 0-dim tensor on the CPU of type float32, float64, int64 or bool; NULL without an exception:
 * it is another one.  New. */
PyObject *mg_source_number(PyObject *tensor);
/* Follows one step. Borrowed; NULL without exception when the path ends.  Never runs Python code other than
 * hashing and comparing dict keys. */
PyObject *mg_source_step(const MgSrc *s, PyObject *parent, const MgSlots *slots);
/* The name of the local in a slot, borrowed; NULL: an entry of a value stack. */
PyObject *mg_source_slot_name(const MgGuards *g, int i);
/* Is the slot one of a value stack of a frame that was there before? */
bool mg_source_slot_on_stack(const MgGuards *g, int i);
/* "L['self'].layers[0].weight" */
void mg_source_print(const MgGuards *g, SrcRef src, MgStrbuf *out);
/* Fills in the symbols' values for a run; false: some is no number in range. */
bool mg_symsize_values(const MgGuards *g, const SrcRef *src, uint32_t n, PyObject *const *vals, int64_t *out);
#endif
