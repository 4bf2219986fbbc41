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

static uint64_t pack_round(uint64_t bytes) {
  return (bytes + MG_PACK_ALIGN - 1) & ~(uint64_t)(MG_PACK_ALIGN - 1);
}

/* Places block i of `order`; those before it are placed.  near: room for i pointers. */
static void pack_place(MgPackBlock *const *order, uint32_t i, MgPackBlock **near) {
  MgPackBlock *b = order[i];
  uint64_t best = UINT64_MAX, best_gap = UINT64_MAX, end = 0;
  uint32_t n = 0;
  for (uint32_t k = 0; k < i; k++)
    if (order[k]->first <= b->last && b->first <= order[k]->last) near[n++] = order[k];
  qsort(near, n, sizeof *near, pack_by_offset);
  for (uint32_t k = 0; k < n; k++) {
    uint64_t gap = near[k]->offset > end ? near[k]->offset - end : 0;
    if (gap >= b->bytes && gap < best_gap) best = end, best_gap = gap;
    uint64_t stop = near[k]->offset + pack_round(near[k]->bytes);
    if (stop > end) end = stop;
  }
  b->offset = best == UINT64_MAX ? end : best;
  for (uint32_t k = 0; k < n; k++)
    MG_ASSERT(b->offset + b->bytes <= near[k]->offset || near[k]->offset + near[k]->bytes <= b->offset,
              "two blocks that live at one time share memory");
}

uint64_t mg_pack(MgPackBlock *b, uint32_t n, MgPackBlock **work) {
  uint64_t total = 0;
  uint32_t m = 0;
  for (uint32_t i = 0; i < n; i++) {
    b[i].offset = 0;
    if (b[i].bytes) work[m++] = &b[i];
  }
  qsort(work, m, sizeof *work, pack_by_size);
  for (uint32_t i = 0; i < m; i++) {
    pack_place(work, i, work + n);
    uint64_t stop = work[i]->offset + pack_round(work[i]->bytes);
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

void mg_pack_again(MgPackBlock *b, uint32_t n, MgPackBlock **work, uint64_t *total) {
  if (*total && pack_fits(b, n)) return;
  for (uint32_t i = 0; i < n; i++) {
    bool grown = *total && b[i].bytes && b[i].wanted > b[i].bytes;
    uint64_t more = grown ? b[i].wanted / 8 + MG_PACK_ALIGN : 0;
    b[i].bytes = b[i].wanted + (more < PACK_PAGE ? more : PACK_PAGE);
  }
  *total = mg_pack(b, n, work);
}
