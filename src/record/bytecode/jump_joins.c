/* Jumps whose two ways meet before anything happens.  In: jumps on a tensor's value while recording.  Out: no
 * break, no claim.  The example is `if (isnan(x).any() or isinf(x).any()) and DEBUG: print(x)`.
 * The second question is asked for nothing: both answers lead behind the `if`.  The first one is answered by
 * a claim, which goes once the recording has come there: what it computed meanwhile changes nothing. */
#include "record/bytecode/jump_joins.h"
#include <string.h>
#include "record/bytecode/eval_loop.h"
#include "record/core/capture.h"
#include "record/core/recording.h"
#include "tuning.h"

static const MgInstr *join_at(const MgLoop *l, int unit) { return &l->code->instr[unit]; }

static bool join_is_test(const MgInstr *in) {
  return in->op == BC_POP_JUMP_IF_TRUE || in->op == BC_POP_JUMP_IF_FALSE;
}

/* The truth of what the load at `in` gives: 1 or 0; -1: it is no boolean; -2 with an exception or break. */
static int join_load(MgLoop *l, const MgInstr *in) {
  MgStep step = STEP_error;
  switch (in->op) {
  case BC_LOAD_CONST: step = mg_op_LOAD_CONST(l, in); break;
  case BC_LOAD_GLOBAL: step = mg_op_LOAD_GLOBAL(l, in); break;
  case BC_LOAD_FAST: step = mg_op_LOAD_FAST(l, in); break;
  case BC_LOAD_DEREF: step = mg_op_LOAD_DEREF(l, in); break;
  default: return -1;
  }
  if (step != STEP_next) {
    if (l->rec->abort || !PyErr_ExceptionMatches(PyExc_NameError)) return -2;
    PyErr_Clear(); /* a name that is not bound: the program's own run of this instruction raises */
    return -1;
  }
  PyObject *v = POP();
  int truth = v == Py_True ? 1 : v == Py_False || v == Py_None ? 0 : -1;
  Py_DECREF(v);
  return truth;
}

/* A load whose truth is asked at once: the unit behind the question, `unit` if it is none, -1 with an
 * exception or break. */
static int join_follow(MgLoop *l, int unit) {
  const MgInstr *load = join_at(l, unit), *test = join_at(l, load->next);
  bool flip = false;
  if (load->op == BC_LOAD_GLOBAL && load->flag) return unit;
  for (; test->op == BC_UNARY_NOT || test->op == BC_TO_BOOL; test = join_at(l, test->next))
    flip ^= test->op == BC_UNARY_NOT;
  if (!join_is_test(test)) return unit;
  int truth = join_load(l, load);
  if (truth < 0) return truth == -1 ? unit : -1;
  return (truth ^ flip) == (test->op == BC_POP_JUMP_IF_TRUE) ? test->target : test->next;
}

int mg_join_end(MgLoop *l, int unit) {
  PyObject *condition = POP(); /* both ways begin without it, so that a load has room */
  for (int i = 0; i < MG_TUNE_CLAIM_LENGTH && unit >= 0; i++) {
    const MgInstr *in = join_at(l, unit);
    int next = in->op == BC_NOP ? in->next : in->op == BC_JUMP ? in->target : join_follow(l, unit);
    if (in->op == BC_JUMP_BACKWARD) {
      unit = in->target;
      break;
    }
    if (next == unit) break;
    unit = next;
  }
  PUSH(condition);
  return unit;
}

void mg_join_open(MgLoop *l, const MgInstr *in, int end) {
  MgRec *r = l->rec;
  Py_ssize_t n = PyList_GET_SIZE(r->cap->claims);
  if (l->nopen == sizeof l->open / sizeof *l->open) l->nopen = 0;
  l->open[l->nopen++] = (MgOpenJump){.next = in->next,
                                     .end = end,
                                     .nbytecode = r->nbytecode,
                                     .claim = PyList_GET_ITEM(r->cap->claims, n - 1)};
}

/* Functions and methods that ask about numbers; none raises because of them.  Only of these may be globals
 * what no iterator can be given to. */
