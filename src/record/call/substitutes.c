/* Python functions, mostly of torch, that mean something else while recording.
 * In: a Python function about to be called, with its arguments.  Out: the call's result, or "record it as it
 * is".
 * Each stands for what the function does to the program, without the parts that only serve torch's own tools:
 * profiler marks, loggers and thread contexts around the autograd engine, reads of optimizer counters.  The
 * same for functions of the standard library that a recording cannot look into. */
#include "record/call/substitutes.h"
#include "host/python/glue.h"
#include "host/python/names.h"
#include "host/python/pyobject.h"
#include "host/python/trace_rules.h"
#include "record/autograd/backward_pass.h"
#include "record/call/marked_functions.h"
#include "record/core/call_args.h"
#include "record/core/identity.h"
#include "record/core/ops.h"
#include "record/core/recording.h"
#include "record/higher_order/checkpoint.h"
#include "record/higher_order/higher_order.h"
#include "record/symbolic/item_numbers.h"
#include "record/symbolic/number_ops.h"
#include "record/tensor/tensor_hooks.h"
#include "record/tensor/wrapper_subclass.h"

static PyObject *replace_none(PyObject *self, PyObject *const *arg, size_t nargsf, PyObject *kwnames) {
  Py_RETURN_NONE;
}

/* record_function.__enter__: no mark is set, and where the with statement ends after a graph
 * break none is looked for. */
static PyObject *replace_record_enter(PyObject *self, PyObject *const *arg, size_t nargsf,
                                      PyObject *kwnames) {
  PyObject *mark = self ? self : arg[0];
  if (mg_is_fresh(mark) && PyObject_SetAttrString(mark, "run_callbacks_on_exit", Py_False)) return NULL;
  return Py_NewRef(mark);
}

/* torch.autograd.graph._engine_run_backward: the engine itself. */
static PyObject *replace_engine(PyObject *self, PyObject *const *arg, size_t nargsf, PyObject *kwnames) {
  PyObject *run = PyObject_GetAttrString(mg_torch.engine, "run_backward");
  PyObject *r = run ? mg_backward_run(run, arg, nargsf & ~PY_VECTORCALL_ARGUMENTS_OFFSET, kwnames) : NULL;
  Py_XDECREF(run);
  return r;
}

/* torch.optim.optimizer._get_value: the counter stays a tensor, with the precision of
 * the number it stands for. */
static PyObject *replace_get_value(PyObject *self, PyObject *const *arg, size_t nargsf, PyObject *kwnames) {
  if (PyVectorcall_NARGS(nargsf) != 1) return PyErr_Format(PyExc_TypeError, "_get_value takes one argument");
  if (!mg_standin_is(arg[0])) return Py_NewRef(arg[0]);
  bool number = mg_symvalue_can(mg_rec->cap, arg[0]);
  return number ? mg_symfloat_dress(PyObject_CallMethod(arg[0], "item", NULL))
                : PyObject_CallMethod(arg[0], "double", NULL);
}

/* collections.namedtuple evaluates text, which depends on nothing but its arguments: run
 * as it is, the class is new. */
static PyObject *replace_namedtuple(PyObject *self, PyObject *const *arg, size_t nargsf, PyObject *kwnames) {
  MgPause pause = mg_rec_pause();
  PyObject *t = PyObject_Vectorcall(mg_torch.namedtuple, arg, nargsf, kwnames), *k, *v;
  mg_rec_resume(pause);
  mg_fresh(t);
  for (Py_ssize_t at = 0; t && PyDict_Next(mg_type_dict((PyTypeObject *)t), &at, &k, &v);) {
    bool wrapped = Py_TYPE(v) == &PyStaticMethod_Type || Py_TYPE(v) == &PyClassMethod_Type;
    PyObject *f = wrapped ? PyObject_GetAttrString(v, "__func__") : Py_NewRef(v);
    if (f && PyFunction_Check(f)) mg_fresh(f);
    Py_XDECREF(f);
  }
  return t;
}

/* _nt_view_dummy: a tensor without data that never changes; operators take it to find
 * the class of jagged tensors. */
static PyObject *replace_jagged_dummy(PyObject *self, PyObject *const *arg, size_t nargsf,
                                      PyObject *kwnames) {
  return mg_wrapper_outside(mg_torch.jagged_dummy);
}

/* RemovableHandle.remove of a hook that the recording registers. */
static bool replace_remove(PyObject *self, PyObject *const *arg, size_t nargsf, PyObject **out) {
  PyObject *handle = self ? self : PyVectorcall_NARGS(nargsf) ? arg[0] : NULL;
  int done = handle ? mg_tensorhook_remove(handle) : 0;
  if (done) *out = done > 0 ? Py_NewRef(Py_None) : NULL;
  return done != 0;
}

