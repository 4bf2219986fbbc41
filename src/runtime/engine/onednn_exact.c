/* Activations that the library computes with a minimum or maximum instruction lose NaN: relu(NaN) is 0 there,
 * NaN in PyTorch.  Those instructions raise the processor's "invalid operation" flag for a NaN operand, and
 * the flag stays.  So the fused primitive runs, the flags of the threads are looked at, and only when one is
 * raised does the primitive run again without its activation, which is then applied here.  A flag raised by
 * something else costs time, nothing more. */
#include "base/fork.h"
#include "runtime/engine/onednn_prim.h"
#include "runtime/process/threads.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

typedef struct DnnExact {
  MgEngine e;
  MgEngine *inner; /* with the activation where it can be watched, else without */
  MgEngine *plain; /* without; made when it is first needed (atomic) */
  DnnMake *make;
  void *desc;   /* description without the activation; owned */
  bool watched; /* inner applies the activation */
  int kind;     /* EXACT_* */
  MgActDesc act;
  MgTensorDesc out; /* the result, and its number among the pointers */
  int ptr;
} DnnExact;

enum { EXACT_none, EXACT_relu, EXACT_clip, EXACT_hardsigmoid };

static int exact_kind(const MgActDesc *act) {
  static const char *const name[] = {
      [EXACT_relu] = "relu", [EXACT_clip] = "clip", [EXACT_hardsigmoid] = "hardsigmoid"};
  for (int i = 1; i <= EXACT_hardsigmoid; i++)
    if (act->name && !strcmp(act->name, name[i])) return i;
  return EXACT_none;
}

/* ---- the flags
 * ------------------------------------------------------------------------------------------------- */

#if defined(__x86_64__)
static bool exact_watches(void) { return mg_threads_shared((const void *)dnn.dnnl_version); }

static void exact_clear(void) { _mm_setcsr(_mm_getcsr() & ~_MM_EXCEPT_INVALID); }

static void exact_take(void *arg) {
  unsigned csr = _mm_getcsr();
  if (!(csr & _MM_EXCEPT_INVALID)) return;
  _mm_setcsr(csr & ~_MM_EXCEPT_INVALID);
  __atomic_store_n((int *)arg, 1, __ATOMIC_RELAXED);
}

/* Did a thread raise the flag?  Taken back everywhere.  single: only this one has worked; the others are
 * not to be woken for this. */
static bool exact_raised(bool single) {
  int raised = 0;
  if (single) exact_take(&raised);
  else mg_threads_each(exact_take, &raised);
  return raised;
}
#else
static bool exact_watches(void) { return false; }
static void exact_clear(void) {}
static bool exact_raised(bool single) { return true; }
#endif

/* ---- the activation
 * -------------------------------------------------------------------------------------------- */

static float exact_apply(const DnnExact *x, float v) {
  switch (x->kind) {
  case EXACT_relu: return v < 0 ? 0 : v;
  case EXACT_clip: return v < x->act.a ? x->act.a : v > x->act.b ? x->act.b : v;
  default: return v < -3 ? 0 : v > 3 ? 1 : (v + 3) / 6;
  }
}

static float exact_from_bf16(uint16_t h) {
  uint32_t bits = (uint32_t)h << 16;
  float f;
  memcpy(&f, &bits, sizeof f);
  return f;
}

