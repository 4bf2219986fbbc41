/* Which consecutive kernels may run at the same time.
 * In: the final order of steps and where every buffer is.  Out: per step, whether it may start while the
 * kernels since
 * the last one that may not are still running: nothing that one of them writes is read or written by another,
 * memory of the arena that was given to several buffers included. */
#include "back/kernel/back.h"
#include "back/kernel/loop_nest.h"
#include "tuning.h"

typedef struct Piece { /* arena memory that a kernel of the wave uses */
  uint64_t from, to;
  bool write;
} Piece;

typedef struct Wave {
  MgSched *s;
  const MgMemPlan *m;
  uint32_t *read, *wrote; /* per buffer: number of the last wave that does */
  uint32_t number;
  Piece *piece;
  uint32_t npiece, cap;
} Wave;

static bool kernel_writes(const MgKernel *k, BufRef b) {
  for (uint32_t i = 0; i < k->nloop; i++)
    if (k->loop[i]->buf == b) return true;
  return false;
}

/* Arena memory of b; false: it has none. */
static bool buf_piece(const Wave *w, BufRef b, Piece *out) {
  int64_t bytes;
  if (!w->m->of_buf[b]) return false;
  const MgMemBlock *m = &w->m->block[w->m->of_buf[b] - 1];
  if (!w->m->dynamic && mg_ex_const_int(w->s->x, m->bytes, &bytes))
    *out = (Piece){.from = m->offset, .to = m->offset + (uint64_t)bytes};
  else *out = (Piece){.from = 0, .to = UINT64_MAX}; /* places are not known yet */
  return true;
}

static bool meets(const Wave *w, const MgKernel *k) {
  Piece p;
  for (uint32_t i = 0; i < k->nbuf; i++) {
    bool write = kernel_writes(k, k->buf[i]);
    if (w->wrote[k->buf[i]] == w->number || (write && w->read[k->buf[i]] == w->number)) return true;
    if (!buf_piece(w, k->buf[i], &p)) continue;
    for (uint32_t j = 0; j < w->npiece; j++)
      if ((write || w->piece[j].write) && w->piece[j].from < p.to && p.from < w->piece[j].to) return true;
  }
  return false;
}

static MgRc join(Wave *w, const MgKernel *k) {
  Piece p = {0};
  for (uint32_t i = 0; i < k->nbuf; i++) {
    bool write = kernel_writes(k, k->buf[i]);
    *(write ? &w->wrote[k->buf[i]] : &w->read[k->buf[i]]) = w->number;
    if (!buf_piece(w, k->buf[i], &p)) continue;
    if (w->npiece == w->cap) {
      uint32_t cap = w->cap ? w->cap * 2 : 64;
      w->piece = mg_ctx_grow(w->s->c, w->piece, w->npiece * sizeof *w->piece, cap * sizeof *w->piece);
      TRYP(w->piece);
      w->cap = cap;
    }
    p.write = write;
    w->piece[w->npiece++] = p;
  }
  return MG_OK;
}

MgRc mg_kernel_waves(MgSched *s, const MgFused *f, const MgMemPlan *m, bool *beside) {
  Wave w = {.s = s,
            .m = m,
            .number = 1,
            .read = mg_new(s->c, uint32_t, s->nbuf),
            .wrote = mg_new(s->c, uint32_t, s->nbuf)};
  TRYP(w.read && w.wrote);
  for (uint32_t i = 0; i < f->nstep; i++) {
    const MgKernel *k = f->step[i].kind == MS_kernel ? f->step[i].u.kernel : NULL;
    beside[i] = k && i && f->step[i - 1].kind == MS_kernel && w.npiece < MG_TUNE_WAVE_PIECES && !meets(&w, k);
    if (!beside[i]) w.number++, w.npiece = 0;
    if (k) TRY(join(&w, k));
  }
  return MG_OK;
}
