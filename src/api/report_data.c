/* What reports are made of, as plain dicts and lists (magneto/_report writes the page).
 * In: the records of compilations, and the counters of runs.  Out: one dict; also the machine's roofline and
 * the assembly of a kernel's text.  Texts are copied; nothing here keeps an object of the program. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "back/emit/emit_llvm.h"
#include "driver/kernel/kernels.h"
#include "driver/plan_record.h"
#include "entry/launch/events.h"
#include "entry/launch/stats.h"
#include "ir/graph/joint_spec.h"
#include "record/core/source_place.h"
#include "runtime/code/load_llvm.h"
#include "runtime/process/measure.h"
#include "runtime/process/torch_abi.h"

/* Adds v (stolen) to a list.  0, or -1 with an exception. */
static int report_push(PyObject *list, PyObject *v) {
  int rc = v ? PyList_Append(list, v) : -1;
  Py_XDECREF(v);
  return rc;
}

/* A text, or None; bytes that are no UTF-8 are replaced. */
static PyObject *report_text(const char *text) {
  return text ? PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace") : Py_NewRef(Py_None);
}

static PyObject *report_numbers(const uint32_t *v, uint32_t n) {
  PyObject *list = PyList_New(0);
  for (uint32_t i = 0; list && i < n; i++)
    if (report_push(list, PyLong_FromUnsignedLong(v[i]))) Py_CLEAR(list);
  return list;
}

static PyObject *report_node(const MgNodeRecord *n, NodeRef ref) {
  const char *end = n->text ? strchr(n->text, '\n') : NULL;
  Py_ssize_t len = n->text ? (end ? end - n->text : (Py_ssize_t)strlen(n->text)) : 0;
  return Py_BuildValue("{s:I,s:s,s:N,s:I,s:N,s:O,s:O,s:N}", "node", ref, "op", n->op, "file",
                       report_text(mg_place_path(n->file)), "line", n->line, "text",
                       PyUnicode_DecodeUTF8(n->text ? n->text : "", len, "replace"), "backward",
                       n->backward ? Py_True : Py_False, "view", n->view ? Py_True : Py_False, "inputs",
                       report_numbers(n->input, n->ninput));
}

static PyObject *report_graph(const MgGraphRecord *g) {
  PyObject *list = PyList_New(0);
  for (NodeRef k = 1; list && k < g->nnode; k++)
    if (g->node[k].op && report_push(list, report_node(&g->node[k], k))) Py_CLEAR(list);
  return list ? Py_BuildValue("{s:N,s:N}", "text", report_text(g->text), "nodes", list) : NULL;
}

static PyObject *report_key(MgKey k) {
  char text[40]; /* CPython's own formats have no long long in hexadecimal before 3.12 */
  snprintf(text, sizeof text, "%016llx%016llx", (unsigned long long)k.hi, (unsigned long long)k.lo);
  return PyUnicode_FromString(text);
}

static PyObject *report_step(const MgPlanRecord *r, uint32_t i) {
  static const char *const origin[] = {
      [CO_call] = "call", [CO_compiled] = "compiled", [CO_memory] = "memory", [CO_disk] = "disk"};
  const MgStepRecord *s = &r->step[i];
  const MgStepTime *t = r->times ? &r->times->step[i] : NULL;
  uint64_t n = t ? t->n : 0;
  return Py_BuildValue("{s:N,s:s,s:N,s:N,s:d,s:d,s:N,s:N,s:N,s:s,s:N,s:i,s:K,s:d,s:d}", "label",
                       report_text(s->label), "runs", s->runs ? s->runs : "?", "op", report_text(s->op),
                       "nodes", report_numbers(s->node, s->nnode), "bytes", s->bytes, "flops", s->flops,
                       "loops", report_text(s->loops), "code", report_text(s->code), "key",
                       report_key(s->key), "origin", origin[s->origin], "apart", report_text(s->apart),
                       "apart_from", (int)s->apart_from, "n", (unsigned long long)n, "ms",
                       n ? mg_ticks_ms(t->ticks) : 0.0, "least_ms", n ? mg_ticks_ms(t->least) : 0.0);
}

