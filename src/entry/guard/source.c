/* See the header. */
#include "entry/guard/source.h"
#include <stdlib.h>
#include <string.h>
#include <inttypes.h>
#include "entry/guard/guard_add.h"
#include "host/python/iterators.h"
#include "host/python/names.h"
#include "host/python/pyobject.h"
#include "host/torch/function_stack.h"
#include "ir/graph/graph.h"

static const char *const source_text[] = {
#define SOURCE(name, text) text,
#include "entry/guard/guards.def"
};

/* Hash of a path; key objects by identity (names are interned). */
static uint64_t source_hash(MgSrcKind kind, SrcRef parent, int32_t idx, PyObject *key) {
  uint64_t h = mg_hash_u64((uint64_t)kind << 56 | (uint64_t)parent << 32 | (uint32_t)idx);
  return mg_hash_u64(h ^ (uint64_t)(uintptr_t)key) | 2;
}

static bool source_moves(const MgGuards *g, SrcRef src) { return src && g->src[src].trait & SRC_MOVES; }

static uint8_t source_trait(const MgGuards *g, MgSrcKind kind, SrcRef parent, int32_t idx) {
  enum { OF_CALC = SRC_DRAWS | SRC_READS | SRC_OTHER };
  switch (kind) {
  case SRC_draw: return SRC_DRAWS | SRC_OTHER;
  case SRC_number: return SRC_READS | SRC_OTHER;
  case SRC_size:
  case SRC_stride: return 0;
  case SRC_calc: break;
  default: return SRC_OTHER | (kind == SRC_key_of || source_moves(g, parent) ? SRC_MOVES : 0);
  }
  SrcRef second = (uint32_t)idx >> MG_CALC_BITS;
  return OF_CALC & ((parent ? g->src[parent].trait : 0) | (second ? g->src[second].trait : 0));
}

SrcRef mg_source(MgGuards *g, MgSrcKind kind, SrcRef parent, int32_t idx, PyObject *key) {
  uint64_t h = source_hash(kind, parent, idx, key);
  uint32_t at = mg_map_get(&g->by_src, h);
  if (at != MG_MAP_NONE) {
    MgSrc *s = &g->src[at];
    if (s->kind == kind && s->parent == parent && s->idx == idx && s->key == key) return at;
  }
  if (g->nsrc == g->cap_src) {
    if (!mg_grow(&g->src, &g->cap_src, sizeof *g->src, 32)) {
      g->failed = true;
      return 0;
    }
    if (!g->nsrc) g->src[g->nsrc++] = (MgSrc){0}; /* SrcRef 0 is "none" */
  }
  SrcRef ref = g->nsrc++;
  if (kind == SRC_pinned) mg_guards_hold(g, key);
  else Py_XINCREF(key);
  g->src[ref] = (MgSrc){(uint8_t)kind, source_trait(g, kind, parent, idx), parent, idx, key};
  bool load = kind != SRC_pinned && kind != SRC_draw && !mg_source_computed(&g->src[ref]);
  if (mg_map_put(&g->by_src, h, ref) != MG_OK) g->failed = true;
  if (load) mg_guard_add(g, GK_load, ref, NULL, 0);
  return ref;
}

/* ---- calculated numbers ---- */

SrcRef mg_source_calc(MgGuards *g, int op, SrcRef a, SrcRef b, PyObject *constant) {
  return mg_source(g, SRC_calc, a, (int32_t)(b << MG_CALC_BITS | (uint32_t)op), constant);
}

PyObject *mg_source_compute(int op, PyObject *a, PyObject *b) {
  switch ((MgCalc)op) {
  case CALC_lt:
  case CALC_le:
  case CALC_eq:
  case CALC_ne:
  case CALC_gt:
  case CALC_ge: return PyObject_RichCompare(a, b, op);
  case CALC_add: return PyNumber_Add(a, b);
  case CALC_sub: return PyNumber_Subtract(a, b);
  case CALC_mul: return PyNumber_Multiply(a, b);
  case CALC_truediv: return PyNumber_TrueDivide(a, b);
  case CALC_floordiv: return PyNumber_FloorDivide(a, b);
  case CALC_mod: return PyNumber_Remainder(a, b);
  case CALC_pow: return PyNumber_Power(a, b, Py_None);
  case CALC_and: return PyNumber_And(a, b);
  case CALC_or: return PyNumber_Or(a, b);
  case CALC_xor: return PyNumber_Xor(a, b);
  case CALC_min:
  case CALC_max: { /* the first unless the second is less, or greater */
    int second = PyObject_RichCompareBool(b, a, op == CALC_min ? Py_LT : Py_GT);
    return second < 0 ? NULL : Py_NewRef(second ? b : a);
  }
  case CALC_call: return PyObject_CallOneArg(b, a);
  case CALC_neg: return PyNumber_Negative(a);
  case CALC_abs: return PyNumber_Absolute(a);
  case CALC_int: return PyNumber_Long(a);
  case CALC_float: return PyNumber_Float(a);
  case CALC_bool: {
    int yes = PyObject_IsTrue(a);
    return yes < 0 ? NULL : PyBool_FromLong(yes);
  }
  case CALC_float32: {
    double x = PyFloat_AsDouble(a);
    return x == -1 && PyErr_Occurred() ? NULL : PyFloat_FromDouble((float)x);
  }
  }
  return NULL;
}

