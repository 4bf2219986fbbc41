/* See the header.  Invariant: nodes keep their order wherever one writes what the other reads or writes, and
 * where both act or draw random numbers. */
#include "entry/run/staged_exec.h"
#include <stdlib.h>
#include <string.h>
#include "entry/guard/guard_set.h"
#include "entry/guard/source.h"
#include "entry/launch/config.h"
#include "entry/launch/op_call.h"
#include "entry/launch/trace.h"
#include "entry/run/exec.h"
#include "entry/run/exec_compile.h"
#include "entry/run/exec_run.h"
#include "results.h"
#include "ir/infer/graph_at.h"
#include "runtime/process/torch_abi.h"

typedef struct StagePiece { /* compiled when it first runs, since plans are made for how inputs overlap */
  MgCtx ctx;
  MgExprs x;
  MgGraph g;
  MgExec *run;
} StagePiece;

typedef struct StageStep {
  StagePiece *piece;       /* owned; NULL: a call */
  MgNodeCall *call;        /* owned */
  ValRef *in, *out, *drop; /* values; drop: read here for the last time */
  uint32_t nin, nout, ndrop;
  uint32_t bind, nbind; /* symbols that become known: MgStages.bind[bind ..] */
  bool grad, leaf;      /* of a call, as recorded */
  bool pure;            /* nothing is written that outlives the run, up to and with this step */
} StageStep;

struct MgStages {
  MgCtx ctx; /* the recording's arena */
  MgExprs x;
  MgGraph g;
  SrcRef *src; /* by symbol; 0: depends on data */
  MgSizeOf *of;
  uint32_t nsym, *bind;
  StageStep *step;
  uint32_t nstep, bind0; /* bind[0 .. bind0): known from the inputs */
  PyObject *objs;        /* strong: what MA_object arguments index */
  MgOptions opt;
  uint64_t recording; /* its number, for reports */
  bool random;        /* random numbers are drawn */
  bool strict;        /* exceptions are the program's (fullgraph) */
};

/* ---- which nodes, in which order ---- */

typedef struct Plan { /* while stages are built */
  const MgTrace *tr;
  MgGraph *g;
  bool *dyn;              /* by node: called, not compiled */
  int *level;             /* by node: even ones are compiled */
  int *write, *read[2];   /* by storage: level of the last write; greatest even and odd level of a node that
                             touches it since */
  int effect, guess, top; /* levels: of the last node that acts, the last that guessed, all */
} Plan;

typedef struct Sizes { /* of a node: what it depends on beside the values that it reads */
  const Plan *p;
  bool any;  /* some are not constant */
  int level; /* of the last node that gives a value out of which one is read; -1: none */
} Sizes;

static bool stage_see_part(const MgExprs *x, ExprRef e, void *sizes) {
  Sizes *s = sizes;
  const MgGraph *g = s->p->g;
  const MgExpr *n = mg_expr(x, e);
  ValRef from = n->op == OP_sym && n->u.i < s->p->tr->nsym ? s->p->tr->sym_of[n->u.i].val : 0;
  NodeRef by = from ? mg_val(g, from)->def : 0;
  if (by && s->p->level[by] > s->level) s->level = s->p->level[by];
  return false;
}

static void stage_see_size(Sizes *s, SymRef e) {
  int64_t v;
  if (!e || mg_ex_const_int(s->p->g->x, e, &v)) return;
  s->any = true;
  mg_ex_any(s->p->g->x, e, stage_see_part, s);
}

static void stage_see_val(ValRef *v, void *arg) {
  Sizes *s = arg;
  const MgVal *t = mg_val(s->p->g, *v);
  if (!*v) return;
  stage_see_size(s, t->offset);
  for (int i = 0; i < t->ndim; i++) {
    stage_see_size(s, t->size[i]);
    stage_see_size(s, t->stride[i]);
  }
}

static void stage_see_arg(Sizes *s, const MgArg *a) {
  if (a->tag == MA_int) stage_see_size(s, a->u.sym);
  for (uint32_t i = 0; a->tag == MA_list && i < a->n; i++) stage_see_arg(s, &a->u.item[i]);
}

static Sizes stage_sizes(const Plan *p, MgNode *n) {
  Sizes s = {p, false, -1};
  for (int i = 0; i < n->narg; i++) stage_see_arg(&s, &n->arg[i]);
  mg_node_each_val(n, stage_see_val, &s);
  for (int i = 0; i < n->nout; i++) stage_see_val(&n->out[i], &s);
  return s;
}

