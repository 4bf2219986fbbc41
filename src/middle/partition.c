/* partition: one functional joint graph -> a forward graph and a backward graph.
 *
 * In: a joint graph after functionalize (and whatever rewriting came after it).  Out: two graphs over copies
 * of its values,
 * under the same value numbers.  What depends on a tangent is backward's; everything else is forward's, and
 * backward either receives it (saved) or computes it again.  Write-backs are forward's.
 *
 * A saved value is a primal itself, a forward output itself, or an intermediate that forward returns in
 * addition.  Views are never saved: their base is, and the view is made again.  Random numbers are never
 * drawn again.  A primal or output whose memory eager's backward would not read may be overwritten by the
 * program before backward runs: it is copied when it has to be saved. */
#include "ir/infer/infer.h"
#include "middle/partition_priv.h"
#include "base/assert.h"
#include <string.h>

static uint32_t part_slots(const MgGraph *g) { return g->ninput + g->noutput + g->nwb + 1; }

/* ---- before and after functionalize
 * -------------------------------------------------------------------------- */

typedef struct PartAny {
  const bool *set;
  bool hit;
} PartAny;

static void part_any(ValRef *v, void *arg) {
  PartAny *a = arg;
  a->hit |= a->set[*v];
}

static bool part_reads(MgNode *n, const bool *set) {
  PartAny a = {set, false};
  mg_node_each_val(n, part_any, &a);
  return a.hit;
}

MgRc mg_joint_mark(MgGraph *g, MgJoint *j) {
  const MgJointSpec *s = &j->spec;
  if (s->nprimal > g->ninput || s->nfwd > g->noutput || s->backward > g->nnode)
    return mg_fail(g->c, MG_BUG, "joint graph: %u primals of %u inputs, %u forward outputs of %u", s->nprimal,
                   g->ninput, s->nfwd, g->noutput);
  bool *tangent = mg_new(g->c, bool, g->nval + 1);
  TRYP(tangent);
  for (uint32_t i = s->nprimal; i < g->ninput; i++) tangent[g->input[i]] = true;
  for (NodeRef n = 1; n < g->nnode; n++) {
    if (!j->spec.backward && !mg_node(g, n)->dead && part_reads(mg_node(g, n), tangent)) j->spec.backward = n;
    mg_node(g, n)->backward = j->spec.backward && n >= j->spec.backward;
  }
  return MG_OK;
}

typedef struct PartMark {
  ValRef *root;
  bool *set;
} PartMark;

static void part_mark_root(ValRef *v, void *arg) {
  PartMark *m = arg;
  m->set[m->root[*v]] = true;
}

ValRef part_viewed(const MgNode *n) {
  for (int i = 0; n->op->is_view && i < n->narg; i++)
    if (n->op->param[i].alias_set >= 0 && n->arg[i].tag == MA_val) return n->arg[i].u.val;
  return 0;
}

/* Batch norm's backward in training does not read the running statistics it is given. */
static void part_prune(MgNode *n) {
  if (n->op->code != TOP_native_batch_norm_backward) return;
  if (!mg_node_flag(n, "train")) return;
  *mg_node_arg(n, "running_mean") = *mg_node_arg(n, "running_var") = mg_arg_none();
}

MgRc mg_joint_stable(const MgGraph *g, MgJoint *j) {
  PartMark m = {mg_new(g->c, ValRef, g->nval + 1), mg_new(g->c, bool, g->nval + 1)};
  TRYP(m.root && m.set && (j->stable = mg_new(g->c, bool, part_slots(g))));
  for (ValRef v = 0; v < g->nval; v++) m.root[v] = v;
  for (NodeRef k = 1; k < g->nnode; k++) {
    MgNode *n = mg_node(g, k);
    ValRef base = part_viewed(n);
    if (n->dead) continue;
    part_prune(n);
    for (int i = 0; base && i < n->nout; i++)
      if (n->out[i]) m.root[n->out[i]] = m.root[base];
    if ((n->backward || n->again) && !base) mg_node_each_val(n, part_mark_root, &m);
  }
  uint32_t k = 0;
  for (uint32_t i = 0; i < g->ninput; i++) j->stable[k++] = m.set[g->input[i]];
  for (uint32_t i = 0; i < g->noutput; i++) j->stable[k++] = g->output[i] && m.set[m.root[g->output[i]]];
  for (uint32_t i = 0; i < g->nwb; i++) j->stable[k++] = m.set[g->wb_value[i]];
  return MG_OK;
}

