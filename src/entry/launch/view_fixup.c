/* Versions and gradients of views that a run wrote to, as eager leaves them. */
#include "entry/launch/view_fixup.h"
#include "host/python/glue.h"
#include "host/python/names.h"
#include "host/python/pyobject.h"
#include "host/torch/function_stack.h"
#include "host/torch/tensor_facts.h"
#include "ir/expr/dtype.h"
#include "runtime/process/torch_abi.h"

/* ---- results ---- */

PyObject *mg_backward_spent_result(PyObject *t) {
  static PyObject *spend; /* magneto._glue.freed_graph.spent */
  if (!spend) {
    PyObject *m = mg_glue(GLUE_freed_graph);
    spend = m ? PyObject_GetAttrString(m, "spent") : NULL;
    Py_XDECREF(m);
  }
  PyObject *r = spend ? PyObject_CallOneArg(spend, t) : NULL;
  Py_DECREF(t);
  return r;
}

PyObject *mg_inference_mode_remake(PyObject *out, bool inference) {
  static PyObject *remake;
  int is = mg_standin_inference(out);
  if (is == inference) return out;
  if (!remake) {
    PyObject *m = mg_glue(GLUE_output_tensors);
    remake = m ? PyObject_GetAttrString(m, "inference_alias") : NULL;
    Py_XDECREF(m);
  }
  PyObject *r = is >= 0 && remake
                    ? PyObject_CallFunctionObjArgs(remake, out, inference ? Py_True : Py_False, NULL)
                    : NULL;
  Py_DECREF(out);
  return r;
}

static PyObject *view_names[3]; /* _version, _base, as_strided */

PyObject *mg_view_name(int i) {
  static const char *const text[] = {"_version", "_base", "as_strided"};
  if (!view_names[i]) view_names[i] = PyUnicode_InternFromString(text[i]);
  return view_names[i];
}

PyObject *mg_view_get(PyObject *t, int name) {
  static PyObject *descr[2];
  PyObject *n = mg_view_name(name);
  if (!descr[name] && (!n || !(descr[name] = PyObject_GetAttr((PyObject *)mg_torch.tensor, n)))) return NULL;
  return Py_TYPE(descr[name])->tp_descr_get(descr[name], t, (PyObject *)mg_torch.tensor);
}

int mg_view_number(PyObject *t, int64_t *n) {
  const uint32_t *counter = mg_facts_version(t);
  if (counter) return *n = __atomic_load_n(counter, __ATOMIC_SEQ_CST), 0;
  PyObject *v = mg_view_get(t, 0);
  *n = v ? PyLong_AsLongLong(v) : -1;
  Py_XDECREF(v);
  return PyErr_Occurred() ? -1 : 0;
}

void mg_viewstate_free(MgViewState *s) {
  if (!s) return;
  free(s->view);
  free(s->version);
  free(s);
}

/* ---- runs ---- */

uint32_t mg_viewstate_versions(const MgViewState *s, bool joint) {
  return s->joint == joint ? s->nversion : 0;
}

int mg_viewstate_before(const MgViewState *s, PyObject *const *in, int64_t *versions) {
  for (uint32_t i = 0; i < s->nversion; i++)
    if (mg_view_number(in[s->version[i].input], &versions[i])) return -1;
  return 0;
}

static PyObject *view_tuple(const int64_t *v, int64_t n) {
  PyObject *t = PyTuple_New((Py_ssize_t)n);
  for (int64_t i = 0; t && i < n; i++) {
    PyObject *x = PyLong_FromLongLong(v[i]);
    if (!x) Py_CLEAR(t);
    else PyTuple_SET_ITEM(t, i, x);
  }
  return t;
}

/* A view of base with the elements of `like`: numbers of a complex tensor, or complex ones of numbers, if
 * parts. */
static PyObject *view_by_method(PyObject *base, PyObject *like, bool parts) {
  static PyObject *as_strided, *view_parts; /* of torch.Tensor; magneto._glue.output_tensors.view_of_parts */
  MgTensor *t = mg_facts_tensor(like);
  int64_t n = 0, *size = NULL, *stride = NULL, at = 0;
  if (parts && !view_parts) {
    PyObject *m = mg_glue(GLUE_output_tensors);
    view_parts = m ? PyObject_GetAttrString(m, "view_of_parts") : NULL;
    Py_XDECREF(m);
  }
  if (parts) return view_parts ? PyObject_CallFunctionObjArgs(view_parts, base, like, NULL) : NULL;
  if (!as_strided && !(as_strided = PyObject_GetAttr((PyObject *)mg_torch.tensor, mg_view_name(2))))
    return NULL;
  mg_abi.aoti_torch_get_dim(t, &n);
  mg_abi.aoti_torch_get_sizes(t, &size);
  mg_abi.aoti_torch_get_strides(t, &stride);
  mg_abi.aoti_torch_get_storage_offset(t, &at);
  PyObject *arg[] = {base, view_tuple(size, n), view_tuple(stride, n), PyLong_FromLongLong(at)}, *v = NULL;
  if (arg[1] && arg[2] && arg[3]) v = PyObject_Vectorcall(as_strided, arg, 4, NULL);
  for (int i = 1; i < 4; i++) Py_XDECREF(arg[i]);
  return v;
}

