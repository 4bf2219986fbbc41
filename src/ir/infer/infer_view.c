/* Results of views (sizes, strides and offsets over the same memory), of their copying twins, and of the ops
 * that write a view's values into a copy of the base. */
#include "ir/infer/infer.h"
#include <string.h>

MgRc mg_infer_view_out(MgInfer *in, int i, ValRef v, const MgDims *size, const MgDims *stride,
                       SymRef offset) {
  TRY(mg_infer_out(in, i, mg_val(in->g, v)->dtype, size, stride));
  MgVal *t = mg_val(in->g, in->n->out[i]);
  t->offset = offset;
  t->storage = mg_val(in->g, v)->storage;
  t->device = mg_val(in->g, v)->device;
  t->dev_index = mg_val(in->g, v)->dev_index;
  return MG_OK;
}

typedef struct ViewState { /* the view under construction */
  MgDims size, stride;
  SymRef offset;
} ViewState;

static void view_of(const MgInfer *in, ValRef v, ViewState *s) {
  const MgVal *t = mg_val(in->g, v);
  s->size.n = s->stride.n = t->ndim;
  memcpy(s->size.d, t->size, t->ndim * sizeof *t->size);
  memcpy(s->stride.d, t->stride, t->ndim * sizeof *t->stride);
  s->offset = t->offset;
}

static void view_insert(ViewState *s, int d, SymRef size, SymRef stride) {
  memmove(s->size.d + d + 1, s->size.d + d, (s->size.n - d) * sizeof(SymRef));
  memmove(s->stride.d + d + 1, s->stride.d + d, (s->size.n - d) * sizeof(SymRef));
  s->size.d[d] = size;
  s->stride.d[d] = stride;
  s->stride.n = ++s->size.n;
}

static void view_drop(ViewState *s, int d) {
  s->stride.n = --s->size.n;
  memmove(s->size.d + d, s->size.d + d + 1, (s->size.n - d) * sizeof(SymRef));
  memmove(s->stride.d + d, s->stride.d + d + 1, (s->size.n - d) * sizeof(SymRef));
}

static void view_swap(ViewState *s, int a, int b) {
  SymRef t = s->size.d[a];
  s->size.d[a] = s->size.d[b];
  s->size.d[b] = t;
  t = s->stride.d[a];
  s->stride.d[a] = s->stride.d[b];
  s->stride.d[b] = t;
}

static MgRc view_put(MgInfer *in, int i, ValRef v, const ViewState *s) {
  return mg_infer_view_out(in, i, v, &s->size, &s->stride, s->offset);
}

/* ---- view and reshape: at::detail::computeStride ---- */

MgRc mg_infer_view_strides(MgInfer *in, ValRef v, const MgDims *to, MgDims *stride, bool *ok) {
  const MgVal *t = mg_val(in->g, v);
  int zero = mg_infer_is(in, mg_val_numel(in->g, v), 0);
  stride->n = to->n;
  *ok = true;
  if (zero == UNKNOWN) return MG_UNSUP;
  if (zero) { /* any strides serve an empty tensor */
    if (to->n == t->ndim && !memcmp(to->d, t->size, to->n * sizeof *to->d)) {
      memcpy(stride->d, t->stride, to->n * sizeof *to->d);
      return MG_OK;
    }
    SymRef s = mg_infer_c(in, 1);
    for (int i = to->n; i-- > 0;) {
      stride->d[i] = s;
      s = mg_sym_mul(in->x, s, mg_sym_max(in->x, to->d[i], mg_infer_c(in, 1)));
    }
    return MG_OK;
  }
  if (!t->ndim) {
    for (int i = 0; i < to->n; i++) stride->d[i] = mg_infer_c(in, 1);
    return MG_OK;
  }
  int at = to->n - 1;
  SymRef base = t->stride[t->ndim - 1], have = mg_infer_c(in, 1), want = have;
  for (int d = t->ndim - 1; d >= 0; d--) {
    have = mg_sym_mul(in->x, have, t->size[d]);
    bool end = d == 0; /* a run of dimensions that are contiguous in memory ends here */
    if (!end) {
      int one = mg_infer_is(in, t->size[d - 1], 1);
      int run = mg_infer_eq(in, t->stride[d - 1], mg_sym_mul(in->x, have, base));
      if (one == 0 && run == UNKNOWN) return MG_UNSUP;
      if (one == UNKNOWN && run != 1) return MG_UNSUP;
      end = one == 0 && run == 0;
    }
    if (!end) continue;
    for (; at >= 0; at--) {
      int less = mg_infer_less(in, want, have), one = mg_infer_is(in, to->d[at], 1);
      if (less == UNKNOWN && one != 1) { /* equal products end a run, so an open question matters */
        return MG_UNSUP;
      }
      if (!(less == 1 || one == 1)) break;
      stride->d[at] = mg_sym_mul(in->x, want, base);
      want = mg_sym_mul(in->x, want, to->d[at]);
    }
    int eq = mg_infer_eq(in, want, have);
    if (eq == UNKNOWN) return MG_UNSUP;
    if (!eq) {
      *ok = false;
      return MG_OK;
    }
    if (d > 0) {
      base = t->stride[d - 1];
      have = want = mg_infer_c(in, 1);
    }
  }
  *ok = at == -1;
  return MG_OK;
}