/* ---- whose is what
 * ------------------------------------------------------------------------------------------- */

static bool part_effect(const MgNode *n) { return mg_node_effect(n) || !n->nout; }

static MgRc part_split(Part *p) {
  MgGraph *g = p->g;
  const MgJointSpec *s = &p->j->spec;
  TRYP(p->dep = mg_new(g->c, bool, g->nval + 1));
  TRYP(p->late = mg_new(g->c, bool, g->nnode + 1));
  TRYP(p->save = mg_new(g->c, bool, g->nval + 1));
  for (uint32_t i = s->nprimal; i < g->ninput; i++) p->dep[g->input[i]] = true;
  for (NodeRef k = 1; k < g->nnode; k++) {
    MgNode *n = mg_node(g, k);
    if (n->dead) continue;
    p->late[k] = part_reads(n, p->dep) || (n->backward && part_effect(n));
    for (int i = 0; p->late[k] && i < n->nout; i++) p->dep[n->out[i]] = n->out[i] != 0;
  }
  for (uint32_t i = 0; i < s->nfwd; i++)
    if (g->output[i] && p->dep[g->output[i]])
      return mg_fail(g->c, MG_UNSUP, "partition: forward output %u depends on a tangent", i);
  for (uint32_t i = 0; i < g->nwb; i++)
    if (p->dep[g->wb_value[i]] || g->val[g->wb_input[i]].out >= s->nprimal)
      return mg_fail(g->c, MG_UNSUP, "partition: backward writes to an input");
  return MG_OK;
}

/* ---- what is saved, and how
 * ---------------------------------------------------------------------------------- */

bool part_is_constant(const MgNode *n) {
  for (int i = 0; i < n->narg; i++) {
    if (n->arg[i].tag == MA_val) return false;
    for (uint32_t k = 0; n->arg[i].tag == MA_list && k < n->arg[i].n; k++)
      if (n->arg[i].u.item[k].tag == MA_val) return false;
  }
  return !mg_node_random(n) && n->op->code != TOP_extern && !n->op->mutates && n->nout;
}

/* ---- building the halves
 * ------------------------------------------------------------------------------------- */

/* A graph with g's values and room for as many nodes, none yet. */
static MgRc part_graph(const MgGraph *g, MgGraph *out) {
  TRY(mg_graph_init(out, g->c, g->x));
  out->cap_val = g->nval + 64;
  out->cap_node = g->nnode + 64;
  out->nval = g->nval;
  out->default_dtype = g->default_dtype;
  TRYP(out->val = mg_new(g->c, MgVal, out->cap_val));
  TRYP(out->node = mg_new(g->c, MgNode, out->cap_node));
  memcpy(out->val, g->val, g->nval * sizeof *g->val);
  TRYP(out->out_alias = mg_new(g->c, struct MgOutAlias, g->noutput + g->nval + 1));
  return MG_OK;
}

/* Copies n; its arguments too, as rewriting changes them in place.  A result that the graph has already (an
 * input, where another result of n is computed again) is not linked to n: n gives a
 * value of no use in its place. */
static MgRc part_append(MgGraph *to, const MgNode *n, const bool *done) {
  NodeRef k = mg_graph_node(to, n->op, n->narg, 0);
  TRYP(k);
  MgArg *arg = to->node[k].arg;
  memcpy(arg, n->arg, n->narg * sizeof *arg);
  to->node[k] = *n;
  to->node[k].arg = arg;
  ValRef *out = mg_new(to->c, ValRef, n->nout + 1);
  TRYP(out);
  to->node[k].out = out;
  for (int i = 0; i < n->nout; i++) {
    out[i] = n->out[i];
    if (out[i] && done && done[out[i]]) {
      TRYP(out[i] = mg_graph_val_like(to, out[i]));
      to->val[out[i]].out = (uint32_t)i;
    }
    if (out[i]) to->val[out[i]].def = k;
  }
  return MG_OK;
}

/* A tensor of its own that equals v, in v's strides. */
static MgRc part_clone(MgGraph *g, ValRef v, ValRef *out) {
  MgArg a = mg_arg_val(v);
  TRYP(*out = mg_graph_emit1(g, TOP_clone, &a, 1));
  return MG_OK;
}

