/* See the header.  Invariant: every slot through which Python or C code could learn something of the text but
 * its class gives the recording up.  C functions are not handed one, but for those that ask what it is. */
#include "record/object/lazy_text.h"
#include <string.h>
#include "host/python/hook_mode.h"
#include "host/python/names.h"
#include "host/python/pyobject.h"
#include "record/core/c_functions.h"
#include "record/core/call_args.h"
#include "record/core/capture.h"
#include "record/core/recording.h"
#include "record/symbolic/number.h"
#include "record/tensor/function_modes.h"

static PyTypeObject lazystr_type;

bool mg_lazystr_is(PyObject *o) { return Py_TYPE(o) == &lazystr_type; }

PyObject *mg_lazystr_read(void) {
  if (mg_rec && !mg_rec->abort) mg_retry_fail(mg_rec, RETRY_texts);
  return mg_rec_break(BK_data_dependent, "text made of a tensor");
}

void mg_lazystr_raised(MgRec *r) {
  if (r->texts && !r->abort &&
      (PyErr_ExceptionMatches(PyExc_TypeError) || PyErr_ExceptionMatches(MgBreakError)))
    mg_lazystr_read();
}

/* ---- making ---- */

static PyObject *lazystr_new(void) {
  if (PyType_Ready(&lazystr_type)) return NULL;
  mg_rec->texts = true;
  return PyObject_New(PyObject, &lazystr_type);
}

/* Would a value of this kind take the specification? */
static PyObject *lazystr_checked(PyObject *example, PyObject *spec) {
  PyObject *text = example ? PyObject_Format(example, spec) : NULL;
  Py_XDECREF(example);
  if (!text) PyErr_Clear(); /* the program's error is raised the ordinary way */
  Py_XDECREF(text);
  return text ? lazystr_new() : NULL;
}

/* A tensor of torch's own classes, which no mode of the program prints. */
static bool lazystr_tensor(MgRec *r, PyObject *o) {
  if (!mg_standin_is(o) || mg_fmodes_on_top(r)) return false;
  PyObject *class = mg_standin_class(o);
  return class == (PyObject *)mg_torch.tensor || class == (PyObject *)mg_torch.parameter;
}

/* What a 0-dim tensor's item is like; NULL without an exception: it formats by itself. */
static PyObject *lazystr_item(MgRec *r, PyObject *o) {
  const MgVal *v = mg_val(r->g, mg_standin_val(o));
  if (v->ndim) return NULL;
  if (v->dtype == DT_bool) return Py_NewRef(Py_False);
  return mg_dtype_is_complex(v->dtype) ? PyComplex_FromDoubles(0, 0)
         : mg_dtype_is_float(v->dtype) ? PyFloat_FromDouble(0)
                                       : PyLong_FromLong(0);
}

/* Does o, a sequence such as a shape, hold what has no value? */
static bool lazystr_among(MgRec *r, PyObject *o) {
  if (!PyTuple_CheckExact(o) && !PyList_CheckExact(o) && Py_TYPE(o) != mg_torch.size) return false;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(o); i++) {
    PyObject *x = PySequence_Fast_GET_ITEM(o, i);
    if (mg_symfloat_is(x) || lazystr_tensor(r, x) || mg_lazystr_is(x)) return true;
  }
  return false;
}

PyObject *mg_lazystr_format(MgRec *r, PyObject *o, bool converted, PyObject *spec) {
  if (mg_retry_denied(r, RETRY_texts)) return NULL;
  if (spec && !PyUnicode_CheckExact(spec)) return NULL;
  bool number = mg_symfloat_is(o), tensor = lazystr_tensor(r, o), plain = converted || mg_lazystr_is(o);
  if (!number && !tensor && !mg_lazystr_is(o) && !lazystr_among(r, o)) return NULL;
  if (number && !plain) return lazystr_checked(PyObject_CallNoArgs((PyObject *)mg_symfloat_class(o)), spec);
  PyObject *item = tensor && !plain ? lazystr_item(r, o) : NULL;
  if (item || PyErr_Occurred()) return lazystr_checked(item, spec);
  if (!plain && spec && PyUnicode_GET_LENGTH(spec)) return NULL; /* an error */
  return lazystr_checked(PyUnicode_FromString(""), spec);
}

