/* functionalize: a recorded graph that mutates and aliases -> a graph in which every value is written once.
 *
 * In: nodes in program order; MgOp says what an op writes and which results alias.  Out: the same graph with
 * in-place
 * and out= ops replaced by their functional twins, g->wb_* (inputs to overwrite at the end) and g->out_alias.
 *
 * Memory is followed per *root*: the value that first stood for it (a graph input or the result of an op that
 * allocates). A view knows its parent and the view op that made it.  A write to a view is carried up to the
 * root by the view's inverse (slice -> slice_scatter ...), which gives the root a new value and a new
 * version; a view read after that is made again from the root's value.  So every read sees what eager would
 * see in memory at that point. Results of in-place ops are other names of the written value (`same`).
 *
 * An op without a twin stays, but is called on copies of what it writes; the copies are results of the node.
 * What cannot be expressed gives MG_UNSUP: the caller then runs the recorded nodes one by one. */
#include "middle/functionalize_priv.h"
#include "ir/infer/infer.h"
#include "middle/middle.h"
#include <string.h>

static void fz_root(Fz *f, ValRef v) { f->val[v] = (FzVal){.same = v, .root = v, .now = v}; }

/* ---- emission into the new graph ---- */

/* Runs inference on node n; results that it cannot tell look like `like` (0: that is an error). */
static MgRc fz_infer(Fz *f, NodeRef n, ValRef like) {
  MgGraph *g = f->g;
  MgRc rc = mg_infer(g, n);
  if (rc != MG_UNSUP) return rc;
  g->c->rc = MG_OK;
  MgNode *node = mg_node(g, n);
  if (!like || node->op->nret != 1 || node->op->ret_kind[0] != AK_tensor)
    return mg_fail(g->c, MG_UNSUP, "functionalize: the results of %s are not known", node->op->full);
  TRYP(node->out = mg_new(g->c, ValRef, 2));
  node->nout = 1;
  ValRef out = mg_graph_val_like(g, like);
  TRYP(out);
  mg_node(g, n)->out[0] = out;
  mg_val(g, out)->def = n;
  mg_val(g, out)->out = 0;
  return MG_OK;
}

/* Appends op(arg...) and gives its first result; the first narg arguments are given, the
 * others at their defaults. */
MgRc mg_fz_emit(Fz *f, MgTop code, const MgArg *arg, int narg, ValRef like, ValRef *out) {
  MgGraph *g = f->g;
  const MgOp *op = mg_op_by_code(code);
  TRYP(op);
  NodeRef n = mg_graph_node(g, op, op->nparam, op->nret);
  TRYP(n);
  for (int i = 0; i < op->nparam; i++) {
    MgArg a;
    if (i < narg) a = arg[i];
    else TRY(mg_arg_default(g, &op->param[i], &a));
    mg_node(g, n)->arg[i] = a;
  }
  TRY(fz_infer(f, n, like));
  *out = mg_node(g, n)->out[0];
  return MG_OK;
}

static bool fz_same_sizes(const MgGraph *g, ValRef a, ValRef b) {
  const MgVal *x = mg_val(g, a), *y = mg_val(g, b);
  if (x->ndim != y->ndim) return false;
  for (int i = 0; i < x->ndim; i++)
    if (!mg_ex_same(x->size[i], y->size[i])) return false;
  return true;
}

static bool fz_same_strides(const MgGraph *g, ValRef a, ValRef b) {
  const MgVal *x = mg_val(g, a), *y = mg_val(g, b);
  for (int i = 0; i < x->ndim; i++)
    if (!mg_sym_is(g->x, x->size[i], 1) && !mg_ex_same(x->stride[i], y->stride[i])) return false;
  return true;
}

/* v with the dtype, device and sizes of the recorded value like: what in-place ops and copy_ do to their
 * result. */
static MgRc fz_coerce(Fz *f, ValRef *v, ValRef like) {
  MgGraph *g = f->g;
  MgVal want = *mg_val(g, like), have = *mg_val(g, *v);
  bool moves = have.device != want.device || have.dev_index != want.dev_index;
  if (have.dtype != want.dtype || moves) {
    MgArg a[] = {mg_arg_val(*v), mg_arg_code(MA_dtype, want.dtype), mg_arg_none(),
                 mg_arg_device((MgDevice)want.device, want.dev_index)};
    ValRef shape = mg_graph_val_like(g, *v); /* metadata in case inference does not know _to_copy */
    TRYP(shape);
    mg_val(g, shape)->dtype = want.dtype;
    mg_val(g, shape)->device = want.device;
    mg_val(g, shape)->dev_index = want.dev_index;
    TRY(mg_fz_emit(f, TOP__to_copy, a, moves ? 4 : 2, shape, v));
  }
  if (!fz_same_sizes(g, *v, like)) {
    MgArg a[] = {mg_arg_val(*v), mg_arg_syms(g, mg_val(g, like)->size, mg_val(g, like)->ndim)};
    TRY(mg_fz_emit(f, TOP_expand, a, 2, like, v));
  }
  return MG_OK;
}

