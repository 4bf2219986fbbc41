/* Views: permute, slice, expand, view, split ... as index maps.
 * Of an unrealised value: its expression with other indices.  Of a buffer: the map, being affine, gives the
 * strides of a view of the same memory.  Nothing is ever copied here. */
#include "back/lower/lower_priv.h"
#include <string.h>

enum { VIEW_split_size, VIEW_split_sizes, VIEW_unbind, VIEW_chunk, VIEW_sections, VIEW_indices };

static ValRef view_src(const MgNode *n) { return lw_arg_val(n, "self"); }
static int view_ndim(Lower *L, const MgNode *n) { return lw_meta(L, view_src(n))->ndim; }

/* ---- reshapes
 * ---------------------------------------------------------------------------------------------------- */

typedef struct ViewGroup {
  int i0, i1, o0, o1;
} ViewGroup; /* in dims [i0,i1) hold the elements of out dims [o0,o1) */
typedef struct ViewGroups {
  int in[LW_MAX_NDIM], out[LW_MAX_NDIM], nin, nout; /* dimensions of more than one element */
  ViewGroup g[LW_MAX_NDIM];
  int n;
} ViewGroups;

/* Splits both size lists from the right into the smallest groups of equal products; what cannot be proved
 * equal ends up in one group. */
static void view_group(Lower *L, const SymRef *in, int nin, const SymRef *out, int nout, ViewGroups *v) {
  MgExprs *x = L->x;
  v->nin = v->nout = v->n = 0;
  for (int d = 0; d < nin; d++)
    if (!mg_sym_is(x, in[d], 1)) v->in[v->nin++] = d;
  for (int d = 0; d < nout; d++)
    if (!mg_sym_is(x, out[d], 1)) v->out[v->nout++] = d;
  int i = v->nin, o = v->nout;
  while (i > 0 && o > 0) {
    int i1 = i, o1 = o;
    SymRef pi = in[v->in[--i]], po = out[v->out[--o]];
    while (!mg_ex_same(pi, po)) {
      int64_t hi = mg_sym_hint(x, pi), ho = mg_sym_hint(x, po);
      if (hi < ho && i > 0) pi = mg_sym_mul(x, pi, in[v->in[--i]]);
      else if (ho < hi && o > 0) po = mg_sym_mul(x, po, out[v->out[--o]]);
      else {
        i = o = 0;
        break;
      } /* not provable: one group for the rest */
    }
    v->g[v->n++] = (ViewGroup){i, i1, o, o1};
  }
}

void lw_reshape_map(Lower *L, const SymRef *in, int nin, const SymRef *out, int nout, const ExprRef *at,
                    ExprRef *to) {
  ViewGroups v;
  view_group(L, in, nin, out, nout, &v);
  for (int d = 0; d < nin; d++) to[d] = lw_int(L, 0);
  for (int k = 0; k < v.n; k++) {
    ViewGroup g = v.g[k];
    ExprRef lin = lw_int(L, 0);
    for (int o = g.o0; o < g.o1; o++)
      lin = mg_sym_add(L->x, mg_sym_mul(L->x, lin, out[v.out[o]]), at[v.out[o]]);
    for (int i = g.i1; i-- > g.i0;) {
      SymRef size = in[v.in[i]];
      to[v.in[i]] = i == g.i0 ? lin : mg_sym_mod(L->x, lin, size);
      if (i > g.i0) lin = mg_sym_floordiv(L->x, lin, size);
    }
  }
}

/* Strides of sizes out[] over the memory of src; false when it is not a strided view of it. */
static bool view_reshape_strides(Lower *L, const MgView *src, const MgVal *m, SymRef *stride) {
  MgExprs *x = L->x;
  ViewGroups v;
  view_group(L, src->size, src->ndim, m->size, m->ndim, &v);
  memcpy(stride, m->stride, sizeof *stride * m->ndim); /* dimensions of one element keep eager's */
  for (int k = 0; k < v.n; k++) {
    ViewGroup g = v.g[k];
    for (int i = g.i0; i + 1 < g.i1; i++) {
      int a = v.in[i], b = v.in[i + 1];
      if (!mg_ex_same(src->stride[a], mg_sym_mul(x, src->stride[b], src->size[b]))) return false;
    }
    SymRef s = src->stride[v.in[g.i1 - 1]];
    for (int o = g.o1; o-- > g.o0;) {
      stride[v.out[o]] = s;
      s = mg_sym_mul(x, s, m->size[v.out[o]]);
    }
  }
  return true;
}