static PyObject *report_steps(const MgPlanRecord *r) {
  PyObject *list = PyList_New(0);
  for (uint32_t i = 0; list && r->step && i < r->nstep; i++)
    if (report_push(list, report_step(r, i))) Py_CLEAR(list);
  return list;
}

static PyObject *report_saved(const MgPlanRecord *r) {
  static const char *const kind[] = {
      [MG_SAVED_primal] = "input", [MG_SAVED_output] = "result", [MG_SAVED_intermediate] = "intermediate"};
  PyObject *list = PyList_New(0);
  for (uint32_t i = 0; list && i < r->nsaved; i++) {
    const MgSavedRecord *s = &r->saved[i];
    PyObject *d = Py_BuildValue("{s:s,s:I,s:I,s:N,s:N,s:N,s:I,s:K}", "kind", kind[s->kind], "index", s->index,
                                "node", s->node, "op", report_text(s->op), "type", report_text(s->type),
                                "file", report_text(mg_place_path(s->file)), "line", s->line, "bytes",
                                (unsigned long long)s->bytes);
    if (report_push(list, d)) Py_CLEAR(list);
  }
  return list;
}

static PyObject *report_blocks(const MgBlockRecord *block, uint32_t n) {
  PyObject *list = PyList_New(0);
  for (uint32_t i = 0; list && i < n; i++) {
    const MgBlockRecord *b = &block[i];
    PyObject *d =
        Py_BuildValue("{s:K,s:K,s:I,s:I,s:I}", "offset", (unsigned long long)b->offset, "bytes",
                      (unsigned long long)b->bytes, "first", b->first, "last", b->last, "node", b->node);
    if (report_push(list, d)) Py_CLEAR(list);
  }
  return list;
}

static PyObject *report_stages(const MgPlanRecord *r) {
  PyObject *d = PyDict_New();
  for (int i = 0; d && mg_stage_names[i]; i++) {
    PyObject *ms = PyFloat_FromDouble(r->stage_ms[i]);
    if (!ms || PyDict_SetItemString(d, mg_stage_names[i], ms)) Py_CLEAR(d);
    Py_XDECREF(ms);
  }
  return d;
}

static PyObject *report_runs(const MgPlanTimes *t) {
  if (!t) Py_RETURN_NONE;
  return Py_BuildValue("{s:K,s:d,s:K,s:d,s:K,s:d,s:d,s:d}", "n", (unsigned long long)t->runs.n, "ms",
                       mg_ticks_ms(t->runs.ticks), "closely", (unsigned long long)t->closely.n, "closely_ms",
                       mg_ticks_ms(t->closely.ticks), "begun", (unsigned long long)t->begun, "first_ms",
                       mg_ticks_ms(t->first), "from_ms", mg_measure_at(t->from), "to_ms",
                       mg_measure_at(t->to));
}

static PyObject *report_plan(const MgPlanRecord *r) {
  return Py_BuildValue(
      "{s:l,s:K,s:s,s:N,s:N,s:d,s:N,s:d,s:d,s:d,s:I,s:N,s:N,s:s,s:N,s:N,s:N,s:N,s:N,s:N,s:K,s:K,s:K,s:K,s:O,"
      "s:N,s:N,"
      "s:N,s:d}",
      "number", r->number, "recording", (unsigned long long)r->recording, "what",
      r->what + strspn(r->what, " "), "label", report_text(r->label), "failed", report_text(r->failed), "ms",
      r->ms, "stages", report_stages(r), "emit_ms", r->emit_ms, "llvm_ms", r->llvm_ms, "load_ms", r->load_ms,
      "compiled", r->ncompiled, "stored", report_text(r->stored), "stored_note", report_text(r->stored_note),
      "language", r->cuda ? "PTX" : "LLVM", "recorded", report_graph(&r->recorded), "graph",
      report_graph(&r->compiled), "steps", report_steps(r), "blocks", report_blocks(r->block, r->nblock),
      "eager", report_blocks(r->eager, r->neager), "saved", report_saved(r), "arena",
      (unsigned long long)r->arena, "input_bytes", (unsigned long long)r->input_bytes, "output_bytes",
      (unsigned long long)r->output_bytes, "saved_bytes", (unsigned long long)r->saved_bytes, "dynamic",
      r->dynamic ? Py_True : Py_False, "symbols", report_text(r->symbols), "facts", report_text(r->facts),
      "runs", report_runs(r->times), "at_ms", mg_measure_at(r->begun));
}