static MgRc view_view(MgInfer *in, ValRef v, MgDims *to) {
  ViewState s = {.offset = mg_val(in->g, v)->offset};
  bool ok;
  TRY(mg_infer_fill_size(in, to, mg_val_numel(in->g, v)));
  TRY(mg_infer_view_strides(in, v, to, &s.stride, &ok));
  s.size = *to;
  if (ok) return view_put(in, 0, v, &s);
  switch (in->op->code) { /* reshape and its like copy */
  case TOP_reshape:
  case TOP_flatten_using_ints:
  case TOP__reshape_copy:
  case TOP__unsafe_view:
  case TOP_view_copy: return mg_infer_out(in, 0, mg_val(in->g, v)->dtype, to, NULL);
  default: return mg_fail(in->g->c, MG_BUG, "%s: sizes and strides do not allow a view", in->op->full);
  }
}

/* ---- one op each ---- */

static MgRc view_expand(MgInfer *in, ValRef v, const MgDims *to) {
  const MgVal *t = mg_val(in->g, v);
  ViewState s = {.offset = t->offset};
  int off = to->n - t->ndim;
  bool number = !t->ndim; /* all strides of an expanded 0-dim tensor are zero */
  if (off < 0) return mg_fail(in->g->c, MG_BUG, "%s: fewer dimensions than the tensor", in->op->full);
  s.size.n = s.stride.n = to->n;
  for (int i = to->n - 1; i >= 0; i--) {
    SymRef size = i >= off ? t->size[i - off] : mg_infer_c(in, 1), want = to->d[i];
    SymRef stride = i >= off        ? t->stride[i - off]
                    : i + 1 < to->n ? mg_sym_mul(in->x, s.size.d[i + 1], s.stride.d[i + 1])
                                    : mg_infer_c(in, 1);
    if (mg_sym_is(in->x, want, -1)) want = size;
    int eq = mg_infer_eq(in, size, want);
    if (eq == UNKNOWN) {
      int one = mg_infer_is(in, size, 1);
      if (one != 1) return MG_UNSUP;
      int w1 = mg_infer_is(in, want, 1);
      if (w1 == UNKNOWN) return MG_UNSUP;
    }
    if (eq != 1 || number) stride = mg_infer_c(in, 0);
    s.size.d[i] = want;
    s.stride.d[i] = stride;
  }
  return view_put(in, 0, v, &s);
}

static MgRc view_slice(MgInfer *in, ViewState *s, const MgArg *dim, const MgArg *start, const MgArg *end,
                       const MgArg *step) {
  int d;
  int64_t st = 1, k;
  MgExprs *x = in->x;
  TRY(mg_infer_dim(in, dim, s->size.n, &d));
  if (step->tag != MA_none) TRY(mg_infer_int(in, step, &st));
  if (!s->size.n || st < 1) return MG_UNSUP; /* an error */
  SymRef n = s->size.d[d], zero = mg_infer_c(in, 0);
  SymRef b = start->tag == MA_int ? start->u.sym : zero, e = end->tag == MA_int ? end->u.sym : n;
  int bn = mg_infer_cmp(in, b, zero), en = mg_infer_cmp(in, e, zero);
  if (mg_ex_const_int(x, e, &k) && k == INT64_MAX) {
    e = n;
    en = 1;
  }
  if (bn == UNKNOWN || en == UNKNOWN) return MG_UNSUP;
  if (bn < 0) b = mg_sym_add(x, b, n);
  if (en < 0) e = mg_sym_add(x, e, n);
  b = mg_sym_min(x, mg_sym_max(x, b, zero), n);
  e = mg_sym_min(x, mg_sym_max(x, e, b), n);
  SymRef len = mg_sym_sub(x, e, b);
  len = mg_sym_floordiv(x, mg_sym_add(x, len, mg_infer_c(in, st - 1)), mg_infer_c(in, st));
  s->offset = mg_sym_add(x, s->offset, mg_sym_mul(x, b, s->stride.d[d]));
  s->size.d[d] = len;
  s->stride.d[d] = mg_sym_mul(x, s->stride.d[d], mg_infer_c(in, st));
  return MG_OK;
}

