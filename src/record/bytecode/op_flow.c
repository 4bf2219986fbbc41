/* Instructions that change what runs next: jumps, loops, calls, imports, generators, with, exceptions. */
#include "entry/guard/guard_add.h"
#include "host/python/decode.h"
#include "host/python/hook_mode.h"
#include "host/python/pyobject.h"
#include "record/bytecode/eval_loop.h"
#include "record/bytecode/jump_speculation.h"
#include "record/core/identity.h"
#include "record/core/recording.h"
#include "record/object/finalizers.h"
#include "record/object/wrap.h"

/* ---- jumps ---- */

static MgStep flow_jump_if(MgLoop *l, const MgInstr *in, int cond) {
  if (cond < 0) return STEP_error;
  loop_drop(l, 1, 0);
  if (cond) l->unit = in->target;
  return STEP_next;
}

MgStep mg_op_JUMP(MgLoop *l, const MgInstr *in) {
  l->unit = in->target;
  return STEP_next;
}

MgStep mg_op_JUMP_BACKWARD(MgLoop *l, const MgInstr *in) {
  l->unit = in->target;
  if (!l->rec) return mg_pyframe_pending(l->ts) ? STEP_error : STEP_next;
  mg_pyframe_give_way(l->ts);
  return STEP_next;
}

/* The truth of the condition of a jump that is taken when it is `taken`. */
static int flow_truth(MgLoop *l, const MgInstr *in, bool taken) {
  bool yes = false;
  int known = l->rec ? mg_claim_truth(l, in, TOS(), taken, &yes) : 0;
  return known < 0 ? -1 : known ? yes : loop_true(l, TOS());
}

MgStep mg_op_POP_JUMP_IF_TRUE(MgLoop *l, const MgInstr *in) {
  return flow_jump_if(l, in, flow_truth(l, in, true));
}
MgStep mg_op_POP_JUMP_IF_FALSE(MgLoop *l, const MgInstr *in) {
  int t = flow_truth(l, in, false);
  return flow_jump_if(l, in, t < 0 ? -1 : !t);
}
MgStep mg_op_POP_JUMP_IF_NONE(MgLoop *l, const MgInstr *in) { return flow_jump_if(l, in, TOS() == Py_None); }
MgStep mg_op_POP_JUMP_IF_NOT_NONE(MgLoop *l, const MgInstr *in) {
  return flow_jump_if(l, in, TOS() != Py_None);
}

static MgStep flow_jump_or_pop(MgLoop *l, const MgInstr *in, bool want) {
  int t = loop_true(l, TOS());
  if (t < 0) return STEP_error;
  if (t != want) return loop_drop(l, 1, 0);
  l->unit = in->target;
  return STEP_next;
}
MgStep mg_op_JUMP_IF_TRUE_OR_POP(MgLoop *l, const MgInstr *in) { return flow_jump_or_pop(l, in, true); }
MgStep mg_op_JUMP_IF_FALSE_OR_POP(MgLoop *l, const MgInstr *in) { return flow_jump_or_pop(l, in, false); }

MgStep mg_op_GET_ITER(MgLoop *l, const MgInstr *in) { return loop_result(l, 1, loop_iter(l, TOS())); }

MgStep mg_op_FOR_ITER(MgLoop *l, const MgInstr *in) {
  PyObject *v = mg_loop_next(l, TOS());
  if (v) {
    PUSH(v);
    return STEP_next;
  }
  if (PyErr_Occurred() || (l->rec && mg_finalizer_iterator(TOS()))) return STEP_error;
  l->unit = in->target;
  return loop_drop(l, 1, 0);
}

/* ---- calls ---- */

/* Functions that look at the frame they are called from: the outer frame has to
 * show what the recording sees. */
static bool flow_reads_frame(PyObject *fn) {
  static const char *const names[] = {"locals", "vars", "dir", "eval", "exec", "_getframe", "globals"};
  if (!PyCFunction_Check(fn)) return false;
  const char *name = ((PyCFunctionObject *)fn)->m_ml->ml_name;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (!strcmp(name, names[i])) return true;
  return false;
}

