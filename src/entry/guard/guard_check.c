/* Checking a sealed guard set, and explaining what failed.
 * The order is: torch state, the flat program (what differs from call to call), then the packed compares of
 * everything that hangs on fixed objects.  Nothing is allocated and no Python code runs, except __eq__ and
 * __hash__ of dict keys that are not strings, and comparisons of constants that are not identical. */
#include "entry/guard/guard_check.h"
#include <stdio.h>
#include <string.h>
#include "base/strbuf.h"
#include "entry/guard/automatic_dynamic.h"
#include "entry/guard/dict_watch.h"
#include "entry/guard/finalizer_walk.h"
#include "entry/guard/guard_add.h"
#include "entry/guard/guard_set.h"
#include "entry/guard/overlap.h"
#include "entry/guard/source.h"
#include "entry/guard/tensor_contents.h"
#include "host/python/iterators.h"
#include "host/python/names.h"
#include "host/python/pyframe.h"
#include "host/python/pyobject.h"
#include "host/torch/array_header.h"
#include "host/torch/flatten.h"
#include "host/torch/tensor_facts.h"
#include "runtime/process/torch_abi.h"

static const char *const guard_text[] = {
#define GUARD(name, text) text,
#include "entry/guard/guards.def"
};

/* Values in dicts and classes: the same object, or an equal constant. */
static bool guard_same_value(PyObject *now, PyObject *was) {
  if (was == mg_any_float) return now != NULL; /* its type is guarded at its source */
  return now == was || (now && was && mg_guard_is_const(was) && mg_guard_same_const(now, was));
}

static bool guard_keys_equal(PyObject *dict, PyObject *keys) {
  Py_ssize_t pos = 0, i = 0;
  PyObject *k, *v;
  if (PyDict_GET_SIZE(dict) != PyTuple_GET_SIZE(keys)) return false;
  while (PyDict_Next(dict, &pos, &k, &v))
    if (!guard_same_value(k, PyTuple_GET_ITEM(keys, i++))) return false;
  return true;
}

static bool guard_dict_holds(const MgDictGuard *d, PyObject **bad_key) {
  if (d->all && PyDict_GET_SIZE(d->dict) != d->size) {
    *bad_key = NULL;
    return false;
  }
  for (int i = 0; i < d->n; i++) {
    PyObject *v = PyDict_GetItemWithError(d->dict, d->key[i]);
    if (!guard_same_value(v, d->val[i])) {
      mg_clear_as_no();
      *bad_key = d->key[i];
      return false;
    }
  }
  *bad_key = NULL;
  return !d->all || guard_keys_equal(d->dict, d->order);
}

static bool guard_type_holds(const MgTypeGuard *t, PyObject **bad_key) {
  *bad_key = mg_names.class_;
  PyObject *mro = t->mro ? t->type->tp_mro : NULL;
  if (t->mro && (!mro || PyTuple_GET_SIZE(mro) != t->nmro ||
                 memcmp(&PyTuple_GET_ITEM(mro, 0), t->mro, sizeof *t->mro * (size_t)t->nmro)))
    return false;
  for (int i = 0; i < t->n; i++)
    if (!guard_same_value(_PyType_Lookup(t->type, t->name[i]), t->val[i])) {
      *bad_key = t->name[i];
      return false;
    }
  int nspecial = 0;
  for (Py_ssize_t i = 0, pos = 0; mg_guard_next_special(t->type, &i, &pos);) nspecial++;
  *bad_key = mg_names.class_;
  return nspecial == t->nspecial;
}

/* The same for an OrderedDict, whose order is only to be had by iterating. */
static bool guard_order_equal(PyObject *dict, PyObject *keys) {
  if (PyDict_GET_SIZE(dict) != PyTuple_GET_SIZE(keys)) return false;
  PyObject *it = mg_dict_iter(dict), *k;
  bool same = it != NULL;
  for (Py_ssize_t i = 0; same && (k = PyIter_Next(it)); i++) {
    same = guard_same_value(k, PyTuple_GET_ITEM(keys, i));
    Py_DECREF(k);
  }
  Py_XDECREF(it);
  mg_clear_as_no();
  return same;
}

