/* See the header.  In: tensors and ints of the program, questions of inference.  Out:
 * symbols, sources, guards. */
#include "record/symbolic/sizes.h"
#include <stdlib.h>
#include <string.h>
#include "entry/guard/automatic_dynamic.h"
#include "entry/guard/guard_add.h"
#include "entry/launch/events.h"
#include "entry/guard/late_draws.h"
#include "entry/guard/source.h"
#include "entry/launch/config.h"
#include "entry/launch/trace.h"
#include "host/python/hook_mode.h"
#include "host/python/names.h"
#include "host/python/pyobject.h"
#include "host/torch/tensor_facts.h"
#include "record/core/capture.h"
#include "record/core/recording.h"
#include "record/core/source_place.h"
#include "record/symbolic/dynamic_sources.h"
#include "record/symbolic/number.h"
#include "record/symbolic/number_ops.h"
#include "record/symbolic/size_marks.h"
#include "record/symbolic/unbacked.h"

/* For reports: the line that made all sizes constants. */
static void symsize_tell(const MgRec *r, const char *why) {
  const char *file;
  int line = (int)mg_place_at(r, &file);
  mg_event("static", mg_place_code(r), line, why);
}

void mg_symsize_give_up(MgRec *r, const char *why) {
  MgRec *before = mg_rec;
  if (mg_measure_on) symsize_tell(r, why);
  mg_retry_fail(r, RETRY_sizes);
  mg_rec = r;
  mg_rec_break(BK_symbolic_size, "%s", why);
  mg_rec = before;
}

/* ---- symbols and their sources ---- */

SymRef mg_symsize_symbol(MgCapture *cap, SrcRef src, const MgSizeOf *of, int64_t hint, int64_t lo,
                         int64_t hi) {
  MgSymSizes *s = &cap->sizes;
  MgExprs *x = cap->rec->x;
  if (s->nsrc == s->cap) {
    uint32_t n = s->cap ? 2 * s->cap : 16;
    SrcRef *p = mg_realloc(s->src, n * sizeof *p);
    if (p) s->src = p;
    SymRef *q = p ? mg_realloc(s->ref, n * sizeof *q) : NULL;
    if (q) s->ref = q;
    MgSizeOf *o = q ? mg_realloc(s->of, n * sizeof *o) : NULL;
    if (o) s->of = o;
    MgSizeBound *b = o ? mg_realloc(s->bound, n * sizeof *b) : NULL;
    if (!b) return PyErr_NoMemory(), 0;
    s->bound = b;
    s->cap = n;
  }
  if (src && mg_symsize_number(cap, src) < 0 && mg_map_put(&s->by_src, src + 2ull, s->nsrc))
    return PyErr_NoMemory(), 0;
  SymRef e = mg_ex_symbol(x, hint, lo, hi, NULL);
  if (!e) return 0;
  if (of && of->val) mg_ex_set_late(x, e);
  s->src[s->nsrc] = src;
  s->of[s->nsrc] = of ? *of : (MgSizeOf){0};
  s->bound[s->nsrc] = (MgSizeBound){lo, hi, false, false};
  s->ref[s->nsrc++] = e;
  s->ndata += of != NULL;
  return e;
}

static SymRef symsize_constant(MgCapture *cap, PyObject *k) {
  int over = 1;
  int64_t v = k && PyLong_Check(k) ? PyLong_AsLongLongAndOverflow(k, &over) : 0;
  return over || v > MG_SIZE_MOST || v < -MG_SIZE_MOST ? 0 : mg_sym(cap->rec->x, v);
}

int mg_symsize_number(const MgCapture *cap, SrcRef src) {
  uint32_t i = src ? mg_map_get(&cap->sizes.by_src, src + 2ull) : MG_MAP_NONE;
  return i == MG_MAP_NONE ? -1 : (int)i;
}

