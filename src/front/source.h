/* Sources: how a value is found again at the next call, starting from the frame's slots and function.
 * A source is hash-consed in its guard set: the same path is loaded once per check.  SrcRef 0 is "none": the object hangs
 * on an owner that is guarded by identity, so the owner's dict or type guard covers it. */
#ifndef MG_FRONT_SOURCE_H
#define MG_FRONT_SOURCE_H
#include "base/strbuf.h"
#include "front/rec.h"

typedef enum MgSrcKind {
#define SOURCE(name, text) SRC_##name,
#include "front/guards.def"
  SRC__COUNT
} MgSrcKind;

/* Operators of calculated numbers. */
typedef enum MgCalc {
  CALC_lt, CALC_le, CALC_eq, CALC_ne, CALC_gt, CALC_ge, /* in the order of Py_LT ... */
  CALC_add, CALC_sub, CALC_mul, CALC_truediv, CALC_floordiv, CALC_mod, CALC_pow,
  CALC_and, CALC_or, CALC_xor, CALC_min, CALC_max,
  CALC_call, /* the second operand, a function, of the first */
  CALC_neg, CALC_abs, CALC_int, CALC_float, CALC_bool, CALC_float32 /* of one operand; float32: rounded to it */
} MgCalc;
enum { MG_CALC_BITS = 5, MG_CALC_MASK = 31 };
static inline bool mg_calc_is_unary(int op) { return op >= CALC_neg; }

/* What a number is made of, through all operations: kept for each source, since operands are shared. */
typedef enum MgSrcTrait {
  SRC_DRAWS = 1,   /* a random number that a run draws */
  SRC_READS = 2,   /* a number in a tensor */
  SRC_OTHER = 4,   /* anything but sizes, strides and constants */
  SRC_IN_GRAPH = 8 /* a torch-level graph can compute it (fxsize.c) */
} MgSrcTrait;

typedef struct MgSrc {
  uint8_t kind;   /* MgSrcKind */
  uint8_t trait;  /* MgSrcTrait bits of it and of its operands */
  SrcRef parent;  /* 0 for roots */
  int32_t idx;    /* slot, item or closure index; size: dimension; calc: second operand << MG_CALC_BITS | operator */
  PyObject *key;  /* strong, or borrowed from the guard set for SRC_pinned; NULL when unused */
} MgSrc;

/* The source of a path, made on first use together with its load. 0 with an exception set when out of memory. */
SrcRef mg_source(MgGuards *g, MgSrcKind kind, SrcRef parent, int32_t idx, PyObject *key);
/* a op b, where one of the operands may be a constant instead of a source (then its source is 0); a unary op has neither
 * b nor a constant.  Operators are those of the table in source.c. */
SrcRef mg_source_calc(MgGuards *g, int op, SrcRef a, SrcRef b, PyObject *constant);
/* The value of a source when the loads have run: new; NULL when computing raised.
 * Within one turn, with the same vals, each operation is done once; 0: a turn of its own. */
PyObject *mg_source_value(const MgGuards *g, SrcRef src, PyObject *const *vals, uint64_t turn);
uint64_t mg_source_turn(void);
void mg_source_forget(MgGuards *g); /* what was computed */
/* Is it computed when asked for, instead of loaded by the guards? */
static inline bool mg_source_computed(const MgSrc *s) { return s->kind == SRC_calc || s->kind == SRC_size || s->kind == SRC_stride || s->kind == SRC_number; }
/* Computes as a source of kind calc would; b NULL for unary ops.  New. */
PyObject *mg_source_compute(int op, PyObject *a, PyObject *b);
/* The number in a 0-dim tensor on the CPU of type float32, float64, int64 or bool; NULL without an exception: it is another one.  New. */
PyObject *mg_source_number(PyObject *tensor);
/* Follows one step. Borrowed; NULL without exception when the path ends.  Never runs Python code other than
 * hashing and comparing dict keys. */
PyObject *mg_source_step(const MgSrc *s, PyObject *parent, const MgSlots *slots);
/* The name of the local in a slot, borrowed; NULL: an entry of a value stack. */
PyObject *mg_source_slot_name(const MgGuards *g, int i);
/* "L['self'].layers[0].weight" */
void mg_source_print(const MgGuards *g, SrcRef src, MgStrbuf *out);
#endif
