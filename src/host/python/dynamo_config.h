/* Flags of torch._dynamo that programs set, where they have imported it. */
#ifndef MG_DYNAMO_CONFIG_H
#define MG_DYNAMO_CONFIG_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

/* A setting of torch._dynamo.config, new; NULL without an exception when nobody has imported that module.
 * Its __getattr__ is Python, which no recording sees. */
PyObject *mg_rec_dynamo_config(const char *name);
/* Raises torch._dynamo.exc's class of this name where that module is loaded (its errors are
 * RuntimeErrors), else RuntimeError. */
void mg_raise_dynamo_error(const char *name, const char *format, ...);
/* Is this flag of torch._dynamo.config set?  Slow. */
bool mg_stance_set(const char *name);
/* How often one place is compiled: what the callable was given, else what the program has
 * set in torch._dynamo.config;
 * *exact: one of these, not the default.  Slow. */
int mg_stance_recompile_limit(int given, bool *exact);
#endif
