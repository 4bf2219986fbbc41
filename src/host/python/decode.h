/* The bytecode of a code object in one normal form for all CPython versions.
 * In: a code object.  Out: one MgInstr per code unit (resume offsets are code units), and its exception
 * table.
 * Caches, EXTENDED_ARG, KW_NAMES and PRECALL are folded into the instruction that starts there, so that
 * executing the instruction at any unit the program can reach is one step. */
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

typedef struct MgInstr {
  uint8_t op;     /* MgBytecode */
  uint8_t flag;   /* LOAD_GLOBAL: push NULL first; LOAD_SUPER_ATTR: bit 0 method, bit 1 two arguments */
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
  MgInstr *instr;     /* n entries */
  MgHandler *handler; /* by start */
  int32_t *line;      /* n entries: source lines; 0 unknown */
  bool known;         /* no reachable instruction is UNKNOWN */
} MgCode;

MgCode *mg_decode(PyCodeObject *co); /* new; NULL with MemoryError */
void mg_decode_free(MgCode *c);
const MgHandler *mg_decode_handler(const MgCode *c, int unit); /* innermost handler, or NULL */
bool mg_decode_in_loop(const MgCode *c, int unit); /* can a jump backward lead to this unit again? */
const char *mg_bytecode_name(int op);
const char *
mg_decode_native(int native); /* the normal form of an instruction of this CPython, NULL: unknown */
#endif
