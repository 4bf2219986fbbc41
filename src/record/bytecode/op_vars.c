/* Instructions that move values: locals, cells, constants, globals, names, the stack. */
#include "record/bytecode/op_vars.h"
#include "entry/guard/guard_add.h"
#include "entry/guard/source.h"
#include "host/python/decode.h"
#include "host/python/hook_mode.h"
#include "host/python/names.h"
#include "host/python/pyobject.h"
#include "record/bytecode/eval_loop.h"
#include "record/core/capture.h"
#include "record/core/identity.h"
#include "record/core/recording.h"
#include "record/object/finalizers.h"
#include "record/object/fresh.h"
#include "record/object/namespaces.h"
#include "record/object/wrap.h"

static MgStep var_name_error(PyObject *type, const char *fmt, PyObject *name) {
  PyErr_Format(type, fmt, name);
  if (type != PyExc_NameError) return STEP_error;
  /* The name makes CPython's "did you mean" possible. */
  PyObject *t, *e, *tb;
  PyErr_Fetch(&t, &e, &tb);
  PyErr_NormalizeException(&t, &e, &tb);
  if (e && PyObject_SetAttrString(e, "name", name)) PyErr_Clear(); /* the error goes without the name */
  PyErr_Restore(t, e, tb);
  return STEP_error;
}

static PyObject *var_slot_name(MgLoop *l, int i) {
  return PyTuple_GET_ITEM(l->v.code->co_localsplusnames, i);
}

MgStep mg_op_UNKNOWN(MgLoop *l, const MgInstr *in) { return STEP_unknown; }
MgStep mg_op_NOP(MgLoop *l, const MgInstr *in) { return STEP_next; }

/* A tuple of the caller that is loaded for one item at a constant index, args[1]: that item alone is looked
 * at, and what the instructions until then see in the place of the tuple holds nothing else.  1: pushed; 0:
 * not this case; -1 with exception. */
static int var_load_for_item(MgLoop *l, int i) {
  PyObject *v = SLOT(i);
  if (!l->rec || !l->rec->guards || mg_force_break || !l->outer->untouched || i >= l->outer->nslot ||
      !l->outer->untouched[i])
    return 0;
  if (!v || !PyTuple_CheckExact(v) || mg_map_getp(&l->rec->ident->by_orig, v) != MG_MAP_NONE) return 0;
  const MgInstr *index = &l->code->instr[l->unit];
  if (index->op != BC_LOAD_CONST || l->code->instr[index->next].op != BC_BINARY_SUBSCR ||
      !PyLong_CheckExact(mg_decode_constant(index, l->v.code)))
    return 0;
  Py_ssize_t n = PyTuple_GET_SIZE(v), k = PyLong_AsSsize_t(mg_decode_constant(index, l->v.code));
  if (k == -1 && PyErr_Occurred()) return mg_clear_as_no(), 0;
  if (k < 0) k += n;
  if (k < 0 || k >= n) return 0;
  SrcRef src = mg_src_slot(l->outer->base + i);
  mg_guard_add(l->rec->guards, GK_length, src, (PyObject *)&PyTuple_Type, n);
  PyObject *c = PyTuple_New(n), *w = c ? mg_wrap(PyTuple_GET_ITEM(v, k),
                                                 mg_source(l->rec->guards, SRC_item, src, (int32_t)k, NULL))
                                       : NULL;
  for (Py_ssize_t j = 0; w && j < n; j++) PyTuple_SET_ITEM(c, j, j == k ? w : Py_NewRef(Py_None));
  if (!w) return Py_XDECREF(c), -1;
  PUSH(c);
  return 1;
}

MgStep mg_op_LOAD_FAST(MgLoop *l, const MgInstr *in) {
  int one = l->outer ? var_load_for_item(l, in->arg) : 0;
  if (one) return one < 0 ? STEP_error : STEP_next;
  if (l->outer && mg_loop_touch_slot(l, in->arg)) return STEP_error;
  PyObject *v = SLOT(in->arg);
  if (!v)
    return var_name_error(PyExc_UnboundLocalError,
                          "cannot access local variable '%U' where it is not associated with a value",
                          var_slot_name(l, in->arg));
  if (l->rec && l->rec->ident->nlazy && mg_older_look(v)) return STEP_error;
  PUSH(Py_NewRef(v));
  return STEP_next;
}