bool mg_guard_plain_order(PyObject *dict) {
  if (!PyODict_Check(dict) || PyDict_GET_SIZE(dict) < 2) return true;
  PyObject *it = mg_dict_iter(dict), *k, *v;
  bool same = it != NULL;
  Py_ssize_t pos = 0;
  while (same && PyDict_Next(dict, &pos, &k, &v)) {
    PyObject *next = PyIter_Next(it);
    same = next == k;
    Py_XDECREF(next);
  }
  Py_XDECREF(it);
  mg_clear_as_no();
  return same;
}

static bool guard_list_equal(PyObject *list, PyObject *items) {
  if (PyList_GET_SIZE(list) != PyTuple_GET_SIZE(items)) return false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(items); i++)
    if (!guard_same_value(PyList_GET_ITEM(list, i), PyTuple_GET_ITEM(items, i))) return false;
  return true;
}

/* want: a tuple of the elements in order. */
static bool guard_set_equal(PyObject *set, PyObject *want) {
  Py_ssize_t pos = 0, i = 0;
  PyObject *x;
  Py_hash_t h;
  if (!PyAnySet_Check(set) || PySet_GET_SIZE(set) != PyTuple_GET_SIZE(want)) return false;
  while (mg_pyframe_next_in_set(set, &pos, &x, &h))
    if (!guard_same_value(x, PyTuple_GET_ITEM(want, i++))) return false;
  return true;
}

static bool guard_deque_kind(PyObject *v, PyObject *max, Py_ssize_t n) {
  if (Py_TYPE(v) != mg_torch.deque || (n != MG_DEQUE_ANY && Py_SIZE(v) != n)) return false;
  PyObject *now = PyObject_GetAttrString(v, "maxlen");
  bool same = now && mg_guard_same_const(now, max);
  Py_XDECREF(now);
  if (same && n == MG_DEQUE_ANY && max != Py_None) same = !mg_finalizer_first(v);
  mg_clear_as_no();
  return same;
}

static bool guard_deque_equal(PyObject *deque, PyObject *items) {
  bool same = Py_SIZE(deque) == PyTuple_GET_SIZE(items);
  for (Py_ssize_t i = 0; same && i < PyTuple_GET_SIZE(items); i++) {
    PyObject *x = PySequence_GetItem(deque, i);
    same = guard_same_value(x, PyTuple_GET_ITEM(items, i));
    Py_XDECREF(x);
  }
  mg_clear_as_no();
  return same;
}

static char *guard_memory(PyObject *o) {
  void *p = NULL;
  if (mg_nd_is(o)) return mg_nd_data(o);
  mg_abi.aoti_torch_get_data_ptr(mg_facts_tensor(o), &p);
  return p;
}

static int guard_is_leaf(PyObject *tensor) {
  PyObject *r = PyObject_GetAttrString(tensor, "is_leaf");
  int yes = r ? r == Py_True : -1;
  if (!r) mg_clear_as_no();
  Py_XDECREF(r);
  return yes;
}

/* want: code, defaults, keyword defaults; None where there are none. */
static bool guard_func_holds(PyObject *func, PyObject *want) {
  PyFunctionObject *f = (PyFunctionObject *)func;
  PyObject *now[3] = {f->func_code, f->func_defaults, f->func_kwdefaults};
  for (int i = 0; i < 3; i++)
    if ((now[i] ? now[i] : Py_None) != PyTuple_GET_ITEM(want, i)) return false;
  return true;
}

static bool guard_answer_holds(PyObject *f, PyObject *want) {
  PyObject *now = PyObject_CallNoArgs(f);
  int same = now ? PyObject_RichCompareBool(now, want, Py_EQ) : -1;
  Py_XDECREF(now);
  if (same < 0) mg_clear_as_no();
  return same == 1;
}

