/* Packs intermediates into one arena.
 * In: the final order of steps and what each reads and writes.  Out: a byte offset per buffer, 64-byte aligned; two
 * buffers share bytes only when one is dead before the other is born, or when a kernel overwrites its dying input
 * element by element (in-place reuse).
 * Greedy best fit by size: largest buffers first, each into the smallest gap between the already placed ones that are
 * alive at the same time. */
#include <stdlib.h>
#include <string.h>
#include "back/back.h"

enum { MP_ALIGN = 64 };

typedef struct MpItem { /* something that needs bytes during steps [first, last] */
  uint64_t bytes, offset;
  uint32_t first, last;
  uint32_t buf;         /* buffer, or 0 for scratch */
  uint32_t step;        /* scratch: of this step */
  bool continued;       /* in place: another item takes its memory over */
  uint32_t after;       /* in place: item + 1 whose memory is continued; that item's last step is our first */
} MpItem;

typedef struct MpState {
  MgSched *s;
  const MgFused *f;
  MpItem *item;
  uint32_t n;
  uint32_t *of_buf;     /* item + 1 of a buffer */
} MpState;

/* ---- live ranges ---- */

static void mp_touch(MpState *m, BufRef buf, uint32_t step) {
  uint32_t i = m->of_buf[buf];
  if (!i) return;
  MpItem *t = &m->item[i - 1];
  if (t->first > step) t->first = step;
  if (t->last == UINT32_MAX || t->last < step) t->last = step;
}

static void mp_live_ranges(MpState *m) {
  for (uint32_t i = 0; i < m->f->nstep; i++) {
    const MgStepIR *t = &m->f->step[i];
    if (t->kind == MS_kernel) {
      for (uint32_t k = 0; k < t->u.kernel->nbuf; k++) mp_touch(m, t->u.kernel->buf[k], i);
    } else {
      for (uint32_t k = 0; k < t->u.ext->nin; k++) mp_touch(m, t->u.ext->in[k].buf, i);
      for (uint32_t k = 0; k < t->u.ext->nout; k++) mp_touch(m, t->u.ext->out[k].buf, i);
    }
  }
}

static MgRc mp_items(MpState *m) {
  MgSched *s = m->s;
  m->item = mg_new(s->c, MpItem, s->nbuf + m->f->nstep + 1);
  m->of_buf = mg_new(s->c, uint32_t, s->nbuf + 1);
  TRYP(m->item && m->of_buf);
  for (uint32_t b = 1; b < s->nbuf; b++) {
    const MgBuf *f = &s->buf[b];
    int64_t n;
    if (f->kind != MB_temp && f->kind != MB_error) continue;
    if (!mg_ex_const_int(s->x, f->nelem, &n)) return mg_fail(s->c, MG_UNSUP, "memory plan: size of buffer %u is not constant", b);
    uint64_t bytes = (uint64_t)(n > 0 ? n : 0) * (uint64_t)mg_dtype_size(f->dtype);
    /* Error cells are zeroed at the start of a run and looked at after its end. */
    m->item[m->n] = (MpItem){.bytes = bytes, .buf = b, .first = UINT32_MAX, .last = UINT32_MAX};
    if (f->kind == MB_error) m->item[m->n].first = 0, m->item[m->n].last = m->f->nstep;
    m->of_buf[b] = ++m->n;
  }
  mp_live_ranges(m);
  for (uint32_t i = 0; i < m->f->nstep; i++)
    if (m->f->step[i].kind == MS_extern && m->f->step[i].scratch)
      m->item[m->n++] = (MpItem){.bytes = m->f->step[i].scratch, .first = i, .last = i, .step = i};
  return MG_OK;
}

/* ---- in-place reuse ---- */

typedef struct MpLoads { /* does every load of `buf` below an expression have this index? */
  const MgExprs *x;
  BufRef buf;
  ExprRef index;
  bool other;            /* a load with another index was found */
  ExprRef seen[256];     /* visited nodes (a small set is enough: larger bodies are refused) */
  uint32_t nseen;
} MpLoads;

static void mp_scan(MpLoads *l, ExprRef e) {
  if (!e || l->other) return;
  for (uint32_t i = 0; i < l->nseen; i++)
    if (l->seen[i] == e) return;
  if (l->nseen == sizeof l->seen / sizeof *l->seen) {
    l->other = true;
    return;
  }
  l->seen[l->nseen++] = e;
  const MgExpr *n = mg_expr(l->x, e);
  if (n->op == OP_load && n->u.i == (int64_t)l->buf && n->src[0] != l->index) l->other = true;
  for (int i = 0; i < n->nsrc; i++) mp_scan(l, n->src[i]);
}

/* May `out` take over the memory of `in`, which dies in kernel k?  Only when one pointwise nest stores out and all
 * loads of `in` in the kernel are of the very element being stored. */
static bool mp_in_place(const MpState *m, const MgKernel *k, BufRef in, BufRef out) {
  const MgSched *s = m->s;
  const MgLoop *store = NULL;
  if (mg_dtype_size(s->buf[in].dtype) != mg_dtype_size(s->buf[out].dtype)) return false;
  for (uint32_t i = 0; i < k->nloop; i++) {
    if (k->loop[i]->buf == in) return false;
    if (k->loop[i]->buf != out) continue;
    if (store || k->loop[i]->kind != ML_point || k->loop[i]->mode != ST_set || k->loop[i]->mask) return false;
    store = k->loop[i];
  }
  if (!store) return false;
  for (uint32_t i = 0; i < k->nloop; i++) {
    const MgLoop *t = k->loop[i];
    /* Another nest numbers its points differently, so the same expression is not the same element there. */
    MpLoads l = {.x = s->x, .buf = in, .index = t == store ? store->index : 0};
    mp_scan(&l, t->body);
    mp_scan(&l, t->value);
    mp_scan(&l, t->index);
    mp_scan(&l, t->mask);
    if (l.other) return false;
  }
  return true;
}

