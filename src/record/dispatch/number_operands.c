/* Calls of ATen with numbers that the graph computes.
 * In: an op and its arguments, some of them torch.SymFloat.
 * Out: the same call with 0-dim tensors in their place, by the overload that takes tensors, or by multiplying
 * first (alpha, value).  Where ATen only knows numbers: the call with the number itself, guarded. */
#include "record/dispatch/number_operands.h"
#include <string.h>
#include "host/python/hook_mode.h"
#include "host/torch/literals.h"
#include "record/core/capture.h"
#include "record/core/recording.h"
#include "record/dispatch/dispatch.h"
#include "record/symbolic/number.h"
#include "record/symbolic/number_ops.h"
#include "record/symbolic/sizes.h"
#include "record/tensor/standin.h"

/* Is it a number that stands for a tensor's value?  Ints of ops are sizes, which the graph has words for. */
static bool symcall_number(const MgFrontOp *fo, int i, PyObject *o) {
  int kind = fo->op->param[i].kind;
  if (!o || kind == AK_int || kind == AK_int_list) return false;
  MgTop code = (MgTop)fo->op->code;
  bool range = code == TOP_arange || code == TOP_arange_start || code == TOP_arange_start_step;
  if (range && mg_symnode_of(o) && mg_symsize_of(mg_symnode_of(o))) return false;
  if (mg_symnode_of(o)) return true;
  for (Py_ssize_t j = 0; PyList_CheckExact(o) && j < PyList_GET_SIZE(o); j++)
    if (mg_symnode_of(PyList_GET_ITEM(o, j))) return true;
  return false;
}

bool mg_symfloat_among(const MgFrontOp *fo, PyObject *args, PyObject *kwargs) {
  for (int i = 0; i < fo->op->nparam; i++) {
    PyObject *o = i < PyTuple_GET_SIZE(args) ? PyTuple_GET_ITEM(args, i)
                  : kwargs                   ? PyDict_GetItemWithError(kwargs, fo->name[i])
                                             : NULL;
    if (symcall_number(fo, i, o)) return true;
  }
  return false;
}

typedef struct SymCall { /* one call being rewritten */
  MgCapture *cap;
  const MgFrontOp *fo;
  PyObject *args; /* list, one entry per schema parameter; NULL entries are defaults */
  int dtype;      /* of the other tensors when they are all 0-dim or integers; -1: float64 fits */
  int idtype;     /* of the other tensors when they are all 0-dim integers; -1: int64 fits */
} SymCall;

/* ---- operands ---- */

/* Notes an operand in c->idtype.  big: it is no 0-dim tensor and no integer; small: else its dtype counts. */
static void symcall_see(SymCall *c, PyObject *o, bool *big, int *small) {
  if (mg_standin_is(o)) {
    const MgVal *v = mg_val(c->cap->rec->g, mg_standin_val(o));
    if (v->ndim || mg_dtype_is_float(v->dtype) || mg_dtype_is_complex(v->dtype)) c->idtype = DT_i64;
    else if (c->idtype < 0 && v->dtype != DT_bool) c->idtype = v->dtype;
    bool real = mg_dtype_is_float(v->dtype) || mg_dtype_is_complex(v->dtype);
    if (real && v->ndim) *big = true;
    else if (real) *small = v->dtype;
    else if (*small < 0) *small = DT_f32;
  } else if (o && PyList_CheckExact(o) && PyList_GET_SIZE(o))
    symcall_see(c, PyList_GET_ITEM(o, 0), big, small);
}

/* A number takes part in type promotion less than a 0-dim tensor does: with other 0-dim or integral tensors
 * it has to have their dtype already. */
static void symcall_find_dtype(SymCall *c) {
  bool big = false;
  int small = -1;
  c->idtype = -1;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(c->args); i++) {
    PyObject *o = PyList_GET_ITEM(c->args, i);
    if (o) symcall_see(c, o, &big, &small);
  }
  c->dtype = big || small == DT_f64 ? -1 : small;
  if (c->idtype == DT_i64) c->idtype = -1;
}

/* A copy of t with the given dtype or device. */
static PyObject *symcall_copy(SymCall *c, PyObject *t, const char *what, PyObject *value) { /* steals both */
  PyObject *kw = t && value ? Py_BuildValue("{s:O}", what, value) : NULL, *a = kw ? PyTuple_Pack(1, t) : NULL,
           *r = a ? mg_dispatch_call(c->cap, "_to_copy", "default", a, kw) : NULL;
  Py_XDECREF(value);
  Py_XDECREF(kw);
  Py_XDECREF(a);
  Py_XDECREF(t);
  return r;
}