uint64_t mg_guard_abc_token(void) {
  PyObject *r = PyObject_CallNoArgs(mg_torch.abc_token);
  uint64_t token = r ? PyLong_AsUnsignedLongLong(r) : (uint64_t)-1;
  if (token == (uint64_t)-1) mg_clear_as_no();
  Py_XDECREF(r);
  return token;
}

static bool guard_not_abc_holds(PyObject *abc, MgNotAbc *known) {
  uint64_t token = mg_guard_abc_token();
  if (token == known->token) return true;
  PyObject *arg[2] = {abc, known->sub}, *r = PyObject_Vectorcall(mg_torch.abc_subclasscheck, arg, 2, NULL);
  bool ok = r == Py_False;
  if (!r) mg_clear_as_no();
  Py_XDECREF(r);
  if (ok) known->token = token;
  return ok;
}

static bool guard_member_holds(PyObject *owner, PyObject *pair) {
  PyObject *d = PyTuple_GET_ITEM(pair, 0),
           *was = PyTuple_GET_SIZE(pair) > 1 ? PyTuple_GET_ITEM(pair, 1) : NULL;
  PyObject *now = Py_TYPE(d)->tp_descr_get(d, owner, (PyObject *)Py_TYPE(owner));
  if (!now) mg_clear_as_no();
  bool ok = guard_same_value(now, was);
  Py_XDECREF(now);
  return ok;
}

static bool guard_iterator_holds(PyObject *v, PyObject *want) {
  PyObject *now = mg_iterator_state(v);
  bool same = now && mg_guard_same_const(now, want);
  Py_XDECREF(now);
  return same;
}

static bool guard_context_holds(PyObject *var, PyObject *want) {
  PyObject *v = NULL;
  bool ok = !PyContextVar_Get(var, NULL, &v) &&
            guard_same_value(v, PyTuple_GET_SIZE(want) ? PyTuple_GET_ITEM(want, 0) : NULL);
  mg_clear_as_no();
  Py_XDECREF(v);
  return ok;
}

static bool guard_calc_holds(const MgGuards *g, const MgGuardOp *op, PyObject **vals, uint64_t turn) {
  PyObject *v = mg_source_value(g, op->src, vals, turn);
  if (!v) {
    mg_clear_as_no();
    return false;
  }
  bool ok = PyType_Check(op->o) ? Py_TYPE(v) == (PyTypeObject *)op->o : mg_guard_same_const(v, op->o);
  Py_DECREF(v);
  return ok;
}

/* Follows a source by one step from its parent's value. */
static bool guard_load(const MgGuards *g, const MgGuardOp *op, PyObject **vals, const MgSlots *s) {
  const MgSrc *src = &g->src[op->src];
  PyObject *v = src->kind == SRC_key_of ? PyDict_GetItemWithError(vals[src->parent], vals[src->idx])
                                        : mg_source_step(src, vals[src->parent], s);
  vals[op->src] = v;
  if (!v) mg_clear_as_no();
  return v != NULL;
}

static bool guard_lacks_key(PyObject *dict, PyObject *key) {
  int r = PyDict_Contains(dict, key);
  if (r < 0) mg_clear_as_no();
  return r == 0;
}

static bool guard_starts_at(PyObject *tensor, int64_t offset) {
  int64_t at = -1;
  return !mg_abi.aoti_torch_get_storage_offset(mg_facts_tensor(tensor), &at) && at == offset;
}