static MgRc view_select(MgInfer *in, ViewState *s, const MgArg *dim, const MgArg *index) {
  int d;
  TRY(mg_infer_dim(in, dim, s->size.n, &d));
  if (index->tag != MA_int || !s->size.n) return MG_UNSUP;
  SymRef i = index->u.sym;
  SymRef zero = mg_infer_c(in, 0);
  int neg = mg_infer_less(in, i, zero);
  if (neg == UNKNOWN) return MG_UNSUP;
  if (neg) i = mg_sym_add(in->x, i, s->size.d[d]);
  bool outside = neg ? mg_infer_less(in, i, zero) == 1 : mg_infer_less(in, i, s->size.d[d]) == 0;
  if (outside) return MG_UNSUP; /* out of range: an error */
  s->offset = mg_sym_add(in->x, s->offset, mg_sym_mul(in->x, i, s->stride.d[d]));
  view_drop(s, d);
  return MG_OK;
}

static MgRc view_squeeze(MgInfer *in, ViewState *s, const MgArg *dims) {
  bool set[MG_INFER_RANK];
  bool some = dims->tag != MA_none;
  for (int i = 0; i < s->size.n; i++) set[i] = !some;
  if (some && !(dims->tag == MA_list && !dims->n)) TRY(mg_infer_dim_set(in, dims, s->size.n, set));
  for (int i = s->size.n; i-- > 0;) {
    int one = set[i] ? mg_infer_is(in, s->size.d[i], 1) : 0;
    if (one == UNKNOWN) return MG_UNSUP;
    if (one) view_drop(s, i);
  }
  return MG_OK;
}

static MgRc view_permute(MgInfer *in, ViewState *s, const MgArg *dims) {
  ViewState from = *s;
  bool used[MG_INFER_RANK] = {0};
  int d;
  if (dims->tag != MA_list || (int)dims->n != s->size.n) return MG_UNSUP;
  for (int i = 0; i < s->size.n; i++) {
    TRY(mg_infer_dim(in, &dims->u.item[i], s->size.n, &d));
    if (used[d]) return MG_UNSUP;
    used[d] = true;
    s->size.d[i] = from.size.d[d];
    s->stride.d[i] = from.stride.d[d];
  }
  return MG_OK;
}

/* movedim: the named dimensions go to their places, the others keep their order. */
static MgRc view_movedim(MgInfer *in, ViewState *s, const MgArg *source, const MgArg *target) {
  ViewState from = *s;
  int n = s->size.n, to[MG_INFER_RANK], a, b;
  bool used[MG_INFER_RANK] = {0};
  uint32_t count = source->tag == MA_list ? source->n : 1;
  for (int i = 0; i < n; i++) to[i] = -1;
  for (uint32_t i = 0; i < count; i++) {
    TRY(mg_infer_dim(in, source->tag == MA_list ? &source->u.item[i] : source, n, &a));
    TRY(mg_infer_dim(in, target->tag == MA_list ? &target->u.item[i] : target, n, &b));
    to[b] = a;
    used[a] = true;
  }
  for (int i = 0, next = 0; i < n; i++) {
    if (to[i] < 0) {
      while (used[next]) next++;
      to[i] = next++;
    }
    s->size.d[i] = from.size.d[to[i]];
    s->stride.d[i] = from.stride.d[to[i]];
  }
  return MG_OK;
}

