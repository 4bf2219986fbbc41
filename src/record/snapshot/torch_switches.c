/* See the header. */
#include "record/snapshot/torch_switches.h"
#include <string.h>
#include "entry/guard/guard_add.h"
#include "entry/run/snapshot_run.h"
#include "host/python/hook_mode.h"
#include "host/python/pyobject.h"
#include "record/core/capture.h"
#include "record/core/identity.h"
#include "record/core/recording.h"
#include "record/fx/fx.h"

typedef struct SettingRow {
  const char *setter; /* takes what the getters return */
  const char *getter[2];
} SettingRow;

static const SettingRow setting_rows[] = {
    {"_set_sdp_use_flash", {"_get_flash_sdp_enabled"}},
    {"_set_sdp_use_mem_efficient", {"_get_mem_efficient_sdp_enabled"}},
    {"_set_sdp_use_math", {"_get_math_sdp_enabled"}},
    {"_set_sdp_use_cudnn", {"_get_cudnn_sdp_enabled"}},
    {"_set_sdp_use_overrideable", {"_get_overrideable_sdp_enabled"}},
    {"_set_sdp_priority_order", {"_get_sdp_priority_order"}},
    {"_set_math_sdp_allow_fp16_bf16_reduction", {"_get_math_sdp_allow_fp16_bf16_reduction"}},
    {"_set_mkldnn_enabled", {"_get_mkldnn_enabled"}},
    {"_set_mkldnn_deterministic", {"_get_mkldnn_deterministic"}},
    {"_set_onednn_allow_tf32", {"_get_onednn_allow_tf32"}},
    {"_set_nnpack_enabled", {"_get_nnpack_enabled"}},
    {"_set_cudnn_enabled", {"_get_cudnn_enabled"}},
    {"_set_cudnn_benchmark", {"_get_cudnn_benchmark"}},
    {"_set_cudnn_deterministic", {"_get_cudnn_deterministic"}},
    {"_set_cudnn_allow_tf32", {"_get_cudnn_allow_tf32"}},
    {"_set_cublas_allow_tf32", {"_get_cublas_allow_tf32"}},
    {"_set_float32_matmul_precision", {"_get_float32_matmul_precision"}},
    {"_set_deterministic_algorithms",
     {"_get_deterministic_algorithms", "_get_deterministic_algorithms_warn_only"}},
    {"_set_deterministic_fill_uninitialized_memory", {"_get_deterministic_fill_uninitialized_memory"}},
    {"_set_default_dtype", {"get_default_dtype"}},
    {"_set_fwd_grad_enabled", {"_is_fwd_grad_enabled"}},
    {"_set_warnAlways", {"_get_warnAlways"}},
    {"set_int_max_str_digits", {"get_int_max_str_digits"}},
    {"_saved_tensors_hooks_disable", {"_saved_tensors_hooks_get_disabled_error_message"}},
    {"_saved_tensors_hooks_enable", {"_saved_tensors_hooks_get_disabled_error_message"}},
};
#define SETTING_ROWS (sizeof setting_rows / sizeof *setting_rows)

static PyObject *setting_c, *setting_autograd, *setting_sys,
    *setting_torch; /* torch._C, torch._C._autograd, sys, torch */

static int setting_init(void) {
  if (setting_torch) return 0;
  setting_c = mg_import("torch._C");
  setting_autograd = setting_c ? PyObject_GetAttrString(setting_c, "_autograd") : NULL;
  setting_sys = setting_autograd ? mg_import("sys") : NULL;
  setting_torch = setting_sys ? mg_import("torch") : NULL;
  return setting_torch ? 0 : -1;
}

static bool setting_is_torchs(const char *name) { return !strstr(name, "int_max_str"); }

static PyObject *setting_owner(const char *name) {
  if (!setting_is_torchs(name)) return setting_sys;
  if (!strncmp(name, "_saved", 6)) return setting_autograd;
  return *name == '_' ? setting_c : setting_torch;
}

static const char *setting_name(PyObject *f) {
  return PyCFunction_Check(f) ? ((PyCFunctionObject *)f)->m_ml->ml_name : "";
}

/* The value now: a tuple of what the getters return. */
static PyObject *setting_value(const SettingRow *row) {
  PyObject *v[2] = {NULL, NULL}, *t = NULL;
  for (int i = 0; i < 2 && row->getter[i]; i++)
    if (!(v[i] = PyObject_CallMethod(setting_owner(row->getter[i]), row->getter[i], NULL))) goto done;
  t = v[1] ? PyTuple_Pack(2, v[0], v[1]) : PyTuple_Pack(1, v[0]);
done:
  Py_XDECREF(v[0]);
  Py_XDECREF(v[1]);
  return t;
}