static MgRc view_reshape(Lower *L, MgNode *n, const LwRow *r) {
  ValRef src = view_src(n), v = n->out[0];
  const LwVal *ls = &L->val[src];
  const MgVal *m = lw_meta(L, v), *ms = lw_meta(L, src);
  if (r->flags & LWF_view && !ls->e) {
    MgView view = ls->view;
    view.ndim = m->ndim;
    view.size = m->size;
    view.stride = mg_new(L->c, SymRef, m->ndim + 1);
    TRYP(view.stride);
    if (view_reshape_strides(L, &ls->view, m, view.stride)) {
      lw_define_view(L, v, &view);
      return MG_OK;
    }
  }
  if (!mg_dtype_has_ty((MgDtype)m->dtype)) return MG_UNSUP;
  ExprRef at[LW_MAX_NDIM], to[LW_MAX_NDIM];
  for (int d = 0; d < m->ndim; d++) at[d] = mg_ex_idx(L->x, d);
  lw_reshape_map(L, ms->size, ms->ndim, m->size, m->ndim, at, to);
  return lw_define(L, v, lw_at(L, src, to));
}

/* ---- affine views
 * ------------------------------------------------------------------------------------------------ */

/* One result of a view op from its map. */
static MgRc view_result(Lower *L, MgNode *n, const LwRow *r, int k) {
  ValRef src = view_src(n), v = n->out[k];
  const LwVal *ls = &L->val[src];
  const MgVal *m = lw_meta(L, v);
  ExprRef at[LW_MAX_NDIM], to[LW_MAX_NDIM];
  if (ls->e || !(r->flags & LWF_view)) {
    if (!mg_dtype_has_ty((MgDtype)m->dtype)) return MG_UNSUP;
    for (int d = 0; d < m->ndim; d++) at[d] = mg_ex_idx(L->x, d);
    if (!r->map(L, n, k, at, to)) return MG_UNSUP;
    return lw_define(L, v, lw_at(L, src, to));
  }
  MgView view = {.buf = ls->view.buf, .ndim = m->ndim, .dtype = m->dtype, .size = m->size};
  view.stride = mg_new(L->c, SymRef, m->ndim + 1);
  TRYP(view.stride);
  for (int d = 0; d < m->ndim; d++) at[d] = lw_int(L, 0);
  if (!r->map(L, n, k, at, to)) return MG_UNSUP;
  view.offset = mg_view_index(L->x, &ls->view, to);
  for (int d = 0; d < m->ndim; d++) {
    at[d] = lw_int(L, 1);
    r->map(L, n, k, at, to);
    at[d] = lw_int(L, 0);
    view.stride[d] = mg_sym_is(L->x, m->size[d], 1)
                         ? m->stride[d]
                         : mg_sym_sub(L->x, mg_view_index(L->x, &ls->view, to), view.offset);
  }
  lw_define_view(L, v, &view);
  return MG_OK;
}

static MgRc view_affine(Lower *L, MgNode *n, const LwRow *r) {
  for (int k = 0; k < n->nout; k++)
    if (n->out[k] && L->val[n->out[k]].uses) TRY(view_result(L, n, r, k));
  return MG_OK;
}

