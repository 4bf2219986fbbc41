/* Guards about memory that inputs share.  Two inputs may overlap as they please while the graph only reads them; as soon as it
 * writes to one, what the others read depends on it.
 * In: the recorded graph and its inputs.  Out: one guard that what is written overlaps nothing else, and one for each place in a shared storage. */
#include "front/alias.h"
#include <stdlib.h>
#include "front/draw.h"
#include "front/facts.h"
#include "front/guard.h"
#include "front/ndheader.h"
#include "front/standin.h"

typedef struct Written {
  MgGraph *g;
  bool *storage;       /* by storage number */
  uint32_t n;
} Written;

/* Which storages the graph writes to; false when out of memory. */
static bool alias_find_written(Written *w) {
  for (uint32_t i = 1; i < w->g->nval; i++)
    if (w->g->val[i].storage >= w->n) w->n = w->g->val[i].storage + 1;
  w->storage = mg_calloc(w->n + 1, sizeof *w->storage);
  if (!w->storage) return false;
  for (NodeRef i = 1; i < w->g->nnode; i++)
    for (MgWritten t = {0}; !mg_node(w->g, i)->dead && mg_node_written(mg_node(w->g, i), &t);)
      w->storage[mg_val(w->g, t.v)->storage] = true;
  return true;
}

bool mg_alias_writes(MgRec *r) {
  Written w = {.g = r->g};
  if (!alias_find_written(&w)) return PyErr_NoMemory(), true;
  bool any = false;
  for (uint32_t i = 0; i < r->cap->ninput; i++) { /* tangents are values of the joint graph only */
    ValRef v = r->cap->input[i].val;
    any |= v < r->g->nval && w.storage[r->g->val[v].storage];
  }
  free(w.storage);
  return any;
}

/* ---- what is kept apart ---- */

void mg_apart_free(MgApart *a) {
  if (!a) return;
  free(a->item);
  free(a->order);
  free(a);
}

static MgApart *apart_new(uint32_t most) {
  MgApart *a = mg_calloc(1, sizeof *a);
  if (a) a->item = mg_calloc(most, sizeof *a->item);
  if (a) a->order = mg_calloc(most, sizeof *a->order);
  if (a && a->item && a->order) return a;
  mg_apart_free(a);
  return NULL;
}

static void apart_add(MgApart *a, SrcRef src, uint32_t group, bool written) {
  a->order[a->n] = a->n;
  a->item[a->n++] = (MgApartItem){.src = src, .group = group, .written = written};
}

/* The bytes of a tensor or an array.  Those of one without elements are its own: it is apart from everything but itself. */
static void apart_extent(PyObject *o, uintptr_t *lo, uintptr_t *hi) {
  if (mg_nd_is(o) ? mg_nd_extent(o, lo, hi) : mg_facts_extent(o, lo, hi)) return;
  *lo = (uintptr_t)o;
  *hi = *lo + 1;
}

static void apart_sort(MgApart *a) {
  for (uint32_t i = 1; i < a->n; i++) {
    uint32_t x = a->order[i], k = i;
    for (; k && a->item[a->order[k - 1]].lo > a->item[x].lo; k--) a->order[k] = a->order[k - 1];
    a->order[k] = x;
  }
}

/* The items that reach furthest, of two different groups. */
typedef struct Reach {
  const MgApartItem *item[2];
} Reach;

static void reach_add(Reach *r, const MgApartItem *x) {
  const MgApartItem *first = r->item[0];
  bool same = first && first->group == x->group;
  if (!first || x->hi > first->hi) {
    if (!same) r->item[1] = first;
    r->item[0] = x;
  } else if (!same && (!r->item[1] || x->hi > r->item[1]->hi)) {
    r->item[1] = x;
  }
}

/* The item of another group that reaches into x. */
static const MgApartItem *reach_into(const Reach *r, const MgApartItem *x) {
  const MgApartItem *y = r->item[0] && r->item[0]->group == x->group ? r->item[1] : r->item[0];
  return y && y->hi > x->lo ? y : NULL;
}

bool mg_apart_holds(MgApart *a, PyObject *const *vals) {
  bool moved = false;
  for (uint32_t i = 0; i < a->n; i++) {
    MgApartItem *x = &a->item[i];
    uintptr_t lo, hi;
    apart_extent(vals[x->src], &lo, &hi);
    moved |= lo != x->lo || hi != x->hi;
    x->lo = lo;
    x->hi = hi;
  }
  if (!moved) return true;
  apart_sort(a);
  Reach any = {{0}}, written = {{0}};
  for (uint32_t i = 0; i < a->n; i++) {
    MgApartItem *x = &a->item[a->order[i]];
    const MgApartItem *y = reach_into(x->written ? &any : &written, x);
    if (y) {
      a->bad[0] = y->src;
      a->bad[1] = x->src;
      x->hi = 0; /* not to be taken for a check that passed */
      return false;
    }
    reach_add(&any, x);
    if (x->written) reach_add(&written, x);
  }
  return true;
}