/* (setter, positional arguments, keyword arguments or None) that establish a value. */
static PyObject *setting_action(const SettingRow *row, PyObject *value) {
  const char *name = row->setter;
  PyObject *args = Py_NewRef(value), *kw = Py_NewRef(Py_None), *f, *r = NULL;
  if (!strncmp(name, "_saved", 6)) {
    bool on = PyTuple_GET_ITEM(value, 0) == Py_None;
    name = on ? "_saved_tensors_hooks_enable" : "_saved_tensors_hooks_disable";
    if (on) Py_SETREF(args, PyTuple_New(0));
  } else if (row->getter[1]) {
    Py_SETREF(args, PyTuple_GetSlice(value, 0, 1));
    Py_SETREF(kw, Py_BuildValue("{sO}", "warn_only", PyTuple_GET_ITEM(value, 1)));
  }
  f = args && kw ? PyObject_GetAttrString(setting_owner(name), name) : NULL;
  if (f) r = PyTuple_Pack(3, f, args, kw);
  Py_XDECREF(f);
  Py_XDECREF(args);
  Py_XDECREF(kw);
  return r;
}

/* Keeps the value from before the first change; r->settings maps row number to it. */
static int setting_keep(MgRec *r, size_t row) {
  if (!r->settings && !(r->settings = PyDict_New())) return -1;
  PyObject *key = PyLong_FromSize_t(row), *was = NULL;
  int rc = key ? PyDict_Contains(r->settings, key) : -1;
  if (!rc) rc = (was = setting_value(&setting_rows[row])) ? PyDict_SetItem(r->settings, key, was) : -1;
  Py_XDECREF(key);
  Py_XDECREF(was);
  return rc < 0 ? -1 : 0;
}

/* The call as a node of the FX graph, when one is made. */
static int setting_show(PyObject *f, PyObject *const *args, size_t nargsf, PyObject *kwnames) {
  MgCapture *cap = mg_rec->cap;
  if (!mg_rec->want_fx || cap->quiet || mg_fx_is_aten(cap)) return 0;
  Py_ssize_t n = PyVectorcall_NARGS(nargsf), nkw = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
  PyObject *pos = PyTuple_New(n), *kw = PyDict_New();
  int rc = pos && kw ? 0 : -1;
  for (Py_ssize_t i = 0; !rc && i < n; i++) PyTuple_SET_ITEM(pos, i, Py_NewRef(args[i]));
  for (Py_ssize_t i = 0; !rc && i < nkw; i++)
    rc = PyDict_SetItem(kw, PyTuple_GET_ITEM(kwnames, i), args[n + i]);
  MgPause pause = mg_rec_pause();
  if (!rc) rc = mg_fx_call(cap, f, pos, kw) ? 0 : -1;
  mg_rec_resume(pause);
  Py_XDECREF(pos);
  Py_XDECREF(kw);
  return rc;
}

PyObject *mg_setting_call(PyObject *f, PyObject *const *args, size_t nargsf, PyObject *kwnames) {
  const char *name = setting_name(f);
  if (setting_init()) return NULL;
  size_t i = 0;
  while (i < SETTING_ROWS && strcmp(setting_rows[i].setter, name)) i++;
  if (i == SETTING_ROWS) return mg_rec_break(BK_torch_state, "call of %s", name);
  /* Both names of a pair of switches share the first one's row. */
  while (i && !strcmp(setting_rows[i].getter[0], setting_rows[i - 1].getter[0])) i--;
  if (setting_keep(mg_rec, i) || (setting_is_torchs(name) && setting_show(f, args, nargsf, kwnames)))
    return NULL;
  return PyObject_Vectorcall(f, args, nargsf, kwnames);
}

/* What an answer was before the recording: the program may change the list it gets, and may have made some of
 * the classes in it.  New. */
static PyObject *setting_before(PyObject *v) {
  if (!PyList_CheckExact(v)) return Py_NewRef(v);
  PyObject *kept = PyList_New(0);
  for (Py_ssize_t i = 0; kept && i < PyList_GET_SIZE(v); i++)
    if (!mg_is_fresh(PyList_GET_ITEM(v, i)) && PyList_Append(kept, PyList_GET_ITEM(v, i))) Py_CLEAR(kept);
  return kept;
}

PyObject *mg_setting_read(PyObject *f, PyObject *const *args, size_t nargsf, PyObject *kwnames) {
  const char *name = setting_name(f);
  PyObject *v = PyObject_Vectorcall(f, args, nargsf, kwnames), *key = NULL;
  if (!v || PyVectorcall_NARGS(nargsf) || kwnames) return v;
  if (PyCFunction_Check(f) && PyCFunction_GET_SELF(f) && mg_is_fresh(PyCFunction_GET_SELF(f)))
    return v; /* a class made here */
  for (size_t i = 0; mg_rec->settings && i < SETTING_ROWS; i++) {
    bool mine = !strcmp(setting_rows[i].getter[0], name) ||
                (setting_rows[i].getter[1] && !strcmp(setting_rows[i].getter[1], name));
    if (!mine || !(key = PyLong_FromSize_t(i))) continue;
    int set = PyDict_Contains(mg_rec->settings, key);
    Py_DECREF(key);
    if (set) return set < 0 ? Py_DECREF(v), NULL : v; /* the segment's own value */
  }
  PyObject *kept = setting_before(v);
  if (kept) mg_guard_pinned(mg_rec->guards, GK_answer, f, kept);
  else Py_CLEAR(v);
  Py_XDECREF(kept);
  return v;
}