/* v with the strides of like, so that values derived from it and results given to the user have eager's. */
MgRc mg_fz_lay_out(Fz *f, ValRef *v, ValRef like) {
  MgGraph *g = f->g;
  MgArg a[] = {mg_arg_val(*v)};
  TRY(mg_fz_emit(f, TOP_clone, a, 1, like, v));
  MgVal *t = mg_val(g, *v);
  memcpy(t->stride, mg_val(g, like)->stride, t->ndim * sizeof *t->stride);
  t->offset = mg_sym(g->x, 0);
  return MG_OK;
}

MgRc mg_fz_restride(Fz *f, ValRef *v, ValRef like) {
  return fz_same_strides(f->g, *v, like) ? MG_OK : mg_fz_lay_out(f, v, like);
}

/* ---- reading ---- */

static MgRc fz_read(Fz *f, ValRef v, ValRef *now);

typedef struct FzRename {
  Fz *f;
  MgRc rc;
} FzRename;

static void fz_rename(ValRef *v, void *arg) {
  FzRename *r = arg;
  if (*v && r->rc == MG_OK) r->rc = fz_read(r->f, *v, v);
}

static MgRc fz_copy_list(MgGraph *g, MgArg *a) {
  if (a->tag != MA_list || !a->n) return MG_OK;
  TRYP(a->u.item = mg_ctx_grow(g->c, a->u.item, a->n * sizeof *a->u.item, a->n * sizeof *a->u.item));
  for (uint32_t i = 0; i < a->n; i++) TRY(fz_copy_list(g, &a->u.item[i]));
  return MG_OK;
}

/* Arguments of a recorded node in terms of the new graph; n->arg becomes a private copy. */
static MgRc fz_args(Fz *f, MgNode *n) {
  MgGraph *g = f->g;
  TRYP(n->arg = mg_ctx_grow(g->c, n->arg, n->narg * sizeof *n->arg, (n->narg + 1) * sizeof *n->arg));
  for (int i = 0; i < n->narg; i++) TRY(fz_copy_list(g, &n->arg[i]));
  FzRename r = {f, MG_OK};
  mg_node_each_val(n, fz_rename, &r);
  return r.rc;
}

/* Appends a recorded node as it is (arguments renamed) with results `out`. */
static MgRc fz_append(Fz *f, MgNode n, ValRef *out) {
  MgGraph *g = f->g;
  ValRef self = mg_node_first(&n);
  TRY(fz_args(f, &n));
  MgArg *offset = n.op->code == TOP_as_strided ? mg_node_arg(&n, "storage_offset") : NULL;
  if (offset && offset->tag == MA_int) { /* counted in the memory that self is in now */
    SymRef moved = mg_sym_sub(g->x, mg_val(g, mg_node_first(&n))->offset, mg_val(g, self)->offset);
    *offset = mg_arg_sym(mg_sym_add(g->x, offset->u.sym, moved));
  }
  NodeRef r = mg_graph_node(g, n.op, 0, 0);
  TRYP(r);
  n.out = out;
  g->node[r] = n;
  for (int i = 0; i < n.nout; i++)
    if (out[i]) {
      mg_val(g, out[i])->def = r;
      mg_val(g, out[i])->out = i;
    }
  return MG_OK;
}

/* The present value of a recorded value: of a view, made again when its memory was written since. */
static MgRc fz_read(Fz *f, ValRef v, ValRef *now) {
  MgGraph *g = f->g;
  FzVal *i = fz_val(f, v);
  FzVal *root = &f->val[i->root];
  if (i->version != root->version) { /* i is a view: a root's value is always the newest */
    MgNode n = i->via;
    ValRef old = n.out[i->out], *out = mg_new(g->c, ValRef, n.nout + 1);
    TRYP(out);
    for (int k = 0; k < n.nout; k++)
      if (n.out[k]) TRYP(out[k] = mg_graph_val_like(g, n.out[k]));
    mg_val(g, out[i->out])->offset = mg_val(g, old)->offset;
    TRY(fz_append(f, n, out));
    i->now = out[i->out];
    i->version = root->version;
  }
  *now = i->now;
  return MG_OK;
}

/* ---- writing ---- */