/* The symbol of a source, or 0. */
static SymRef symsize_find(MgCapture *cap, SrcRef src) {
  int i = mg_symsize_number(cap, src);
  return i < 0 ? 0 : cap->sizes.ref[i];
}

static SymRef symsize_expr(MgCapture *cap, SrcRef src);

static SymRef symsize_calc_expr(MgCapture *cap, const MgSrc s) {
  MgExprs *x = cap->rec->x;
  int op = s.idx & MG_CALC_MASK;
  SrcRef second = (uint32_t)s.idx >> MG_CALC_BITS;
  SymRef a = s.parent ? symsize_expr(cap, s.parent) : symsize_constant(cap, s.key), b = 0;
  if (!a) return 0;
  if (op == CALC_neg) return mg_sym_sub(x, mg_sym(x, 0), a);
  if (op == CALC_abs || !(b = second ? symsize_expr(cap, second) : symsize_constant(cap, s.key))) return 0;
  switch (op) {
  case CALC_add: return mg_sym_add(x, a, b);
  case CALC_sub: return mg_sym_sub(x, a, b);
  case CALC_mul: return mg_sym_mul(x, a, b);
  case CALC_floordiv: return mg_sym_floordiv(x, a, b);
  case CALC_mod: return mg_sym_mod(x, a, b);
  case CALC_max: return mg_sym_max(x, a, b);
  case CALC_min: return mg_sym_min(x, a, b);
  default: return 0;
  }
}

/* What a source computes; 0: not made of symbols.  Remembered: sizes of nested
 * operations share their operands. */
static SymRef symsize_expr(MgCapture *cap, SrcRef src) {
  const MgSrc s = cap->rec->guards->src[src];
  SymRef known = symsize_find(cap, src);
  if (known || s.kind != SRC_calc) return known;
  uint32_t done = mg_map_get(&cap->sizes.expr, src + 2ull);
  if (done != MG_MAP_NONE) return done;
  SymRef e = symsize_calc_expr(cap, s);
  if (e && mg_map_put(&cap->sizes.expr, src + 2ull, e)) return PyErr_NoMemory(), 0;
  return e;
}

SymRef mg_symsize_of(MgSymNode *n) {
  MgCapture *cap = n->cap;
  if (!cap || !cap->sizes.ask.of || !mg_symnode_is_int(n)) return 0;
  if (n->size) return n->size;
  if (!n->src && !n->hint) return mg_symdata_number(n);
  if (cap->sizes.off && n->src) return 0;
  if (!n->src) return symsize_constant(cap, n->hint);
  if (mg_draw_late(cap->rec->guards, n->src)) return 0;
  SymRef e = symsize_expr(cap, n->src), hint = e ? 0 : symsize_constant(cap, n->hint);
  return e ? e
         : hint
             ? mg_symsize_symbol(cap, n->src, NULL, PyLong_AsLongLong(n->hint), -MG_SIZE_MOST, MG_SIZE_MOST)
             : 0;
}

void mg_symsize_int(MgCapture *cap, SrcRef src, PyObject *value) {
  if (!cap->sizes.off && symsize_constant(cap, value) && !symsize_find(cap, src))
    mg_symsize_symbol(cap, src, NULL, PyLong_AsLongLong(value), -MG_SIZE_MOST, MG_SIZE_MOST);
}

PyObject *mg_symsize_int_in(MgCapture *cap, int64_t v) {
  PyObject *k = PyLong_FromLongLong(v), *r = NULL;
  if (k && (cap->sizes.ints || (cap->sizes.ints = PyDict_New())))
    r = PyDict_SetDefault(cap->sizes.ints, k, k);
  Py_XDECREF(k);
  return r;
}