static MgRc view_diagonal(MgInfer *in, ViewState *s) {
  int64_t off = 0;
  int a, b;
  MgExprs *x = in->x;
  TRY(mg_infer_int(in, mg_infer_arg(in, "offset"), &off));
  TRY(mg_infer_dim(in, mg_infer_arg(in, "dim1"), s->size.n, &a));
  TRY(mg_infer_dim(in, mg_infer_arg(in, "dim2"), s->size.n, &b));
  SymRef o = mg_infer_c(in, off < 0 ? -off : off), sa = s->size.d[a], sb = s->size.d[b],
         zero = mg_infer_c(in, 0);
  SymRef n = off >= 0 ? mg_sym_min(x, sa, mg_sym_sub(x, sb, o)) : mg_sym_min(x, mg_sym_sub(x, sa, o), sb);
  n = mg_sym_max(x, n, zero);
  SymRef stride = mg_sym_add(x, s->stride.d[a], s->stride.d[b]);
  int empty = mg_infer_is(in, n, 0);
  if (empty == UNKNOWN) return MG_UNSUP;
  if (!empty) s->offset = mg_sym_add(x, s->offset, mg_sym_mul(x, o, s->stride.d[off >= 0 ? b : a]));
  view_drop(s, a > b ? a : b);
  view_drop(s, a > b ? b : a);
  view_insert(s, s->size.n, n, stride);
  return MG_OK;
}

/* ---- ops with a list of results ---- */

static MgRc view_piece(MgInfer *in, int i, ValRef v, int d, SymRef start, SymRef len) {
  ViewState s;
  view_of(in, v, &s);
  s.offset = mg_sym_add(in->x, s.offset, mg_sym_mul(in->x, start, s.stride.d[d]));
  s.size.d[d] = len;
  return view_put(in, i, v, &s);
}

/* Pieces of `size` along d, the last one shorter. */
static MgRc view_split(MgInfer *in, ValRef v, const MgArg *dim, SymRef size) {
  int d;
  int64_t count, fixed;
  MgExprs *x = in->x;
  TRY(mg_infer_dim(in, dim, mg_val(in->g, v)->ndim, &d));
  SymRef n = mg_val(in->g, v)->size[d], zero = mg_infer_c(in, 0);
  if (!x->ask && !(mg_ex_const_int(x, n, &fixed) && mg_ex_const_int(x, size, &fixed))) return MG_UNSUP;
  int sign = mg_infer_cmp(in, size, zero), empty = mg_infer_is(in, n, 0);
  if (sign < 0 || (!sign && !empty)) return MG_UNSUP;
  SymRef pieces = sign ? mg_sym_floordiv(x, mg_sym_sub(x, mg_sym_add(x, n, size), mg_infer_c(in, 1)), size)
                       : mg_infer_c(in, 1);
  if (!mg_sym_settle(x, pieces, &count)) return MG_UNSUP; /* how many results there are */
  if (!count) count = 1;
  TRY(mg_infer_results(in, count));
  for (int64_t i = 0; i < count; i++) {
    SymRef at = mg_sym_mul(x, mg_infer_c(in, i), size);
    TRY(view_piece(in, i, v, d, at, i + 1 < count ? size : mg_sym_sub(x, n, at)));
  }
  return MG_OK;
}

static MgRc view_split_sizes(MgInfer *in, ValRef v, const MgArg *dim, const MgArg *sizes) {
  int d;
  SymRef at = mg_infer_c(in, 0);
  TRY(mg_infer_dim(in, dim, mg_val(in->g, v)->ndim, &d));
  if (sizes->tag != MA_list) return MG_UNSUP;
  TRY(mg_infer_results(in, sizes->n));
  for (uint32_t i = 0; i < sizes->n; i++) {
    TRY(view_piece(in, i, v, d, at, sizes->u.item[i].u.sym));
    at = mg_sym_add(in->x, at, sizes->u.item[i].u.sym);
  }
  return MG_OK;
}

static MgRc view_chunk(MgInfer *in, ValRef v, const MgArg *dim, const MgArg *chunks) {
  int d;
  int64_t n, k;
  TRY(mg_infer_dim(in, dim, mg_val(in->g, v)->ndim, &d));
  TRY(mg_infer_int(in, chunks, &k));
  if (!mg_sym_settle(in->x, mg_val(in->g, v)->size[d], &n) || !n || k < 1) return MG_UNSUP;
  return view_split(in, v, dim, mg_infer_c(in, (n + k - 1) / k));
}