static bool join_asks(const MgLoop *l, const MgInstr *in) {
  static const char *const known[] = {"torch", "isnan", "isinf", "isfinite", "isposinf", "isneginf",
                                      "any",   "all",   "abs",   "sum",      "max",      "min"};
  enum { GLOBALS = 6 };
  size_t n = in->op == BC_LOAD_GLOBAL ? GLOBALS : sizeof known / sizeof *known;
  const char *name = PyUnicode_AsUTF8(CO_NAME(in->arg));
  for (size_t i = 0; name && i < n; i++)
    if (!strcmp(name, known[i])) return true;
  PyErr_Clear(); /* a name that is no UTF-8 is none of these */
  return false;
}

static bool join_same_load(const MgInstr *a, const MgInstr *b) {
  return a->op == b->op && a->arg == b->arg && (a->op == BC_LOAD_FAST || a->op == BC_LOAD_CONST);
}

/* May the two loads and the subscript that begin at unit be done once more?  True if they were done in the
 * straight code that leads to the jump whose next unit is `next`: a dict may add what it is asked for. */
static bool join_again(const MgLoop *l, int unit, int next) {
  const MgInstr *a = join_at(l, unit), *b = join_at(l, a->next);
  for (int u = next - 1; u >= 0 && u >= next - MG_TUNE_CLAIM_LENGTH; u--) {
    const MgInstr *c = join_at(l, u), *d = join_at(l, c->next), *i = c;
    if (!join_same_load(a, c) || !join_same_load(b, d) || join_at(l, d->next)->op != BC_BINARY_SUBSCR)
      continue;
    while (i->next < next && i->target < 0) i = join_at(l, i->next);
    return i->next == next && join_is_test(i);
  }
  return false;
}

static bool join_is_open(const MgLoop *l, const MgInstr *in) {
  for (int i = 0; i < l->nopen; i++)
    if (l->open[i].next == in->next) return true;
  return false;
}

/* Is this instruction harmless?  before: the units of the two in front of it.  next: where the open jump goes
 * on. */
static bool join_harmless(const MgLoop *l, const MgInstr *in, const int *before, int next) {
  switch (in->op) {
  case BC_LOAD_CONST:
  case BC_LOAD_FAST:
  case BC_NOP:
  case BC_PUSH_NULL:
  case BC_TO_BOOL: return true;
  case BC_CALL: return in->extra < 0; /* no out= */
  case BC_LOAD_GLOBAL:
  case BC_LOAD_ATTR:
  case BC_LOAD_METHOD: return join_asks(l, in);
  case BC_BINARY_SUBSCR: return before[0] >= 0 && join_again(l, before[0], next);
  case BC_POP_JUMP_IF_TRUE:
  case BC_POP_JUMP_IF_FALSE: return join_is_open(l, in);
  default: return false;
  }
}

/* How many instructions are between the open jump o and the jump `to`, all of them harmless.  -1: something
 * else is there. */
static int join_distance(const MgLoop *l, const MgOpenJump *o, const MgInstr *to) {
  int unit = o->next, before[2] = {-1, -1}, n = 0;
  for (const MgInstr *in; (in = join_at(l, unit)) != to; n++) {
    if (n > MG_TUNE_CLAIM_LENGTH || !join_harmless(l, in, before, o->next)) return -1;
    before[0] = before[1];
    before[1] = unit;
    unit = in->next;
  }
  return n;
}

int mg_join_close(MgLoop *l, const MgInstr *in, int end) {
  MgRec *r = l->rec;
  PyObject *claims = r->cap->claims;
  for (int i = 0; i < l->nopen; i++) {
    const MgOpenJump *o = &l->open[i];
    int n = o->end == end ? join_distance(l, o, in) : -1;
    /* Nothing but these instructions ran since: no other way here, and no code of the program. */
    if (n < 0 || r->nbytecode - o->nbytecode != n + 1) continue;
    for (Py_ssize_t k = PyList_GET_SIZE(claims); k-- > 0;)
      if (PyList_GET_ITEM(claims, k) == o->claim && PyList_SetSlice(claims, k, k + 1, NULL)) return -1;
  }
  l->nopen = 0;
  r->claims = claims && PyList_GET_SIZE(claims);
  return 0;
}