SrcRef mg_symsize_calc(MgCapture *cap, int op, SymRef a, SymRef b) {
  int64_t v;
  MgExprs *x = cap->rec->x;
  SrcRef p = 0, q = 0;
  PyObject *k = NULL;
  if (mg_ex_const_int(x, a, &v)) k = mg_symsize_int_in(cap, v);
  else if (!(p = mg_symsize_src(cap, a))) return 0;
  if (mg_ex_const_int(x, b, &v)) k = mg_symsize_int_in(cap, v);
  else if (!(q = mg_symsize_src(cap, b))) return 0;
  return (p && q) || k ? mg_source_calc(cap->rec->guards, op, p, q, k) : 0;
}

static SrcRef symsize_expr_src(MgCapture *cap, const MgExpr n) {
  int op = n.op == OP_add        ? CALC_add
           : n.op == OP_sub      ? CALC_sub
           : n.op == OP_mul      ? CALC_mul
           : n.op == OP_floordiv ? CALC_floordiv
           : n.op == OP_mod      ? CALC_mod
           : n.op == OP_max      ? CALC_max
           : n.op == OP_min      ? CALC_min
                                 : -1;
  if (op >= 0) return mg_symsize_calc(cap, op, n.src[0], n.src[1]);
  if (n.op == OP_neg)
    return mg_source_calc(cap->rec->guards, CALC_neg, mg_symsize_src(cap, n.src[0]), 0, NULL);
  mg_symsize_give_up(cap->rec, "a size that Python does not compute");
  return 0;
}

/* How a run computes an expression that is no constant; 0 with a break when Python has no word for it. */
SrcRef mg_symsize_src(MgCapture *cap, SymRef e) {
  const MgExpr n = *mg_expr(cap->rec->x, e);
  if (mg_symdata_in(cap, e)) return mg_rec_break(BK_data_dependent, "a size that depends on data"), 0;
  if (n.op == OP_sym) return cap->sizes.src[n.u.i];
  uint32_t done = mg_map_get(&cap->sizes.calc, e + 2ull);
  if (done != MG_MAP_NONE) return done;
  SrcRef src = symsize_expr_src(cap, n);
  if (src && mg_map_put(&cap->sizes.calc, e + 2ull, src)) return PyErr_NoMemory(), 0;
  return src;
}

PyObject *mg_symsize_object(MgCapture *cap, SymRef e) {
  int64_t v;
  if (mg_ex_const_int(cap->rec->x, e, &v)) return PyLong_FromLongLong(v);
  if (mg_symdata_in(cap, e)) return mg_symdata_object(cap, e);
  SrcRef src = mg_symsize_src(cap, e);
  PyObject *hint = src ? PyLong_FromLongLong(mg_sym_hint(cap->rec->x, e)) : NULL;
  return hint ? mg_symfloat_of(mg_symnode_new(cap, src, hint)) : PyErr_Occurred() ? NULL : PyErr_NoMemory();
}

PyObject *mg_symsize_dress(MgCapture *cap, PyObject *o) {
  if (!o || !cap->sizes.nsrc || (Py_TYPE(o) != mg_torch.size && Py_TYPE(o) != &PyTuple_Type)) return o;
  Py_ssize_t n = PyTuple_GET_SIZE(o), i = 0;
  while (i < n && !mg_symfloat_is(PyTuple_GET_ITEM(o, i))) i++;
  if (i == n) return o;
  PyObject *t = PyTuple_New(n), *r = NULL;
  for (i = 0; t && i < n; i++) {
    PyObject *x = mg_symfloat_dress(Py_NewRef(PyTuple_GET_ITEM(o, i)));
    if (!x) Py_CLEAR(t);
    else PyTuple_SET_ITEM(t, i, x);
  }
  if (t) r = Py_TYPE(o) == &PyTuple_Type ? Py_NewRef(t) : PyObject_CallOneArg((PyObject *)mg_torch.size, t);
  Py_XDECREF(t);
  Py_DECREF(o);
  return r;
}

