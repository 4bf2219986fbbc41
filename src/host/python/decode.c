/* Decoding of 3.11 and 3.12 bytecode; see decode.h.  The tables are in bytecodes.def. */
#include "host/python/decode.h"
#include "base/ctx.h"
#include <opcode.h>
#include <stdlib.h>

typedef enum MgOperand { /* what an argument means */
                         ARG_none,
                         ARG_arg,     /* kept as it is */
                         ARG_forward, /* jump relative to the unit after the instruction */
                         ARG_backward,
                         ARG_over,    /* forward; the instruction at the target (END_FOR, END_SEND) is part of
                                         this one */
                         ARG_global,  /* name index << 1 | push NULL */
                         ARG_attr,    /* name index << 1 | method */
                         ARG_super,   /* name index << 2 | two arguments << 1 | method */
                         ARG_compare, /* operator << 4 */
                         ARG_call,    /* CALL with its KW_NAMES and PRECALL */
                         ARG_intrinsic1, /* number of an intrinsic function */
                         ARG_intrinsic2
} MgOperand;

#if PY_VERSION_HEX < 0x030C0000
#define CALL_CACHE 4
#else
#define CALL_CACHE 3
#endif

static const struct {
  uint8_t known, op, operand, cache;
} decode_table[256] = {
#define NATIVE(native, name, operand, cache) [native] = {1, BC_##name, ARG_##operand, cache},
#define SAME(name, operand, cache) [name] = {1, BC_##name, ARG_##operand, cache},
#include "host/python/bytecodes.def"
};

static const char *const decode_names[] = {
#define BYTECODE(name, reads, trivial) #name,
#include "host/python/bytecodes.def"
};

bool mg_decode_in_loop(const MgCode *c, int unit) {
  for (int i = unit; i < c->n; i++)
    if (c->instr[i].target >= 0 && c->instr[i].target <= unit && c->instr[i].target <= i && unit > 0)
      return true;
  return false;
}

const char *mg_bytecode_name(int op) { return op >= 0 && op < BC__COUNT ? decode_names[op] : "?"; }

const char *mg_decode_native(int native) {
  if (native < 0 || native > 255 || !decode_table[native].known) return NULL;
  bool intrinsic = decode_table[native].operand >= ARG_intrinsic1;
  return intrinsic ? "INTRINSIC" : decode_names[decode_table[native].op];
}

/* Normal form of a 3.12 intrinsic, by its number. */
static int decode_intrinsic(int operand, int arg) {
  enum { STOPITERATION = 3, POSITIVE = 5, TO_TUPLE = 6, PREP_RERAISE = 1 }; /* pycore_intrinsics.h */
  if (operand == ARG_intrinsic2) return arg == PREP_RERAISE ? BC_PREP_RERAISE_STAR : BC_UNKNOWN;
  return arg == STOPITERATION ? BC_STOPITERATION_ERROR
         : arg == POSITIVE    ? BC_UNARY_POSITIVE
         : arg == TO_TUPLE    ? BC_LIST_TO_TUPLE
                              : BC_UNKNOWN;
}

/* The opcode at unit u with its EXTENDED_ARGs; *u becomes the unit of the opcode itself. -1: past the end. */
static int decode_fetch(const uint8_t *p, int n, int *u, uint32_t *arg) {
  uint32_t a = 0;
  while (*u < n && p[2 * *u] == EXTENDED_ARG) a = (a | p[2 * (*u)++ + 1]) << 8;
  if (*u >= n) return -1;
  *arg = a | p[2 * *u + 1];
  return p[2 * *u];
}

static void decode_one(const uint8_t *p, int n, int start, MgInstr *in) {
  int u = start;
  uint32_t arg = 0;
  int native = decode_fetch(p, n, &u, &arg);
  *in = (MgInstr){BC_UNKNOWN, 0, 0, -1, start, start + 1, -1};
  if (native < 0 || !decode_table[native].known) return;
  /* KW_NAMES and PRECALL announce the CALL that follows. */
  while (decode_table[native].operand == ARG_call && native != CALL) {
    if (native == KW_NAMES) in->extra = (int32_t)arg;
    u += 1 + decode_table[native].cache;
    native = decode_fetch(p, n, &u, &arg);
    if (native < 0 || decode_table[native].operand != ARG_call) return;
  }
  int operand = decode_table[native].operand;
  in->op = decode_table[native].op;
  in->at = u;
  in->next = u + 1 + decode_table[native].cache;
  in->arg = (int32_t)arg;
  switch ((MgOperand)operand) {
  case ARG_none: in->arg = 0; break;
  case ARG_arg:
  case ARG_call: break;
  case ARG_forward: in->target = in->next + (int32_t)arg; break;
  case ARG_backward: in->target = in->next - (int32_t)arg; break;
  case ARG_over: in->target = in->next + (int32_t)arg + 1; break;
  case ARG_global:
    in->flag = arg & 1;
    in->arg = (int32_t)(arg >> 1);
    break;
  case ARG_attr:
    if (arg & 1) in->op = BC_LOAD_METHOD;
    in->arg = (int32_t)(arg >> 1);
    break;
  case ARG_super:
    in->flag = arg & 3;
    in->arg = (int32_t)(arg >> 2);
    break;
  case ARG_compare: in->arg = (int32_t)(arg >> 4); break;
  case ARG_intrinsic1:
  case ARG_intrinsic2: in->op = (uint8_t)decode_intrinsic(operand, (int)arg); break;
  }
  bool jumps = operand == ARG_forward || operand == ARG_backward || operand == ARG_over;
  if (in->next > n || (jumps && (in->target < 0 || in->target >= n))) in->op = BC_UNKNOWN;
}