static PyObject *report_plans(void) {
  PyObject *list = PyList_New(0);
  for (const MgPlanRecord *r = mg_records(); list && r; r = r->next)
    if (report_push(list, report_plan(r))) Py_CLEAR(list);
  if (list && PyList_Reverse(list)) Py_CLEAR(list);
  return list;
}

static PyObject *report_data(PyObject *self, PyObject *unused) {
  PyObject *plans = report_plans(), *events = plans ? mg_events_list() : NULL;
  PyObject *places = events ? mg_places_list() : NULL, *tree = places ? mg_calls_list() : NULL;
  if (!tree) {
    Py_XDECREF(plans);
    Py_XDECREF(events);
    Py_XDECREF(places);
    return NULL;
  }
  return Py_BuildValue("{s:N,s:N,s:N,s:N,s:K,s:d}", "plans", plans, "events", events, "places", places,
                       "tree", tree, "calls", (unsigned long long)mg_stats.calls.n, "calls_ms",
                       mg_ticks_ms(mg_stats.calls.ticks));
}

/* ---- the machine ---- */

static PyObject *report_measure(PyObject *self, PyObject *on) {
  int want = PyObject_IsTrue(on);
  if (want < 0) return NULL;
  PyObject *before = PyBool_FromLong(mg_measure_on);
  if (want) mg_measure_start();
  else mg_measure_on = false;
  return before;
}

static PyObject *report_roofline(PyObject *self, PyObject *unused) {
  MgRoofline roof;
  mg_abi_load();
  Py_BEGIN_ALLOW_THREADS;
  mg_roofline(mg_abi_threads(), &roof);
  Py_END_ALLOW_THREADS;
  return Py_BuildValue("{s:d,s:d}", "gbps", roof.gbps, "gflops", roof.gflops);
}

static PyObject *report_assembly(PyObject *self, PyObject *arg) {
  const char *text = PyUnicode_AsUTF8(arg);
  if (!text) return NULL;
  MgCtx c;
  MgObject out = {0};
  MgStrbuf module = {0};
  MgTarget target = mg_kernels_target();
  mg_ctx_init(&c);
  mg_sb_puts(&module, text);
  mg_emit_llvm_declare(&target, &module);
  MgRc rc = mg_sb_ok(&module) ? mg_llvm_assembly(&c, mg_sb_text(&module), &out) : MG_NOMEM;
  PyObject *r = rc == MG_OK ? PyUnicode_DecodeUTF8(out.data, (Py_ssize_t)out.len, "replace")
                            : (PyErr_SetString(PyExc_RuntimeError, *c.msg ? c.msg : mg_rc_text(rc)), NULL);
  free(out.data);
  mg_sb_free(&module);
  mg_ctx_free(&c);
  return r;
}

static PyMethodDef report_methods[] = {
    {"measure", report_measure, METH_O,
     "measure(on): from here on, what is compiled and run is kept for reports; gives what it was before."},
    {"report_data", report_data, METH_NOARGS, "What was kept for reports, as dicts and lists."},
    {"roofline", report_roofline, METH_NOARGS, "Bandwidth and multiply-adds of this machine, measured now."},
    {"assembly", report_assembly, METH_O, "The assembly of a kernel's LLVM text."},
    {NULL, NULL, 0, NULL}};

int mg_report_init(PyObject *module) { return PyModule_AddFunctions(module, report_methods); }