/* At least as late as a node of that level. */
static void stage_after(int *level, int other) {
  if (other < 0) return;
  if ((other & 1) != (*level & 1)) other++;
  if (other > *level) *level = other;
}

typedef struct See {
  Plan *p;
  int level;
} See;

static void stage_see_use(ValRef *v, void *arg) {
  See *s = arg;
  Plan *p = s->p;
  if (!*v) return;
  const MgVal *t = mg_val(p->g, *v);
  if (t->def) stage_after(&s->level, p->level[t->def]);
  stage_after(&s->level, p->write[t->storage]);
}

static void stage_note_use(ValRef *v, void *arg) {
  See *s = arg;
  if (!*v) return;
  int *read = &s->p->read[s->level & 1][mg_val(s->p->g, *v)->storage];
  if (s->level > *read) *read = s->level;
}

static bool stage_acts(const MgNode *n) { return mg_node_random(n) || !n->op->nret; }

/* Does what the node writes outlive a run that is given up?  Random numbers are given back. */
static bool stage_lasts(const MgGraph *g, const MgNode *n) {
  if (!n->op->nret) return true;
  for (MgWritten w = {0}; mg_node_written(n, &w);)
    for (uint32_t j = 0; j < g->ninput; j++)
      if (mg_val(g, g->input[j])->storage == mg_val(g, w.v)->storage) return true;
  return false;
}

/* given: level of what gives its sizes. */
static void stage_place(Plan *p, NodeRef n, int given) {
  MgNode *node = mg_node(p->g, n);
  See s = {p, p->dyn[n] ? 1 : 0};
  stage_after(&s.level, given);
  mg_node_each_val(node, stage_see_use, &s);
  for (MgWritten w = {0}; mg_node_written(node, &w);)
    for (int odd = 0; odd < 2; odd++) stage_after(&s.level, p->read[odd][mg_val(p->g, w.v)->storage]);
  if (stage_acts(node)) {
    stage_after(&s.level, p->effect);
    p->effect = s.level;
  }
  if (stage_lasts(p->g, node)) stage_after(&s.level, p->guess); /* a run with other sizes is repeated */
  p->level[n] = s.level;
  if (node->guessed && s.level > p->guess) p->guess = s.level;
  if (s.level > p->top) p->top = s.level;
  mg_node_each_val(node, stage_note_use, &s);
  for (MgWritten w = {0}; mg_node_written(node, &w);) p->write[mg_val(p->g, w.v)->storage] = s.level;
}

static int stage_order(Plan *p, const MgTrace *tr, bool plans) {
  MgGraph *g = p->g;
  uint32_t n = g->nval + 1;
  p->dyn = mg_new(tr->ctx, bool, g->nnode + 1);
  p->level = mg_new(tr->ctx, int, g->nnode + 1);
  p->write = mg_new(tr->ctx, int, n);
  p->read[0] = mg_new(tr->ctx, int, n);
  p->read[1] = mg_new(tr->ctx, int, n);
  if (!p->dyn || !p->level || !p->write || !p->read[0] || !p->read[1]) return PyErr_NoMemory(), -1;
  for (uint32_t i = 0; i < n; i++) p->write[i] = p->read[0][i] = p->read[1][i] = -1;
  p->effect = p->guess = -1;
  for (NodeRef k = 1; k < g->nnode; k++) {
    if (mg_node(g, k)->dead) continue;
    Sizes sizes = stage_sizes(p, mg_node(g, k));
    p->dyn[k] = !plans || sizes.any;
    stage_place(p, k, sizes.level);
  }
  return 0;
}

/* ---- steps ---- */

typedef struct Uses { /* values being collected */
  const Plan *p;
  ValRef *v;
  uint32_t n, *mark, now; /* mark[v] == now: has it already */
  int level;
  bool from_outside; /* what others give, else what this level gives to them */
} Uses;

static void stage_see_io(ValRef *v, void *arg) {
  Uses *u = arg;
  const MgVal *t = mg_val(u->p->g, *v);
  bool own = t->def && u->p->level[t->def] == u->level;
  if (!*v || own == u->from_outside || u->mark[*v] == u->now) return;
  u->mark[*v] = u->now;
  u->v[u->n++] = *v;
}