/* The program has a result for each index: that settles the size, as x.size(d) == n does. */
static bool view_count(MgInfer *in, SymRef size, int64_t *n) {
  const MgSizeAsk *ask = in->x->ask;
  bool late = ask && ask->late && ask->late(ask->of, size);
  if (ask && !late && !mg_ex_const_int(in->x, size, n))
    ask->equal(ask->of, size, mg_sym(in->x, mg_sym_hint(in->x, size)));
  return mg_sym_settle(in->x, size, n);
}

static MgRc view_unbind(MgInfer *in, ValRef v, const MgArg *dim) {
  int d;
  int64_t n;
  ViewState s;
  TRY(mg_infer_dim(in, dim, mg_val(in->g, v)->ndim, &d));
  if (!view_count(in, mg_val(in->g, v)->size[d], &n)) return MG_UNSUP;
  TRY(mg_infer_results(in, n));
  for (int64_t i = 0; i < n; i++) {
    MgArg at = mg_arg_int(in->g, i), dd = mg_arg_int(in->g, d);
    view_of(in, v, &s);
    TRY(view_select(in, &s, &dd, &at));
    TRY(view_put(in, i, v, &s));
  }
  return MG_OK;
}

#define ARG(name) mg_infer_arg(in, name)

/* as_strided: memory is addressed from the start of the storage. */
static MgRc view_as_strided(MgInfer *in, ValRef v, ViewState *s) {
  TRY(mg_infer_sizes(in, ARG("size"), &s->size));
  TRY(mg_infer_sizes(in, ARG("stride"), &s->stride));
  if (ARG("storage_offset")->tag == MA_int) s->offset = ARG("storage_offset")->u.sym;
  return s->size.n == s->stride.n ? MG_OK : MG_UNSUP;
}

static MgRc view_unfold(MgInfer *in, ViewState *s) {
  int d = 0;
  int64_t step;
  if (!s->size.n) return MG_UNSUP;
  TRY(mg_infer_dim(in, ARG("dimension"), s->size.n, &d));
  TRY(mg_infer_int(in, ARG("step"), &step));
  if (ARG("size")->tag != MA_int) return MG_UNSUP;
  SymRef size = ARG("size")->u.sym, st = mg_infer_c(in, step);
  view_insert(s, s->size.n, size, s->stride.d[d]);
  SymRef n = mg_sym_floordiv(in->x, mg_sym_sub(in->x, s->size.d[d], size), st);
  s->size.d[d] = mg_sym_add(in->x, n, mg_infer_c(in, 1));
  s->stride.d[d] = mg_sym_mul(in->x, st, s->stride.d[d]);
  return MG_OK;
}

/* Joins [start, end] of the sizes for flatten, or cuts one for unflatten. */
static MgRc view_flatten(MgInfer *in, ValRef v) {
  MgDims from, to = {0};
  int a, b;
  mg_infer_dims_of(in, v, &from);
  TRY(mg_infer_dim(in, ARG("start_dim"), from.n, &a));
  TRY(mg_infer_dim(in, ARG("end_dim"), from.n, &b));
  SymRef n = mg_infer_c(in, 1);
  if (!from.n) to.d[to.n++] = n;
  for (int i = 0; i < from.n; i++) {
    if (i < a || i > b) to.d[to.n++] = from.d[i];
    else n = mg_sym_mul(in->x, n, from.d[i]);
    if (i == b) to.d[to.n++] = n;
  }
  if (a == b && from.n) to = from;
  return view_view(in, v, &to);
}

static MgRc view_unflatten(MgInfer *in, ValRef v) {
  MgDims from, part, to = {0};
  int d;
  mg_infer_dims_of(in, v, &from);
  TRY(mg_infer_dim(in, ARG("dim"), from.n, &d));
  TRY(mg_infer_sizes(in, ARG("sizes"), &part));
  TRY(mg_infer_fill_size(in, &part, from.d[d]));
  for (int i = 0; i < from.n; i++) {
    if (i != d) to.d[to.n++] = from.d[i];
    for (int k = 0; i == d && k < part.n; k++) to.d[to.n++] = part.d[k];
  }
  return view_view(in, v, &to);
}