/* Is a view on the way from v to its root one that shows elements at several places? */
static bool fz_through_expanded(const Fz *f, ValRef v) {
  for (ValRef at = fz_canon(f, f->val[v].parent); f->val[at].parent; at = fz_canon(f, f->val[at].parent))
    if (mg_val_repeats(f->g, at)) return true;
  return false;
}

/* The recorded value v now holds `now` (same dtype and sizes): every value in the same memory sees it. */
static MgRc fz_write(Fz *f, ValRef v, ValRef now) {
  ValRef at = fz_canon(f, v), up = now;
  FzVal *written = &f->val[at], *root = &f->val[written->root];
  bool direct = written->parent && fz_through_expanded(f, at);
  while (f->val[at].parent) {
    ValRef parent = direct ? written->root : fz_canon(f, f->val[at].parent), parent_now;
    TRY(fz_read(f, parent, &parent_now));
    TRY(direct ? mg_fz_by_position(f, at, parent, parent_now, &up)
               : mg_fz_inverse(f, &f->val[at], at, parent_now, &up));
    at = parent;
  }
  TRY(mg_fz_restride(f, &up, at));
  root->now = up;
  root->written = true;
  root->copied = false;
  root->version++;
  if (written != root) { /* reading back what was just written needs no detour through the root */
    written->now = now;
    written->version = root->version;
  }
  return MG_OK;
}

/* The recorded result r of an op is another name of the value v. */
static void fz_rename_result(Fz *f, ValRef r, ValRef v) {
  if (r && r != v) f->val[r].same = fz_canon(f, v);
}

/* ---- nodes ---- */

/* The op that computes what a bit on a view only tells; NULL: it has no bit. */
static const MgOp *fz_unlazy(uint8_t bit) {
  return bit ? mg_op_by_code(bit == MG_BIT_conj ? TOP_conj_physical : TOP_neg) : NULL;
}

static MgRc fz_view(Fz *f, const MgNode *n, const MgOp *op, ValRef parent) {
  MgNode via = *n;
  const MgOp *plain = fz_unlazy(mg_op_bit(op));
  via.op = plain ? plain : op;
  ValRef base = fz_canon(f, parent), root = f->val[base].root;
  if (op->code == TOP_as_strided && mg_val(f->g, root)->dtype == mg_val(f->g, base)->dtype) {
    /* it names elements of the storage, whatever view it is called on */
    TRYP(via.arg = mg_new(f->g->c, MgArg, n->narg));
    memcpy(via.arg, n->arg, n->narg * sizeof *via.arg);
    MgArg *offset = mg_node_arg(&via, "storage_offset");
    if (offset->tag != MA_int) *offset = mg_arg_sym(mg_val(f->g, base)->offset);
    *mg_node_arg(&via, "self") = mg_arg_val(base = root);
  }
  TRY(fz_append(f, via, n->out));
  for (int i = 0; i < n->nout; i++)
    if (n->out[i])
      f->val[n->out[i]] = (FzVal){.same = n->out[i],
                                  .parent = base,
                                  .root = f->val[base].root,
                                  .via = via,
                                  .out = i,
                                  .now = n->out[i],
                                  .version = f->val[f->val[base].root].version};
  return MG_OK;
}

/* Values written by the node, in parameter order (lists flattened). */
static MgRc fz_written(Fz *f, const MgNode *n, ValRef **out, int *nout) {
  int cap = 0;
  for (int i = 0; i < n->narg; i++) cap += n->arg[i].tag == MA_list ? (int)n->arg[i].n : 1;
  ValRef *w = mg_new(f->g->c, ValRef, cap + 1);
  TRYP(w);
  *nout = 0;
  for (int i = 0; i < n->narg; i++) {
    const MgArg *a = &n->arg[i];
    if (!n->op->param[i].writes) continue;
    if (a->tag == MA_val) w[(*nout)++] = a->u.val;
    else if (a->tag == MA_list)
      for (uint32_t k = 0; k < a->n; k++)
        if (a->u.item[k].tag == MA_val) w[(*nout)++] = a->u.item[k].u.val;
  }
  *out = w;
  return MG_OK;
}

/* Is v what an inverse made: a value of its own, whatever was written into it? */
static bool fz_is_scatter(const MgGraph *g, ValRef v) {
  if (!mg_val(g, v)->def) return false;
  uint16_t c = mg_node(g, mg_val(g, v)->def)->op->code;
  return c == TOP_slice_scatter || c == TOP_select_scatter || c == TOP_diagonal_scatter ||
         c == TOP_as_strided_scatter;
}

