/* The eval loop on a real frame, for recording and for plain execution.
 * In: a linked frame.  Out: the same frame further on.  Handlers mg_op_* execute one instruction of the
 * normal form; while
 * recording they go through the mg_rec_* operations, otherwise through CPython's API.
 * The value stack holds owned references, NULL entries included, exactly as in CPython. */
#ifndef MG_EVAL_LOOP_H
#define MG_EVAL_LOOP_H
#include "host/python/decode.h"
#include "host/python/pyframe.h"
#include "record/call/call.h"
#include "record/core/loop.h"
#include "record/object/attributes.h"
#include "record/object/items.h"
#include "record/object/wrap.h"

typedef struct MgStop MgStop;

/* Executes the linked frame from its position until one of the ends.  Leaves stacktop and position set. */
MgLoopEnd mg_loop_run(MgLoop *l, PyThreadState *ts, MgFrame *f, const MgCode *code, MgOuter *at,
                      bool outermost, int throwflag);
/* Stack entries that a call instruction takes before it leaves its result. */
int mg_loop_call_takes(const MgInstr *in);
int mg_loop_reads(const MgInstr *in); /* stack entries that it looks at */
/* Does this instruction only put away what the one before it left?  A breaking instruction takes it along, so
 * that its result is no stack entry of the next segment, and a loop counter is not looked at. */
bool mg_loop_settles(const MgCode *code, int unit);
/* Wraps slot i of the outer frame when it still holds the frame's own value: 0, or -1 with exception. */
int mg_loop_touch_slot(MgLoop *l, int i);

/* ---- shared by the handlers ---- */
#define BYTECODE(name, reads, trivial) MgStep mg_op_##name(MgLoop *l, const MgInstr *in);
#include "host/python/bytecodes.def"

/* Drops n entries and pushes v (stolen); NULL is an error and leaves the stack to the unwinder. */
static inline MgStep loop_result(MgLoop *l, int n, PyObject *v) {
  if (!v) return STEP_error;
  while (n-- > 0) {
    PyObject *old = POP();
    Py_XDECREF(old);
  }
  PUSH(v);
  return STEP_next;
}
static inline MgStep loop_drop(MgLoop *l, int n, int rc) {
  if (rc < 0) return STEP_error;
  while (n-- > 0) {
    PyObject *old = POP();
    Py_XDECREF(old);
  }
  return STEP_next;
}
static inline PyObject *loop_wrap(MgLoop *l, PyObject *v) { /* steals v; NULL stays NULL */
  if (!v || !l->rec) return v;
  PyObject *w = mg_wrap(v, 0);
  Py_DECREF(v);
  return w;
}
/* Exact builtin types have no state that a recording could read past its shadows;
 * sys.modules has no shadow. */
static inline bool loop_plain(PyObject *o) {
  PyTypeObject *t = Py_TYPE(o);
  return t == &PyLong_Type || t == &PyFloat_Type || t == &PyUnicode_Type || t == &PyBool_Type ||
         t == &PyTuple_Type || t == &PyList_Type || t == Py_TYPE(Py_None) ||
         (t == &PyDict_Type && o != PyImport_GetModuleDict());
}
static inline int loop_touch(MgLoop *l, PyObject *o) {
  return l->rec && !loop_plain(o) ? mg_rec_touch(o) : 0;
}
static inline int loop_true(MgLoop *l, PyObject *o) {
  if (o == Py_True) return 1;
  if (o == Py_False || o == Py_None) return 0;
  return l->rec && !loop_plain(o) && mg_rec_touch_keys(o) ? -1 : PyObject_IsTrue(o);
}
static inline PyObject *loop_getattr(MgLoop *l, PyObject *o, PyObject *name) {
  return l->rec ? mg_rec_getattr(o, name) : PyObject_GetAttr(o, name);
}
static inline PyObject *loop_call(MgLoop *l, PyObject *f, PyObject *const *args, size_t nargsf,
                                  PyObject *kwnames) {
  return l->rec ? mg_rec_call(f, args, nargsf, kwnames) : PyObject_Vectorcall(f, args, nargsf, kwnames);
}
/* What a call with narg arguments on the stack calls.  *n: how many it gives, self included. */
static inline PyObject *loop_callee(const MgLoop *l, int narg, int *n) {
  if (MG_CALLABLE_FIRST) {
    *n = narg + (PEEK(narg + 1) != NULL);
    return PEEK(narg + 2);
  }
  *n = narg + (PEEK(narg + 2) != NULL);
  return PEEK(*n + 1);
}
/* Pushes what a call finds below its arguments; steals both.  self may be NULL. */
static inline void loop_push_callee(MgLoop *l, PyObject *f, PyObject *self) {
  bool null_first = !self && !MG_CALLABLE_FIRST;
  PUSH(null_first ? NULL : f);
  PUSH(null_first ? f : self);
}
PyObject *mg_loop_special(MgLoop *l, PyObject *o,
                          const char *name); /* looked up on the type; AttributeError */
#endif
