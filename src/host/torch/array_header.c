/* See the header. */
#include "host/torch/array_header.h"
#include <stdlib.h>
#include <string.h>
#include "base/ctx.h"
#include "host/python/pyobject.h"
#include "ir/expr/dtype.h"

/* The head of PyArrayObject_fields and of PyArray_Descr. */
typedef struct NdDescr {
  PyObject_HEAD PyTypeObject *scalar;
  char kind, letter, byteorder, flags;
  int number; /* of the type */
} NdDescr;

typedef struct NdArray {
  PyObject_HEAD char *data;
  int nd;
  Py_ssize_t *dim, *stride; /* strides in bytes */
  PyObject *base;
  NdDescr *descr;
  int flags;
} NdArray;

enum { ND_ALIGNED = 0x100, ND_WRITEABLE = 0x400, ND_MATTERS = ND_ALIGNED | ND_WRITEABLE };

struct MgNdFacts {
  int nd, number, flags;
  char byteorder;
  Py_ssize_t dim[]; /* nd sizes, then nd strides */
};

static PyTypeObject *nd_type; /* numpy.ndarray, strong, once its layout is known to be this one */

/* np.ones((2, 3), float32).T */
static bool nd_layout_fits(PyObject *a) {
  const NdArray *n = (const NdArray *)a;
  PyObject *dtype = PyObject_GetAttrString(a, "dtype"),
           *num = dtype ? PyObject_GetAttrString(dtype, "num") : NULL;
  bool fits = num && n->nd == 2 && n->dim[0] == 3 && n->dim[1] == 2 && n->stride[0] == 4 &&
              n->stride[1] == 12 && (PyObject *)n->descr == dtype && n->descr->number == PyLong_AsLong(num) &&
              n->descr->kind == 'f' && (n->flags & ND_MATTERS) == ND_MATTERS && ((float *)n->data)[5] == 1.0f;
  PyObject *flags = fits ? PyObject_GetAttrString(a, "flags") : NULL;
  fits =
      flags && !PyObject_SetAttrString(flags, "writeable", Py_False) && (n->flags & ND_MATTERS) == ND_ALIGNED;
  Py_XDECREF(flags);
  Py_XDECREF(dtype);
  Py_XDECREF(num);
  return fits;
}

void mg_nd_init(PyObject *np) {
  PyObject *type = PyObject_GetAttrString(np, "ndarray");
  PyObject *a = type ? PyObject_CallMethod(np, "ones", "(ii)s", 2, 3, "float32") : NULL;
  PyObject *t = a ? PyObject_GetAttrString(a, "T") : NULL;
  bool fits = t && nd_layout_fits(t);
  mg_clear_as_no();
  Py_XDECREF(t);
  Py_XDECREF(a);
  if (!fits) Py_CLEAR(type);
  nd_type = (PyTypeObject *)type;
}

bool mg_nd_is(PyObject *o) { return Py_TYPE(o) == nd_type; }

static const struct {
  char letter;
  uint8_t code;
  const char *name;
} nd_dtypes[] = {{'?', DT_bool, "bool"},   {'B', DT_u8, "uint8"},      {'b', DT_i8, "int8"},
                 {'h', DT_i16, "int16"},   {'i', DT_i32, "int32"},     {'l', DT_i64, "int64"},
                 {'q', DT_i64, "int64"},   {'e', DT_f16, "float16"},   {'f', DT_f32, "float32"},
                 {'d', DT_f64, "float64"}, {'F', DT_c64, "complex64"}, {'D', DT_c128, "complex128"}};

static int nd_dtype_code(const NdDescr *d) {
  if (d->byteorder != '=' && d->byteorder != '|') return -1;
  for (size_t i = 0; i < sizeof nd_dtypes / sizeof *nd_dtypes; i++)
    if (nd_dtypes[i].letter == d->letter) return nd_dtypes[i].code;
  return -1;
}