/* copy_(self, src): self's memory takes src, converted and broadcast; a number for src arrives as one. */
static MgRc fz_copy(Fz *f, const MgNode *n) {
  ValRef self = mg_node_first(n), src;
  const MgArg *from = mg_node_arg(n, "src");
  if (from->tag == MA_val) {
    TRY(fz_read(f, from->u.val, &src));
  } else {
    TRY(fz_read(f, self, &src));
    MgArg a[] = {mg_arg_val(src), *from};
    TRY(mg_fz_emit(f, TOP_fill_Scalar, a, 2, self, &src));
  }
  TRY(fz_coerce(f, &src, self));
  TRY(fz_write(f, self, src));
  FzVal *root = &f->val[fz_val(f, self)->root];
  root->copied = !fz_is_scatter(f->g, root->now);
  fz_rename_result(f, n->nout ? n->out[0] : 0, self);
  return MG_OK;
}

/* Appends twin(...) for the recorded node: parameters matched by position, the written ones left out when the
 * twin does not have them. */
static MgRc fz_twin_node(Fz *f, const MgNode *n, const MgOp *twin, ValRef like, NodeRef *out) {
  MgGraph *g = f->g;
  MgNode copy = *n;
  TRY(fz_args(f, &copy));
  NodeRef r = mg_graph_node(g, twin, twin->nparam, twin->nret);
  TRYP(r);
  bool skip = twin->nparam < n->narg;
  int j = 0;
  for (int i = 0; i < n->narg && j < twin->nparam; i++)
    if (!skip || !n->op->param[i].writes) mg_node(g, r)->arg[j++] = copy.arg[i];
  mg_node(g, r)->line = n->line;
  mg_node(g, r)->file = n->file;
  mg_node(g, r)->grad_mode = n->grad_mode;
  mg_node(g, r)->leaf = n->leaf;
  *out = r;
  return fz_infer(f, r, like);
}

/* The written argument (its place in the list of fz_written) that result i is, or -1. */
static int fz_result_of(const MgNode *n, int i) {
  int flat = 0;
  for (int p = 0; p < n->narg; p++) {
    if (!n->op->param[p].writes) continue;
    if (n->arg[p].tag == MA_val && n->op->ret_alias[i] >= 0 &&
        n->op->param[p].alias_set == n->op->ret_alias[i])
      return flat;
    if (n->arg[p].tag == MA_val) flat++;
    else
      for (uint32_t k = 0; n->arg[p].tag == MA_list && k < n->arg[p].n; k++)
        flat += n->arg[p].u.item[k].tag == MA_val;
  }
  return -1;
}

/* Adds by to the number of arguments in each root's memory; true: there are several in one. */
static bool fz_count_roots(Fz *f, const MgNode *n, int by) {
  bool several = false;
  for (int p = 0; p < n->narg; p++) {
    bool list = n->arg[p].tag == MA_list;
    for (uint32_t k = 0; k < (list ? n->arg[p].n : 1); k++) {
      const MgArg *a = list ? &n->arg[p].u.item[k] : &n->arg[p];
      if (a->tag == MA_val) several |= (f->use[f->val[fz_canon(f, a->u.val)].root] += (uint32_t)by) > 1;
    }
  }
  return several;
}

/* Is memory that the node writes also that of another of its arguments, so that the order of its writes and
 * reads is seen? Of items of lists, those of one place go together; lists: only such are asked about, since
 * for others the op judges itself. */
static bool fz_writes_shared(Fz *f, const MgNode *n, bool lists) {
  bool several = fz_count_roots(f, n, 1);
  fz_count_roots(f, n, -1);
  if (!several) return false;
  for (int p = 0; p < n->narg; p++) {
    const MgArg *a = &n->arg[p];
    bool list = a->tag == MA_list;
    if (!n->op->param[p].writes || (lists && !list) || (a->tag != MA_val && !list)) continue;
    for (uint32_t i = 0; i < (list ? a->n : 1); i++) {
      const MgArg *w = list ? &a->u.item[i] : a;
      if (w->tag != MA_val) continue;
      ValRef wv = fz_canon(f, w->u.val), root = f->val[wv].root;
      for (int q = 0; q < n->narg; q++) {
        const MgArg *b = &n->arg[q];
        bool many = b->tag == MA_list;
        if (b->tag != MA_val && !many) continue;
        for (uint32_t k = 0; k < (many ? b->n : 1); k++) {
          const MgArg *r = many ? &b->u.item[k] : b;
          if (r == w || r->tag != MA_val || (lists && many && k == i)) continue;
          ValRef rv = fz_canon(f, r->u.val);
          if (f->val[rv].root == root && mg_may_overlap(f->g, root, wv, rv)) return true;
        }
      }
    }
  }
  return false;
}

