/* The border between Python tensors and a plan.  See the header.  Hot: a call of a small
 * plan allocates nothing here. */
#include "entry/launch/plan_call.h"
#include <stdlib.h>
#include <string.h>
#include "host/python/pyobject.h"
#include "host/torch/tensor_facts.h"
#include "host/torch/tensor_wrap.h"
#include "runtime/plan/plan_priv.h"
#include "runtime/process/torch_abi.h"
#include "tuning.h"

enum {
  PLANRUN_STACK = 64, /* inputs or outputs kept on the C stack */
};

/* "IndexError: text" -> that exception; other failures are errors of ours. */
void mg_planrun_raise(MgRc rc, const char *text) {
  PyObject *type = rc == MG_UNSUP   ? PyExc_NotImplementedError
                   : rc == MG_NOMEM ? PyExc_MemoryError
                                    : PyExc_RuntimeError;
  if (rc == MG_PYERR && PyErr_Occurred()) return;
  if (rc == MG_RAISE) {
    static const struct {
      const char *name;
      PyObject **type;
    } known[] = {{"IndexError: ", &PyExc_IndexError},
                 {"ValueError: ", &PyExc_ValueError},
                 {"RuntimeError: ", &PyExc_RuntimeError},
                 {"ZeroDivisionError: ", &PyExc_ZeroDivisionError}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
      size_t n = strlen(known[i].name);
      if (strncmp(text, known[i].name, n)) continue;
      type = *known[i].type;
      text += n;
      break;
    }
  }
  PyErr_SetString(type, text);
}

static int planrun_bump_versions(const MgPlanInfo *info, PyObject *const *in) {
  for (int i = 0; i < info->nwritten; i++)
    if (mg_facts_count_write(in[info->written[i]])) return -1;
  return 0;
}

/* Python objects of the results. */
static int planrun_wrap(PyObject *const *in, MgTensor **out, const int *same, int n, PyObject **outs) {
  int bad = 0;
  for (int i = 0; i < n; i++) {
    outs[i] = NULL;
    if (same[i] >= 0) outs[i] = Py_NewRef(in[same[i]]);
    else if (out[i] && !(outs[i] = mg_tensor_wrap(out[i])))
      bad = -1; /* go on: every handle must be given back */
  }
  for (int i = 0; bad && i < n; i++) Py_CLEAR(outs[i]);
  return bad;
}

/* The result of a run that ended with an exception. */
static int planrun_failed(MgRc run, const MgPlanInfo *info) {
  if (info->nwritten) return -1;
  if (run == MG_BUG) return MG_RUN_FAILED;
  return run == MG_RAISE || run == MG_PYERR ? MG_RUN_RAISED : -1;
}

int mg_planrun_part(MgPlan *p, MgPlanCall **call, uint32_t until, PyObject *const *in, const int64_t *sizes,
                    PyObject **outs) {
  MgTensor *in_stack[PLANRUN_STACK], **t = in_stack, *out_stack[PLANRUN_STACK], **out = out_stack;
  int same_stack[PLANRUN_STACK], *same = same_stack, rc = -1;
  char err[400];
  MgPlanInfo info;
  mg_plan_info(p, &info);
  if (info.ninput > PLANRUN_STACK) t = mg_malloc(sizeof *t * (size_t)info.ninput);
  if (info.noutput > PLANRUN_STACK) {
    out = mg_malloc(sizeof *out * (size_t)info.noutput);
    same = mg_malloc(sizeof *same * (size_t)info.noutput);
  }
  if (!t || !out || !same) {
    PyErr_NoMemory();
    goto done;
  }
  for (int i = 0; i < info.ninput; i++) t[i] = mg_abi_tensor(in[i]);
  bool is_long = info.bytes_moved > MG_TUNE_PLAN_GIL_BYTES || info.nextern > info.nhost;
  PyThreadState *gil = is_long ? PyEval_SaveThread() : NULL;
  MgRc run = mg_plan_part(p, call, until, t, sizes, out, same, err, sizeof err);
  if (gil) PyEval_RestoreThread(gil);
  if (run == MG_UNSUP) {
    rc = MG_RUN_SIZES;
  } else if (run != MG_OK) {
    mg_planrun_raise(run, err);
    rc = planrun_failed(run, &info);
  } else rc = planrun_wrap(in, out, same, info.noutput, outs);
  if (!rc && info.nwritten && !*call) rc = planrun_bump_versions(&info, in);
done:
  if (t != in_stack) free(t);
  if (out != out_stack) free(out);
  if (same != same_stack) free(same);
  return rc;
}

int mg_planrun(MgPlan *p, PyObject *const *in, const int64_t *sizes, PyObject **outs) {
  MgPlanCall *call = NULL;
  return mg_planrun_part(p, &call, UINT32_MAX, in, sizes, outs);
}

int mg_planrun_checked(MgPlan *p, PyObject *const *in, const int64_t *sizes, PyObject **outs,
                       int (*check)(void *arg, PyObject **outs), void *arg) {
  MgPlanCall *call = NULL;
  MgPlanInfo info;
  mg_plan_info(p, &info);
  int rc = mg_planrun_part(p, &call, mg_plan_early(p), in, sizes, outs);
  if (rc) return rc;
  PyObject **late = mg_calloc((size_t)info.noutput + 1, sizeof *late);
  if (!late) PyErr_NoMemory();
  rc = late ? check(arg, outs) : -1;
  if (rc && call) mg_plan_stop(p, call);
  else if (call) rc = mg_planrun_part(p, &call, UINT32_MAX, in, sizes, late);
  for (int i = 0; i < info.noutput; i++) {
    if (rc) Py_CLEAR(outs[i]);
    else if (!outs[i]) outs[i] = late[i];
  }
  free(late);
  return rc == MG_RUN_FAILED || rc == MG_RUN_SIZES ? -1 : rc; /* the first part went through */
}

int mg_planrun_autocast_off(PyObject **off) {
  static PyObject *any, *disable; /* torch._C._is_any_autocast_enabled, _DisableAutocast */
  *off = NULL;
  if (!disable) {
    PyObject *c = mg_import("torch._C");
    if (c) any = PyObject_GetAttrString(c, "_is_any_autocast_enabled");
    if (any) disable = PyObject_GetAttrString(c, "_DisableAutocast");
    Py_XDECREF(c);
    if (!disable) return -1;
  }
  PyObject *on = PyObject_CallNoArgs(any);
  Py_XDECREF(on);
  if (on == Py_False) return 0;
  if (on) *off = mg_context_enter(PyObject_CallNoArgs(disable));
  return *off ? 0 : -1;
}

int mg_planrun_autocast_back(PyObject *off) { return off ? mg_context_exit(off) : 0; }