bool mg_guard_op_holds(const MgGuards *g, const MgGuardOp *op, PyObject **vals, const MgSlots *s,
                       uint64_t turn) {
  PyObject *v = op->src ? vals[op->src] : op->o;
  switch ((MgGuardKind)op->kind) {
  case GK_load: return guard_load(g, op, vals, s);
  case GK_null: return op->u.i >= s->n || !s->slot[op->u.i];
  case GK_is: return v == op->o;
  case GK_not: return v != op->o;
  case GK_type: return Py_TYPE(v) == (PyTypeObject *)op->o;
  case GK_equal: return mg_guard_same_const(v, op->o);
  case GK_getter: return guard_member_holds(v, op->o);
  case GK_value: return mg_guard_same_value(v, op->o);
  case GK_tensor: return mg_facts_hold(op->u.facts, v);
  case GK_content: return mg_contents_hold(v, op->o);
  case GK_array: return mg_nd_facts_hold(op->u.array, v);
  case GK_flat: return mg_wrapper_holds(v, op->o);
  case GK_length: return Py_TYPE(v) == (PyTypeObject *)op->o && Py_SIZE(v) == op->u.i;
  case GK_size:
    return Py_TYPE(v) == (PyTypeObject *)op->o && PyDict_GET_SIZE(v) == op->u.i && mg_guard_plain_order(v);
  case GK_keys: return guard_keys_equal(v, op->o);
  case GK_order: return guard_order_equal(v, op->o);
  case GK_order_is: return guard_order_equal(op->o, op->u.want);
  case GK_nokey: return guard_lacks_key(v, op->o);
  case GK_nokey_of: return guard_lacks_key(v, vals[op->src2]);
  case GK_noattr_of: return !_PyType_Lookup((PyTypeObject *)v, vals[op->src2]);
  case GK_quiet: return !mg_finalizer_reached(v);
  case GK_quiet_attr: return !mg_finalizer_attr(v, op->o);
  case GK_quiet_slot: return op->u.i >= s->n || !mg_finalizer_slot(s->slot[op->u.i]);
  case GK_elements: return guard_set_equal(v, op->o);
  case GK_code: return PyFunction_Check(v) && PyFunction_GET_CODE(v) == op->o;
  case GK_globals: return PyFunction_GET_GLOBALS(v) == op->o;
  case GK_builtin:
    return PyCFunction_CheckExact(v) && ((PyCFunctionObject *)v)->m_ml == (PyMethodDef *)(intptr_t)op->u.i;
  case GK_wrapper: return mg_policy_descr(v) == op->o;
  case GK_same: return v == vals[op->src2];
  case GK_distinct: return v != vals[op->src2];
  case GK_apart: return mg_apart_holds(op->u.apart, vals);
  case GK_offset: return guard_memory(vals[op->src2]) - guard_memory(v) == op->u.i;
  case GK_start: return guard_starts_at(v, op->u.i);
  case GK_leaf: return guard_is_leaf(v) == op->u.i;
  case GK_calc: return guard_calc_holds(g, op, vals, turn);
  case GK_func_is: return guard_func_holds(op->o, op->u.want);
  case GK_context_is: return guard_context_holds(op->o, op->u.want);
  case GK_iterator: return guard_iterator_holds(v, op->o);
  case GK_deque: return guard_deque_kind(v, op->o, op->u.i);
  case GK_deque_is: return guard_deque_equal(op->o, op->u.want);
  case GK_cell_empty: return PyCell_Check(v) && !PyCell_GET(v);
  case GK_cell_is: return guard_same_value(PyCell_GET(op->o), op->u.want);
  case GK_list_is: return guard_list_equal(op->o, op->u.want);
  case GK_set_is: return guard_set_equal(op->o, op->u.want);
  case GK_member_is: return guard_member_holds(op->o, op->u.want);
  case GK_not_abc: return guard_not_abc_holds(op->o, op->u.abc);
  case GK_answer: return guard_answer_holds(op->o, op->u.want);
  case GK__COUNT: break;
  }
  return false;
}

/* Hook dicts of modules, hundreds of them: one load each, without branches in between. */
static bool guard_hooks_hold(const MgGuards *g) {
  Py_ssize_t used = 0;
  for (uint32_t i = 0; i < g->nempty; i++) used |= ((PyDictObject *)g->empty[i])->ma_used;
  return !used;
}

typedef enum GuardPhase { PH_none, PH_dead, PH_state, PH_op, PH_slot, PH_dict, PH_type, PH_hooks } GuardPhase;