/* An op without a twin: the call runs it on copies of what it writes.  Such a node has more results than its
 * op returns: after those, the copies in parameter order (entry/launch/op_call). */
static MgRc fz_on_copies(Fz *f, const MgNode *n) {
  MgGraph *g = f->g;
  ValRef *w, *now;
  int nw;
  TRY(fz_written(f, n, &w, &nw));
  if (strncmp(n->op->full, "aten::", 6) && fz_writes_shared(f, n, false))
    return mg_fail(g->c, MG_UNSUP, "functionalize: %s writes what it also gets otherwise", n->op->full);
  if (!nw && !n->nout)
    return mg_fail(g->c, MG_UNSUP, "functionalize: %s has no functional form", n->op->full);
  TRYP(now = mg_new(g->c, ValRef, n->nout + nw + 1));
  for (int i = 0; i < n->nout; i++) {
    bool single = n->op->nret == n->nout && n->op->ret_kind[i] == AK_tensor;
    if (!n->out[i] || (single && fz_result_of(n, i) >= 0)) continue;
    for (int k = 0; k < n->op->nret; k++)
      if (n->op->ret_alias[k] >= 0 && !single)
        return mg_fail(g->c, MG_UNSUP, "functionalize: %s has no functional form", n->op->full);
    fz_root(f, n->out[i]);
    now[i] = n->out[i];
  }
  for (int i = 0; i < nw; i++) TRYP(now[n->nout + i] = mg_graph_val_like(g, w[i]));
  MgNode copy = *n;
  copy.nout += nw;
  TRY(fz_append(f, copy, now));
  for (int i = 0; i < nw; i++) TRY(fz_write(f, w[i], now[n->nout + i]));
  for (int i = 0; i < n->nout; i++)
    if (n->out[i] && !now[i]) fz_rename_result(f, n->out[i], w[fz_result_of(n, i)]);
  return MG_OK;
}

/* Is some out= of another dtype than the twin's result?  What the op does then is its own: many compute
 * in that dtype, some raise. */
static bool fz_out_of_other_dtype(const MgGraph *g, const MgNode *n, const MgNode *twin, const ValRef *w,
                                  int nw) {
  if (!n->op->param[n->op->nparam - 1].writes) return false;
  for (int i = 0; i < nw && i < twin->nout; i++)
    if (twin->out[i] && mg_val(g, twin->out[i])->dtype != mg_val(g, w[i])->dtype) return true;
  return false;
}

/* An op that writes arguments and has a functional twin.  The twin's results are: the op's own results in
 * order (those that alias a written argument are its new value), then the new values of
 * the other written arguments. */
static MgRc fz_twin(Fz *f, const MgNode *n, const MgOp *twin) {
  MgGraph *g = f->g;
  ValRef *w;
  int nw;
  NodeRef r;
  TRY(fz_written(f, n, &w, &nw));
  MgRc rc = fz_twin_node(f, n, twin, nw == 1 ? w[0] : 0, &r);
  bool other = rc == MG_OK && fz_out_of_other_dtype(g, n, mg_node(g, r), w, nw);
  if (rc == MG_UNSUP || other) { /* or nothing is known of the twin's results */
    g->c->rc = MG_OK;
    g->nnode--;
    return fz_on_copies(f, n);
  }
  TRY(rc);
  int ngot = mg_node(g, r)->nout, k = 0;
  bool *done = mg_new(g->c, bool, nw + 1);
  TRYP(done);
  for (int i = 0; i < n->op->nret; i++) {
    if (n->op->ret_kind[i] != AK_tensor) continue;
    int hit = -1, flat = 0;
    for (int p = 0; p < n->narg && hit < 0; p++) {
      if (!n->op->param[p].writes) continue;
      if (n->arg[p].tag != MA_val) {
        flat += n->arg[p].tag == MA_list ? (int)n->arg[p].n : 0;
        continue;
      }
      if (n->op->ret_alias[i] >= 0 && n->op->param[p].alias_set == n->op->ret_alias[i]) hit = flat;
      flat++;
    }
    if (k >= ngot) return mg_fail(g->c, MG_BUG, "functionalize: %s has too few results", twin->full);
    ValRef got = mg_node(g, r)->out[k++];
    if (hit < 0) { /* an ordinary result */
      if (i < n->nout && n->out[i]) {
        fz_root(f, n->out[i]);
        f->val[n->out[i]].now = got;
      }
      continue;
    }
    TRY(fz_coerce(f, &got, w[hit]));
    TRY(fz_write(f, w[hit], got));
    fz_rename_result(f, i < n->nout ? n->out[i] : 0, w[hit]);
    done[hit] = true;
  }
  for (int i = 0; i < nw; i++) {
    if (done[i]) continue;
    if (k >= ngot)
      return mg_fail(g->c, MG_UNSUP, "functionalize: %s does not give what %s writes", twin->full,
                     n->op->full);
    ValRef got = mg_node(g, r)->out[k++];
    TRY(fz_coerce(f, &got, w[i]));
    TRY(fz_write(f, w[i], got));
  }
  return MG_OK;
}

