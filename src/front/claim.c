/* See the header.  In: conditions of jumps while recording.  Out: entries of cap->claims, which the snapshot checks first. */
#include "front/names.h"
#include "front/alias.h"
#include "front/expect.h"
#include "front/guard.h"
#include "front/skip.h"
#include "front/standin.h"
#include "front/symdata.h"
#include "front/symfloat.h"
#include "front/symvalue.h"
#include "front/claim.h"
#include <string.h>

enum { CLAIM_LENGTH = 64 }; /* instructions that make an exception */

/* Does the code at unit do nothing but raise?  *assertion: by an assert statement. */
static bool claim_raises(const MgCode *code, int unit, bool *assertion) {
  *assertion = code->instr[unit].op == BC_LOAD_ASSERTION_ERROR;
  for (int i = 0; i < CLAIM_LENGTH; i++) {
    const MgInstr *in = &code->instr[unit];
    if (in->op == BC_RAISE_VARARGS) return in->arg > 0;
    if (in->target >= 0 || in->op == BC_RETURN_VALUE || in->op == BC_RETURN_CONST || in->op == BC_RERAISE || in->op == BC_YIELD_VALUE)
      return false;
    unit = in->next;
  }
  return false;
}

/* In a torch-level graph the question is a node, as torch.compile has it: torch._assert_async. */
static int claim_node(const MgLoop *l, PyObject *tensor, bool yes, PyObject *text) {
  PyObject *torch = mg_import("torch"), *fn = torch ? PyObject_GetAttrString(torch, "_assert_async") : NULL;
  PyObject *t = !fn ? NULL : yes ? Py_NewRef(tensor) : PyObject_CallMethod(tensor, "logical_not", NULL), *const arg[] = {t, text};
  PyObject *r = t ? mg_rec_call(fn, arg, 2, NULL) : NULL;
  Py_XDECREF(r);
  Py_XDECREF(t);
  Py_XDECREF(fn);
  Py_XDECREF(torch);
  return r ? 1 : -1;
}

/* What a failed check says in a torch-level graph: an assertion's constant message, or torch.compile's words where it has none; for a check of
   torch's own, where it is.  New; NULL without an exception where Python has to compute the message. */
static PyObject *claim_text(const MgLoop *l, int unit, bool assertion) {
  if (!assertion) return PyUnicode_FromFormat("%U, line %d", l->v.code->co_filename, l->code->line[unit]);
  const MgInstr *in = &l->code->instr[l->code->instr[unit].next];
  if (in->op == BC_RAISE_VARARGS) return PyUnicode_FromString("assertion error");
  PyObject *text = in->op == BC_LOAD_CONST ? PyTuple_GET_ITEM(l->v.code->co_consts, in->arg) : NULL;
  const MgInstr *call = &l->code->instr[in->next];
  return text && PyUnicode_Check(text) && call->op == BC_CALL ? Py_NewRef(text) : NULL;
}

static bool claim_allowed(const MgRec *r) { return !r->deny_claims && r->guards && !r->in_joint && !r->cap->in_part && !r->cap->wrappers; }

/* Takes the truth of a tensor or a number for *yes.  1: done, or *yes is what it is known to be; 0: cannot; -1 with an exception. */
static int claim_add(MgRec *r, PyObject *condition, bool *yes) {
  MgCapture *cap = r->cap;
  PyObject *answer = NULL, *number = condition;
  bool tensor = mg_standin_is(condition);
  if (r->want_fx || (tensor && (!mg_symvalue_can(cap, condition) || !mg_sym_is(r->x, mg_val_numel(r->g, mg_standin_val(condition)), 1))))
    return 0;
  if (tensor && !(number = mg_symvalue_item(cap, condition))) return -1;
  bool can = mg_symvalue_convert((PyObject *)&PyBool_Type, &number, 1, &answer);
  if (tensor) Py_DECREF(number);
  if (!can) return 0;
  if (!answer) return -1;
  if (PyBool_Check(answer)) { /* known without the tensor */
    *yes = answer == Py_True;
    Py_DECREF(answer);
    return 1;
  }
  if (*yes) mg_symdata_assume(mg_symnode_of(answer));
  PyObject *claim = PyTuple_Pack(2, answer, *yes ? Py_True : Py_False);
  int rc = claim && (cap->claims || (cap->claims = PyList_New(0))) ? PyList_Append(cap->claims, claim) : -1;
  Py_XDECREF(claim);
  Py_DECREF(answer);
  r->claims = true;
  return rc ? -1 : 1;
}

/* Where runs cannot be given up: an op of the graph that raises. */
static int claim_assert(PyObject *tensor, const char *text) {
  PyObject *torch = mg_import("torch");
  PyObject *done = torch ? PyObject_CallMethod(torch, "_assert_async", "Os", tensor, text) : NULL;
  Py_XDECREF(torch);
  Py_XDECREF(done);
  return done ? 1 : -1;
}

