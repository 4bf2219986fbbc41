/* The eval loop: dispatch, unwinding to handlers, lazy wrapping of the outer frame, and inlined frames.
 * In: linked frames.  Out: the frame at a later instruction; see eval_loop.h.
 * Invariant: outside of an instruction the frame is exactly what CPython would have, so that it can take over
 * at any instruction boundary.  The handlers are in op_vars.c, op_objects.c, op_build.c and op_flow.c. */
#include "record/bytecode/eval_loop.h"
#include "base/assert.h"
#include "base/stack_room.h"
#include "entry/guard/guard_add.h"
#include "host/python/code_info.h"
#include "host/python/decode.h"
#include "host/python/hook_mode.h"
#include "host/python/trace_rules.h"
#include "record/bytecode/op_vars.h"
#include "record/core/identity.h"
#include "record/core/recording.h"
#include "record/object/fresh.h"
#include "record/object/lazy_constants.h"
#include "record/object/lazy_text.h"
#include "record/object/wrap.h"
#include "record/symbolic/number.h"
#include "record/tensor/function_modes.h"

#define LOOP_MAX_INSTR                                                                                       \
  10000000 /* of one recording, some seconds: a loop that waits for something must not hang it */

#define LOOP_POLL 64 /* instructions between looks for a signal: some milliseconds if each is an op */

typedef MgStep (*LoopHandler)(MgLoop *l, const MgInstr *in);
static const LoopHandler loop_handlers[] = {
#define BYTECODE(name, reads, trivial) mg_op_##name,
#include "host/python/bytecodes.def"
};
static const bool loop_trivial[] = {
#define BYTECODE(name, reads, trivial) trivial,
#include "host/python/bytecodes.def"
};

int mg_loop_reads(const MgInstr *in) {
  int a = in->arg;
  switch (in->op) {
#define BYTECODE(name, reads, trivial)                                                                       \
  case BC_##name: return reads;
#include "host/python/bytecodes.def"
  }
  return a;
}

bool mg_loop_settles(const MgCode *code, int unit) {
  switch (code->instr[unit].op) {
  case BC_STORE_FAST:
  case BC_POP_TOP:
  case BC_NOP:
  case BC_JUMP:
  case BC_JUMP_BACKWARD:
  case BC_RETURN_VALUE:
  case BC_RETURN_CONST: return true;
  default: return false;
  }
}

int mg_loop_touch_slot(MgLoop *l, int i) {
  MgOuter *o = l->outer;
  if (!o || !o->untouched || i >= o->nslot || !o->untouched[i]) return 0;
  o->untouched[i] = false;
  PyObject *v = SLOT(i);
  if (!v) {
    mg_guard_add(mg_rec->guards, GK_null, 0, NULL, o->base + i);
    return 0;
  }
  PyObject *w = mg_wrap(v, mg_src_slot(o->base + i));
  if (!w) return -1;
  SLOT(i) = w;
  Py_DECREF(v);
  return 0;
}

/* Stack entries that the frame brought along are wrapped when an instruction looks at them, and not before:
 * an iterator or context manager that just lies there must not become a guard. */
static int loop_touch_stack(MgLoop *l, const MgInstr *in) {
  MgOuter *o = l->outer;
  int height = (int)(l->sp - l->base), bottom = height - mg_loop_reads(in),
      first = (int)(l->base - l->v.slot);
  for (int i = o->raw - 1; i >= 0 && i >= bottom; i--) {
    o->raw = i;
    l->rec->ident->depth++; /* not what this instruction loads */
    int rc = mg_loop_touch_slot(l, first + i);
    l->rec->ident->depth--;
    if (rc) return -1;
  }
  return 0;
}

/* Entries that were popped without a look (POP_TOP, unwinding) are gone: the place may be used anew. */
static void loop_forget_popped(MgLoop *l) {
  MgOuter *o = l->outer;
  int height = (int)(l->sp - l->base), first = (int)(l->base - l->v.slot);
  while (o->raw > height) o->untouched[first + --o->raw] = false;
}

