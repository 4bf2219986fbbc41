/* Guards about memory that inputs share.  Two inputs may overlap as they please while the graph only reads
 * them; as soon as it writes to one, what the others read depends on it.
 * In: the recorded graph and its inputs.  Out: one guard that what is written overlaps nothing else, and one
 * for each place in a shared storage. */
#include "record/tensor/input_overlap.h"
#include <stdlib.h>
#include "entry/guard/guard_add.h"
#include "entry/guard/late_draws.h"
#include "entry/guard/overlap.h"
#include "entry/launch/trace.h"
#include "host/torch/tensor_facts.h"
#include "record/core/capture.h"
#include "record/core/recording.h"

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

/* ---- while recording ---- */

void mg_alias_guard_start(MgRec *r, ValRef v) {
  const MgCapture *cap = r->cap;
  for (uint32_t i = 0; r->guards && i < cap->ninput; i++) {
    const MgCapInput *in = &cap->input[i];
    int64_t at;
    if (!in->src || in->scalar || in->array || in->outer ||
        r->g->val[in->val].storage != r->g->val[v].storage)
      continue;
    if (mg_ex_const_int(r->x, r->g->val[in->val].offset, &at))
      mg_guard_add(r->guards, GK_start, in->src, NULL, at);
  }
}

/* ---- at the end of a recording ---- */

typedef struct Aliases {
  MgRec *r;
  Written w;
  MgApart *apart;
  SrcRef *first; /* by storage number: the first input over it */
  PyObject **of; /* borrowed: that input */
  bool *fixed;   /* is that input the same object in every call? */
} Aliases;

/* Drawn arrays are new in each run. */
static bool alias_takes_part(const Aliases *a, const MgCapInput *in) {
  return !in->scalar && !in->outer && in->src && !mg_draw_late(a->r->guards, in->src);
}
static bool alias_is_fixed(const Aliases *a, const MgCapInput *in) {
  return mg_guards_pinned(a->r->guards, in->src);
}
static uint32_t alias_storage(const Aliases *a, const MgCapInput *in) {
  return a->r->g->val[in->val].storage;
}

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
    if (written ? !fixed || any_moves : fixed ? any_both : any_written)
      apart_add(a->apart, in->src, s, written);
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
    else if (!fixed || !a->fixed[s])
      mg_guard_pair(a->r->guards, GK_offset, a->first[s], in->src, mg_facts_distance(a->of[s], in->real));
  }
}

int mg_alias_guards(MgRec *r) {
  Aliases a = {.r = r, .w = {.g = r->g}};
  uint32_t n = r->cap->ninput;
  if (n < 2) return 0;
  bool ok = mg_alias_find_written(&a.w) && (a.apart = apart_new(n)) &&
            (a.first = mg_calloc(a.w.n, sizeof *a.first)) && (a.of = mg_calloc(a.w.n, sizeof *a.of)) &&
            (a.fixed = mg_calloc(a.w.n, sizeof *a.fixed));
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