/* Output i of g is v, aliasing nothing. */
static MgRc part_output(MgGraph *g, ValRef v, struct MgOutAlias alias) {
  g->out_alias[g->noutput] = alias;
  return mg_graph_output(g, v);
}

static const struct MgOutAlias part_no_alias = {-1, -1, false};

static MgRc part_forward(Part *p) {
  const MgGraph *g = p->g;
  MgGraph *f = &p->j->fwd;
  const MgJointSpec *s = &p->j->spec;
  TRY(part_graph(g, f));
  if (g->early) TRYP(f->early = mg_new(g->c, bool, g->noutput + g->nval + 1)); /* saved values follow */
  for (uint32_t i = 0; i < s->nprimal; i++) TRYP(mg_graph_input(f, g->input[i]));
  for (NodeRef k = 1; k < g->nnode; k++)
    if (!p->late[k] && !g->node[k].dead) TRY(part_append(f, &g->node[k], NULL));
  for (uint32_t i = 0; i < s->nfwd; i++) {
    struct MgOutAlias a = g->out_alias ? g->out_alias[i] : part_no_alias;
    ValRef v = g->output[i];
    if (a.of_output >= (int32_t)s->nfwd) { /* of a gradient: there is none in this graph */
      a = part_no_alias;
      TRY(part_clone(f, v, &v));
    }
    TRY(part_output(f, v, a));
    if (f->early) f->early[i] = g->early[i];
  }
  f->nwb = g->nwb;
  f->wb_input = g->wb_input;
  f->wb_value = mg_new(g->c, ValRef, g->nwb + 1);
  TRYP(f->wb_value);
  memcpy(f->wb_value, g->wb_value, g->nwb * sizeof *g->wb_value);
  return MG_OK;
}

static bool part_dense(const MgGraph *g, ValRef v) {
  const MgVal *t = mg_val(g, v);
  SymRef step = mg_sym(g->x, 1);
  bool used[64] = {false};
  for (int n = 0; n < t->ndim; n++) { /* the dimension that continues what was found so far */
    int at = -1;
    for (int d = 0; d < t->ndim && at < 0; d++)
      if (!used[d] && (mg_sym_is(g->x, t->size[d], 1) || mg_ex_same(t->stride[d], step))) at = d;
    if (at < 0) return false;
    used[at] = true;
    step = mg_sym_mul(g->x, step, t->size[at]);
  }
  return true;
}

/* The primal or output that holds v when backward runs, unchanged unless eager complains too. */
static bool part_owner(const Part *p, ValRef v, MgSaved *out) {
  const MgGraph *g = p->g;
  const bool *stable = p->j->stable;
  bool written = false;
  for (uint32_t i = 0; i < g->nwb; i++) {
    written |= g->wb_input[i] == v;
    if (g->wb_value[i] == v && stable[g->ninput + g->noutput + i])
      return *out = (MgSaved){MG_SAVED_primal, mg_val(g, g->wb_input[i])->out}, true;
  }
  if (!mg_val(g, v)->def && !written && (stable[mg_val(g, v)->out] || !part_dense(g, v)))
    return *out = (MgSaved){MG_SAVED_primal, mg_val(g, v)->out}, true;
  for (uint32_t i = 0; i < p->j->spec.nfwd; i++) {
    const struct MgOutAlias *a = g->out_alias ? &g->out_alias[i] : NULL;
    if (g->output[i] == v && stable[g->ninput + i] && (!a || (a->of_input < 0 && a->of_output < 0)))
      return *out = (MgSaved){MG_SAVED_output, i}, true;
  }
  return false;
}

bool part_lent(const Part *p, ValRef v) {
  MgSaved s;
  return part_owner(p, v, &s);
}

/* Where backward finds v; forward returns it when nobody keeps it. */
static MgRc part_save(Part *p, ValRef v, MgSaved *out) {
  MgGraph *f = &p->j->fwd;
  if (part_owner(p, v, out)) return MG_OK;
  bool own = mg_val(p->g, v)->def != 0; /* is it a tensor that nobody else receives? */
  for (uint32_t i = 0; i < p->j->spec.nfwd; i++) own &= f->output[i] != v;
  for (uint32_t i = 0; i < f->nwb; i++) own &= f->wb_value[i] != v;
  ValRef kept = v;
  if (!own) TRY(part_clone(f, v, &kept));
  *out = (MgSaved){MG_SAVED_intermediate, p->j->nintermediate++};
  f->nhidden++;
  return part_output(f, kept, part_no_alias);
}

