/* Calls of torch's C functions that need more than the dispatch mode sees. */
#ifndef MG_TORCH_CALLS_H
#define MG_TORCH_CALLS_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include "ir/graph/graph.h"

typedef struct MgCall MgCall;

PyObject *mg_call_exact(const MgCall *c);     /* after a TypeError; NULL: it stays */
PyObject *mg_call_grad_mode(const MgCall *c); /* torch._C._set_grad_enabled */
bool mg_call_legacy(const MgCall *c, PyObject **r);
PyObject *mg_call_made_tensor(const MgCall *c, PyObject *r,
                              ValRef out); /* r is what c gave, a stand-in; stolen; out: mg_call_out before */
PyObject *mg_call_one_hot(const MgCall *c); /* torch_calls.c */
PyObject *mg_call_attention(const MgCall *c);
PyObject *mg_call_pick(const MgCall *c);                  /* select() and roll() */
ValRef mg_call_out(const MgCall *c);                      /* what a stand-in given as out= stands for, or 0 */
PyObject *mg_call_script(const MgCall *c);                /* a torch.jit.ScriptFunction */
PyObject *mg_call_sizes(const MgCall *c, uint32_t nodes); /* after an exception in a graph with symbolic
                                                             sizes; nodes: of the graph before the call */
bool mg_call_tensor(const MgCall *c, PyObject **r);       /* true when *r is the result */
PyObject *mg_call_with_numbers(const MgCall *c);
#endif