/* Its module is imported when it is first called. */
static bool replace_is_attention(PyObject *fn) {
  PyCodeObject *co = PyFunction_Check(fn) ? (PyCodeObject *)PyFunction_GET_CODE(fn) : NULL;
  return co && !PyUnicode_CompareWithASCIIString(co->co_name, "jagged_scaled_dot_product_attention") &&
         mg_skip_is_torch(co);
}

/* Methods of DTensor that go through an autograd.Function of torch: to the local tensor, from
 * one, to other placements. */
static bool replace_is_distributed(PyObject *fn) {
  static const char *const names[] = {"DTensor.to_local", "DTensor.from_local", "DTensor.redistribute",
                                      "DTensor.full_tensor"};
  PyCodeObject *co = PyFunction_Check(fn) ? (PyCodeObject *)PyFunction_GET_CODE(fn) : NULL;
  for (size_t i = 0; co && i < sizeof names / sizeof *names; i++)
    if (!PyUnicode_CompareWithASCIIString(co->co_qualname, names[i])) return mg_skip_is_torch(co);
  return false;
}

/* Collectives that write into tensors. */
static bool replace_is_collective(PyObject *fn) {
  static const char *const names[] = {"all_reduce",
                                      "broadcast",
                                      "all_gather",
                                      "all_gather_single",
                                      "all_gather_into_tensor",
                                      "reduce_scatter_single",
                                      "reduce_scatter_tensor",
                                      "all_to_all_single"};
  if (!PyFunction_Check(fn)) return false;
  PyObject *module = ((PyFunctionObject *)fn)->func_module, *name = ((PyFunctionObject *)fn)->func_name;
  if (!module || !PyUnicode_Check(module) ||
      PyUnicode_CompareWithASCIIString(module, "torch.distributed.distributed_c10d"))
    return false;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (!PyUnicode_CompareWithASCIIString(name, names[i])) return true;
  return false;
}

/* What functional collectives hand out: here the result itself, once it is there.  In eager it may be a
 * tensor without memory, which waits when it is used. */
static bool replace_unfinished(PyObject *fn, PyObject *const *arg, size_t nargsf, PyObject *kwnames,
                               PyObject **out) {
  PyCodeObject *co = PyFunction_Check(fn) ? (PyCodeObject *)PyFunction_GET_CODE(fn) : NULL;
  if (!co || PyUnicode_CompareWithASCIIString(co->co_name, "_maybe_wrap_tensor") || !mg_skip_is_torch(co))
    return false;
  PyObject *wait = PyDict_GetItemString(PyFunction_GET_GLOBALS(fn), "wait_tensor");
  if (!wait) return false; /* a later version */
  *out = mg_ops.call(wait, arg, nargsf & ~PY_VECTORCALL_ARGUMENTS_OFFSET, kwnames);
  return true;
}

static bool replace_drew(const MgGraph *g) {
  for (NodeRef n = 1; n < g->nnode; n++)
    if (!g->node[n].dead && mg_node_random(&g->node[n])) return true;
  return false;
}

/* The hook that gives a lazy module its parameters, once in its life: done for real, then the recording
 * starts again.  Random numbers that the recording has drawn would have to come first. */
static PyObject *replace_lazy(PyObject *self, PyObject *const *arg, size_t nargsf, PyObject *kwnames) {
  static PyObject *initialize; /* magneto._glue.lazy_modules.initialize */
  Py_ssize_t n = PyVectorcall_NARGS(nargsf);
  PyObject *module = self && n >= 2 ? mg_older_orig(arg[0]) : NULL, *r = NULL;
  if (!module || kwnames || mg_is_fresh(module) || replace_drew(mg_rec->g))
    return mg_rec_break(BK_lazy_module, "a lazy module");
  MgPause pause = mg_rec_pause();
  PyObject *m = initialize ? NULL : mg_glue(GLUE_lazy_modules);
  if (m) initialize = PyObject_GetAttrString(m, "initialize");
  Py_XDECREF(m);
  if (initialize)
    r = PyObject_CallFunctionObjArgs(initialize, module, arg[1], n > 2 ? arg[2] : Py_None, NULL);
  mg_rec_resume(pause);
  mg_rec->again = r != NULL;
  if (!r) PyErr_Clear(); /* the program meets the error by itself */
  Py_XDECREF(r);
  return mg_rec_break(BK_lazy_module, "a lazy module");
}

/* ---- opt_einsum ---- */