/* Pairs of numbers as complex ones, or back: strides and offset count elements of the other dtype. */
static MgRc view_pairs(MgInfer *in, ValRef v, bool real) {
  static const struct {
    MgDtype pair, complex;
  } row[] = {{DT_f16, DT_c32}, {DT_bf16, DT_bc32}, {DT_f32, DT_c64}, {DT_f64, DT_c128}};
  MgDtype from = mg_val(in->g, v)->dtype;
  SymRef two = mg_infer_c(in, 2);
  ViewState s;
  view_of(in, v, &s);
  for (size_t k = 0; k < sizeof row / sizeof *row; k++) {
    if (from != (real ? row[k].complex : row[k].pair)) continue;
    if (!real && from == DT_bf16) return MG_UNSUP; /* eager refuses */
    if (!real) {
      int n = s.size.n - 1;
      if (n < 0 || mg_infer_is(in, s.size.d[n], 2) != 1 || mg_infer_is(in, s.stride.d[n], 1) != 1)
        return MG_UNSUP;
      view_drop(&s, n);
    }
    for (int i = 0; i <= s.size.n; i++) { /* the offset comes last */
      SymRef *at = i < s.size.n ? &s.stride.d[i] : &s.offset;
      if (!real && mg_infer_is(in, mg_sym_mod(in->x, *at, two), 0) != 1) return MG_UNSUP;
      *at = real ? mg_sym_mul(in->x, *at, two) : mg_sym_floordiv(in->x, *at, two);
    }
    if (real) view_insert(&s, s.size.n, two, mg_infer_c(in, 1));
    TRY(view_put(in, 0, v, &s));
    mg_val(in->g, in->n->out[0])->dtype = real ? row[k].pair : row[k].complex;
    return MG_OK;
  }
  return MG_UNSUP;
}

/* start and length instead of start and end */
static MgRc view_narrow(MgInfer *in, ViewState *s) {
  const MgArg *start = ARG("start"), *length = ARG("length");
  if (start->tag != MA_int || length->tag != MA_int) return MG_UNSUP;
  MgArg step = mg_arg_int(in->g, 1);
  if (mg_infer_less(in, start->u.sym, mg_infer_c(in, 0))) return MG_UNSUP;
  MgArg end = mg_arg_sym(mg_sym_add(in->x, start->u.sym, length->u.sym));
  return view_slice(in, s, ARG("dim"), start, &end, &step);
}

static MgRc view_unsqueeze(MgInfer *in, ViewState *s) {
  int a;
  TRY(mg_infer_dim(in, ARG("dim"), s->size.n + 1, &a));
  SymRef st = a < s->size.n ? mg_sym_mul(in->x, s->size.d[a], s->stride.d[a]) : mg_infer_c(in, 1);
  view_insert(s, a, mg_infer_c(in, 1), st);
  return MG_OK;
}

static MgRc view_transpose(MgInfer *in, ViewState *s) {
  int a, b;
  bool axes = in->op->code == TOP_swapaxes;
  TRY(mg_infer_dim(in, ARG(axes ? "axis0" : "dim0"), s->size.n, &a));
  TRY(mg_infer_dim(in, ARG(axes ? "axis1" : "dim1"), s->size.n, &b));
  if (s->size.n) view_swap(s, a, b);
  return MG_OK;
}

/* Views with one result of self's dtype that picks, orders, adds or drops dimensions: changes s. */
static MgRc view_dims(MgInfer *in, ValRef v, int code, ViewState *s) {
  switch (code) {
  case TOP_alias:
  case TOP_detach:
  case TOP_lift_fresh:
  case TOP_lift:
  case TOP_resolve_conj:
  case TOP_resolve_neg: return MG_OK;
  case TOP_as_strided: return view_as_strided(in, v, s);
  case TOP_permute: return view_permute(in, s, ARG("dims"));
  case TOP_movedim_int:
  case TOP_movedim_intlist: return view_movedim(in, s, ARG("source"), ARG("destination"));
  case TOP_transpose_int:
  case TOP_swapaxes:
  case TOP_swapdims: return view_transpose(in, s);
  case TOP_t:
    if (s->size.n == 2) view_swap(s, 0, 1);
    return MG_OK;
  case TOP_numpy_T:
    for (int i = 0; i < s->size.n / 2; i++) view_swap(s, i, s->size.n - 1 - i);
    return MG_OK;
  case TOP_mT:
  case TOP_adjoint:
  case TOP_mH:
    if (s->size.n < 2) return MG_UNSUP;
    view_swap(s, s->size.n - 2, s->size.n - 1);
    return MG_OK;
  case TOP_unsqueeze: return view_unsqueeze(in, s);
  case TOP_squeeze:
  case TOP_squeeze_dim:
  case TOP_squeeze_dims: return view_squeeze(in, s, ARG("dim"));
  case TOP_select_int: return view_select(in, s, ARG("dim"), ARG("index"));
  case TOP_slice_Tensor: return view_slice(in, s, ARG("dim"), ARG("start"), ARG("end"), ARG("step"));
  case TOP_narrow: return view_narrow(in, s);
  case TOP_diagonal: return view_diagonal(in, s);
  case TOP_unfold: return view_unfold(in, s);
  default: return MG_UNSUP;
  }
}

