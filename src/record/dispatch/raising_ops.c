/* See the header.  In: an op, and the frames that are being recorded.  Out: whether what its
 * kernel raises is the program's. */
#include "record/dispatch/raising_ops.h"
#include <stdlib.h>
#include <string.h>
#include "host/python/code_info.h"
#include "host/python/decode.h"
#include "host/python/pyframe.h"
#include "host/python/pyobject.h"
#include "host/python/trace_rules.h"
#include "ir/graph/graph.h"
#include "record/core/loop.h"
#include "record/core/ops.h"
#include "record/core/recording.h"
#include "record/symbolic/speculation.h"

/* ---- frames ---- */

static bool raises_caught(const MgCode *code, int unit, PyObject *const *base);

/* Does a function with such code only ever return None? */
static bool raises_returns_none(const MgCode *code, PyCodeObject *co) {
  for (int i = 0, last = 0; i < code->n; last = i, i = mg_decode_after(code, i)) {
    const MgInstr *in = &code->instr[i], *what = in->op == BC_RETURN_VALUE ? &code->instr[last] : in;
    if (in->op != BC_RETURN_VALUE && in->op != BC_RETURN_CONST) continue;
    bool constant = what->op == BC_LOAD_CONST || what->op == BC_RETURN_CONST;
    if (!constant || mg_decode_constant(what, co) != Py_None) return false;
  }
  return true;
}

/* The generator that a context manager made by contextlib.contextmanager waits in;
 * borrowed; NULL: it is none. */
static PyObject *raises_generator(PyObject *manager, PyCodeObject *exit) {
  PyObject **d = strstr(PyUnicode_AsUTF8(exit->co_qualname), "_GeneratorContextManager.")
                     ? _PyObject_GetDictPtr(manager)
                     : NULL;
  PyObject *gen = d && *d ? PyDict_GetItemString(*d, "gen") : NULL;
  return gen && PyGen_CheckExact(gen) ? gen : NULL;
}

static const MgCode *raises_code(PyCodeObject *co) {
  MgCodeInfo *info = mg_code_info(co);
  const MgCode *code = info ? mg_code_decoded(info, co) : NULL;
  if (!code) mg_clear_as_no();
  return code;
}

/* May this __exit__ swallow an exception?  torch's own give theirs on. */
static bool raises_exit_swallows(PyObject *exit) {
  PyObject *f = PyMethod_Check(exit) ? PyMethod_GET_FUNCTION(exit) : exit, *gen;
  PyCodeObject *co = PyFunction_Check(f) ? (PyCodeObject *)PyFunction_GET_CODE(f) : NULL;
  if (!co || mg_skip_is_torch(co)) return false;
  if (PyMethod_Check(exit) && (gen = raises_generator(PyMethod_GET_SELF(exit), co))) {
    MgFrame *frame = mg_pyframe_suspended(gen);
    const MgCode *code = frame ? raises_code(mg_pyframe_code(frame)) : NULL;
    return code && raises_caught(code, mg_pyframe_next(frame) - 1, NULL);
  }
  const MgCode *code = raises_code(co);
  return code && !raises_returns_none(code, co);
}

/* Does a handler ask for the class of the exception? */
static bool raises_checks(const MgCode *code, const MgHandler *h) {
  const MgHandler *own = mg_decode_handler(code, h->target);
  for (int i = code->instr[h->target].next; own && i < own->end; i = mg_decode_after(code, i))
    if (code->instr[i].op == BC_CHECK_EXC_MATCH || code->instr[i].op == BC_CHECK_EG_MATCH) return true;
  return false;
}

/* Does a handler of this code catch what is raised at a unit?  base: of the value stack there; NULL:
 * contexts are not looked into. */
static bool raises_caught(const MgCode *code, int unit, PyObject *const *base) {
  for (const MgHandler *h; (h = mg_decode_handler(code, unit)); unit = h->target) {
    if (code->instr[h->target].op != BC_PUSH_EXC_INFO) continue; /* it only tidies up */
    int first = code->instr[h->target].next;
    if (code->instr[first].op == BC_POP_TOP) return true; /* `except:` */
    if (code->instr[first].op == BC_WITH_EXCEPT_START) {
      PyObject *exit = base && h->depth >= MG_EXIT_BELOW ? base[h->depth - MG_EXIT_BELOW] : NULL;
      if (exit && raises_exit_swallows(exit)) return true;
      continue;
    }
    if (raises_checks(code, h)) return true;
  }
  return false;
}

