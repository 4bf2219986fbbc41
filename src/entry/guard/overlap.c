/* See the header. */
#include "entry/guard/overlap.h"
#include "host/torch/array_header.h"
#include "host/torch/tensor_facts.h"

/* ---- what is kept apart ---- */

void mg_apart_free(MgApart *a) {
  if (!a) return;
  free(a->item);
  free(a->order);
  free(a);
}

/* The bytes of a tensor or an array.  Those of one without elements are its own: it is apart
 * from everything but itself. */
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
