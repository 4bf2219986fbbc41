/* See the header.  In: calls with number objects (number.h).  Out: answers that need no value. */
#include "record/call/size_checks.h"
#include <string.h>
#include "host/python/hook_mode.h"
#include "record/core/capture.h"
#include "record/core/recording.h"
#include "record/fx/fx.h"
#include "record/symbolic/item_numbers.h"
#include "record/symbolic/number.h"
#include "record/symbolic/number_ops.h"
#include "record/symbolic/number_index.h"
#include "record/symbolic/sizes.h"

static bool ask_any(PyObject *const *arg, Py_ssize_t n) {
  for (Py_ssize_t i = 0; i < n; i++)
    if (mg_ask_late(arg[i])) return true;
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
    if (!PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(kwnames, i), "max") && arg[npos + i] != Py_None)
      most = arg[npos + i];
  PyObject *message = npos > 1 ? arg[1] : Py_None;
  for (int i = 0; zero && i < 2; i++) {
    if (i && !most) break;
    PyObject *yes = mg_symfloat_compute(arg[0], i ? most : zero, i ? CALC_le : CALC_ge),
             *const check[] = {PyExc_RuntimeError, yes, message};
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
  if (!npos || !mg_rec->cap->syms || !f->func_module || !PyUnicode_Check(f->func_module) ||
      !ask_any(arg, npos))
    return false;
  bool torch = !PyUnicode_CompareWithASCIIString(f->func_module, "torch");
  if (!torch && PyUnicode_CompareWithASCIIString(f->func_module, "torch.fx.experimental.symbolic_shapes"))
    return false;
  const char *name = PyUnicode_AsUTF8(f->func_name);
  if (torch) {
    if (!name || strcmp(name, "_check_is_size")) return false;
    *r = ask_is_size(fn, arg, npos, kwnames);
    return true;
  }
  bool no = !strcmp(name, "guard_or_false") || !strcmp(name, "statically_known_true") ||
            !strcmp(name, "guard_size_oblivious") || !strcmp(name, "definitely_true") ||
            !strcmp(name, "definitely_false") || !strcmp(name, "statically_known_false");
  if (no) *r = Py_NewRef(Py_False);
  else if (!strcmp(name, "guard_or_true")) *r = Py_NewRef(Py_True);
  else if (!strcmp(name, "has_static_value")) *r = ask_static(mg_ask_late(arg[0]));
  else if (!strcmp(name, "sym_and") || !strcmp(name, "sym_or"))
    *r = ask_fold(arg, npos, name[4] == 'a' ? CALC_and : CALC_or);
  else if (!strcmp(name, "sym_eq") && npos == 2) *r = mg_symfloat_compute(arg[0], arg[1], CALC_eq);
  else if (!strcmp(name, "_advise_is_size") || !strcmp(name, "_advise_is_bounded")) *r = Py_NewRef(Py_None);
  else return false;
  return true;
}
