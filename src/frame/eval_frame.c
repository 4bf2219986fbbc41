/* The PEP 523 hook.
 * In: every frame that starts while some thread handles a miss.  Out: recorded (eval_loop.c), driven
 * (frame_driver.c), or CPython.
 * The hook is installed for the interpreter, so what it does is decided per thread; it chains
 * to the function it found. */
#include "frame/eval_frame.h"
#include "base/memory_room.h"
#include "entry/launch/config.h"
#include "frame/frame_driver.h"
#include "host/python/pyobject.h"
#include "host/python/decode.h"
#include "host/python/names.h"
#include "host/python/trace_rules.h"
#include "host/torch/torch_state.h"
#include "record/bytecode/inlined_frame.h"

static _Thread_local const MgConfig *hook_cfg;
static _Thread_local PyCodeObject *hook_root;
static _Thread_local PyObject
    *hook_skip_next;   /* the function whose next frame is not compiled; borrowed from its wrapper */
static int hook_users; /* calls inside mg_hook_enter, of all threads; under the GIL */
static _Thread_local int hook_mine; /* of this one */
static MgEvalFunc hook_below;       /* what was installed before us */

/* disable(recursive=False): the function itself runs as written, what it calls is compiled. */
static bool hook_is_skipped(MgFrame *f) {
  PyObject *d = ((PyFunctionObject *)mg_pyframe_func(f))->func_dict;
  return d && PyDict_GetItemWithError(d, mg_names.torchdynamo_disable) == Py_True;
}

/* The function behind torch's wrapper of a disabled one.  Borrowed. */
static PyObject *hook_wrapped(MgFrame *f) {
  PyObject *d = ((PyFunctionObject *)mg_pyframe_func(f))->func_dict;
  PyObject *fn = d ? PyDict_GetItemWithError(d, mg_names.orig_callable) : NULL;
  return fn && PyMethod_Check(fn) ? PyMethod_GET_FUNCTION(fn) : fn;
}

static bool hook_compiles(PyThreadState *ts, MgFrame *f, int throwflag) {
  PyCodeObject *co = mg_pyframe_code(f);
  bool root = co == hook_root;
  if (root) hook_root = NULL;
  if (hook_skip_next && mg_pyframe_func(f) == hook_skip_next) {
    hook_skip_next = NULL;
    return false;
  }
  if (throwflag || !(co->co_flags & CO_OPTIMIZED)) return false;
  if (co->co_flags & (CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR)) return false;
  if (!hook_cfg || hook_cfg->disable || mg_pyframe_traced(ts)) return false;
  PyFunctionObject *fn = (PyFunctionObject *)mg_pyframe_func(f);
  if (!PyDict_CheckExact(fn->func_globals) || !PyDict_CheckExact(fn->func_builtins))
    return false;                           /* names are looked up by their methods */
  if (mg_state_jit_tracing()) return false; /* it has to see the ops, and would see those of the recording */
  return (root || !mg_skip_compile(co)) && !hook_is_skipped(f);
}

/* What was installed before us, or CPython itself when that came back to us with the same frame: torch's own
 * compiler may have been put below us and above us at the same time. */
static PyObject *hook_default(PyThreadState *ts, MgFrame *f, int throwflag) {
  static _Thread_local MgFrame *passing;
  if (hook_below == _PyEval_EvalFrameDefault || passing == f) return mg_pyframe_run(ts, f, throwflag);
  MgFrame *outer = passing;
  passing = f;
  PyObject *r = hook_below(ts, f, throwflag);
  passing = outer;
  return r;
}

/* Imports and torch's own machinery run as they are, with everything they call: compiling the set-up of a
 * library that a program happens to import would cost more than it could ever give. */
static PyObject *hook_run_opaque(PyThreadState *ts, MgFrame *f, int throwflag) {
  MgHookMode mode = mg_hook_mode;
  mg_hook_mode = HOOK_off;
  PyObject *r = hook_default(ts, f, throwflag);
  mg_hook_mode = mode;
  return r;
}

static PyObject *hook_eval(PyThreadState *ts, MgFrame *f, int throwflag);

/* Deep recursion, or a limit that leaves no room to compile: without a hook CPython calls Python functions on
 * no C stack. What other threads start in the meantime is not compiled. */