static ValRef *stage_keep(const MgTrace *tr, const Uses *u) {
  ValRef *l = mg_new(tr->ctx, ValRef, u->n + 1);
  return l ? memcpy(l, u->v, u->n * sizeof *l) : NULL;
}

/* What the nodes of a level read from others and give to them; results that symbols
 * are read from count as read. */
static int stage_io(MgStages *s, Uses *u, StageStep *t) {
  const Plan *p = u->p;
  MgGraph *g = p->g;
  u->now++;
  u->n = 0;
  u->from_outside = true;
  for (NodeRef n = 1; n < g->nnode; n++)
    if (!mg_node(g, n)->dead && p->level[n] == u->level) mg_node_each_val(mg_node(g, n), stage_see_io, u);
  t->nin = u->n;
  if (!(t->in = stage_keep(p->tr, u))) return -1;
  u->now++;
  u->n = 0;
  u->from_outside = false;
  for (NodeRef n = 1; n < g->nnode; n++)
    if (!mg_node(g, n)->dead && p->level[n] != u->level) mg_node_each_val(mg_node(g, n), stage_see_io, u);
  for (uint32_t i = 0; i < g->noutput; i++) stage_see_io(&g->output[i], u);
  for (uint32_t i = 0; i < s->nsym; i++)
    if (s->of[i].val) stage_see_io(&s->of[i].val, u);
  t->nout = u->n;
  return (t->out = stage_keep(p->tr, u)) ? 0 : -1;
}

/* The nodes of a level as a graph of its own, under the same numbers. */
static int stage_cut(MgStages *s, const Plan *p, StageStep *t, int level) {
  const MgGraph *g = p->g;
  StagePiece *piece = t->piece = mg_calloc(1, sizeof *piece);
  int64_t *hint = piece ? mg_new(p->tr->ctx, int64_t, s->nsym + 1) : NULL;
  uint32_t *first = hint ? mg_new(p->tr->ctx, uint32_t, g->nval + 1) : NULL;
  if (!first) return -1;
  mg_ctx_init(&piece->ctx);
  for (uint32_t i = 0; i < s->nsym; i++) hint[i] = g->x->sym[i].hint;
  if (mg_exprs_init(&piece->x, &piece->ctx) || mg_graph_init(&piece->g, &piece->ctx, &piece->x) ||
      mg_graph_at(&piece->g, g, hint))
    return -1;
  MgGraph *c = &piece->g;
  c->ninput = c->noutput = 0;
  for (NodeRef n = 1; n < c->nnode; n++) mg_node(c, n)->dead |= p->level[n] != level;
  for (uint32_t i = 0; i < t->nin; i++) { /* memory is named after the first input that lies in it */
    MgVal *v = mg_val(c, t->in[i]);
    uint32_t *of = &first[v->storage];
    if (!mg_graph_input(c, t->in[i])) return -1;
    if (!*of) *of = t->in[i];
    v = mg_val(c, t->in[i]);
    v->def = 0;
    v->out = (uint32_t)i;
  }
  for (ValRef v = 1; v < c->nval; v++)
    if (first[mg_val(c, v)->storage]) mg_val(c, v)->storage = first[mg_val(c, v)->storage];
  for (uint32_t i = 0; i < t->nout; i++)
    if (mg_graph_output(c, t->out[i])) return -1;
  return 0;
}

typedef struct Reads {
  ValRef *v;
  uint32_t n;
} Reads;
static void stage_take_read(ValRef *v, void *arg) { ((Reads *)arg)->v[((Reads *)arg)->n++] = *v; }

static int stage_call(const Plan *p, StageStep *t, NodeRef n) {
  MgNode *node = mg_node(p->g, n);
  if (!(t->call = mg_nodecall_new_plain(p->g, n, p->tr->objs))) return -1;
  Reads in = {mg_new(p->tr->ctx, ValRef, mg_nodecall_nin(t->call) + 1), 0};
  if (!in.v) return -1;
  mg_node_each_tensor(node, stage_take_read, &in);
  t->in = in.v;
  t->nin = in.n;
  t->out = node->out;
  t->nout = node->nout;
  t->grad = node->grad_mode;
  t->leaf = node->leaf;
  return 0;
}