static PyObject *symcall_cast(SymCall *c, PyObject *t, int dtype) { /* steals t */
  return t ? symcall_copy(c, t, "dtype", mg_torchobj_new_dtype(dtype)) : NULL;
}

/* The 0-dim tensor of a number; plain numbers and tensors stay. */
static PyObject *symcall_tensor(SymCall *c, PyObject *o) {
  MgSymNode *n = mg_symnode_of(o);
  if (!n) return Py_NewRef(o);
  if (n->cap != c->cap) return mg_rec_break(BK_other_recording, "a number of another recording");
  ValRef v = mg_symnode_val(n);
  PyObject *t = v ? mg_standin_new(c->cap, v) : NULL;
  int dtype = mg_symnode_is_int(n) ? c->idtype : c->dtype;
  return t && dtype >= 0 ? symcall_cast(c, t, dtype) : t;
}

/* t on the device of the call's tensor: clamp takes no bounds of the CPU on a GPU. */
static PyObject *symcall_move(SymCall *c, PyObject *t) { /* steals t */
  PyObject *self = PyList_GET_ITEM(c->args, 0);
  const MgVal *v = self && mg_standin_is(self) ? mg_val(c->cap->rec->g, mg_standin_val(self)) : NULL;
  if (!t || !v || v->device != DEV_cuda) return t;
  return symcall_copy(c, t, "device", mg_torchobj_new_device(v->device, v->dev_index));
}

/* The same for a list; plain numbers become tensors too. */
static PyObject *symcall_tensors(SymCall *c, PyObject *list) {
  PyObject *r = PyList_New(0);
  for (Py_ssize_t i = 0; r && i < PyList_GET_SIZE(list); i++) {
    PyObject *o = PyList_GET_ITEM(list, i), *t;
    if (mg_symnode_of(o) || mg_standin_is(o)) t = symcall_tensor(c, o);
    else {
      PyObject *a = Py_BuildValue("([]O)", o);
      t = a ? mg_dispatch_call(c->cap, "full", "default", a, NULL) : NULL;
      Py_XDECREF(a);
    }
    if (!t || PyList_Append(r, t)) Py_CLEAR(r);
    Py_XDECREF(t);
  }
  return r;
}

/* n times the same tensor */
static PyObject *symcall_repeat(PyObject *t, Py_ssize_t n) { /* steals t */
  PyObject *r = t ? PyList_New(n) : NULL;
  for (Py_ssize_t i = 0; r && i < n; i++) PyList_SET_ITEM(r, i, Py_NewRef(t));
  Py_XDECREF(t);
  return r;
}

/* ---- making the call ---- */

static int symcall_param(const SymCall *c, const char *name) { return mg_op_param(c->fo->op, name); }

static int symcall_set(SymCall *c, int i, PyObject *v) { /* steals v; NULL is an error */
  return v ? PyList_SetItem(c->args, i, v) : -1;
}

/* Calls aten::<name>.<overload> with the arguments by position, up to the first that must
 * be named; the rest by name. */
static PyObject *symcall_make(SymCall *c, const char *name, const char *overload, int nparam) {
  PyObject *args = PyList_New(0), *kw = PyDict_New(), *t = NULL, *r = NULL;
  bool positional = true;
  for (int i = 0; args && kw && i < nparam; i++) {
    PyObject *o = PyList_GET_ITEM(c->args, i);
    positional = positional && o && !c->fo->op->param[i].kwarg_only;
    if (!o) continue;
    if (positional ? PyList_Append(args, o) : PyDict_SetItem(kw, c->fo->name[i], o)) goto done;
  }
  if (args && kw && (t = PyList_AsTuple(args))) r = mg_dispatch_call(c->cap, name, overload, t, kw);
done:
  Py_XDECREF(args);
  Py_XDECREF(kw);
  Py_XDECREF(t);
  return r;
}

/* "aten::_foreach_mul_" -> name without the namespace */
static const char *symcall_name(const SymCall *c) { return c->fo->op->name + 6; }