bool mg_raises_caught(const MgRec *r) {
  bool caught = false;
  if (r->in_joint || !r->guards) return false;
  for (const MgLoop *l = r->top; l && !caught; l = l->up)
    caught = l->code->nhandler && l->in && raises_caught(l->code, l->in->at, l->base);
  return caught;
}

/* ---- what a handler does with the exceptions of values ---- */

enum {
  RAISES_CLASSES = 8,
  RAISES_BODY = 400
}; /* classes in one clause; instructions of a handler that are looked at */

/* Is it one of the classes of exceptions that kernels raise because of values, or a base of one? */
static bool raises_is_base(PyObject *class) {
  static PyObject *linalg; /* torch.linalg.LinAlgError; strong, process lifetime */
  PyObject *const kinds[] = {PyExc_RuntimeError, PyExc_IndexError, PyExc_ValueError, PyExc_ZeroDivisionError};
  if (!PyType_Check(class)) return true;
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    if (PyType_IsSubtype((PyTypeObject *)kinds[i], (PyTypeObject *)class)) return true;
  if (!linalg) {
    PyObject *m = mg_import("torch._C");
    linalg = m ? PyObject_GetAttrString(m, "_LinAlgError") : NULL;
    Py_XDECREF(m);
    if (!linalg) mg_clear_as_no();
  }
  return !linalg || !PyType_Check(linalg) || PyType_IsSubtype((PyTypeObject *)linalg, (PyTypeObject *)class);
}

/* Does a clause, whose classes are loaded from unit *at on, catch such exceptions?  Only names of globals and
 * their attributes are read, with guards.  *at moves to the CHECK_EXC_MATCH, or becomes -1 where something
 * else is found.  -1 with an exception. */
static int raises_clause(const MgLoop *l, int *at) {
  PyObject *stack[RAISES_CLASSES];
  int n = 0, rc = 0;
  const MgInstr *in = &l->code->instr[*at];
  for (; rc >= 0 && *at >= 0 && in->op != BC_CHECK_EXC_MATCH; in = &l->code->instr[in->next]) {
    PyObject *v = NULL;
    if (in->op == BC_BUILD_TUPLE && in->arg <= n && in->next < l->code->n) continue; /* they stay apart */
    if (in->op == BC_LOAD_GLOBAL && n < RAISES_CLASSES)
      v = mg_ops.load_global(l->v.globals, l->v.builtins, CO_NAME(in->arg));
    else if (in->op == BC_LOAD_ATTR && n) v = mg_ops.getattr(stack[--n], CO_NAME(in->arg));
    else *at = -1;
    if (in->op == BC_LOAD_ATTR && *at >= 0) Py_DECREF(stack[n]);
    if (*at >= 0 && !v) rc = -1;
    if (v) stack[n++] = v;
  }
  if (*at >= 0) *at = (int)(in - l->code->instr);
  for (int i = 0; i < n; i++) {
    if (!rc) rc = raises_is_base(stack[i]);
    Py_DECREF(stack[i]);
  }
  return rc;
}

/* The first handler around a unit that is no mere tidying up: its unit, or -1. */
static int raises_around(const MgCode *code, int unit) {
  const MgHandler *h = mg_decode_handler(code, unit);
  while (h && code->instr[h->target].op != BC_PUSH_EXC_INFO) h = mg_decode_handler(code, h->target);
  return h ? h->target : -1;
}