int mg_claim(MgRec *r, PyObject *tensor, const char *text) {
  bool yes = true;
  int rc = claim_allowed(r) ? claim_add(r, tensor, &yes) : 0;
  return rc < 0 || (rc == 1 && yes) ? rc : claim_assert(tensor, text);
}

int mg_claim_number(MgRec *r, PyObject *condition, bool *yes) { return claim_allowed(r) ? claim_add(r, condition, yes) : 0; }

int mg_claim_expected(MgCapture *cap, PyObject *condition, bool *yes) {
  if (cap->rec->want_fx || !claim_allowed(cap->rec)) return 0;
  int known = mg_expect_truth(cap, condition, yes);
  return known == 1 ? claim_add(cap->rec, condition, yes) : known;
}

int mg_claim_truth(MgLoop *l, const MgInstr *in, PyObject *condition, bool taken, bool *yes) {
  MgRec *r = l->rec;
  MgSymNode *number = mg_symnode_of(condition);
  bool tensor = mg_standin_is(condition), late = number && number->cap && !number->src && !number->hint;
  if ((!tensor && !late) || !claim_allowed(r)) return 0;
  bool far_assert, near_assert, far = claim_raises(l->code, in->target, &far_assert), near = claim_raises(l->code, in->next, &near_assert);
  bool assertion = far ? far_assert : near_assert, breaks = !r->want_fx && !(r->cfg && r->cfg->fullgraph); /* where torch.compile's rules ask for a break, or an error */
  if (far == near || (!assertion && !breaks && !mg_skip_is_torch(l->v.code))) return mg_claim_expected(r->cap, condition, yes);
  *yes = near == taken;
  if (r->want_fx && tensor) {
    if (!mg_sym_is(r->x, mg_val_numel(r->g, mg_standin_val(condition)), 1)) return 0;
    PyObject *text = claim_text(l, far ? in->target : in->next, far ? far_assert : near_assert);
    int rc = text ? claim_node(l, condition, *yes, text) : PyErr_Occurred() ? -1 : 0;
    Py_XDECREF(text);
    return rc;
  }
  return claim_add(r, condition, yes);
}

int mg_claim_refuse(MgRec *r) {
  r->claims_failed = true;
  if (!PyErr_Occurred()) PyErr_SetString(PyExc_RuntimeError, "magneto: an answer is taken for granted in a graph whose runs cannot be given up");
  return -1;
}

/* Checks of torch's own, without a result. */
static bool claim_only_raises(const MgOp *op) {
  static const char *const name[] = {"aten::_assert_", "aten::_linalg_check_errors", "aten::sym_constrain_range"};
  for (size_t i = 0; i < sizeof name / sizeof *name; i++)
    if (!strncmp(op->full, name[i], strlen(name[i]))) return true;
  return false;
}

/* Does a call do what cannot be taken back: operators of the program's own, communication? */
static bool claim_acts(const MgGraph *g) {
  for (NodeRef n = 1; n < g->nnode; n++) {
    const MgOp *op = g->node[n].op;
    if (!g->node[n].dead && op->effect && !op->mutates && !op->random && !claim_only_raises(op)) return true;
  }
  return false;
}

bool mg_claim_holds(MgRec *r) {
  if (!r->claims) return true;
  r->claims_early = mg_alias_writes(r);
  return !(r->guards->ndraw || PyErr_Occurred() || claim_acts(r->g)) || mg_claim_refuse(r) == 0;
}

static bool claim_random(const MgGraph *g) {
  for (NodeRef n = 1; n < g->nnode; n++)
    if (!g->node[n].dead && g->node[n].op->random) return true;
  return false;
}

bool mg_claim_repeats(MgRec *r) {
  return !r->guards->ndraw && (r->raises || !claim_random(r->g)) && !claim_acts(r->g) && !mg_alias_writes(r);
}

bool mg_claim_draws(const MgRec *r) { return (r->claims || r->raises) && claim_random(r->g); }

static PyObject *claim_state(const char *name, PyObject *arg) {
  PyObject *torch = mg_import("torch"), *fn = torch ? PyObject_GetAttrString(torch, name) : NULL;
  PyObject *r = fn ? PyObject_CallFunctionObjArgs(fn, arg, NULL) : NULL;
  Py_XDECREF(fn);
  Py_XDECREF(torch);
  return r;
}

PyObject *mg_claim_save(void) { return claim_state("get_rng_state", NULL); }

int mg_claim_restore(PyObject *state) {
  PyObject *r = claim_state("set_rng_state", state);
  Py_XDECREF(r);
  Py_DECREF(state);
  return r ? 0 : -1;
}