static PyObject *flow_call(MgLoop *l, PyObject *fn, PyObject *const *args, size_t nargsf, PyObject *kwnames) {
  MgOuter *o = l->outer;
  if (l->rec && o && o->untouched) {
    /* super() without arguments reads the first slot and the __class__ cell behind our back. */
    bool super = fn == (PyObject *)&PySuper_Type && !PyVectorcall_NARGS(nargsf);
    if (super || flow_reads_frame(fn))
      for (int i = 0; i < l->v.code->co_nlocalsplus && i < o->nslot; i++)
        if ((!super || !i || PyCell_Check(SLOT(i) ? SLOT(i) : Py_None)) && mg_loop_touch_slot(l, i))
          return NULL;
  }
  if (l->rec) l->rec->tail_call = true;
  return loop_call(l, fn, args, nargsf, kwnames);
}

MgStep mg_op_CALL(MgLoop *l, const MgInstr *in) {
  int n;
  PyObject *fn = loop_callee(l, in->arg, &n);
  PyObject *kwnames = in->extra >= 0 ? CO_CONST(in->extra) : NULL;
  size_t npos = (size_t)n - (kwnames ? (size_t)PyTuple_GET_SIZE(kwnames) : 0);
  PyObject *v = flow_call(l, fn, l->sp - n, npos | PY_VECTORCALL_ARGUMENTS_OFFSET, kwnames);
  return loop_result(l, in->arg + 2, v);
}

/* Calls fn(*args, **kw) with a tuple and a dict (or NULL). */
static PyObject *flow_call_ex(MgLoop *l, PyObject *fn, PyObject *args, PyObject *kw) {
  Py_ssize_t npos = PyTuple_GET_SIZE(args), nkw = kw ? PyDict_GET_SIZE(kw) : 0, pos = 0, i = 0;
  PyObject *kwnames = NULL, *key, *value, *v = NULL;
  PyObject **buf = PyMem_New(PyObject *, npos + nkw + 1);
  if (!buf) return PyErr_NoMemory();
  memcpy(buf + 1, ((PyTupleObject *)args)->ob_item, sizeof *buf * (size_t)npos);
  if (nkw && !(kwnames = PyTuple_New(nkw))) goto done;
  while (nkw && PyDict_Next(kw, &pos, &key, &value)) {
    if (!PyUnicode_Check(key)) {
      PyErr_SetString(PyExc_TypeError, "keywords must be strings");
      goto done;
    }
    buf[1 + npos + i] = value;
    PyTuple_SET_ITEM(kwnames, i++, Py_NewRef(key));
  }
  v = flow_call(l, fn, buf + 1, (size_t)npos | PY_VECTORCALL_ARGUMENTS_OFFSET, kwnames);
done:
  Py_XDECREF(kwnames);
  PyMem_Free(buf);
  return v;
}

MgStep mg_op_CALL_FUNCTION_EX(MgLoop *l, const MgInstr *in) {
  int nkw = in->arg & 1;
  PyObject *kw = nkw ? TOS() : NULL, *args = PEEK(1 + nkw), *fn = PEEK(2 + nkw + MG_CALLABLE_FIRST), *tuple,
           *dict = NULL, *v = NULL;
  if (PyTuple_CheckExact(args)) {
    tuple = Py_NewRef(args);
  } else {
    if (!Py_TYPE(args)->tp_iter && !PySequence_Check(args)) {
      PyErr_Format(PyExc_TypeError, "%.200s argument after * must be an iterable, not %.200s",
                   Py_TYPE(fn)->tp_name, Py_TYPE(args)->tp_name);
      return STEP_error;
    }
    PyObject *list = mg_loop_list(l, args);
    tuple = list ? PyList_AsTuple(list) : NULL;
    Py_XDECREF(list);
  }
  if (!tuple) return STEP_error;
  if (kw && PyDict_CheckExact(kw)) {
    dict = Py_NewRef(kw);
  } else if (kw && (loop_touch(l, kw) || !(dict = PyDict_New()) || PyDict_Update(dict, kw))) {
    goto done;
  }
  v = flow_call_ex(l, fn, tuple, dict);
done:
  Py_DECREF(tuple);
  Py_XDECREF(dict);
  return loop_result(l, 3 + nkw, v);
}