static PyObject *hook_run_bare(PyThreadState *ts, MgFrame *f, int throwflag) {
  bool ours = mg_pyframe_eval_func() == hook_eval;
  if (ours) mg_pyframe_set_eval_func(hook_below);
  PyObject *r = hook_default(ts, f, throwflag);
  if (ours && hook_users && mg_pyframe_eval_func() == hook_below) mg_pyframe_set_eval_func(hook_eval);
  return r;
}

/* The unit of the first `return None` of a function; -1: there is none. */
static int hook_find_return(PyCodeObject *co) {
  MgCode *c = mg_decode(co);
  int found = -1;
  for (int i = 0; c && i < c->n && found < 0; i = mg_decode_after(c, i)) {
    const MgInstr *in = &c->instr[i];
    bool returns = in->op == BC_RETURN_CONST ||
                   (in->op == BC_LOAD_CONST && in->next < c->n && c->instr[in->next].op == BC_RETURN_VALUE);
    if (returns && mg_decode_constant(in, co) == Py_None) found = i;
  }
  mg_decode_free(c);
  PyErr_Clear(); /* out of memory: the function runs as it is */
  return found;
}

/* torch._check_with(error, True, message), which torch's kernels in Python call to check their arguments,
 * imports sympy before it looks: a second for the first call of such an operator.
 * The unit to go on at, or -1. */
static int hook_true_check(MgFrame *f) {
  static PyCodeObject *code;
  static int unit = -1;
  PyCodeObject *co = mg_pyframe_code(f);
  if (!mg_torch.check_with || co != (PyCodeObject *)PyFunction_GET_CODE(mg_torch.check_with)) return -1;
  if (co != code) unit = hook_find_return(co), code = co;
  return co->co_argcount > 1 && mg_pyframe_peek(f, 1) == Py_True && !mg_pyframe_next(f) ? unit : -1;
}

static PyObject *hook_eval(PyThreadState *ts, MgFrame *f, int throwflag) {
  if (mg_hook_mode != HOOK_record && (mg_stack_low() || mg_pyframe_near_limit(ts)) &&
      !mg_resume_is_waiting(f))
    return hook_run_bare(ts, f, throwflag);
  switch (mg_hook_mode) {
  case HOOK_record: return mg_record_frame(ts, f, throwflag);
  case HOOK_compile:
    if (mg_resume_is_waiting(f)) return mg_resume_frame(ts, f, hook_cfg, true);
    if (mg_skip_packed(f)) return hook_run_opaque(ts, f, throwflag);
    if (hook_compiles(ts, f, throwflag)) return mg_resume_frame(ts, f, hook_cfg, false);
    if (mg_skip_wrapper(mg_pyframe_code(f))) {
      hook_skip_next = hook_wrapped(f);
      break;
    }
    if (mg_skip_opaque(mg_pyframe_code(f))) return hook_run_opaque(ts, f, throwflag);
    break;
  case HOOK_off: {
    int unit = throwflag ? -1 : hook_true_check(f);
    if (unit >= 0) return mg_pyframe_run_at(ts, f, unit);
    break;
  }
  }
  return hook_default(ts, f, throwflag);
}

/* Another tool may have installed its own in the meantime; then ours stays below it, and does nothing. */
static void hook_remove(void) {
  if (mg_pyframe_eval_func() == hook_eval) mg_pyframe_set_eval_func(hook_below);
}

MgHookState mg_hook_enter(const MgConfig *cfg, PyCodeObject *root) {
  MgHookState before = {mg_hook_mode, hook_cfg, hook_root};
  if (!hook_users++) {
    hook_below = mg_pyframe_eval_func();
    mg_pyframe_set_eval_func(hook_eval);
  }
  hook_mine++;
  mg_hook_mode = HOOK_compile;
  hook_cfg = cfg;
  hook_root = root;
  return before;
}

void mg_hook_leave(MgHookState before) {
  mg_hook_mode = before.mode;
  hook_cfg = before.cfg;
  hook_root = before.root;
  hook_mine--;
  if (!--hook_users) hook_remove();
}

/* The threads that had the hook on in the parent are gone. */
static PyObject *hook_after_fork(PyObject *self, PyObject *unused) {
  bool others = hook_users > hook_mine;
  hook_users = hook_mine;
  if (others && !hook_users) hook_remove();
  Py_RETURN_NONE;
}
static PyMethodDef hook_fork_def = {"after_fork", hook_after_fork, METH_NOARGS, NULL};

int mg_hook_init(PyObject *module) { return mg_after_fork(&hook_fork_def); }
