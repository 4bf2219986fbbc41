/* Everything that depends on the layout of CPython's frames, generators and thread states (3.11 to 3.13). */
#define Py_BUILD_CORE 1
#include "host/python/pyframe.h"
#include "base/assert.h"
#include "host/python/decode.h"
#include <frameobject.h>
#include <internal/pycore_ceval.h>
#include <internal/pycore_code.h>
#include <internal/pycore_frame.h>
#include <internal/pycore_genobject.h>
#include <internal/pycore_interp.h>
#include <internal/pycore_pyerrors.h>
#include <internal/pycore_pystate.h>
#include <internal/pycore_runtime.h>
#if PY_VERSION_HEX >= 0x030D0000
#include <internal/pycore_dict.h>
#include <internal/pycore_setobject.h>
#endif
#include <stddef.h>
#include <string.h>

#define PY312 (PY_VERSION_HEX >= 0x030C0000)
#define PY313 (PY_VERSION_HEX >= 0x030D0000)
#if PY_VERSION_HEX < 0x030B0000 || PY_VERSION_HEX >= 0x030E0000
#error "host/python/pyframe.c knows CPython 3.11 to 3.13"
#endif
#ifdef Py_GIL_DISABLED
#error "magneto relies on the GIL: use a build of CPython that has one"
#endif

PyCodeObject *mg_pyframe_code(MgFrame *f) {
#if PY313
  return _PyFrame_GetCode(f);
#else
  return f->f_code;
#endif
}

void mg_pyframe_view(MgFrame *f, MgFrameView *v) {
  v->slot = f->localsplus;
  v->code = mg_pyframe_code(f);
#if PY312
  v->func = f->f_funcobj;
#else
  v->func = (PyObject *)f->f_func;
#endif
  v->globals = f->f_globals;
  v->builtins = f->f_builtins;
  v->locals = f->f_locals;
}

/* Until 3.12 a frame keeps the unit before the next instruction, which is that of the current one.  From 3.13
 * on it keeps the unit of the current instruction while that runs, and that of the next one in between. */
int mg_pyframe_at(MgFrame *f) { return _PyInterpreterFrame_LASTI(f); }
void mg_pyframe_set_at(MgFrame *f, int unit) {
#if PY313
  f->instr_ptr = _PyCode_CODE(mg_pyframe_code(f)) + unit;
#else
  f->prev_instr = _PyCode_CODE(mg_pyframe_code(f)) + unit;
#endif
}
int mg_pyframe_next(MgFrame *f) { return mg_pyframe_at(f) + !PY313; }
void mg_pyframe_set_next(MgFrame *f, int unit) { mg_pyframe_set_at(f, unit - !PY313); }
int mg_pyframe_stacktop(MgFrame *f) { return f->stacktop; }
void mg_pyframe_set_stacktop(MgFrame *f, int n) { f->stacktop = n; }

/* A position that no handler covers.  A function's frame there gets no traceback entry either. */
static void pyframe_set_outside(MgFrame *f) { mg_pyframe_set_at(f, -1); }

#if PY313
static MgFrame *pyframe_current(PyThreadState *ts) { return ts->current_frame; }

void mg_pyframe_link(PyThreadState *ts, MgFrame *f, MgFrameLink *l) {
  MG_ASSERT(ts->current_frame != f, "a frame is linked twice");
  l->word[0] = f;
  f->previous = ts->current_frame;
  ts->current_frame = f;
}

void mg_pyframe_unlink(PyThreadState *ts, MgFrameLink *l) {
  MgFrame *f = l->word[0];
  MG_ASSERT(ts->current_frame == f, "frames are unlinked in another order than they were linked");
  ts->current_frame = f->previous;
  f->previous = NULL;
}
#else
_Static_assert(sizeof(_PyCFrame) <= sizeof(MgFrameLink), "MgFrameLink has no room for _PyCFrame");
static MgFrame *pyframe_current(PyThreadState *ts) { return ts->cframe->current_frame; }