/* ---- imports ---- */

static PyObject *flow_import(MgLoop *l, PyObject *name, PyObject *fromlist, PyObject *level) {
  PyObject *import = PyMapping_GetItemString(l->v.builtins, "__import__"), *m = NULL;
  if (!import) return NULL;
  if (!l->rec) {
    PyObject *locals = l->v.locals ? l->v.locals : Py_None,
             *args[] = {NULL, name, l->v.globals, locals, fromlist, level};
    m = PyObject_Vectorcall(import, args + 1, 5 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
    goto done;
  }
  /* Only modules that are there already, or torch's: importing runs their code, once. */
  PyObject *modules = PyImport_GetModuleDict();
  bool absolute = level == Py_None || (PyLong_Check(level) && !PyLong_AsLong(level));
  bool standard =
      PyCFunction_Check(import) && !strcmp(((PyCFunctionObject *)import)->m_ml->ml_name, "__import__");
  bool torchs = PyUnicode_Check(name) && !strncmp(PyUnicode_AsUTF8(name), "torch.", 6);
  if (!standard || (absolute && !torchs && !PyDict_GetItemWithError(modules, name))) {
    mg_rec_break(BK_import, "import of %.100s", PyUnicode_AsUTF8(name));
    goto done;
  }
  MgPause p;
  if (torchs) p = mg_rec_pause();
  m = PyImport_ImportModuleLevelObject(name, l->v.globals, NULL, fromlist,
                                       absolute ? 0
                                                : (int)PyLong_AsLong(level)); /* breaks where it loads one */
  if (torchs) mg_rec_resume(p);
  if (m && absolute) { /* the module of that name may be replaced */
    PyObject *now = PyDict_GetItemWithError(modules, name);
    if (now) mg_guard_dict_key(l->rec->guards, modules, NULL, name, now, false);
  }
  m = loop_wrap(l, m);
done:
  Py_DECREF(import);
  return m;
}

MgStep mg_op_IMPORT_NAME(MgLoop *l, const MgInstr *in) {
  return loop_result(l, 2, flow_import(l, CO_NAME(in->arg), TOS(), PEEK(2)));
}

MgStep mg_op_IMPORT_FROM(MgLoop *l, const MgInstr *in) {
  PyObject *name = CO_NAME(in->arg), *m = TOS(), *v = loop_getattr(l, m, name);
  if (!v && PyErr_ExceptionMatches(PyExc_AttributeError)) {
    /* A submodule in the middle of a circular import is in sys.modules only. */
    mg_clear_if(PyExc_AttributeError);
    PyObject *pkg = PyObject_GetAttrString(m, "__name__");
    PyObject *full = pkg ? PyUnicode_FromFormat("%S.%U", pkg, name) : NULL;
    if (!pkg) mg_clear_as_no();
    v = full ? loop_wrap(l, Py_XNewRef(PyDict_GetItemWithError(PyImport_GetModuleDict(), full))) : NULL;
    if (!v && !PyErr_Occurred()) {
      PyObject *file = PyModule_Check(m) ? PyModule_GetFilenameObject(m) : NULL;
      if (!file) mg_clear_as_no();
      PyErr_Format(PyExc_ImportError,
                   file ? "cannot import name %R from %R (%S)"
                        : "cannot import name %R from %R (unknown location)",
                   name, pkg ? pkg : Py_None, file);
      Py_XDECREF(file);
    }
    Py_XDECREF(pkg);
    Py_XDECREF(full);
  }
  return loop_result(l, 0, v);
}

/* ---- generators ---- */

MgStep mg_op_RETURN_VALUE(MgLoop *l, const MgInstr *in) { return STEP_leave; }
MgStep mg_op_RETURN_CONST(MgLoop *l, const MgInstr *in) { return STEP_leave; }
MgStep mg_op_YIELD_VALUE(MgLoop *l, const MgInstr *in) {
  if (l->rec) mg_compared(TOS()); /* perhaps by C code that makes a set of what comes */
  return STEP_leave;
}
/* CPython has run it before a frame gets here. */
MgStep mg_op_RETURN_GENERATOR(MgLoop *l, const MgInstr *in) { return STEP_unknown; }

MgStep mg_op_GET_YIELD_FROM_ITER(MgLoop *l, const MgInstr *in) {
  if (PyGen_CheckExact(TOS())) return STEP_next;
  if (PyCoro_CheckExact(TOS())) return STEP_unknown; /* legal in coroutines only */
  return loop_result(l, 1, loop_iter(l, TOS()));
}

MgStep mg_op_SEND(MgLoop *l, const MgInstr *in) {
  PyObject *sent = TOS(), *to = PEEK(2), *v = NULL;
  if (l->rec && PyGen_Check(to) && !mg_is_fresh(to)) {
    mg_rec_break(BK_generator, "yield from a generator that is older than the recording");
    return STEP_error;
  }
  PySendResult r;
  if (sent == Py_None && !PyGen_Check(to) && !PyCoro_CheckExact(to) && PyIter_Check(to)) {
    v = l->rec ? mg_rec_next(to) : Py_TYPE(to)->tp_iternext(to);
    r = v ? PYGEN_NEXT : mg_pyframe_stop_value(&v) ? PYGEN_ERROR : PYGEN_RETURN;
  } else {
    r = PyIter_Send(to, sent, &v);
  }
  if (r == PYGEN_ERROR) return STEP_error;
  if (r == PYGEN_NEXT) return loop_result(l, 1, v);
  l->unit = in->target;
  return loop_result(l, 2, v);
}

MgStep mg_op_END_SEND(MgLoop *l, const MgInstr *in) {
  PyObject *v = POP();
  return loop_result(l, 1, v);
}

/* An exception came out of the delegate: StopIteration is its result, anything else goes on. */
MgStep mg_op_CLEANUP_THROW(MgLoop *l, const MgInstr *in) {
  PyObject *exc = TOS();
  if (!PyErr_GivenExceptionMatches(exc, PyExc_StopIteration)) {
    PyErr_Restore(Py_NewRef(Py_TYPE(exc)), Py_NewRef(exc), PyException_GetTraceback(exc));
    return mg_decode_handler(l->code, in->at) || l->rec ? STEP_reraise : STEP_error;
  }
  PyObject *v = Py_NewRef(((PyStopIterationObject *)exc)->value);
  loop_drop(l, 3, 0);
  PUSH(Py_NewRef(Py_None));
  PUSH(v);
  return STEP_next;
}

MgStep mg_op_STOPITERATION_ERROR(MgLoop *l, const MgInstr *in) {
  PyObject *exc = TOS();
  if (l->v.code->co_flags & (CO_COROUTINE | CO_ASYNC_GENERATOR)) return STEP_unknown;
  if (!PyErr_GivenExceptionMatches(exc, PyExc_StopIteration)) return STEP_next;
  PyObject *error = PyObject_CallFunction(PyExc_RuntimeError, "s", "generator raised StopIteration");
  if (!error) return STEP_error;
  PyException_SetCause(error, Py_NewRef(exc));
  PyException_SetContext(error, Py_NewRef(exc));
  return loop_result(l, 1, error);
}

/* ---- with ---- */

PyObject *mg_loop_special(MgLoop *l, PyObject *o, const char *text) {
  PyObject *name = PyUnicode_InternFromString(text), *v = NULL;
  if (!name) return NULL;
  if (l->rec) {
    v = mg_rec_special(o, name);
  } else {
    PyObject *d = mg_pyframe_type_lookup(Py_TYPE(o), name);
    descrgetfunc get = d ? Py_TYPE(d)->tp_descr_get : NULL;
    if (!d) PyErr_SetObject(PyExc_AttributeError, name);
    else v = get ? get(d, o, (PyObject *)Py_TYPE(o)) : Py_NewRef(d);
  }
  Py_DECREF(name);
  return v;
}

static PyObject *flow_context_method(MgLoop *l, PyObject *o, const char *name, const char *note) {
  PyObject *m = mg_loop_special(l, o, name);
  if (!m && PyErr_ExceptionMatches(PyExc_AttributeError))
    PyErr_Format(PyExc_TypeError, "'%.200s' object does not support the context manager protocol%s",
                 Py_TYPE(o)->tp_name, note);
  return m;
}

MgStep mg_op_BEFORE_WITH(MgLoop *l, const MgInstr *in) {
  PyObject *mgr = TOS(), *enter, *leave, *v;
  if (!(enter = flow_context_method(l, mgr, "__enter__", ""))) return STEP_error;
  if (!(leave = flow_context_method(l, mgr, "__exit__", " (missed __exit__ method)"))) {
    Py_DECREF(enter);
    return STEP_error;
  }
  v = loop_call(l, enter, NULL, 0, NULL);
  Py_DECREF(enter);
  if (!v) {
    Py_DECREF(leave);
    return STEP_error;
  }
  loop_result(l, 1, leave);
  PUSH(v);
  return STEP_next;
}

/* From 3.14 on, half of what BEFORE_WITH did: a bound method and NULL, as a call finds them. */
MgStep mg_op_LOAD_SPECIAL(MgLoop *l, const MgInstr *in) {
#if PY_VERSION_HEX >= 0x030E0000
  PyObject *m = mg_loop_special(l, TOS(), in->arg == MG_SPECIAL_ENTER ? "__enter__" : "__exit__");
  if (!m && PyErr_ExceptionMatches(PyExc_AttributeError)) mg_pyframe_special_error(TOS(), in->arg);
  if (!m) return STEP_error;
  loop_drop(l, 1, 0);
  loop_push_callee(l, m, NULL);
  return STEP_next;
#else
  return STEP_unknown;
#endif
}

MgStep mg_op_WITH_EXCEPT_START(MgLoop *l, const MgInstr *in) {
  PyObject *exc = TOS(), *tb = PyException_GetTraceback(exc), *self = MG_EXIT_BELOW > 1 ? PEEK(4) : NULL;
  PyObject *args[] = {NULL, self, (PyObject *)Py_TYPE(exc), exc, tb ? tb : Py_None};
  size_t n = 3 + (self != NULL);
  PyObject *v = loop_call(l, PEEK(3 + MG_EXIT_BELOW), args + 5 - n, n | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
  Py_XDECREF(tb);
  return loop_result(l, 0, v);
}

/* ---- exceptions ---- */

MgStep mg_op_PUSH_EXC_INFO(MgLoop *l, const MgInstr *in) {
  PyObject **handled = mg_pyframe_exc_slot(l->ts), *exc = POP();
  /* A handler that the segment starts in: its exception was raised before. */
  if (!l->at->exc_depth++ && l->at->exc_n < 0) l->at->exc_n = l->at->n;
  PUSH(*handled ? *handled : Py_NewRef(Py_None));
  PUSH(Py_NewRef(exc));
  *handled = exc;
  return STEP_next;
}

MgStep mg_op_POP_EXCEPT(MgLoop *l, const MgInstr *in) {
  if (l->rec && l->outer && !l->outer->exc_depth) {
    mg_rec_break(BK_handler, "the end of an exception handler that was entered before");
    return STEP_error;
  }
  if (l->at->exc_depth && !--l->at->exc_depth) l->at->exc_n = -1;
  Py_XSETREF(*mg_pyframe_exc_slot(l->ts), POP());
  return STEP_next;
}

/* except and except* clauses must name exception classes. */
static int flow_check_clause(PyObject *type, bool star) {
  Py_ssize_t n = PyTuple_Check(type) ? PyTuple_GET_SIZE(type) : 1;
  for (Py_ssize_t i = 0; i < n; i++) {
    PyObject *t = PyTuple_Check(type) ? PyTuple_GET_ITEM(type, i) : type;
    if (!PyExceptionClass_Check(t)) {
      PyErr_SetString(PyExc_TypeError,
                      "catching classes that do not inherit from BaseException is not allowed");
      return -1;
    }
    if (star && PyObject_IsSubclass(t, PyExc_BaseExceptionGroup) == 1) {
      PyErr_SetString(PyExc_TypeError,
                      "catching ExceptionGroup with except* is not allowed. Use except instead.");
      return -1;
    }
  }
  return 0;
}

MgStep mg_op_CHECK_EXC_MATCH(MgLoop *l, const MgInstr *in) {
  if (flow_check_clause(TOS(), false)) return STEP_error;
  return loop_result(l, 1, PyBool_FromLong(PyErr_GivenExceptionMatches(PEEK(2), TOS())));
}

/* Splits the exception into what the clause catches and the rest; a bare
 * exception that matches is wrapped. */
static int flow_split(PyObject *exc, PyObject *type, PyObject **match, PyObject **rest) {
  if (PyObject_IsInstance(exc, PyExc_BaseExceptionGroup) == 1) {
    PyObject *pair = PyObject_CallMethod(exc, "split", "(O)", type);
    if (!pair) return -1;
    *match = Py_NewRef(PyTuple_GET_ITEM(pair, 0));
    *rest = Py_NewRef(PyTuple_GET_ITEM(pair, 1));
    Py_DECREF(pair);
    return 0;
  }
  if (!PyErr_GivenExceptionMatches(exc, type)) {
    *match = Py_NewRef(Py_None);
    *rest = Py_NewRef(exc);
    return 0;
  }
  /* As CPython does: an exception that is not an Exception needs the base kind of group. */
  PyObject *builtins = PyImport_AddModule("builtins"), *group = PyExc_BaseExceptionGroup;
  if (PyObject_IsInstance(exc, PyExc_Exception) == 1)
    group = PyDict_GetItemString(PyModule_GetDict(builtins), "ExceptionGroup");
  *match = group ? PyObject_CallFunction(group, "s[O]", "", exc) : NULL;
  *rest = Py_NewRef(Py_None);
  return *match ? 0 : -1;
}

MgStep mg_op_CHECK_EG_MATCH(MgLoop *l, const MgInstr *in) {
  PyObject *match = NULL, *rest = NULL;
  if (flow_check_clause(TOS(), true) || flow_split(PEEK(2), TOS(), &match, &rest)) {
    Py_XDECREF(rest);
    return STEP_error;
  }
  if (match != Py_None) Py_XSETREF(*mg_pyframe_exc_slot(l->ts), Py_NewRef(match));
  loop_result(l, 2, rest);
  PUSH(match);
  return STEP_next;
}

/* ---- the end of try/except*: what was raised in the clauses, and what is left of the original ---- */

/* Was e raised from the same place as orig, by a bare raise or because no clause took it? */
static bool flow_same_metadata(PyObject *e, PyObject *orig) {
  if (PyObject_IsInstance(e, PyExc_BaseExceptionGroup) != 1) return false;
  PyBaseExceptionObject *a = (PyBaseExceptionObject *)e, *b = (PyBaseExceptionObject *)orig;
  return a->notes == b->notes && a->traceback == b->traceback && a->cause == b->cause &&
         a->context == b->context;
}

/* Adds the ids of the exceptions below o that are no groups. */
static int flow_collect_leaves(PyObject *o, PyObject *ids) {
  if (o == Py_None) return 0;
  if (PyObject_IsInstance(o, PyExc_BaseExceptionGroup) != 1) {
    PyObject *id = PyLong_FromVoidPtr(o);
    int rc = id ? PySet_Add(ids, id) : -1;
    Py_XDECREF(id);
    return rc;
  }
  PyObject *excs = PyObject_GetAttrString(o, "exceptions");
  int rc = excs && PyTuple_Check(excs) ? 0 : -1;
  if (Py_EnterRecursiveCall(" in exception groups")) rc = -1;
  else {
    for (Py_ssize_t i = 0; !rc && i < PyTuple_GET_SIZE(excs); i++)
      rc = flow_collect_leaves(PyTuple_GET_ITEM(excs, i), ids);
    Py_LeaveRecursiveCall();
  }
  Py_XDECREF(excs);
  return rc;
}

/* A group like the given one, with these exceptions. */
static PyObject *flow_regroup(PyObject *group, PyObject *excs) {
  PyObject *r = PyObject_CallMethod(group, "derive", "O", excs);
  if (!r) return NULL;
  if (PyObject_IsInstance(r, PyExc_BaseExceptionGroup) != 1) {
    PyErr_SetString(PyExc_TypeError, "derive must return an instance of BaseExceptionGroup");
    Py_CLEAR(r);
    return NULL;
  }
  PyBaseExceptionObject *from = (PyBaseExceptionObject *)group, *to = (PyBaseExceptionObject *)r;
  Py_XSETREF(to->traceback, Py_XNewRef(from->traceback));
  PyException_SetContext(r, PyException_GetContext(group));
  PyException_SetCause(r, PyException_GetCause(group));
  if (from->notes && PySequence_Check(from->notes)) {
    PyObject *notes = PySequence_List(from->notes);
    if (!notes || PyObject_SetAttrString(r, "__notes__", notes)) Py_CLEAR(r);
    Py_XDECREF(notes);
  }
  return r;
}

/* The part of a group whose leaves are among ids, or None. */
static PyObject *flow_project(PyObject *group, PyObject *ids) {
  PyObject *excs = PyObject_GetAttrString(group, "exceptions"), *kept = PyList_New(0), *r = NULL;
  if (!excs || !PyTuple_Check(excs) || !kept || Py_EnterRecursiveCall(" in exception groups")) goto done;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(excs); i++) {
    PyObject *e = PyTuple_GET_ITEM(excs, i), *part;
    if (PyObject_IsInstance(e, PyExc_BaseExceptionGroup) == 1) {
      part = flow_project(e, ids);
    } else {
      PyObject *id = PyLong_FromVoidPtr(e);
      part = Py_NewRef(id && PySet_Contains(ids, id) > 0 ? e : Py_None);
      Py_XDECREF(id);
    }
    int rc = !part || (part != Py_None && PyList_Append(kept, part)) ? -1 : 0;
    Py_XDECREF(part);
    if (rc) goto leave;
  }
  r = PyList_GET_SIZE(kept) ? flow_regroup(group, kept) : Py_NewRef(Py_None);
leave:
  Py_LeaveRecursiveCall();
done:
  Py_XDECREF(excs);
  Py_XDECREF(kept);
  return r;
}

/* What the exceptions of keep, all taken from the group, leave of it. */
static PyObject *flow_still_raised(PyObject *group, PyObject *keep) {
  PyObject *ids = PySet_New(NULL), *r = NULL;
  for (Py_ssize_t i = 0; ids && i < PyList_GET_SIZE(keep); i++)
    if (flow_collect_leaves(PyList_GET_ITEM(keep, i), ids)) Py_CLEAR(ids);
  if (ids) r = PySet_GET_SIZE(ids) ? flow_project(group, ids) : Py_NewRef(Py_None);
  Py_XDECREF(ids);
  return r;
}

static PyObject *flow_prep_reraise(PyObject *orig, PyObject *excs) {
  if (!PyList_GET_SIZE(excs)) return Py_NewRef(Py_None);
  if (PyObject_IsInstance(orig, PyExc_BaseExceptionGroup) != 1) return Py_NewRef(PyList_GET_ITEM(excs, 0));
  PyObject *raised = PyList_New(0), *again = PyList_New(0), *rest = NULL, *r = NULL;
  if (!raised || !again) goto done;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(excs); i++) {
    PyObject *e = PyList_GET_ITEM(excs, i);
    if (e != Py_None && PyList_Append(flow_same_metadata(e, orig) ? again : raised, e)) goto done;
  }
  if (!(rest = flow_still_raised(orig, again))) goto done;
  if (!PyList_GET_SIZE(raised)) r = Py_NewRef(rest);
  else if (rest != Py_None && PyList_Append(raised, rest)) goto done;
  else if (PyList_GET_SIZE(raised) > 1) r = PyObject_CallFunction(PyExc_BaseExceptionGroup, "sO", "", raised);
  else r = Py_NewRef(PyList_GET_ITEM(raised, 0));
done:
  Py_XDECREF(raised);
  Py_XDECREF(again);
  Py_XDECREF(rest);
  return r;
}

