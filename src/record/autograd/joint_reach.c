/* What depends on what in a recorded backward pass: gradients on tangents, results on each other.
 * In: a joint graph and its results.  Out: bit sets in MgJointRec, one row a gradient or a result.
 * Sets are kept by memory, so that writes through views count. */
#include "record/autograd/joint_reach.h"
#include <string.h>
#include "base/bits.h"
#include "entry/launch/trace.h"
#include "record/core/capture.h"
#include "record/core/recording.h"

/* ---- which gradients need which tangents ---- */

typedef struct Reach { /* sets of tangents, or of results */
  const MgGraph *g;
  uint64_t *of; /* by memory */
  uint64_t *now;
  uint32_t words;
} Reach;

static bool reach_init(Reach *s, const MgGraph *g, uint32_t n) {
  uint32_t words = mg_bits_words(n);
  *s =
      (Reach){g, mg_new(g->c, uint64_t, (size_t)words * (g->nval + 1)), mg_new(g->c, uint64_t, words), words};
  return s->of && s->now;
}

static uint64_t *reach_of(const Reach *s, ValRef v) {
  return s->of + (size_t)s->words * mg_val(s->g, v)->storage;
}

static void reach_see(ValRef *v, void *arg) {
  Reach *s = arg;
  if (*v) mg_bits_join(s->now, reach_of(s, *v), s->words);
}

/* By memory: the tracked results that are computed from it. */
static void reach_forward(ValRef *v, void *arg) {
  Reach *s = arg;
  if (*v && mg_val(s->g, *v)->requires_grad) mg_bits_join(reach_of(s, *v), s->now, s->words);
}

/* The results that a node's results lead to, in s->now; false: none. */
static bool reach_results(Reach *s, const MgNode *node) {
  memset(s->now, 0, s->words * sizeof *s->now);
  for (int i = 0; i < node->nout; i++)
    if (node->out[i] && mg_val(s->g, node->out[i])->requires_grad)
      mg_bits_join(s->now, reach_of(s, node->out[i]), s->words);
  return mg_bits_any(s->now, s->words);
}

/* Does the node add to a gradient what depends on no tangent?  That is the gradient of a result in full:
 * zeros, as of copysign's second argument, or what a backward function of the program made up. */
static bool reach_adds(const Reach *s, const MgNode *node) {
  if (node->op->code != TOP_add_Tensor && node->op->code != TOP_add__Tensor) return false;
  const MgArg *a = mg_node_arg(node, "self"), *b = mg_node_arg(node, "other");
  if (a->tag != MA_val || b->tag != MA_val) return false;
  return mg_bits_any(reach_of(s, a->u.val), s->words) != mg_bits_any(reach_of(s, b->u.val), s->words);
}

typedef struct ReachAdds { /* a node that is followed */
  Reach s;
  const bool *adds;
  bool yes;
} ReachAdds;

static void reach_see_adds(ValRef *v, void *arg) {
  ReachAdds *a = arg;
  reach_see(v, &a->s);
  a->yes |= *v && a->adds[mg_val(a->s.g, *v)->storage];
}

/* Adds to the sets of these gradients the results that are computed from their inputs. */
static int reach_by_results(MgJointBuild *b, const bool *constant) {
  MgJointRec *j = b->j;
  Reach s;
  if (!reach_init(&s, b->g, j->nthrough)) return PyErr_NoMemory(), -1;
  for (uint32_t i = 0; i < j->nthrough; i++) mg_bits_add(reach_of(&s, j->through[i]), i);
  for (NodeRef n = j->backward; --n;) {
    MgNode *node = mg_node(b->g, n);
    if (reach_results(&s, node)) mg_node_each_val(node, reach_forward, &s);
  }
  for (uint32_t i = 0; i < j->ndiff; i++)
    if (constant[i])
      mg_bits_join(j->reach + (size_t)s.words * i, reach_of(&s, b->r->cap->input[j->diff[i]].val), s.words);
  return 0;
}