void mg_symsize_answered(MgCapture *cap, int calc, SrcRef size, bool second, PyObject *k, bool yes) {
  static const uint8_t mirrored[] = {CALC_gt, CALC_ge, CALC_eq, CALC_ne, CALC_lt, CALC_le},
                       denied[] = {CALC_ge, CALC_gt, CALC_ne, CALC_eq, CALC_le, CALC_lt};
  int i = calc > CALC_ge ? -1 : mg_symsize_number(cap, size), over = 0;
  int64_t v = i >= 0 && PyLong_CheckExact(k) ? PyLong_AsLongLongAndOverflow(k, &over) : MG_SIZE_MOST;
  if (i < 0 || over || v >= MG_SIZE_MOST || v <= -MG_SIZE_MOST) return;
  MgSizeBound *b = &cap->sizes.bound[i];
  if (b->outside) return; /* what the program does with such a size is no matter: it is an error */
  if (second) calc = mirrored[calc];
  if (!yes) calc = denied[calc];
  int64_t lo = calc == CALC_eq || calc == CALC_ge ? v : calc == CALC_gt ? v + 1 : b->lo;
  int64_t hi = calc == CALC_eq || calc == CALC_le ? v : calc == CALC_lt ? v - 1 : b->hi;
  if (calc == CALC_ne && v == b->lo) lo = v + 1;
  if (calc == CALC_ne && v == b->hi) hi = v - 1;
  if (lo > b->lo) b->lo = lo;
  if (hi < b->hi) b->hi = hi;
}

/* "between 2 and 8", or "from 2 on" */
static void symsize_print_bounds(const MgSizeBound *b, MgStrbuf *out) {
  if (b->hi < MG_SIZE_MOST) mg_sb_printf(out, "between %lld and %lld", (long long)b->lo, (long long)b->hi);
  else mg_sb_printf(out, "from %lld on", (long long)b->lo);
}

int mg_symsize_promises(MgCapture *cap) {
  const MgSymSizes *s = &cap->sizes;
  uint32_t i = 0;
  while (i < s->nsrc && !(s->bound[i].promised && (s->bound[i].outside || s->bound[i].lo >= s->bound[i].hi)))
    i++;
  if (i == s->nsrc) return 0;
  MgStrbuf text = {0}, bounds = {0};
  mg_source_print(cap->rec->guards, s->src[i], &text);
  symsize_print_bounds(&s->bound[i], &bounds);
  PyObject *m = mg_import("torch.fx.experimental.symbolic_shapes"),
           *error = m ? PyObject_GetAttrString(m, "ConstraintViolationError") : NULL;
  if (error && s->bound[i].outside)
    PyErr_Format(error, "Constraints violated: %s is %lld, but it is marked as dynamic %s.",
                 mg_sb_text(&text), (long long)mg_sym_hint(cap->rec->x, s->ref[i]), mg_sb_text(&bounds));
  else if (error)
    PyErr_Format(error,
                 "Constraints violated: %s is marked as dynamic, but the program goes this way for one value "
                 "only (%lld). Do not mark it, or use maybe_mark_dynamic.",
                 mg_sb_text(&text), (long long)s->bound[i].lo);
  mg_sb_free(&text);
  mg_sb_free(&bounds);
  Py_XDECREF(error);
  Py_XDECREF(m);
  return -1;
}

int mg_symsize_known(MgCapture *cap, int op, MgSymNode *m, PyObject *a, MgSymNode *n, PyObject *b) {
  MgExprs *x = cap->rec->x;
  int64_t lo, hi;
  if (op > CALC_ge || !cap->sizes.ask.of) return -1;
  SymRef p = m ? mg_symsize_of(m) : symsize_constant(cap, a),
         q = n ? mg_symsize_of(n) : symsize_constant(cap, b);
  if (!p || !q) return -1;
  int fact = mg_symdata_fact(cap, op, p, q);
  if (fact >= 0) return fact;
  if (!mg_ex_range(x, mg_sym_sub(x, p, q), &lo, &hi)) return -1;
  switch (op) {
  case CALC_lt: return hi < 0 ? 1 : lo >= 0 ? 0 : -1;
  case CALC_le: return hi <= 0 ? 1 : lo > 0 ? 0 : -1;
  case CALC_gt: return lo > 0 ? 1 : hi <= 0 ? 0 : -1;
  case CALC_ge: return lo >= 0 ? 1 : hi < 0 ? 0 : -1;
  default: return lo > 0 || hi < 0 ? op == CALC_ne : lo == 0 && hi == 0 ? op == CALC_eq : -1;
  }
}