/* A foreach op whose items share memory: each sees what those before it have written, as in eager. */
static MgRc fz_one_by_one(Fz *f, const MgNode *n) {
  MgGraph *g = f->g;
  const MgArg *self = mg_node_arg(n, "self");
  uint32_t count = self && self->tag == MA_list ? self->n : 0;
  if (count < 2) return fz_twin(f, n, mg_op_twin(n->op));
  for (uint32_t i = 0; i < count; i++) {
    MgNode one = *n;
    TRYP(one.arg = mg_new(g->c, MgArg, n->narg));
    memcpy(one.arg, n->arg, n->narg * sizeof *one.arg);
    for (int p = 0; p < n->narg; p++)
      if (one.arg[p].tag == MA_list && one.arg[p].n == count) one.arg[p].u.item += i, one.arg[p].n = 1;
    TRY(fz_twin(f, &one, mg_op_twin(n->op)));
  }
  return MG_OK;
}

static void fz_stands_for(Fz *f, ValRef old, ValRef now) {
  if (!old) return;
  fz_root(f, old);
  f->val[old].now = now;
}

/* See mg_node_updates_norm.  cuDNN's parameters have other names in the same places.  Its last result, which
 * is for its own backward pass, is empty: fz_batch_norm_backward does not need it. */
static MgRc fz_batch_norm(Fz *f, const MgNode *n) {
  enum { RESULTS = 3 }; /* of batch norm; what was written follows */
  MgGraph *g = f->g;
  const MgOp *twin = mg_op_by_code(TOP__native_batch_norm_legit_functional);
  NodeRef r;
  TRYP(twin);
  TRY(fz_twin_node(f, n, twin, 0, &r));
  for (int i = 0; i < RESULTS; i++) fz_stands_for(f, n->out[i], mg_node(g, r)->out[i]);
  static const char *const written[] = {"running_mean", "running_var"};
  for (int i = 0; i < 2; i++) {
    ValRef now = mg_node(g, r)->out[RESULTS + i], old = mg_node_arg(n, written[i])->u.val;
    TRY(fz_coerce(f, &now, old));
    TRY(fz_write(f, old, now));
  }
  static const int64_t none[] = {0};
  ValRef reserve = 0;
  if (n->nout <= RESULTS || !n->out[RESULTS]) return MG_OK;
  const MgArg empty[] = {mg_arg_val(mg_node(g, r)->out[0]), mg_arg_ints(g, none, 1),
                         mg_arg_code(MA_dtype, DT_u8)};
  TRY(mg_fz_emit(f, TOP_new_zeros, empty, 3, n->out[RESULTS], &reserve));
  fz_stands_for(f, n->out[RESULTS], reserve);
  return MG_OK;
}

/* cudnn_batch_norm_backward as native_batch_norm_backward, which fuses: both take the mean and the inverse
 * deviation that forward found. */
static MgRc fz_batch_norm_backward(Fz *f, const MgNode *n) {
  static const char *const from[] = {"grad_output", "input",     "weight",  "running_mean",
                                     "running_var", "save_mean", "save_var"};
  MgNode copy = *n;
  MgArg arg[10], *mask = mg_new(f->g->c, MgArg, 3);
  const MgOp *op = mg_op_by_code(TOP_native_batch_norm_backward);
  TRYP(mask && op);
  for (int i = 0; i < 7; i++) arg[i] = *mg_node_arg(n, from[i]);
  for (int i = 0; i < 3; i++) mask[i] = mg_arg_bool(n->out[i]);
  arg[7] = mg_arg_bool(true);
  arg[8] = *mg_node_arg(n, "epsilon");
  arg[9] = (MgArg){.tag = MA_list, .n = 3, .u.item = mask};
  copy.op = op;
  copy.arg = mg_ctx_grow(f->g->c, arg, sizeof arg, sizeof arg);
  copy.narg = op->nparam;
  TRYP(copy.arg);
  for (int i = 0; i < n->nout; i++)
    if (n->out[i]) fz_root(f, n->out[i]);
  return fz_append(f, copy, n->out);
}

