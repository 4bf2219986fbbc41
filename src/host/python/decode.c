/* Decoding of bytecode of 3.11 to 3.14; see decode.h.  The tables are in bytecodes.def. */
#include "host/python/decode.h"
#include "base/ctx.h"
#include <opcode.h>
#include <stdlib.h>

typedef enum MgOperand { /* what an argument means */
                         ARG_none,
                         ARG_arg,     /* kept as it is */
                         ARG_forward, /* jump relative to the unit after the instruction */
                         ARG_backward,
                         ARG_over, /* forward; the instruction at the target (END_FOR, END_SEND) is part of
                                      this one */
                         ARG_loop, /* the same; from 3.13 on POP_TOP follows END_FOR and is part of it, too */
                         ARG_global,  /* name index << 1 | push NULL */
                         ARG_attr,    /* name index << 1 | method */
                         ARG_super,   /* name index << 2 | two arguments << 1 | method */
                         ARG_compare, /* operator << 4; 3.13: operator << 5 | the result becomes a bool << 4
                                       */
                         ARG_call,    /* CALL with its KW_NAMES and PRECALL */
                         ARG_const, /* a constant; with a CALL_KW behind it, the keyword names of that call */
                         ARG_call_kw,   /* CALL_KW without its constant */
                         ARG_spec,      /* FORMAT_VALUE with a format */
                         ARG_bool,      /* TO_BOOL: part of the jump that follows it, if one does */
                         ARG_function,  /* MAKE_FUNCTION with the parts that follow it */
                         ARG_part,      /* SET_FUNCTION_ATTRIBUTE without its function */
                         ARG_then_load, /* slot << 4 | slot of a LOAD_FAST that follows */
                         ARG_then_store,
                         ARG_small_int,  /* LOAD_CONST of that int */
                         ARG_common,     /* number of a constant that many programs use */
                         ARG_special,    /* number of a special method */
                         ARG_binary,     /* BINARY_OP, whose last operator is that of BINARY_SUBSCR */
                         ARG_keywords,   /* CALL_FUNCTION_EX, which finds keywords or NULL */
                         ARG_intrinsic1, /* number of an intrinsic function */
                         ARG_intrinsic2
} MgOperand;

/* Cache units of instructions that differ in nothing else. */
#if PY_VERSION_HEX < 0x030C0000
enum { CACHE_call = 4, CACHE_jump = 0, COMPARE_SHIFT = 4, LOOP_TAIL = 0 };
#elif PY_VERSION_HEX < 0x030D0000
enum { CACHE_call = 3, CACHE_jump = 0, COMPARE_SHIFT = 4, LOOP_TAIL = 1 };
#else
enum { CACHE_call = 3, CACHE_jump = 1, COMPARE_SHIFT = 5, LOOP_TAIL = 2 };
#endif

/* The last of a function's parts that MAKE_FUNCTION knows: its closure, from 3.14 on what makes its
 * annotations. */
enum { LAST_PART = PY_VERSION_HEX < 0x030E0000 ? 8 : 16 };
enum { OPERATOR_SUBSCR = 26, ASSERTION_ERROR = 0 }; /* of BINARY_OP and LOAD_COMMON_CONSTANT, from 3.14 on */

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

/* Normal form of an intrinsic of 3.12 or later, by its number. */
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

/* Folds what announces the call, KW_NAMES and PRECALL, into it: the CALL.  -1: there is none. */
static int decode_call(const uint8_t *p, int n, int native, int *u, uint32_t *arg, MgInstr *in) {
  while (native != CALL) {
#ifdef KW_NAMES
    if (native == KW_NAMES) in->extra = (int32_t)*arg;
#endif
    *u += 1 + decode_table[native].cache;
    native = decode_fetch(p, n, u, arg);
    if (native < 0 || decode_table[native].operand != ARG_call) return -1;
  }
  return native;
}

/* Folds the second instruction into the first one that *u and *arg are about, where the two belong together:
 * keyword names and their CALL_KW; TO_BOOL and a jump.  Returns what the whole does. */
static int decode_pair(const uint8_t *p, int n, int native, int *u, uint32_t *arg, MgInstr *in) {
  int second = *u + 1 + decode_table[native].cache;
  uint32_t second_arg = 0;
  int then = decode_fetch(p, n, &second, &second_arg);
  if (then < 0 || !decode_table[then].known) return native;
  if (decode_table[native].operand == ARG_const && decode_table[then].operand == ARG_call_kw) {
    in->extra = (int32_t)*arg;
  } else if (decode_table[native].operand == ARG_bool && decode_table[then].op == BC_POP_JUMP_IF_TRUE) {
    in->at = *u;
  } else if (decode_table[native].operand == ARG_bool && decode_table[then].op == BC_POP_JUMP_IF_FALSE) {
    in->at = *u;
  } else {
    return native;
  }
  *u = second;
  *arg = second_arg;
  return then;
}