void mg_pyframe_link(PyThreadState *ts, MgFrame *f, MgFrameLink *l) {
  _PyCFrame *c = (_PyCFrame *)l, *prev = ts->cframe;
  MG_ASSERT(prev->current_frame != f, "a frame is linked twice");
#if !PY312
  c->use_tracing = prev->use_tracing;
  f->is_entry = true;
#endif
  c->previous = prev;
  f->previous = prev->current_frame;
  c->current_frame = f;
  ts->cframe = c;
}

void mg_pyframe_unlink(PyThreadState *ts, MgFrameLink *l) {
  _PyCFrame *c = (_PyCFrame *)l;
  MG_ASSERT(ts->cframe == c, "frames are unlinked in another order than they were linked");
  ts->cframe = c->previous;
#if !PY312
  ts->cframe->use_tracing = c->use_tracing; /* settrace may have been called meanwhile */
#endif
}
#endif

bool mg_pyframe_near_limit(PyThreadState *ts) {
  enum { NEED = 200 };
#if PY312
  return ts->py_recursion_remaining < NEED;
#else
  return ts->recursion_remaining < NEED;
#endif
}

int mg_pyframe_enter_call(PyThreadState *ts) {
#if PY312
  /* Py_EnterRecursiveCall counts C frames only, up to a limit that ours would overflow the stack before. */
  if (ts->py_recursion_remaining <= 1 && !ts->recursion_headroom) {
    ts->recursion_headroom++;
    PyErr_SetString(PyExc_RecursionError, "maximum recursion depth exceeded");
    ts->recursion_headroom--;
    return -1;
  }
  if (Py_EnterRecursiveCall(" while calling a Python object")) return -1;
  ts->py_recursion_remaining--;
  return 0;
#else
  return Py_EnterRecursiveCall(" while calling a Python object");
#endif
}

void mg_pyframe_leave_call(PyThreadState *ts) {
#if PY312
  ts->py_recursion_remaining++;
#endif
  Py_LeaveRecursiveCall();
}

PyObject *mg_pyframe_run(PyThreadState *ts, MgFrame *f, int throwflag) {
  MG_ASSERT(pyframe_current(ts) != f, "a linked frame is given to CPython");
  return _PyEval_EvalFrameDefault(ts, f, throwflag);
}

PyObject *mg_pyframe_run_at(PyThreadState *ts, MgFrame *f, int unit) {
  MG_ASSERT(pyframe_current(ts) != f, "a linked frame is given to CPython");
  mg_pyframe_set_next(f, unit);
  return _PyEval_EvalFrameDefault(ts, f, 0);
}

#if PY313
/* 3.13 takes the line of an exception from the position, and its handler from the unit before.  Where these
 * are not about the same instruction, the exception is handled here as CPython would: in the frame by h. */
static PyObject *pyframe_raise_here(PyThreadState *ts, MgFrame *f, const MgHandler *h) {
  MgFrameLink link;
  PyObject *at = h && h->lasti ? PyLong_FromLong(mg_pyframe_at(f)) : NULL;
  mg_pyframe_link(ts, f, &link);
  mg_pyframe_traceback(ts);
  mg_pyframe_unlink(ts, &link);
  if (!h || (h->lasti && !at)) return mg_pyframe_drop(ts, f);
  int height = mg_pyframe_code(f)->co_nlocalsplus + h->depth;
  while (f->stacktop > height) Py_XDECREF(_PyFrame_StackPop(f));
  if (at) _PyFrame_StackPush(f, at);
  _PyFrame_StackPush(f, mg_pyframe_take_exception());
  return mg_pyframe_run_at(ts, f, h->target);
}
#endif

PyObject *mg_pyframe_raise(PyThreadState *ts, MgFrame *f, const MgCode *code) {
#if PY313
  int at = mg_pyframe_at(f);
  const MgHandler *h = mg_decode_handler(code, at);
  if (h != mg_decode_handler(code, at - 1)) return pyframe_raise_here(ts, f, h);
#endif
  return mg_pyframe_run(ts, f, 1);
}

PyObject *mg_pyframe_copy_int(PyObject *v) {
  size_t bits = _PyLong_NumBits(v), n = bits ? (bits - 1) / PyLong_SHIFT + 1 : 0;
  PyLongObject *c = _PyLong_New((Py_ssize_t)n);
  /* Behind the header: how many digits there are and the sign, then the digits. */
  if (c)
    memcpy((char *)c + sizeof(PyObject), (char *)v + sizeof(PyObject),
           sizeof(Py_ssize_t) + (n ? n : 1) * sizeof(digit));
  return (PyObject *)c;
}

