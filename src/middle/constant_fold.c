/* Values that depend on nothing but constants and sizes (attention masks, tables of relative positions) are
 * computed once, while compiling, and become inputs that the plan holds.
 * In: a functional graph as lowering would see it (inputs whose value is known are marked), and a way to run
 * one node.  Out: the same graph with more inputs at the
 * end; what only they needed is dead.
 * Left alone: random and uninitialised values, what a result of the graph is computed from by constants alone
 * (its memory must be new in every call), what is written, what is larger than MG_TUNE_FOLD_BYTES, and what
 * kernels compute cheaper than they would load it (an arange, a comparison of two). */
#include "middle/middle.h"
#include <string.h>
#include "tuning.h"

typedef struct FoldVal {
  bool constant;  /* depends on nothing that a call brings */
  bool wanted;    /* something that is not constant reads it, perhaps through views */
  bool kept;      /* must stay a computation */
  bool needed;    /* has to be evaluated */
  uint32_t stamp; /* mark of the last walk that came here */
  void *tensor;   /* its value, when evaluated (new), or known beforehand (an input's, borrowed) */
  ValRef now;     /* the input that replaces it */
} FoldVal;

typedef struct Fold {
  MgGraph *g;
  const MgFoldOps *o;
  FoldVal *val;
  uint32_t nval; /* entries of val */
  uint32_t mark;
  int64_t bytes; /* evaluated so far */
  bool all;      /* of a walk over arguments */
  bool view;     /* the reader being looked at is a view op */
  int cost;
} Fold;

/* ---- what is constant ---- */

static bool fold_is_factory(const MgOp *op) {
  switch (op->code) {
  case TOP_full:
  case TOP_zeros:
  case TOP_ones:
  case TOP_arange:
  case TOP_arange_start:
  case TOP_arange_start_step:
  case TOP_scalar_tensor:
  case TOP_zeros_like:
  case TOP_ones_like:
  case TOP_full_like: return true;
  default: return false;
  }
}

static int64_t fold_bytes(MgGraph *g, ValRef v) {
  int64_t n;
  int size = mg_dtype_size((MgDtype)mg_val(g, v)->dtype);
  if (!mg_ex_const_int(g->x, mg_val_numel(g, v), &n) || !size || n > MG_TUNE_FOLD_ALL_BYTES)
    return MG_TUNE_FOLD_ALL_BYTES + 1;
  return n * size;
}

static void fold_all_constant(ValRef *v, void *arg) {
  Fold *f = arg;
  if (*v && !f->val[*v].constant) f->all = false;
}

/* Is the node the same in every call, given that its arguments are? */
static bool fold_pure(Fold *f, const MgNode *n) {
  const MgOp *op = n->op;
  if (op->code == TOP_extern || op->mutates || mg_node_random(n) || !n->nout ||
      strncmp(op->full, "aten::", 6))
    return false;
  if (strstr(op->full, "empty")) return false;
  for (int i = 0; i < n->narg; i++)
    if (n->arg[i].tag == MA_object) return false;
  for (int i = 0; i < n->nout; i++) {
    if (!n->out[i] || mg_val(f->g, n->out[i])->device != DEV_cpu) return false;
    if (!op->is_view && fold_bytes(f->g, n->out[i]) > MG_TUNE_FOLD_BYTES) return false;
  }
  return true;
}

static void fold_find(Fold *f) {
  for (uint32_t i = 0; i < f->g->ninput; i++) {
    ValRef v = f->g->input[i];
    bool written = false;
    for (uint32_t k = 0; k < f->g->nwb; k++) written |= f->g->wb_input[k] == v;
    if (!mg_val(f->g, v)->known || written) continue;
    f->val[v].constant = true;
    f->val[v].tensor = mg_val(f->g, v)->known;
  }
  for (NodeRef k = 1; k < f->g->nnode; k++) {
    MgNode *n = mg_node(f->g, k);
    if (n->dead || !fold_pure(f, n)) continue;
    f->all = true;
    mg_node_each_val(n, fold_all_constant, f);
    for (int i = 0; f->all && i < n->nout; i++) f->val[n->out[i]].constant = true;
  }
}

/* ---- what is worth it ---- */

/* The value whose memory v shows. */
static ValRef fold_base(const Fold *f, ValRef v) {
  for (;;) {
    const MgNode *n = mg_node(f->g, mg_val(f->g, v)->def);
    if (!mg_val(f->g, v)->def || !n->op->is_view || !mg_node_first(n)) return v;
    v = mg_node_first(n);
  }
}

/* Calls fn for what v is computed from. */
static void fold_args(Fold *f, ValRef v, void (*fn)(ValRef *, void *)) {
  NodeRef def = mg_val(f->g, v)->def;
  if (def) mg_node_each_val(mg_node(f->g, def), fn, f);
}

static void fold_read(ValRef *v, void *arg) {
  Fold *f = arg;
  if (!*v || !f->val[*v].constant) return;
  ValRef base = fold_base(f, *v);
  f->val[base].wanted = true;
  if (f->view) f->val[base].kept = true;
}

static void fold_keep(ValRef *v, void *arg) {
  Fold *f = arg;
  if (!*v || !f->val[*v].constant || f->val[*v].kept) return;
  f->val[*v].kept = true;
  fold_args(f, *v, fold_keep);
}

static int fold_weight(const MgNode *n) {
  if (n->op->is_view || fold_is_factory(n->op)) return 0;
  switch (n->op->code) {
  case TOP_index_Tensor:
  case TOP_index_select:
  case TOP_gather:
  case TOP_embedding:
  case TOP_cat:
  case TOP_stack:
  case TOP_slice_scatter:
  case TOP_select_scatter:
  case TOP_index_put:
  case TOP_scatter_src:
  case TOP_cumsum:
  case TOP_repeat:
  case TOP_roll: return MG_TUNE_FOLD_WORTH;
  default: return 1;
  }
}

