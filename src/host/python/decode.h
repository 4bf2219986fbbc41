/* The bytecode of a code object in one normal form for all CPython versions.
 * In: a code object.  Out: one MgInstr per code unit (resume offsets are code units), and its exception
 * table.
 * Caches, EXTENDED_ARG, KW_NAMES and PRECALL are folded into the instruction that starts there, and so is
 * TO_BOOL in front of a jump.  What CPython does in one instruction and the normal form in two is split: see
 * MgPart. */
#ifndef MG_DECODE_H
#define MG_DECODE_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <stdbool.h>

typedef enum MgBytecode {
#define BYTECODE(name, reads, trivial) BC_##name,
#include "host/python/bytecodes.def"
  BC__COUNT
} MgBytecode;

/* Is an instruction the second half of one of CPython's? */
typedef enum MgPart {
  PART_none,
  PART_stop,  /* yes, in the unit of a cache: a frame may stand before it, but CPython cannot go on there */
  PART_joined /* yes, behind the units of the code: it runs with the first half, as one step */
} MgPart;

typedef struct MgInstr {
  uint8_t op;     /* MgBytecode */
  uint8_t flag;   /* LOAD_GLOBAL: push NULL first; LOAD_SUPER_ATTR: bit 0 method, bit 1 two arguments;
                     LOAD_CONST: arg is the constant itself, a small int */
  uint8_t part;   /* MgPart */
  int32_t arg;    /* CALL: number of arguments; names, constants and slots: their index */
  int32_t extra;  /* CALL: constant with the keyword names, or -1 */
  int32_t at;     /* unit of the opcode that does the work: its line, its exception handler */
  int32_t next;   /* unit of the next instruction */
  int32_t target; /* jumps: absolute unit; -1 */
} MgInstr;

typedef struct MgHandler { /* one row of the exception table */
  int32_t start, end;      /* covered units [start, end) */
  int32_t target;          /* unit of the handler */
  int32_t depth;           /* height of the value stack there */
  bool lasti;              /* push the offset of the raising instruction */
} MgHandler;

typedef struct MgCode {
  int n; /* code units */
  int nhandler;
  int njoined;
  MgInstr *instr;     /* n entries, an empty one, then the second halves that have no unit */
  MgHandler *handler; /* by start */
  int32_t *line;      /* n entries: source lines; 0 unknown */
  bool known;         /* no reachable instruction is UNKNOWN */
} MgCode;

/* What a call finds below its arguments: the method and self, or NULL and the callable; from 3.13 on the
 * callable, then self or NULL. */
enum { MG_CALLABLE_FIRST = PY_VERSION_HEX >= 0x030D0000 };

/* How far below the value stack of its handler a with block keeps __exit__.  From 3.14 on self, or NULL, lies
 * between. */
enum { MG_EXIT_BELOW = PY_VERSION_HEX >= 0x030E0000 ? 2 : 1 };

/* The argument of LOAD_SPECIAL, by CPython's numbers. */
enum { MG_SPECIAL_ENTER, MG_SPECIAL_EXIT, MG_SPECIALS };

/* The argument of FORMAT_VALUE: a conversion (CPython's numbers), and whether a format is on the stack. */
enum { MG_FORMAT_STR = 1, MG_FORMAT_REPR, MG_FORMAT_ASCII, MG_FORMAT_CONVERSION = 3, MG_FORMAT_SPEC };

MgCode *mg_decode(PyCodeObject *co); /* new; NULL with MemoryError */
/* What LOAD_CONST or RETURN_CONST is about; borrowed. */
PyObject *mg_decode_constant(const MgInstr *in, PyCodeObject *co);
/* From 3.14 on: does a frame whose value stack is `height` entries high have the offset of a raising
 * instruction at this depth of it, before the instruction at this unit?  True without an exception when out
 * of memory. */
bool mg_decode_has_offset(const MgCode *c, PyCodeObject *co, int unit, int height, int depth);
/* The unit behind the instruction at this unit, both of its halves: for walks over all units. */
static inline int mg_decode_after(const MgCode *c, int unit) {
  int next = c->instr[unit].next;
  return next > c->n ? c->instr[next].next : next;
}
void mg_decode_free(MgCode *c);
const MgHandler *mg_decode_handler(const MgCode *c, int unit); /* innermost handler, or NULL */
bool mg_decode_in_loop(const MgCode *c, int unit); /* can a jump backward lead to this unit again? */
const char *mg_bytecode_name(int op);
const char *
mg_decode_native(int native); /* the normal form of an instruction of this CPython, NULL: unknown */
#endif