/* The greater, or lesser, of two; new. */
static PyObject *symsize_pick(MgCapture *cap, PyObject *a, PyObject *b, bool least) {
  int known = mg_symsize_known(cap, least ? CALC_le : CALC_ge, mg_symnode_of(a), a, mg_symnode_of(b), b);
  return known >= 0 ? Py_NewRef(known ? a : b) : mg_symfloat_compute(a, b, least ? CALC_min : CALC_max);
}

/* The recording that the sizes among some numbers belong to; NULL: none is a size, or one is no int. */
static MgCapture *symsize_among(PyObject *const *arg, Py_ssize_t n) {
  MgCapture *cap = NULL;
  for (Py_ssize_t i = 0; i < n; i++) {
    MgSymNode *s = mg_symnode_of(arg[i]);
    if (s ? !s->cap || !s->src || !mg_symsize_of(s) || (cap && cap != s->cap) : !PyLong_CheckExact(arg[i]))
      return NULL;
    if (s) cap = s->cap;
  }
  return cap;
}

bool mg_symsize_choose(PyObject *f, PyObject *const *arg, Py_ssize_t n, PyObject **r) {
  const char *name = PyCFunction_CheckExact(f) && n ? ((PyCFunctionObject *)f)->m_ml->ml_name : "";
  bool least = !strcmp(name, "min");
  if (!least && strcmp(name, "max")) return false;
  PyObject *module = ((PyCFunctionObject *)f)->m_module;
  if (!module || !PyUnicode_Check(module) || PyUnicode_CompareWithASCIIString(module, "builtins"))
    return false;
  PyObject *list =
      n == 1 && (PyList_CheckExact(*arg) || PyTuple_CheckExact(*arg) || Py_TYPE(*arg) == mg_torch.size)
          ? *arg
          : NULL;
  if (list) n = PySequence_Fast_GET_SIZE(list), arg = PySequence_Fast_ITEMS(list);
  MgCapture *cap = symsize_among(arg, n);
  if (!cap || cap->sizes.off) return false;
  *r = Py_NewRef(*arg);
  for (Py_ssize_t i = 1; *r && i < n; i++) {
    PyObject *best = symsize_pick(cap, *r, arg[i], least);
    Py_SETREF(*r, best);
  }
  return true;
}

static bool symsize_learned(const MgRec *r, SrcRef src, const char *what, int k) {
  PyObject *n = r->dyn ? mg_symsize_name(r->guards, src, what, k) : NULL;
  int has = n ? PySet_Contains(r->dyn, n) : 0;
  Py_XDECREF(n);
  mg_clear_as_no();
  return has > 0;
}

/* Is it a size of a cache, which grows?  The segment leaves a tensor with another size in its place.  Or an
 * earlier run has made the tensor, for no entry has met it so far, with a size that another tensor had, and
 * which has changed: it will change along.  Such a size may be 1, too. */
static bool symsize_grows(const MgRec *r, SrcRef src, int k, int64_t size) {
  if (!r->dyn || r->want_fx) return false;
  if (mg_dynfloat_knows(mg_symsize_grows_name(r->guards, src, k))) return true;
  bool changes = size > 1 && mg_dynfloat_knows(mg_symsize_value_name(size));
  return changes && !mg_dynfloat_knows(mg_symsize_seen_name(r->guards, src));
}