static int32_t view_dtype(PyObject *t) {
  int32_t dtype = 0;
  mg_abi.aoti_torch_get_dtype(mg_facts_tensor(t), &dtype);
  return dtype;
}

static PyObject *view_of(PyObject *base, PyObject *like) {
  MgTensor *t = mg_facts_tensor(like);
  bool parts = view_dtype(base) != view_dtype(like);
  if (!parts && mg_abi.thpvariable_wrap && mg_facts_in_memory(base)) {
    int64_t n = 0, *size = NULL, *stride = NULL, at = 0;
    mg_abi.aoti_torch_get_dim(t, &n);
    mg_abi.aoti_torch_get_sizes(t, &size);
    mg_abi.aoti_torch_get_strides(t, &stride);
    mg_abi.aoti_torch_get_storage_offset(t, &at);
    MgTensor *h = mg_abi_view(mg_facts_tensor(base), n, size, stride, at);
    PyObject *o = h ? mg_abi.thpvariable_wrap(h) : NULL;
    if (h) mg_abi.aoti_torch_delete_tensor_object(h);
    if (h) return o;
  }
  bool exact = Py_TYPE(base) == mg_torch.tensor || Py_TYPE(base) == mg_torch.parameter;
  PyObject *off = exact && !mg_fmodes_depth() ? NULL : mg_fmodes_off();
  PyObject *v = PyErr_Occurred() ? NULL : view_by_method(base, like, parts);
  if (off && mg_context_exit(off)) Py_CLEAR(v);
  return v;
}

/* Does the result begin in its base's memory where their offsets say?  One that has memory of its own is
 * no view to be made of it; one without elements has none. */
static bool view_shares(PyObject *out, PyObject *base) {
  int64_t a = 0, b = 0, n = 0;
  if (!mg_facts_in_memory(out) || !mg_facts_in_memory(base)) return true;
  mg_abi.aoti_torch_get_numel(mg_facts_tensor(out), &n);
  if (!n) return true;
  mg_abi.aoti_torch_get_storage_offset(mg_facts_tensor(out), &a);
  mg_abi.aoti_torch_get_storage_offset(mg_facts_tensor(base), &b);
  return mg_facts_distance(base, out) ==
         a * mg_dtype_size((MgDtype)view_dtype(out)) - b * mg_dtype_size((MgDtype)view_dtype(base));
}

/* Steals out; what autograd tracks, and what is a view already, stays. */
static PyObject *view_make(PyObject *out, PyObject *base, bool mode) {
  if (mg_facts_requires_grad(out) || !view_shares(out, base)) return out;
  PyObject *was = mg_view_get(out, 1), *v = NULL;
  if (was && was != Py_None) return Py_DECREF(was), out;
  bool before = mg_abi.aoti_torch_grad_mode_is_enabled();
  mg_abi.aoti_torch_grad_mode_set_enabled(mode && before);
  if (was) v = view_of(base, out);
  mg_abi.aoti_torch_grad_mode_set_enabled(before);
  Py_XDECREF(was);
  Py_DECREF(out);
  return v;
}

int mg_viewstate_count(const MgViewState *s, PyObject *const *in, const int64_t *versions) {
  int64_t now;
  for (uint32_t i = 0; i < s->nversion; i++) {
    PyObject *t = in[s->version[i].input];
    if (mg_view_number(t, &now)) return -1;
    if (now != versions[i] + s->version[i].by && mg_facts_set_version(t, versions[i] + s->version[i].by))
      return -1;
  }
  return 0;
}

int mg_viewstate_after(const MgViewState *s, PyObject *const *in, const int64_t *versions, PyObject **outs) {
  if (!s->joint && mg_viewstate_count(s, in, versions)) return -1;
  for (uint32_t i = 0; i < s->nview; i++) {
    const View *v = &s->view[i];
    PyObject *base = v->base < s->ninput ? in[v->base] : outs[v->base - s->ninput], **out = &outs[v->out];
    if (*out && base && *out != base && !(*out = view_make(*out, base, v->grad))) return -1;
  }
  return 0;
}
