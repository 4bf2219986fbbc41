/* Construction and rewriting of graphs.  Everything lives in the context's arena; see
 * graph.h for the invariants. */
#include "ir/graph/graph.h"
#include <stdlib.h>
#include <string.h>

/* Makes room for one more entry of a table in the arena. */
#define GRAPH_ROOM(g, arr, n, cap)                                                                           \
  do {                                                                                                       \
    if ((n) >= (cap)) {                                                                                      \
      uint32_t cap_ = (cap) ? (cap) * 2 : 16;                                                                \
      void *p_ = mg_ctx_grow((g)->c, (arr), (n) * sizeof *(arr), cap_ * sizeof *(arr));                      \
      if (!p_) goto nomem;                                                                                   \
      (arr) = p_;                                                                                            \
      (cap) = cap_;                                                                                          \
    }                                                                                                        \
  } while (0)

MgRc mg_graph_init(MgGraph *g, MgCtx *c, MgExprs *x) {
  *g = (MgGraph){
      .c = c, .x = x, .nnode = 1, .cap_node = 64, .nval = 1, .cap_val = 128, .default_dtype = DT_f32};
  TRYP(g->node = mg_new(c, MgNode, g->cap_node));
  TRYP(g->val = mg_new(c, MgVal, g->cap_val));
  return MG_OK;
}

ValRef mg_graph_val(MgGraph *g, MgDtype dtype, int ndim) {
  GRAPH_ROOM(g, g->val, g->nval, g->cap_val);
  SymRef *s = mg_new(g->c, SymRef, 2 * ndim + 1);
  if (!s) goto nomem;
  g->val[g->nval] = (MgVal){.dtype = dtype,
                            .dev_index = -1,
                            .ndim = ndim,
                            .size = s,
                            .stride = s + ndim,
                            .offset = mg_sym(g->x, 0),
                            .storage = g->nval};
  return g->nval++;
nomem:
  return 0;
}

uint8_t mg_op_bit(const MgOp *op) {
  return op->code == TOP__conj ? MG_BIT_conj : op->code == TOP__neg_view ? MG_BIT_neg : 0;
}

ValRef mg_graph_val_like(MgGraph *g, ValRef v) {
  ValRef r = mg_graph_val(g, mg_val(g, v)->dtype, mg_val(g, v)->ndim);
  if (!r) return 0;
  MgVal *d = mg_val(g, r);
  const MgVal *s = mg_val(g, v);
  d->device = s->device;
  d->dev_index = s->dev_index;
  memcpy(d->size, s->size, s->ndim * sizeof *s->size);
  memcpy(d->stride, s->stride, s->ndim * sizeof *s->stride);
  return r;
}

void mg_graph_contiguous(MgGraph *g, ValRef v) {
  MgVal *t = mg_val(g, v);
  SymRef s = mg_sym(g->x, 1), one = s;
  for (int i = t->ndim; i-- > 0;) {
    t->stride[i] = s;
    s = mg_sym_mul(g->x, s, mg_sym_max(g->x, t->size[i], one)); /* torch: an empty dimension counts as one */
  }
  t->offset = mg_sym(g->x, 0);
}

ValRef mg_graph_input(MgGraph *g, ValRef v) {
  GRAPH_ROOM(g, g->input, g->ninput, g->cap_input);
  g->val[v].def = 0;
  g->val[v].out = g->ninput;
  g->input[g->ninput++] = v;
  return v;
nomem:
  return 0;
}

typedef struct GraphSeek {
  const MgGraph *g;
  bool elsewhere;
} GraphSeek;

static void graph_see_device(ValRef *v, void *arg) {
  GraphSeek *s = arg;
  s->elsewhere |= *v && s->g->val[*v].device != DEV_cpu;
}

