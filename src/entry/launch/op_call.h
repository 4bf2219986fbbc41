/* Prebuilt calls of single ATen nodes through their Python OpOverload, and the table of them that a plan
 * calls back into (MgHost).  Everything but the tensors is converted once. */
#ifndef MG_OP_CALL_H
#define MG_OP_CALL_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include "ir/graph/graph.h"

typedef struct MgHostOps MgHostOps;

typedef struct MgNodeCall MgNodeCall;

/* Call of graph node n; objs is the list that MA_object arguments index (or NULL).
 * New; NULL with an exception. */
MgNodeCall *mg_nodecall_new(MgGraph *g, NodeRef n, PyObject *objs);
int mg_nodecall_nin(const MgNodeCall *c); /* tensor arguments, lists flattened */
/* vals: nin borrowed tensors, NULL where undefined; outs: nout new references, NULL where undefined.  -1 with
 * an exception. */
int mg_nodecall_run(const MgNodeCall *c, PyObject *const *vals, PyObject **outs);
/* symbolic: its sizes are expressions, computed in every run (mg_nodecall_run_at). */
MgNodeCall *mg_nodecall_new_at(MgGraph *g, NodeRef n, PyObject *objs, bool symbolic);
/* The same, of a call that may also run without Python (mg_nodecall_run_plain). */
MgNodeCall *mg_nodecall_new_plain(MgGraph *g, NodeRef n, PyObject *objs);
typedef struct MgCallSizes { /* of a call with symbolic sizes */
  const MgExprs *x;
  const int64_t *env; /* values of the symbols; not used when the call is recorded once more */
  /* when it is: */
  PyObject *(*size)(void *arg, SymRef e); /* the object for a size of that recording; NULL: the call runs */
  void *arg;
  MgExprs *to;    /* its expressions */
  SymRef *copied; /* by expression, those of its sizes that symbols stand for (mg_sym_copy) */
} MgCallSizes;
/* The call without Python: only of plain tensors.  False: it cannot be made so, or it raises; then
 * mg_nodecall_run_at says what. */
bool mg_nodecall_run_plain(const MgNodeCall *c, PyObject *const *vals, PyObject **outs);
int mg_nodecall_run_at(const MgNodeCall *c, PyObject *const *vals, PyObject **outs, const MgCallSizes *at);
/* (OpOverload, positional arguments, arguments by name), new; vals stand for the tensors.  Not of a call with
 * symbolic sizes.  NULL with an exception. */
PyObject *mg_nodecall_describe(const MgNodeCall *c, PyObject *const *vals);
void mg_nodecall_free(MgNodeCall *c);

/* How a compilation registers extern calls; h->host moves into the plan when mg_compile succeeds, else call
 * h->host.free(h->host.self).  objs: borrowed, must live until the compilation
 * ends.  -1 with an exception. */
int mg_nodecall_hostops(PyObject *objs, MgHostOps *h);
#endif