static PyObject *source_size(PyObject *tensor, int k, bool stride) {
  int64_t n, *p;
  MgTensor *t = tensor && PyObject_TypeCheck(tensor, mg_torch.tensor) ? mg_facts_tensor(tensor) : NULL;
  if (!t || mg_abi.aoti_torch_get_dim(t, &n) || k >= n) return NULL;
  if (stride ? mg_abi.aoti_torch_get_strides(t, &p) : mg_abi.aoti_torch_get_sizes(t, &p)) return NULL;
  return PyLong_FromLongLong(p[k]);
}

PyObject *mg_source_number(PyObject *tensor) {
  int32_t dtype = 0, device = -1;
  int64_t ndim = -1;
  void *p = NULL;
  if (!tensor || (Py_TYPE(tensor) != mg_torch.tensor && Py_TYPE(tensor) != mg_torch.parameter)) return NULL;
  MgTensor *t = mg_facts_tensor(tensor);
  if (mg_abi.aoti_torch_get_device_type(t, &device) || device != DEV_cpu ||
      mg_abi.aoti_torch_get_dim(t, &ndim) || ndim)
    return NULL;
  if (mg_abi.aoti_torch_get_dtype(t, &dtype) || mg_abi.aoti_torch_get_data_ptr(t, &p) || !p) return NULL;
  switch (dtype) {
  case DT_f32: return PyFloat_FromDouble(*(float *)p);
  case DT_f64: return PyFloat_FromDouble(*(double *)p);
  case DT_i64: return PyLong_FromLongLong(*(int64_t *)p);
  case DT_bool: return PyBool_FromLong(*(bool *)p);
  default: return NULL;
  }
}

/* A turn is never repeated, so that checks of other threads, or inside of this one, see nothing of it. */
typedef struct MgCalcDone {
  uint64_t turn;
  PyObject *v; /* strong */
} MgCalcDone;

uint64_t mg_source_turn(void) {
  static uint64_t turn; /* with the GIL held */
  return ++turn;
}

void mg_source_forget(MgGuards *g) {
  MgCalcDone *done = g->done;
  uint32_t n = g->ndone;
  g->done = NULL;
  g->ndone = 0;
  for (uint32_t i = 0; i < n; i++) Py_XDECREF(done[i].v);
  free(done);
}

/* Where the result of a source is kept; NULL: out of memory. */
static MgCalcDone *source_done(MgGuards *g, SrcRef src) {
  if (src < g->ndone) return &g->done[src];
  MgCalcDone *p = mg_realloc(g->done, g->nsrc * sizeof *p);
  if (!p) return NULL;
  memset(p + g->ndone, 0, (g->nsrc - g->ndone) * sizeof *p);
  g->done = p;
  g->ndone = g->nsrc;
  return &p[src];
}

static PyObject *source_calc_value(const MgGuards *g, const MgSrc *s, PyObject *const *vals, uint64_t turn) {
  SrcRef second = (uint32_t)s->idx >> MG_CALC_BITS;
  PyObject *a = s->parent ? mg_source_value(g, s->parent, vals, turn) : Py_XNewRef(s->key);
  PyObject *b = second ? mg_source_value(g, second, vals, turn) : s->parent ? Py_XNewRef(s->key) : NULL;
  int op = s->idx & MG_CALC_MASK;
  PyObject *r = a && (mg_calc_is_unary(op) || b) ? mg_source_compute(op, a, b) : NULL;
  Py_XDECREF(a);
  Py_XDECREF(b);
  return r;
}

PyObject *mg_source_value(const MgGuards *g, SrcRef src, PyObject *const *vals, uint64_t turn) {
  const MgSrc *s = &g->src[src];
  if (s->kind == SRC_size || s->kind == SRC_stride)
    return source_size(vals[s->parent], s->idx, s->kind == SRC_stride);
  if (s->kind == SRC_number) return mg_source_number(vals[s->parent]);
  if (s->kind != SRC_calc) return Py_XNewRef(vals[src]);
  if (!turn) turn = mg_source_turn();
  if (src < g->ndone && g->done[src].turn == turn) return Py_NewRef(g->done[src].v);
  PyObject *r = source_calc_value(g, s, vals, turn);
  MgCalcDone *done = r ? source_done((MgGuards *)g, src) : NULL; /* only the memo changes */
  if (!done) return r;
  done->turn = turn;
  Py_XSETREF(done->v, Py_NewRef(r)); /* last: it may run a destructor */
  return r;
}