static int stage_steps(MgStages *s, Plan *p) {
  MgGraph *g = p->g;
  Uses u = {.p = p,
            .v = mg_new(p->tr->ctx, ValRef, g->nval + 1),
            .mark = mg_new(p->tr->ctx, uint32_t, g->nval + 1)};
  bool pure = true;
  if (!(s->step = mg_calloc(g->nnode + 1, sizeof *s->step)) || !u.v || !u.mark) return -1;
  for (u.level = 0; u.level <= p->top; u.level++) {
    StageStep *piece = NULL;
    for (NodeRef n = 1; n < g->nnode; n++) {
      if (mg_node(g, n)->dead || p->level[n] != u.level) continue;
      pure = pure && !stage_lasts(g, mg_node(g, n));
      s->random |= mg_node_random(mg_node(g, n));
      if (!(u.level & 1) && piece) piece->pure = pure;
      if (!(u.level & 1) && piece) continue;
      StageStep *t = &s->step[s->nstep++];
      t->pure = pure;
      if (u.level & 1 ? stage_call(p, t, n) : stage_io(s, &u, t) || stage_cut(s, p, t, u.level)) return -1;
      if (!(u.level & 1)) piece = t;
    }
  }
  return 0;
}

/* Which symbols are known after which step, and which values die there. */
static int stage_lives(MgStages *s, const MgTrace *tr) {
  uint32_t *last = mg_new(tr->ctx, uint32_t, tr->g->nval + 1),
           *made = mg_new(tr->ctx, uint32_t, tr->g->nval + 1), k = 0;
  if (!(s->bind = mg_new(tr->ctx, uint32_t, s->nsym + 1)) || !last || !made) return -1;
  for (uint32_t i = 0; i < s->nstep; i++) {
    StageStep *t = &s->step[i];
    for (uint32_t j = 0; j < t->nin; j++) last[t->in[j]] = i + 1;
    for (uint32_t j = 0; j < t->nout; j++) last[t->out[j]] = made[t->out[j]] = i + 1;
  }
  for (ValRef v = 1; v < tr->g->nval; v++)
    if (!made[v]) made[v] = UINT32_MAX; /* of a node that was taken back: nothing uses it */
  for (uint32_t i = 0; i < tr->g->ninput; i++) made[tr->g->input[i]] = 0;
  for (uint32_t i = 0; i < tr->g->noutput; i++) last[tr->g->output[i]] = 0;
  for (uint32_t i = 0; i <= s->nstep; i++) {
    if (i) s->step[i - 1].bind = k;
    for (uint32_t y = 0; y < s->nsym; y++)
      if (s->of[y].val && made[s->of[y].val] == i) s->bind[k++] = y;
    if (i) s->step[i - 1].nbind = k - s->step[i - 1].bind;
    else s->bind0 = k;
    StageStep *t = i ? &s->step[i - 1] : NULL;
    if (t && !(t->drop = mg_new(tr->ctx, ValRef, t->nin + t->nout + 1))) return -1;
    for (uint32_t j = 0; t && j < t->nin + t->nout; j++) {
      ValRef v = j < t->nin ? t->in[j] : t->out[j - t->nin];
      if (v && last[v] == i) t->drop[t->ndrop++] = v, last[v] = 0;
    }
  }
  return 0;
}

MgStages *mg_stages_build(const MgTrace *tr, const MgConfig *cfg, bool plans) {
  MgStages *s = mg_calloc(1, sizeof *s);
  Plan p = {.tr = tr, .g = tr->g};
  if (!s) return (MgStages *)PyErr_NoMemory();
  s->nsym = tr->nsym;
  s->opt = cfg->opt;
  s->objs = Py_NewRef(tr->objs);
  s->src = mg_new(tr->ctx, SrcRef, s->nsym + 1);
  s->of = mg_new(tr->ctx, MgSizeOf, s->nsym + 1);
  if (!s->src || !s->of) goto fail;
  memcpy(s->src, tr->sym_src, s->nsym * sizeof *s->src);
  memcpy(s->of, tr->sym_of, s->nsym * sizeof *s->of);
  for (uint32_t i = 0; i < s->nsym; i++)
    s->strict |= cfg->fullgraph && s->of[i].val &&
                 mg_val(tr->g, s->of[i].val)->def; /* marked sizes of inputs can be others */
  if (stage_order(&p, tr, plans) || stage_steps(s, &p) || stage_lives(s, tr)) goto fail;
  mg_rec_move_graph(tr, &s->ctx, &s->x, &s->g);
  return s;
fail:
  mg_ctx_init(&s->ctx);
  mg_stages_free(s);
  if (!PyErr_Occurred()) PyErr_NoMemory();
  return NULL;
}