static bool map_same(Lower *L, MgNode *n, int out, const ExprRef *at, ExprRef *to) {
  memcpy(to, at, sizeof *to * view_ndim(L, n));
  return true;
}
static bool map_expand(Lower *L, MgNode *n, int out, const ExprRef *at, ExprRef *to) {
  const MgVal *m = lw_meta(L, view_src(n));
  int lead = lw_meta(L, n->out[0])->ndim - m->ndim;
  for (int d = 0; d < m->ndim; d++) to[d] = mg_sym_is(L->x, m->size[d], 1) ? lw_int(L, 0) : at[lead + d];
  return true;
}
static bool map_permute(Lower *L, MgNode *n, int out, const ExprRef *at, ExprRef *to) {
  const MgArg *a = lw_arg(n, "dims");
  int nd = view_ndim(L, n);
  for (int d = 0; d < nd; d++) {
    int64_t k;
    if (a->tag != MA_list || !mg_ex_const_int(L->x, a->u.item[d].u.sym, &k)) return false;
    to[k < 0 ? k + nd : k] = at[d];
  }
  return true;
}
static bool map_swap(Lower *L, const ExprRef *at, ExprRef *to, int nd, int a, int b) {
  memcpy(to, at, sizeof *to * nd);
  if (nd) to[a] = at[b], to[b] = at[a];
  return true;
}
static bool map_transpose(Lower *L, MgNode *n, int out, const ExprRef *at, ExprRef *to) {
  int nd = view_ndim(L, n), a, b;
  return lw_arg_dim(L->g, n, lw_either(n, "dim0", "axis0"), nd, &a) &&
         lw_arg_dim(L->g, n, lw_either(n, "dim1", "axis1"), nd, &b) && map_swap(L, at, to, nd, a, b);
}
static bool map_t(Lower *L, MgNode *n, int out, const ExprRef *at, ExprRef *to) { /* last two dimensions */
  int nd = view_ndim(L, n);
  return nd < 2 ? map_same(L, n, out, at, to) : map_swap(L, at, to, nd, nd - 2, nd - 1);
}
static bool map_reverse(Lower *L, MgNode *n, int out, const ExprRef *at, ExprRef *to) {
  int nd = view_ndim(L, n);
  for (int d = 0; d < nd; d++) to[d] = at[nd - 1 - d];
  return true;
}
/* movedim: the dims that are not named keep their order */
static bool map_movedim(Lower *L, MgNode *n, int out, const ExprRef *at, ExprRef *to) {
  int nd = view_ndim(L, n), from[LW_MAX_NDIM], k = lw_arg_len(n, "source");
  bool used[LW_MAX_NDIM] = {false};
  for (int d = 0; d < nd; d++) from[d] = -1;
  for (int i = 0; i < k; i++) {
    int64_t s, t;
    if (!mg_ex_const_int(L->x, lw_arg_item(L, n, "source", i, 0), &s) ||
        !mg_ex_const_int(L->x, lw_arg_item(L, n, "destination", i, 0), &t))
      return false;
    s = s < 0 ? s + nd : s;
    t = t < 0 ? t + nd : t;
    from[t] = (int)s;
    used[s] = true;
  }
  for (int d = 0, s = 0; d < nd; d++) {
    if (from[d] < 0) {
      while (used[s]) s++;
      from[d] = s++;
    }
    to[from[d]] = at[d];
  }
  return true;
}
static bool map_unsqueeze(Lower *L, MgNode *n, int out, const ExprRef *at, ExprRef *to) {
  int nd = view_ndim(L, n), dim;
  if (!lw_arg_dim(L->g, n, "dim", nd + 1, &dim)) return false;
  for (int d = 0; d < nd; d++) to[d] = at[d < dim ? d : d + 1];
  return true;
}
/* squeeze in all its forms: dimensions that are named (all, when none are) and have one element are gone */
static bool map_squeeze(Lower *L, MgNode *n, int out, const ExprRef *at, ExprRef *to) {
  const MgVal *m = lw_meta(L, view_src(n));
  bool named[LW_MAX_NDIM] = {false};
  for (int i = 0; i < lw_arg_len(n, "dim"); i++) {
    int64_t k;
    if (!mg_ex_const_int(L->x, lw_arg_item(L, n, "dim", i, 0), &k)) return false;
    if (m->ndim) named[k < 0 ? k + m->ndim : k] = true;
  }
  int o = 0;
  for (int d = 0; d < m->ndim; d++) {
    bool gone = (n->op->nparam < 2 || named[d]) && mg_sym_is(L->x, m->size[d], 1);
    to[d] = gone ? lw_int(L, 0) : at[o++];
  }
  return o == lw_meta(L, n->out[0])->ndim;
}

SymRef lw_slice_bound(Lower *L, const MgArg *a, SymRef size, SymRef deflt) {
  if (a->tag != MA_int) return deflt;
  int64_t v, s;
  SymRef zero = lw_int(L, 0);
  if (mg_ex_const_int(L->x, a->u.sym, &v)) {
    if (v == INT64_MAX) return size;
    if (v == 0) return zero;
    if (mg_ex_const_int(L->x, size, &s)) {
      v = v < 0 ? v + s : v;
      return lw_int(L, v < 0 ? 0 : v > s ? s : v);
    }
    if (v > 0) return mg_sym_min(L->x, a->u.sym, size);
    return mg_sym_max(L->x, mg_sym_add(L->x, size, a->u.sym), zero);
  }
  SymRef wrapped = lw_where(L, lw_op2(L, OP_lt, a->u.sym, zero), mg_sym_add(L->x, a->u.sym, size), a->u.sym);
  return mg_sym_min(L->x, mg_sym_max(L->x, wrapped, zero), size);
}