/* x * s for a tensor or list */
static PyObject *symcall_times(SymCall *c, PyObject *x, PyObject *s) { /* steals s */
  bool list = PyList_CheckExact(x);
  PyObject *a = s ? PyTuple_Pack(2, x, s) : NULL;
  const char *overload = s && PyList_CheckExact(s) ? "List" : "Tensor";
  PyObject *r = a ? mg_dispatch_call(c->cap, list ? "_foreach_mul" : "mul", overload, a, NULL) : NULL;
  Py_XDECREF(a);
  Py_XDECREF(s);
  return r;
}

/* A tensor that is scaled before the op takes it is in the wider dtype that the op computes in.  New. */
static PyObject *symcall_wide(SymCall *c, PyObject *x) {
  PyObject *self = PyList_GET_ITEM(c->args, 0);
  if (!mg_standin_is(x) || !mg_standin_is(self)) return Py_NewRef(x);
  const MgVal *narrow = mg_val(c->cap->rec->g, mg_standin_val(x)),
              *wide = mg_val(c->cap->rec->g, mg_standin_val(self));
  bool widens = wide->ndim && mg_dtype_is_float(narrow->dtype) && mg_dtype_is_float(wide->dtype) &&
                mg_dtype_size(wide->dtype) > mg_dtype_size(narrow->dtype);
  return widens ? symcall_cast(c, Py_NewRef(x), wide->dtype) : Py_NewRef(x);
}

static bool symcall_is_integral(const SymCall *c, PyObject *x) {
  if (!x || !mg_standin_is(x)) return x && PyLong_Check(x);
  MgDtype d = (MgDtype)mg_val(c->cap->rec->g, mg_standin_val(x))->dtype;
  return !mg_dtype_is_float(d) && !mg_dtype_is_complex(d);
}

/* alpha scales what is added or subtracted; value and scalars scale `tensor1`: multiplied first, and left
 * at 1.  0: not such a call. */
static int symcall_scale(SymCall *c) {
  bool reversed = !strcmp(symcall_name(c), "rsub");
  const char *const by[][3] = {
      {"alpha", reversed ? "self" : "other", ""}, {"value", "tensor1", ""}, {"scalars", "tensor1", "Scalar"}};
  for (int k = 0; k < 3; k++) {
    int i = symcall_param(c, by[k][0]), j = symcall_param(c, by[k][1]);
    PyObject *s = i >= 0 && j >= 0 ? PyList_GET_ITEM(c->args, i) : NULL,
             *x = s ? PyList_GET_ITEM(c->args, j) : NULL;
    if (!x || !(mg_symnode_of(s) || PyList_CheckExact(s)) || mg_symnode_of(x)) continue;
    int other = symcall_param(c, "other");
    if (k == 0 && mg_symnode_of(s) && !mg_symnode_is_int(mg_symnode_of(s)) &&
        symcall_is_integral(c, PyList_GET_ITEM(c->args, 0)) && other >= 0 &&
        symcall_is_integral(c, PyList_GET_ITEM(c->args, other))) /* which torch refuses */
      return symcall_set(c, i, mg_symnode_python(mg_symnode_of(s)));
    PyObject *f = PyList_CheckExact(s) ? symcall_tensors(c, s) : symcall_tensor(c, s);
    PyObject *wide = f ? symcall_wide(c, x) : NULL, *times = wide ? symcall_times(c, wide, f) : NULL;
    if (!wide) Py_XDECREF(f);
    Py_XDECREF(wide);
    if (symcall_set(c, j, times) || PyList_SetItem(c->args, i, NULL)) return -1;
    return k + 1;
  }
  return 0;
}

/* A plain number as such a tensor; others stay. */
static PyObject *symcall_constant(SymCall *c, PyObject *o) {
  bool real = PyFloat_CheckExact(o);
  if (!real && !PyLong_CheckExact(o)) return Py_NewRef(o);
  PyObject *dt = mg_torchobj_new_dtype(real ? DT_f64 : DT_i64),
           *kw = dt ? Py_BuildValue("{s:O}", "dtype", dt) : NULL;
  PyObject *a = kw ? Py_BuildValue("([]O)", o) : NULL,
           *t = a ? mg_dispatch_call(c->cap, "full", "default", a, kw) : NULL;
  int dtype = real ? c->dtype : c->idtype;
  Py_XDECREF(dt);
  Py_XDECREF(kw);
  Py_XDECREF(a);
  return symcall_move(c, t && dtype >= 0 ? symcall_cast(c, t, dtype) : t);
}

