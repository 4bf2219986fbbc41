/* See the header.  In: calls with number objects (symfloat.h).  Out: answers that need no value. */
#include "front/symask.h"
#include <string.h>
#include "front/fx.h"
#include "front/names.h"
#include "front/source.h"
#include "front/standin.h"
#include "front/symdata.h"
#include "front/symfloat.h"
#include "front/symvalue.h"

/* The node of a number that depends on data; NULL: something else. */
static MgSymNode *ask_late(PyObject *o) {
  MgSymNode *n = mg_symnode_of(o);
  return n && n->cap && !n->src && !n->hint ? n : NULL;
}

static bool ask_any(PyObject *const *arg, Py_ssize_t n) {
  for (Py_ssize_t i = 0; i < n; i++)
    if (ask_late(arg[i])) return true;
  return false;
}

/* a op b for all, from the left. */
static PyObject *ask_fold(PyObject *const *arg, Py_ssize_t n, int calc) {
  PyObject *r = Py_NewRef(arg[0]);
  for (Py_ssize_t i = 1; r && i < n; i++) Py_SETREF(r, mg_symfloat_compute(r, arg[i], calc));
  return r;
}

static PyObject *ask_static(MgSymNode *n) {
  int64_t lo, hi;
  SymRef e = mg_symsize_of(n);
  return PyBool_FromLong(e && mg_ex_range(n->cap->rec->x, e, &lo, &hi) && lo == hi);
}

/* torch._check_is_size(n, message=None, *, max=None) */
static PyObject *ask_is_size(PyObject *fn, PyObject *const *arg, Py_ssize_t npos, PyObject *kwnames) {
  PyObject *zero = PyLong_FromLong(0), *most = NULL, *r = NULL;
  MgCapture *cap = mg_symnode_of(arg[0])->cap;
  for (Py_ssize_t i = 0; kwnames && i < PyTuple_GET_SIZE(kwnames); i++)
    if (!PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(kwnames, i), "max") && arg[npos + i] != Py_None) most = arg[npos + i];
  PyObject *message = npos > 1 ? arg[1] : Py_None;
  for (int i = 0; zero && i < 2; i++) {
    if (i && !most) break;
    PyObject *yes = mg_symfloat_compute(arg[0], i ? most : zero, i ? CALC_le : CALC_ge), *const check[] = {PyExc_RuntimeError, yes, message};
    if (yes == Py_False) mg_rec_break(BK_data_dependent, "torch._check_is_size of a number that is none");
    bool ok = yes && yes != Py_False && (yes == Py_True || mg_symvalue_check(check, 3));
    Py_XDECREF(yes);
    if (!ok) goto done;
  }
  if (zero && (!cap->fx || !mg_fx_number_call(cap, fn, arg, 1))) r = Py_NewRef(Py_None);
done:
  Py_XDECREF(zero);
  return r;
}

bool mg_symask_call(PyObject *fn, PyObject *const *arg, Py_ssize_t npos, PyObject *kwnames, PyObject **r) {
  PyFunctionObject *f = (PyFunctionObject *)fn;
  if (!npos || !mg_rec->cap->syms || !f->func_module || !PyUnicode_Check(f->func_module) || !ask_any(arg, npos)) return false;
  bool torch = !PyUnicode_CompareWithASCIIString(f->func_module, "torch");
  if (!torch && PyUnicode_CompareWithASCIIString(f->func_module, "torch.fx.experimental.symbolic_shapes")) return false;
  const char *name = PyUnicode_AsUTF8(f->func_name);
  if (torch) {
    if (!name || strcmp(name, "_check_is_size")) return false;
    *r = ask_is_size(fn, arg, npos, kwnames);
    return true;
  }
  bool no = !strcmp(name, "guard_or_false") || !strcmp(name, "statically_known_true") || !strcmp(name, "guard_size_oblivious") ||
            !strcmp(name, "definitely_true") || !strcmp(name, "definitely_false") || !strcmp(name, "statically_known_false");
  if (no) *r = Py_NewRef(Py_False);
  else if (!strcmp(name, "guard_or_true")) *r = Py_NewRef(Py_True);
  else if (!strcmp(name, "has_static_value")) *r = ask_static(ask_late(arg[0]));
  else if (!strcmp(name, "sym_and") || !strcmp(name, "sym_or")) *r = ask_fold(arg, npos, name[4] == 'a' ? CALC_and : CALC_or);
  else if (!strcmp(name, "sym_eq") && npos == 2) *r = mg_symfloat_compute(arg[0], arg[1], CALC_eq);
  else if (!strcmp(name, "_advise_is_size") || !strcmp(name, "_advise_is_bounded")) *r = Py_NewRef(Py_None);
  else return false;
  return true;
}

/* A number that a run learns and graphs have words for: one that depends on data, or comes from sizes. */
static bool ask_index(PyObject *o) {
  MgSymNode *n = mg_symnode_of(o);
  return n && mg_symfloat_class(o) == &PyLong_Type && (ask_late(o) || (n->src && mg_symsize_of(n)));
}

PyObject *mg_symask_item(PyObject *tensor, PyObject *key) {
  if (!mg_rec || !mg_standin_is(tensor) || (!mg_rec->cap->syms && !mg_symsize_inputs(&mg_rec->cap->sizes))) return NULL;
  if (ask_index(key)) return mg_standin_val(tensor) && mg_val(mg_rec->g, mg_standin_val(tensor))->ndim ? PyObject_CallMethod(tensor, "select", "iO", 0, key) : NULL;
  if (!PyTuple_CheckExact(key)) return NULL;
  Py_ssize_t n = PyTuple_GET_SIZE(key);
  bool any = false;
  for (Py_ssize_t i = 0; i < n; i++) {
    PyObject *o = PyTuple_GET_ITEM(key, i);
    any |= ask_index(o);
    if (!PySlice_Check(o) && !PyLong_CheckExact(o) && !ask_index(o)) return NULL;
  }
  if (!any || n > mg_val(mg_rec->g, mg_standin_val(tensor))->ndim) return NULL;
  PyObject *t = Py_NewRef(tensor), *rest = PyList_New(0), *index = NULL;
  for (Py_ssize_t i = n; rest && t && i-- > 0;) { /* the last first, so that dimensions keep their numbers */
    PyObject *o = PyTuple_GET_ITEM(key, i);
    if (ask_index(o)) Py_SETREF(t, PyObject_CallMethod(t, "select", "nO", i, o));
    else if (PyList_Insert(rest, 0, o)) Py_CLEAR(t);
  }
  if (t && rest && PyList_GET_SIZE(rest) && (index = PyList_AsTuple(rest))) Py_SETREF(t, PyObject_GetItem(t, index));
  Py_XDECREF(index);
  Py_XDECREF(rest);
  return t;
}