MgStep mg_op_PREP_RERAISE_STAR(MgLoop *l, const MgInstr *in) {
  return loop_result(l, 2, flow_prep_reraise(PEEK(2), TOS()));
}

/* Without a handler here CPython executes the instruction itself, so that the
 * traceback gets no second entry. */
MgStep mg_op_RERAISE(MgLoop *l, const MgInstr *in) {
  bool inlined = l->rec && !l->outer;
  if (!mg_decode_handler(l->code, in->at) && (inlined || !l->rec)) return STEP_leave;
  if (in->arg) {
    long unit = PyLong_AsLong(PEEK(in->arg + 1));
    if (unit == -1 && PyErr_Occurred()) return STEP_error;
    mg_pyframe_set_at(l->f, (int)unit); /* where it was raised first */
  }
  PyObject *exc = POP();
  PyErr_Restore(Py_NewRef(Py_TYPE(exc)), exc, PyException_GetTraceback(exc));
  return STEP_reraise;
}

/* An instance for `raise C` and `raise ... from C`; steals o. */
static PyObject *flow_exception(MgLoop *l, PyObject *o, const char *what) {
  if (PyExceptionClass_Check(o)) {
    PyObject *e = loop_call(l, o, NULL, 0, NULL);
    if (e && !PyExceptionInstance_Check(e)) {
      PyErr_Format(PyExc_TypeError, "calling %R should have returned an instance of BaseException, not %R", o,
                   Py_TYPE(e));
      Py_CLEAR(e);
    }
    Py_DECREF(o);
    return e;
  }
  if (PyExceptionInstance_Check(o)) return o;
  PyErr_SetString(PyExc_TypeError, what);
  Py_DECREF(o);
  return NULL;
}

