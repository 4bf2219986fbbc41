/* Answers taken for granted because the other way only raises, or leads to the same. */
#include "record/bytecode/jump_speculation.h"
#include <string.h>
#include "entry/launch/config.h"
#include "host/python/decode.h"
#include "host/python/pyobject.h"
#include "host/python/trace_rules.h"
#include "record/bytecode/jump_joins.h"
#include "record/call/call.h"
#include "record/core/capture.h"
#include "record/core/loop.h"
#include "record/core/recording.h"
#include "record/symbolic/item_numbers.h"
#include "record/symbolic/number.h"
#include "record/symbolic/speculation.h"
#include "tuning.h"

/* Does this instruction load a check of torch that is called with a literal False: torch._assert(False,
 * text)? It goes by the name.  If that is another function, runs that find the other answer are given up. */
static bool claim_fails(const MgLoop *l, const MgInstr *in) {
  if (in->op != BC_LOAD_METHOD && in->op != BC_LOAD_ATTR) return false;
  const char *name = PyUnicode_AsUTF8(CO_NAME(in->arg));
  const MgInstr *first = &l->code->instr[in->next];
  if (first->op == BC_PUSH_NULL) first = &l->code->instr[first->next];
  return name && (!strcmp(name, "_assert") || !strcmp(name, "_check")) && first->op == BC_LOAD_CONST &&
         mg_decode_constant(first, l->v.code) == Py_False;
}

/* Does the code at unit do nothing but raise?  *assertion: by an assert statement. */
static bool claim_raises(const MgLoop *l, int unit, bool *assertion) {
  const MgCode *code = l->code;
  *assertion = code->instr[unit].op == BC_LOAD_ASSERTION_ERROR;
  for (int i = 0; i < MG_TUNE_CLAIM_LENGTH; i++) {
    const MgInstr *in = &code->instr[unit];
    if (in->op == BC_RAISE_VARARGS) return in->arg > 0;
    if (claim_fails(l, in)) return true;
    if (in->target >= 0 || in->op == BC_RETURN_VALUE || in->op == BC_RETURN_CONST || in->op == BC_RERAISE ||
        in->op == BC_YIELD_VALUE)
      return false;
    unit = in->next;
  }
  return false;
}

/* In a torch-level graph the question is a node, as torch.compile has it: torch._assert_async. */
static int claim_node(const MgLoop *l, PyObject *tensor, bool yes, PyObject *text) {
  PyObject *torch = mg_import("torch"), *fn = torch ? PyObject_GetAttrString(torch, "_assert_async") : NULL;
  PyObject *t = !fn   ? NULL
                : yes ? Py_NewRef(tensor)
                      : PyObject_CallMethod(tensor, "logical_not", NULL),
           *const arg[] = {t, text};
  PyObject *r = t ? mg_rec_call(fn, arg, 2, NULL) : NULL;
  Py_XDECREF(r);
  Py_XDECREF(t);
  Py_XDECREF(fn);
  Py_XDECREF(torch);
  return r ? 1 : -1;
}

/* What a failed check says in a torch-level graph: an assertion's constant message, or torch.compile's words
   where it has none; for a check of torch's own, where it is.  New; NULL without an exception where Python
   has to compute the message. */
static PyObject *claim_text(const MgLoop *l, int unit, bool assertion) {
  if (!assertion) return PyUnicode_FromFormat("%U, line %d", l->v.code->co_filename, l->code->line[unit]);
  const MgInstr *in = &l->code->instr[l->code->instr[unit].next];
  if (in->op == BC_RAISE_VARARGS) return PyUnicode_FromString("assertion error");
  PyObject *text = in->op == BC_LOAD_CONST ? mg_decode_constant(in, l->v.code) : NULL;
  const MgInstr *call = &l->code->instr[in->next];
  return text && PyUnicode_Check(text) && call->op == BC_CALL ? Py_NewRef(text) : NULL;
}

/* Can the question be left out?  Both ways lead to `far`, and eager's answer would be no error. */
static bool claim_needless(const MgRec *r, PyObject *condition) {
  if (r->cap->wrappers || !mg_standin_is(condition)) return !r->cap->wrappers;
  return mg_symvalue_can(r->cap, condition) &&
         mg_sym_is(r->x, mg_val_numel(r->g, mg_standin_val(condition)), 1);
}

/* The answer that is expected, claimed.  Its claim goes if the other way turns out to lead to the same. */
static int claim_expected(MgLoop *l, const MgInstr *in, PyObject *condition, bool taken, int far, bool *yes) {
  PyObject *const *claims = &l->rec->cap->claims;
  Py_ssize_t before = *claims ? PyList_GET_SIZE(*claims) : 0;
  int known = mg_claim_expected(l->rec->cap, condition, yes);
  /* Of a claimed yes more is taken for granted later on. */
  if (known == 1 && !*yes && taken && *claims && PyList_GET_SIZE(*claims) > before) mg_join_open(l, in, far);
  return known;
}

int mg_claim_truth(MgLoop *l, const MgInstr *in, PyObject *condition, bool taken, bool *yes) {
  MgRec *r = l->rec;
  MgSymNode *number = mg_symnode_of(condition);
  bool tensor = mg_standin_is(condition), late = number && number->cap && !number->src && !number->hint;
  if (!tensor && !late) return 0;
  int far_end = mg_join_end(l, in->target), near_end = far_end < 0 ? -1 : mg_join_end(l, in->next);
  if (near_end < 0) return -1;
  if (far_end == near_end && claim_needless(r, condition)) {
    *yes = !taken;
    return mg_join_close(l, in, near_end) ? -1 : 1;
  }
  if (!mg_claim_allowed(r)) return 0;
  bool far_assert, near_assert, far = claim_raises(l, in->target, &far_assert),
                                near = claim_raises(l, in->next, &near_assert);
  bool assertion = far ? far_assert : near_assert,
       breaks = !r->want_fx &&
                !(r->cfg && r->cfg->fullgraph); /* where torch.compile's rules ask for a break, or an error */
  if (far == near || (!assertion && !breaks && !mg_skip_is_torch(l->v.code)))
    return claim_expected(l, in, condition, taken, far_end, yes);
  *yes = near == taken;
  if (r->want_fx && tensor) {
    if (!mg_sym_is(r->x, mg_val_numel(r->g, mg_standin_val(condition)), 1)) return 0;
    PyObject *text = claim_text(l, far ? in->target : in->next, far ? far_assert : near_assert);
    int rc = text ? claim_node(l, condition, *yes, text) : PyErr_Occurred() ? -1 : 0;
    Py_XDECREF(text);
    return rc;
  }
  return mg_claim_add(r, condition, yes);
}
