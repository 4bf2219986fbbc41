/* Everything that depends on the layout of CPython's frames, generators and thread states (3.11 to 3.14). */
#define Py_BUILD_CORE 1
#include "host/python/pyframe.h"
#include "base/assert.h"
#include "host/python/code_info.h"
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
#if PY_VERSION_HEX >= 0x030E0000
#include <internal/pycore_interpframe.h>
#include <internal/pycore_interpolation.h>
#include <internal/pycore_stackref.h>
#include <internal/pycore_template.h>
#include <internal/pycore_typeobject.h>
#include <internal/pycore_unicodeobject.h>
#endif
#include <stddef.h>
#include <string.h>

#define PY312 (PY_VERSION_HEX >= 0x030C0000)
#define PY313 (PY_VERSION_HEX >= 0x030D0000)
#define PY314 (PY_VERSION_HEX >= 0x030E0000)
#if PY_VERSION_HEX < 0x030B0000 || PY_VERSION_HEX >= 0x030F0000
#error "host/python/pyframe.c knows CPython 3.11 to 3.14"
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

PyObject *mg_pyframe_func(MgFrame *f) {
#if PY314
  return PyStackRef_AsPyObjectBorrow(f->f_funcobj);
#elif PY312
  return f->f_funcobj;
#else
  return (PyObject *)f->f_func;
#endif
}

#if PY314
/* An open frame keeps the number of its slots in use instead of the stack pointer.  So CPython's garbage
 * collector sees nothing in it, and what its slots hold stays alive. */
static uintptr_t pyframe_mark(int n) { return (uintptr_t)(n + 1) << 1 | 1; }
static bool pyframe_is_open(const MgFrame *f) { return (uintptr_t)f->stackpointer & 1; }

int mg_pyframe_stacktop(MgFrame *f) {
  if (pyframe_is_open(f)) return (int)((uintptr_t)f->stackpointer >> 1) - 1;
  return (int)(f->stackpointer - f->localsplus);
}
void mg_pyframe_set_stacktop(MgFrame *f, int n) {
  MG_ASSERT(pyframe_is_open(f), "the stack of a frame is changed that is CPython's");
  f->stackpointer = (_PyStackRef *)pyframe_mark(n);
}

/* The plain form of what a slot holds, whose reference it takes. */
static PyObject *pyframe_plain(_PyStackRef r) {
  if (PyStackRef_IsNull(r)) return NULL;
  if (!PyStackRef_IsTaggedInt(r)) return PyStackRef_AsPyObjectSteal(r);
  PyObject *v = PyLong_FromSsize_t(PyStackRef_UntagInt(r)); /* the offset that a handler got */
  if (v) return v;
  PyErr_Clear(); /* out of memory: the traceback shows the function's first line instead */
  return PyLong_FromLong(0);
}

static _PyStackRef pyframe_tagged(PyObject *o) {
  return o ? PyStackRef_FromPyObjectSteal(o) : PyStackRef_NULL;
}
static void pyframe_make_plain(MgFrame *f, int n) {
  PyObject **slot = (PyObject **)f->localsplus;
  for (int i = 0; i < n; i++) slot[i] = pyframe_plain(f->localsplus[i]);
}

static void pyframe_open(MgFrame *f) {
  if (pyframe_is_open(f)) return;
  int n = mg_pyframe_stacktop(f);
  pyframe_make_plain(f, n);
  f->stackpointer = (_PyStackRef *)pyframe_mark(n);
}

/* A handler gets the offset of the instruction that raised, as a tagged int. */
static void pyframe_tag_offset(MgFrame *f, int unit, int i) {
  PyCodeObject *co = mg_pyframe_code(f);
  MgCodeInfo *info = mg_code_info(co);
  const MgCode *code = info ? mg_code_decoded(info, co) : NULL;
  if (!code) PyErr_Clear(); /* out of memory: taken for an offset, which it is nearly always */
  int first = co->co_nlocalsplus, n = mg_pyframe_stacktop(f);
  if (code && !mg_decode_has_offset(code, co, unit, n - first, i - first)) return;
  PyObject *v = (PyObject *)f->localsplus[i].bits;
  f->localsplus[i] = PyStackRef_TagInt(PyLong_AsSsize_t(v));
  Py_DECREF(v);
}

