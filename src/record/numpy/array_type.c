/* The type of the objects that stand for arrays: operators, items, attributes,
 * methods.  Values end the graph. */
#include "record/numpy/array_type.h"
#include <string.h>
#include "host/python/hook_mode.h"
#include "host/python/pyobject.h"
#include "host/torch/array_bridge.h"
#include "record/core/capture.h"
#include "record/core/recording.h"
#include "record/numpy/array_functions.h"
#include "record/numpy/array_ops.h"
#include "record/symbolic/item_numbers.h"

static PyTypeObject array_type, array_method_type;
static int array_count; /* living ones; under the GIL */

bool mg_array_check(PyObject *o) { return Py_TYPE(o) == &array_type; }
PyObject *mg_array_model(PyObject *o) { return ((MgArray *)o)->model; }
PyObject *mg_array_tensor(PyObject *o) { return ((MgArray *)o)->tensor; }

PyObject *mg_array_new(PyObject *model, PyObject *tensor) {
  MgArray *a = PyObject_New(MgArray, &array_type);
  if (!a) return NULL;
  a->model = Py_NewRef(model);
  a->tensor = Py_NewRef(tensor);
  array_count++;
  return (PyObject *)a;
}

int mg_array_alive(void) { return array_count; }

static void array_dealloc(PyObject *o) {
  MgArray *a = (MgArray *)o;
  array_count--;
  Py_DECREF(a->model);
  Py_DECREF(a->tensor);
  PyObject_Free(o);
}

/* ---- operators ---- */

/* clang-format off */
#define ARRAY_BINARY(OP) \
  OP(add, "add", "iadd") \
  OP(subtract, "sub", "isub") \
  OP(multiply, "mul", "imul") \
  OP(remainder, "mod", "imod") \
  OP(lshift, "lshift", "ilshift") \
  OP(rshift, "rshift", "irshift") \
  OP(and, "and_", "iand") \
  OP(xor, "xor", "ixor") \
  OP(or, "or_", "ior") \
  OP(floor_divide, "floordiv", "ifloordiv") \
  OP(true_divide, "truediv", "itruediv") \
  OP(matrix_multiply, "matmul", "imatmul") \
  OP(power, "pow", "ipow")
/* clang-format on */
#define ARRAY_UNARY(OP) OP(negative, "neg") OP(positive, "pos") OP(absolute, "abs") OP(invert, "invert")

static PyObject *array_operator(const char *name) { /* of the operator module; new */
  PyObject *m = mg_import("operator"), *f = m ? PyObject_GetAttrString(m, name) : NULL;
  Py_XDECREF(m);
  return f;
}

typedef struct ArrayFn {
  PyObject *np, *call;
} ArrayFn; /* a function for both halves, and what graphs call for it; strong */

static PyObject *array_operate(ArrayFn *fn, const char *name, PyObject *a, PyObject *b) {
  if (!fn->np && !(fn->np = array_operator(name))) return NULL;
  MgArrayOp op = {.np = fn->np, .cache = &fn->call, .name = name, .strong = true};
  PyObject *args = b ? PyTuple_Pack(2, a, b) : PyTuple_Pack(1, a),
           *r = args ? mg_array_apply(&op, args, NULL) : NULL;
  Py_XDECREF(args);
  return r;
}

/* Scalars never change: in-place operators on them make new ones. */
#define OP(slot, name, inplace)                                                                              \
  static PyObject *array_##slot(PyObject *a, PyObject *b) {                                                  \
    static ArrayFn fn;                                                                                       \
    return array_operate(&fn, name, a, b);                                                                   \
  }                                                                                                          \
  static PyObject *array_inplace_##slot(PyObject *a, PyObject *b) {                                          \
    static ArrayFn fn;                                                                                       \
    return mg_array_is_scalar(a) ? array_##slot(a, b) : array_operate(&fn, inplace, a, b);                   \
  }
ARRAY_BINARY(OP)
#undef OP
#define OP(slot, name)                                                                                       \
  static PyObject *array_##slot(PyObject *a) {                                                               \
    static ArrayFn fn;                                                                                       \
    return array_operate(&fn, name, a, NULL);                                                                \
  }
ARRAY_UNARY(OP)
#undef OP

static PyObject *array_pow(PyObject *a, PyObject *b, PyObject *mod) {
  if (mod != Py_None) return mg_rec_break(BK_numpy, "pow of an array with three arguments");
  return array_power(a, b);
}
static PyObject *array_inplace_pow(PyObject *a, PyObject *b, PyObject *mod) {
  return array_inplace_power(a, b);
}

