/* Literals of ATen calls: torch's Python objects <-> MgArg.
 * In: objects as the dispatcher hands them to a mode.  Out: MgArg with torch's own numbers.
 * dtype, layout, memory format and device objects are plain structs whose value follows the object header;
 * that is checked against known objects when the module loads, so reading one costs a load
 * instead of an attribute look-up. */
#include "host/torch/literals.h"
#include <string.h>
#include "host/python/pyobject.h"
#include "ir/graph/graph.h"
#include "ir/graph/op.h"

static PyTypeObject *dtype_type, *layout_type, *memory_format_type, *device_type;
static PyObject *dtype_obj[64], *layout_obj[16], *memory_format_obj[8]; /* by torch's number, strong */

/* The enum value of one of torch's wrapper structs {PyObject_HEAD; int8_t value; ...}. */
static int torchobj_code(PyObject *o) { return *((int8_t *)o + sizeof(PyObject)); }

int mg_torchobj_dtype(PyObject *o) { return Py_TYPE(o) == dtype_type ? torchobj_code(o) : -1; }
int mg_torchobj_layout(PyObject *o) { return Py_TYPE(o) == layout_type ? torchobj_code(o) : -1; }
int mg_torchobj_memory_format(PyObject *o) {
  return Py_TYPE(o) == memory_format_type ? torchobj_code(o) : -1;
}

bool mg_torchobj_device(PyObject *o, int *type, int *index) {
  if (Py_TYPE(o) != device_type) return false;
  *type = ((int8_t *)o)[sizeof(PyObject)];
  *index = ((int8_t *)o)[sizeof(PyObject) + 1];
  return true;
}

/* Keeps every attribute of torch that is of the given type, by its number. */
static int torchobj_collect(PyObject *torch, PyTypeObject *type, PyObject **by_code, int n) {
  PyObject *dict = PyModule_GetDict(torch), *key, *val;
  Py_ssize_t pos = 0;
  while (PyDict_Next(dict, &pos, &key, &val)) {
    if (Py_TYPE(val) != type) continue;
    int code = torchobj_code(val);
    if (code >= 0 && code < n && !by_code[code]) by_code[code] = Py_NewRef(val);
  }
  return 0;
}

/* 0 when torch.<name> has the given number under the layout assumed above. */
static int torchobj_expect(PyObject *torch, const char *name, int code) {
  PyObject *o = PyObject_GetAttrString(torch, name);
  if (!o) return -1;
  int got = torchobj_code(o);
  Py_DECREF(o);
  if (got == code) return 0;
  PyErr_Format(PyExc_ImportError, "magneto: torch.%s has an unexpected layout in this version of torch",
               name);
  return -1;
}

int mg_torchobj_init(void) {
  if (dtype_type) return 0;
  static const struct {
    const char *name;
    int code;
  } known[] = {{"float32", 6},    {"bfloat16", 15},       {"bool", 11},        {"strided", 0},
               {"sparse_coo", 1}, {"preserve_format", 1}, {"channels_last", 2}};
  int rc = -1, type, index;
  PyObject *torch = mg_import("torch"), *dev = NULL;
  PyTypeObject *dt = NULL;
  if (!torch) goto done;
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (torchobj_expect(torch, known[i].name, known[i].code)) goto done;
  dt = (PyTypeObject *)PyObject_GetAttrString(torch, "dtype");
  layout_type = (PyTypeObject *)PyObject_GetAttrString(torch, "layout");
  memory_format_type = (PyTypeObject *)PyObject_GetAttrString(torch, "memory_format");
  device_type = (PyTypeObject *)PyObject_GetAttrString(torch, "device");
  if (!dt || !layout_type || !memory_format_type || !device_type) goto done;
  dev = PyObject_CallFunction((PyObject *)device_type, "s", "cuda:3");
  if (!dev) goto done;
  if (!mg_torchobj_device(dev, &type, &index) || type != DEV_cuda || index != 3) {
    PyErr_SetString(PyExc_ImportError,
                    "magneto: torch.device has an unexpected layout in this version of torch");
    goto done;
  }
  torchobj_collect(torch, dt, dtype_obj, 64);
  torchobj_collect(torch, layout_type, layout_obj, 16);
  torchobj_collect(torch, memory_format_type, memory_format_obj, 8);
  dtype_type = dt;
  rc = 0;
done:
  Py_XDECREF(torch);
  Py_XDECREF(dev);
  return rc;
}

PyObject *mg_torchobj_new_dtype(int code) {
  if (code >= 0 && code < 64 && dtype_obj[code]) return Py_NewRef(dtype_obj[code]);
  return PyErr_Format(PyExc_SystemError, "magneto: no torch.dtype has number %d", code);
}