/* May dimension k differ in other runs? */
static MgSizeMark symsize_changes(MgCapture *cap, PyObject *tensor, SrcRef src, int k, int64_t size,
                                  int64_t *lo, int64_t *hi) {
  const MgRec *r = cap->rec;
  MgSizeMark mark = mg_symmark_dim(tensor, src, k, lo, hi);
  int setting = r->cfg ? r->cfg->dynamic : -1;
  if (mark == MARK_free && mg_retry_denied(r, RETRY_data)) mark = MARK_dynamic;
  if (cap->sizes.off) return mark == MARK_free ? MARK_free : MARK_static;
  if (mark == MARK_static || (setting == 0 && mark != MARK_free && !mg_dynfloat_listed(src, false)))
    return MARK_static;
  if (cap->unwrapping && mark != MARK_free) mark = MARK_none; /* torch itself marks inner tensors */
  if (mark != MARK_none) return mark;
  if (cap->sizes.all) return MARK_dynamic;
  if (symsize_grows(r, src, k, size)) return *lo = 1, MARK_dynamic;
  return symsize_learned(r, src, "size", k) ? MARK_dynamic : MARK_static;
}

enum { STRIDE_fixed = -2 }; /* instead of the dimension below: the stride is not known to change */

/* May the stride of dimension k be another in other runs?  Only one that leaves gaps behind what lies inside
 * of it: *below is that dimension, or -1. */
static bool symsize_stride_changes(const MgCapture *cap, const MgFacts *f, SrcRef src, int k, int *below) {
  const MgRec *r = cap->rec;
  int64_t stride = f->dim[f->ndim + k], most = 0;
  *below = -1;
  if (cap->sizes.off || stride < 2 || stride > MG_SIZE_MOST || (r->cfg && !r->cfg->dynamic) ||
      !symsize_learned(r, src, "stride", k))
    return false;
  for (int j = 0; j < f->ndim; j++) {
    int64_t inner = f->dim[f->ndim + j], span = f->dim[j] * inner;
    if (j == k || inner > stride || inner <= 0 || span <= most) continue;
    *below = j;
    most = span;
  }
  return most < stride;
}

/* Strides follow the sizes where they are those of a dense tensor; others are constants, or symbols where
 * they were seen to change (below[k] is STRIDE_fixed where they were not). */
static void symsize_strides(MgCapture *cap, SrcRef src, MgVal *v, MgFacts *f, const int *below) {
  MgExprs *x = cap->rec->x;
  for (int k = 0; k < f->ndim; k++) {
    SrcRef s = below[k] == STRIDE_fixed ? 0 : mg_source(cap->rec->guards, SRC_stride, src, k, NULL);
    SymRef e = s ? mg_symsize_symbol(cap, s, NULL, f->dim[f->ndim + k], 2, MG_SIZE_MOST) : 0;
    if (e) v->stride[k] = e;
    else f->follow[k] = (int8_t)(mg_symsize_inner(f, k) + 1);
  }
  for (int turn = 0; turn < f->ndim; turn++) /* inner ones first, whatever their order */
    for (int k = 0; k < f->ndim; k++) {
      int j = f->follow[k] - 1;
      if (j >= 0) v->stride[k] = mg_sym_mul(x, v->size[j], v->stride[j]);
    }
  for (int k = 0; k < f->ndim; k++)
    if (mg_expr(x, v->stride[k])->op == OP_const) f->follow[k] = 0;
    else if (below[k] != STRIDE_fixed) {
      f->follow[k] = (int8_t)(-1 - below[k]);
      f->dim[f->ndim + k] = MG_FACTS_ANY;
    }
}

/* The bounds that a size was marked with: a run outside of them records again, and is told. */
static void symsize_guard_bounds(MgCapture *cap, SrcRef size, int64_t lo, int64_t hi) {
  MgGuards *g = cap->rec->guards;
  PyObject *least = lo > 2 ? mg_symsize_int_in(cap, lo) : NULL,
           *most = hi < MG_SIZE_MOST ? mg_symsize_int_in(cap, hi) : NULL;
  if (least) mg_guard_add(g, GK_calc, mg_source_calc(g, CALC_ge, size, 0, least), Py_True, 0);
  if (most) mg_guard_add(g, GK_calc, mg_source_calc(g, CALC_le, size, 0, most), Py_True, 0);
}