/* Overloads that take a tensor, or a list of them, where this one takes a number. */
static const struct {
  const char *name, *overload, *instead;
  bool list; /* one number becomes a tensor for each tensor of the first argument */
} symcall_rows[] = {{"pow", "Tensor_Scalar", "Tensor_Tensor", false},
                    {"pow", "Scalar", "Tensor_Tensor", false},
                    {"pow_", "Scalar", "Tensor", false},
                    {"lerp", "Scalar", "Tensor", false},
                    {"lerp_", "Scalar", "Tensor", false},
                    {"_foreach_mul", "Scalar", "Tensor", false},
                    {"_foreach_mul_", "Scalar", "Tensor", false},
                    {"_foreach_add", "Scalar", "Tensor", false},
                    {"_foreach_add_", "Scalar", "Tensor", false},
                    {"_foreach_div", "Scalar", "Tensor", false},
                    {"_foreach_div_", "Scalar", "Tensor", false},
                    {"_foreach_sub", "Scalar", "List", true},
                    {"_foreach_sub_", "Scalar", "List", true},
                    {"_foreach_lerp", "Scalar", "List", true},
                    {"_foreach_lerp_", "Scalar", "List", true},
                    {"_foreach_pow", "Scalar", "List", true},
                    {"_foreach_pow_", "Scalar", "List", true},
                    {"mul", "Scalar", "Tensor", false},
                    {"mul_", "Scalar", "Tensor", false},
                    {"add", "Scalar", "Tensor", false},
                    {"add_", "Scalar", "Tensor", false},
                    {"sub", "Scalar", "Tensor", false},
                    {"sub_", "Scalar", "Tensor", false},
                    {"rsub", "Scalar", "Tensor", false},
                    {"div", "Scalar", "Tensor", false},
                    {"div_", "Scalar", "Tensor", false},
                    {"eq", "Scalar", "Tensor", false},
                    {"ne", "Scalar", "Tensor", false},
                    {"lt", "Scalar", "Tensor", false},
                    {"le", "Scalar", "Tensor", false},
                    {"gt", "Scalar", "Tensor", false},
                    {"ge", "Scalar", "Tensor", false},
                    {"masked_fill", "Scalar", "Tensor", false},
                    {"masked_fill_", "Scalar", "Tensor", false},
                    {"fill", "Scalar", "Tensor", false},
                    {"fill_", "Scalar", "Tensor", false},
                    {"clamp_min", "default", "Tensor", false},
                    {"clamp_max", "default", "Tensor", false},
                    {"clamp", "default", "Tensor", false},
                    {"clamp_", "default", "Tensor", false},
                    {"_fused_adam_", "default", "tensor_lr", false},
                    {"_fused_adamw_", "default", "tensor_lr", false},
                    {"_fused_sgd_", "default", "tensor_lr", false},
                    {"_fused_adagrad_", "default", "tensor_lr", false}};

/* Is it one of n ops, or the in-place form of one? */
static bool symcall_is_one_of(const char *name, const char *const *op, size_t n) {
  for (size_t i = 0; i < n; i++) {
    size_t len = strlen(op[i]);
    if (!strncmp(name, op[i], len) && (!name[len] || !strcmp(name + len, "_"))) return true;
  }
  return false;
}

static bool symcall_list_op(const char *name, const char *overload) {
  return !strcmp(overload, "ScalarList") && !strncmp(name, "_foreach_", 9) && !strstr(name, "addc");
}

/* A power that no integer can make an error of. */
static bool symcall_is_real_power(const SymCall *c) {
  PyObject *o = PyList_GET_ITEM(c->args, mg_symnode_of(PyList_GET_ITEM(c->args, 0)) ? 1 : 0);
  return (!strcmp(symcall_name(c), "pow") || !strcmp(symcall_name(c), "pow_")) && mg_standin_is(o) &&
         mg_dtype_is_float(mg_val(c->cap->rec->g, mg_standin_val(o))->dtype);
}

/* Ints stay numbers where an op does more than arithmetic with them: exponents of integers, counts.  What
 * tensors are filled with may be a tensor. */