PyObject *mg_setting_dual(PyObject *f, PyObject *const *args, size_t nargsf, PyObject *kwnames, int how) {
  PyObject *v = setting_show(f, args, nargsf, kwnames) ? NULL : PyObject_Vectorcall(f, args, nargsf, kwnames);
  if (v) mg_rec->dual_levels += how;
  return v;
}

PyObject *mg_setting_context(PyObject *f, PyObject *ctx, PyObject *const *args, size_t nargsf, bool enter) {
  MgRec *r = mg_rec;
  const char *dot = strrchr(Py_TYPE(ctx)->tp_name, '.'), *name = dot ? dot + 1 : Py_TYPE(ctx)->tp_name;
  if (strcmp(name, "_InferenceMode") && strcmp(name, "device"))
    return mg_rec_break(BK_torch_state, "%.100s is entered", name);
  Py_ssize_t n = r->entered ? PyList_GET_SIZE(r->entered) : 0;
  if (!enter && (!n || PyList_GET_ITEM(r->entered, n - 1) != ctx))
    return mg_rec_break(BK_torch_state, "%.100s ends that was entered before", name);
  if (enter && !r->entered && !(r->entered = PyList_New(0))) return NULL;
  PyObject *v = PyObject_Vectorcall(f, args, nargsf, NULL);
  int rc = !v ? -1 : enter ? PyList_Append(r->entered, ctx) : PyList_SetSlice(r->entered, n - 1, n, NULL);
  if (rc) Py_CLEAR(v);
  return v;
}

static void setting_leave_contexts(MgRec *r) {
  for (Py_ssize_t i = r->entered ? PyList_GET_SIZE(r->entered) : 0; i-- > 0;) {
    PyObject *x =
        PyObject_CallMethod(PyList_GET_ITEM(r->entered, i), "__exit__", "OOO", Py_None, Py_None, Py_None);
    if (!x) PyErr_WriteUnraisable(NULL);
    Py_XDECREF(x);
  }
  Py_CLEAR(r->entered);
}

int mg_setting_changes(MgRec *r, PyObject **list) {
  PyObject *key, *was;
  Py_ssize_t pos = 0;
  *list = NULL;
  if (r->entered && PyList_GET_SIZE(r->entered))
    return mg_rec_break(BK_torch_state, "a context of torch stays entered"), -1;
  if (r->dual_levels)
    return mg_rec_break(BK_torch_state, "a level of forward-mode differentiation stays open"), -1;
  while (r->settings && PyDict_Next(r->settings, &pos, &key, &was)) {
    const SettingRow *row = &setting_rows[PyLong_AsSize_t(key)];
    PyObject *now = setting_value(row), *action = NULL;
    int same = now ? PyObject_RichCompareBool(now, was, Py_EQ) : -1, rc = same < 0 ? -1 : 0;
    if (!same) {
      if (!*list) *list = PyList_New(0);
      action = *list ? setting_action(row, now) : NULL;
      rc = action ? PyList_Append(*list, action) : -1;
    }
    Py_XDECREF(now);
    Py_XDECREF(action);
    if (rc) {
      Py_CLEAR(*list);
      return -1;
    }
  }
  return 0;
}

void mg_setting_undo(MgRec *r) {
  PyObject *key, *was, *t, *v, *tb;
  Py_ssize_t pos = 0;
  PyErr_Fetch(&t, &v, &tb);
  setting_leave_contexts(r);
  for (; r->dual_levels > 0; r->dual_levels--) {
    PyObject *exit = PyObject_GetAttrString(setting_init() ? Py_None : setting_c, "_exit_dual_level");
    PyObject *level = PyLong_FromLong(r->dual_levels - 1), *args = level ? PyTuple_Pack(1, level) : NULL;
    PyObject *x = exit && args ? PyObject_CallObject(exit, args) : NULL;
    Py_XDECREF(exit);
    Py_XDECREF(level);
    Py_XDECREF(args);
    Py_XDECREF(x);
    PyErr_Clear(); /* the level has ended already */
  }
  while (r->settings && PyDict_Next(r->settings, &pos, &key, &was)) {
    PyObject *action = setting_action(&setting_rows[PyLong_AsSize_t(key)], was);
    if (!action || mg_setting_apply(action)) PyErr_WriteUnraisable(NULL);
    Py_XDECREF(action);
  }
  Py_CLEAR(r->settings);
  PyErr_Restore(t, v, tb);
}