/* Followed by memory, so that writes through views count. */
int mg_joint_find_reach(MgJointBuild *b) {
  MgJointRec *j = b->j;
  Reach s;
  bool *adds = mg_new(b->g->c, bool, b->g->nval + 1); /* by memory: see reach_adds */
  bool *constant = mg_new(b->g->c, bool, j->ndiff + 1), some = false;
  if (!reach_init(&s, b->g, j->nthrough) || !adds || !constant ||
      !(j->reach = mg_new(b->g->c, uint64_t, (size_t)s.words * (j->ndiff + 1))))
    return PyErr_NoMemory(), -1;
  for (uint32_t i = 0; i < j->nthrough; i++) mg_bits_add(reach_of(&s, j->tangent[i]), i);
  for (NodeRef n = j->backward; n < b->g->nnode; n++) {
    MgNode *node = mg_node(b->g, n);
    ReachAdds now = {s, adds, reach_adds(&s, node)};
    memset(s.now, 0, s.words * sizeof *s.now);
    mg_node_each_val(node, reach_see_adds, &now);
    for (int i = 0; i < node->nout; i++) {
      if (!node->out[i]) continue;
      mg_bits_join(reach_of(&s, node->out[i]), s.now, s.words);
      adds[mg_val(b->g, node->out[i])->storage] |= now.yes;
    }
  }
  for (uint32_t i = 0; i < j->ndiff; i++) {
    uint64_t *set = j->reach + (size_t)s.words * i;
    if (j->grad[i]) mg_bits_join(set, reach_of(&s, j->grad[i]), s.words);
    constant[i] = !mg_bits_any(set, s.words) || adds[mg_val(b->g, j->grad[i])->storage];
    some |= constant[i];
  }
  if (some && j->nthrough > 1 && b->r->cap->function) {
    b->why = "a backward function gives what does not depend on its argument";
    return 1;
  }
  if (some && reach_by_results(b, constant)) return -1;
  for (uint32_t i = 0; i < j->ndiff; i++) {
    uint64_t *set = j->reach + (size_t)s.words * i;
    if (!mg_bits_any(set, s.words))
      mg_bits_fill(set, j->nthrough); /* what a Function of the program computed */
  }
  return 0;
}

int mg_joint_depends(const MgJointBuild *b, const ValRef *out) {
  const MgJointRec *j = b->j;
  Reach s;
  if (!reach_init(&s, b->g, j->nres + j->nthrough)) return PyErr_NoMemory(), -1;
  uint32_t *made =
      mg_new(b->g->c, uint32_t, b->nval + 1); /* by value: 1 + its bit; those of `through` come first */
  uint64_t *self = mg_new(b->g->c, uint64_t, s.words);
  if (!made || !self) return PyErr_NoMemory(), -1;
  for (uint32_t i = 0; i < j->nres; i++)
    if (j->res[i].how == RES_view) made[out[i]] = j->nthrough + i + 1;
  for (uint32_t i = 0; i < j->nthrough; i++) made[j->through[i]] = i + 1;
  for (NodeRef n = 1; n < j->backward; n++) {
    MgNode *node = mg_node(b->g, n);
    memset(s.now, 0, s.words * sizeof *s.now);
    mg_node_each_val(node, reach_see, &s);
    for (int o = 0; o < node->nout; o++) {
      ValRef v = node->out[o];
      if (!v || !mg_val(b->g, v)->requires_grad) continue;
      mg_bits_join(reach_of(&s, v), s.now, s.words);
      if (!made[v]) continue;
      memset(self, 0, s.words * sizeof *self);
      mg_bits_add(self, made[v] - 1);
      if (made[v] <= j->nthrough && mg_bits_any(s.now, s.words) && !mg_bits_same(s.now, self, s.words))
        return 1;
      mg_bits_add(reach_of(&s, v), made[v] - 1);
    }
  }
  return 0;
}

typedef struct Links {   /* being found */
  Reach s;               /* results that a value is computed from, not by way of a third */
  uint32_t *made;        /* by value: 1 + its number among `through` */
  uint64_t *target;      /* results that others are computed from */
  uint32_t *port, nport; /* results, oldest first */
} Links;

/* A node's results: what is a result of the segment stands for what it was computed from. */
static void links_node(const MgJointBuild *b, Links *l, MgNode *node) {
  Reach *s = &l->s;
  memset(s->now, 0, s->words * sizeof *s->now);
  mg_node_each_val(node, reach_see, s);
  for (int o = 0; o < node->nout; o++) {
    ValRef v = node->out[o];
    if (!v || !mg_val(b->g, v)->requires_grad) continue;
    uint64_t *of = reach_of(s, v);
    mg_bits_join(of, s->now, s->words);
    if (!l->made[v]) continue;
    uint32_t i = l->made[v] - 1;
    memcpy(b->j->link + (size_t)s->words * i, of, s->words * sizeof *of);
    mg_bits_join(l->target, of, s->words);
    memset(of, 0, s->words * sizeof *of);
    mg_bits_add(of, i);
    l->port[l->nport++] = i;
  }
}