MgStep mg_op_LOAD_FAST_AND_CLEAR(MgLoop *l, const MgInstr *in) {
  if (l->outer && mg_loop_touch_slot(l, in->arg)) return STEP_error;
  PUSH(SLOT(in->arg)); /* may be NULL */
  SLOT(in->arg) = NULL;
  return STEP_next;
}

/* The slot is about to be overwritten: its old value needs no guard. */
static void var_forget(MgLoop *l, int i) {
  if (l->outer && l->outer->untouched && i < l->outer->nslot) l->outer->untouched[i] = false;
}

/* A local variable loses its value.  Only what the frame had in its slots at the start can die with it:
 * whatever else is older, another older object holds.  Modules belong to somebody else. */
static bool var_drops_slot(const MgLoop *l, int i, PyObject *old) {
  if (!l->outer || i >= l->outer->nslot) return false;
  bool untouched = l->outer->untouched && l->outer->untouched[i];
  if (untouched) mg_guard_add(mg_rec->guards, GK_quiet_slot, 0, NULL, l->outer->base + i);
  if (!old || PyObject_TypeCheck(old, mg_torch.module)) return false;
  if (untouched) return Py_REFCNT(old) <= 2 && mg_rec_finalizes(old); /* its frame, the segment */
  const MgOlder *e = mg_older(old);
  return e && e->src && mg_rec->guards->src[e->src].kind == SRC_slot && mg_rec_finalizes(old);
}

/* mg_rec_finalizes, without looking into it, or, with deleted, of one that is watched by weak references. */
static bool var_finalizes(PyObject *old, bool deleted) {
  if (mg_end_runs_code(old) && mg_rec_finalizes(old)) return true;
  if (!deleted || !old || !(Py_TYPE(old)->tp_flags & Py_TPFLAGS_HEAPTYPE) || mg_standin_check(old))
    return false;
  if (PyObject_TypeCheck(old, mg_torch.module) || PyObject_TypeCheck(old, mg_torch.tensor)) return false;
  if (!PyType_SUPPORTS_WEAKREFS(Py_TYPE(old)) ||
      !*(PyObject **)((char *)old + Py_TYPE(old)->tp_weaklistoffset))
    return false;
  mg_rec_break(BK_weak_reference, "a %s with weak references is deleted", Py_TYPE(old)->tp_name);
  return true;
}

/* The same for what a list or tuple that goes out of use holds. */
static bool var_finalizes_items(PyObject *old) {
  if (Py_REFCNT(old) > 1 || !(PyList_CheckExact(old) || PyTuple_CheckExact(old))) return false;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(old); i++)
    if (var_finalizes(PySequence_Fast_GET_ITEM(old, i), true)) return true;
  return false;
}

MgStep mg_op_STORE_FAST(MgLoop *l, const MgInstr *in) {
  if (l->rec && (var_finalizes(SLOT(in->arg), false) || var_drops_slot(l, in->arg, SLOT(in->arg))))
    return STEP_error;
  var_forget(l, in->arg);
  PyObject *old = SLOT(in->arg);
  SLOT(in->arg) = POP();
  Py_XDECREF(old);
  return STEP_next;
}

MgStep mg_op_DELETE_FAST(MgLoop *l, const MgInstr *in) {
  PyObject *old = SLOT(in->arg);
  MgOuter *o = l->outer;
  if (o && o->untouched && in->arg < o->nslot &&
      o->untouched[in->arg]) { /* only whether it is bound matters */
    if (old) mg_src_slot(o->base + in->arg);
    else if (mg_loop_touch_slot(l, in->arg)) return STEP_error;
  }
  if (!old)
    return var_name_error(PyExc_UnboundLocalError,
                          "cannot access local variable '%U' where it is not associated with a value",
                          var_slot_name(l, in->arg));
  if (l->rec && (var_finalizes(old, true) || var_finalizes_items(old) || var_drops_slot(l, in->arg, old)))
    return STEP_error;
  var_forget(l, in->arg);
  SLOT(in->arg) = NULL;
  Py_DECREF(old);
  return STEP_next;
}