bool mg_graph_on_cpu(const MgGraph *g) {
  GraphSeek s = {g, false};
  for (NodeRef n = 1; n < g->nnode; n++) {
    const MgNode *node = mg_node(g, n);
    mg_node_each_val((MgNode *)node, graph_see_device, &s);
    for (int i = 0; i < node->nout; i++) graph_see_device(&node->out[i], &s);
  }
  return !s.elsewhere;
}

typedef struct GraphCuda {
  const MgGraph *g;
  int device;
  bool bad;
} GraphCuda;

static void graph_see_cuda(ValRef *v, void *arg) {
  GraphCuda *s = arg;
  const MgVal *m = &s->g->val[*v];
  if (!*v || m->device == DEV_cpu) return;
  s->bad |= m->device != DEV_cuda || (m->dev_index >= 0 && s->device >= 0 && m->dev_index != s->device);
  if (m->dev_index >= 0) s->device = m->dev_index;
}

int mg_graph_cuda(const MgGraph *g) {
  GraphCuda s = {g, -1, false};
  for (NodeRef n = 1; n < g->nnode; n++) {
    const MgNode *node = mg_node(g, n);
    mg_node_each_val((MgNode *)node, graph_see_cuda, &s);
    for (int i = 0; i < node->nout; i++) graph_see_cuda(&node->out[i], &s);
  }
  return s.bad ? -1 : s.device;
}

MgRc mg_graph_output(MgGraph *g, ValRef v) {
  GRAPH_ROOM(g, g->output, g->noutput, g->cap_output);
  g->output[g->noutput++] = v;
  return MG_OK;
nomem:
  return MG_NOMEM;
}

NodeRef mg_graph_node(MgGraph *g, const MgOp *op, int narg, int nout) {
  GRAPH_ROOM(g, g->node, g->nnode, g->cap_node);
  MgArg *arg = mg_new(g->c, MgArg, narg + 1);
  ValRef *out = mg_new(g->c, ValRef, nout + 1);
  if (!arg || !out) goto nomem;
  g->node[g->nnode] = (MgNode){.op = op, .arg = arg, .out = out, .narg = narg, .nout = nout};
  return g->nnode++;
nomem:
  return 0;
}

MgArg mg_arg_val(ValRef v) { return v ? (MgArg){.tag = MA_val, .u.val = v} : (MgArg){.tag = MA_none}; }
MgArg mg_arg_sym(SymRef s) { return (MgArg){.tag = MA_int, .u.sym = s}; }
MgArg mg_arg_int(MgGraph *g, int64_t i) { return mg_arg_sym(mg_sym(g->x, i)); }
MgArg mg_arg_float(double f) { return (MgArg){.tag = MA_float, .u.f = f}; }
MgArg mg_arg_bool(bool b) { return (MgArg){.tag = MA_bool, .u.b = b}; }
MgArg mg_arg_none(void) { return (MgArg){.tag = MA_none}; }
MgArg mg_arg_code(MgArgTag tag, int code) { return (MgArg){.tag = tag, .u.code = code}; }
MgArg mg_arg_device(MgDevice d, int index) {
  return (MgArg){.tag = MA_device, .dev_index = index, .u.code = d};
}

/* A list of n items; when memory ran out the list is empty and the context holds the error. */
static MgArg graph_list(MgGraph *g, int n) {
  MgArg a = {.tag = MA_list, .n = n, .u.item = mg_new(g->c, MgArg, n + 1)};
  if (!a.u.item) a.n = 0;
  return a;
}

MgArg mg_arg_ints(MgGraph *g, const int64_t *v, int n) {
  MgArg a = graph_list(g, n);
  for (uint32_t i = 0; i < a.n; i++) a.u.item[i] = mg_arg_int(g, v[i]);
  return a;
}

MgArg mg_arg_syms(MgGraph *g, const SymRef *v, int n) {
  MgArg a = graph_list(g, n);
  for (uint32_t i = 0; i < a.n; i++) a.u.item[i] = mg_arg_sym(v[i]);
  return a;
}

