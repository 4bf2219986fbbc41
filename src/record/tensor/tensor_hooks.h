/* Hooks that the program registers on tensors while recording: Tensor.register_hook,
 * register_post_accumulate_grad_hook. On an older tensor the registration is an effect: the snapshot does it
 * after the graph, and what that gives is the handle. On a tensor that the
 * recording makes, and whose backward pass or gradient graph is recorded, the stand-in gets the hook: the
 * engine calls it while recording.  Otherwise it is a node, magneto_hook::point, whose result carries the
 * handle; such a graph runs op by op under autograd, or as a custom backend pleases.  Hooks that an older
 * leaf has are recorded when a backward pass of the recording runs them. */
#ifndef MG_TENSOR_HOOKS_H
#define MG_TENSOR_HOOKS_H
#include "entry/guard/source_kinds.h"
#include "ir/graph/graph.h"

typedef struct MgIdent MgIdent;
typedef struct MgRec MgRec;

typedef struct MgHook {
  PyObject *with;   /* borrowed: what the snapshot calls with (tensor, hook) to get the handle */
  PyObject *tensor; /* strong: the stand-in of an older tensor, or of the node's result */
  PyObject *hook;   /* strong */
  PyObject *handle; /* strong: what the program sees as the handle */
  ValRef val;       /* of the tensor when the hook was registered */
  NodeRef after;    /* the nodes from here on came later */
  PyObject *dict;   /* strong: with `made`, what its tensor's gradient node calls */
  bool removed;     /* handle.remove() was called */
  bool made;        /* on a tensor that the recording made: the engine runs it while recording */
} MgHook;

/* self.register_hook(hook), or with `accumulate` the other one; self is a stand-in. */
PyObject *mg_tensorhook_register(PyObject *self, PyObject *hook, bool accumulate);
/* The stand-in of an older leaf, at src, gets its dict of hooks: a backward pass of the recording runs
 * them.  -1 with an exception. */
int mg_tensorhook_older(MgRec *r, PyObject *standin, PyObject *hooks, SrcRef src, bool accumulate);
/* handle.remove(): 1 done; 0: an older handle, to be recorded like any call; -1 with a break. */
int mg_tensorhook_remove(PyObject *handle);
/* Is it a handle of the recording's own?  It has no attributes yet. */
bool mg_tensorhook_is_handle(PyObject *o);
/* Checks that the tensors are still what they were: -1 with a break. */
int mg_tensorhook_check(MgRec *r);
/* Does the graph have a magneto_hook::point? */
bool mg_tensorhook_inside(const MgRec *r);
/* Does a backward pass of the recording miss hooks, which are registered when the graph has run? */
bool mg_tensorhook_waits(const MgRec *r);
/* Is a tensor whose hook runs in the recording's backward passes one of these results? */
bool mg_tensorhook_on_result(const MgRec *r, const ValRef *out, int nout);
/* All hooks that the recording's backward passes run become part of the gradient graph (cap->hooked): 1; 0:
 * one holds what only the recording knows; -1 with an exception. */
int mg_tensorhook_join(MgRec *r);
/* Are there such hooks? */
bool mg_tensorhook_any_made(const MgRec *r);
/* Around a call of a custom backend: has it traced a magneto_hook::point instead of running it? */
void mg_tensorhook_watch(void);
bool mg_tensorhook_traced(void);
void mg_tensorhook_free(struct MgIdent *d);
#endif
