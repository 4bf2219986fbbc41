/* See the header. */
#include "base/interval_pack.h"
#include "base/assert.h"
#include <stdbool.h>
#include <stdlib.h>

enum { PACK_PAGE = 4096 };

static int pack_by_size(const void *a, const void *b) {
  const MgPackBlock *p = *(MgPackBlock *const *)a, *q = *(MgPackBlock *const *)b;
  if (p->bytes != q->bytes) return p->bytes < q->bytes ? 1 : -1;
  return p < q ? -1 : p > q; /* the same order on every run */
}

static int pack_by_offset(const void *a, const void *b) {
  const MgPackBlock *p = *(MgPackBlock *const *)a, *q = *(MgPackBlock *const *)b;
  return p->offset < q->offset ? -1 : p->offset > q->offset;
}

static int pack_by_first(const void *a, const void *b) {
  const MgPackBlock *p = *(MgPackBlock *const *)a, *q = *(MgPackBlock *const *)b;
  if (p->first != q->first) return p->first < q->first ? -1 : 1;
  return p < q ? -1 : p > q;
}

static uint64_t pack_round(uint64_t bytes) {
  return (bytes + MG_PACK_ALIGN - 1) & ~(uint64_t)(MG_PACK_ALIGN - 1);
}

/* The blocks in the order of their first steps, under a tree whose nodes know the last step of any block
 * below that is placed.  So the placed ones that live at one time with a block are found without a look at
 * the others. */
typedef struct PackTree {
  MgPackBlock **order; /* by size: in which blocks are placed */
  MgPackBlock **line;  /* by first step */
  MgPackBlock **near;  /* what pack_find has found */
  uint32_t *rank;      /* by block: where it is in line */
  uint64_t *until;     /* by node, 1 is the root: one more than the last step; 0: none is placed */
  uint32_t nblock, nleaf, nnear;
} PackTree;

/* A power of two. */
static uint32_t pack_leaves(uint32_t n) {
  uint32_t leaves = 1;
  while (leaves < n) leaves *= 2;
  return leaves;
}

size_t mg_pack_room(uint32_t n) {
  size_t pointers = 3 * (size_t)n * sizeof(MgPackBlock *),
         ends = 2 * (size_t)pack_leaves(n) * sizeof(uint64_t);
  return pointers + ends + n * sizeof(uint32_t);
}

static void pack_tree(PackTree *t, MgPackBlock *b, uint32_t n, void *work) {
  t->order = work;
  t->line = t->order + n;
  t->near = t->line + n;
  t->until = (uint64_t *)(t->near + n);
  t->nleaf = pack_leaves(n);
  t->rank = (uint32_t *)(t->until + 2 * (size_t)t->nleaf);
  t->nblock = 0;
  for (uint32_t i = 0; i < n; i++) {
    b[i].offset = 0;
    if (b[i].bytes) t->order[t->nblock] = t->line[t->nblock] = &b[i], t->nblock++;
  }
  qsort(t->order, t->nblock, sizeof *t->order, pack_by_size);
  qsort(t->line, t->nblock, sizeof *t->line, pack_by_first);
  for (uint32_t i = 0; i < t->nblock; i++) t->rank[t->line[i] - b] = i;
  for (uint32_t i = 0; i < 2 * t->nleaf; i++) t->until[i] = 0;
}

/* The placed blocks below a node, `n` of them from `at` on, that live at one time with b. */
static void pack_find(PackTree *t, uint32_t node, uint32_t at, uint32_t n, const MgPackBlock *b) {
  if (t->until[node] <= b->first || t->line[at]->first > b->last) return;
  if (n == 1) {
    t->near[t->nnear++] = t->line[at];
    return;
  }
  pack_find(t, 2 * node, at, n / 2, b);
  if (at + n / 2 < t->nblock) pack_find(t, 2 * node + 1, at + n / 2, n / 2, b);
}

static void pack_placed(PackTree *t, uint32_t rank, const MgPackBlock *b) {
  uint64_t until = (uint64_t)b->last + 1;
  for (uint32_t node = t->nleaf + rank; node && t->until[node] < until; node /= 2) t->until[node] = until;
}

/* Places a block; those before it are placed. */
static void pack_place(PackTree *t, MgPackBlock *b) {
  uint64_t best = UINT64_MAX, best_gap = UINT64_MAX, end = 0;
  MgPackBlock **near = t->near;
  t->nnear = 0;
  pack_find(t, 1, 0, t->nleaf, b);
  qsort(near, t->nnear, sizeof *near, pack_by_offset);
  for (uint32_t k = 0; k < t->nnear; k++) {
    uint64_t gap = near[k]->offset > end ? near[k]->offset - end : 0;
    if (gap >= b->bytes && gap < best_gap) best = end, best_gap = gap;
    uint64_t stop = near[k]->offset + pack_round(near[k]->bytes);
    if (stop > end) end = stop;
  }
  b->offset = best == UINT64_MAX ? end : best;
  for (uint32_t k = 0; k < t->nnear; k++)
    MG_ASSERT(b->offset + b->bytes <= near[k]->offset || near[k]->offset + near[k]->bytes <= b->offset,
              "two blocks that live at one time share memory");
}

uint64_t mg_pack(MgPackBlock *b, uint32_t n, void *work) {
  PackTree t;
  uint64_t total = 0;
  pack_tree(&t, b, n, work);
  for (uint32_t i = 0; i < t.nblock; i++) {
    MgPackBlock *one = t.order[i];
    pack_place(&t, one);
    pack_placed(&t, t.rank[one - b], one);
    uint64_t stop = one->offset + pack_round(one->bytes);
    if (stop > total) total = stop;
  }
  return total;
}

static bool pack_fits(const MgPackBlock *b, uint32_t n) {
  uint64_t wanted = 0, packed = 0;
  for (uint32_t i = 0; i < n; i++) {
    if (b[i].wanted > b[i].bytes) return false;
    wanted += b[i].wanted, packed += b[i].bytes;
  }
  return 2 * wanted >= packed;
}

void mg_pack_again(MgPackBlock *b, uint32_t n, void *work, uint64_t *total) {
  if (*total && pack_fits(b, n)) return;
  for (uint32_t i = 0; i < n; i++) {
    bool grown = *total && b[i].bytes && b[i].wanted > b[i].bytes;
    uint64_t more = grown ? b[i].wanted / 8 + MG_PACK_ALIGN : 0;
    b[i].bytes = b[i].wanted + (more < PACK_PAGE ? more : PACK_PAGE);
  }
  *total = mg_pack(b, n, work);
}