/* Lets outputs of kernels continue the memory of inputs that die there. */
static void mp_find_in_place(MpState *m) {
  for (uint32_t i = 0; i < m->f->nstep; i++) {
    if (m->f->step[i].kind != MS_kernel) continue;
    const MgKernel *k = m->f->step[i].u.kernel;
    for (uint32_t a = 0; a < k->nbuf; a++) {
      uint32_t in = m->of_buf[k->buf[a]];
      if (!in || m->item[in - 1].last != i || m->item[in - 1].first == i || !m->item[in - 1].bytes ||
          m->item[in - 1].continued)
        continue;
      for (uint32_t b = 0; b < k->nbuf; b++) {
        uint32_t out = m->of_buf[k->buf[b]];
        if (!out || m->item[out - 1].first != i || m->item[out - 1].after || m->item[out - 1].bytes != m->item[in - 1].bytes)
          continue;
        if (!mp_in_place(m, k, k->buf[a], k->buf[b])) continue;
        m->item[out - 1].after = in;
        m->item[in - 1].continued = true;
        break;
      }
    }
  }
}

/* ---- placement ---- */

/* Chains of in-place items are placed as one block that lives from the first to the last. */
typedef struct MpBlock {
  uint64_t bytes, offset;
  uint32_t first, last;
  uint32_t id;
} MpBlock;

static int mp_by_size(const void *a, const void *b) {
  const MpBlock *p = a, *q = b;
  if (p->bytes != q->bytes) return p->bytes < q->bytes ? 1 : -1;
  return p->id < q->id ? -1 : 1; /* the same order on every run */
}

static int mp_by_offset(const void *a, const void *b) {
  const MpBlock *const *p = a, *const *q = b;
  return (*p)->offset < (*q)->offset ? -1 : (*p)->offset > (*q)->offset;
}

/* Places block i of n; blocks before it are placed.  near: room for n pointers. */
static void mp_place(MpBlock *b, uint32_t i, MpBlock **near) {
  uint32_t n = 0;
  uint64_t best = UINT64_MAX, best_gap = UINT64_MAX, end = 0;
  for (uint32_t k = 0; k < i; k++)
    if (b[k].bytes && b[k].first <= b[i].last && b[i].first <= b[k].last) near[n++] = &b[k];
  qsort(near, n, sizeof *near, mp_by_offset);
  for (uint32_t k = 0; k < n; k++) {
    uint64_t gap = near[k]->offset > end ? near[k]->offset - end : 0;
    if (gap >= b[i].bytes && gap < best_gap) best = end, best_gap = gap;
    uint64_t stop = near[k]->offset + near[k]->bytes;
    if (stop > end) end = stop;
  }
  b[i].offset = best == UINT64_MAX ? end : best;
}

static MgRc mp_pack(MpState *m, uint64_t *total) {
  MpBlock *b = mg_new(m->s->c, MpBlock, m->n + 1), **near = mg_new(m->s->c, MpBlock *, m->n + 1);
  uint32_t *block = mg_new(m->s->c, uint32_t, m->n + 1), n = 0;
  TRYP(b && near && block);
  for (uint32_t i = 0; i < m->n; i++) { /* the block of an item: its own, or that of the item it continues */
    uint32_t head = i;
    while (m->item[head].after) head = m->item[head].after - 1;
    block[i] = head;
  }
  for (uint32_t i = 0; i < m->n; i++) b[i] = (MpBlock){.first = UINT32_MAX, .id = i};
  for (uint32_t i = 0; i < m->n; i++) {
    MpBlock *t = &b[block[i]];
    const MpItem *it = &m->item[i];
    if (it->first == UINT32_MAX) continue; /* never used */
    uint64_t bytes = (it->bytes + MP_ALIGN - 1) & ~(uint64_t)(MP_ALIGN - 1);
    if (t->bytes < bytes) t->bytes = bytes;
    if (t->first > it->first) t->first = it->first;
    if (t->last < it->last) t->last = it->last;
  }
  qsort(b, m->n, sizeof *b, mp_by_size);
  while (n < m->n && b[n].bytes) n++;
  for (uint32_t i = 0; i < n; i++) {
    mp_place(b, i, near);
    if (b[i].offset + b[i].bytes > *total) *total = b[i].offset + b[i].bytes;
  }
  uint64_t *at = mg_new(m->s->c, uint64_t, m->n + 1);
  TRYP(at);
  for (uint32_t i = 0; i < m->n; i++) at[b[i].id] = b[i].offset;
  for (uint32_t i = 0; i < m->n; i++) m->item[i].offset = at[block[i]];
  return MG_OK;
}

MgRc mg_memplan(MgSched *s, const MgFused *f, MgMemPlan *out) {
  MpState m = {.s = s, .f = f};
  memset(out, 0, sizeof *out);
  out->offset = mg_new(s->c, uint64_t, s->nbuf + 1);
  out->scratch = mg_new(s->c, uint64_t, f->nstep + 1);
  TRYP(out->offset && out->scratch);
  memset(out->offset, 0xff, sizeof *out->offset * (s->nbuf + 1));
  TRY(mp_items(&m));
  mp_find_in_place(&m);
  TRY(mp_pack(&m, &out->bytes));
  for (uint32_t i = 0; i < m.n; i++) {
    if (m.item[i].buf) out->offset[m.item[i].buf] = m.item[i].offset;
    else out->scratch[m.item[i].step] = m.item[i].offset;
  }
  return MG_OK;
}
