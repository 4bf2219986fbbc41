/* What fusion (fuse.c, fuse_update.c, fuse_kernel.c) and loop transformation (loopopt.c) share. */
#ifndef MG_FUSE_PRIV_H
#define MG_FUSE_PRIV_H
#include "back/kernel/back.h"

typedef struct FuLoad { /* one distinct load of a nest */
  BufRef buf;
  ExprRef index;
} FuLoad;

typedef struct FuNest { /* one nest on its way into a kernel */
  MgLoop *l;            /* own copy; transformed in place */
  FuLoad *load;
  uint32_t nload;
  uint32_t seq; /* position in the schedule */
} FuNest;

/* A kernel while it grows.  Every nest iterates over a prefix of `range`; the first `shared` ranges are the
 * rows: dependences between nests of the kernel stay within one row, so rows may run in any order. */
typedef struct FuKernel {
  MgSched *s;
  FuNest *nest;
  uint32_t n, cap;
  SymRef range[MG_MAX_RANK];
  int nrange, shared;
  bool alone; /* takes no further nest (scatter, read-modify-write) */
  int nphase;
  uint32_t ops;                    /* size of its expressions */
  uint32_t *pred, npred, cap_pred; /* kernels (since the last extern call) that must have ended before it */
  bool placed;                     /* in the final order */
  const char
      *apart; /* for reports: why its first nest joined no earlier kernel, and which one it was kept from */
  const struct FuKernel *apart_from;
  int32_t step; /* of the schedule, once its kernels have an order */
} FuKernel;

/* Are these the kernels of a GPU?  A nest is what its target is. */
static inline bool fu_on_gpu(const MgSched *s, const MgLoop *l) { return s->buf[l->buf].device == DEV_cuda; }

/* ---- loopopt.c ---- */
int fu_all(const MgLoop *l);                                /* ranges of a nest, reduced ones included */
void fu_set_ranges(MgExprs *x, const SymRef *range, int n); /* declares idx(0..n), forgets the others */
MgRc fu_nest_init(MgSched *s, const MgLoop *l, uint32_t seq, FuNest *out); /* a normalised copy */
MgRc fu_nest_loads(MgSched *s, FuNest *n);                                 /* (re)collects the loads */
/* Splits a nest's ranges so that they are a prefix of range[0..n), their common refinement. */
MgRc fu_split(MgSched *s, MgLoop *l, const SymRef *range, int n);
/* Puts range order[i] at place i. */
MgRc fu_permute(MgSched *s, MgLoop *l, const int *order, int n);
/* Merges neighbouring ranges of a whole kernel that no nest needs apart. */
MgRc fu_collapse(FuKernel *k);
/* Elements of the part of `index` that does not depend on idx(0..shared); lo is its least value. */
bool fu_row_part(MgExprs *x, ExprRef index, const SymRef *range, int shared, ExprRef *inner, int64_t *lo,
                 int64_t *hi);
/* Can accesses a and b of one buffer meet only within one row? */
bool fu_row_local(MgExprs *x, ExprRef a, ExprRef b, const SymRef *range, int shared);
/* Would a reduction of t, which is k and b together, jump through memory where alone it would run along? */
bool fu_spoils_vectors(const FuKernel *k, const FuKernel *t, const FuNest *b);
int64_t fu_hint(const MgExprs *x, const SymRef *range, int from,
                int to); /* product of ranges, at the hints */
/* Large reductions with few results become two stages that threads can share. */
MgRc fu_two_stages(MgSched *s, const MgLoop *l, MgLoop *out[2], int *n);
/* ---- fuse_update.c ---- */
/* Loads of b of memory that k updates in place become the stored values; then b must run in *phase (-1: there
 * are none).  *ok false: that is not possible, b must not join. */
MgRc fu_take_updates(FuKernel *k, FuNest *b, int *phase, bool *ok);
/* Must kernel `before` have ended before `after` starts? */
bool fu_needs(FuKernel *const *k, uint32_t after, uint32_t before);
/* Orders the kernels between two extern calls as they need each other; puts those that do not depend on each
 * other side by side, where that costs no memory. */
MgRc fu_order(MgSched *s, FuKernel **k, uint32_t n);
/* ---- fuse_kernel.c ---- */
/* Chooses vector index and parallel ranges, keeps temporaries local, makes the kernel's arguments. */
MgRc fu_finish(FuKernel *k, const uint32_t *users, MgKernel *out, uint32_t number);
#endif