MgArg mg_arg_vals(MgGraph *g, const ValRef *v, int n) {
  MgArg a = graph_list(g, n);
  for (uint32_t i = 0; i < a.n; i++) a.u.item[i] = mg_arg_val(v[i]);
  return a;
}

/* Defaults are few and simple: None, booleans, numbers, quoted words, lists of numbers. */
static bool graph_default(MgGraph *g, const char **p, uint8_t kind, MgArg *out) {
  const char *s = *p;
  if (*s == '[') {
    MgArg item[16];
    int n = 0;
    for (s++; *s && *s != ']';) {
      if (n == 16 || !graph_default(g, &s, kind, &item[n++])) return false;
      while (*s == ',' || *s == ' ') s++;
    }
    *out = graph_list(g, n);
    if (out->n) memcpy(out->u.item, item, n * sizeof *item);
    *p = s + 1;
    return *s == ']';
  }
  static const struct {
    const char *text;
    uint8_t tag, val;
  } word[] = {{"None", MA_none, 0}, {"True", MA_bool, 1}, {"False", MA_bool, 0}};
  for (int i = 0; i < 3; i++) {
    size_t n = strlen(word[i].text);
    if (!strncmp(s, word[i].text, n)) {
      *out = (MgArg){.tag = word[i].tag};
      if (word[i].tag == MA_bool) out->u.b = word[i].val;
      *p = s + n;
      return true;
    }
  }
  if (*s == '"') {
    const char *e = strchr(s + 1, '"');
    char *t = e ? mg_ctx_grow(g->c, s + 1, e - s - 1, e - s) : NULL;
    if (!t) return false;
    *out = (MgArg){.tag = MA_str, .u.str = t};
    *p = e + 1;
    return true;
  }
  char *ei, *ef;
  long long i = strtoll(s, &ei, 10);
  double f = strtod(s, &ef);
  if (ef == s) return false;
  *p = ef;
  switch (kind) {
  case AK_dtype: *out = mg_arg_code(MA_dtype, i); break;
  case AK_layout: *out = mg_arg_code(MA_layout, i); break;
  case AK_memory_format: *out = mg_arg_code(MA_memory_format, i); break;
  case AK_float:
  case AK_float_list: *out = mg_arg_float(f); break;
  default: *out = ei == ef ? mg_arg_int(g, i) : mg_arg_float(f);
  }
  return true;
}

MgRc mg_arg_default(MgGraph *g, const MgParam *p, MgArg *out) {
  const char *s = p->deflt;
  *out = mg_arg_none();
  if (!p->has_default) {
    if (p->optional) return MG_OK;
    return mg_fail(g->c, MG_BUG, "parameter %s has no default", p->name);
  }
  if (!graph_default(g, &s, p->kind, out)) {
    TRY(g->c->rc);
    return mg_fail(g->c, MG_BUG, "default of %s not understood: %s", p->name, p->deflt);
  }
  bool list = p->kind == AK_int_list || p->kind == AK_float_list || p->kind == AK_bool_list;
  if (list && out->tag != MA_list &&
      out->tag != MA_none) { /* "int[2] stride=1" means [1, 1] in the binding */
    MgArg one = *out;
    *out = graph_list(g, 1);
    if (out->n) out->u.item[0] = one;
  }
  return g->c->rc;
}

MgArg *mg_node_arg(const MgNode *n, const char *name) {
  int i = mg_op_param(n->op, name);
  return i >= 0 && i < (int)n->narg ? &n->arg[i] : NULL;
}

bool mg_node_flag(const MgNode *n, const char *name) {
  const MgArg *a = mg_node_arg(n, name);
  return a && a->tag == MA_bool && a->u.b;
}

/* Is a probability given that is not 0? */
static bool node_drops(const MgNode *n, const char *name) {
  const MgArg *p = mg_node_arg(n, name);
  return p && p->tag != MA_none && !(p->tag == MA_float && p->u.f == 0);
}

