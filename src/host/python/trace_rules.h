/* Which code is the user's: by the file it comes from. */
#ifndef MG_TRACE_RULES_H
#define MG_TRACE_RULES_H
#include "host/python/pyframe.h"

/* Torch's own machinery, which its C++ calls while an op runs: never part of a recording. */
bool mg_skip_opaque(PyCodeObject *co);
/* Opaque, but part of the program where a torch_function mode of the program is on top. */
bool mg_skip_modes(PyCodeObject *co);
/* Frames that are not compiled on their own (they are inlined when compiled code calls them). */
bool mg_skip_compile(PyCodeObject *co);
/* Functions of torch that steer its own compiler in ways that a recording must not run
 * through: a break at their call. */
bool mg_skip_breaks(PyCodeObject *co);
/* A frame about to begin that works on a packed sequence, whose lengths C++ reads: run
 * as it is, and such a break. */
bool mg_skip_packed(MgFrame *f);
bool mg_skip_wrapper(PyCodeObject *co);  /* the wrapper that disable(recursive=False) makes */
bool mg_skip_is_torch(PyCodeObject *co); /* a file of torch itself */
bool mg_skip_is_copy(PyCodeObject *co);  /* the module copy, whose memos go by ids */
int mg_skip_init(PyObject *module);
#endif
