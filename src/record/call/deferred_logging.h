/* Calls that only say something (print, warnings.warn, methods of loggers), when the program has told torch's
 * compiler how to take them: torch._dynamo.config.reorderable_logging_functions are called at the end of the
 * graph, ignore_logging_functions not at all. Warnings that torch's own Python gives
 * are given at the end, too. */
#ifndef MG_DEFERRED_LOGGING_H
#define MG_DEFERRED_LOGGING_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

typedef struct MgCall MgCall;

/* True when c was such a call; *out is its result, or NULL with an exception. */
bool mg_logcall(const MgCall *c, PyObject **out);
#endif