MgStep mg_op_MAKE_CELL(MgLoop *l, const MgInstr *in) {
  if (l->outer && mg_loop_touch_slot(l, in->arg)) return STEP_error;
  PyObject *old = SLOT(in->arg), *cell = PyCell_New(old);
  if (!cell) return STEP_error;
  var_forget(l, in->arg);
  SLOT(in->arg) = cell;
  Py_XDECREF(old);
  if (l->rec) mg_fresh(cell);
  return STEP_next;
}

MgStep mg_op_COPY_FREE_VARS(MgLoop *l, const MgInstr *in) {
  PyObject *closure = ((PyFunctionObject *)l->v.func)->func_closure;
  int first = l->v.code->co_nlocalsplus - in->arg;
  for (int i = 0; i < in->arg; i++) {
    PyObject *cell = PyTuple_GET_ITEM(closure, i);
    cell = !l->rec    ? Py_NewRef(cell)
           : l->outer ? mg_wrap(cell, mg_src_closure(i))
                      : mg_rec_closure_cell(l->v.func, i);
    if (!cell) return STEP_error;
    var_forget(l, first + i);
    Py_XSETREF(SLOT(first + i), cell);
  }
  return STEP_next;
}

static MgStep var_unbound_cell(MgLoop *l, int i) {
  bool is_free = i >= l->v.code->co_nlocalsplus - l->v.code->co_nfreevars;
  if (!is_free)
    return var_name_error(PyExc_UnboundLocalError,
                          "cannot access local variable '%U' where it is not associated with a value",
                          var_slot_name(l, i));
  return var_name_error(
      PyExc_NameError,
      "cannot access free variable '%U' where it is not associated with a value in enclosing scope",
      var_slot_name(l, i));
}

/* The cell in slot i (borrowed), wrapped when it is the outer frame's own; NULL with exception. */
static PyObject *var_cell(MgLoop *l, int i) {
  if (l->outer && mg_loop_touch_slot(l, i)) return NULL;
  return SLOT(i);
}

MgStep mg_op_LOAD_DEREF(MgLoop *l, const MgInstr *in) {
  PyObject *cell = var_cell(l, in->arg);
  if (!cell) return STEP_error;
  PyObject *v = PyCell_GET(cell);
  if (!v) return var_unbound_cell(l, in->arg);
  if (l->rec && l->rec->ident->nlazy && mg_older_look(v)) return STEP_error;
  PUSH(Py_NewRef(v));
  return STEP_next;
}

/* A class body looks into its namespace before the enclosing function. */
static MgStep var_load_class_cell(MgLoop *l, PyObject *ns, int i, int drop) {
  PyObject *v = PyObject_GetItem(ns, var_slot_name(l, i));
  if (!v) {
    if (!PyErr_ExceptionMatches(PyExc_KeyError)) return STEP_error;
    mg_clear_if(PyExc_KeyError);
    PyObject *cell = var_cell(l, i);
    if (!cell) return STEP_error;
    v = Py_XNewRef(PyCell_GET(cell));
    if (!v) return var_unbound_cell(l, i);
    if (l->rec && l->rec->ident->nlazy && mg_older_look(v)) return STEP_error;
  }
  return loop_result(l, drop, v);
}

MgStep mg_op_LOAD_CLASSDEREF(MgLoop *l, const MgInstr *in) {
  return var_load_class_cell(l, l->v.locals, in->arg, 0);
}
MgStep mg_op_LOAD_FROM_DICT_OR_DEREF(MgLoop *l, const MgInstr *in) {
  return var_load_class_cell(l, TOS(), in->arg, 1);
}