static void fold_walk(ValRef *v, void *arg) {
  Fold *f = arg;
  if (!*v || f->val[*v].stamp == f->mark) return;
  f->val[*v].stamp = f->mark;
  if (mg_val(f->g, *v)->def) f->cost += fold_weight(mg_node(f->g, mg_val(f->g, *v)->def));
  fold_args(f, *v, fold_walk);
}

static void fold_need(ValRef *v, void *arg) {
  Fold *f = arg;
  if (!*v || f->val[*v].needed) return;
  f->val[*v].needed = true;
  fold_args(f, *v, fold_need);
}

/* Marks what is to be evaluated; false when nothing is. */
static bool fold_choose(Fold *f) {
  MgGraph *g = f->g;
  bool any = false;
  for (uint32_t i = 0; i < g->noutput; i++) fold_keep(&g->output[i], f);
  for (uint32_t i = 0; i < g->nwb; i++) fold_keep(&g->wb_value[i], f);
  for (NodeRef k = 1; k < g->nnode; k++) {
    MgNode *n = mg_node(g, k);
    if (n->dead || (n->nout && n->out[0] && f->val[n->out[0]].constant)) continue;
    f->view = n->op->is_view || n->op->mutates ||
              n->op->code == TOP_extern; /* may give or keep its argument's memory */
    mg_node_each_val(n, fold_read, f);
  }
  for (ValRef v = 1; v < f->nval; v++) {
    FoldVal *x = &f->val[v];
    if (!x->constant || !x->wanted || x->kept) continue;
    f->mark++;
    f->cost = 0;
    fold_walk(&v, f);
    x->wanted = f->cost >= MG_TUNE_FOLD_WORTH;
    if (x->wanted) fold_need(&v, f);
    any |= x->wanted;
  }
  return any;
}

/* ---- evaluation ---- */

typedef struct FoldArgs {
  Fold *f;
  void **in;
  int n;
  bool known;
} FoldArgs;

static void fold_arg(ValRef *v, void *arg) {
  FoldArgs *a = arg;
  a->in[a->n++] = *v ? a->f->val[*v].tensor : NULL;
  if (*v && !a->f->val[*v].tensor) a->known = false;
}

static void fold_count(ValRef *v, void *arg) { ++*(int *)arg; }

static MgRc fold_node(Fold *f, NodeRef k) {
  MgNode *n = mg_node(f->g, k);
  int nin = 0;
  mg_node_each_tensor(n, fold_count, &nin);
  void **in = mg_new(f->g->c, void *, nin + 1), **out = mg_new(f->g->c, void *, n->nout + 1);
  TRYP(in && out);
  FoldArgs a = {f, in, 0, true};
  mg_node_each_tensor(n, fold_arg, &a);
  for (int i = 0; i < n->nout; i++) f->bytes += n->op->is_view ? 0 : fold_bytes(f->g, n->out[i]);
  if (!a.known || f->bytes > MG_TUNE_FOLD_ALL_BYTES || !f->o->eval(f->o->self, f->g, k, in, nin, out))
    return MG_OK;
  for (int i = 0; i < n->nout; i++) f->val[n->out[i]].tensor = out[i];
  n->evaluated = true;
  return MG_OK;
}

static void fold_rename(ValRef *v, void *arg) {
  Fold *f = arg;
  if (*v && *v < f->nval && f->val[*v].now) *v = f->val[*v].now;
}

/* The evaluated values as inputs of the graph. */
static MgRc fold_replace(Fold *f, void **constant, uint32_t *n) {
  MgGraph *g = f->g;
  for (ValRef v = 1; v < f->nval; v++) {
    FoldVal *x = &f->val[v];
    if (!x->constant || !x->wanted || x->kept || !x->tensor || !mg_val(g, v)->def) continue;
    ValRef now = mg_graph_val_like(g, v);
    TRYP(now);
    mg_val(g, now)->offset = mg_sym(g->x, 0);
    TRYP(mg_graph_input(g, now));
    x->now = now;
    constant[(*n)++] = x->tensor;
    x->tensor = NULL;
  }
  for (NodeRef k = 1; k < g->nnode; k++)
    if (!mg_node(g, k)->dead) mg_node_each_val(mg_node(g, k), fold_rename, f);
  return *n ? mg_dce(g) : MG_OK;
}

MgRc mg_fold(MgGraph *g, const MgFoldOps *o, void ***constant, uint32_t *n) {
  Fold f = {.g = g, .o = o, .nval = g->nval, .val = mg_new(g->c, FoldVal, g->nval + 1)};
  MgRc rc = MG_OK;
  *n = 0;
  TRYP(f.val);
  fold_find(&f);
  if (!fold_choose(&f)) return MG_OK;
  *constant = mg_new(g->c, void *, g->nval + 1);
  TRYP(*constant);
  for (NodeRef k = 1; k < g->nnode && rc == MG_OK; k++) {
    const MgNode *node = mg_node(g, k);
    bool needed = false;
    for (int i = 0; i < node->nout; i++) needed |= node->out[i] && f.val[node->out[i]].needed;
    if (!node->dead && needed) rc = fold_node(&f, k);
  }
  if (rc == MG_OK) rc = fold_replace(&f, *constant, n);
  for (ValRef v = 1; v < f.nval; v++)
    if (f.val[v].tensor && mg_val(g, v)->def) o->drop(f.val[v].tensor);
  return rc;
}
