/* autograd.Function in a recording: its forward and backward are recorded like everything else, and PyTorch's own engine on
 * stand-ins ties them together.  What is kept of a call is needed when the graph has to run op by op under autograd: the ops
 * of forward know nothing of the backward that the user wrote, so the function itself is called in their place. */
#ifndef MG_FRONT_FUNCTION_H
#define MG_FRONT_FUNCTION_H
#include "front/record_obj.h"
#include "front/standin.h"

typedef struct MgFunction { /* one call; in the recording's arena */
  struct MgFunction *next;  /* in the order of the graph */
  NodeRef first, end;       /* the nodes that forward recorded */
  PyObject *apply;          /* kept by cap->objs, like obj */
  PyObject **obj;           /* arguments that are no tensors */
  ValRef *in, *out;         /* by argument and by result; 0: not a tensor */
  ValRef *saved;            /* what forward gave to save_for_backward */
  uint32_t nin, nout, nsaved;
  bool hooked;              /* it is there for the hooks on its node, which the graph cannot show */
  bool once;                /* some argument is an object of the recording, or it has side effects: it cannot be called again */
} MgFunction;

/* Records a call of _FunctionBase.apply while autograd is on. */
PyObject *mg_function_apply(const MgCall *c);
/* Records a call of the register_hook or register_prehook of such a call's node: what it returns is the recording's own. */
PyObject *mg_function_hook(const MgCall *c);
/* Records torch's custom_function_call(cls, *args), what apply is inside of transforms, for a torch-level graph.  False: there is none. */
bool mg_function_transformed(const MgCall *c, PyObject **out);
/* The call whose forward recorded node n, or NULL. */
const MgFunction *mg_function_of(const MgCapture *cap, NodeRef n);
/* Can the function stand for its nodes?  Not when one of their values is used elsewhere. */
bool mg_function_whole(const MgRec *r, const MgFunction *f);
bool mg_function_all_whole(const MgRec *r);
/* Are there calls that have to be run by a backward pass in the same recording? */
bool mg_function_any_hooked(const MgRec *r);
bool mg_function_any_once(const MgRec *r);
/* By storage: memory that nothing but functions' own forward and backward reads, which keep it on ctx as they like: no version
 * check finds writes to it.  In the recording's arena, NULL: there is none; -1: out of memory. */
int mg_function_loose(const MgRec *r, NodeRef end, bool **loose);
/* Runs it on real tensors, in: borrowed, by argument; out: new references, by result (NULL: no tensor). */
int mg_function_run(PyObject *apply, PyObject *const *arg, uint32_t narg, PyObject **out, uint32_t nout);
#endif