/* opt_einsum's search for the best order of contractions, called by torch.einsum. */
static bool replace_is_path(PyObject *fn) {
  if (!PyFunction_Check(fn)) return false;
  PyObject *module = ((PyFunctionObject *)fn)->func_module,
           *name = ((PyCodeObject *)PyFunction_GET_CODE(fn))->co_name;
  return !PyUnicode_CompareWithASCIIString(name, "contract_path") && module && PyUnicode_Check(module) &&
         !PyUnicode_CompareWithASCIIString(module, "opt_einsum.contract") && mg_call_by_torch();
}

/* The shape of a tensor as numbers that nobody guards.  New; NULL without an
 * exception for what is no stand-in. */
static PyObject *replace_hints(PyObject *o) {
  if (!mg_standin_is(o)) return NULL;
  const MgVal *v = mg_val(mg_rec->g, mg_standin_val(o));
  PyObject *shape = PyTuple_New(v->ndim);
  for (int i = 0; shape && i < v->ndim; i++) {
    PyObject *n = PyLong_FromLongLong(mg_sym_hint(mg_rec->x, v->size[i]));
    if (n) PyTuple_SET_ITEM(shape, i, n);
    else Py_CLEAR(shape);
  }
  return shape;
}

/* contract_path(equation, *operands, optimize=strategy), asked about shapes.  Every order gives the same
 * sums, so no size is guarded: where sizes change, the order that was best while recording stays.  False:
 * recorded as it is, which raises what eager raises. */
static bool replace_path(PyObject *fn, PyObject *const *arg, size_t nargsf, PyObject *kwnames,
                         PyObject **out) {
  Py_ssize_t npos = PyVectorcall_NARGS(nargsf), nkw = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
  PyObject *args = PyTuple_New(npos), *kw = PyDict_New();
  bool ok =
      args && kw && npos && PyUnicode_CheckExact(arg[0]) && !PyDict_SetItemString(kw, "shapes", Py_True);
  for (Py_ssize_t i = 0; ok && i < npos; i++) {
    PyObject *shape = i ? replace_hints(arg[i]) : Py_NewRef(arg[0]);
    if ((ok = shape)) PyTuple_SET_ITEM(args, i, shape);
  }
  for (Py_ssize_t i = 0; ok && i < nkw; i++)
    ok = PyUnicode_CheckExact(arg[npos + i]) &&
         !PyDict_SetItem(kw, PyTuple_GET_ITEM(kwnames, i), arg[npos + i]);
  MgPause pause = mg_rec_pause();
  *out = ok ? PyObject_Call(fn, args, kw) : NULL;
  mg_rec_resume(pause);
  Py_XDECREF(args);
  Py_XDECREF(kw);
  if (!*out && PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_Exception)) return true;
  if (!*out) PyErr_Clear(); /* recorded as it is, the call raises again */
  return *out != NULL;
}

typedef PyObject *(*ReplaceFn)(PyObject *self, PyObject *const *arg, size_t nargsf, PyObject *kwnames);

bool mg_rec_replaced(PyObject *fn, PyObject *self, PyObject *const *arg, size_t nargsf, PyObject *kwnames,
                     PyObject **out) {
  const struct {
    PyObject *fn;
    ReplaceFn with;
  } rows[] = {
      {mg_torch.record_enter, replace_record_enter},  {mg_torch.record_exit, replace_none},
      {mg_torch.engine_run_backward, replace_engine}, {mg_torch.optim_get_value, replace_get_value},
      {mg_torch.infer_parameters, replace_lazy},      {mg_torch.namedtuple, replace_namedtuple},
      {mg_torch.jagged_dummy, replace_jagged_dummy},
  };
  if (fn == mg_torch.cond) return mg_higher_cond(arg, nargsf, kwnames, out);
  if (fn == mg_torch.nested_region) return mg_higher_nested(arg, nargsf, kwnames, out);
  if (fn == mg_torch.checkpoint) return mg_checkpoint_call(arg, nargsf, kwnames, out);
  if (replace_is_attention(fn)) return mg_marked_attention(fn, arg, nargsf, kwnames, out);
  if (replace_is_distributed(fn)) return mg_marked_distributed(fn, self, arg, nargsf, kwnames, out);
  if (replace_unfinished(fn, arg, nargsf, kwnames, out)) return true;
  if (replace_is_collective(fn)) return mg_marked_collective(fn, arg, nargsf, kwnames, out);
  if (replace_is_path(fn)) return replace_path(fn, arg, nargsf, kwnames, out);
  if (fn == mg_torch.handle_remove) return replace_remove(self, arg, nargsf, out);
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    if (fn != rows[i].fn) continue;
    *out = rows[i].with(self, arg, nargsf, kwnames);
    return true;
  }
  return false;
}