static bool symcall_pins_ints(const SymCall *c) {
  static const char *const arithmetic[] = {"mul", "add", "sub", "div", "rsub",    "eq",     "ne",
                                           "lt",  "le",  "gt",  "ge",  "addcmul", "addcdiv"};
  static const char *const values[] = {"full",        "full_like", "new_full",  "scalar_tensor", "fill",
                                       "masked_fill", "clamp",     "clamp_min", "clamp_max"};
  const char *name = symcall_name(c);
  bool any = false;
  if (symcall_is_real_power(c)) return false;
  for (int i = 0; i < c->fo->op->nparam; i++) {
    PyObject *o = PyList_GET_ITEM(c->args, i);
    MgSymNode *n = o && symcall_number(c->fo, i, o) ? mg_symnode_of(o) : NULL;
    any |= n && mg_symnode_is_int(n);
  }
  bool narrow = !strncmp(name, "clamp", 5) && c->idtype >= 0; /* the number may not fit */
  if (!any || symcall_is_one_of(name, arithmetic, sizeof arithmetic / sizeof *arithmetic)) return false;
  return narrow || !symcall_is_one_of(name, values, sizeof values / sizeof *values);
}

/* Fused optimizers take a tensor for the learning rate only.  0, or -1 with an exception. */
static int symcall_pin_fused(SymCall *c) {
  if (strncmp(symcall_name(c), "_fused_", 7)) return 0;
  for (int i = 0; i < c->fo->op->nparam; i++) {
    PyObject *o = PyList_GET_ITEM(c->args, i);
    MgSymNode *n = o ? mg_symnode_of(o) : NULL;
    if (n && strcmp(c->fo->op->param[i].name, "lr") && symcall_set(c, i, mg_symnode_python(n))) return -1;
  }
  return 0;
}

/* The call by another overload.  1 done (*r), 0 there is none. */
static int symcall_instead(SymCall *c, PyObject **r) {
  const char *name = symcall_name(c), *overload = *c->fo->op->overload ? c->fo->op->overload : "default",
             *instead = NULL;
  bool list = symcall_list_op(name, overload);
  if (list) instead = "List";
  for (size_t i = 0; !instead && i < sizeof symcall_rows / sizeof *symcall_rows; i++)
    if (!strcmp(name, symcall_rows[i].name) && !strcmp(overload, symcall_rows[i].overload)) {
      instead = symcall_rows[i].instead;
      list = symcall_rows[i].list;
    }
  if (!instead) return 0;
  Py_ssize_t n = PyList_GET_ITEM(c->args, 0) && PyList_CheckExact(PyList_GET_ITEM(c->args, 0))
                     ? PyList_GET_SIZE(PyList_GET_ITEM(c->args, 0))
                     : 0;
  int last = 0;
  bool all = !strncmp(name, "clamp", 5); /* both bounds are tensors, or none */
  *r = NULL;
  for (int i = 0; i < c->fo->op->nparam; i++) {
    PyObject *o = PyList_GET_ITEM(c->args, i);
    if (!o) continue;
    last = i + 1;
    if (all && symcall_set(c, i, symcall_constant(c, o))) return 1;
    o = PyList_GET_ITEM(c->args, i);
    if (mg_symnode_of(o) && symcall_number(c->fo, i, o)) {
      PyObject *t = all ? symcall_move(c, symcall_tensor(c, o)) : symcall_tensor(c, o);
      if (symcall_set(c, i, list ? symcall_repeat(t, n) : t)) return 1;
    } else if (list && i && PyList_CheckExact(o) && symcall_set(c, i, symcall_tensors(c, o))) return 1;
  }
  *r = symcall_make(c, name, instead, last);
  return 1;
}

/* full(size, number), full_like(x, number), new_full(x, size, number) and scalar_tensor(number). */
static int symcall_create(SymCall *c, PyObject **r) {
  static const char *const name[] = {"aten::scalar_tensor", "aten::full", "aten::full_like",
                                     "aten::new_full"};
  int row = 0;
  while (row < 4 && strcmp(c->fo->op->full, name[row])) row++;
  if (row == 4) return 0;
  int at = row == 3 ? 2 : row > 0; /* the number */
  MgSymNode *n = mg_symnode_of(PyList_GET_ITEM(c->args, at));
  if (!n) return 0;
  PyObject *one = mg_symnode_is_int(n) ? PyLong_FromLong(1) : PyFloat_FromDouble(1), *t = NULL;
  Py_INCREF(n);
  *r = NULL;
  if (!symcall_set(c, at, one) && (t = symcall_make(c, symcall_name(c), "default", c->fo->op->nparam))) {
    c->dtype = c->idtype = mg_val(c->cap->rec->g, mg_standin_val(t))->dtype;
    PyObject *s = symcall_tensor(c, (PyObject *)n);
    *r = symcall_times(c, t, s);
    Py_DECREF(t);
  }
  Py_DECREF(n);
  return 1;
}