/* What the argument means. */
static void decode_operand(MgInstr *in, int operand, uint32_t arg) {
  in->arg = (int32_t)arg;
  switch ((MgOperand)operand) {
  case ARG_none:
  case ARG_function: /* see decode_parts */
  case ARG_part:
  case ARG_bool: in->arg = 0; break;
  case ARG_arg:
  case ARG_const:
  case ARG_call: break;
  case ARG_call_kw:
    if (in->extra < 0) in->op = BC_UNKNOWN; /* nothing leads here but its constant */
    break;
  case ARG_forward: in->target = in->next + (int32_t)arg; break;
  case ARG_backward: in->target = in->next - (int32_t)arg; break;
  case ARG_over: in->target = in->next + (int32_t)arg + 1; break;
  case ARG_loop: in->target = in->next + (int32_t)arg + LOOP_TAIL; break;
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
  case ARG_compare:
    in->flag = COMPARE_SHIFT > 4 && arg & 16;
    in->arg = (int32_t)(arg >> COMPARE_SHIFT);
    break;
  case ARG_spec: in->arg = MG_FORMAT_SPEC; break;
  case ARG_then_load:
  case ARG_then_store: in->arg = (int32_t)(arg >> 4); break;
  case ARG_small_int: in->flag = 1; break;
  case ARG_common:
    if (arg == ASSERTION_ERROR) in->op = BC_LOAD_ASSERTION_ERROR;
    break;
  case ARG_special:
    if (arg >= MG_SPECIALS) in->op = BC_UNKNOWN; /* of coroutines */
    break;
  case ARG_binary:
    if (arg == OPERATOR_SUBSCR) in->op = BC_BINARY_SUBSCR;
    break;
  case ARG_keywords: in->arg = 1; break;
  case ARG_intrinsic1:
  case ARG_intrinsic2: in->op = (uint8_t)decode_intrinsic(operand, (int)arg); break;
  }
}

/* Folds the parts that a new function is given, from behind it, into MAKE_FUNCTION: nobody else has seen the
 * function yet.  They lie on the stack in the order of 3.12. */
static void decode_parts(const uint8_t *p, int n, MgInstr *in) {
  uint32_t part = 0;
  for (int u = in->next;; in->next = ++u) {
    int native = decode_fetch(p, n, &u, &part);
    if (native < 0 || decode_table[native].operand != ARG_part) return;
    if (part > LAST_PART) in->op = BC_UNKNOWN;
    in->arg |= (int32_t)part;
  }
}

static void decode_one(const uint8_t *p, int n, int start, MgInstr *in) {
  int u = start;
  uint32_t arg = 0;
  int native = decode_fetch(p, n, &u, &arg);
  *in = (MgInstr){.op = BC_UNKNOWN, .extra = -1, .at = -1, .next = start + 1, .target = -1};
  if (native >= 0 && decode_table[native].operand == ARG_call)
    native = decode_call(p, n, native, &u, &arg, in);
  else if (native >= 0) native = decode_pair(p, n, native, &u, &arg, in);
  if (in->at < 0) in->at = native < 0 ? start : u;
  if (native < 0 || !decode_table[native].known) return;
  int operand = decode_table[native].operand;
  in->op = decode_table[native].op;
  in->next = u + 1 + decode_table[native].cache;
  decode_operand(in, operand, arg);
  if (operand == ARG_function) decode_parts(p, n, in);
#if PY_VERSION_HEX >= 0x030E0000
  /* What monitoring counts, behind a jump that is not taken, is part of the jump. */
  if (in->target >= 0 && in->next < n && p[2 * in->next] == NOT_TAKEN) in->next++;
#endif
  if (in->next > n || in->target >= n || (in->target < 0 && operand == ARG_backward)) in->op = BC_UNKNOWN;
}

/* Gives the second half of the instruction at unit u an entry of its own. */
static void decode_split(const uint8_t *p, MgCode *c, int u) {
  MgInstr *in = &c->instr[u];
  int operand = decode_table[p[2 * u]].operand;
  if (in->op == BC_UNKNOWN) return;
  if (operand == ARG_then_load || operand == ARG_then_store) {
    int half = c->n + ++c->njoined;
    c->instr[half] = *in;
    c->instr[half].op = operand == ARG_then_load ? BC_LOAD_FAST : BC_STORE_FAST;
    c->instr[half].arg = p[2 * u + 1] & 15;
    c->instr[half].part = PART_joined;
    in->next = half;
  } else if (in->op == BC_COMPARE_OP && in->flag) {
    /* Compared, then made a bool: the jump behind it does that, as it does behind TO_BOOL. */
    MgInstr *half = &c->instr[in->at + 1], *jump = &c->instr[in->next];
    bool jumps = jump->op == BC_POP_JUMP_IF_TRUE || jump->op == BC_POP_JUMP_IF_FALSE;
    int after = in->next;
    in->next = in->at + 1;
    *half = jumps ? *jump : (MgInstr){.op = BC_TO_BOOL, .extra = -1, .next = after, .target = -1};
    half->at = in->at;
    half->part = PART_stop;
  }
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
  for (int u = 0; u < c->n && !c->line[u]; u++)
    c->line[u] = co->co_firstlineno; /* what makes cells has none */
  return PyErr_Occurred() ? -1 : 0;
}