/* Goes to the handler of the exception that is set; false when this frame has none. */
static bool loop_unwind(MgLoop *l, bool traceback) {
  const MgHandler *h = mg_decode_handler(l->code, l->in->at);
  if (!h) return false;
  if (traceback) mg_pyframe_traceback(l->ts);
  while (l->sp - l->base > h->depth) {
    PyObject *old = POP();
    Py_XDECREF(old);
  }
  if (l->outer) loop_forget_popped(l);
  if (h->lasti) {
    PyObject *pos = PyLong_FromLong(mg_pyframe_lasti(l->f));
    if (!pos) return false;
    PUSH(pos);
  }
  PyObject *type, *exc, *tb;
  PyErr_Fetch(&type, &exc, &tb);
  PyErr_NormalizeException(&type, &exc, &tb);
  PyException_SetTraceback(exc, tb ? tb : Py_None);
  Py_XDECREF(type);
  Py_XDECREF(tb);
  PUSH(exc);
  l->unit = h->target;
  return true;
}

static MgLoopEnd loop_end(MgLoop *l, MgLoopEnd how) {
  if (l->rec) {
    l->rec->top = l->up;
    if (l->rec->ident) l->rec->ident->loads = false;
  }
  mg_pyframe_set_stacktop(l->f, (int)(l->sp - l->v.slot));
  return how;
}

/* An exception reached the outermost frame: without a handler there the recording
 * ends at this instruction. */
static void loop_outer_exception(MgLoop *l) {
  if (mg_decode_handler(l->code, l->in->at)) return;
  PyObject *type, *exc, *tb;
  PyErr_Fetch(&type, &exc, &tb);
  PyErr_NormalizeException(&type, &exc, &tb);
  const char *name = type ? ((PyTypeObject *)type)->tp_name : "exception";
  mg_rec_break(BK_exception, "%s", name);
  PyErr_Clear();
  PyObject *text = exc ? PyObject_Str(exc) : NULL; /* with tensors in it there is none */
  const char *msg = text ? PyUnicode_AsUTF8(text) : NULL;
  if (msg && *msg) snprintf(l->rec->reason, sizeof l->rec->reason, "%s: %.150s", name, msg);
  mg_text_mend(l->rec->reason);
  PyErr_SetString(MgBreakError, l->rec->reason);
  Py_XDECREF(text);
  Py_XDECREF(type);
  Py_XDECREF(exc);
  Py_XDECREF(tb);
}

int mg_loop_call_takes(const MgInstr *in) { return in->op == BC_CALL ? in->arg + 2 : 3 + (in->arg & 1); }

/* Before an instruction: false when the loop has to stop here. */
static bool loop_count(MgLoop *l) {
  MgOuter *o = l->at;
  if (o->n == o->stop_at) return false;
  o->n++;
  return true;
}

/* Before instruction `start`, while recording: 0, or -1 with a break or exception. */
static int loop_before(MgLoop *l, const MgInstr *in) {
  if (l->rec->nbytecode++ > LOOP_MAX_INSTR) {
    mg_rec_break(BK_limit, "more than %d instructions", LOOP_MAX_INSTR);
    return -1;
  }
  if (!(l->rec->nbytecode % LOOP_POLL) && mg_interrupt_break()) return -1;
  if (mg_force_inner && l->rec->nbytecode == mg_force_inner && l->rec->top->up) {
    mg_rec_break(BK_forced, "after %ld instructions", mg_force_inner);
    return -1;
  }
  l->rec->ident->loads = false;
  if (l->outer) l->rec->line = (uint32_t)l->code->line[in->at];
  if (l->outer && l->outer->raw && loop_touch_stack(l, in)) return -1;
  mg_unread_before(l, in, mg_loop_reads(in));
  return 0;
}