/* An instruction of a handler that leaves something behind, or with which it ends without an exception. */
static bool raises_stays(const MgInstr *in, const MgInstr *before) {
  switch (in->op) {
  case BC_STORE_ATTR:
  case BC_STORE_SUBSCR:
  case BC_STORE_SLICE:
  case BC_STORE_GLOBAL:
  case BC_STORE_DEREF:
  case BC_STORE_NAME:
  case BC_DELETE_ATTR:
  case BC_DELETE_SUBSCR:
  case BC_DELETE_GLOBAL:
  case BC_DELETE_DEREF:
  case BC_DELETE_NAME:
  case BC_IMPORT_NAME:
  case BC_RETURN_VALUE:
  case BC_RETURN_CONST:
  case BC_YIELD_VALUE:
  case BC_SEND:
  case BC_POP_EXCEPT: return true;
  case BC_POP_TOP:
    return before &&
           (before->op == BC_CALL || before->op == BC_CALL_FUNCTION_EX); /* called for what it does */
  default: return false;
  }
}

/* Does the body of a handler only raise, whichever way it takes?  Then the exception leaves the
 * block, perhaps as another one. */
static bool raises_again(const MgCode *code, const MgHandler *h, int body) {
  bool *seen = mg_calloc((size_t)code->n + 1, sizeof *seen), only = seen != NULL;
  int *todo = mg_malloc(sizeof *todo * (RAISES_BODY + 2)), n = 0, count = 0,
      around = raises_around(code, h->target);
  if (!todo) only = false;
  else todo[n++] = body;
  while (only && n) {
    const MgInstr *before = NULL;
    for (int at = todo[--n]; only && !seen[at];) {
      const MgInstr *in = &code->instr[at];
      seen[at] = true;
      only = ++count < RAISES_BODY && at < code->n && raises_around(code, at) == around &&
             !raises_stays(in, before);
      if (!only || in->op == BC_RAISE_VARARGS || in->op == BC_RERAISE) break;
      bool always = in->op == BC_JUMP || in->op == BC_JUMP_BACKWARD;
      if (in->target >= 0 && !always) todo[n++] = in->target;
      at = always ? in->target : mg_decode_after(code, at);
      before = in;
    }
  }
  free(seen);
  free(todo);
  return only;
}

/* How an exception of values fares in a handler.  any: it may be of any class by now. */
static int raises_handled(const MgLoop *l, const MgHandler *h, bool any) {
  const MgCode *code = l->code;
  int at = code->instr[h->target].next, fate = MG_RAISES_leaves;
  if (code->instr[at].op == BC_WITH_EXCEPT_START) {
    PyObject *exit = l->base && h->depth >= MG_EXIT_BELOW ? l->base[h->depth - MG_EXIT_BELOW] : NULL;
    return exit && raises_exit_swallows(exit) ? MG_RAISES_caught : MG_RAISES_leaves;
  }
  while (code->instr[at].op != BC_RERAISE) {
    bool all = code->instr[at].op == BC_POP_TOP; /* `except:` */
    int check = at, match = all ? 1 : raises_clause(l, &check);
    if (match < 0) return -1;
    if (check < 0) return raises_checks(code, h) ? MG_RAISES_caught : fate; /* or it is no except clause */
    const MgInstr *jump = &code->instr[code->instr[check].next];
    if (!all && jump->op != BC_POP_JUMP_IF_FALSE) return MG_RAISES_caught;
    if ((match || any) && !raises_again(code, h, all ? code->instr[at].next : jump->next))
      return MG_RAISES_caught;
    if (match || any) fate = MG_RAISES_again;
    if (all) return fate;
    at = jump->target;
  }
  return fate;
}

int mg_raises_fate(const MgRec *r) {
  int fate = MG_RAISES_leaves;
  for (const MgLoop *l = r->top; l; l = l->up) {
    if (!l->code->nhandler || !l->in) continue;
    int unit = l->in->at;
    for (const MgHandler *h; (h = mg_decode_handler(l->code, unit)); unit = h->target) {
      if (l->code->instr[h->target].op != BC_PUSH_EXC_INFO) continue; /* it only tidies up */
      int here = raises_handled(l, h, fate == MG_RAISES_again);
      if (here < 0 || here == MG_RAISES_caught) return here;
      if (here == MG_RAISES_again) fate = here;
    }
  }
  return fate;
}

bool mg_raises_by_values(const MgRec *r, const MgOp *op, const MgArg *arg) {
  return mg_raise_of(r->g, op, arg) != RS_none;
}

bool mg_raises_missed(MgRec *r) { return r->raises && r->swallows && (r->want_fx || !mg_claim_repeats(r)); }