static bool guard_fast_dict_holds(MgGuards *g, uint32_t i, PyObject **bad_key) {
  MgFastDict *f = &g->fast_dict[i];
  uint64_t version = mg_dict_version(f->dict);
  if (version && f->version == version) return true;
  if (!guard_dict_holds(&g->dict[i], bad_key)) return false;
  f->version = version;
  return true;
}

/* Every dict, by its version. */
static GuardPhase guard_dicts_hold(MgGuards *g, uint32_t *at, PyObject **bad_key) {
  for (uint32_t i = 0; i < g->ndict; i++)
    if (!guard_fast_dict_holds(g, i, bad_key)) {
      *at = i;
      return PH_dict;
    }
  return guard_hooks_hold(g) ? PH_none : PH_hooks;
}

/* The dicts that changed since the last check.  Told about anew before they are compared,
 * which may run Python code. */
static GuardPhase guard_changed_hold(MgGuards *g, uint32_t *at, PyObject **bad_key) {
  uint32_t n = g->nchanged, changed[MG_GUARD_CHANGED];
  if (!n) return PH_none;
  g->nchanged = 0;
  if (n > MG_GUARD_CHANGED) {
    for (uint32_t i = 0; i < g->ndict + g->nempty; i++) mg_guard_rearm(g, i);
    GuardPhase ph = guard_dicts_hold(g, at, bad_key);
    if (ph) g->nchanged = n;
    return ph;
  }
  memcpy(changed, g->changed, sizeof *changed * n);
  GuardPhase ph = PH_none;
  for (uint32_t k = 0; k < n && !ph; k++) {
    uint32_t i = changed[k];
    mg_guard_rearm(g, i);
    if (i >= g->ndict) ph = ((PyDictObject *)g->empty[i - g->ndict])->ma_used ? PH_hooks : PH_none;
    else if (!guard_fast_dict_holds(g, *at = i, bad_key)) ph = PH_dict;
  }
  if (!ph) return PH_none;
  if (g->nchanged) { /* comparing changed more of them */
    g->nchanged = MG_GUARD_CHANGED + 1;
  } else {
    memcpy(g->changed, changed, sizeof *changed * n);
    g->nchanged = n;
  }
  return ph;
}

static bool guard_state_holds(const MgGuards *g) {
  MgTorchState now;
  mg_state_read(&now);
  if (!g->engine)
    now.anomaly =
        g->state.anomaly; /* runs of what is recorded obey it, backward passes that are recorded do not */
  return !memcmp(&now, &g->state, sizeof now);
}

static GuardPhase guard_slots_hold(const MgGuards *g, uint32_t *at) {
  for (uint32_t i = 0; i < g->nslot; i++) {
    const MgFastSlot *f = &g->fast_slot[i];
    if (*f->slot != f->dict || Py_TYPE(f->owner) != f->type) {
      *at = i;
      return PH_slot;
    }
  }
  return PH_none;
}

static GuardPhase guard_types_hold(MgGuards *g, uint32_t *at, PyObject **bad_key) {
  for (uint32_t i = 0; i < g->ntype; i++) {
    MgFastType *f = &g->fast_type[i];
    if (f->version && mg_type_version(f->type) == f->version) continue;
    if (!guard_type_holds(&g->type[i], bad_key)) {
      *at = i;
      return PH_type;
    }
    f->version = mg_guard_type_version(f->type);
  }
  return PH_none;
}

static GuardPhase guard_dicts_as_were(MgGuards *g, uint32_t *at, PyObject **bad_key) {
  return g->watched ? guard_changed_hold(g, at, bad_key) : guard_dicts_hold(g, at, bad_key);
}