/* The numbers themselves, guarded. */
static PyObject *symcall_plain(SymCall *c) {
  for (int i = 0; i < c->fo->op->nparam; i++) {
    PyObject *o = PyList_GET_ITEM(c->args, i);
    if (!symcall_number(c->fo, i, o)) continue;
    MgSymNode *n = mg_symnode_of(o);
    if (n && symcall_set(c, i, mg_symnode_python(n))) return NULL;
    if (n || !PyList_CheckExact(o)) continue;
    PyObject *l = PyList_GetSlice(o, 0, PyList_GET_SIZE(o));
    for (Py_ssize_t j = 0; l && j < PyList_GET_SIZE(l); j++) {
      if (!(n = mg_symnode_of(PyList_GET_ITEM(l, j)))) continue;
      PyObject *x = mg_symnode_python(n);
      if (!x || PyList_SetItem(l, j, x)) Py_CLEAR(l);
    }
    if (symcall_set(c, i, l)) return NULL;
  }
  return symcall_make(c, symcall_name(c), *c->fo->op->overload ? c->fo->op->overload : "default",
                      c->fo->op->nparam);
}

/* A number in place of a tensor: torch passes wrapped numbers so. */
static int symcall_wrapped(SymCall *c) {
  int any = 0;
  for (int i = 0; i < c->fo->op->nparam; i++) {
    PyObject *o = PyList_GET_ITEM(c->args, i);
    if (c->fo->op->param[i].kind != AK_tensor || !o || !mg_symnode_of(o)) continue;
    if (symcall_set(c, i, symcall_tensor(c, o))) return -1;
    any = 1;
  }
  return any;
}

static bool symcall_left(const SymCall *c) {
  for (int i = 0; i < c->fo->op->nparam; i++)
    if (symcall_number(c->fo, i, PyList_GET_ITEM(c->args, i))) return true;
  return false;
}

int mg_symfloat_operands(PyObject **a, PyObject **b) {
  MgSymNode *n = mg_symnode_of(*a), *m = n ? NULL : mg_symnode_of(*b);
  PyObject *t = n ? *b : *a, *seen;
  if (!(n || m) || !mg_symnode_is_int(n ? n : m) || !mg_standin_is(t)) return 0;
  const MgVal *v = mg_val(mg_rec->g, mg_standin_val(t));
  if (!v->ndim && !mg_dtype_is_float(v->dtype)) return 0;
  if (!(seen = mg_symfloat_standin(n ? *a : *b))) return -1;
  Py_INCREF(t);
  *a = n ? seen : t;
  *b = n ? t : seen;
  return 1;
}

static PyObject *symcall_run(SymCall *c) {
  const char *overload = *c->fo->op->overload ? c->fo->op->overload : "default";
  PyObject *r = NULL;
  symcall_find_dtype(c);
  int wrapped = symcall_wrapped(c);
  if (wrapped < 0) return NULL;
  if (symcall_pin_fused(c)) return NULL;
  if (symcall_pins_ints(c)) return symcall_plain(c);
  int scaled = symcall_scale(c);
  if (scaled < 0) return NULL;
  if (!symcall_left(c))
    return symcall_make(c, symcall_name(c), scaled == 3 ? "Scalar" : overload, c->fo->op->nparam);
  if (symcall_instead(c, &r) || symcall_create(c, &r)) return r;
  return symcall_plain(c);
}

PyObject *mg_symfloat_dispatch(MgCapture *cap, const MgFrontOp *fo, PyObject *args, PyObject *kwargs) {
  SymCall c = {.cap = cap, .fo = fo, .args = PyList_New(fo->op->nparam)};
  if (!c.args) return NULL;
  for (int i = 0; i < fo->op->nparam; i++) {
    PyObject *o = i < PyTuple_GET_SIZE(args) ? PyTuple_GET_ITEM(args, i)
                  : kwargs                   ? PyDict_GetItemWithError(kwargs, fo->name[i])
                                             : NULL;
    PyList_SET_ITEM(c.args, i, Py_XNewRef(o));
  }
  PyObject *r = symcall_run(&c);
  Py_DECREF(c.args);
  return r;
}