/* ---- while recording ---- */

void mg_alias_guard_start(MgRec *r, ValRef v) {
  const MgCapture *cap = r->cap;
  for (uint32_t i = 0; r->guards && i < cap->ninput; i++) {
    const MgCapInput *in = &cap->input[i];
    int64_t at;
    if (!in->src || in->scalar || in->array || in->outer || r->g->val[in->val].storage != r->g->val[v].storage) continue;
    if (mg_ex_const_int(r->x, r->g->val[in->val].offset, &at)) mg_guard_add(r->guards, GK_start, in->src, NULL, at);
  }
}

/* ---- at the end of a recording ---- */

typedef struct Aliases {
  MgRec *r;
  Written w;
  MgApart *apart;
  SrcRef *first;      /* by storage number: the first input over it */
  PyObject **of;      /* borrowed: that input */
  bool *fixed;        /* is that input the same object in every call? */
} Aliases;

/* Drawn arrays are new in each run. */
static bool alias_takes_part(const Aliases *a, const MgCapInput *in) {
  return !in->scalar && !in->outer && in->src && !mg_draw_late(a->r->guards, in->src);
}
static bool alias_is_fixed(const Aliases *a, const MgCapInput *in) { return mg_guards_pinned(a->r->guards, in->src); }
static uint32_t alias_storage(const Aliases *a, const MgCapInput *in) { return a->r->g->val[in->val].storage; }

/* Inputs that are the same objects in every call need no guard against each other. */
static void alias_collect(Aliases *a) {
  const MgCapture *cap = a->r->cap;
  bool any_moves = false, any_written = false, any_both = false;
  for (uint32_t i = 0; i < cap->ninput; i++) {
    if (!alias_takes_part(a, &cap->input[i])) continue;
    bool moves = !alias_is_fixed(a, &cap->input[i]), written = a->w.storage[alias_storage(a, &cap->input[i])];
    any_moves |= moves;
    any_written |= written;
    any_both |= moves && written;
  }
  for (uint32_t i = 0; i < cap->ninput; i++) {
    const MgCapInput *in = &cap->input[i];
    if (!alias_takes_part(a, in)) continue;
    uint32_t s = alias_storage(a, in);
    bool fixed = alias_is_fixed(a, in), written = a->w.storage[s];
    if (written ? !fixed || any_moves : fixed ? any_both : any_written) apart_add(a->apart, in->src, s, written);
  }
}

static void alias_offsets(Aliases *a) {
  const MgCapture *cap = a->r->cap;
  for (uint32_t i = 0; i < cap->ninput; i++) {
    const MgCapInput *in = &cap->input[i];
    if (!alias_takes_part(a, in)) continue;
    uint32_t s = alias_storage(a, in);
    bool fixed = alias_is_fixed(a, in);
    if (!a->w.storage[s]) continue;
    if (!a->first[s]) a->first[s] = in->src, a->of[s] = in->real, a->fixed[s] = fixed;
    else if (!fixed || !a->fixed[s]) mg_guard_pair(a->r->guards, GK_offset, a->first[s], in->src, mg_facts_distance(a->of[s], in->real));
  }
}

int mg_alias_guards(MgRec *r) {
  Aliases a = {.r = r, .w = {.g = r->g}};
  uint32_t n = r->cap->ninput;
  if (n < 2) return 0;
  bool ok = alias_find_written(&a.w) && (a.apart = apart_new(n)) && (a.first = mg_calloc(a.w.n, sizeof *a.first)) &&
            (a.of = mg_calloc(a.w.n, sizeof *a.of)) && (a.fixed = mg_calloc(a.w.n, sizeof *a.fixed));
  if (ok) {
    alias_collect(&a);
    alias_offsets(&a);
    if (a.apart->n > 1) mg_guard_apart(r->guards, a.apart);
    else mg_apart_free(a.apart);
  } else {
    mg_apart_free(a.apart);
    PyErr_NoMemory();
  }
  free(a.w.storage);
  free(a.first);
  free(a.of);
  free(a.fixed);
  return ok ? 0 : -1;
}
