/* Backward in parts: a compiled backward pass under DistributedDataParallel gives the gradients of a bucket
 * while later ones are still to be computed, so that their reduction runs beside it.
 * The gradient graph then has a chain of nodes instead of one.  The first, which the results belong to, runs
 * the plan up to the point where the first gradients are final, and hands the rest of the run to the next as
 * a *token*: an empty tensor, the gradient of an empty result of that node.
 * Where the program has set a communication hook, which may look at what shares a bucket (PowerSGD draws and
 * approximates by bucket), gradients come one by one in eager's order, since buckets are made of those
 * that come one after another. */
#ifndef MG_BUCKETED_BACKWARD_H
#define MG_BUCKETED_BACKWARD_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

typedef struct MgAutograd MgAutograd;

typedef struct MgGradParts { /* how a backward plan is cut; nodes of gradient graphs hold it */
  PyObject_HEAD int64_t
      limit;       /* bytes of gradients that are worth a part; 0: one gradient is, in eager's order */
  uint32_t n;      /* parts: at least 2 */
  uint32_t *until; /* per part: steps of the plan that are done then */
  uint32_t *of;    /* per input that requires grad: its part */
  uint32_t *last;  /* per result of the plan: the last part that gives it */
} MgGradParts;

/* How the backward of a forward run on these inputs that ends now is to be cut.  *parts: new; NULL: not at
 * all.  -1 with an exception. */
int mg_gradpart_wanted(MgAutograd *a, PyObject *const *in, MgGradParts **parts);
/* The empty result of a node that is not the first. */
PyObject *mg_gradpart_token(void);
/* Part 0: begins a run.  given: the set of defined tangents; all: the gradients where they are known already
 * (borrowed), else NULL. next: does the engine want the next part?  The gradients of the
 * node's inputs, the token first. */
PyObject *mg_gradpart_begin(MgAutograd *a, MgGradParts *parts, PyObject *state, PyObject *saved,
                            PyObject *const *tangent, const uint64_t *given, PyObject *all, bool next);
/* Part k > 0: goes on with the run that came with the token (or None: no tangent was defined). */
PyObject *mg_gradpart_go_on(MgAutograd *a, MgGradParts *parts, uint32_t k, PyObject *token, bool next);
int mg_gradpart_init(void); /* -1 with an exception */

/* ---- grad_node.c ---- */
/* The inputs of the backward plan: `saved` borrowed, the tangents new, in the layout that it was compiled
 * for.  -1 with an exception. */
int mg_gradnode_inputs(const MgAutograd *a, PyObject *saved, PyObject *const *tangent, PyObject **in);
/* All gradients, op by op.  New tuple by input that requires grad. */
PyObject *mg_gradnode_again(const MgAutograd *a, PyObject *state, PyObject *saved, PyObject *const *tangent);
#endif