int mg_pyframe_leftover(MgFrame *f, PyObject *o) {
  int n = 0;
#if !PY312
  for (int i = 0; i < mg_pyframe_code(f)->co_nlocalsplus; i++) n += f->localsplus[i] == o;
#endif
  return n;
}

PyObject *mg_pyframe_drop(PyThreadState *ts, MgFrame *f) {
  pyframe_set_outside(f);
  return _PyEval_EvalFrameDefault(ts, f, 1);
}

PyObject *mg_pyframe_func(MgFrame *f) {
  MgFrameView v;
  mg_pyframe_view(f, &v);
  return v.func;
}

PyObject *mg_pyframe_generator(MgFrame *f) {
  return f->owner == FRAME_OWNED_BY_GENERATOR ? (PyObject *)_PyFrame_GetGenerator(f) : NULL;
}

PyObject *mg_pyframe_unresume(PyThreadState *ts, MgFrame *f, int yield_unit) {
  PyObject **sent = &f->localsplus[f->stacktop - 1]; /* pushed by send() */
  if (yield_unit >= 0) {
    Py_SETREF(*sent, Py_NewRef(Py_None));
    return mg_pyframe_run_at(ts, f, yield_unit);
  }
  PyGenObject *g = _PyFrame_GetGenerator(f);
  f->stacktop--;
  Py_DECREF(*sent);
  g->gi_frame_state = FRAME_CREATED;
#if PY312
  ts->exc_info = g->gi_exc_state.previous_item;
  g->gi_exc_state.previous_item = NULL;
#endif
  Py_RETURN_NONE;
}

static bool pyframe_is_suspended(const PyGenObject *g) {
#if PY313
  return FRAME_STATE_SUSPENDED(g->gi_frame_state);
#else
  return g->gi_frame_state == FRAME_SUSPENDED;
#endif
}

/* A generator at the yield of this unit. */
static void pyframe_suspend(PyGenObject *g, int unit) {
  MgFrame *f = (MgFrame *)g->gi_iframe;
  mg_pyframe_set_next(f, unit + 1);
  g->gi_frame_state = FRAME_SUSPENDED;
#if PY313
  if (_PyCode_CODE(mg_pyframe_code(f))[unit].op.arg) g->gi_frame_state = FRAME_SUSPENDED_YIELD_FROM;
#endif
}

MgFrame *mg_pyframe_suspended(PyObject *gen) {
  PyGenObject *g = (PyGenObject *)gen;
  return pyframe_is_suspended(g) ? (MgFrame *)g->gi_iframe : NULL;
}

MgFrame *mg_pyframe_paused(PyObject *gen, bool *started) {
  PyGenObject *g = (PyGenObject *)gen;
  if (g->gi_exc_state.exc_value && g->gi_exc_state.exc_value != Py_None) return NULL;
  *started = pyframe_is_suspended(g);
  return *started || g->gi_frame_state == FRAME_CREATED ? (MgFrame *)g->gi_iframe : NULL;
}

bool mg_pyframe_gen_finished(PyObject *gen) {
  return ((PyGenObject *)gen)->gi_frame_state >= FRAME_COMPLETED;
}

void mg_pyframe_fill_generator(PyObject *gen, PyObject *const *v, int n, int unit) {
  PyGenObject *g = (PyGenObject *)gen;
  MgFrame *f = (MgFrame *)g->gi_iframe;
  PyCodeObject *co = mg_pyframe_code(f);
  int first = f->stacktop;
  for (int i = 0; i < n; i++) {
    PyObject **slot = &f->localsplus[i];
    _PyLocals_Kind kind =
        i < co->co_nlocalsplus ? _PyLocals_GetKind(co->co_localspluskinds, i) : CO_FAST_LOCAL;
    if (unit < 0 && kind & CO_FAST_FREE) continue;
    if (unit < 0 && kind & CO_FAST_CELL && *slot && PyCell_Check(*slot)) PyCell_Set(*slot, v[i]);
    else if (i < first) Py_XSETREF(*slot, Py_XNewRef(v[i]));
    else *slot = Py_XNewRef(v[i]);
  }
  if (unit < 0) return;
  f->stacktop = n;
  pyframe_suspend(g, unit);
}