static bool map_shift(Lower *L, MgNode *n, const ExprRef *at, ExprRef *to, int dim, SymRef start,
                      SymRef step) {
  memcpy(to, at, sizeof *to * view_ndim(L, n));
  to[dim] = mg_sym_add(L->x, start, mg_sym_mul(L->x, at[dim], step));
  return true;
}
static bool map_slice(Lower *L, MgNode *n, int out, const ExprRef *at, ExprRef *to) {
  const MgVal *m = lw_meta(L, view_src(n));
  int dim;
  if (!lw_arg_dim(L->g, n, "dim", m->ndim, &dim)) return false;
  return map_shift(L, n, at, to, dim, lw_slice_bound(L, lw_arg(n, "start"), m->size[dim], lw_int(L, 0)),
                   lw_arg_sym(L, n, "step", 1));
}
static SymRef view_wrap(Lower *L, SymRef i, SymRef size) { /* a negative index counts from the end */
  int64_t v;
  if (mg_ex_const_int(L->x, i, &v)) return v < 0 ? mg_sym_add(L->x, i, size) : i;
  return lw_where(L, lw_op2(L, OP_lt, i, lw_int(L, 0)), mg_sym_add(L->x, i, size), i);
}
static bool map_narrow(Lower *L, MgNode *n, int out, const ExprRef *at, ExprRef *to) {
  const MgVal *m = lw_meta(L, view_src(n));
  int dim;
  if (!lw_arg_dim(L->g, n, "dim", m->ndim, &dim) || lw_arg(n, "start")->tag != MA_int) return false;
  return map_shift(L, n, at, to, dim, view_wrap(L, lw_arg_sym(L, n, "start", 0), m->size[dim]), lw_int(L, 1));
}
static bool map_select(Lower *L, MgNode *n, int out, const ExprRef *at, ExprRef *to) {
  const MgVal *m = lw_meta(L, view_src(n));
  int dim;
  if (!lw_arg_dim(L->g, n, "dim", m->ndim, &dim)) return false;
  for (int d = 0; d < m->ndim; d++) to[d] = d == dim ? 0 : at[d < dim ? d : d - 1];
  to[dim] = view_wrap(L, lw_arg_sym(L, n, "index", 0), m->size[dim]);
  return true;
}
static bool map_diagonal(Lower *L, MgNode *n, int out, const ExprRef *at, ExprRef *to) {
  const MgVal *m = lw_meta(L, view_src(n));
  int a, b, k = 0;
  int64_t off = 0;
  if (!lw_arg_dim(L->g, n, "dim1", m->ndim, &a) || !lw_arg_dim(L->g, n, "dim2", m->ndim, &b) ||
      !lw_arg_int(L->g, n, "offset", &off))
    return false;
  for (int d = 0; d < m->ndim; d++)
    if (d != a && d != b) to[d] = at[k++];
  to[a] = mg_sym_add(L->x, at[k], lw_int(L, off < 0 ? -off : 0));
  to[b] = mg_sym_add(L->x, at[k], lw_int(L, off > 0 ? off : 0));
  return true;
}
static bool map_unfold(Lower *L, MgNode *n, int out, const ExprRef *at, ExprRef *to) {
  int nd = view_ndim(L, n), dim;
  if (nd == 0) return true;
  if (!lw_arg_dim(L->g, n, "dimension", nd, &dim)) return false;
  memcpy(to, at, sizeof *to * nd);
  to[dim] = mg_sym_add(L->x, mg_sym_mul(L->x, at[dim], lw_arg_sym(L, n, "step", 1)), at[nd]);
  return true;
}
/* Piece `out` of split, chunk, unbind: it starts where the pieces before it end. */
static bool map_split(Lower *L, MgNode *n, int out, const ExprRef *at, ExprRef *to) {
  const LwRow *r = lw_row(n->op->full);
  const MgVal *m = lw_meta(L, view_src(n));
  int dim;
  if (!lw_arg_dim(L->g, n, "dim", m->ndim, &dim)) return false;
  SymRef start = lw_int(L, 0);
  if (r->op == VIEW_unbind) {
    for (int d = 0; d < m->ndim; d++) to[d] = d == dim ? lw_int(L, out) : at[d < dim ? d : d - 1];
    return true;
  }
  if (r->op == VIEW_indices) { /* the indices are starts of the later pieces */
    if (out > 0) start = lw_slice_bound(L, &lw_arg(n, "indices")->u.item[out - 1], m->size[dim], 0);
  } else {
    for (int i = 0; i < out; i++) {
      if (!n->out[i]) return false;
      start = mg_sym_add(L->x, start, lw_meta(L, n->out[i])->size[dim]);
    }
  }
  return map_shift(L, n, at, to, dim, start, lw_int(L, 1));
}