MgStep mg_op_STORE_DEREF(MgLoop *l, const MgInstr *in) {
  PyObject *cell = var_cell(l, in->arg);
  if (!cell) return STEP_error;
  PyObject *old = PyCell_GET(cell);
  if (l->rec && (var_finalizes(old, false) || (mg_older(cell) && mg_rec_finalizes(old)))) return STEP_error;
  PyCell_SET(cell, POP());
  Py_XDECREF(old);
  return STEP_next;
}

MgStep mg_op_DELETE_DEREF(MgLoop *l, const MgInstr *in) {
  PyObject *cell = var_cell(l, in->arg);
  if (!cell) return STEP_error;
  PyObject *old = PyCell_GET(cell);
  if (!old) return var_unbound_cell(l, in->arg);
  if (l->rec &&
      (var_finalizes(old, true) || var_finalizes_items(old) || (mg_older(cell) && mg_rec_finalizes(old))))
    return STEP_error;
  PyCell_SET(cell, NULL);
  Py_DECREF(old);
  return STEP_next;
}

MgStep mg_op_LOAD_CONST(MgLoop *l, const MgInstr *in) {
  PUSH(Py_NewRef(mg_decode_constant(in, l->v.code)));
  return STEP_next;
}

/* ---- globals and names ---- */

/* New reference; NULL with NameError or another exception. */
static PyObject *var_global(MgLoop *l, PyObject *name) {
  bool exact = PyDict_CheckExact(l->v.globals);
  if (l->rec) {
    if (!exact) return mg_rec_break(BK_namespace, "globals in a %s", Py_TYPE(l->v.globals)->tp_name);
    PyObject *seen = mg_rec_load_global(l->v.globals, l->v.builtins, name);
    if (!seen && !l->rec->abort && PyErr_ExceptionMatches(PyExc_NameError))
      var_name_error(PyExc_NameError, "name '%U' is not defined", name);
    return seen;
  }
  PyObject *v =
      exact ? Py_XNewRef(PyDict_GetItemWithError(l->v.globals, name)) : PyObject_GetItem(l->v.globals, name);
  if (v) return v;
  if (!exact) mg_clear_if(PyExc_KeyError);
  if (PyErr_Occurred()) return NULL;
  if (PyDict_CheckExact(l->v.builtins)) {
    v = PyDict_GetItemWithError(l->v.builtins, name);
    if (v) return Py_NewRef(v);
  } else {
    v = PyObject_GetItem(l->v.builtins, name);
    if (v) return v;
    mg_clear_if(PyExc_KeyError);
  }
  if (!PyErr_Occurred()) var_name_error(PyExc_NameError, "name '%U' is not defined", name);
  return NULL;
}

MgStep mg_op_LOAD_GLOBAL(MgLoop *l, const MgInstr *in) {
  PyObject *v = var_global(l, CO_NAME(in->arg));
  if (!v) return STEP_error;
  if (in->flag) loop_push_callee(l, v, NULL);
  else PUSH(v);
  return STEP_next;
}

MgStep mg_op_STORE_GLOBAL(MgLoop *l, const MgInstr *in) {
  int rc = l->rec ? mg_rec_store_global(l->v.globals, CO_NAME(in->arg), TOS())
                  : PyDict_SetItem(l->v.globals, CO_NAME(in->arg), TOS());
  return loop_drop(l, 1, rc);
}

MgStep mg_op_DELETE_GLOBAL(MgLoop *l, const MgInstr *in) {
  PyObject *name = CO_NAME(in->arg);
  int rc = l->rec ? mg_rec_store_global(l->v.globals, name, NULL) : PyDict_DelItem(l->v.globals, name);
  if (rc < 0 && PyErr_ExceptionMatches(PyExc_KeyError))
    return var_name_error(PyExc_NameError, "name '%U' is not defined", name);
  return rc < 0 ? STEP_error : STEP_next;
}