PyObject *mg_pyframe_call_blank(PyObject *func) {
  PyCodeObject *co = (PyCodeObject *)Py_NewRef(PyFunction_GET_CODE(func));
  int n = co->co_argcount + co->co_kwonlyargcount;
  PyObject *r = NULL, **args = PyMem_New(PyObject *, n + 1);
  PyObject *names =
      co->co_kwonlyargcount ? PyTuple_GetSlice(co->co_localsplusnames, co->co_argcount, n) : NULL;
  if (!args) PyErr_NoMemory();
  for (int i = 0; args && i < n; i++) args[i] = Py_None;
  if (!PyErr_Occurred()) r = PyObject_Vectorcall(func, args, (size_t)co->co_argcount, names);
  PyMem_Free(args);
  Py_XDECREF(names);
  Py_DECREF(co);
  return r;
}

bool mg_pyframe_unawaited(PyObject *gen) {
  return PyCoro_CheckExact(gen) && ((PyGenObject *)gen)->gi_frame_state == FRAME_CREATED;
}

void mg_pyframe_end_generator(PyObject *gen) {
  MgFrame *f = mg_pyframe_suspended(gen);
  if (f) {
    pyframe_set_outside(f);
    ((PyGenObject *)gen)->gi_frame_state = FRAME_SUSPENDED; /* it closes nothing that it waits for */
  } else if (!mg_pyframe_unawaited(gen)) return;
  PyObject *r = PyObject_CallMethod(gen, "close", NULL);
  if (!r) PyErr_Clear(); /* a generator of the recording: nobody waits for it */
  Py_XDECREF(r);
}

PyObject **mg_pyframe_exc_slot(PyThreadState *ts) { return &ts->exc_info->exc_value; }

PyObject *mg_pyframe_handled(PyThreadState *ts) {
  const _PyErr_StackItem *item = ts->exc_info;
  while (item && (!item->exc_value || item->exc_value == Py_None)) item = item->previous_item;
  return item ? item->exc_value : NULL;
}

PyObject *mg_pyframe_take_exception(void) {
  PyObject *type, *exc, *tb;
  PyErr_Fetch(&type, &exc, &tb);
  PyErr_NormalizeException(&type, &exc, &tb);
  PyException_SetTraceback(exc, tb ? tb : Py_None);
  Py_XDECREF(type);
  Py_XDECREF(tb);
  return exc;
}

PyObject *mg_pyframe_bare(PyCodeObject *code, PyObject *globals, long line) {
  PyFrameObject *f = PyFrame_New(PyThreadState_Get(), code, globals, NULL);
  if (!f) return NULL;
  f->f_lineno = (int)line;
  PyObject **free_vars = f->f_frame->localsplus + (code->co_nlocalsplus - code->co_nfreevars);
  for (int i = 0; i < code->co_nfreevars; i++) /* CPython looks into their cells */
    if (!free_vars[i] && !(free_vars[i] = PyCell_New(NULL))) return Py_DECREF(f), NULL;
  return (PyObject *)f;
}

void mg_pyframe_traceback(PyThreadState *ts) {
  MgFrame *f = pyframe_current(ts);
  if (_PyFrame_IsIncomplete(f)) return;
  PyFrameObject *fo = PyEval_GetFrame(); /* the frame object of f, made when needed */
  if (fo) PyTraceBack_Here(fo);
}

/* torch.profiler(with_stack=True) listens to Python's calls in C: it is to see
 * what runs, not to decide it. */
static bool pyframe_profiled_by_torch(const PyThreadState *ts) {
  return ts->c_profileobj && !ts->c_tracefunc && !strcmp(Py_TYPE(ts->c_profileobj)->tp_name, "TraceContext");
}