static void pyframe_close(MgFrame *f, int unit) {
  if (!pyframe_is_open(f)) return;
  int n = mg_pyframe_stacktop(f);
  PyCodeObject *co = mg_pyframe_code(f);
  PyObject **slot = (PyObject **)f->localsplus, *t, *e, *tb;
  bool handles = PyBytes_GET_SIZE(co->co_exceptiontable) > 0;
  mg_pyframe_reread(f);
  PyErr_Fetch(&t, &e, &tb);
  for (int i = 0; i < n; i++) {
    PyObject *above = i + 1 < n ? slot[i + 1] : NULL;
    bool offset = handles && i >= co->co_nlocalsplus && above && slot[i] && PyLong_CheckExact(slot[i]);
    if (offset && (above == Py_None || PyExceptionInstance_Check(above))) pyframe_tag_offset(f, unit, i);
  }
  PyErr_Restore(t, e, tb);
  for (int i = 0; i < n; i++)
    if (!PyStackRef_IsTaggedInt(f->localsplus[i])) f->localsplus[i] = pyframe_tagged(slot[i]);
  f->stackpointer = f->localsplus + n;
}

void mg_pyframe_reread(MgFrame *f) {
  if (f->frame_obj) pyframe_make_plain(f, mg_pyframe_code(f)->co_nlocalsplus);
}

PyObject *mg_pyframe_peek(MgFrame *f, int i) { return PyStackRef_AsPyObjectBorrow(f->localsplus[i]); }
#else
static void pyframe_open(MgFrame *f) {}
static void pyframe_close(MgFrame *f, int unit) {}
int mg_pyframe_stacktop(MgFrame *f) { return f->stacktop; }
void mg_pyframe_set_stacktop(MgFrame *f, int n) { f->stacktop = n; }
PyObject *mg_pyframe_peek(MgFrame *f, int i) { return f->localsplus[i]; }
#endif

void mg_pyframe_view(MgFrame *f, MgFrameView *v) {
  pyframe_open(f);
  v->slot = (PyObject **)f->localsplus;
  v->code = mg_pyframe_code(f);
  v->func = mg_pyframe_func(f);
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
  pyframe_close(f, throwflag ? mg_pyframe_at(f) : mg_pyframe_next(f));
  return _PyEval_EvalFrameDefault(ts, f, throwflag);
}

PyObject *mg_pyframe_run_at(PyThreadState *ts, MgFrame *f, int unit) {
  MG_ASSERT(pyframe_current(ts) != f, "a linked frame is given to CPython");
  mg_pyframe_set_next(f, unit);
  pyframe_close(f, unit);
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
  MgFrameView v;
  mg_pyframe_view(f, &v);
  int height = v.code->co_nlocalsplus + h->depth, n = mg_pyframe_stacktop(f);
  mg_pyframe_set_stacktop(f, height < n ? height : n);
  while (n > height) Py_XDECREF(v.slot[--n]);
  if (at) v.slot[n++] = at;
  v.slot[n++] = mg_pyframe_take_exception();
  mg_pyframe_set_stacktop(f, n);
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
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations" /* from 3.14 on */
  PyLongObject *c = _PyLong_New((Py_ssize_t)n);
#pragma GCC diagnostic pop
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
  pyframe_close(f, -1);
  return _PyEval_EvalFrameDefault(ts, f, 1);
}

static PyGenObject *pyframe_generator(MgFrame *f) {
#if PY314
  return _PyGen_GetGeneratorFromFrame(f);
#else
  return _PyFrame_GetGenerator(f);
#endif
}

static MgFrame *pyframe_of_generator(PyGenObject *g) { return (MgFrame *)&g->gi_iframe; }

PyObject *mg_pyframe_generator(MgFrame *f) {
  return f->owner == FRAME_OWNED_BY_GENERATOR ? (PyObject *)pyframe_generator(f) : NULL;
}

PyObject *mg_pyframe_unresume(PyThreadState *ts, MgFrame *f, int yield_unit) {
  MgFrameView v;
  mg_pyframe_view(f, &v);
  int top = mg_pyframe_stacktop(f) - 1;
  PyObject **sent = &v.slot[top]; /* pushed by send() */
  if (yield_unit >= 0) {
    Py_SETREF(*sent, Py_NewRef(Py_None));
    return mg_pyframe_run_at(ts, f, yield_unit);
  }
  PyGenObject *g = pyframe_generator(f);
  mg_pyframe_set_stacktop(f, top);
  Py_DECREF(*sent);
  pyframe_close(f, 0);
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
  MgFrame *f = pyframe_of_generator(g);
  mg_pyframe_set_next(f, unit + 1);
  g->gi_frame_state = FRAME_SUSPENDED;
#if PY313
  if (_PyCode_CODE(mg_pyframe_code(f))[unit].op.arg) g->gi_frame_state = FRAME_SUSPENDED_YIELD_FROM;
#endif
}

