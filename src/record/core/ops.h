/* What is recursive by nature: operations that what stands below them needs, in one table.
 * Only lower rooms, and files that the implementation calls itself, call through it; others call the
 * function. record/segment/ops.c fills it. */
#ifndef MG_OPS_H
#define MG_OPS_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include "entry/guard/source_kinds.h"
#include "ir/graph/graph.h"

typedef struct MgCapture MgCapture;
typedef struct MgFrontOp MgFrontOp;
typedef struct MgSnapshot MgSnapshot;
typedef struct MgSymNode MgSymNode;

/* Each field is the function of that name (mg_wrap is wrap), with its contract. */
typedef struct MgRecOps {
  /* record/object */
  PyObject *(*wrap)(PyObject *v, SrcRef src);
  PyObject *(*older_attr)(PyObject *o, PyObject *name);
  PyObject *(*getattr)(PyObject *o, PyObject *name);
  PyObject *(*lookup_special)(PyTypeObject *t, PyObject *name);
  PyObject *(*load_global)(PyObject *globals, PyObject *builtins, PyObject *name);
  /* record/call */
  PyObject *(*call)(PyObject *f, PyObject *const *args, size_t nargsf, PyObject *kwnames);
  bool (*marked_class)(PyObject *cls);
  /* record/snapshot */
  MgSnapshot *(*snapshot_build)(PyObject **slots, int n, const bool *untouched, PyObject *ret);
  /* record/tensor */
  PyObject *(*standin_new)(MgCapture *cap, ValRef val);
  ValRef (*scalar_input)(MgCapture *cap, PyObject *tensor, SrcRef src);
  bool (*subclass_among)(const MgCapture *cap, PyObject *types);
  /* record/dispatch */
  PyObject *(*dispatch_call)(MgCapture *cap, const char *name, const char *overload, PyObject *args,
                             PyObject *kwargs);
  PyObject *(*dispatch_emit)(MgCapture *cap, const MgFrontOp *fo, PyObject *args, const ValRef *like,
                             uint32_t n, bool grad);
  PyObject *(*constval_contents)(MgCapture *cap, ValRef v);
  bool (*one_hot)(PyObject *x, PyObject *count, PyObject **r);
  bool (*recurrent_call)(PyObject *f, PyObject *const *arg, Py_ssize_t n, PyObject **r);
  /* record/fx */
  int (*fx_late_value)(MgCapture *cap, MgSymNode *n);
  bool (*fx_computes)(const MgCapture *cap, SrcRef src, PyObject *f);
  bool (*fx_is_aten)(const MgCapture *cap);
} MgRecOps;

extern const MgRecOps mg_ops;
#endif