/* Class bodies: the namespace was made by __prepare__ while recording, so it is read and written for real. */
static MgStep var_load_name(MgLoop *l, PyObject *ns, PyObject *name, int drop) {
  PyObject *v = ns ? PyObject_GetItem(ns, name) : NULL;
  if (!v && PyErr_Occurred()) {
    if (!PyErr_ExceptionMatches(PyExc_KeyError)) return STEP_error;
    mg_clear_if(PyExc_KeyError);
  }
  return loop_result(l, drop, v ? v : var_global(l, name));
}

MgStep mg_op_LOAD_NAME(MgLoop *l, const MgInstr *in) {
  return var_load_name(l, l->v.locals, CO_NAME(in->arg), 0);
}
MgStep mg_op_LOAD_FROM_DICT_OR_GLOBALS(MgLoop *l, const MgInstr *in) {
  return var_load_name(l, TOS(), CO_NAME(in->arg), 1);
}

MgStep mg_op_STORE_NAME(MgLoop *l, const MgInstr *in) {
  if (!l->v.locals) {
    PyErr_Format(PyExc_SystemError, "no locals found when storing %R", CO_NAME(in->arg));
    return STEP_error;
  }
  return loop_drop(l, 1, PyObject_SetItem(l->v.locals, CO_NAME(in->arg), TOS()));
}

MgStep mg_op_DELETE_NAME(MgLoop *l, const MgInstr *in) {
  if (!l->v.locals || PyObject_DelItem(l->v.locals, CO_NAME(in->arg)))
    return var_name_error(PyExc_NameError, "name '%U' is not defined", CO_NAME(in->arg));
  return STEP_next;
}

MgStep mg_op_LOAD_LOCALS(MgLoop *l, const MgInstr *in) {
  if (!l->v.locals) {
    PyErr_SetString(PyExc_SystemError, "no locals");
    return STEP_error;
  }
  PUSH(Py_NewRef(l->v.locals));
  return STEP_next;
}

MgStep mg_op_SETUP_ANNOTATIONS(MgLoop *l, const MgInstr *in) {
  PyObject *name = PyUnicode_InternFromString("__annotations__"), *have = NULL, *fresh = NULL;
  MgStep step = STEP_error;
  if (!name || !l->v.locals) goto done;
  have = PyObject_GetItem(l->v.locals, name);
  if (!have) {
    if (!PyErr_ExceptionMatches(PyExc_KeyError)) goto done;
    mg_clear_if(PyExc_KeyError);
    fresh = PyDict_New();
    if (!fresh || PyObject_SetItem(l->v.locals, name, fresh)) goto done;
  }
  step = STEP_next;
done:
  Py_XDECREF(name);
  Py_XDECREF(have);
  Py_XDECREF(fresh);
  return step;
}

static MgStep var_builtin(MgLoop *l, const char *text) {
  PyObject *name = PyUnicode_InternFromString(text);
  PyObject *v = name ? PyObject_GetItem(l->v.builtins, name) : NULL;
  Py_XDECREF(name);
  if (!v) {
    PyErr_Format(PyExc_NameError, "%s not found", text);
    return STEP_error;
  }
  PUSH(v);
  return STEP_next;
}
MgStep mg_op_LOAD_BUILD_CLASS(MgLoop *l, const MgInstr *in) { return var_builtin(l, "__build_class__"); }

MgStep mg_op_LOAD_ASSERTION_ERROR(MgLoop *l, const MgInstr *in) {
  PUSH(Py_NewRef(PyExc_AssertionError));
  return STEP_next;
}

MgStep mg_op_LOAD_COMMON_CONSTANT(MgLoop *l, const MgInstr *in) {
#if PY_VERSION_HEX >= 0x030E0000
  return loop_result(l, 0, mg_pyframe_common_constant(in->arg));
#else
  return STEP_unknown;
#endif
}

/* ---- the stack ---- */

/* Breaking out of a loop drops its iterator. */
MgStep mg_op_POP_TOP(MgLoop *l, const MgInstr *in) {
  bool iterator = l->rec && TOS() && PyIter_Check(TOS());
  if (iterator && (var_finalizes(TOS(), false) || mg_finalizer_iterator(TOS()))) return STEP_error;
  return loop_drop(l, 1, 0);
}
MgStep mg_op_POP_TWO(MgLoop *l, const MgInstr *in) { return loop_drop(l, 2, 0); }