MgStep mg_op_RAISE_VARARGS(MgLoop *l, const MgInstr *in) {
  if (!in->arg) {
    PyObject *exc = mg_pyframe_handled(l->ts);
    if (!exc) {
      PyErr_SetString(PyExc_RuntimeError, "No active exception to reraise");
      return STEP_error;
    }
    if (l->rec && exc == l->rec->handled) { /* a run gets another one */
      mg_rec_break(BK_older_exception, "raises an older %s again", Py_TYPE(exc)->tp_name);
      return STEP_error;
    }
    if (!mg_decode_handler(l->code, in->at) && !(l->rec && l->outer)) return STEP_leave;
    PyErr_Restore(Py_NewRef(Py_TYPE(exc)), Py_NewRef(exc), PyException_GetTraceback(exc));
    return STEP_reraise;
  }
  if (l->rec && PyExceptionInstance_Check(PEEK(in->arg)) &&
      mg_older(PEEK(in->arg))) { /* its context, cause and traceback are about to change */
    mg_rec_break(BK_older_exception, "raises an older %s", Py_TYPE(PEEK(in->arg))->tp_name);
    return STEP_error;
  }
  PyObject *cause = in->arg == 2 ? POP() : NULL;
  PyObject *exc = flow_exception(l, POP(), "exceptions must derive from BaseException");
  if (exc && cause == Py_None) {
    Py_CLEAR(cause);
    PyException_SetCause(exc, NULL);
  } else if (exc && cause) {
    cause = flow_exception(l, cause, "exception causes must derive from BaseException");
    if (cause) PyException_SetCause(exc, cause); /* steals */
    else Py_CLEAR(exc);
    cause = NULL;
  }
  Py_XDECREF(cause);
  if (!exc) return STEP_error;
  PyErr_SetObject((PyObject *)Py_TYPE(exc), exc);
  Py_DECREF(exc);
  return STEP_error;
}
