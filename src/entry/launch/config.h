/* Options of one magneto.compile call. */
#ifndef MG_CONFIG_H
#define MG_CONFIG_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include "driver/options.h"

struct MgConfig;
/* Options of one magneto.compile call, owned by its callable. */
typedef struct MgConfig {
  PyObject *backend;  /* NULL: magneto's own; else a Python callable (gm, example_inputs) -> callable */
  bool eager_backend; /* run the graph node by node (debugging) */
  bool fullgraph;     /* a break is an error */
  bool disable;
  int dynamic; /* -1 automatic, 0, 1 */
  MgOptions opt;
  int recompile_limit; /* entries per (code, offset); 0: the default, or torch's setting */
  uint32_t isolated;   /* number of the callable that shares no entries with others; 0: it shares them */
  bool explained;      /* entries keep their graphs, for explain */
  uint32_t id;         /* which callable; entries of different configs do not mix */
} MgConfig;
#endif
