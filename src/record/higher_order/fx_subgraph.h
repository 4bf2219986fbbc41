/* Parts of a recording (subgraph.h) in a torch-level FX graph: their bodies as torch.compile shows them,
 * calls of torch with what they give, and the operator that calls them. */
#ifndef MG_FX_SUBGRAPH_H
#define MG_FX_SUBGRAPH_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>

typedef struct MgCapture MgCapture;
typedef struct MgFxRegion MgFxRegion;
typedef struct MgPart MgPart;
typedef struct MgRec MgRec;

/* Begins the body fn(*arg) of a part; the stand-ins among arg that nothing outside stands for (a
 * loop's turn) are its first inputs.
 * -1 with an exception. */
int mg_fxpart_begin(MgRec *r, MgFxRegion *g, PyObject *const *arg, Py_ssize_t n);
/* Ends it.  leaves: its results, NULL after an exception, which stays set.  p gets `shown` and `reads` if
 * there are such; what the body gives is what leaves say.  -1 with an exception. */
int mg_fxpart_end(MgRec *r, MgFxRegion *g, PyObject *leaves, MgPart *p);

typedef struct MgFxPartCall { /* one call of torch.ops.higher_order.<op> */
  const char *op;             /* cond, while_loop or scan */
  MgPart *part[2];            /* the first may be NULL */
  PyObject *const *fixed;     /* stand-ins: the predicate, or what is carried and the rows */
  uint32_t nfixed;
  PyObject *head; /* tuple: what magneto::<op> is given after its tensors */
  PyObject *res;  /* list: the stand-ins that it gave */
} MgFxPartCall;

/* Shows it if all parts are shown; 1 done, 0 not, -1 with an exception. */
int mg_fxpart_show(MgCapture *cap, const MgFxPartCall *c);
#endif