int mg_joint_find_links(MgJointBuild *b) {
  MgJointRec *j = b->j;
  Links l = {.nport = 0};
  if (j->nthrough < 2) return 0;
  if (!reach_init(&l.s, b->g, j->nthrough)) return PyErr_NoMemory(), -1;
  l.made = mg_new(b->g->c, uint32_t, b->nval + 1);
  l.target = mg_new(b->g->c, uint64_t, l.s.words);
  l.port = mg_new(b->g->c, uint32_t, j->nthrough + 1);
  j->link = mg_new(b->g->c, uint64_t, (size_t)l.s.words * j->nthrough);
  if (!l.made || !l.target || !l.port || !j->link) return PyErr_NoMemory(), -1;
  for (uint32_t i = 0; i < j->nthrough; i++) l.made[j->through[i]] = i + 1;
  for (NodeRef n = 1; n < j->backward; n++) links_node(b, &l, mg_node(b->g, n));
  j->port = l.port;
  for (uint32_t k = 0; k < l.nport; k++) {
    uint32_t i = l.port[k];
    if (mg_bits_has(l.target, i) || mg_bits_any(j->link + (size_t)l.s.words * i, l.s.words))
      j->port[j->nport++] = i;
  }
  if (!j->nport) j->link = NULL;
  return 0;
}

/* ---- which results can be differentiated in passes of their own ---- */

/* These have no saved tensors in torch's derivatives.yaml: their nodes in the gradient graph have no
 * `_raw_saved_` attributes. */
bool mg_joint_saves(const MgCapture *cap, NodeRef def) {
  const MgNode *n = mg_node(cap->rec->g, def);
  if (mg_function_of(cap->function, def)) return true; /* what its forward calls is not what it saves */
  if (n->op->is_view) return false;
  switch (n->op->code) {
  case TOP_add_Tensor:
  case TOP_sub_Tensor:
  case TOP_add_Scalar:
  case TOP_sub_Scalar:
  case TOP_rsub_Scalar:
  case TOP_neg:
  case TOP_clone:
  case TOP__to_copy:
  case TOP_sum:
  case TOP_sum_dim_IntList:
  case TOP_mean:
  case TOP_mean_dim:
  case TOP_cumsum:
  case TOP_flip:
  case TOP_roll:
  case TOP_cat:
  case TOP_stack:
  case TOP_repeat:
  case TOP_constant_pad_nd:
  case TOP_tril:
  case TOP_triu:
  case TOP_round:
  case TOP_floor:
  case TOP_ceil:
  case TOP_trunc:
  case TOP_sign: return false;
  default: return true;
  }
}

/* What a node frees is of all results that it leads to.  last: the set that was noted before, as most
 * neighbours have the same. */
static void mates_note(const Reach *s, uint64_t *mate, uint64_t *last) {
  if (mg_bits_same(s->now, last, s->words)) return;
  memcpy(last, s->now, s->words * sizeof *last);
  for (uint32_t w = 0; w < s->words; w++)
    for (uint64_t bits = s->now[w]; bits; bits &= bits - 1)
      mg_bits_join(mate + (size_t)s->words * (64 * w + (uint32_t)__builtin_ctzll(bits)), s->now, s->words);
}

int mg_joint_find_mates(MgJointBuild *b) {
  MgJointRec *j = b->j;
  Reach s;
  if (j->nthrough < 2) return 0;
  if (!reach_init(&s, b->g, j->nthrough)) return PyErr_NoMemory(), -1;
  uint64_t *mate = mg_new(b->g->c, uint64_t, (size_t)s.words * j->nthrough);
  uint64_t *all = mg_new(b->g->c, uint64_t, s.words), *last = mg_new(b->g->c, uint64_t, s.words);
  if (!mate || !all || !last) return PyErr_NoMemory(), -1;
  mg_bits_fill(all, j->nthrough);
  for (uint32_t i = 0; i < j->nthrough; i++) mg_bits_add(reach_of(&s, j->through[i]), i);
  for (NodeRef n = j->backward; --n;) {
    MgNode *node = mg_node(b->g, n);
    if (!reach_results(&s, node)) continue;
    if (mg_joint_saves(b->r->cap, n)) mates_note(&s, mate, last);
    mg_node_each_val(node, reach_forward, &s);
  }
  for (uint32_t i = 0; i < j->nthrough; i++)
    if (!mg_bits_same(mate + (size_t)s.words * i, all, s.words)) j->mate = mate;
  return 0;
}