MgLoopEnd mg_loop_run(MgLoop *l, PyThreadState *ts, MgFrame *f, const MgCode *code, MgOuter *at,
                      bool outermost, int throwflag) {
  MgOuter *outer = outermost ? at : NULL;
  *l = (MgLoop){.ts = ts, .f = f, .code = code, .rec = mg_rec, .outer = outer, .at = at};
  mg_pyframe_view(f, &l->v);
  l->base = l->v.slot + l->v.code->co_nlocalsplus;
  l->sp = l->v.slot + mg_pyframe_stacktop(f);
  MG_ASSERT(l->sp >= l->base && l->sp <= l->base + l->v.code->co_stacksize,
            "the frame comes without its stack");
  l->unit = mg_pyframe_lasti(f) + 1;
  l->in = &code->instr[l->unit > 0 ? l->unit - 1 : 0];
  mg_pyframe_set_stacktop(f, -1);
  if (l->rec) {
    l->up = l->rec->top;
    l->nnode = l->rec->g->nnode;
    l->direct = l->up && at->direct;
    l->rec->top = l;
  }
  MgStep step = throwflag ? STEP_error : STEP_next;
  for (;;) {
    if (l->rec) {
      if (l->rec->abort) return loop_end(l, LOOP_abort);
      if (outer) loop_forget_popped(l);
    }
    if (step == STEP_next) {
      if (!loop_count(l)) {
        mg_pyframe_set_lasti(f, l->unit - 1);
        return loop_end(l, LOOP_stop);
      }
      int start = l->unit;
      const MgInstr *in = l->in = &code->instr[start];
      mg_pyframe_set_lasti(f, in->at);
      l->unit = in->next;
      if (l->rec && loop_before(l, in)) {
        step = STEP_error;
        continue;
      }
      step = loop_handlers[in->op](l, in);
      if (!(l->rec && l->rec->abort)) at->tail = step == STEP_next && loop_trivial[in->op] ? at->tail + 1 : 0;
      if (step == STEP_leave || step == STEP_unknown) {
        l->unit = start;
        mg_pyframe_set_lasti(f, start - 1);
        if (step == STEP_leave) return loop_end(l, LOOP_leave);
        if (!l->rec) return loop_end(l, LOOP_unknown);
        mg_rec_break(BK_opcode, "instruction %s", mg_bytecode_name(in->op));
        return loop_end(l, LOOP_abort);
      }
      continue;
    }
    /* An error: CPython's flag is set, or a break unwinds. */
    if (l->rec && !l->rec->abort) {
      if (!at->exc_depth) at->exc_n = at->n;
      mg_lazystr_raised(l->rec);
      if (outer && !l->rec->abort) loop_outer_exception(l);
    }
    if (l->rec && l->rec->abort) return loop_end(l, LOOP_abort);
    if (!loop_unwind(l, step == STEP_error)) return loop_end(l, LOOP_error);
    step = STEP_next;
  }
}

/* ---- inlined frames ---- */

/* CPython ran the generator's prologue: the cells it made and took are replaced by
 * what the recording must see. */
