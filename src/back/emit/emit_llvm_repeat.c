/* Expressions that a kernel repeats, as functions of its module.
 * A chain of GELUs with its gradient has the same fifteen operations for each GELU, and LLVM compiles each
 * copy in each of the kernel's loops.  Here such a group of operations is a cone: one root, at most two
 * float32 values that go in, and nothing inside that others read.  Cones that are equal but for what goes in
 * are calls of one function; as it works on several vectors at a time, the numbers are the same.
 * In: legalised nests of a kernel that calls its elementary functions.  Out: e->cone, sorted by root.
 * Invariant: only operations on lanes are inside: no loads, indices, sizes or reduced values. */
#include <stdlib.h>
#include <string.h>
#include "back/emit/emit_llvm_priv.h"
#include "base/table.h"
#include "tuning.h"

enum { CONE_NODES = 32, CONE_FRONT = 8 };

typedef struct Cone { /* one that grows from its root towards the leaves */
  ExprRef node[CONE_NODES], front[CONE_FRONT];
  int nnode, nfront, functions;
} Cone;

typedef struct Repeat {
  Em *e;
  MgMap uses;    /* expression -> how many operands of the kernel it is */
  ExprRef *list; /* expressions to look at as roots */
  uint32_t n, cap;
  MgMap shapes; /* shape -> number of cones */
  MgRc rc;
} Repeat;

static uint64_t repeat_key(ExprRef r) { return (uint64_t)r + 2; } /* 0 and 1 are no keys */

static void repeat_push(Repeat *p, ExprRef r) {
  if (p->n == p->cap) {
    uint32_t cap = p->cap * 2 + 64;
    p->list = mg_ctx_grow(p->e->c, p->list, p->cap * sizeof *p->list, cap * sizeof *p->list);
    p->cap = cap;
    if (!p->list) {
      p->rc = MG_NOMEM;
      return;
    }
  }
  p->list[p->n++] = r;
}

/* One more use of r; the first one counts what is below. */
static void repeat_count(Repeat *p, ExprRef r) {
  const MgExpr n = *mg_expr(p->e->x, r);
  uint32_t had = mg_map_get(&p->uses, repeat_key(r));
  if (p->rc || n.op == OP_const) return;
  p->rc = mg_map_put(&p->uses, repeat_key(r), had == MG_MAP_NONE ? 1 : had + 1);
  for (int i = 0; i < n.nsrc && had == MG_MAP_NONE; i++)
    if (n.src[i]) repeat_count(p, n.src[i]);
}

/* May the operation be inside of a cone? */
static bool repeat_inside(const MgExprs *x, ExprRef r) {
  const MgExpr *n = mg_expr(x, r);
  if (n->ty != TY_f32 && n->ty != TY_i1 && n->ty != TY_i32) return false;
  return n->op != OP_load && n->op != OP_red && n->op != OP_idx && n->op != OP_sym && n->op != OP_rand &&
         n->nsrc;
}

/* Is all that reads r inside? */
static bool cone_has_readers(const Repeat *p, const Cone *c, ExprRef r) {
  uint32_t found = 0;
  for (int i = 0; i < c->nnode; i++) {
    const MgExpr *n = mg_expr(p->e->x, c->node[i]);
    for (int j = 0; j < n->nsrc; j++) found += n->src[j] == r;
  }
  return found == mg_map_get(&p->uses, repeat_key(r));
}

/* Takes one operation of the front inside, the latest one first: its readers come after it.  false: no more.
 */
static bool cone_step(const Repeat *p, Cone *c) {
  const MgExprs *x = p->e->x;
  int at = -1;
  for (int i = 0; i < c->nfront; i++) {
    ExprRef r = c->front[i];
    if ((at < 0 || r > c->front[at]) && repeat_inside(x, r) && (!c->nnode || cone_has_readers(p, c, r)))
      at = i;
  }
  if (at < 0 || c->nnode == CONE_NODES || c->nfront + 2 > CONE_FRONT) return false;
  const MgExpr *n = mg_expr(x, c->front[at]);
  c->node[c->nnode++] = c->front[at];
  c->functions += em_is_apart(p->e, n);
  c->front[at] = c->front[--c->nfront];
  for (int i = 0; i < n->nsrc; i++) {
    bool known = mg_expr(x, n->src[i])->op == OP_const;
    for (int j = 0; j < c->nfront; j++) known |= c->front[j] == n->src[i];
    if (!known) c->front[c->nfront++] = n->src[i];
  }
  return true;
}

/* The cone of a root with the fewest values that go in; of those the one with the fewest functions,
 * and then the largest.  false: there is none. */
static bool cone_find(const Repeat *p, ExprRef root, Cone *best) {
  Cone c = {.front = {root}, .nfront = 1};
  bool found = false;
  while (cone_step(p, &c)) {
    bool fits = c.nfront >= 1 && c.nfront <= EMIT_CONE_LEAVES && c.functions;
    for (int i = 0; i < c.nfront; i++) fits = fits && mg_expr(p->e->x, c.front[i])->ty == TY_f32;
    if (!fits) continue;
    if (found && (c.nfront > best->nfront || (c.nfront == best->nfront && c.functions > best->functions)))
      continue;
    *best = c;
    found = true;
  }
  return found && best->nnode >= MG_TUNE_CONE_OPS;
}

static int refs_compare(const void *a, const void *b) {
  ExprRef x = *(const ExprRef *)a, y = *(const ExprRef *)b;
  return x < y ? -1 : x > y;
}