static ArrayFn array_divmod_fn, array_getattr_fn, array_getitem_fn, array_setitem_fn, array_delitem_fn;

static PyObject *array_divmod(PyObject *a, PyObject *b) {
  return array_operate(&array_divmod_fn, "divmod", a, b);
}

static PyObject *array_compare(PyObject *a, PyObject *b, int how) {
  static ArrayFn fn[6];
  static const char *const name[] = {"lt", "le", "eq", "ne", "gt", "ge"};
  return array_operate(&fn[how], name[how], a, b);
}

/* ---- values ---- */

/* What needs the values: an exception that NumPy raises for any values, else a break. */
static PyObject *array_value(PyObject *o, PyObject *(*ask)(PyObject *), const char *what) {
  MgStandInfo *info = mg_standin_info(((MgArray *)o)->tensor);
  PyObject *v = ask ? ask(((MgArray *)o)->model) : NULL;
  if (ask && !v) return NULL;
  Py_XDECREF(v);
  MgRec *before = mg_rec;
  if (info->cap) mg_rec = info->cap->rec;
  if (mg_rec) mg_rec_break(BK_data_dependent, "%s of a NumPy array", what);
  else PyErr_SetString(PyExc_RuntimeError, "magneto: an array of a finished recording was used");
  mg_rec = before;
  return NULL;
}

static PyObject *array_ask_truth(PyObject *model) {
  int r = PyObject_IsTrue(model);
  return r < 0 ? NULL : PyBool_FromLong(r);
}
static PyObject *array_ask_hash(PyObject *model) {
  Py_hash_t h = PyObject_Hash(model);
  return h == -1 ? NULL : PyLong_FromSsize_t(h);
}
static int array_bool(PyObject *o) { return array_value(o, array_ask_truth, "truth") ? 1 : -1; }
static PyObject *array_float(PyObject *o) { return array_value(o, PyNumber_Float, "float()"); }
static PyObject *array_int(PyObject *o) { return array_value(o, PyNumber_Long, "int()"); }
static PyObject *array_index(PyObject *o) {
  return array_value(o, PyNumber_Index, "an index that is an element");
}
static Py_hash_t array_hash(PyObject *o) { return array_value(o, array_ask_hash, "hash()") ? 0 : -1; }
static PyObject *array_text(PyObject *o) { return array_value(o, NULL, "text"); }
static int array_contains(PyObject *o, PyObject *x) { return array_value(o, NULL, "`in`") ? 1 : -1; }
static PyObject *array_values(PyObject *o, PyObject *args, PyObject *kw) {
  return array_value(o, NULL, "the values");
}

/* ---- items ---- */

static Py_ssize_t array_length(PyObject *o) { return PyObject_Size(((MgArray *)o)->model); }

static PyObject *array_getitem(PyObject *o, PyObject *key) {
  return array_operate(&array_getitem_fn, "getitem", o, key);
}

static PyObject *array_item(PyObject *o, Py_ssize_t i) {
  PyObject *key = PyLong_FromSsize_t(i), *r = key ? array_getitem(o, key) : NULL;
  Py_XDECREF(key);
  return r;
}

static int array_setitem(PyObject *o, PyObject *key, PyObject *v) {
  ArrayFn *fn = v ? &array_setitem_fn : &array_delitem_fn;
  PyObject *args = NULL, *r = NULL;
  if (!fn->np && !(fn->np = array_operator(v ? "setitem" : "delitem"))) return -1;
  MgArrayOp op = {.np = fn->np, .cache = &fn->call, .name = "setitem"};
  if ((args = v ? PyTuple_Pack(3, o, key, v) : PyTuple_Pack(2, o, key))) r = mg_array_apply(&op, args, NULL);
  Py_XDECREF(args);
  Py_XDECREF(r);
  return r ? 0 : -1;
}

static PyObject *array_iter(PyObject *o) {
  PyObject *it = PyObject_GetIter(((MgArray *)o)->model); /* or its exception */
  Py_XDECREF(it);
  return it ? PySeqIter_New(o) : NULL;
}

/* ---- methods that have been looked up ---- */

typedef struct ArrayMethod {
  PyObject_HEAD PyObject *self, *name; /* strong */
} ArrayMethod;

static PyObject *array_method_new(PyObject *self, PyObject *name) {
  ArrayMethod *m = PyObject_New(ArrayMethod, &array_method_type);
  if (!m) return NULL;
  m->self = Py_NewRef(self);
  m->name = Py_NewRef(name);
  return (PyObject *)m;
}

