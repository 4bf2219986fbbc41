/* Frames that the recorded program calls: recorded by a loop of their own, run as they are, or a break.
 * In: a frame from the hook, while recording.  Out: what the hook must return. */
#include "host/python/pyobject.h"
#include "record/bytecode/inlined_frame.h"
#include <string.h>
#include "base/memory_room.h"
#include "host/python/code_info.h"
#include "host/python/decode.h"
#include "host/python/hook_mode.h"
#include "host/python/trace_rules.h"
#include "record/bytecode/eval_loop.h"
#include "record/bytecode/op_vars.h"
#include "record/call/python_calls.h"
#include "record/core/identity.h"
#include "record/core/recording.h"
#include "record/dispatch/recurrent.h"
#include "record/object/fresh.h"
#include "record/object/lazy_constants.h"
#include "record/object/wrap.h"
#include "record/symbolic/number.h"
#include "record/symbolic/number_ops.h"
#include "record/tensor/function_modes.h"

/* CPython ran the generator's prologue: the cells it made and took are replaced by
 * what the recording must see. */
static int inlined_enter_generator(MgFrameView *v) {
  PyCodeObject *co = v->code;
  int nfree = co->co_nfreevars, first = co->co_nlocalsplus - nfree;
  for (int i = 0; i < first; i++)
    if (v->slot[i] && PyCell_Check(v->slot[i])) mg_fresh(v->slot[i]);
  for (int i = 0; i < nfree; i++) {
    PyObject *cell = mg_rec_closure_cell(v->func, i);
    if (!cell) return -1;
    Py_SETREF(v->slot[first + i], cell);
  }
  return 0;
}

/* Ends the frame while a recording is given up: without running its handlers. */
static PyObject *inlined_drop(PyThreadState *ts, MgFrame *f) {
  if (!PyErr_Occurred()) PyErr_SetString(MgBreakError, mg_rec ? mg_rec->reason : "graph break");
  return mg_pyframe_drop(ts, f);
}

/* How far an inlined frame may go: r->stop leads from frame to frame by the calls to descend into. */
static MgOuter inlined_progress(const MgRec *r, bool direct) {
  MgOuter at = {.stop_at = -1, .descend = -1, .exc_n = -1, .direct = direct};
  const MgLoop *up = r->top;
  if (!direct || !up || up->at->descend != up->at->n) return at;
  int depth = 1;
  while ((up = up->up)) depth++;
  if (depth == r->nstop - 1) at.stop_at = r->stop[depth].n;
  else if (depth < r->nstop) at.descend = r->stop[depth].n;
  return at;
}

/* C code that calls these takes nothing but an int or float itself. */
static PyObject *inlined_plain_result(PyObject *r, PyCodeObject *co) {
  static const char *const names[] = {"__hash__", "__index__", "__int__", "__float__"};
  if (!r || !mg_symfloat_is(r)) return r;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (PyUnicode_CompareWithASCIIString(co->co_name, names[i]) == 0) {
      Py_SETREF(r, mg_symfloat_plain(r));
      break;
    }
  return r;
}

static PyObject *inlined_run(PyThreadState *ts, MgFrame *f, const MgCode *code, bool direct, int throwflag) {
  if (mg_pyframe_enter_call(ts)) return mg_pyframe_drop(ts, f);
  MgFrameLink link;
  MgLoop l;
  MgOuter at = inlined_progress(mg_rec, direct);
  bool closing = throwflag && PyErr_ExceptionMatches(PyExc_GeneratorExit);
  if (throwflag) mg_pyframe_set_at(f, mg_pyframe_next(f) - 1); /* the yield raises */
  mg_pyframe_link(ts, f, &link);
  PyCodeObject *co = mg_pyframe_code(f);
  PyObject *r;
  MgLoopEnd end = mg_loop_run(&l, ts, f, code, &at, false, throwflag);
  if (end == LOOP_stop) {
    l.rec->stopped(l.rec, &l);
    if (!l.rec->abort) mg_rec_break(BK_none, "the recording ends here");
  }
  mg_pyframe_unlink(ts, &link);
  mg_pyframe_leave_call(ts);
  switch (end) {
  case LOOP_leave:
    if (direct) return mg_pyframe_run_at(ts, f, l.unit);
    Py_INCREF(co);
    r = inlined_plain_result(mg_pyframe_run_at(ts, f, l.unit), co);
    Py_DECREF(co);
    return r;
  case LOOP_error: return mg_pyframe_raise(ts, f, code);
  default:
    r = inlined_drop(ts, f);
    if (closing && !r)
      PyErr_SetNone(PyExc_GeneratorExit); /* the end of a generator nobody holds would report a break to
                                             sys.unraisablehook */
    return r;
  }
}