static uint16_t exact_to_bf16(float f) {
  uint32_t bits;
  memcpy(&bits, &f, sizeof bits);
  if (isnan(f)) return (uint16_t)(bits >> 16 | 0x40);
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* Over dimensions [d, ndim) of the result at p. */
static void exact_walk(const DnnExact *x, char *p, int d) {
  const MgTensorDesc *t = &x->out;
  if (d < t->ndim) {
    int64_t step = t->stride[d] * (t->dtype == 6 ? (int64_t)sizeof(float) : (int64_t)sizeof(uint16_t));
    for (int64_t i = 0; i < t->size[d]; i++) exact_walk(x, p + i * step, d + 1);
  } else if (t->dtype == 6) {
    *(float *)p = exact_apply(x, *(float *)p);
  } else {
    *(uint16_t *)p = exact_to_bf16(exact_apply(x, exact_from_bf16(*(uint16_t *)p)));
  }
}

/* ---- the engine
 * ------------------------------------------------------------------------------------------------ */

/* The engine without the activation; NULL: out of memory. */
static const MgEngine *exact_plain(DnnExact *x) {
  MgEngine *p = __atomic_load_n(&x->plain, __ATOMIC_ACQUIRE);
  if (p) return p;
  mg_fork_lock(MG_LOCK_fill);
  if (!x->plain && x->make(x->desc, &p) == MG_OK) __atomic_store_n(&x->plain, p, __ATOMIC_RELEASE);
  p = x->plain;
  mg_fork_unlock(MG_LOCK_fill);
  return p;
}

static int exact_again(DnnExact *x, MgEngineArgs *a) {
  const MgEngine *p = exact_plain(x);
  MgEngineArgs b = *a;
  int rc = -1;
  a->err = "out of memory";
  if (!p) return -1;
  b.state = p->ops->state_new(p);
  b.scratch = aligned_alloc(64, dnn_align(p->scratch) + 64);
  if (b.state && b.scratch) {
    rc = p->ops->run(p, &b);
    a->err = b.err;
  }
  free(b.scratch);
  p->ops->state_free(p, b.state);
  return rc;
}

static int exact_run(const MgEngine *e, MgEngineArgs *a) {
  DnnExact *x = (DnnExact *)e;
  if (x->watched) exact_clear();
  if (x->inner->ops->run(x->inner, a)) return -1;
  if (x->watched && !exact_raised(x->inner->single)) return 0;
  if (x->watched && exact_again(x, a)) return -1;
  exact_walk(x, a->ptr[x->ptr], 0);
  return 0;
}

static void *exact_state_new(const MgEngine *e) {
  const MgEngine *inner = ((const DnnExact *)e)->inner;
  return inner->ops->state_new(inner);
}

static void exact_state_free(const MgEngine *e, void *state) {
  const MgEngine *inner = ((const DnnExact *)e)->inner;
  inner->ops->state_free(inner, state);
}

static void exact_free(MgEngine *e) {
  DnnExact *x = (DnnExact *)e;
  if (x->inner) x->inner->ops->free(x->inner);
  if (x->plain) x->plain->ops->free(x->plain);
  free(x->desc);
  free(x);
}

static const MgEngineOps exact_ops = {"onednn+activation", exact_run, exact_state_new, exact_state_free,
                                      exact_free};

bool dnn_exact_wanted(const MgActDesc *act) { return exact_kind(act) != EXACT_none; }

MgRc dnn_exact_make(DnnMake *make, const void *desc, size_t size, const MgActDesc *act,
                    const MgTensorDesc *out, int ptr, MgEngine **e) {
  DnnExact *x = mg_calloc(1, sizeof *x);
  if (!x) return MG_NOMEM;
  *x = (DnnExact){
      .e.ops = &exact_ops, .make = make, .kind = exact_kind(act), .act = *act, .out = *out, .ptr = ptr};
  x->act.name = "";
  x->watched = exact_watches();
  MgRc rc = MG_NOMEM;
  if ((x->desc = mg_calloc(1, size))) {
    memcpy(x->desc, desc, size);
    *(MgActDesc *)((char *)x->desc + ((const char *)act - (const char *)desc)) = (MgActDesc){.name = ""};
    rc = make(x->watched ? desc : x->desc, &x->inner);
  }
  if (rc != MG_OK) {
    exact_free(&x->e);
    return rc;
  }
  x->e.scratch = x->inner->scratch;
  x->e.tensors = x->inner->tensors;
  *e = &x->e;
  return MG_OK;
}