void mg_stages_free(MgStages *s) {
  if (!s) return;
  for (uint32_t i = 0; s->step && i < s->nstep; i++) {
    StageStep *t = &s->step[i];
    if (t->call) mg_nodecall_free(t->call);
    if (!t->piece) continue;
    mg_ctx_free(&t->piece->ctx);
    mg_exec_free(t->piece->run);
    free(t->piece);
  }
  free(s->step);
  Py_XDECREF(s->objs);
  mg_ctx_free(&s->ctx);
  free(s);
}

/* ---- running ---- */

/* Reads the symbols that a step has made known. */
static int stage_bind(const MgStages *s, uint32_t first, uint32_t n, PyObject *const *env, int64_t *at) {
  for (uint32_t i = first; i < first + n; i++) {
    const MgSizeOf *of = &s->of[s->bind[i]];
    MgTensor *t = mg_abi_tensor(env[of->val]);
    int64_t *size, *to = &at[s->bind[i]];
    void *p = NULL;
    if (of->dim == MG_SIZE_OFFSET && mg_abi.aoti_torch_get_storage_offset(t, to)) return -1;
    if (of->dim == MG_SIZE_ITEM && (mg_abi.aoti_torch_get_data_ptr(t, &p) || !p)) return -1;
    if (of->dim == MG_SIZE_ITEM) *to = ((const int64_t *)p)[of->at];
    if (of->dim < 0) continue;
    if (mg_abi.aoti_torch_get_sizes(t, &size)) return -1;
    *to = size[of->dim];
  }
  return 0;
}

/* Is a result what the recording took it for? */
static bool stage_agrees(const MgStages *s, ValRef v, PyObject *o, PyObject *const *env, const int64_t *at) {
  const MgVal *w = mg_val(&s->g, v);
  MgTensor *t = mg_abi_tensor(o);
  int64_t ndim, *size, *stride, offset, n = 1;
  if (mg_abi.aoti_torch_get_dim(t, &ndim) || ndim != w->ndim || mg_abi.aoti_torch_get_sizes(t, &size) ||
      mg_abi.aoti_torch_get_strides(t, &stride) || mg_abi.aoti_torch_get_storage_offset(t, &offset))
    return false;
  for (int i = 0; i < ndim; i++) {
    if (size[i] != mg_sym_eval(&s->x, w->size[i], at)) return false;
    n *= size[i];
  }
  for (int i = 0; n && i < ndim; i++)
    if (size[i] > 1 && stride[i] != mg_sym_eval(&s->x, w->stride[i], at)) return false;
  int64_t want = mg_sym_eval(&s->x, w->offset, at), begin;
  const MgVal *root = mg_val(&s->g, w->storage);
  if (!root->def) { /* where an input begins in its memory is the caller's affair */
    PyObject *base = env[w->storage];
    if (!base || mg_dtype_size((MgDtype)root->dtype) != mg_dtype_size((MgDtype)w->dtype)) return true;
    mg_abi.aoti_torch_get_storage_offset(mg_abi_tensor(base), &begin);
    want += begin - mg_sym_eval(&s->x, root->offset, at);
  }
  return !n || offset == want;
}

/* Compiling lets go of the GIL: each thread that finds the piece without a plan compiles a copy, and the
 * first that is done wins. */
static int stage_compile(const MgStages *s, StagePiece *p, PyObject *const *in) {
  MgCtx ctx;
  MgExprs x;
  MgGraph g;
  mg_ctx_init(&ctx);
  bool copied = !mg_exprs_init(&x, &ctx) && !mg_graph_init(&g, &ctx, &x) && !mg_graph_at(&g, &p->g, NULL);
  MgExec *run = copied ? mg_exec_piece(&ctx, &x, &g, s->objs, &s->opt, s->recording, in) : NULL;
  mg_ctx_free(&ctx);
  if (!copied) PyErr_NoMemory();
  if (!run || p->run) {
    mg_exec_free(run);
    return run ? 0 : -1;
  }
  p->run = run;
  mg_ctx_free(&p->ctx);
  mg_ctx_init(&p->ctx);
  return 0;
}

