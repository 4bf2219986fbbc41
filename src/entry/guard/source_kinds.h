/* Sources: how a value of the program is found again on every call.  The kinds are in guards.def. */
#ifndef MG_SOURCE_KINDS_H
#define MG_SOURCE_KINDS_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include "host/torch/tensor_facts.h"

typedef uint32_t SrcRef; /* index into the guard set's sources; 0 is "none" */
typedef enum MgSrcKind {
#define SOURCE(name, text) SRC_##name,
#include "entry/guard/guards.def"
  SRC__COUNT
} MgSrcKind;
/* Operators of calculated numbers. */
typedef enum MgCalc {
  CALC_lt,
  CALC_le,
  CALC_eq,
  CALC_ne,
  CALC_gt,
  CALC_ge, /* in the order of Py_LT ... */
  CALC_add,
  CALC_sub,
  CALC_mul,
  CALC_truediv,
  CALC_floordiv,
  CALC_mod,
  CALC_pow,
  CALC_and,
  CALC_or,
  CALC_xor,
  CALC_min,
  CALC_max,
  CALC_call, /* the second operand, a function, of the first */
  CALC_neg,
  CALC_abs,
  CALC_int,
  CALC_float,
  CALC_bool,
  CALC_float32 /* of one operand; float32: rounded to it */
} MgCalc;
enum { MG_CALC_BITS = 5, MG_CALC_MASK = 31 };
static inline bool mg_calc_is_unary(int op) { return op >= CALC_neg; }
/* What a number is made of, through all operations: kept for each source, since operands are shared. */
typedef enum MgSrcTrait {
  SRC_DRAWS = 1,    /* a random number that a run draws */
  SRC_READS = 2,    /* a number in a tensor */
  SRC_OTHER = 4,    /* anything but sizes, strides and constants */
  SRC_IN_GRAPH = 8, /* a torch-level graph can compute it (fx_sizes.c) */
  SRC_MOVES = 16    /* found by a key that is another one at other calls, or in what is found so */
} MgSrcTrait;
typedef struct MgSrc {
  uint8_t kind;  /* MgSrcKind */
  uint8_t trait; /* MgSrcTrait bits of it and of its operands */
  SrcRef parent; /* 0 for roots */
  int32_t idx;   /* slot, item or closure index; size: dimension; calc: second operand << MG_CALC_BITS |
                    operator; key_of: source of the key */
  PyObject *key; /* strong, or borrowed from the guard set for SRC_pinned; NULL when unused */
} MgSrc;
/* Is it computed when asked for, instead of loaded by the guards? */
static inline bool mg_source_computed(const MgSrc *s) {
  return s->kind == SRC_calc || s->kind == SRC_size || s->kind == SRC_stride || s->kind == SRC_number;
}
#define MG_SIZE_MOST MG_FACTS_MOST /* of a size; ints are within it on both sides */
#endif