static void array_method_dealloc(PyObject *o) {
  Py_DECREF(((ArrayMethod *)o)->self);
  Py_DECREF(((ArrayMethod *)o)->name);
  PyObject_Free(o);
}

bool mg_array_method_parts(PyObject *o, PyObject **self, PyObject **name) {
  if (Py_TYPE(o) != &array_method_type) return false;
  *self = ((ArrayMethod *)o)->self;
  *name = ((ArrayMethod *)o)->name;
  return true;
}

static PyObject *array_method_call(PyObject *o, PyObject *args, PyObject *kw) {
  ArrayMethod *m = (ArrayMethod *)o;
  const char *name = PyUnicode_AsUTF8(m->name);
  MgArrayOp op = {.method = name, .name = name};
  if (!name) return NULL;
  if (!strcmp(name, "item") && !PyTuple_GET_SIZE(args)) {
    PyObject *v = PyObject_CallMethod(((MgArray *)m->self)->model, "item", NULL); /* or its exception */
    Py_XDECREF(v);
    return v ? PyObject_CallMethod(((MgArray *)m->self)->tensor, "item", NULL) : NULL;
  }
  PyObject *tensor = ((MgArray *)m->self)->tensor;
  if (!strcmp(name, "tolist") && mg_rec && mg_symvalue_can(mg_rec->cap, tensor))
    return mg_symvalue_list(mg_rec->cap, tensor);
  if (!strcmp(name, "tolist")) return array_value(m->self, NULL, "tolist()");
  bool copies = !strcmp(name, "__copy__") || !strcmp(name, "__deepcopy__");
  if (copies) op.method = "copy";
  PyObject *self = PyTuple_Pack(1, m->self),
           *all = self && !copies ? PySequence_Concat(self, args) : Py_XNewRef(self);
  PyObject *r = all ? mg_array_apply(&op, all, kw) : NULL;
  Py_XDECREF(self);
  Py_XDECREF(all);
  return r;
}

static PyTypeObject array_method_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "magneto._magneto.ArrayMethod",
    .tp_basicsize = sizeof(ArrayMethod),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_dealloc = array_method_dealloc,
    .tp_call = array_method_call,
};

/* ---- attributes ---- */

/* What an attribute says about dtype and shape, and never changes. */
static bool array_is_fact(PyObject *v) {
  return PyLong_Check(v) || PyTuple_CheckExact(v) || PyUnicode_CheckExact(v) || PyType_Check(v) ||
         v == Py_None || !strncmp(Py_TYPE(v)->tp_name, "numpy.dtype", 11);
}

PyObject *mg_array_getattr(PyObject *o, PyObject *name) {
  PyObject *v = PyObject_GetAttr(((MgArray *)o)->model, name);
  if (!v) return NULL;
  if (PyCFunction_Check(v) || Py_TYPE(v) == mg_method_wrapper_type()) Py_SETREF(v, array_method_new(o, name));
  else if (!array_is_fact(v)) {
    Py_SETREF(v, array_operate(&array_getattr_fn, "getattr", o, name));
  }
  return v;
}

static int array_setattr(PyObject *o, PyObject *name, PyObject *v) {
  mg_rec_break(BK_numpy, "assignment to attribute %s of a NumPy array", PyUnicode_AsUTF8(name));
  return -1;
}

/* NumPy's protocols: calls that C code makes (map, reduce, operators of NumPy's own scalars). */
static PyObject *array_by_protocol(PyObject *f, PyObject *args, PyObject *kw) {
  MgArrayOp op;
  if (!mg_array_find(f, &op)) return mg_rec_break(BK_numpy, "a function of NumPy that torch._numpy lacks");
  return mg_array_apply(&op, args, kw);
}

static PyObject *array_ufunc(PyObject *o, PyObject *args, PyObject *kw) { /* (ufunc, method, *inputs, **kw) */
  if (PyTuple_GET_SIZE(args) < 2)
    return PyErr_Format(PyExc_TypeError, "__array_ufunc__ takes at least two arguments");
  if (PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(args, 1), "__call__"))
    return array_value(o, NULL, "a method of a ufunc");
  PyObject *in = PyTuple_GetSlice(args, 2, PyTuple_GET_SIZE(args));
  PyObject *r = in ? array_by_protocol(PyTuple_GET_ITEM(args, 0), in, kw) : NULL;
  Py_XDECREF(in);
  return r;
}

