/* Packs intermediates into one arena.
 * In: the final order of steps and what each reads and writes.  Out: blocks of memory with lifetimes and
 * which block a
 * buffer is; two buffers are one block only when a kernel overwrites its dying input element by element
 * (in-place reuse).  With constant sizes the blocks are placed here (base/interval_pack), else by the plan
 * when it knows the sizes. */
#include <stdlib.h>
#include <string.h>
#include "back/kernel/back.h"
#include "base/assert.h"
#include "base/interval_pack.h"

typedef struct MpItem { /* something that needs bytes during steps [first, last] */
  SymRef bytes;
  uint32_t first, last;
  uint32_t buf;   /* buffer, or 0 for scratch */
  uint32_t step;  /* scratch: of this step */
  bool continued; /* in place: another item takes its memory over */
  uint32_t after; /* in place: item + 1 whose memory is continued; that item's last step is our first */
} MpItem;

typedef struct MpState {
  MgSched *s;
  const MgFused *f;
  MpItem *item;
  uint32_t n;
  uint32_t *of_buf;      /* item + 1 of a buffer */
  const MgExtern **view; /* the call that made a buffer as a view of its arguments, or NULL */
} MpState;

/* ---- live ranges ---- */

static void mp_touch(MpState *m, BufRef buf, uint32_t step) {
  const MgExtern *e = m->view[buf];
  for (uint32_t k = 0; e && k < e->nin; k++)
    mp_touch(m, e->in[k].buf, step); /* what is seen through a view lives on */
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
      for (uint32_t k = 0; k < t->u.ext->nout; k++) {
        BufRef b = t->u.ext->out[k].buf;
        mp_touch(m, b, i);
        if (b && mg_node(m->s->g, t->u.ext->node)->op->is_view) m->view[b] = t->u.ext;
      }
    }
  }
  for (uint32_t i = 0; i < m->f->nstep; i++) {
    const MgStepIR *t = &m->f->step[i];
    if (!t->beside) continue;
    for (uint32_t k = 0; k < t->u.ext->nin; k++) mp_touch(m, t->u.ext->in[k].buf, t->join);
    for (uint32_t k = 0; k < t->u.ext->nout; k++) mp_touch(m, t->u.ext->out[k].buf, t->join);
  }
  for (uint32_t i = 0; i < m->s->nout; i++)
    mp_touch(m, m->s->out[i].buf, m->f->nstep); /* copied at the end of a run */
}

static MgRc mp_items(MpState *m) {
  MgSched *s = m->s;
  m->item = mg_new(s->c, MpItem, s->nbuf + m->f->nstep + 1);
  m->of_buf = mg_new(s->c, uint32_t, s->nbuf + 1);
  m->view = mg_new(s->c, const MgExtern *, s->nbuf + 1);
  TRYP(m->item && m->of_buf && m->view);
  for (uint32_t b = 1; b < s->nbuf; b++) {
    const MgBuf *f = &s->buf[b];
    if (f->kind != MB_temp && f->kind != MB_error) continue;
    SymRef bytes = mg_sym_mul(s->x, f->nelem, mg_sym(s->x, mg_dtype_size(f->dtype)));
    TRYP(bytes);
    /* Error cells are zeroed at the start of a run and looked at after its end. */
    m->item[m->n] = (MpItem){.bytes = bytes, .buf = b, .first = UINT32_MAX, .last = UINT32_MAX};
    if (f->kind == MB_error) m->item[m->n].first = 0, m->item[m->n].last = m->f->nstep;
    m->of_buf[b] = ++m->n;
  }
  mp_live_ranges(m);
  for (uint32_t i = 0; i < m->f->nstep; i++)
    if (m->f->step[i].kind == MS_extern && (m->f->step[i].scratch || m->f->step[i].sized))
      m->item[m->n++] = (MpItem){.bytes = mg_sym(s->x, (int64_t)m->f->step[i].scratch),
                                 .first = i,
                                 .last = m->f->step[i].beside ? m->f->step[i].join : i,
                                 .step = i};
  return MG_OK;
}

/* ---- in-place reuse ---- */