/* ---- following and printing ---- */

static PyObject *source_in_tuple(PyObject *tuple, int64_t i) {
  return tuple && i < PyTuple_GET_SIZE(tuple) ? PyTuple_GET_ITEM(tuple, i) : NULL;
}

/* A new reference made a borrowed one: the owner keeps the value alive. */
static PyObject *source_owned(PyObject *v) {
  Py_XDECREF(v);
  return v;
}

static PyObject *source_item(PyObject *p, int64_t i) {
  if (PyList_Check(p)) return PyList_GET_ITEM(p, i);
  if (PyTuple_Check(p)) return PyTuple_GET_ITEM(p, i);
  return source_owned(PySequence_GetItem(p, i)); /* a deque */
}

/* The i-th key of a dict, or its value. */
static PyObject *source_at(PyObject *dict, int64_t i, bool value) {
  PyObject *k, *v;
  Py_ssize_t pos = 0;
  while (PyDict_Check(dict) && PyDict_Next(dict, &pos, &k, &v))
    if (!i--) return value ? v : k;
  return NULL;
}

static PyObject *source_instance_dict(PyObject *p) {
  PyObject **d = _PyObject_GetDictPtr(p);
  if (d && !*d && !(*d = PyDict_New())) PyErr_Clear(); /* CPython makes it at the first write */
  return d ? *d : NULL;
}

/* NULL as well for a value that nobody else holds. */
static PyObject *source_attr(PyObject *p, PyObject *name) {
  PyObject *v = PyObject_GetAttr(p, name);
  bool kept = v && Py_REFCNT(v) > 1;
  Py_XDECREF(v);
  return kept ? v : NULL;
}

PyObject *mg_source_step(const MgSrc *s, PyObject *p, const MgSlots *slots) {
  switch ((MgSrcKind)s->kind) {
  case SRC_slot: return s->idx < slots->n ? slots->slot[s->idx] : NULL;
  case SRC_func: return slots->func;
  case SRC_pinned: return s->key;
  case SRC_closure: return source_in_tuple(((PyFunctionObject *)p)->func_closure, s->idx);
  case SRC_cell: return PyCell_GET(p);
  case SRC_fdefault: return source_in_tuple(((PyFunctionObject *)p)->func_defaults, s->idx);
  case SRC_fkwdefault: {
    PyObject *d = ((PyFunctionObject *)p)->func_kwdefaults;
    return d ? PyDict_GetItemWithError(d, s->key) : NULL;
  }
  case SRC_item: return source_item(p, s->idx);
  case SRC_key: return PyDict_GetItemWithError(p, s->key);
  case SRC_key_at: return source_at(p, s->idx, false);
  case SRC_value_at: return source_at(p, s->idx, true);
  case SRC_instdict: return source_instance_dict(p);
  case SRC_member: return source_owned(Py_TYPE(s->key)->tp_descr_get(s->key, p, (PyObject *)Py_TYPE(p)));
  case SRC_attr: return source_attr(p, s->key);
  case SRC_class_attr: return _PyType_Lookup((PyTypeObject *)p, s->key);
  case SRC_method_func: return PyMethod_GET_FUNCTION(p);
  case SRC_method_self: return PyMethod_GET_SELF(p);
  case SRC_builtin_self: return PyCFunction_GET_SELF(p);
  case SRC_wrapper_self: return mg_policy_self(p);
  case SRC_partial_func: return source_owned(PyObject_GetAttr(p, mg_names.func)); /* read-only */
  case SRC_partial_args: return source_owned(PyObject_GetAttr(p, mg_names.args));
  case SRC_partial_kw: return source_owned(PyObject_GetAttr(p, mg_names.keywords));
  case SRC_fmode: return mg_fmodes_at(s->idx);
  case SRC_grad: return mg_backward_grad_of(p);
  case SRC_local: return mg_local_dict(p, false);
  case SRC_weak: return PyWeakref_Check(p) ? mg_weakref_target(p) : NULL;
  case SRC_over: return mg_iterator_over(p);
  case SRC_viewed: {
    const char *name;
    return mg_view_of(p, &name);
  }
  default: return NULL;
  }
}