static MgRc view_one(MgInfer *in, ValRef v, int code) {
  ViewState s;
  MgDims to;
  switch (code) {
  case TOP_view:
  case TOP__unsafe_view:
  case TOP__reshape_alias: TRY(mg_infer_sizes(in, ARG("size"), &to)); return view_view(in, v, &to);
  case TOP_reshape: TRY(mg_infer_sizes(in, ARG("shape"), &to)); return view_view(in, v, &to);
  case TOP_view_as: mg_infer_dims_of(in, mg_infer_tensor(in, "other"), &to); return view_view(in, v, &to);
  case TOP_flatten_using_ints: return view_flatten(in, v);
  case TOP_unflatten_int: return view_unflatten(in, v);
  case TOP_expand:
  case TOP_broadcast_to: TRY(mg_infer_sizes(in, ARG("size"), &to)); return view_expand(in, v, &to);
  case TOP_expand_as: mg_infer_dims_of(in, mg_infer_tensor(in, "other"), &to); return view_expand(in, v, &to);
  case TOP_split_Tensor:
  case TOP_unsafe_split_Tensor:
    if (ARG("split_size")->tag != MA_int) return MG_UNSUP;
    return view_split(in, v, ARG("dim"), ARG("split_size")->u.sym);
  case TOP_split_with_sizes:
  case TOP_unsafe_split_with_sizes: return view_split_sizes(in, v, ARG("dim"), ARG("split_sizes"));
  case TOP_split_sizes: return view_split_sizes(in, v, ARG("dim"), ARG("split_size"));
  case TOP_chunk:
  case TOP_unsafe_chunk: return view_chunk(in, v, ARG("dim"), ARG("chunks"));
  case TOP_unbind_int: return view_unbind(in, v, ARG("dim"));
  case TOP_view_as_real:
  case TOP_view_as_complex: return view_pairs(in, v, code == TOP_view_as_real);
  default: break;
  }
  view_of(in, v, &s);
  TRY(view_dims(in, v, code, &s));
  return view_put(in, 0, v, &s);
}

MgRc mg_infer_view(MgInfer *in) {
  ValRef v = mg_infer_first(in);
  return v ? view_one(in, v, in->op->code) : MG_UNSUP;
}

/* x_copy ops: the view's sizes, contiguous. */
MgRc mg_infer_copy(MgInfer *in) {
  static const struct {
    uint16_t copy, view;
  } row[] = {
      {TOP_alias_copy, TOP_alias},
      {TOP_as_strided_copy, TOP_as_strided},
      {TOP_expand_copy, TOP_expand},
      {TOP_permute_copy, TOP_permute},
      {TOP_transpose_copy_int, TOP_transpose_int},
      {TOP_t_copy, TOP_t},
      {TOP_unsqueeze_copy, TOP_unsqueeze},
      {TOP_squeeze_copy, TOP_squeeze},
      {TOP_squeeze_copy_dim, TOP_squeeze_dim},
      {TOP_squeeze_copy_dims, TOP_squeeze_dims},
      {TOP_select_copy_int, TOP_select_int},
      {TOP_slice_copy_Tensor, TOP_slice_Tensor},
      {TOP_diagonal_copy, TOP_diagonal},
      {TOP_unfold_copy, TOP_unfold},
      {TOP_view_copy, TOP_view},
      {TOP_detach_copy, TOP_detach},
      {TOP_split_copy_Tensor, TOP_split_Tensor},
      {TOP_split_with_sizes_copy, TOP_split_with_sizes},
      {TOP_unbind_copy_int, TOP_unbind_int},
  };
  ValRef v = mg_infer_first(in);
  for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
    if (row[i].copy != in->op->code) continue;
    TRY(view_one(in, v, row[i].view));
    for (int k = 0; k < in->n->nout; k++) {
      mg_graph_contiguous(in->g, in->n->out[k]);
      mg_val(in->g, in->n->out[k])->storage = in->n->out[k];
    }
    return MG_OK;
  }
  return MG_UNSUP;
}