/* The symbol of dimension k of an input; 0: it stays a constant. */
static SymRef symsize_dim(MgCapture *cap, PyObject *tensor, SrcRef src, ValRef val, int k, int64_t size) {
  int64_t lo = 2, hi = MG_SIZE_MOST;
  MgSizeMark mark = symsize_changes(cap, tensor, src, k, size, &lo, &hi);
  if (size < 0 || size > MG_SIZE_MOST) return 0;
  MgSizeOf of = {.val = val, .dim = k};
  if (mark == MARK_free) return mg_symsize_symbol(cap, 0, &of, size, 0, MG_SIZE_MOST);
  bool marked = mark == MARK_must, outside = marked && (size < lo || size > hi), narrow = marked && !outside;
  int64_t least = narrow && lo > 2 ? lo : !marked && lo == 1 ? 1 : 2;
  if (mark < MARK_dynamic || size < (least == 1 ? 1 : 2)) return 0;
  SrcRef s = mg_source(cap->rec->guards, SRC_size, src, k, NULL);
  SymRef e =
      s ? mg_symsize_symbol(cap, s, NULL, size, least, narrow && hi < MG_SIZE_MOST ? hi : MG_SIZE_MOST) : 0;
  if (e && marked)
    cap->sizes.bound[cap->sizes.nsrc - 1] = (MgSizeBound){lo > 2 ? lo : 2, hi, lo < hi || outside, outside};
  if (e && narrow) symsize_guard_bounds(cap, s, lo, hi);
  return e;
}

/* What is guarded of a size that may differ. */
static int64_t symsize_fact(const MgCapture *cap, SymRef size) {
  int64_t lo, hi;
  if (mg_symdata_in(cap, size)) return MG_FACTS_FREE;
  return mg_ex_range(cap->rec->x, size, &lo, &hi) && lo == 1 ? MG_FACTS_SOME : MG_FACTS_ANY;
}

void mg_symsize_input(MgCapture *cap, PyObject *tensor, SrcRef src, ValRef val) {
  MgRec *r = cap->rec;
  MgVal *v = mg_val(r->g, val);
  bool any = false;
  if (!src || !r->guards || v->ndim > MG_FACTS_FOLLOW || r->guards->src[src].kind == SRC_pinned ||
      mg_draw_late(r->guards, src))
    return;
  bool moves = r->guards->src[src].trait & SRC_MOVES; /* a parameter of another module at other calls */
  bool param = Py_TYPE(tensor) == mg_torch.parameter &&
               (moves || !mg_symsize_config("force_parameter_static_shapes", true));
  if ((Py_TYPE(tensor) != mg_torch.tensor && !param) || v->ndim == 0) return;
  MgFacts *f = mg_guard_facts(r->guards, src);
  if (!f) return;
  SymRef e[MG_FACTS_FOLLOW];
  int below[MG_FACTS_FOLLOW];
  for (int k = 0; k < v->ndim; k++) any |= (e[k] = symsize_dim(cap, tensor, src, val, k, f->dim[k])) != 0;
  for (int k = 0; k < v->ndim; k++)
    if (mg_symsize_inner(f, k) < 0 && symsize_stride_changes(cap, f, src, k, &below[k])) any = true;
    else below[k] = STRIDE_fixed;
  if (!any) return;
  for (int k = 0; k < v->ndim; k++)
    if (e[k]) v->size[k] = e[k];
  symsize_strides(cap, src, v, f, below);
  for (int k = 0; k < v->ndim; k++)
    if (e[k]) f->dim[k] = symsize_fact(cap, e[k]);
  f->dynamic = true;
}