bool mg_pyframe_traced(PyThreadState *ts) {
  if (ts->tracing) return true;
#if PY312
  bool ours = pyframe_profiled_by_torch(ts);
  const uint8_t known = ours ? 1 << 6 : 0; /* PY_MONITORING_SYS_PROFILE_ID */
  if (ts->c_tracefunc || (ts->c_profilefunc && !ours)) return true;
  const uint8_t *tools = (const uint8_t *)ts->interp->monitors.tools;
  for (size_t i = 0; i < sizeof ts->interp->monitors.tools; i++)
    if (tools[i] & ~known) return true;
  /* A debugger's and a coverage tool's events may be those of single code objects,
   * which are not known here. */
  return ts->interp->monitoring_tool_names[0] || ts->interp->monitoring_tool_names[1];
#else
  return ts->cframe->use_tracing != 0 && !pyframe_profiled_by_torch(ts);
#endif
}

bool mg_pyframe_finalizing(void) {
#if PY313
  return Py_IsFinalizing();
#else
  return _Py_IsFinalizing();
#endif
}

#if PY313
void mg_pyframe_give_way(PyThreadState *ts) {
  if (!_Py_eval_breaker_bit_is_set(ts, _PY_GIL_DROP_REQUEST_BIT)) return;
  Py_BEGIN_ALLOW_THREADS Py_END_ALLOW_THREADS
}

int mg_pyframe_pending(PyThreadState *ts) {
  return _Py_eval_breaker_bit_is_set(ts, _PY_EVAL_EVENTS_MASK) ? _Py_HandlePending(ts) : 0;
}

static bool pyframe_signal_waits(void) { return _Py_atomic_load_int(&_PyRuntime.signals.is_tripped); }

/* Has CPython's loop look at what came while the main thread did not handle anything. */
static void pyframe_look(PyThreadState *ts) {
  if (pyframe_signal_waits()) _Py_set_eval_breaker_bit(ts, _PY_SIGNALS_PENDING_BIT);
  bool calls = _Py_atomic_load_int32_relaxed(&_PyRuntime.ceval.pending_mainthread.npending) ||
               _Py_atomic_load_int32_relaxed(&ts->interp->ceval.pending.npending);
  if (calls) _Py_set_eval_breaker_bit(ts, _PY_CALLS_TO_DO_BIT);
}
#else
void mg_pyframe_give_way(PyThreadState *ts) {
  if (!_Py_atomic_load_relaxed(&ts->interp->ceval.gil_drop_request)) return;
  Py_BEGIN_ALLOW_THREADS Py_END_ALLOW_THREADS
}

int mg_pyframe_pending(PyThreadState *ts) {
  struct _ceval_state *c = &ts->interp->ceval;
  if (!_Py_atomic_load_relaxed(&c->eval_breaker)) return 0;
  if (PyErr_CheckSignals() || Py_MakePendingCalls()) return -1;
  mg_pyframe_give_way(ts);
  PyObject *exc = ts->async_exc;
  if (!exc) return 0;
  ts->async_exc = NULL;
  c->pending.async_exc = 0;
  PyErr_SetNone(exc);
  Py_DECREF(exc);
  return -1;
}

static bool pyframe_signal_waits(void) { return _Py_atomic_load_relaxed(&_PyRuntime.ceval.signals_pending); }

/* Has CPython's loop look at what came while the main thread did not handle anything. */
static void pyframe_look(PyThreadState *ts) {
  bool calls = _Py_atomic_load_relaxed(&ts->interp->ceval.pending.calls_to_do);
#if PY312
  calls |= _Py_atomic_load_relaxed(&_PyRuntime.ceval.pending_mainthread.calls_to_do);
#endif
  if (calls || pyframe_signal_waits()) _PyEval_SignalReceived(ts->interp);
}
#endif

static _Thread_local bool pyframe_held; /* this is the main thread, and handlers of signals wait */

bool mg_pyframe_hold_signals(PyThreadState *ts, bool hold) {
  bool before = pyframe_held;
  if (hold && !pyframe_held && _PyRuntime.main_thread == PyThread_get_thread_ident()) {
    _PyRuntime.main_thread = 0; /* handlers run in the main thread only */
    pyframe_held = true;
  } else if (!hold && pyframe_held) {
    _PyRuntime.main_thread = PyThread_get_thread_ident();
    pyframe_held = false;
    pyframe_look(ts);
  }
  return before;
}

