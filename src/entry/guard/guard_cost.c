/* Costs of single guards, for reports.
 * In: sets while they are recorded and checked.  Out: a list of rows for Python.
 * One guard takes a few ticks, less than reading the clock: it is repeated, unless it runs Python code.  The
 * least of a few rounds counts, so that interrupts do not.  What a check does before it, to find the value,
 * counts for the first guard of that value.
 * Places are found by what the operation is, since sealing puts operations into another order. */
#include "entry/guard/guard_cost.h"
#include <stdlib.h>
#include <string.h>
#include "base/strbuf.h"
#include "base/table.h"
#include "entry/guard/guard_add.h"
#include "entry/guard/guard_check.h"
#include "entry/guard/guard_set.h"
#include "entry/guard/source.h"
#include "host/torch/tensor_facts.h"
#include "runtime/process/measure.h"

enum {
  COST_SAMPLES = 3, /* calls that are measured: first ones meet cold memory */
  COST_ROUNDS = 3,  /* in each of them */
  COST_REPEATS = 16 /* of a guard between two readings of the clock */
};

typedef struct CostPlace {
  const char *path; /* lives for ever */
  uint32_t line;
} CostPlace;

struct MgGuardCost {
  MgMap by_op; /* -> place */
  CostPlace *place;
  uint32_t nplace, cap;
  uint32_t *failed; /* by operation, then by group; NULL until the set is sealed */
  uint64_t *ticks;  /* the same, the least of all rounds, of COST_REPEATS; only once sampled */
  uint32_t samples;
};

void mg_guard_cost_begin(MgGuards *g) {
  if (mg_measure_on) g->cost = mg_calloc(1, sizeof *g->cost);
}

void mg_guard_cost_free(MgGuards *g) {
  MgGuardCost *k = g->cost;
  if (!k) return;
  g->cost = NULL;
  mg_map_free(&k->by_op);
  free(k->place);
  free(k->failed);
  free(k->ticks);
  free(k);
}

static uint64_t cost_key(const MgGuardOp *op) {
  uint64_t at = op->src ? op->src : (uint64_t)(uintptr_t)op->o;
  uint64_t what = (uint64_t)op->kind << 32 | op->src2;
  if (op->src && op->kind != GK_tensor) what ^= (uint64_t)(uintptr_t)op->o; /* sealing gives tensors theirs */
  return mg_hash_u64(mg_hash_u64(at) ^ what) | 2;
}

void mg_guard_cost_place(MgGuards *g, const MgGuardOp *op) {
  MgGuardCost *k = g->cost;
  CostPlace p = {0};
  if (!k || !(p.line = mg_guard_asks.place(&p.path)) || !p.path) return;
  if (k->nplace == k->cap && !mg_grow(&k->place, &k->cap, sizeof *k->place, 64)) return;
  k->place[k->nplace] = p;
  if (mg_map_put(&k->by_op, cost_key(op), k->nplace) == MG_OK) k->nplace++;
}

static uint32_t cost_rows(const MgGuards *g) { return g->nop + GROUP__COUNT; }

static bool cost_ready(MgGuards *g) {
  MgGuardCost *k = g->cost;
  if (k && !k->failed) k->failed = mg_calloc(cost_rows(g), sizeof *k->failed);
  return k && k->failed;
}

void mg_guard_cost_failed(MgGuards *g, uint32_t op) {
  if (cost_ready(g)) g->cost->failed[op]++;
}

void mg_guard_cost_failed_group(MgGuards *g, MgGuardGroup group) { mg_guard_cost_failed(g, g->nop + group); }

/* ---- measuring ---- */

/* Does the guard run Python code, or more than a few compares?  Once is enough then. */
static bool cost_is_long(const MgGuardOp *op) {
  switch ((MgGuardKind)op->kind) {
  case GK_getter:
  case GK_member_is:
  case GK_answer:
  case GK_not_abc:
  case GK_iterator:
  case GK_quiet:
  case GK_quiet_attr:
  case GK_quiet_slot:
  case GK_order:
  case GK_order_is: return true;
  default: return false;
  }
}

static uint64_t cost_clock(void) { /* what reading the clock takes */
  uint64_t least = UINT64_MAX;
  for (int i = 0; i < COST_ROUNDS; i++) {
    uint64_t t = mg_ticks(), took = mg_ticks() - t;
    if (took < least) least = took;
  }
  return least;
}

/* Ticks of COST_REPEATS checks of an operation, the least of a few rounds. */
static uint64_t cost_of_op(const MgGuards *g, const MgGuardOp *op, PyObject **vals, const MgSlots *s) {
  uint64_t least = UINT64_MAX, clock = cost_clock();
  int n = cost_is_long(op) ? 1 : COST_REPEATS;
  for (int round = 0; round < COST_ROUNDS; round++) {
    uint64_t t = mg_ticks();
    for (int i = 0; i < n; i++) mg_guard_op_holds(g, op, vals, s, mg_source_turn());
    uint64_t took = mg_ticks() - t;
    took = (took > clock ? took - clock : 0) * (uint64_t)(COST_REPEATS / n);
    if (took < least) least = took;
  }
  return least;
}