MgStep mg_op_PUSH_NULL(MgLoop *l, const MgInstr *in) {
  PUSH(NULL);
  return STEP_next;
}

MgStep mg_op_COPY(MgLoop *l, const MgInstr *in) {
  PyObject *v = PEEK(in->arg);
  PUSH(Py_XNewRef(v));
  return STEP_next;
}

MgStep mg_op_SWAP(MgLoop *l, const MgInstr *in) {
  PyObject *v = TOS();
  TOS() = PEEK(in->arg);
  PEEK(in->arg) = v;
  return STEP_next;
}

/* ---- function entry ---- */

/* Which way do the parts of this function come?  0 with *older false: the function
 * was made by the recording. */
static SrcRef call_function_src(PyObject *func, bool *older) {
  MgOlder *e = mg_older(func);
  *older = !mg_is_fresh(func);
  return e && mg_older_by_path(e) ? e->src : 0;
}

static int call_wrap_default(PyObject **slot, PyObject *deflt, MgSrcKind kind, SrcRef src, int i,
                             PyObject *key) {
  if (*slot != deflt) return 0;
  PyObject *w = mg_wrap(deflt, src ? mg_source(mg_rec->guards, kind, src, i, key) : 0);
  if (!w) return -1;
  Py_SETREF(*slot, w);
  return 0;
}

/* A function behind a fixed owner: its parts may be assigned all the same. */
static void call_guard_function(PyObject *func) {
  PyFunctionObject *f = (PyFunctionObject *)func;
  PyObject *d = f->func_defaults ? f->func_defaults : Py_None,
           *kd = f->func_kwdefaults ? f->func_kwdefaults : Py_None;
  PyObject *parts = PyTuple_Pack(3, f->func_code, d, kd);
  if (parts) mg_guard_pinned(mg_rec->guards, GK_func_is, func, parts);
  else mg_rec->guards->failed = true;
  Py_XDECREF(parts);
}

int mg_rec_enter_function(PyObject *func, PyObject **slots, PyCodeObject *co) {
  bool older;
  if (!mg_rec) return 0;
  SrcRef src = call_function_src(func, &older);
  if (!older) return 0;
  if (!src) call_guard_function(func);
  PyObject *d = ((PyFunctionObject *)func)->func_defaults, *kd = ((PyFunctionObject *)func)->func_kwdefaults;
  int n = d ? (int)PyTuple_GET_SIZE(d) : 0;
  for (int i = 0; i < n; i++) {
    int slot = co->co_argcount - n + i;
    if (slot >= 0 && call_wrap_default(&slots[slot], PyTuple_GET_ITEM(d, i), SRC_fdefault, src, i, NULL))
      return -1;
  }
  for (int i = co->co_argcount; kd && i < co->co_argcount + co->co_kwonlyargcount; i++) {
    PyObject *name = PyTuple_GET_ITEM(co->co_localsplusnames, i), *x = PyDict_GetItemWithError(kd, name);
    if (x && !src && slots[i] == x) mg_guard_dict_key(mg_rec->guards, kd, NULL, name, x, false);
    if (x && call_wrap_default(&slots[i], x, SRC_fkwdefault, src, 0, name)) return -1;
  }
  return PyErr_Occurred() ? -1 : 0;
}

PyObject *mg_rec_closure_cell(PyObject *func, int i) {
  bool older;
  PyObject *cell = PyTuple_GET_ITEM(((PyFunctionObject *)func)->func_closure, i);
  if (!mg_rec) return Py_NewRef(cell);
  if (func == mg_rec->ident->func && !mg_is_fresh(func)) return mg_wrap(cell, mg_src_closure(i));
  SrcRef src = call_function_src(func, &older);
  if (!older) return Py_NewRef(cell);
  return mg_wrap(cell, src ? mg_source(mg_rec->guards, SRC_closure, src, i, NULL) : 0);
}
