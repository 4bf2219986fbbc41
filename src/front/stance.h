/* What compiled callables do when they are called: magneto.set_stance(), and torch.compiler.set_stance() while that is set. */
#ifndef MG_FRONT_STANCE_H
#define MG_FRONT_STANCE_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

typedef enum MgStance {
  STANCE_default,
  STANCE_force_eager,        /* everything runs as written */
  STANCE_eager_on_recompile, /* what is compiled already is used, nothing is compiled */
  STANCE_fail_on_recompile   /* compiling is an error */
} MgStance;

MgStance mg_stance(void);    /* the one in force; a few loads */
/* How often one place is compiled: what the callable was given, else what the program has set in torch._dynamo.config;
 * *exact: one of these, not the default.  Slow. */
int mg_stance_recompile_limit(int given, bool *exact);
/* Is this flag of torch._dynamo.config set?  Slow. */
bool mg_stance_set(const char *name);
int mg_stance_init(PyObject *module);
#endif
