/* What compiled callables do when they are called: magneto.set_stance(), and
 * torch.compiler.set_stance() while that is set. */
#ifndef MG_STANCE_H
#define MG_STANCE_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

typedef enum MgStance {
  STANCE_default,
  STANCE_force_eager,        /* everything runs as written */
  STANCE_eager_on_recompile, /* what is compiled already is used, nothing is compiled */
  STANCE_fail_on_recompile,  /* compiling is an error */
  STANCE_eager_then_compile  /* the first call of each code runs as written; what differs in the second one is
                                known to change */
} MgStance;

MgStance mg_stance(void); /* the one in force; a few loads */
/* The back end that compiled callables use instead of their own, borrowed: a callable, None
 * (magneto's); NULL: theirs. */
PyObject *mg_stance_backend(void);
int mg_stance_init(PyObject *module);
#endif