static int stage_run_piece(const MgStages *s, StagePiece *p, PyObject *const *in, PyObject **out) {
  return (p->run || !stage_compile(s, p, in)) && !mg_exec_dispatch(p->run, in, NULL, NULL, out) ? 0 : -1;
}

static int stage_run_step(const MgStages *s, const StageStep *t, PyObject **env, int64_t *at) {
  PyObject *small[64], **buf = small;
  uint32_t n = t->nin + t->nout;
  if (n > 64 && !(buf = mg_malloc(n * sizeof *buf))) return PyErr_NoMemory(), -1;
  PyObject **in = buf, **out = buf + t->nin;
  MgCallSizes sizes = {&s->x, at};
  for (uint32_t i = 0; i < t->nin; i++) in[i] = env[t->in[i]];
  for (uint32_t i = 0; i < t->nout; i++) out[i] = NULL;
  if (t->call && mg_abi.aoti_torch_grad_mode_is_enabled() != t->grad)
    mg_abi.aoti_torch_grad_mode_set_enabled(t->grad);
  int rc = !t->call                                  ? stage_run_piece(s, t->piece, in, out)
           : mg_nodecall_run_plain(t->call, in, out) ? 0
                                                     : mg_nodecall_run_at(t->call, in, out, &sizes);
  if (!rc && t->leaf) rc = PyObject_SetAttrString(out[0], "requires_grad", Py_True);
  for (uint32_t i = 0; i < t->nout; i++) {
    if (!rc && t->out[i]) Py_XSETREF(env[t->out[i]], out[i]);
    else Py_XDECREF(out[i]);
  }
  if (!rc && stage_bind(s, t->bind, t->nbind, env, at))
    rc = (PyErr_SetString(PyExc_SystemError, "magneto: a size of the graph has no memory"), -1);
  for (uint32_t i = 0; !rc && t->call && i < t->nout; i++)
    if (t->out[i] && env[t->out[i]] && !stage_agrees(s, t->out[i], env[t->out[i]], env, at))
      rc = MG_STAGES_OTHER;
  for (uint32_t i = 0; i < t->ndrop; i++) Py_CLEAR(env[t->drop[i]]);
  if (buf != small) free(buf);
  return rc;
}

bool mg_stages_keeps_random(const MgStages *s) { return s->random; }

int mg_stages_run(MgStages *s, const MgGuards *guards, PyObject *const *vals, PyObject *const *in,
                  PyObject **outs) {
  PyObject **env = mg_calloc(s->g.nval, sizeof *env);
  int64_t *at = mg_calloc(s->nsym + 1, sizeof *at);
  int rc = env && at ? 0 : (PyErr_NoMemory(), -1);
  bool grad = mg_abi.aoti_torch_grad_mode_is_enabled(), pure = true;
  if (!rc && !mg_symsize_values(guards, s->src, s->nsym, vals, at))
    rc = (PyErr_SetString(PyExc_SystemError, "magneto: a size that is none"), -1);
  for (uint32_t i = 0; env && i < s->g.ninput; i++) env[s->g.input[i]] = Py_NewRef(in[i]);
  if (!rc && stage_bind(s, 0, s->bind0, env, at)) rc = -1;
  for (uint32_t i = 0; !rc && i < s->nstep; i++) {
    rc = stage_run_step(s, &s->step[i], env, at);
    pure = s->step[i].pure;
  }
  mg_abi.aoti_torch_grad_mode_set_enabled(grad);
  if (rc == MG_STAGES_OTHER && !pure)
    rc = (PyErr_SetString(PyExc_RuntimeError,
                          "magneto: a size that depends on data is not what the graph was recorded for"),
          -1);
  else if (rc == -1 && pure && !s->strict &&
           PyErr_ExceptionMatches(PyExc_Exception)) { /* maybe only of the graph: it is run in another way */
    PyErr_Clear();                                    /* another way runs it */
    rc = MG_STAGES_OTHER;
  }
  for (uint32_t i = 0; i < s->g.noutput && !rc; i++)
    outs[i] = Py_NewRef(env[s->g.output[i]] ? env[s->g.output[i]] : Py_None);
  for (uint32_t i = 0; env && i < s->g.nval; i++) Py_XDECREF(env[i]);
  free(env);
  free(at);
  return rc;
}