PyObject *mg_torchobj_new_device(int type, int index) {
  const char *name = type == DEV_cpu ? "cpu" : type == DEV_cuda ? "cuda" : type == DEV_meta ? "meta" : NULL;
  if (!name) return PyErr_Format(PyExc_SystemError, "magneto: device type %d is not supported", type);
  if (index < 0 || type != DEV_cuda) return PyObject_CallFunction((PyObject *)device_type, "s", name);
  return PyObject_CallFunction((PyObject *)device_type, "si", name, index);
}

static PyObject *torchobj_list(MgGraph *g, const MgArg *a, PyObject *objs) {
  PyObject *l = PyList_New(a->n);
  if (!l) return NULL;
  for (uint32_t i = 0; i < a->n; i++) {
    PyObject *o = mg_torchobj_from_arg(g, &a->u.item[i], objs);
    if (!o) {
      Py_DECREF(l);
      return NULL;
    }
    PyList_SET_ITEM(l, i, o);
  }
  return l;
}

PyObject *mg_torchobj_from_arg(MgGraph *g, const MgArg *a, PyObject *objs) {
  int64_t v;
  switch ((MgArgTag)a->tag) {
  case MA_none: Py_RETURN_NONE;
  case MA_int:
    if (mg_sym_settle(g->x, a->u.sym, &v)) return PyLong_FromLongLong(v);
    PyErr_SetString(PyExc_NotImplementedError, "magneto: a symbolic size as a literal");
    return NULL;
  case MA_float: return PyFloat_FromDouble(a->u.f);
  case MA_bool: return PyBool_FromLong(a->u.b);
  case MA_str: return PyUnicode_FromString(a->u.str);
  case MA_dtype: return mg_torchobj_new_dtype(a->u.code);
  case MA_layout:
    if (a->u.code >= 0 && a->u.code < 16 && layout_obj[a->u.code]) return Py_NewRef(layout_obj[a->u.code]);
    break;
  case MA_memory_format:
    if (a->u.code >= 0 && a->u.code < 8 && memory_format_obj[a->u.code])
      return Py_NewRef(memory_format_obj[a->u.code]);
    break;
  case MA_device: return mg_torchobj_new_device(a->u.code, a->dev_index);
  case MA_list: return torchobj_list(g, a, objs);
  case MA_object: {
    PyObject *o = objs ? PyList_GetItem(objs, a->u.obj) : NULL;
    if (o) return Py_NewRef(o);
    break;
  }
  case MA_val: break; /* a tensor is not a literal */
  }
  if (!PyErr_Occurred())
    PyErr_Format(PyExc_SystemError, "magneto: argument of kind %d is not a literal", a->tag);
  return NULL;
}

int mg_torchobj_to_arg(MgGraph *g, PyObject *o, int kind, MgArg *out) {
  int type, index, code;
  if (o == Py_None) {
    *out = mg_arg_none();
  } else if (PyBool_Check(o)) {
    *out = kind == AK_int ? mg_arg_int(g, o == Py_True) : mg_arg_bool(o == Py_True);
  } else if (PyLong_Check(o)) {
    /* The schema's kind decides: torch passes an int for a float parameter, and numbers for enumerations. */
    if (kind == AK_float) {
      double d = PyLong_AsDouble(o);
      if (d == -1.0 && PyErr_Occurred()) return -1;
      *out = mg_arg_float(d);
      return 1;
    }
    int over;
    int64_t v = PyLong_AsLongLongAndOverflow(o, &over);
    if (over) return 0;
    if (kind == AK_dtype || kind == AK_layout || kind == AK_memory_format)
      *out = (MgArg){.tag = kind == AK_dtype    ? MA_dtype
                            : kind == AK_layout ? MA_layout
                                                : MA_memory_format,
                     .u.code = (int32_t)v};
    else *out = mg_arg_int(g, v);
  } else if (PyFloat_Check(o)) {
    *out = mg_arg_float(PyFloat_AS_DOUBLE(o));
  } else if (PyUnicode_Check(o)) {
    const char *s = PyUnicode_AsUTF8(o);
    if (!s) return -1;
    s = mg_ctx_strdup(g->c, s);
    if (!s) return PyErr_NoMemory(), -1;
    *out = (MgArg){.tag = MA_str, .u.str = s};
  } else if ((code = mg_torchobj_dtype(o)) >= 0) {
    *out = (MgArg){.tag = MA_dtype, .u.code = code};
  } else if (mg_torchobj_device(o, &type, &index)) {
    *out = (MgArg){.tag = MA_device, .dev_index = (int8_t)index, .u.code = type};
  } else if ((code = mg_torchobj_layout(o)) >= 0) {
    *out = (MgArg){.tag = MA_layout, .u.code = code};
  } else if ((code = mg_torchobj_memory_format(o)) >= 0) {
    *out = (MgArg){.tag = MA_memory_format, .u.code = code};
  } else {
    return 0;
  }
  return 1;
}