MgRc mg_infer_clone(MgInfer *in) {
  ValRef v = mg_infer_first(in), other = mg_infer_tensor(in, "other");
  const MgArg *f = ARG("memory_format");
  MgDims size;
  mg_infer_dims_of(in, v, &size);
  MgDtype from = mg_val(in->g, v)->dtype, d = mg_infer_dtype_arg(in, from);
  int format = f->tag == MA_memory_format ? f->u.code : MF_preserve;
  switch (in->op->code) {
  case TOP_clone:
  case TOP__to_copy:
  case TOP_lift_fresh_copy: break;
  case TOP_copy: return mg_infer_like(in, 0, from, v);
  case TOP_contiguous: {
    int c = mg_infer_contiguous(in, v, format);
    if (c == UNKNOWN) return MG_UNSUP;
    if (c) return view_one(in, v, TOP_alias);
    break;
  }
  default: /* .to and its like: the tensor itself when nothing changes */
    if (in->op->code == TOP_to_other || in->op->code == TOP_type_as) {
      if (!other || mg_val(in->g, other)->device != mg_val(in->g, v)->device) return MG_UNSUP;
      d = mg_val(in->g, other)->dtype;
    }
    if (ARG("device")->tag == MA_device || ARG("layout")->tag == MA_layout) return MG_UNSUP;
    if (d == from && format == MF_preserve && !mg_infer_flag(in, "copy")) return view_one(in, v, TOP_alias);
  }
  return format == MF_preserve ? mg_infer_like(in, 0, d, v) : mg_infer_format(in, 0, d, &size, format);
}

/* What is written has the sizes of the part that it is written to. */
MgRc mg_infer_scatter_fits(MgInfer *in) {
  ViewState s;
  ValRef self = mg_infer_first(in), src = mg_infer_tensor(in, "src");
  if (!self || !src) return MG_OK;
  view_of(in, self, &s);
  if (in->op->code == TOP_slice_scatter)
    TRY(view_slice(in, &s, ARG("dim"), ARG("start"), ARG("end"), ARG("step")));
  else if (in->op->code == TOP_select_scatter) TRY(view_select(in, &s, ARG("dim"), ARG("index")));
  else if (in->op->code == TOP_diagonal_scatter) TRY(view_diagonal(in, &s));
  else return MG_OK;
  if (mg_val(in->g, src)->ndim != s.size.n) return MG_UNSUP;
  for (int i = 0; i < s.size.n; i++)
    if (!mg_infer_eq(in, mg_val(in->g, src)->size[i], s.size.d[i])) return MG_UNSUP;
  return MG_OK;
}

MgRc mg_infer_scatter_view(MgInfer *in) {
  ValRef v = mg_infer_first(in);
  MgDims size;
  const MgArg *sizes = ARG("input_sizes");
  switch (in->op->code) {
  case TOP_slice_backward:
  case TOP_select_backward:
  case TOP_diagonal_backward:
  case TOP_unfold_backward:
    TRY(mg_infer_sizes(in, in->op->code == TOP_unfold_backward ? ARG("input_sizes") : sizes, &size));
    return mg_infer_out(in, 0, mg_val(in->g, v)->dtype, &size, NULL);
  default: { /* a clone of the base, gaps included */
    MgDims stride;
    mg_infer_dims_of(in, v, &size);
    stride.n = size.n;
    memcpy(stride.d, mg_val(in->g, v)->stride, size.n * sizeof *stride.d);
    return mg_val_repeats(in->g, v) ? mg_infer_like(in, 0, mg_val(in->g, v)->dtype, v)
                                    : mg_infer_out(in, 0, mg_val(in->g, v)->dtype, &size, &stride);
  }
  }
}
