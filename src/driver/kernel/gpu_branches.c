/* Which products of a CUDA graph run beside what comes after them.
 * In: the final order of steps, before memory is planned.  Out: MgStepIR.beside, and join: the step before
 * which it must have ended.  Until then its operands keep their memory. A weight's gradient is such a
 * product: the chain of the backward pass does not wait for it, and one product of this size rarely fills the
 * device. */
#include "back/kernel/back.h"
#include "driver/kernel/kernels.h"

typedef struct Branches {
  const MgSched *s;
  MgFused *f;
  uint32_t *touched, *written; /* per buffer: the next step that does so */
  bool *viewed;                /* per buffer: a call has made it of another one's memory */
  bool *may;                   /* per step: two products or more come before somebody needs its result */
  uint32_t *until;             /* per step: somebody does, or writes to what it reads */
} Branches;

static bool branch_is_product(const Branches *b, uint32_t i) {
  const MgStepIR *t = &b->f->step[i];
  if (t->kind != MS_extern) return false;
  switch (mg_node(b->s->g, t->u.ext->node)->op->code) {
  case TOP_mm:
  case TOP_addmm:
  case TOP_bmm:
  case TOP_baddbmm:
  case TOP_convolution:
  case TOP_convolution_backward: return true;
  default: return false;
  }
}

/* Everything that the call reads or makes lies on the device in memory of its own. */
static bool branch_is_plain(const Branches *b, const MgExtern *e) {
  const MgNode *n = mg_node(b->s->g, e->node);
  bool plain = !mg_node_effect(n) && !n->op->mutates && !n->op->is_view;
  for (uint32_t k = 0; k < e->nin + e->nout; k++) {
    BufRef buf = k < e->nin ? e->in[k].buf : e->out[k - e->nin].buf;
    plain &= !buf || (b->s->buf[buf].device == DEV_cuda && !b->viewed[buf]);
  }
  return plain;
}

static void branch_until(uint32_t *until, uint32_t step) {
  if (step < *until) *until = step;
}

/* Notes the step's own touches, for the steps before it. */
static void branch_touch(Branches *b, uint32_t i) {
  const MgStepIR *t = &b->f->step[i];
  if (t->kind == MS_kernel) {
    for (uint32_t k = 0; k < t->u.kernel->nbuf; k++) b->touched[t->u.kernel->buf[k]] = i;
    for (uint32_t k = 0; k < t->u.kernel->nloop; k++) b->written[t->u.kernel->loop[k]->buf] = i;
    return;
  }
  const MgExtern *e = t->u.ext;
  bool mutates = mg_node(b->s->g, e->node)->op->mutates;
  for (uint32_t k = 0; k < e->nin; k++) {
    b->touched[e->in[k].buf] = i;
    if (mutates) b->written[e->in[k].buf] = i;
  }
  for (uint32_t k = 0; k < e->nout; k++) b->touched[e->out[k].buf] = b->written[e->out[k].buf] = i;
}

/* The product that comes `nth` after step i, before `until`; until: there is none. */
static uint32_t branch_product_after(const Branches *b, uint32_t i, int nth, uint32_t until) {
  uint32_t at = i + 1;
  for (; at < until; at++)
    if (branch_is_product(b, at) && !--nth) break;
  return at;
}

static void branch_look(Branches *b) {
  for (uint32_t i = b->f->nstep; i-- > 0;) {
    b->until[i] = b->f->nstep;
    if (branch_is_product(b, i)) {
      const MgExtern *e = b->f->step[i].u.ext;
      for (uint32_t k = 0; k < e->nout; k++)
        if (e->out[k].buf) branch_until(&b->until[i], b->touched[e->out[k].buf]);
      for (uint32_t k = 0; k < e->nin; k++)
        if (e->in[k].buf) branch_until(&b->until[i], b->written[e->in[k].buf]);
      b->may[i] = branch_is_plain(b, e) && branch_product_after(b, i, 2, b->until[i]) < b->until[i];
    }
    branch_touch(b, i);
  }
}

MgRc mg_gpu_branches(MgSched *s, MgFused *f) {
  Branches b = {.s = s, .f = f};
  TRYP(b.touched = mg_new(s->c, uint32_t, s->nbuf + 1));
  TRYP(b.written = mg_new(s->c, uint32_t, s->nbuf + 1));
  TRYP(b.viewed = mg_new(s->c, bool, s->nbuf + 1));
  TRYP(b.may = mg_new(s->c, bool, f->nstep + 1));
  TRYP(b.until = mg_new(s->c, uint32_t, f->nstep + 1));
  for (uint32_t k = 0; k < s->nbuf; k++) b.touched[k] = b.written[k] = f->nstep;
  for (uint32_t i = 0; i < f->nstep; i++) {
    const MgExtern *e = f->step[i].kind == MS_extern ? f->step[i].u.ext : NULL;
    bool view = e && mg_node(s->g, e->node)->op->is_view;
    for (uint32_t k = 0; view && k < e->nin; k++) b.viewed[e->in[k].buf] = true;
    for (uint32_t k = 0; view && k < e->nout; k++) b.viewed[e->out[k].buf] = true;
  }
  branch_look(&b);
  for (uint32_t i = 0; i < f->nstep; i++) {
    if (!b.may[i]) continue;
    uint32_t next = branch_product_after(&b, i, 1, f->nstep),
             join = branch_product_after(&b, i, 2, b.until[i]);
    f->step[i].beside = true;
    f->step[i].join = join;
    if (join < f->nstep) f->step[join].joins = true;
    i = next; /* which runs on the main stream */
  }
  return MG_OK;
}