typedef struct PartEmit {
  Part *p;
  MgRc rc;
} PartEmit;

static MgRc part_emit(Part *p, NodeRef k);

static void part_emit_arg(ValRef *v, void *arg) {
  PartEmit *e = arg;
  if (e->rc == MG_OK && *v && !e->p->done[*v]) e->rc = part_emit(e->p, mg_val(e->p->g, *v)->def);
}

/* Appends node k to the backward graph, after those that it reads and that are computed again. */
static MgRc part_emit(Part *p, NodeRef k) {
  PartEmit e = {p, MG_OK};
  MgNode *n = mg_node(p->g, k);
  mg_node_each_val(n, part_emit_arg, &e);
  TRY(e.rc);
  TRY(part_append(&p->j->bwd, n, p->done));
  for (int i = 0; i < n->nout; i++) p->done[n->out[i]] = true;
  return MG_OK;
}

/* Gradients: those that would be memory of forward's become tensors of their own. */
static MgRc part_gradients(Part *p) {
  const MgGraph *g = p->g;
  MgGraph *b = &p->j->bwd;
  const MgJointSpec *s = &p->j->spec;
  PartEmit e = {p, MG_OK};
  for (uint32_t i = s->nfwd; i < g->noutput; i++) {
    struct MgOutAlias a = g->out_alias ? g->out_alias[i] : part_no_alias;
    ValRef v = g->output[i];
    bool tangent = a.of_input >= (int32_t)s->nprimal;
    for (uint32_t k = 0; k < g->nwb; k++) /* "the input itself" means what is in it at the end */
      if (!tangent && a.of_input >= 0 && a.same && g->wb_input[k] == v) v = g->wb_value[k];
    part_emit_arg(&v, &e);
    TRY(e.rc);
    if (tangent) a.of_input += (int32_t)p->j->nsaved - (int32_t)s->nprimal;
    else if (a.of_output >= (int32_t)s->nfwd) a.of_output -= (int32_t)s->nfwd;
    else if (a.of_input >= 0 || a.of_output >= 0 || !p->dep[v]) {
      a = part_no_alias;
      TRY(part_clone(b, v, &v));
    }
    TRY(part_output(b, v, a));
  }
  return MG_OK;
}

static MgRc part_backward(Part *p) {
  const MgGraph *g = p->g;
  MgGraph *b = &p->j->bwd;
  TRY(part_graph(g, b));
  TRYP(p->done = mg_new(g->c, bool, g->nval + 1));
  TRYP(p->j->saved = mg_new(g->c, MgSaved, g->nval + 1));
  p->done[0] = true;
  for (ValRef v = 1; v < g->nval; v++) {
    if (!p->save[v]) continue;
    TRY(part_save(p, v, &p->j->saved[p->j->nsaved++]));
    TRYP(mg_graph_input(b, v));
    p->done[v] = true;
    if (p->j->saved[p->j->nsaved - 1].kind == MG_SAVED_intermediate) b->val[v].storage = v;
  }
  for (uint32_t i = p->j->spec.nprimal; i < g->ninput; i++) {
    TRYP(mg_graph_input(b, g->input[i]));
    p->done[g->input[i]] = true;
  }
  for (NodeRef k = 1; k < g->nnode; k++)
    if (p->late[k] && !g->node[k].dead) TRY(part_emit(p, k));
  return part_gradients(p);
}

MgRc mg_partition(MgGraph *g, const MgSimplifyOpts *o, MgJoint *j) {
  Part p = {.g = g, .j = j, .o = o};
  TRY(part_split(&p));
  TRY(part_choose(&p));
  TRY(part_forward(&p));
  TRY(part_backward(&p));
  TRY(mg_dce(&j->fwd));
  TRY(mg_dce(&j->bwd));
  MG_ASSERT(j->fwd.ninput == j->spec.nprimal && j->fwd.noutput == j->spec.nfwd + j->nintermediate,
            "the forward graph has other inputs or outputs than were counted");
  MG_ASSERT(j->bwd.ninput == j->nsaved + (g->ninput - j->spec.nprimal) &&
                j->bwd.noutput == g->noutput - j->spec.nfwd,
            "the backward graph has other inputs or outputs than were counted");
  TRY(mg_graph_verify(&j->fwd, "partition: forward"));
  return mg_graph_verify(&j->bwd, "partition: backward");
}