static int record_enter_generator(MgFrameView *v) {
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
static PyObject *record_drop(PyThreadState *ts, MgFrame *f) {
  if (!PyErr_Occurred()) PyErr_SetString(MgBreakError, mg_rec ? mg_rec->reason : "graph break");
  return mg_pyframe_drop(ts, f);
}

/* How far an inlined frame may go: r->stop leads from frame to frame by the calls to descend into. */
static MgOuter record_progress(const MgRec *r, bool direct) {
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
static PyObject *record_plain_result(PyObject *r, PyCodeObject *co) {
  static const char *const names[] = {"__hash__", "__index__", "__int__", "__float__"};
  if (!r || !mg_symfloat_is(r)) return r;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (PyUnicode_CompareWithASCIIString(co->co_name, names[i]) == 0) {
      Py_SETREF(r, mg_symfloat_plain(r));
      break;
    }
  return r;
}

static PyObject *record_run(PyThreadState *ts, MgFrame *f, const MgCode *code, bool direct, int throwflag) {
  if (mg_pyframe_enter_call(ts)) return mg_pyframe_drop(ts, f);
  MgFrameLink link;
  MgLoop l;
  MgOuter at = record_progress(mg_rec, direct);
  bool closing = throwflag && PyErr_ExceptionMatches(PyExc_GeneratorExit);
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
    r = record_plain_result(mg_pyframe_run_at(ts, f, l.unit), co);
    Py_DECREF(co);
    return r;
  case LOOP_error: return mg_pyframe_run(ts, f, 1);
  default:
    r = record_drop(ts, f);
    if (closing && !r)
      PyErr_SetNone(PyExc_GeneratorExit); /* the end of a generator nobody holds would report a break to
                                             sys.unraisablehook */
    return r;
  }
}

/* The decoded code; an exception that is being thrown into a generator stays set. */
static const MgCode *record_code(PyCodeObject *co) {
  PyObject *t, *e, *tb;
  PyErr_Fetch(&t, &e, &tb);
  MgCodeInfo *info = mg_code_info(co);
  const MgCode *code = info ? mg_code_decoded(info, co) : NULL;
  if (t && !PyErr_Occurred()) PyErr_Restore(t, e, tb);
  return code;
}

static void record_pin_arguments(MgFrame *f, const PyCodeObject *co) {
  MgFrameView v;
  mg_pyframe_view(f, &v);
  if (mg_pyframe_lasti(f) < 0 && !mg_rec->abort)
    mg_rec_pin_arguments(v.slot, co->co_argcount + co->co_kwonlyargcount);
}

/* What runs unrecorded may look at what it is given. */
static void record_unrecorded(MgFrame *f) {
  MgFrameView v;
  mg_pyframe_view(f, &v);
  mg_unread_call(NULL, v.slot, v.code->co_nlocalsplus);
}

/* ---- imports ---- */

/* Is the module of this name there?  torch's own are loaded while recording: nothing of
 * the program's state changes. */
static bool record_is_loaded(PyObject *name) {
  if (!PyUnicode_Check(name)) return false;
  const char *text = PyUnicode_AsUTF8(name);
  bool there =
      text && (!strncmp(text, "torch.", 6) || PyDict_GetItemWithError(PyImport_GetModuleDict(), name));
  PyErr_Clear();
  return there;
}

/* importlib's import of a name that may be relative to a package: arguments name, package, level. */
static bool record_has_module(PyObject *const *arg) {
  long level = arg[2] && PyLong_Check(arg[2]) ? PyLong_AsLong(arg[2]) : 0;
  if (!level) return record_is_loaded(arg[0]);
  PyObject *parts =
      PyUnicode_Check(arg[1]) ? PyObject_CallMethod(arg[1], "rsplit", "si", ".", (int)(level - 1)) : NULL;
  PyObject *base = parts && PyList_Check(parts) && PyList_GET_SIZE(parts) ? PyList_GET_ITEM(parts, 0) : NULL;
  PyObject *full = !base                     ? NULL
                   : PyObject_IsTrue(arg[0]) ? PyUnicode_FromFormat("%U.%S", base, arg[0])
                                             : Py_NewRef(base);
  bool there = full && record_is_loaded(full);
  Py_XDECREF(full);
  Py_XDECREF(parts);
  PyErr_Clear();
  return there;
}

/* Are the names of `from package import ...` there?  What the package itself finds for a name may
 * be a module that it loads. */
static bool record_has_names(PyObject *package, PyObject *names) {
  PyObject *name = PyModule_Check(package) ? PyModule_GetNameObject(package) : NULL;
  bool there = name && (PyTuple_Check(names) || PyList_Check(names));
  for (Py_ssize_t i = 0; there && i < PySequence_Fast_GET_SIZE(names); i++) {
    PyObject *item = PySequence_Fast_GET_ITEM(names, i), *full = PyUnicode_FromFormat("%U.%S", name, item);
    there = full && (PyDict_GetItemWithError(PyModule_GetDict(package), item) || record_is_loaded(full));
    Py_XDECREF(full);
  }
  Py_XDECREF(name);
  PyErr_Clear();
  return there;
}

/* Would this function of importlib run the code of a module?  It does that once, at
 * this place of the program. */
static bool record_loads(MgFrame *f, PyCodeObject *co) {
  const char *file = PyUnicode_AsUTF8(co->co_filename), *name = PyUnicode_AsUTF8(co->co_name);
  if (!file || !name) return PyErr_Clear(), false;
  if (strcmp(file, "<frozen importlib._bootstrap>") || mg_pyframe_lasti(f) >= 0) return false;
  MgFrameView v;
  mg_pyframe_view(f, &v);
  if (!strcmp(name, "_find_and_load")) return !record_is_loaded(v.slot[0]);
  if (!strcmp(name, "_gcd_import")) return !record_has_module(v.slot);
  return !strcmp(name, "_handle_fromlist") && !record_has_names(v.slot[0], v.slot[1]);
}

PyObject *mg_record_frame(PyThreadState *ts, MgFrame *f, int throwflag) {
  PyCodeObject *co = mg_pyframe_code(f);
  PyObject *called = mg_rec->direct;
  bool given = mg_rec->calls_frame;
  mg_rec->direct = NULL;
  mg_rec->calls_frame = false;
  bool packed = mg_skip_packed(f);
  if ((packed || mg_skip_breaks(co)) && mg_rec && !mg_rec->abort) {
    mg_rec_break(packed ? BK_data_dependent : BK_user, "call of torch's %.100s",
                 PyUnicode_AsUTF8(co->co_qualname));
    return record_drop(ts, f);
  }
  if (mg_pyframe_lasti(f) < 0 && !mg_rec->abort && mg_rec_disabled(mg_pyframe_func(f)))
    return record_drop(ts, f);
  if (mg_skip_opaque(co) && !mg_rec->abort && record_loads(f, co)) {
    mg_rec_break(BK_c_function, "an import that loads a module");
    return record_drop(ts, f);
  }
  if (mg_skip_opaque(co) && !(mg_skip_modes(co) && mg_fmodes_on_top(mg_rec))) {
    record_pin_arguments(f, co);
    if (given) record_unrecorded(f);
    MgPause p = mg_rec_pause();
    PyObject *r = mg_pyframe_run(ts, f, throwflag);
    mg_rec_resume(p);
    if (r && PyGen_CheckExact(r)) mg_fresh(r);
    /* A wrapper (torch.compiler.disable and the like) holds what the program gave it,
     * where no snapshot sees it. */
    if (r && PyFunction_Check(r) && !mg_rec->abort && Py_REFCNT(r) == 1 + mg_pyframe_leftover(f, r)) {
      mg_rec_break(BK_c_function, "%.100s makes a function", PyUnicode_AsUTF8(co->co_qualname));
      Py_CLEAR(r);
    }
    return r;
  }
  if (mg_rec->abort) return record_drop(ts, f);
  if (mg_stack_low()) {
    mg_rec->too_deep = true;
    mg_rec_break(BK_limit, "the recursion is too deep to be recorded");
    return record_drop(ts, f);
  }
  MgFrameView v;
  mg_pyframe_view(f, &v);
  PyObject *gen = mg_pyframe_generator(f);
  bool starts = mg_pyframe_lasti(f) < 0;
  if (starts && mg_rec_enter_function(v.func, v.slot, co)) return record_drop(ts, f);
  if (starts && co->co_argcount) mg_fresh_init(v.slot[0], co);
  if (starts && called != v.func && mg_fresh_class(v.slot, co)) return record_drop(ts, f);
  if (starts && called != v.func && co->co_argcount && mg_older_self(v.slot, co)) return record_drop(ts, f);
  const MgCode *code = record_code(co);
  if (!code) return record_drop(ts, f);
  if (!gen && co->co_flags & (CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR)) {
    /* Only makes the generator object; its frame comes back here when it is first resumed.  Python warns
     * about a coroutine that a break drops then. */
    if (co->co_flags & CO_COROUTINE && !code->known) {
      mg_rec_break(BK_opcode, "%.100s is a coroutine", PyUnicode_AsUTF8(co->co_qualname));
      return record_drop(ts, f);
    }
    PyObject *r = mg_pyframe_run(ts, f, throwflag);
    if (r) mg_fresh(r);
    return r;
  }
  if (gen && !mg_is_fresh(gen)) {
    /* Advancing it cannot be undone, and failing here would end it: put it back and drop the recording. */
    mg_rec_break(BK_generator, "generator %.100s is older than the recording",
                 PyUnicode_AsUTF8(co->co_qualname));
    if (throwflag) return mg_pyframe_run(ts, f, 1);
    PyErr_Clear();
    int at = mg_pyframe_lasti(f);
    return mg_pyframe_unresume(ts, f, at >= 0 && code->instr[at].op == BC_YIELD_VALUE ? at : -1);
  }
  if (gen && !code->known) {
    mg_rec_break(BK_opcode, "%.100s is a coroutine", PyUnicode_AsUTF8(co->co_qualname));
    return record_drop(ts, f);
  }
  if (gen && code->instr[mg_pyframe_lasti(f)].op != BC_YIELD_VALUE && record_enter_generator(&v))
    return record_drop(ts, f);
  return record_run(ts, f, code, starts && !gen && called == v.func, throwflag);
}