/* The decoded code; an exception that is being thrown into a generator stays set. */
static const MgCode *inlined_code(PyCodeObject *co) {
  PyObject *t, *e, *tb;
  PyErr_Fetch(&t, &e, &tb);
  MgCodeInfo *info = mg_code_info(co);
  const MgCode *code = info ? mg_code_decoded(info, co) : NULL;
  if (t && !PyErr_Occurred()) PyErr_Restore(t, e, tb);
  return code;
}

static void inlined_pin_arguments(MgFrame *f, const PyCodeObject *co) {
  MgFrameView v;
  mg_pyframe_view(f, &v);
  if (!mg_pyframe_next(f) && !mg_rec->abort)
    mg_rec_pin_arguments(v.slot, co->co_argcount + co->co_kwonlyargcount);
}

/* What runs unrecorded may look at what it is given. */
static void inlined_unrecorded(MgFrame *f) {
  MgFrameView v;
  mg_pyframe_view(f, &v);
  mg_unread_call(NULL, v.slot, v.code->co_nlocalsplus);
}

/* ---- imports ---- */

/* Is the module of this name there?  torch's own are loaded while recording: nothing of
 * the program's state changes. */
static bool inlined_is_loaded(PyObject *name) {
  if (!PyUnicode_Check(name)) return false;
  const char *text = PyUnicode_AsUTF8(name);
  bool there =
      text && (!strncmp(text, "torch.", 6) || PyDict_GetItemWithError(PyImport_GetModuleDict(), name));
  mg_clear_as_no();
  return there;
}

/* importlib's import of a name that may be relative to a package: arguments name, package, level. */
static bool inlined_has_module(PyObject *const *arg) {
  long level = arg[2] && PyLong_Check(arg[2]) ? PyLong_AsLong(arg[2]) : 0;
  if (!level) return inlined_is_loaded(arg[0]);
  PyObject *parts =
      PyUnicode_Check(arg[1]) ? PyObject_CallMethod(arg[1], "rsplit", "si", ".", (int)(level - 1)) : NULL;
  PyObject *base = parts && PyList_Check(parts) && PyList_GET_SIZE(parts) ? PyList_GET_ITEM(parts, 0) : NULL;
  PyObject *full = !base                     ? NULL
                   : PyObject_IsTrue(arg[0]) ? PyUnicode_FromFormat("%U.%S", base, arg[0])
                                             : Py_NewRef(base);
  bool there = full && inlined_is_loaded(full);
  Py_XDECREF(full);
  Py_XDECREF(parts);
  mg_clear_as_no();
  return there;
}

/* Are the names of `from package import ...` there?  What the package itself finds for a name may
 * be a module that it loads. */
static bool inlined_has_names(PyObject *package, PyObject *names) {
  PyObject *name = PyModule_Check(package) ? PyModule_GetNameObject(package) : NULL;
  bool there = name && (PyTuple_Check(names) || PyList_Check(names));
  for (Py_ssize_t i = 0; there && i < PySequence_Fast_GET_SIZE(names); i++) {
    PyObject *item = PySequence_Fast_GET_ITEM(names, i), *full = PyUnicode_FromFormat("%U.%S", name, item);
    there = full && (PyDict_GetItemWithError(PyModule_GetDict(package), item) || inlined_is_loaded(full));
    Py_XDECREF(full);
  }
  Py_XDECREF(name);
  mg_clear_as_no();
  return there;
}

/* Would this function of importlib run the code of a module?  It does that once, at
 * this place of the program. */
static bool inlined_loads(MgFrame *f, PyCodeObject *co) {
  const char *file = PyUnicode_AsUTF8(co->co_filename), *name = PyUnicode_AsUTF8(co->co_name);
  if (!file || !name) return mg_clear_as_no(), false;
  if (strcmp(file, "<frozen importlib._bootstrap>") || mg_pyframe_next(f)) return false;
  MgFrameView v;
  mg_pyframe_view(f, &v);
  if (!strcmp(name, "_find_and_load")) return !inlined_is_loaded(v.slot[0]);
  if (!strcmp(name, "_gcd_import")) return !inlined_has_module(v.slot);
  return !strcmp(name, "_handle_fromlist") && !inlined_has_names(v.slot[0], v.slot[1]);
}

/* A frame that is not recorded runs as it is, on what the recording sees. */
static PyObject *inlined_opaque(PyThreadState *ts, MgFrame *f, bool given, int throwflag) {
  PyCodeObject *co = mg_pyframe_code(f);
  inlined_pin_arguments(f, co);
  if (given) inlined_unrecorded(f);
  MgPause p = mg_rec_pause();
  PyObject *r = mg_pyframe_run(ts, f, throwflag);
  mg_rec_resume(p);
  if (r && PyGen_CheckExact(r)) mg_fresh(r);
  /* A wrapper (torch.compiler.disable and the like) holds what the program gave it,
   * where no snapshot sees it. */
  if (r && PyFunction_Check(r) && !mg_rec->abort && Py_REFCNT(r) == 1 + mg_pyframe_leftover(f, r)) {
    mg_rec_break(BK_decorator, "%.100s makes a function", PyUnicode_AsUTF8(co->co_qualname));
    Py_CLEAR(r);
  }
  return r;
}

