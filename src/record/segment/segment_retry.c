/* What an attempt that failed denies to those after it.
 * In: the rows of retries.def that a recording has failed.  Out: Segment.denied, and what MgBucket keeps of
 * it. The order in which rows are looked at is the picture in retries.def. */
#include "record/segment/segment_parts.h"
#include "base/log.h"
#include "entry/guard/tensor_contents.h"
#include "entry/run/entry_cache.h"
#include "host/python/code_info.h"
#include "record/core/capture.h"
#include "record/object/older_iterators.h"
#include "tuning.h"

static long retry_count[RETRY__COUNT]; /* how often each row fired, for tests */

/* Numbers that a segment has changed are known as such that change. */
static void retry_learn(Segment *s, const MgRec *r) {
  PyObject *known = s->info->dyn ? s->info->dyn : (s->info->dyn = PySet_New(NULL));
  PyObject *done = known ? PyObject_CallMethod(known, "update", "O", r->changed) : NULL;
  if (!done) PyErr_Clear(); /* they are constants as before */
  Py_XDECREF(done);
}

static void retry_deny(Segment *s, const MgRec *r, MgRetryKind k) {
  retry_count[k]++;
  s->denied |= 1u << k;
  if (k == RETRY_numbers) retry_learn(s, r);
  const MgRetryRow *row = &mg_retry_row[k];
  mg_log(MG_LOG_plan_frame, "retry %s: %s%s%s; from here on %s", row->name, row->failed, r->abort ? ": " : "",
         r->abort ? r->reason : "", row->denied);
  if (k == RETRY_sizes)
    mg_log(MG_LOG_recompiles, "sizes are constants from here on: %s", *r->reason ? r->reason : "autograd");
}

bool mg_segment_retry_take(Segment *s, const MgRec *r, MgRetryWhen when) {
  bool any = false;
  for (int k = 0; k < RETRY__COUNT; k++) {
    if (mg_retry_row[k].when != when || !mg_retry_failed(r, (MgRetryKind)k)) continue;
    retry_deny(s, r, (MgRetryKind)k);
    any = true;
  }
  return any;
}

/* Failures that show in where the recording ended. */
static void retry_see_end(const Segment *s, MgRec *r) {
  bool raised = r->abort && r->code == BK_exception && mg_symsize_inputs(&r->cap->sizes);
  bool asked = r->abort && r->code == BK_data_dependent && r->cap->sizes.value_asked;
  if (raised || asked) mg_retry_fail(r, RETRY_sizes);
  if (!s->level && mg_iterator_unfinished(r, s->v.slot, mg_pyframe_stacktop(s->frame[0].d->f)))
    mg_retry_fail(r, RETRY_unroll);
}

bool mg_segment_retry_next(Segment *s, MgRec *r) {
  retry_see_end(s, r);
  for (int k = 0; k < RETRY__COUNT; k++) {
    bool open = mg_retry_row[k].when == RETRY_WHEN_next && !mg_retry_in(s->denied, (MgRetryKind)k);
    if (!open || !mg_retry_failed(r, (MgRetryKind)k)) continue;
    retry_deny(s, r, (MgRetryKind)k);
    return true;
  }
  return false;
}

void mg_segment_retry_contents(Segment *s, MgBucket *b, const MgEntry *e) {
  uint32_t n = mg_contents_guarded(e->guards);
  if (n) b->contents += n > 1 ? 2 : 1;
  if (!n || b->contents < MG_TUNE_CONTENT_ENTRIES || s->cfg->fullgraph) return;
  retry_count[RETRY_contents]++;
  s->denied |= 1u << RETRY_contents;
  mg_log(MG_LOG_recompiles, "numbers of tensors are not guarded from here on");
}

uint32_t mg_segment_retry_from_kept(uint8_t kept) {
  uint32_t denied = 0;
  for (int k = 0; k < RETRY__COUNT; k++)
    if (mg_retry_row[k].kept & kept) denied |= 1u << k;
  return denied;
}

uint8_t mg_segment_retry_to_kept(uint32_t denied) {
  uint8_t kept = 0;
  for (int k = 0; k < RETRY__COUNT; k++)
    if (mg_retry_in(denied, (MgRetryKind)k)) kept |= mg_retry_row[k].kept;
  return kept;
}

static PyObject *retry_counts(PyObject *self, PyObject *unused) {
  PyObject *all = PyDict_New();
  for (int k = 0; all && k < RETRY__COUNT; k++) {
    PyObject *n = PyLong_FromLong(retry_count[k]);
    if (!n || PyDict_SetItemString(all, mg_retry_row[k].name, n)) Py_CLEAR(all);
    Py_XDECREF(n);
  }
  return all;
}

static PyMethodDef retry_methods[] = {{"retries", retry_counts, METH_NOARGS,
                                       "How often each row of retries.def fired in this process (tests)."},
                                      {NULL, NULL, 0, NULL}};

int mg_segment_retry_init(PyObject *module) { return PyModule_AddFunctions(module, retry_methods); }