/* The check itself: which phase failed, and where. */
static GuardPhase guard_run(MgGuards *g, const MgSlots *s, PyObject **vals, uint32_t *at,
                            PyObject **bad_key) {
  if (g->dead) return PH_dead;
  if (!guard_state_holds(g)) return PH_state;
  memcpy(vals, g->preset, sizeof *vals * (g->nsrc ? g->nsrc : 1));
  uint32_t nop = g->nop - g->npinned;
  uint64_t turn = mg_source_turn();
  for (uint32_t i = 0; i < nop; i++)
    if (!mg_guard_op_holds(g, &g->op[i], vals, s, turn)) {
      *at = i;
      return PH_op;
    }
  uint32_t tensor = mg_facts_hold_all(g->pinned, g->npinned);
  if (tensor < g->npinned) {
    *at = nop + tensor;
    return PH_op;
  }
  GuardPhase ph = guard_slots_hold(g, at);
  if (!ph) ph = guard_dicts_as_were(g, at, bad_key);
  return ph ? ph : guard_types_hold(g, at, bad_key);
}

bool mg_guards_group_holds(MgGuards *g, MgGuardGroup group) {
  uint32_t at = 0;
  PyObject *key = NULL;
  switch (group) {
  case GROUP_state: return guard_state_holds(g);
  case GROUP_slots: return !guard_slots_hold(g, &at);
  case GROUP_dicts: return !guard_dicts_as_were(g, &at, &key);
  case GROUP_types: return !guard_types_hold(g, &at, &key);
  case GROUP_hooks: return guard_hooks_hold(g);
  case GROUP__COUNT: break;
  }
  return false;
}

/* For reports. */
static void guard_count_failure(MgGuards *g, GuardPhase ph, uint32_t at) {
  static const MgGuardGroup group[] = {[PH_state] = GROUP_state,
                                       [PH_slot] = GROUP_slots,
                                       [PH_dict] = GROUP_dicts,
                                       [PH_type] = GROUP_types,
                                       [PH_hooks] = GROUP_hooks};
  if (ph == PH_op) mg_guard_cost_failed(g, at);
  else if (ph != PH_dead) mg_guard_cost_failed_group(g, group[ph]);
}

/* ---- explaining and printing ---- */

static void guard_put_object(MgStrbuf *out, PyObject *o);

/* The first few items of a list or tuple. */
static void guard_put_items(MgStrbuf *out, PyObject *o) {
  enum { ITEMS = 6 };
  bool list = PyList_Check(o);
  mg_sb_putc(out, list ? '[' : '(');
  for (Py_ssize_t i = 0; i < Py_SIZE(o) && i < ITEMS; i++) {
    if (i) mg_sb_puts(out, ", ");
    PyObject *item = list ? PyList_GET_ITEM(o, i) : PyTuple_GET_ITEM(o, i);
    if (PyList_CheckExact(item) || PyTuple_CheckExact(item)) mg_sb_puts(out, "...");
    else guard_put_object(out, item);
  }
  if (Py_SIZE(o) > ITEMS) mg_sb_printf(out, ", ... %zd in all", Py_SIZE(o));
  else if (!list && Py_SIZE(o) == 1) mg_sb_putc(out, ',');
  mg_sb_putc(out, list ? ']' : ')');
}

/* No method of the program runs: an instance of its own class is shown by class and address. */
static void guard_put_object(MgStrbuf *out, PyObject *o) {
  if (!o) {
    mg_sb_puts(out, "nothing");
    return;
  }
  if (PyList_CheckExact(o) || PyTuple_CheckExact(o)) {
    guard_put_items(out, o);
    return;
  }
  if (PyCode_Check(o) || PyFunction_Check(o)) { /* a name and a line say more than an address */
    PyCodeObject *co = PyCode_Check(o) ? (PyCodeObject *)o : (PyCodeObject *)PyFunction_GET_CODE(o);
    const char *name = PyUnicode_AsUTF8(co->co_qualname);
    const char *file = name ? PyUnicode_AsUTF8(co->co_filename) : NULL;
    const char *slash = file ? strrchr(file, '/') : NULL;
    mg_sb_printf(out, "<%s %s, %s:%d>", PyCode_Check(o) ? "code" : "function", name ? name : "?",
                 slash  ? slash + 1
                 : file ? file
                        : "?",
                 co->co_firstlineno);
    mg_clear_shown();
    return;
  }
  bool own = Py_TYPE(o)->tp_flags & Py_TPFLAGS_HEAPTYPE && !PyType_Check(o);
  bool brief = own || PyObject_TypeCheck(o, mg_torch.tensor) || PyObject_TypeCheck(o, mg_torch.module) ||
               PyDict_Check(o);
  PyObject *r = brief ? NULL : PyObject_Repr(o);
  const char *text = r ? PyUnicode_AsUTF8(r) : NULL;
  if (text) mg_sb_puts_cut(out, text, 100);
  else mg_sb_printf(out, "<%s at %p>", Py_TYPE(o)->tp_name, (void *)o);
  Py_XDECREF(r);
  mg_clear_shown();
}