/* The root over leaves "red 0" and "red 1". */
static ExprRef cone_shape(MgExprs *x, Cone *c) {
  ExprRef made[CONE_NODES];
  qsort(c->node, (size_t)c->nnode, sizeof *c->node, refs_compare); /* operands before their readers */
  for (int i = 0; i < c->nnode; i++) {
    const MgExpr n = *mg_expr(x, c->node[i]);
    ExprRef src[3] = {0};
    for (int s = 0; s < n.nsrc; s++) {
      src[s] = n.src[s];
      for (int j = 0; j < i; j++)
        if (c->node[j] == n.src[s]) src[s] = made[j];
      for (int j = 0; j < c->nfront; j++)
        if (c->front[j] == n.src[s]) src[s] = mg_ex_red_of(x, TY_f32, j);
    }
    made[i] = mg_ex_rebuild(x, c->node[i], src);
  }
  return made[c->nnode - 1];
}

/* Leaves in the order in which the operations name them, so that equal cones get equal shapes. */
static void cone_order_leaves(const MgExprs *x, Cone *c) {
  ExprRef leaf[EMIT_CONE_LEAVES];
  int n = 0;
  qsort(c->node, (size_t)c->nnode, sizeof *c->node, refs_compare);
  for (int i = c->nnode - 1; i >= 0; i--) {
    const MgExpr *m = mg_expr(x, c->node[i]);
    for (int s = 0; s < m->nsrc; s++) {
      bool is = false, had = false;
      for (int j = 0; j < c->nfront; j++) is |= c->front[j] == m->src[s];
      for (int j = 0; j < n; j++) had |= leaf[j] == m->src[s];
      if (is && !had) leaf[n++] = m->src[s];
    }
  }
  memcpy(c->front, leaf, (size_t)n * sizeof *leaf);
}

/* Looks at the roots of the list; what goes into a cone, or into an operation without one, comes next. */
static void repeat_search(Repeat *p, EmCone *out, uint32_t *n) {
  MgMap done = {0};
  for (uint32_t at = 0; at < p->n && !p->rc; at++) {
    ExprRef r = p->list[at];
    const MgExpr m = *mg_expr(p->e->x, r);
    Cone c;
    if (mg_map_get(&done, repeat_key(r)) != MG_MAP_NONE || m.op == OP_const || m.op == OP_load) continue;
    p->rc = mg_map_put(&done, repeat_key(r), 1);
    if (m.ty != TY_f32 || !repeat_inside(p->e->x, r) || !cone_find(p, r, &c)) {
      for (int i = 0; i < m.nsrc; i++)
        if (m.src[i]) repeat_push(p, m.src[i]);
      continue;
    }
    cone_order_leaves(p->e->x, &c);
    EmCone *o = &out[(*n)++];
    *o = (EmCone){.root = r, .shape = cone_shape(p->e->x, &c), .nleaf = (uint8_t)c.nfront};
    for (int i = 0; i < c.nfront; i++) {
      o->leaf[i] = c.front[i];
      repeat_push(p, c.front[i]);
    }
    uint32_t had = mg_map_get(&p->shapes, repeat_key(o->shape));
    if (!p->rc) p->rc = mg_map_put(&p->shapes, repeat_key(o->shape), had == MG_MAP_NONE ? 1 : had + 1);
  }
  mg_map_free(&done);
}

/* Keeps cones whose shape occurs often, of the first few such shapes. */
static void repeat_keep(Repeat *p, uint32_t n) {
  Em *e = p->e;
  MgMap kept = {0};
  e->ncone = 0;
  for (uint32_t i = 0; i < n && !p->rc; i++) {
    const EmCone c = e->cone[i];
    if (mg_map_get(&p->shapes, repeat_key(c.shape)) < MG_TUNE_CONE_MANY) continue;
    if (mg_map_get(&kept, repeat_key(c.shape)) == MG_MAP_NONE) {
      if (kept.n == EMIT_MAX_SHAPE) continue;
      p->rc = mg_map_put(&kept, repeat_key(c.shape), 1);
    }
    e->cone[e->ncone++] = c;
  }
  mg_map_free(&kept);
  qsort(e->cone, e->ncone, sizeof *e->cone, refs_compare); /* root is the first field */
}

MgRc em_find_repeats(Em *e) {
  Repeat p = {.e = e};
  e->ncone = 0;
  for (uint32_t i = 0; i < e->k->nloop; i++) {
    const MgLoop *l = &e->own[i];
    const ExprRef part[4] = {l->value, l->body, l->index, l->mask};
    for (int j = 0; j < 4; j++) {
      if (!part[j]) continue;
      repeat_count(&p, part[j]);
      if (!p.rc) repeat_push(&p, part[j]);
    }
  }
  e->cone = p.rc ? NULL : mg_new(e->c, EmCone, p.uses.n + 1);
  if (!p.rc && !e->cone) p.rc = MG_NOMEM;
  uint32_t n = 0;
  if (!p.rc) repeat_search(&p, e->cone, &n);
  if (!p.rc) repeat_keep(&p, n);
  mg_map_free(&p.uses);
  mg_map_free(&p.shapes);
  return p.rc ? p.rc : mg_exprs_ok(e->x);
}

const EmCone *em_cone_at(const Em *e, ExprRef r) {
  return e->ncone ? bsearch(&r, e->cone, e->ncone, sizeof *e->cone, refs_compare) : NULL;
}
