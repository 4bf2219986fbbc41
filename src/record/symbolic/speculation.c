/* See the header.  In: conditions of jumps while recording.  Out: entries of cap->claims, which
 * the snapshot checks first. */
#include "record/symbolic/speculation.h"
#include <string.h>
#include "entry/guard/guard_set.h"
#include "entry/launch/trace.h"
#include "host/python/pyobject.h"
#include "record/core/capture.h"
#include "record/core/recording.h"
#include "record/core/source_place.h"
#include "record/symbolic/expected_truth.h"
#include "record/symbolic/item_numbers.h"
#include "record/symbolic/number.h"
#include "record/symbolic/unbacked.h"

bool mg_claim_allowed(const MgRec *r) {
  return !mg_retry_denied(r, RETRY_claims) && r->guards && !r->in_joint && !r->cap->in_part &&
         !r->cap->wrappers;
}

int mg_claim_add(MgRec *r, PyObject *condition, bool *yes) {
  MgCapture *cap = r->cap;
  PyObject *answer = NULL, *number = condition;
  bool tensor = mg_standin_is(condition);
  if (r->want_fx || (tensor && (!mg_symvalue_can(cap, condition) ||
                                !mg_sym_is(r->x, mg_val_numel(r->g, mg_standin_val(condition)), 1))))
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
  int rc = mg_claim_allowed(r) ? mg_claim_add(r, tensor, &yes) : 0;
  return rc < 0 || (rc == 1 && yes) ? rc : claim_assert(tensor, text);
}

int mg_claim_number(MgRec *r, PyObject *condition, bool *yes) {
  return mg_claim_allowed(r) ? mg_claim_add(r, condition, yes) : 0;
}

int mg_claim_expected(MgCapture *cap, PyObject *condition, bool *yes) {
  if (cap->rec->want_fx || !mg_claim_allowed(cap->rec)) return 0;
  int known = mg_expect_truth(cap, condition, yes);
  return known == 1 ? mg_claim_add(cap->rec, condition, yes) : known;
}

int mg_claim_refuse(MgRec *r) {
  mg_retry_fail(r, RETRY_claims);
  if (!PyErr_Occurred())
    PyErr_SetString(PyExc_RuntimeError,
                    "magneto: an answer is taken for granted in a graph whose runs cannot be given up");
  return -1;
}

/* Checks of torch's own, without a result. */
static bool claim_only_raises(const MgOp *op) {
  static const char *const name[] = {"aten::_assert_", "aten::_linalg_check_errors",
                                     "aten::sym_constrain_range"};
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
  r->claims_early = mg_alias_writes(mg_rec_trace(r, &(MgTrace){0}));
  return !(r->guards->ndraw || PyErr_Occurred() || claim_acts(r->g)) || mg_claim_refuse(r) == 0;
}

static bool claim_random(const MgGraph *g) {
  for (NodeRef n = 1; n < g->nnode; n++)
    if (!g->node[n].dead && mg_node_random(&g->node[n])) return true;
  return false;
}

bool mg_claim_repeats(MgRec *r) {
  return !r->guards->ndraw && (r->raises || !claim_random(r->g)) && !claim_acts(r->g) &&
         !mg_alias_writes(mg_rec_trace(r, &(MgTrace){0}));
}

bool mg_claim_draws(const MgRec *r) { return (r->claims || r->raises) && claim_random(r->g); }