const char *mg_nd_dtype_name(int code) {
  for (size_t i = 0; i < sizeof nd_dtypes / sizeof *nd_dtypes; i++)
    if (nd_dtypes[i].code == code) return nd_dtypes[i].name;
  return NULL;
}

int mg_nd_torch_dtype(PyObject *dtype) { return nd_dtype_code((const NdDescr *)dtype); }

bool mg_nd_writeable(PyObject *o) { return ((const NdArray *)o)->flags & ND_WRITEABLE; }

bool mg_nd_shareable(PyObject *o) {
  const NdArray *a = (const NdArray *)o;
  int code = nd_dtype_code(a->descr);
  if (code < 0 || (a->flags & ND_MATTERS) != ND_MATTERS) return false;
  Py_ssize_t size = mg_dtype_size((MgDtype)code);
  for (int i = 0; i < a->nd; i++)
    if (a->stride[i] < 0 || a->stride[i] % size) return false;
  return true;
}

MgNdFacts *mg_nd_facts_new(PyObject *o) {
  const NdArray *a = (const NdArray *)o;
  size_t bytes = sizeof(Py_ssize_t) * (size_t)a->nd;
  MgNdFacts *f = mg_calloc(1, sizeof *f + 2 * bytes);
  if (!f) return NULL;
  f->nd = a->nd;
  f->number = a->descr->number;
  f->byteorder = a->descr->byteorder;
  f->flags = a->flags & ND_MATTERS;
  memcpy(f->dim, a->dim, bytes);
  memcpy(f->dim + a->nd, a->stride, bytes);
  return f;
}

bool mg_nd_facts_hold(const MgNdFacts *f, PyObject *o) {
  if (Py_TYPE(o) != nd_type) return false;
  const NdArray *a = (const NdArray *)o;
  size_t bytes = sizeof(Py_ssize_t) * (size_t)f->nd;
  return a->nd == f->nd && a->descr->number == f->number && a->descr->byteorder == f->byteorder &&
         (a->flags & ND_MATTERS) == f->flags && !memcmp(a->dim, f->dim, bytes) &&
         !memcmp(a->stride, f->dim + f->nd, bytes);
}

bool mg_nd_extent(PyObject *o, uintptr_t *lo, uintptr_t *hi) {
  const NdArray *a = (const NdArray *)o;
  Py_ssize_t last = 0, code = nd_dtype_code(a->descr);
  for (int i = 0; i < a->nd; i++) {
    if (!a->dim[i]) return false;
    last += (a->dim[i] - 1) * a->stride[i];
  }
  *lo = (uintptr_t)a->data;
  *hi = *lo + (uintptr_t)last + (code < 0 ? 1 : (uintptr_t)mg_dtype_size((MgDtype)code));
  return true;
}

char *mg_nd_data(PyObject *o) { return ((const NdArray *)o)->data; }

bool mg_guard_is_numpy_scalar(PyTypeObject *t) {
  if (strncmp(t->tp_name, "numpy.", 6)) return false;
  if (!strcmp(t->tp_name + 6, "void") || !strcmp(t->tp_name + 6, "object_")) return false;
  for (PyTypeObject *b = t->tp_base; b; b = b->tp_base)
    if (!strcmp(b->tp_name, "numpy.generic")) return true;
  return false;
}

char mg_guard_numpy_number(PyObject *o) {
  static const char *const floats[] = {"float64", "float32", "float16"};
  static const char *const ints[] = {"int64", "int32", "int16", "int8", "uint32", "uint16", "uint8"};
  const char *name = Py_TYPE(o)->tp_name;
  if (strncmp(name, "numpy.", 6) || !mg_guard_is_numpy_scalar(Py_TYPE(o))) return 0;
  for (size_t i = 0; i < sizeof floats / sizeof *floats; i++)
    if (!strcmp(name + 6, floats[i])) return 'f';
  for (size_t i = 0; i < sizeof ints / sizeof *ints; i++)
    if (!strcmp(name + 6, ints[i])) return 'i';
  return 0;
}
