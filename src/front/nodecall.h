/* Prebuilt calls of single ATen nodes through their Python OpOverload, and the table of them that a plan calls back
 * into (MgHost).  Everything but the tensors is converted once. */
#ifndef MG_FRONT_NODECALL_H
#define MG_FRONT_NODECALL_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include "driver/compile.h"

typedef struct MgNodeCall MgNodeCall;

/* Call of graph node n; objs is the list that MA_object arguments index (or NULL).  New; NULL with an exception. */
MgNodeCall *mg_nodecall_new(MgGraph *g, NodeRef n, PyObject *objs);
int mg_nodecall_nin(const MgNodeCall *c);  /* tensor arguments, lists flattened */
int mg_nodecall_nout(const MgNodeCall *c); /* tensor results, lists flattened */
/* vals: nin borrowed tensors, NULL where undefined; outs: nout new references, NULL where undefined.  -1 with an
 * exception. */
int mg_nodecall_run(const MgNodeCall *c, PyObject *const *vals, PyObject **outs);
/* symbolic: its sizes are expressions, computed in every run (mg_nodecall_run_at). */
MgNodeCall *mg_nodecall_new_at(MgGraph *g, NodeRef n, PyObject *objs, bool symbolic);
typedef struct MgCallSizes { /* of a call with symbolic sizes */
  const MgExprs *x;
  const int64_t *env;      /* values of the symbols, or, when the call is recorded once more: */
  struct MgCapture *cap;   /* the recording, */
  SymRef *copied;          /* and by expression, those of its sizes that symbols stand for (mg_sym_copy) */
} MgCallSizes;
int mg_nodecall_run_at(const MgNodeCall *c, PyObject *const *vals, PyObject **outs, const MgCallSizes *at);
void mg_nodecall_free(MgNodeCall *c);

/* How a compilation registers extern calls; h->host moves into the plan when mg_compile succeeds, else call
 * h->host.free(h->host.self).  objs: borrowed, must live until the compilation ends.  -1 with an exception. */
int mg_nodecall_hostops(PyObject *objs, MgHostOps *h);

/* Tensors across the border.  Both need mg_abi.tensor_offset (mg_nodecall_init). */
PyObject *mg_tensor_wrap(MgTensor *t);    /* steals t; new reference; NULL with an exception */
/* Loads the ABI and checks the layout of tensors once.  -1 with an exception. */
int mg_tensor_init(void);
#endif
