/* What the files of functionalize share (functionalize.c: the pass, functionalize_inverse.c: writes to
 * views). */
#ifndef MG_FUNCTIONALIZE_PRIV_H
#define MG_FUNCTIONALIZE_PRIV_H
#include "ir/graph/graph.h"

typedef struct FzVal { /* what is known of a recorded value; indexed by its ValRef */
  ValRef same;         /* the value it is another name of; itself otherwise; 0: not seen yet */
  ValRef parent;       /* the value it views; 0 for a root */
  ValRef root;         /* whose memory it is in */
  MgNode via;          /* the view op, with recorded (old) arguments */
  uint32_t out;        /* which result of it */
  ValRef now;          /* its value in the new graph ... */
  uint32_t version;    /* ... as of this version of the root */
  bool written;        /* root: its memory was overwritten ... */
  bool copied;         /* ... last by copy_: its value is also that of the source */
} FzVal;

typedef struct Fz {
  MgGraph *g;
  FzVal *val;
  uint32_t nval; /* recorded values; later ones are new */
  MgNode *old;
  uint32_t nold;
  bool *target; /* per recorded value: some node writes it */
  uint32_t *
      use; /* per recorded value, while one node is looked at: arguments in the memory of this root; else 0 */
} Fz;

static inline FzVal *fz_val(Fz *f, ValRef v) { return &f->val[f->val[v].same ? f->val[v].same : v]; }
static inline ValRef fz_canon(const Fz *f, ValRef v) { return f->val[v].same ? f->val[v].same : v; }

/* Appends op(arg...) and gives its first result, which looks like the recorded value `like` if inference
 * cannot tell; 0: then that is an error.  The first narg arguments are given, the others at their defaults.
 */
MgRc mg_fz_emit(Fz *f, MgTop code, const MgArg *arg, int narg, ValRef like, ValRef *out);
/* A copy of *v with the strides of `like`; the second only if dimensions of more than one element differ. */
MgRc mg_fz_lay_out(Fz *f, ValRef *v, ValRef like);
MgRc mg_fz_restride(Fz *f, ValRef *v, ValRef like);
/* parent_now, the present value of view i's parent, with the part that the view stands for replaced by *v. */
MgRc mg_fz_inverse(Fz *f, const FzVal *i, ValRef view, ValRef parent_now, ValRef *v);
/* The same for any strided view of the parent's dtype, by position in the root's memory. */
MgRc mg_fz_by_position(Fz *f, ValRef view, ValRef parent, ValRef parent_now, ValRef *v);
#endif