/* ---- views that name memory
 * -------------------------------------------------------------------------------------- */

static MgRc view_as_strided(Lower *L, MgNode *n, const LwRow *r) {
  ValRef v = n->out[0], base = lw_base(L, view_src(n));
  const MgVal *m = lw_meta(L, v), *mb = lw_meta(L, base), *ms = lw_meta(L, view_src(n));
  if (!mg_dtype_has_ty((MgDtype)mb->dtype) && !L->val[base].view.buf) return MG_UNSUP;
  TRY(lw_realise(L, base));
  const MgArg *a = lw_arg(n, "storage_offset");
  SymRef off = a->tag == MA_int ? a->u.sym : ms->offset; /* counted from the start of the storage */
  MgView view = {.buf = L->val[base].view.buf, .ndim = m->ndim, .dtype = m->dtype, .size = m->size};
  view.stride = mg_new(L->c, SymRef, m->ndim + 1);
  TRYP(view.stride);
  for (int d = 0; d < m->ndim; d++) view.stride[d] = lw_arg(n, "stride")->u.item[d].u.sym;
  view.offset = mg_sym_add(L->x, L->val[base].view.offset, mg_sym_sub(L->x, off, mb->offset));
  if (r->flags & LWF_view) {
    lw_define_view(L, v, &view);
    return MG_OK;
  }
  ExprRef at[LW_MAX_NDIM];
  for (int d = 0; d < m->ndim; d++) at[d] = mg_ex_idx(L->x, d);
  return lw_define(
      L, v, mg_ex_load(L->x, mg_dtype_ty((MgDtype)m->dtype), view.buf, mg_view_index(L->x, &view, at), 0, 0));
}
static bool ok_as_strided(const MgGraph *g, const MgNode *n) {
  return lw_arg(n, "stride")->tag == MA_list || mg_val(g, n->out[0])->ndim == 0;
}

/* view.dtype: the same bits under another dtype of the same width */
static MgRc view_dtype(Lower *L, MgNode *n, const LwRow *r) {
  ValRef src = view_src(n), v = n->out[0];
  TRY(lw_realise(L, src));
  MgView view = L->val[src].view;
  view.dtype = lw_meta(L, v)->dtype;
  lw_define_view(L, v, &view);
  return MG_OK;
}
static bool ok_same_width(const MgGraph *g, const MgNode *n) {
  return mg_dtype_size((MgDtype)mg_val(g, n->out[0])->dtype) ==
             mg_dtype_size((MgDtype)mg_val(g, lw_arg_val(n, "self"))->dtype) &&
         mg_dtype_has_ty((MgDtype)mg_val(g, lw_arg_val(n, "self"))->dtype);
}
static bool ok_real(const MgGraph *g, const MgNode *n) {
  return !mg_dtype_is_complex((MgDtype)mg_val(g, lw_arg_val(n, "self"))->dtype);
}
static bool ok_const_int1(const MgGraph *g, const MgNode *n) { /* a list of constant dims, or none */
  const MgArg *a = lw_arg(n, lw_either(n, "dims", lw_either(n, "dim", "source")));
  int64_t v;
  if (a->tag == MA_int) return mg_ex_const_int(g->x, a->u.sym, &v);
  for (uint32_t i = 0; a->tag == MA_list && i < a->n; i++)
    if (a->u.item[i].tag != MA_int || !mg_ex_const_int(g->x, a->u.item[i].u.sym, &v)) return false;
  return true;
}