bool mg_node_random(const MgNode *n) {
  if (n->op->random) return true;
  if (mg_node_arg(n, "philox_seed")) return false; /* backward draws what forward drew */
  return node_drops(n, "dropout_p") || (node_drops(n, "dropout") && mg_node_flag(n, "train"));
}

bool mg_node_effect(const MgNode *n) { return n->op->effect || mg_node_random(n); }

bool mg_node_trains_norm(const MgNode *n) {
  bool norm = n->op->code == TOP_native_batch_norm || n->op->code == TOP_cudnn_batch_norm;
  return norm && mg_node_flag(n, "training");
}

bool mg_node_updates_norm(const MgNode *n) {
  if (!mg_node_trains_norm(n)) return false;
  return mg_node_arg(n, "running_mean")->tag == MA_val && mg_node_arg(n, "running_var")->tag == MA_val;
}

static void graph_each(MgArg *a, void (*fn)(ValRef *v, void *arg), void *arg) {
  if (a->tag == MA_val) fn(&a->u.val, arg);
  else if (a->tag == MA_list)
    for (uint32_t i = 0; i < a->n; i++) graph_each(&a->u.item[i], fn, arg);
}

void mg_node_each_val(MgNode *n, void (*fn)(ValRef *v, void *arg), void *arg) {
  for (int i = 0; i < n->narg; i++) graph_each(&n->arg[i], fn, arg);
}

void mg_node_each_tensor(MgNode *n, void (*fn)(ValRef *v, void *arg), void *arg) {
  for (int i = 0; i < n->narg; i++) {
    MgArg *a = &n->arg[i];
    uint8_t kind = n->op->param[i].kind;
    bool list = a->tag == MA_list && (kind == AK_tensor_list || kind == AK_opt_tensor_list);
    bool single = kind == AK_tensor && (a->tag == MA_val || a->tag == MA_none); /* x + 1 has a number there */
    uint32_t items = single ? 1 : list ? a->n : 0;
    for (uint32_t k = 0; k < items; k++) {
      MgArg *t = single ? a : &a->u.item[k];
      ValRef none = 0;
      fn(t->tag == MA_val ? &t->u.val : &none, arg);
    }
  }
}

bool mg_node_written(const MgNode *n, MgWritten *w) {
  int many = !n->op->mutates ? 0 : n->narg < n->op->nparam ? n->narg : n->op->nparam;
  for (; w->param < many; w->param++, w->next = 0) {
    const MgArg *a = &n->arg[w->param], *item = a->tag == MA_list ? a->u.item : a;
    uint32_t count = !n->op->param[w->param].writes ? 0 : a->tag == MA_list ? a->n : 1;
    while (w->next < count) {
      w->item = w->next++;
      w->v = item[w->item].tag == MA_val ? item[w->item].u.val : 0;
      if (w->v) return true;
    }
  }
  return false;
}

bool mg_node_writes(const MgGraph *g, const MgNode *n, uint32_t storage) {
  for (MgWritten w = {0}; !n->dead && mg_node_written(n, &w);)
    if (mg_val(g, w.v)->storage == storage) return true;
  return false;
}

bool mg_graph_writes(const MgGraph *g, uint32_t storage) {
  for (NodeRef i = 1; i < g->nnode; i++)
    if (mg_node_writes(g, mg_node(g, i), storage)) return true;
  return false;
}

SymRef mg_val_numel(MgGraph *g, ValRef v) {
  SymRef n = mg_sym(g->x, 1);
  for (int i = 0; i < g->val[v].ndim; i++) n = mg_sym_mul(g->x, n, g->val[v].size[i]);
  return n;
}

bool mg_val_repeats(const MgGraph *g, ValRef v) {
  const MgVal *t = mg_val(g, v);
  for (int i = 0; i < t->ndim; i++)
    if (mg_sym_is(g->x, t->stride[i], 0) && !mg_sym_is(g->x, t->size[i], 1)) return true;
  return false;
}