typedef struct MpLoads { /* does every load of `buf` below an expression have this index? */
  const MgExprs *x;
  BufRef buf;
  ExprRef index;
  bool other;        /* a load with another index was found */
  ExprRef seen[256]; /* visited nodes (a small set is enough: larger bodies are refused) */
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

/* May `out` take over the memory of `in`, which dies in kernel k?  Only when one pointwise nest stores out
 * and all loads of `in` in the kernel are of the very element being stored. */
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
      if (!in || m->item[in - 1].last != i || m->item[in - 1].first == i || m->item[in - 1].continued)
        continue;
      for (uint32_t b = 0; b < k->nbuf; b++) {
        uint32_t out = m->of_buf[k->buf[b]];
        if (!out || m->item[out - 1].first != i || m->item[out - 1].after ||
            m->item[out - 1].bytes != m->item[in - 1].bytes) /* also as symbols */
          continue;
        if (!mp_in_place(m, k, k->buf[a], k->buf[b])) continue;
        m->item[out - 1].after = in;
        m->item[in - 1].continued = true;
        break;
      }
    }
  }
}

/* ---- blocks ---- */

/* Chains of in-place items are one block, alive from the birth of the first to the death of the last. */
static MgRc mp_blocks(MpState *m, MgMemPlan *out) {
  MgSched *s = m->s;
  uint32_t *of_item = mg_new(s->c, uint32_t, m->n + 1); /* block + 1 of the head of a chain */
  out->block = mg_new(s->c, MgMemBlock, m->n + 1);
  TRYP(of_item && out->block);
  for (uint32_t i = 0; i < m->n; i++) {
    const MpItem *it = &m->item[i];
    if (it->first == UINT32_MAX) continue; /* never used */
    uint32_t head = i;
    while (m->item[head].after) head = m->item[head].after - 1;
    if (!of_item[head]) {
      out->block[out->nblock] = (MgMemBlock){.bytes = it->bytes, .first = it->first, .last = it->last};
      of_item[head] = ++out->nblock;
    }
    MgMemBlock *b = &out->block[of_item[head] - 1];
    if (b->first > it->first) b->first = it->first;
    if (b->last < it->last) b->last = it->last;
    MG_ASSERT(b->first <= b->last && b->last <= m->f->nstep,
              "a block lives outside of the run"); /* nstep: until its end */
    *(it->buf ? &out->of_buf[it->buf] : &out->of_step[it->step]) = of_item[head];
  }
  return MG_OK;
}

/* Places the blocks when all sizes are known now. */
static MgRc mp_place(MpState *m, MgMemPlan *out) {
  MgCtx *c = m->s->c;
  MgPackBlock *b = mg_new(c, MgPackBlock, out->nblock + 1);
  uint64_t *work = mg_new(c, uint64_t, mg_pack_room(out->nblock) / sizeof *work + 1);
  TRYP(b && work);
  for (uint32_t i = 0; i < m->f->nstep; i++) out->dynamic |= m->f->step[i].sized;
  for (uint32_t i = 0; i < out->nblock && !out->dynamic; i++) {
    int64_t bytes;
    if (!mg_ex_const_int(m->s->x, out->block[i].bytes, &bytes)) return out->dynamic = true, MG_OK;
    b[i] = (MgPackBlock){
        .bytes = bytes > 0 ? (uint64_t)bytes : 0, .first = out->block[i].first, .last = out->block[i].last};
  }
  if (out->dynamic) return MG_OK;
  out->bytes = mg_pack(b, out->nblock, work);
  for (uint32_t i = 0; i < out->nblock; i++) out->block[i].offset = b[i].offset;
  return MG_OK;
}

MgRc mg_memplan(MgSched *s, const MgFused *f, MgMemPlan *out) {
  MpState m = {.s = s, .f = f};
  memset(out, 0, sizeof *out);
  out->of_buf = mg_new(s->c, uint32_t, s->nbuf + 1);
  out->of_step = mg_new(s->c, uint32_t, f->nstep + 1);
  TRYP(out->of_buf && out->of_step);
  TRY(mp_items(&m));
  mp_find_in_place(&m);
  TRY(mp_blocks(&m, out));
  return mp_place(&m, out);
}