PyObject *mg_lazystr_join(PyObject *const *text, int n) {
  for (int i = 0; mg_rec->texts && i < n; i++)
    if (mg_lazystr_is(text[i])) return lazystr_new();
  return NULL;
}

/* ---- what may be asked ---- */

/* Does calling this class only store the arguments, or run Python code that is recorded? */
static bool lazystr_keeps(PyObject *f) {
  if (!PyType_Check(f)) return false;
  PyTypeObject *t = (PyTypeObject *)f;
  return PyExceptionClass_Check(f) ||
         (t->tp_flags & Py_TPFLAGS_HEAPTYPE && !PyType_FastSubclass(t, Py_TPFLAGS_UNICODE_SUBCLASS));
}

bool mg_lazystr_call(const MgCall *c, PyObject **out) {
  bool among = false;
  for (Py_ssize_t i = 0; i < c->n; i++) among |= mg_lazystr_is(c->arg[i]);
  PyObject *self = mg_policy_self(c->f);
  if (!among && !(self && mg_lazystr_is(self))) return false;
  PyTypeObject *t = Py_TYPE(c->f);
  if (t == &PyFunction_Type || (t == &PyMethod_Type && PyFunction_Check(PyMethod_GET_FUNCTION(c->f))))
    return false;
  if (lazystr_keeps(c->f)) return false;
  MgAction act = mg_policy_of(c->f).action;
  bool ask = act == ACT_isinstance && c->n == 2 && !c->kwnames && !mg_lazystr_is(c->arg[1]);
  if (!ask && act == ACT_type && c->n == 1) *out = Py_NewRef((PyObject *)&PyUnicode_Type);
  else if (!ask && PyCFunction_Check(c->f) && c->n == 1 &&
           !strcmp(((PyCFunctionObject *)c->f)->m_ml->ml_name, "callable"))
    *out = Py_NewRef(Py_False);
  else if (!ask) *out = mg_lazystr_read();
  else {
    PyObject *pair[2] = {PyUnicode_FromString(""), c->arg[1]};
    *out = pair[0] ? PyObject_Vectorcall(c->f, pair, 2, NULL) : NULL;
    Py_XDECREF(pair[0]);
  }
  return true;
}

static PyObject *lazystr_getattro(PyObject *o, PyObject *name) {
  return name == mg_names.class_ ? Py_NewRef((PyObject *)&PyUnicode_Type) : mg_lazystr_read();
}

static PyObject *lazystr_one(PyObject *o) { return mg_lazystr_read(); }
static PyObject *lazystr_two(PyObject *a, PyObject *b) { return mg_lazystr_read(); }
static PyObject *lazystr_compare(PyObject *a, PyObject *b, int op) { return mg_lazystr_read(); }
static Py_hash_t lazystr_hash(PyObject *o) { return mg_lazystr_read(), -1; }
static Py_ssize_t lazystr_length(PyObject *o) { return mg_lazystr_read(), -1; }
static int lazystr_truth(PyObject *o) { return mg_lazystr_read(), -1; }
static int lazystr_contains(PyObject *o, PyObject *x) { return mg_lazystr_read(), -1; }
static void lazystr_free(PyObject *o) { PyObject_Free(o); }

static PyNumberMethods lazystr_number = {
    .nb_add = lazystr_two, .nb_multiply = lazystr_two, .nb_remainder = lazystr_two, .nb_bool = lazystr_truth};
static PySequenceMethods lazystr_sequence = {.sq_length = lazystr_length, .sq_contains = lazystr_contains};
static PyMappingMethods lazystr_mapping = {.mp_length = lazystr_length, .mp_subscript = lazystr_two};

static PyTypeObject lazystr_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "magneto._magneto.LazyStr",
    .tp_basicsize = sizeof(PyObject),
    .tp_dealloc = lazystr_free,
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_getattro = lazystr_getattro,
    .tp_repr = lazystr_one,
    .tp_str = lazystr_one,
    .tp_hash = lazystr_hash,
    .tp_richcompare = lazystr_compare,
    .tp_iter = lazystr_one,
    .tp_as_number = &lazystr_number,
    .tp_as_sequence = &lazystr_sequence,
    .tp_as_mapping = &lazystr_mapping,
};