/* Why this frame cannot be run at all while recording: a break is set. */
static bool inlined_refuses(MgFrame *f, PyCodeObject *co) {
  if (mg_rec->abort) return false;
  bool packed = mg_skip_packed(f) && !mg_recurrent_packs(mg_rec->cap);
  if (packed || mg_skip_breaks(co)) {
    mg_rec_break(packed ? BK_data_dependent : BK_user, "call of torch's %.100s",
                 PyUnicode_AsUTF8(co->co_qualname));
    return true;
  }
  if (!mg_pyframe_next(f) && mg_rec_disabled(mg_pyframe_func(f))) return true;
  if (!mg_skip_opaque(co) || !inlined_loads(f, co)) return false;
  mg_rec_break(BK_import, "an import that loads a module");
  return true;
}

/* A frame begins: what the recording has to know of its arguments.  -1: a break, or an exception.
 * called: it is called as that function, directly; NULL: not so. */
static int inlined_begin(MgFrameView *v, PyObject *called) {
  PyCodeObject *co = v->code;
  if (mg_rec_enter_function(v->func, v->slot, co)) return -1;
  if (co->co_argcount) mg_fresh_init(v->slot[0], co);
  if (called == v->func) return 0;
  if (mg_fresh_class(v->slot, co)) return -1;
  return co->co_argcount && mg_older_self(v->slot, co) ? -1 : 0;
}

/* Makes the generator object alone; its frame comes back when it is first resumed.  Python warns about a
 * coroutine that a break drops then. */
static PyObject *inlined_make_generator(PyThreadState *ts, MgFrame *f, const MgCode *code, int throwflag) {
  PyCodeObject *co = mg_pyframe_code(f);
  if (co->co_flags & CO_COROUTINE && !code->known) {
    mg_rec_break(BK_opcode, "%.100s is a coroutine", PyUnicode_AsUTF8(co->co_qualname));
    return inlined_drop(ts, f);
  }
  PyObject *r = mg_pyframe_run(ts, f, throwflag);
  if (r) mg_fresh(r);
  return r;
}

/* Advancing such a generator cannot be undone, and failing here would end it: it is put back, and the
 * recording dropped. */
static PyObject *inlined_older_generator(PyThreadState *ts, MgFrame *f, const MgCode *code, int throwflag) {
  mg_rec_break(BK_generator, "generator %.100s is older than the recording",
               PyUnicode_AsUTF8(mg_pyframe_code(f)->co_qualname));
  if (throwflag) return mg_pyframe_run(ts, f, 1);
  PyErr_Clear(); /* the generator does not see the break */
  int at = mg_pyframe_next(f) - 1;
  return mg_pyframe_unresume(ts, f, at >= 0 && code->instr[at].op == BC_YIELD_VALUE ? at : -1);
}

PyObject *mg_record_frame(PyThreadState *ts, MgFrame *f, int throwflag) {
  PyCodeObject *co = mg_pyframe_code(f);
  PyObject *called = mg_rec->direct;
  bool given = mg_rec->calls_frame;
  mg_rec->direct = NULL;
  mg_rec->calls_frame = false;
  if (inlined_refuses(f, co)) return inlined_drop(ts, f);
  if (mg_skip_opaque(co) && !(mg_skip_modes(co) && mg_fmodes_on_top(mg_rec)))
    return inlined_opaque(ts, f, given, throwflag);
  if (mg_rec->abort) return inlined_drop(ts, f);
  if (mg_stack_low()) {
    mg_rec->too_deep = true;
    mg_rec_break(BK_limit, "the recursion is too deep to be recorded");
    return inlined_drop(ts, f);
  }
  MgFrameView v;
  mg_pyframe_view(f, &v);
  PyObject *gen = mg_pyframe_generator(f);
  bool starts = !mg_pyframe_next(f);
  if (starts && inlined_begin(&v, called)) return inlined_drop(ts, f);
  const MgCode *code = inlined_code(co);
  if (!code) return inlined_drop(ts, f);
  if (!gen && co->co_flags & (CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR))
    return inlined_make_generator(ts, f, code, throwflag);
  if (gen && !mg_is_fresh(gen)) return inlined_older_generator(ts, f, code, throwflag);
  if (gen && !code->known) {
    mg_rec_break(BK_opcode, "%.100s is a coroutine", PyUnicode_AsUTF8(co->co_qualname));
    return inlined_drop(ts, f);
  }
  if (gen && code->instr[mg_pyframe_next(f) - 1].op != BC_YIELD_VALUE && inlined_enter_generator(&v))
    return inlined_drop(ts, f);
  return inlined_run(ts, f, code, starts && !gen && called == v.func, throwflag);
}
