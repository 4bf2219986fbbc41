/* What compiled callables do when they are called: magneto.set_stance(), and torch.compiler.set_stance() while that is set. */
#ifndef MG_FRONT_STANCE_H
#define MG_FRONT_STANCE_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>

typedef enum MgStance {
  STANCE_default,
  STANCE_force_eager,        /* everything runs as written */
  STANCE_eager_on_recompile, /* what is compiled already is used, nothing is compiled */
  STANCE_fail_on_recompile   /* compiling is an error */
} MgStance;

MgStance mg_stance(void);    /* the one in force; a few loads */
int mg_stance_init(PyObject *module);
#endif