bool mg_val_is_contiguous(const MgGraph *g, ValRef v) {
  const MgVal *t = mg_val(g, v);
  SymRef expect = mg_sym(g->x, 1);
  for (int i = 0; i < t->ndim; i++)
    if (mg_sym_is(g->x, t->size[i], 0)) return true;
  for (int i = t->ndim; i-- > 0;) {
    if (mg_sym_is(g->x, t->size[i], 1)) continue;
    if (!mg_ex_same(t->stride[i], expect)) return false;
    expect = mg_sym_mul(g->x, expect, t->size[i]);
  }
  return true;
}

/* ---- rewriting ---- */

static ValRef graph_renamed(const MgRewrite *rw, ValRef v) {
  while (v < rw->cap && rw->map[v]) v = rw->map[v]; /* a chain ends at a value that was not replaced */
  return v;
}

static void graph_rename(ValRef *v, void *arg) { *v = graph_renamed(arg, *v); }

/* Lists are shared between nodes until renamed; copy before writing. */
static MgRc graph_copy_list(MgGraph *g, MgArg *a) {
  if (a->tag != MA_list || !a->n) return MG_OK;
  TRYP(a->u.item = mg_ctx_grow(g->c, a->u.item, a->n * sizeof *a->u.item, a->n * sizeof *a->u.item));
  for (uint32_t i = 0; i < a->n; i++) TRY(graph_copy_list(g, &a->u.item[i]));
  return MG_OK;
}

MgRc mg_graph_replace(MgRewrite *rw, ValRef old, ValRef now) {
  if (!now) return rw->g->c->rc ? rw->g->c->rc : mg_fail(rw->g->c, MG_BUG, "replaced by nothing");
  if (old >= rw->cap) {
    uint32_t cap = old + old / 2 + 64;
    TRYP(rw->map = mg_ctx_grow(rw->g->c, rw->map, rw->cap * sizeof *rw->map, cap * sizeof *rw->map));
    rw->cap = cap;
  }
  now = graph_renamed(rw, now);
  if (now != old) rw->map[old] = now;
  return MG_OK;
}

MgRc mg_graph_keep(MgRewrite *rw) {
  MgGraph *g = rw->g;
  GRAPH_ROOM(g, g->node, g->nnode, g->cap_node);
  g->node[g->nnode] = rw->n;
  for (int i = 0; i < rw->n.nout; i++)
    if (rw->n.out[i]) g->val[rw->n.out[i]].def = g->nnode;
  g->nnode++;
  return MG_OK;
nomem:
  return MG_NOMEM;
}

MgRc mg_graph_rewrite(MgGraph *g, MgRewriteFn fn, void *arg) {
  MgNode *old = g->node;
  uint32_t n = g->nnode;
  MgRewrite rw = {.g = g, .cap = g->nval};
  TRYP(rw.map = mg_new(g->c, ValRef, rw.cap));
  g->cap_node = n + 64;
  g->nnode = 1;
  TRYP(g->node = mg_new(g->c, MgNode, g->cap_node));
  for (uint32_t i = 1; i < n; i++) {
    if (old[i].dead) continue;
    rw.n = old[i];
    for (int k = 0; k < rw.n.narg; k++) TRY(graph_copy_list(g, &rw.n.arg[k]));
    mg_node_each_val(&rw.n, graph_rename, &rw);
    uint32_t first = g->nnode;
    TRY(fn(&rw, arg));
    for (uint32_t k = first; k < g->nnode; k++) {
      if (!g->node[k].line) g->node[k].line = old[i].line, g->node[k].file = old[i].file;
      g->node[k].backward = old[i].backward;
      g->node[k].again = old[i].again;
    }
  }
  for (uint32_t i = 0; i < g->noutput; i++) graph_rename(&g->output[i], &rw);
  for (uint32_t i = 0; i < g->nwb; i++) graph_rename(&g->wb_value[i], &rw);
  return MG_OK;
}