static bool decode_allocate(MgCode *c, const uint8_t *p) {
  size_t n = (size_t)c->n + 1;
  for (int u = 0; u < c->n; u++) {
    int operand = decode_table[p[2 * u]].operand;
    n += operand == ARG_then_load || operand == ARG_then_store;
  }
  c->instr = mg_calloc(n, sizeof *c->instr);
  c->line = mg_calloc((size_t)c->n + 1, sizeof *c->line);
  return c->instr && c->line;
}

MgCode *mg_decode(PyCodeObject *co) {
  PyObject *bytes = PyCode_GetCode(co); /* without specialised or instrumented opcodes */
  if (!bytes) return NULL;
  const uint8_t *p = (const uint8_t *)PyBytes_AS_STRING(bytes);
  int n = (int)(PyBytes_GET_SIZE(bytes) / 2);
  MgCode *c = mg_calloc(1, sizeof *c);
  if (c) c->n = n;
  if (!c || !decode_allocate(c, p) || decode_handlers(co, c)) {
    PyErr_NoMemory();
    goto fail;
  }
  c->known = true;
  if (decode_lines(co, c)) goto fail;
  for (int u = 0; u < n; u++) decode_one(p, n, u, &c->instr[u]);
  for (int u = n - 1; u >= 0; u--) decode_split(p, c, u);
  for (int u = 0; u < n; u = mg_decode_after(c, u)) c->known &= c->instr[u].op != BC_UNKNOWN;
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

PyObject *mg_decode_constant(const MgInstr *in, PyCodeObject *co) {
  if (!in->flag) return PyTuple_GET_ITEM(co->co_consts, in->arg);
  PyObject *v = PyLong_FromLong(in->arg); /* one that CPython shares */
  Py_DECREF(v);
  return v;
}

#if PY_VERSION_HEX >= 0x030E0000
typedef struct OffsetWalk { /* where the entry at one depth of the value stack is the offset that a handler
                               got */
  const MgCode *c;
  const uint8_t *p; /* the native code */
  int depth;
  int *height; /* by unit: entries on the stack before it, or 0: the offset is not there */
  int *todo, n;
} OffsetWalk;

static void offset_reach(OffsetWalk *w, int unit, int height) {
  if (unit < 0 || unit >= w->c->n || height <= w->depth || w->height[unit]) return;
  w->height[unit] = height;
  w->todo[w->n++] = unit;
}

/* What may run behind the instruction at this unit: the next one, that of its jump, its handler's. */
static void offset_step(OffsetWalk *w, int unit) {
  int u = unit, height = w->height[unit];
  uint32_t arg = 0;
  int native = decode_fetch(w->p, w->c->n, &u, &arg);
  const MgHandler *h = mg_decode_handler(w->c, u);
  if (h && h->depth > w->depth) offset_reach(w, h->target, h->depth + h->lasti + 1);
  if (native < 0 || !decode_table[native].known) return;
  int op = decode_table[native].op, operand = decode_table[native].operand, target = w->c->instr[unit].target;
  bool ends = op == BC_RETURN_VALUE || op == BC_RERAISE || op == BC_RAISE_VARARGS;
  bool drops = operand == ARG_loop || operand == ARG_over; /* what goes through the iterator ends it, too */
  if (drops) offset_reach(w, target, height - 1);
  else if (operand == ARG_forward || operand == ARG_backward)
    offset_reach(w, target, height + PyCompile_OpcodeStackEffectWithJump(native, (int)arg, 1));
  if (!ends && op != BC_JUMP && op != BC_JUMP_BACKWARD)
    offset_reach(w, u + 1 + decode_table[native].cache,
                 height + PyCompile_OpcodeStackEffectWithJump(native, (int)arg, 0));
}

bool mg_decode_has_offset(const MgCode *c, PyCodeObject *co, int unit, int height, int depth) {
  bool found = false;
  PyObject *bytes = PyCode_GetCode(co);
  OffsetWalk w = {c, .depth = depth};
  w.height = mg_calloc((size_t)c->n + 1, sizeof *w.height);
  w.todo = mg_calloc((size_t)c->n + 1, sizeof *w.todo);
  if (!bytes || !w.height || !w.todo) {
    PyErr_Clear(); /* out of memory: an int below an exception is an offset nearly always */
    found = true;
    goto done;
  }
  w.p = (const uint8_t *)PyBytes_AS_STRING(bytes);
  for (int i = 0; i < c->nhandler; i++)
    if (c->handler[i].lasti && c->handler[i].depth == depth)
      offset_reach(&w, c->handler[i].target, depth + 2);
  while (w.n) offset_step(&w, w.todo[--w.n]);
  found = unit >= 0 && unit < c->n && w.height[unit] > 0 && height > depth;
done:
  Py_XDECREF(bytes);
  free(w.height);
  free(w.todo);
  return found;
}
#endif
