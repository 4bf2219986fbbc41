/* Which C functions a recording may run: the table pure.def, looked up once per
 * function and cached by address. */
#ifndef MG_C_FUNCTIONS_H
#define MG_C_FUNCTIONS_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

typedef enum MgAction {
  ACT_no,        /* graph break */
  ACT_run,       /* the result depends on the arguments only */
  ACT_wrap,      /* the same, but the result may be an older object */
  ACT_len,       /* len: run, unless it is given a tensor, whose length may be a symbolic size */
  ACT_recurrent, /* recurrent networks: run, or as one operator (recurrent.h) */
  ACT_function,  /* autograd.Function.apply: run while autograd is off, else autograd_function.c */
  ACT_python,    /* ends in Python code, which is recorded like any other */
  ACT_as_python, /* done by the function of magneto._glue.polyfills with its name */
  ACT_getattr,
  ACT_hasattr,
  ACT_setattr,
  ACT_delattr,
  ACT_vars,
  ACT_next,
  ACT_iter,
  ACT_type,
  ACT_type_call,
  ACT_subclass,
  ACT_abc,
  ACT_super,
  ACT_isinstance,
  ACT_identity,
  ACT_globals,
  ACT_getframe,
  ACT_object_setattr,
  ACT_object_delattr,
  ACT_object_getattr,
  ACT_object_reduce,
  ACT_getset_get,
  ACT_lru_cache,
  ACT_partial,
  ACT_backward,
  ACT_getter,
  ACT_one_hot,
  ACT_attention,
  ACT_pick, /* by a number out of a tensor, or as it is */
  ACT_grad_mode,
  ACT_node_hook,
  ACT_asks_function,
  ACT_setting,
  ACT_query,
  ACT_dual_enter,
  ACT_dual_exit,
  ACT_context_enter,
  ACT_context_exit,
  ACT_build_class,
  ACT_consumer,
  ACT_extreme,
  ACT_plain_data,
  ACT_weakref,
  ACT_weakref_get,
  ACT_dir,
  ACT_format,
  ACT_contextvar_get,
  ACT_contextvar_set,
  ACT_with_numbers,
  ACT_draw,
  ACT_tensor_class,
  ACT_tensor_new,
  ACT_as_subclass,
  ACT_make_subclass,
  ACT_node_name,
  ACT_tensor /* torch.tensor: run, unless it is given numbers of the graph */
} MgAction;

typedef struct MgVerdict {
  uint8_t action; /* MgAction */
  bool older;     /* older objects whose state lives in C may be passed */
} MgVerdict;

MgVerdict mg_policy_of(PyObject *callable);
/* "collections.deque.append", for messages; text is written to buf. */
const char *mg_policy_name(PyObject *callable, char *buf, size_t n);
const char *mg_policy_method(PyObject *callable, char *buf,
                             size_t n); /* what stands behind the last dot of it */
#endif