MgFrame *mg_pyframe_suspended(PyObject *gen) {
  PyGenObject *g = (PyGenObject *)gen;
  return pyframe_is_suspended(g) ? pyframe_of_generator(g) : NULL;
}

MgFrame *mg_pyframe_paused(PyObject *gen, bool *started) {
  PyGenObject *g = (PyGenObject *)gen;
  if (g->gi_exc_state.exc_value && g->gi_exc_state.exc_value != Py_None) return NULL;
  *started = pyframe_is_suspended(g);
  return *started || g->gi_frame_state == FRAME_CREATED ? pyframe_of_generator(g) : NULL;
}

bool mg_pyframe_gen_finished(PyObject *gen) {
  return ((PyGenObject *)gen)->gi_frame_state >= FRAME_COMPLETED;
}

void mg_pyframe_fill_generator(PyObject *gen, PyObject *const *v, int n, int unit) {
  PyGenObject *g = (PyGenObject *)gen;
  MgFrame *f = pyframe_of_generator(g);
  MgFrameView view;
  mg_pyframe_view(f, &view);
  PyCodeObject *co = view.code;
  int first = mg_pyframe_stacktop(f);
  for (int i = 0; i < n; i++) {
    PyObject **slot = &view.slot[i];
    _PyLocals_Kind kind =
        i < co->co_nlocalsplus ? _PyLocals_GetKind(co->co_localspluskinds, i) : CO_FAST_LOCAL;
    if (unit < 0 && kind & CO_FAST_FREE) continue;
    if (unit < 0 && kind & CO_FAST_CELL && *slot && PyCell_Check(*slot)) PyCell_Set(*slot, v[i]);
    else if (i < first) Py_XSETREF(*slot, Py_XNewRef(v[i]));
    else *slot = Py_XNewRef(v[i]);
  }
  if (unit >= 0) {
    mg_pyframe_set_stacktop(f, n);
    pyframe_suspend(g, unit);
  }
  pyframe_close(f, mg_pyframe_next(f));
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
  MgFrameView v;
  mg_pyframe_view(f->f_frame, &v);
  PyObject **free_vars = v.slot + (code->co_nlocalsplus - code->co_nfreevars);
  bool whole = true;
  for (int i = 0; i < code->co_nfreevars; i++) /* CPython looks into their cells */
    whole &= free_vars[i] || (free_vars[i] = PyCell_New(NULL));
  pyframe_close(f->f_frame, 0);
  return whole ? (PyObject *)f : (Py_DECREF(f), NULL);
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

#if PY312
/* Up to CPython 3.12.4 it listens to calls as a tool of sys.monitoring, too: the bit of that tool. */
static uint8_t pyframe_calls_seen_by_torch(const PyThreadState *ts) {
  PyObject *name = ts->interp->monitoring_tool_names[2]; /* PY_MONITORING_PROFILER_ID */
  bool torchs = name && PyUnicode_Check(name) && !PyUnicode_CompareWithASCIIString(name, "PyTorch Profiler");
  return torchs ? 1 << 2 : 0;
}
#endif

bool mg_pyframe_traced(PyThreadState *ts) {
  if (ts->tracing) return true;
#if PY312
  bool ours = pyframe_profiled_by_torch(ts);
  const uint8_t known =
      ours ? 1 << 6 | pyframe_calls_seen_by_torch(ts) : 0; /* PY_MONITORING_SYS_PROFILE_ID */
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

#if PY314
PyObject *mg_pyframe_common_constant(int i) { return Py_NewRef(PyInterpreterState_Get()->common_consts[i]); }

void mg_pyframe_special_error(PyObject *o, int which) {
  const _Py_SpecialMethod *m = &_Py_SpecialMethods[which];
  PyErr_Format(PyExc_TypeError, _PyEval_SpecialMethodCanSuggest(o, which) ? m->error_suggestion : m->error,
               o);
}

PyObject *mg_pyframe_interpolation(PyObject *value, PyObject *text, int conversion, PyObject *format) {
  PyObject *none = format ? NULL : PyUnicode_New(0, 0);
  PyObject *r =
      format || none ? _PyInterpolation_Build(value, text, conversion, format ? format : none) : NULL;
  Py_XDECREF(none);
  return r;
}

PyObject *mg_pyframe_template(PyObject *strings, PyObject *interpolations) {
  return _PyTemplate_Build(strings, interpolations);
}
#endif

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