PyObject *mg_source_slot_name(const MgGuards *g, int i) {
  PyObject *name =
      g->slot_names && i < PyTuple_GET_SIZE(g->slot_names) ? PyTuple_GET_ITEM(g->slot_names, i) : Py_None;
  return name == Py_None ? NULL : name;
}

bool mg_source_slot_on_stack(const MgGuards *g, int i) { return g->slot_names && !mg_source_slot_name(g, i); }

static void source_put_object(MgStrbuf *out, PyObject *o) {
  PyObject *r = NULL;
  if (o && Py_TYPE(o) == &PyMemberDescr_Type) r = Py_NewRef(((PyDescrObject *)o)->d_name);
  else if (o && PyCFunction_Check(o)) r = PyObject_GetAttrString(o, "__qualname__");
  else if (o && (PyUnicode_Check(o) || PyLong_Check(o) || PyFloat_Check(o))) r = PyObject_Repr(o);
  const char *s = r ? PyUnicode_AsUTF8(r) : NULL;
  if (s) mg_sb_puts_cut(out, s, 60);
  else mg_sb_printf(out, "%s at %p", o ? Py_TYPE(o)->tp_name : "?", (void *)o);
  Py_XDECREF(r);
  mg_clear_shown();
}

enum { PRINT_NODES = 200 }; /* operations in the text of one source; "..." stands for the others */

static void source_print(const MgGuards *g, SrcRef src, MgStrbuf *out, int *left);

static void source_print_calc(const MgGuards *g, const MgSrc *s, MgStrbuf *out, int *left) {
  static const char *const text[] = {"<",  "<=", "==",   "!=",   ">",      ">=",    "+",       "-",   "*",
                                     "/",  "//", "%",    "**",   "&",      "|",     "^",       "min", "max",
                                     "|>", "-",  "abs ", "int ", "float ", "bool ", "float32 "};
  SrcRef second = (uint32_t)s->idx >> MG_CALC_BITS;
  int op = s->idx & MG_CALC_MASK;
  if (--*left < 0) {
    mg_sb_puts(out, "...");
    return;
  }
  mg_sb_printf(out, "(%s", mg_calc_is_unary(op) ? text[op] : "");
  if (s->parent) source_print(g, s->parent, out, left);
  else source_put_object(out, s->key);
  if (!mg_calc_is_unary(op)) {
    mg_sb_printf(out, " %s ", text[op]);
    if (second) source_print(g, second, out, left);
    else source_put_object(out, s->key);
  }
  mg_sb_putc(out, ')');
}

static void source_print(const MgGuards *g, SrcRef src, MgStrbuf *out, int *left) {
  const MgSrc *s = &g->src[src];
  if (s->kind == SRC_key && g->src[s->parent].kind == SRC_instdict && PyUnicode_Check(s->key)) {
    source_print(g, g->src[s->parent].parent, out, left); /* x.__dict__['name'] is x.name */
    mg_sb_printf(out, ".%s", PyUnicode_AsUTF8(s->key));
    return;
  }
  if (s->kind == SRC_calc) {
    source_print_calc(g, s, out, left);
    return;
  }
  for (const char *p = source_text[s->kind]; *p; p++) {
    if (*p != '%') mg_sb_putc(out, *p);
    else if (*++p == 'p') source_print(g, s->parent, out, left);
    else if (*p == '2') source_print(g, (SrcRef)s->idx, out, left);
    else if (*p == 'i') mg_sb_printf(out, "%d", s->idx);
    else if (s->kind != SRC_slot) source_put_object(out, s->key);
    else if (mg_source_slot_name(g, s->idx))
      mg_sb_printf(out, "'%s'", PyUnicode_AsUTF8(mg_source_slot_name(g, s->idx)));
    else mg_sb_printf(out, "stack %d", s->idx);
  }
}

void mg_source_print(const MgGuards *g, SrcRef src, MgStrbuf *out) {
  int left = PRINT_NODES;
  source_print(g, src, out, &left);
}

bool mg_symsize_values(const MgGuards *g, const SrcRef *src, uint32_t n, PyObject *const *vals,
                       int64_t *out) {
  uint64_t turn = mg_source_turn();
  for (uint32_t i = 0; i < n; i++) {
    out[i] = 0;
    if (!src[i]) continue; /* depends on data */
    PyObject *v = mg_source_value(g, src[i], vals, turn);
    int over = 0;
    out[i] = v && PyLong_Check(v) ? PyLong_AsLongLongAndOverflow(v, &over) : 0;
    bool fits = v && PyLong_Check(v) && !over && out[i] <= MG_SIZE_MOST && out[i] >= -MG_SIZE_MOST;
    Py_XDECREF(v);
    if (!fits) return PyErr_Clear(), false; /* the size is no number that fits */
  }
  return true;
}