/* One number of the exception table: 6 bits a byte, bit 6 says that another byte follows. */
static int decode_varint(const uint8_t **p, const uint8_t *end) {
  int v = 0;
  while (*p < end) {
    int b = *(*p)++;
    v = v << 6 | (b & 63);
    if (!(b & 64)) break;
  }
  return v;
}

static int decode_handlers(PyCodeObject *co, MgCode *c) {
  const uint8_t *p = (const uint8_t *)PyBytes_AS_STRING(co->co_exceptiontable);
  const uint8_t *end = p + PyBytes_GET_SIZE(co->co_exceptiontable);
  int cap = 0;
  while (p < end) {
    if (c->nhandler == cap) {
      cap = cap ? 2 * cap : 8;
      MgHandler *h = mg_realloc(c->handler, sizeof *h * (size_t)cap);
      if (!h) return -1;
      c->handler = h;
    }
    int start = decode_varint(&p, end), size = decode_varint(&p, end);
    int target = decode_varint(&p, end), depth = decode_varint(&p, end);
    c->handler[c->nhandler++] = (MgHandler){start, start + size, target, depth >> 1, depth & 1};
  }
  return 0;
}

/* Source lines of all units in one pass; PyCode_Addr2Line would walk the table anew for each. */
static int decode_lines(PyCodeObject *co, MgCode *c) {
  PyObject *rows = PyObject_CallMethod((PyObject *)co, "co_lines", NULL), *row;
  if (!rows) return -1;
  while ((row = PyIter_Next(rows))) {
    PyObject *line = PyTuple_GET_ITEM(row, 2);
    long start = PyLong_AsLong(PyTuple_GET_ITEM(row, 0)), end = PyLong_AsLong(PyTuple_GET_ITEM(row, 1));
    for (long u = start / 2; line != Py_None && u < end / 2 && u < c->n; u++)
      c->line[u] = (int32_t)PyLong_AsLong(line);
    Py_DECREF(row);
  }
  Py_DECREF(rows);
  return PyErr_Occurred() ? -1 : 0;
}

MgCode *mg_decode(PyCodeObject *co) {
  PyObject *bytes = PyCode_GetCode(co); /* without specialised or instrumented opcodes */
  if (!bytes) return NULL;
  const uint8_t *p = (const uint8_t *)PyBytes_AS_STRING(bytes);
  int n = (int)(PyBytes_GET_SIZE(bytes) / 2);
  MgCode *c = mg_calloc(1, sizeof *c);
  if (!c || !(c->instr = mg_calloc((size_t)n + 1, sizeof *c->instr)) ||
      !(c->line = mg_calloc((size_t)n + 1, sizeof *c->line)) || decode_handlers(co, c)) {
    PyErr_NoMemory();
    goto fail;
  }
  c->n = n;
  c->known = true;
  if (decode_lines(co, c)) goto fail;
  for (int u = 0; u < n; u++) decode_one(p, n, u, &c->instr[u]);
  for (int u = 0; u < n; u = c->instr[u].next) c->known &= c->instr[u].op != BC_UNKNOWN;
  Py_DECREF(bytes);
  return c;
fail:
  Py_DECREF(bytes);
  mg_decode_free(c);
  return NULL;
}

void mg_decode_free(MgCode *c) {
  if (!c) return;
  free(c->instr);
  free(c->handler);
  free(c->line);
  free(c);
}

const MgHandler *mg_decode_handler(const MgCode *c, int unit) {
  /* Rows do not overlap and are sorted, so the last row that starts at or before unit decides. */
  int lo = 0, hi = c->nhandler;
  while (lo < hi) {
    int mid = (lo + hi) / 2;
    if (c->handler[mid].start <= unit) lo = mid + 1;
    else hi = mid;
  }
  const MgHandler *h = lo ? &c->handler[lo - 1] : NULL;
  return h && unit < h->end ? h : NULL;
}