bool mg_pyframe_waits(void) { return pyframe_held && pyframe_signal_waits(); }

MgEvalFunc mg_pyframe_eval_func(void) {
  return _PyInterpreterState_GetEvalFrameFunc(PyInterpreterState_Get());
}

void mg_pyframe_set_eval_func(MgEvalFunc fn) {
  _PyInterpreterState_SetEvalFrameFunc(PyInterpreterState_Get(), fn ? fn : _PyEval_EvalFrameDefault);
}

static Py_ssize_t pyframe_extra_index = -1;
#if PY312
#define EXTRA_INDEX PyUnstable_Eval_RequestCodeExtraIndex
#define EXTRA_GET PyUnstable_Code_GetExtra
#define EXTRA_SET PyUnstable_Code_SetExtra
#else
#define EXTRA_INDEX _PyEval_RequestCodeExtraIndex
#define EXTRA_GET _PyCode_GetExtra
#define EXTRA_SET _PyCode_SetExtra
#endif

int mg_pyframe_extra_init(void (*destroy)(void *)) {
  if (pyframe_extra_index < 0) pyframe_extra_index = EXTRA_INDEX(destroy);
  if (pyframe_extra_index >= 0) return 0;
  PyErr_SetString(PyExc_ImportError, "no room for data of magneto in code objects");
  return -1;
}

void *mg_pyframe_extra(PyCodeObject *co) {
  void *p = NULL;
  if (EXTRA_GET((PyObject *)co, pyframe_extra_index, &p))
    PyErr_Clear(); /* no slot for extras: nothing is kept */
  return p;
}

int mg_pyframe_set_extra(PyCodeObject *co, void *p) {
  return EXTRA_SET((PyObject *)co, pyframe_extra_index, p);
}

PyObject *mg_pyframe_join(PyObject *const *pieces, int n) {
  PyObject *sep = PyUnicode_New(0, 0);
  if (!sep) return NULL;
  PyObject *r = _PyUnicode_JoinArray(sep, pieces, n);
  Py_DECREF(sep);
  return r;
}

int mg_pyframe_dict_merge(PyObject *d, PyObject *other) { return _PyDict_MergeEx(d, other, 2); }

PyObject *mg_pyframe_type_lookup(PyTypeObject *t, PyObject *name) { return _PyType_Lookup(t, name); }

int mg_pyframe_stop_value(PyObject **v) { return _PyGen_FetchStopIterationValue(v); }

bool mg_pyframe_next_in_set(PyObject *set, Py_ssize_t *pos, PyObject **v, Py_hash_t *hash) {
  return _PySet_NextEntry(set, pos, v, hash);
}

bool mg_pyframe_only_strings(PyObject *dict) {
#if PY313
  if (((PyDictObject *)dict)->ma_keys->dk_kind != DICT_KEYS_GENERAL) return true;
  PyObject *key, *value;
  for (Py_ssize_t pos = 0; PyDict_Next(dict, &pos, &key, &value);)
    if (!PyUnicode_Check(key)) return false;
  return true;
#else
  return _PyDict_HasOnlyStringKeys(dict);
#endif
}

int mg_pyframe_detach_values(PyObject *dict) {
#if PY313
  if (!((PyDictObject *)dict)->ma_values) return 0;
  /* Taking the last item out copies the values of all; it goes back to its place. */
  bool empty = !PyDict_GET_SIZE(dict);
  PyObject *filler = empty ? PyUnicode_InternFromString("__dict__") : NULL;
  int rc = empty && (!filler || PyDict_SetItem(dict, filler, Py_None)) ? -1 : 0;
  PyObject *last = rc ? NULL : PyObject_CallMethod(dict, "popitem", NULL);
  if (!last || (!empty && PyDict_SetItem(dict, PyTuple_GET_ITEM(last, 0), PyTuple_GET_ITEM(last, 1))))
    rc = -1;
  if (rc) PyErr_Clear(); /* the caller says so */
  Py_XDECREF(last);
  Py_XDECREF(filler);
  return rc;
#else
  (void)dict;
  return 0;
#endif
}