void mg_guard_put(const MgGuards *g, const MgGuardOp *op, MgStrbuf *out) {
  if (op->src) mg_source_print(g, op->src, out);
  else if (op->kind == GK_null || op->kind == GK_quiet_slot) mg_sb_printf(out, "slot %d", (int)op->u.i);
  else if (op->kind == GK_apart) mg_sb_puts(out, "tensors");
  else guard_put_object(out, op->o);
  mg_sb_putc(out, ' ');
  for (const char *p = guard_text[op->kind]; *p; p++) {
    if (*p != '%') mg_sb_putc(out, *p);
    else if (*++p == 'i') mg_sb_printf(out, "%lld", (long long)op->u.i);
    else if (*p == '2') mg_source_print(g, op->src2, out);
    else if (op->kind == GK_builtin) mg_sb_puts(out, ((PyMethodDef *)(intptr_t)op->u.i)->ml_name);
    else if (op->kind == GK_not_abc) guard_put_object(out, op->u.abc->sub);
    else guard_put_object(out, op->src ? op->o : op->u.want);
  }
}

static void guard_put_key(MgStrbuf *out, PyObject *owner, PyObject *key, PyObject *was, PyObject *now,
                          bool have_now) {
  if (owner)
    mg_sb_printf(out, "<%s>.",
                 PyType_Check(owner) ? ((PyTypeObject *)owner)->tp_name : Py_TYPE(owner)->tp_name);
  guard_put_object(out, key);
  mg_sb_puts(out, ": recorded ");
  guard_put_object(out, was);
  if (!have_now) return;
  mg_sb_puts(out, ", now ");
  guard_put_object(out, now);
}

static PyObject *guard_find_val(PyObject **key, PyObject **val, int n, PyObject *k) {
  for (int i = 0; i < n; i++)
    if (key[i] == k) return val[i];
  return NULL;
}

static void guard_explain(MgGuards *g, GuardPhase ph, uint32_t at, PyObject *key, PyObject **vals,
                          MgStrbuf *out) {
  char text[200] = "";
  switch (ph) {
  case PH_dead: mg_sb_puts(out, "a module that the entry relied on was freed"); break;
  case PH_state: {
    MgTorchState now;
    mg_state_read(&now);
    mg_state_explain(&g->state, &now, text, sizeof text);
    mg_sb_puts(out, text);
    break;
  }
  case PH_op: {
    const MgGuardOp *op = &g->op[at];
    mg_guard_put(g, op, out);
    PyObject *v = op->src ? vals[op->src] : NULL;
    if (op->kind == GK_tensor) {
      mg_facts_explain(op->u.facts, v, text, sizeof text);
      mg_sb_printf(out, ": %s", text);
    } else if (op->kind == GK_apart) {
      mg_sb_puts(out, "; now ");
      mg_source_print(g, op->u.apart->bad[0], out);
      mg_sb_puts(out, " and ");
      mg_source_print(g, op->u.apart->bad[1], out);
      mg_sb_puts(out, " do");
    } else if (op->src) {
      mg_sb_puts(out, "; now ");
      guard_put_object(out, v);
    }
    break;
  }
  case PH_slot:
    mg_sb_printf(out, "__class__ or __dict__ of a %s was replaced", g->fast_slot[at].type->tp_name);
    break;
  case PH_dict: {
    MgDictGuard *d = &g->dict[at];
    if (!key) {
      mg_sb_printf(out, "keys of a dict, or their order: recorded %zd, now %zd", d->size,
                   PyDict_GET_SIZE(d->dict));
      break;
    }
    PyObject *now = PyDict_GetItemWithError(d->dict, key);
    guard_put_key(out, d->owner, key, guard_find_val(d->key, d->val, d->n, key), now, true);
    break;
  }
  case PH_type: {
    MgTypeGuard *t = &g->type[at];
    guard_put_key(out, (PyObject *)t->type, key, guard_find_val(t->name, t->val, t->n, key),
                  _PyType_Lookup(t->type, key), true);
    break;
  }
  case PH_hooks: mg_sb_puts(out, "a hook was registered on a module"); break;
  case PH_none: break;
  }
  mg_clear_shown();
}

