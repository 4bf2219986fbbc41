/* The eval loop: dispatch, unwinding to handlers, and lazy wrapping of the outer frame.
 * In: linked frames.  Out: the frame at a later instruction; see eval_loop.h.
 * Invariant: outside of an instruction the frame is exactly what CPython would have, so that it can take over
 * at any instruction boundary.  The handlers are in op_vars.c, op_objects.c, op_build.c and op_flow.c. */
#include "record/bytecode/eval_loop.h"
#include "base/assert.h"
#include "base/strbuf.h"
#include "entry/guard/guard_add.h"
#include "host/python/decode.h"
#include "host/python/hook_mode.h"
#include "record/core/capture.h"
#include "record/core/identity.h"
#include "record/core/recording.h"
#include "record/object/lazy_constants.h"
#include "record/object/lazy_text.h"
#include "record/object/wrap.h"
#include "tuning.h"

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
    PyObject *pos = PyLong_FromLong(mg_pyframe_at(l->f));
    if (!pos) return false;
    PUSH(pos);
  }
  PUSH(mg_pyframe_take_exception());
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
  PyErr_Clear();                                   /* the break's text replaces it */
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
  mg_pyframe_reread(l->f);
  if (l->code->instr[l->unit].part == PART_joined) return true; /* counted with the first half */
  if (o->n == o->stop_at) return false;
  o->n++;
  return true;
}

/* Before instruction `start`, while recording: 0, or -1 with a break or exception. */
static int loop_before(MgLoop *l, const MgInstr *in) {
  if (l->rec->nbytecode++ > MG_TUNE_RECORD_INSTRUCTIONS) {
    mg_rec_break(BK_limit, "more than %d instructions", MG_TUNE_RECORD_INSTRUCTIONS);
    return -1;
  }
  if (!(l->rec->nbytecode % MG_TUNE_RECORD_POLL) && mg_interrupt_break()) return -1;
  if (mg_force_inner && l->rec->nbytecode == mg_force_inner && l->rec->top->up) {
    mg_rec_break(BK_forced, "after %ld instructions", mg_force_inner);
    return -1;
  }
  l->rec->ident->loads = false;
  if (l->outer) l->rec->line = (uint32_t)l->code->line[in->at];
  if (l->outer && l->outer->raw && loop_touch_stack(l, in)) return -1;
  return mg_unread_before(l, in, mg_loop_reads(in));
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
  l->unit = mg_pyframe_next(f);
  l->in = &code->instr[throwflag ? mg_pyframe_at(f) : l->unit > 0 ? l->unit - 1 : 0];
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
        mg_pyframe_set_next(f, l->unit);
        return loop_end(l, LOOP_stop);
      }
      int start = l->unit;
      const MgInstr *in = l->in = &code->instr[start];
      mg_pyframe_set_at(f, in->at);
      l->unit = in->next;
      if (l->rec && loop_before(l, in)) {
        step = STEP_error;
        continue;
      }
      step = loop_handlers[in->op](l, in);
      if (!(l->rec && l->rec->abort))
        at->tail = step == STEP_next && loop_trivial[in->op] ? at->tail + (in->part != PART_joined) : 0;
      if (step == STEP_leave || step == STEP_unknown) {
        l->unit = start;
        mg_pyframe_set_next(f, start);
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