static uint64_t cost_of_group(MgGuards *g, MgGuardGroup group) {
  uint64_t least = UINT64_MAX, clock = cost_clock();
  for (int round = 0; round < COST_ROUNDS; round++) {
    uint64_t t = mg_ticks();
    for (int i = 0; i < COST_REPEATS; i++) mg_guards_group_holds(g, group);
    uint64_t took = mg_ticks() - t;
    took = took > clock ? took - clock : 0;
    if (took < least) least = took;
  }
  return least;
}

void mg_guard_cost_sample(MgGuards *g, const MgSlots *s, PyObject **vals) {
  MgGuardCost *k = g->cost;
  if (!cost_ready(g) || k->samples >= COST_SAMPLES) return;
  bool first = !k->samples++;
  if (first && !(k->ticks = mg_malloc(cost_rows(g) * sizeof *k->ticks))) k->samples = COST_SAMPLES;
  for (uint32_t i = 0; k->ticks && i < cost_rows(g); i++) {
    uint64_t took =
        i < g->nop ? cost_of_op(g, &g->op[i], vals, s) : cost_of_group(g, (MgGuardGroup)(i - g->nop));
    if (first || took < k->ticks[i]) k->ticks[i] = took;
  }
}

/* ---- the list ---- */

/* Adds a row; ticks are of COST_REPEATS.  0, or -1 with an exception. */
static int cost_row(PyObject *list, const MgGuards *g, uint32_t row, MgStrbuf *text, uint64_t ticks,
                    const CostPlace *at) {
  const MgGuardCost *k = g->cost;
  const char *s = mg_sb_ok(text) ? mg_sb_text(text) : "";
  PyObject *ns = k->samples && k->ticks ? PyFloat_FromDouble(mg_ticks_ms(ticks) * 1e6 / COST_REPEATS)
                                        : Py_NewRef(Py_None);
  PyObject *t = ns ? Py_BuildValue("(NNIzI)", PyUnicode_DecodeUTF8(s, (Py_ssize_t)strlen(s), "replace"), ns,
                                   k->failed ? k->failed[row] : 0, at ? at->path : NULL, at ? at->line : 0)
                   : NULL;
  int rc = t ? PyList_Append(list, t) : -1;
  Py_XDECREF(t);
  return rc;
}

/* The operations; *way: by source, the ticks that finding its value takes and no guard has counted yet. */
static int cost_list_ops(PyObject *list, const MgGuards *g, uint64_t *way) {
  const MgGuardCost *k = g->cost;
  for (uint32_t i = 0; i < g->nop; i++) {
    const MgGuardOp *op = &g->op[i];
    uint64_t ticks = k->ticks ? k->ticks[i] : 0;
    if (op->kind == GK_load) {
      way[op->src] += ticks;
      if (!k->failed || !k->failed[i]) continue; /* else it has a row of its own */
    } else if (op->src) {
      ticks += way[op->src];
      way[op->src] = 0;
    }
    MgStrbuf text = {0};
    mg_guard_put(g, op, &text);
    uint32_t at = mg_map_get(&k->by_op, cost_key(op));
    int rc = cost_row(list, g, i, &text, op->kind == GK_load ? 0 : ticks,
                      at == MG_MAP_NONE ? NULL : &k->place[at]);
    mg_sb_free(&text);
    if (rc) return -1;
  }
  return 0;
}

static void cost_put_group(const MgGuards *g, MgGuardGroup group, MgStrbuf *out) {
  switch (group) {
  case GROUP_state: mg_sb_puts(out, "torch's state: grad mode, autocast, threads and the like"); break;
  case GROUP_slots: mg_sb_printf(out, "%u objects have their classes and their dicts", g->nslot); break;
  case GROUP_dicts: mg_sb_printf(out, "%u dicts: what was read of them is the same", g->ndict); break;
  case GROUP_types: mg_sb_printf(out, "%u classes are unchanged", g->ntype); break;
  case GROUP_hooks: mg_sb_printf(out, "%u dicts of hooks are empty", g->nempty); break;
  case GROUP__COUNT: break;
  }
}

PyObject *mg_guard_cost_list(const MgGuards *g) {
  const MgGuardCost *k = g->cost;
  PyObject *list = PyList_New(0);
  uint64_t *way = list && k ? mg_calloc((size_t)mg_guards_nsrc(g) + 1, sizeof *way) : NULL;
  if (!way) return k && list ? (Py_DECREF(list), PyErr_NoMemory()) : list;
  int rc = cost_list_ops(list, g, way);
  const uint32_t size[] = {1, g->nslot, g->ndict, g->ntype, g->nempty};
  for (uint32_t i = 0; !rc && i < GROUP__COUNT; i++) {
    MgStrbuf text = {0};
    cost_put_group(g, (MgGuardGroup)i, &text);
    uint32_t row = g->nop + i;
    if (size[i]) rc = cost_row(list, g, row, &text, k->ticks ? k->ticks[row] : 0, NULL);
    mg_sb_free(&text);
  }
  uint64_t left = 0;
  for (int i = 0; i <= mg_guards_nsrc(g); i++) left += way[i];
  free(way);
  if (!rc && left && k->ticks) {
    PyObject *t = Py_BuildValue("(sdIOI)", "ways to values that have no guard of their own",
                                mg_ticks_ms(left) * 1e6 / COST_REPEATS, 0, Py_None, 0);
    rc = t ? PyList_Append(list, t) : -1;
    Py_XDECREF(t);
  }
  if (rc) Py_CLEAR(list);
  return list;
}