static PyObject *array_function(PyObject *o, PyObject *args) { /* (func, types, args, kwargs) */
  PyObject *f, *types, *in, *kw;
  if (!PyArg_ParseTuple(args, "OOO!O!", &f, &types, &PyTuple_Type, &in, &PyDict_Type, &kw)) return NULL;
  return array_by_protocol(f, in, kw);
}

static PyMethodDef array_methods[] = {
    {"__array_ufunc__", (PyCFunction)(void *)array_ufunc, METH_VARARGS | METH_KEYWORDS, NULL},
    {"__array_function__", array_function, METH_VARARGS, NULL},
    {"__array__", (PyCFunction)(void *)array_values, METH_VARARGS | METH_KEYWORDS, NULL},
    {"__complex__", (PyCFunction)(void *)array_values, METH_VARARGS | METH_KEYWORDS, NULL},
    {"__round__", (PyCFunction)(void *)array_values, METH_VARARGS | METH_KEYWORDS, NULL},
    {"__format__", (PyCFunction)(void *)array_values, METH_VARARGS | METH_KEYWORDS, NULL},
    {"__reduce_ex__", (PyCFunction)(void *)array_values, METH_VARARGS | METH_KEYWORDS, NULL},
    {NULL, NULL, 0, NULL}};

static PyNumberMethods array_number = {.nb_add = array_add,
                                       .nb_inplace_add = array_inplace_add,
                                       .nb_subtract = array_subtract,
                                       .nb_inplace_subtract = array_inplace_subtract,
                                       .nb_multiply = array_multiply,
                                       .nb_inplace_multiply = array_inplace_multiply,
                                       .nb_remainder = array_remainder,
                                       .nb_inplace_remainder = array_inplace_remainder,
                                       .nb_lshift = array_lshift,
                                       .nb_inplace_lshift = array_inplace_lshift,
                                       .nb_rshift = array_rshift,
                                       .nb_inplace_rshift = array_inplace_rshift,
                                       .nb_and = array_and,
                                       .nb_inplace_and = array_inplace_and,
                                       .nb_xor = array_xor,
                                       .nb_inplace_xor = array_inplace_xor,
                                       .nb_or = array_or,
                                       .nb_inplace_or = array_inplace_or,
                                       .nb_floor_divide = array_floor_divide,
                                       .nb_inplace_floor_divide = array_inplace_floor_divide,
                                       .nb_true_divide = array_true_divide,
                                       .nb_inplace_true_divide = array_inplace_true_divide,
                                       .nb_matrix_multiply = array_matrix_multiply,
                                       .nb_inplace_matrix_multiply = array_inplace_matrix_multiply,
                                       .nb_power = array_pow,
                                       .nb_inplace_power = array_inplace_pow,
                                       .nb_divmod = array_divmod,
                                       .nb_negative = array_negative,
                                       .nb_positive = array_positive,
                                       .nb_absolute = array_absolute,
                                       .nb_invert = array_invert,
                                       .nb_bool = array_bool,
                                       .nb_float = array_float,
                                       .nb_int = array_int,
                                       .nb_index = array_index};
static PySequenceMethods array_sequence = {
    .sq_length = array_length, .sq_item = array_item, .sq_contains = array_contains};
static PyMappingMethods array_mapping = {
    .mp_length = array_length, .mp_subscript = array_getitem, .mp_ass_subscript = array_setitem};

static PyTypeObject array_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "magneto._magneto.Array",
    .tp_basicsize = sizeof(MgArray),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_dealloc = array_dealloc,
    .tp_methods = array_methods,
    .tp_as_number = &array_number,
    .tp_as_sequence = &array_sequence,
    .tp_as_mapping = &array_mapping,
    .tp_richcompare = array_compare,
    .tp_hash = array_hash,
    .tp_iter = array_iter,
    .tp_repr = array_text,
    .tp_str = array_text,
    .tp_getattro = mg_array_getattr,
    .tp_setattro = array_setattr,
};

int mg_array_init(void) {
  if (PyType_Ready(&array_type) || PyType_Ready(&array_method_type)) return -1;
  PyObject *m = mg_import("builtins");
  array_getattr_fn.np = m ? PyObject_GetAttrString(m, "getattr") : NULL;
  array_divmod_fn.np = m ? PyObject_GetAttrString(m, "divmod") : NULL;
  Py_XDECREF(m);
  /* The parts of NumPy that the table names are imported with magneto: a fork while a thread imports them in
   * its first recording would leave the child with a lock that nobody releases. */
  return array_getattr_fn.np && array_divmod_fn.np ? mg_array_begin() : -1;
}