/* Another instance of a module's class, where everything else may well be as recorded. */
static void guard_of_module(MgGuardFail *why, const MgGuardOp *op, PyObject *const *vals) {
  PyObject *now = op->kind == GK_is && op->src ? vals[op->src] : NULL;
  why->other_module =
      now && PyObject_TypeCheck(op->o, mg_torch.module) && PyObject_TypeCheck(now, mg_torch.module);
  why->of_module = why->other_module && Py_TYPE(now) == Py_TYPE(op->o);
}

/* A number that only sizes and strides of tensors decide. */
static bool guard_of_sizes(const MgGuards *g, SrcRef src) { return !(g->src[src].trait & SRC_OTHER); }

bool mg_guards_check(const MgGuards *cg, const MgSlots *s, PyObject **vals, MgGuardFail *why) {
  MgGuards *g = (MgGuards *)cg; /* only versions of the packed compares are refreshed */
  uint32_t at = 0;
  PyObject *key = NULL;
  GuardPhase ph = guard_run(g, s, vals, &at, &key);
  if (ph == PH_none) return true;
  if (g->cost && !why) guard_count_failure(g, ph, at); /* with a reason it is looked at again */
  if (why) {
    MgStrbuf out = {0};
    guard_explain(g, ph, at, key, vals, &out);
    why->index = (int)at;
    why->of_tensor = ph == PH_op && (g->op[at].kind == GK_tensor ||
                                     (g->op[at].kind == GK_calc && guard_of_sizes(g, g->op[at].src)));
    if (ph == PH_op) guard_of_module(why, &g->op[at], vals);
    snprintf(why->text, sizeof why->text, "%s", mg_sb_text(&out));
    mg_sb_free(&out);
  }
  return false;
}

void mg_guards_print(const MgGuards *g, MgStrbuf *out) {
  for (uint32_t i = 0; i < g->nop; i++) {
    if (g->op[i].kind == GK_load) continue;
    mg_guard_put(g, &g->op[i], out);
    mg_sb_putc(out, '\n');
  }
  for (uint32_t i = 0; i < g->ndict; i++) {
    const MgDictGuard *d = &g->dict[i];
    mg_sb_printf(out, "dict of %s, %d keys%s\n", d->owner ? Py_TYPE(d->owner)->tp_name : "namespace", d->n,
                 d->all ? " (all)" : "");
    for (int k = 0; k < d->n; k++) {
      mg_sb_puts(out, "  ");
      guard_put_key(out, NULL, d->key[k], d->val[k], NULL, false);
      mg_sb_putc(out, '\n');
    }
  }
  for (uint32_t i = 0; i < g->ntype; i++)
    mg_sb_printf(out, "class %s, %d attributes\n", g->type[i].type->tp_name, g->type[i].n);
  if (g->nempty) mg_sb_printf(out, "%u hook dicts are empty\n", g->nempty);
}