/* The value that a view op's results alias, or 0. */
static ValRef fz_viewed(const MgNode *n, const MgOp *op) {
  for (int i = 0; i < n->narg; i++)
    if (op->param[i].alias_set >= 0 && n->arg[i].tag == MA_val) return n->arg[i].u.val;
  return 0;
}

/* Does the twin draw the same numbers for the same elements?  bernoulli's goes by index, what it
 * stands for in order of memory. */
static bool fz_same_order(const Fz *f, const MgNode *n, const MgOp *twin) {
  bool by_index = twin->code == TOP_bernoulli_p || twin->code == TOP_bernoulli_Tensor;
  return !by_index || !mg_node_first(n) || mg_val_is_contiguous(f->g, mg_node_first(n));
}

static MgRc fz_node(Fz *f, const MgNode *n) {
  const MgOp *op = n->op;
  if (op->mutates) {
    if (op->code == TOP_copy_) return fz_copy(f, n);
    const MgOp *twin = mg_op_twin(op);
    if (!twin || !fz_same_order(f, n, twin)) return fz_on_copies(f, n);
    if (!n->op->nret && fz_writes_shared(f, n, true)) return fz_one_by_one(f, n);
    if (!twin->is_view) return fz_twin(f, n, twin);
    /* t_, squeeze_ ...: only the metadata changes; the result is a view of what was there */
    return fz_view(f, n, twin, mg_node_first(n));
  }
  /* some ops of torch write their out= through an _unsafe_view of it */
  if (op->code == TOP__unsafe_view && f->target[n->out[0]]) return fz_view(f, n, op, mg_node_first(n));
  if (op->is_view) {
    ValRef base = fz_viewed(n, op);
    if (base) return fz_view(f, n, op, base);
  }
  if (mg_node_updates_norm(n)) return fz_batch_norm(f, n);
  if (op->code == TOP_cudnn_batch_norm_backward) return fz_batch_norm_backward(f, n);
  for (int i = 0; i < n->nout; i++)
    if (n->out[i]) fz_root(f, n->out[i]);
  return fz_append(f, *n, n->out);
}

/* ---- inputs and outputs ---- */

/* Two inputs in one memory are only safe while nothing is written to it. */
static MgRc fz_check_inputs(Fz *f) {
  MgGraph *g = f->g;
  for (uint32_t i = 0; i < g->ninput; i++)
    for (uint32_t k = 0; k < i; k++)
      if (mg_val(g, g->input[i])->storage == mg_val(g, g->input[k])->storage &&
          (f->val[g->input[i]].written || f->val[g->input[k]].written))
        return mg_fail(g->c, MG_UNSUP, "functionalize: inputs %u and %u share memory that is written", k, i);
  return MG_OK;
}

/* The input whose memory the recorded value v is in, or -1. */
static int32_t fz_input_of(const Fz *f, ValRef v) {
  const MgGraph *g = f->g;
  const MgVal *r = mg_val(g, f->val[v].root);
  return !r->def && r->out < g->ninput && g->input[r->out] == f->val[v].root ? r->out : -1;
}

/* The value of a view that was just written is a tensor of its own.  The user receives a view: made from the
 * root again, it has eager's strides and says where in its root's memory it lies. */
static void fz_forget(Fz *f, ValRef v) {
  const MgVal *now = mg_val(f->g, f->val[v].now), *is = mg_val(f->g, v);
  if (f->val[v].parent && (!mg_ex_same(now->offset, is->offset) ||
                           memcmp(now->stride, is->stride, is->ndim * sizeof *is->stride)))
    f->val[v].version = f->val[f->val[v].root].version - 1;
}

/* Is this all of its root's memory, element for element, as detach or a view of other sizes gives it? */
static bool fz_whole(const Fz *f, ValRef c) {
  MgGraph *g = f->g;
  ValRef root = f->val[c].root;
  const MgVal *v = mg_val(g, c), *r = mg_val(g, root);
  if (v->dtype != r->dtype || v->bits != r->bits || !mg_ex_same(v->offset, r->offset)) return false;
  if (fz_same_sizes(g, c, root)) return fz_same_strides(g, c, root);
  return mg_ex_same(mg_val_numel(g, c), mg_val_numel(g, root)) && mg_val_is_contiguous(g, c) &&
         mg_val_is_contiguous(g, root);
}

/* The output, none of an input, in whose memory this one lies, or -1: its root, or
 * what stands for all of it. */
static int32_t fz_output_of(const Fz *f, const ValRef *old, uint32_t i) {
  ValRef c = fz_canon(f, old[i]), root = f->val[c].root;
  int32_t whole = -1;
  for (uint32_t k = 0; k < f->g->noutput; k++) {
    ValRef ck = fz_canon(f, old[k]);
    if (k < i && ck == c) return (int32_t)k; /* the same tensor twice */
    if (ck == root && c != root) return (int32_t)k;
    if (whole < 0 && f->val[ck].root == root && fz_whole(f, ck)) whole = (int32_t)k;
  }
  return c == root || whole == (int32_t)i ? -1 : whole;
}

