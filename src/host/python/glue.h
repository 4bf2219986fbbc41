/* The modules of the Python package that C code calls.  Each is imported when it is first needed. */
#ifndef MG_GLUE_H
#define MG_GLUE_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* MODULE(C identifier, name of the module) */
#define MG_GLUE_MODULES(MODULE)                                                                              \
  MODULE(fx_meta, "magneto._backends.fx_meta")                                                               \
  MODULE(fx_targets, "magneto._backends.fx_targets")                                                         \
  MODULE(registry, "magneto._backends.registry")                                                             \
  MODULE(shared_graphs, "magneto._backends.shared_graphs")                                                   \
  MODULE(array_calls, "magneto._glue.array_calls")                                                           \
  MODULE(collectives, "magneto._glue.collectives")                                                           \
  MODULE(control_flow, "magneto._glue.control_flow")                                                         \
  MODULE(cuda_graphs, "magneto._glue.cuda_graphs")                                                           \
  MODULE(dtensor, "magneto._glue.dtensor")                                                                   \
  MODULE(freed_graph, "magneto._glue.freed_graph")                                                           \
  MODULE(jagged, "magneto._glue.jagged")                                                                     \
  MODULE(lazy_modules, "magneto._glue.lazy_modules")                                                         \
  MODULE(output_tensors, "magneto._glue.output_tensors")                                                     \
  MODULE(polyfills, "magneto._glue.polyfills")                                                               \
  MODULE(recurrent, "magneto._glue.recurrent")                                                               \
  MODULE(tensor_hooks, "magneto._glue.tensor_hooks")                                                         \
  MODULE(trust_beside, "magneto._trust.beside")                                                              \
  MODULE(trust_repro, "magneto._trust.repro")

typedef enum MgGlue {
#define GLUE_ROW(id, name) GLUE_##id,
  MG_GLUE_MODULES(GLUE_ROW)
#undef GLUE_ROW
} MgGlue;

PyObject *mg_glue(MgGlue module); /* The module: new; NULL with an exception. */
#endif