#define V(name, ok, fn, map, op) {"aten::" name, fn, ok, NULL, op, 0, LWF_view, map},
#define K(name, ok, fn, map, op) {"aten::" name, fn, ok, NULL, op, 0, 0, map},
#define VK(name, over, ok, map)                                                                              \
  V(name over, ok, view_affine, map, 0) K(name "_copy" over, ok, view_affine, map, 0)
/* Rows have no commas between them. */
/* clang-format off */
const LwRow lw_rows_view[] = {
  V("view", NULL, view_reshape, NULL, 0) V("_unsafe_view", NULL, view_reshape, NULL, 0)
  V("reshape", NULL, view_reshape, NULL, 0) V("view_as", NULL, view_reshape, NULL, 0)
  V("_reshape_alias", NULL, view_reshape, NULL, 0) V("flatten.using_ints", NULL, view_reshape, NULL, 0)
  V("unflatten.int", NULL, view_reshape, NULL, 0) K("view_copy", NULL, view_reshape, NULL, 0)
  K("_reshape_copy", NULL, view_reshape, NULL, 0)
  V("view.dtype", ok_same_width, view_dtype, NULL, 0)
  V("as_strided", ok_as_strided, view_as_strided, NULL, 0)
  K("as_strided_copy", ok_as_strided, view_as_strided, NULL, 0)
  V("alias", NULL, view_affine, map_same, 0) V("detach", NULL, view_affine, map_same, 0)
  V("lift", NULL, view_affine, map_same, 0) V("lift_fresh", NULL, view_affine, map_same, 0)
  V("resolve_conj", ok_real, view_affine, map_same, 0) V("resolve_neg", ok_real, view_affine, map_same, 0)
  V("_conj", ok_real, view_affine, map_same, 0) V("real", ok_real, view_affine, map_same, 0)
  VK("expand", "", NULL, map_expand) V("expand_as", NULL, view_affine, map_expand, 0)
  V("broadcast_to", NULL, view_affine, map_expand, 0)
  VK("permute", "", ok_const_int1, map_permute) VK("transpose", ".int", NULL, map_transpose)
  V("swapaxes", NULL, view_affine, map_transpose, 0) V("swapdims", NULL, view_affine, map_transpose, 0)
  VK("t", "", NULL, map_t) V("mT", NULL, view_affine, map_t, 0) V("mH", ok_real, view_affine, map_t, 0)
  V("adjoint", ok_real, view_affine, map_t, 0) V("numpy_T", NULL, view_affine, map_reverse, 0)
  V("movedim.int", ok_const_int1, view_affine, map_movedim, 0)
  V("movedim.intlist", ok_const_int1, view_affine, map_movedim, 0)
  VK("unsqueeze", "", NULL, map_unsqueeze) VK("squeeze", "", NULL, map_squeeze)
  VK("squeeze", ".dim", NULL, map_squeeze)
  VK("squeeze", ".dims", ok_const_int1, map_squeeze) VK("select", ".int", NULL, map_select)
  VK("slice", ".Tensor", NULL, map_slice) V("narrow", NULL, view_affine, map_narrow, 0)
  VK("diagonal", "", NULL, map_diagonal) VK("unfold", "", NULL, map_unfold)
  V("split.Tensor", NULL, view_affine, map_split, VIEW_split_size)
  V("split.sizes", NULL, view_affine, map_split, VIEW_split_sizes)
  V("split_with_sizes", NULL, view_affine, map_split, VIEW_split_sizes)
  V("unbind.int", NULL, view_affine, map_split, VIEW_unbind)
  V("chunk", NULL, view_affine, map_split, VIEW_chunk)
  V("unsafe_chunk", NULL, view_affine, map_split, VIEW_chunk)
  V("unsafe_split.Tensor", NULL, view_affine, map_split, VIEW_split_size)
  V("unsafe_split_with_sizes", NULL, view_affine, map_split, VIEW_split_sizes)
  V("tensor_split.sections", NULL, view_affine, map_split, VIEW_sections)
  V("tensor_split.indices", NULL, view_affine, map_split, VIEW_indices)
  K("split_copy.Tensor", NULL, view_affine, map_split, VIEW_split_size)
  K("split_with_sizes_copy", NULL, view_affine, map_split, VIEW_split_sizes)
  K("unbind_copy.int", NULL, view_affine, map_split, VIEW_unbind)
  {0},
};
/* clang-format on */