/* Outputs in the memory of an input or of another output are described, not computed: see MgOutAlias.  Views
 * of a result of which no output is all become tensors of their own. */
static MgRc fz_outputs(Fz *f) {
  MgGraph *g = f->g;
  ValRef *old = mg_ctx_grow(g->c, g->output, g->noutput * sizeof *old, (g->noutput + 1) * sizeof *old);
  TRYP(old && (g->out_alias = mg_new(g->c, struct MgOutAlias, g->noutput + 1)));
  for (uint32_t i = 0; i < g->noutput; i++) {
    ValRef c = fz_canon(f, old[i]), root = f->val[c].root;
    struct MgOutAlias *a = &g->out_alias[i];
    *a = (struct MgOutAlias){fz_input_of(f, c), -1, c == root};
    if (a->of_input < 0) a->of_output = fz_output_of(f, old, i);
    if (a->of_input < 0) a->same = a->of_output >= 0 && fz_canon(f, old[a->of_output]) == c;
    if (a->of_input >= 0 && a->same) {
      g->output[i] = root;
      continue;
    }
    if (!a->same) fz_forget(f, c);
    TRY(fz_read(f, old[i], &g->output[i]));
    if (a->of_input >= 0 || a->of_output >= 0) continue;
    for (uint8_t bit = 1; bit; bit <<= 1) { /* memory, whose reader applies the bit */
      const MgOp *op = mg_val(g, c)->bits & bit ? fz_unlazy(bit) : NULL;
      MgArg self[] = {mg_arg_val(g->output[i])};
      if (op) TRY(mg_fz_emit(f, (MgTop)op->code, self, 1, g->output[i], &g->output[i]));
    }
    TRY(mg_fz_restride(f, &g->output[i], old[i]));
    if (!f->val[root].copied) continue; /* else the memory must not be that of the source */
    MgArg own[] = {mg_arg_val(g->output[i])};
    TRY(mg_fz_emit(f, TOP_clone, own, 1, old[i], &g->output[i]));
    memcpy(mg_val(g, g->output[i])->stride, mg_val(g, old[i])->stride,
           mg_val(g, old[i])->ndim * sizeof(SymRef));
  }
  return MG_OK;
}

static MgRc fz_writebacks(Fz *f) {
  MgGraph *g = f->g;
  TRYP(g->wb_input = mg_new(g->c, ValRef, g->ninput + 1));
  TRYP(g->wb_value = mg_new(g->c, ValRef, g->ninput + 1));
  for (uint32_t i = 0; i < g->ninput; i++) {
    FzVal *v = &f->val[g->input[i]];
    if (!v->written || v->now == g->input[i]) continue;
    g->wb_input[g->nwb] = g->input[i];
    g->wb_value[g->nwb++] = v->now;
  }
  return MG_OK;
}

static MgRc fz_find_targets(Fz *f) {
  TRYP(f->target = mg_new(f->g->c, bool, f->nval));
  for (uint32_t i = 1; i < f->nold; i++) {
    const MgNode *n = &f->old[i];
    for (int k = 0; k < n->narg && n->op->mutates; k++)
      if (n->op->param[k].writes && n->arg[k].tag == MA_val) f->target[n->arg[k].u.val] = true;
  }
  return MG_OK;
}

MgRc mg_functionalize(MgGraph *g) {
  Fz f = {.g = g, .nval = g->nval, .old = g->node, .nold = g->nnode};
  TRYP((f.val = mg_new(g->c, FzVal, f.nval)) && (f.use = mg_new(g->c, uint32_t, f.nval)));
  g->cap_node = f.nold + 64;
  g->nnode = 1;
  g->nwb = 0;
  TRYP(g->node = mg_new(g->c, MgNode, g->cap_node));
  TRY(fz_find_targets(&f));
  for (uint32_t i = 0; i < g->ninput; i++) fz_root(&f, g->input[i]);
  for (uint32_t i = 1; i < f.nold; i++) {
    uint32_t first = g->nnode;
    if (!f.old[i].dead) TRY(fz_node(&f, &f.old[i]));
    for (uint32_t k = first; k < g->nnode; k++) {
      g->node[k].backward = f.old[i].backward;
      g->node[k].again = f.old[i].again;
    }
  }
  TRY(fz_check_inputs(&f));
  TRY(fz_outputs(&f));
  return fz_writebacks(&f);
}
