/* The torch-level graph of a recording, as a real torch.fx.GraphModule, for custom backends and explain. */
#ifndef MG_FX_H
#define MG_FX_H
#include "entry/guard/source_kinds.h"
#include "ir/graph/graph.h"

typedef struct MgCapture MgCapture;
typedef struct MgRec MgRec;
typedef struct MgSymNode MgSymNode;

/* Starts an FX graph for the capture and pushes the torch-function mode.  -1 with an exception. */
int mg_fx_begin(MgCapture *cap);
void mg_fx_end(MgCapture *cap); /* detaches the mode; the graph stays until mg_fx_free */
void mg_fx_free(MgCapture *cap);
PyObject *mg_fx_mode(MgCapture *cap); /* borrowed: the torch-function mode */
/* One torch-level call, in two steps because in-place calls rebind their arguments: what it reads, before it
 * runs, and its node, once its result is known. */
typedef struct MgFxCall {
  NodeRef from;            /* the first ATen node that it may record */
  PyObject *args, *kwargs; /* with tensors replaced by nodes, strong; NULL: some tensor has no node */
  bool keep;               /* part of the graph even when it gives no tensor and changes none */
} MgFxCall;
int mg_fx_before(MgCapture *cap, PyObject *args, PyObject *kwargs, MgFxCall *c); /* -1 with an exception */
int mg_fx_after(MgCapture *cap, PyObject *func, PyObject *args, PyObject *kwargs, MgFxCall *c,
                PyObject *result);
/* Appends a call that torch's function mode does not see; args and kwargs (may be NULL) hold nodes for
 * tensors.  The node's number, 0 with an exception. */
uint32_t mg_fx_call(MgCapture *cap, PyObject *target, PyObject *args, PyObject *kwargs);
bool mg_fx_calls(const MgCapture *cap);                /* has it calls, whatever becomes of their results? */
PyObject *mg_fx_item(MgCapture *cap, uint32_t number); /* borrowed */
/* The graph has to be written from ATen nodes: something happens that no torch-level call shows. */
void mg_fx_use_aten(MgCapture *cap);
bool mg_fx_is_aten(const MgCapture *cap);
/* May the autograd engine run in this graph?  Its ops are ATen's; torch.compile leaves them
 * out unless it is told so. */
bool mg_fx_takes_engine(MgCapture *cap);
bool mg_fx_shows(MgCapture *cap, const ValRef *out,
                 int n); /* have torch-level calls made all of these values? */
/* pair: a tensor that wraps others, and the name of the attribute v of it. */
int mg_fx_attr(MgCapture *cap, PyObject *pair, PyObject *v);
int mg_fx_same(MgCapture *cap, ValRef now, ValRef was); /* two values that one node of the graph stands for */
void mg_fx_drop(MgFxCall *c);
/* The ATen nodes from first on as a torch.fx.GraphModule of its own, between these values.
 * New; NULL with an exception. */
PyObject *mg_fx_part(MgRec *r, NodeRef first, const ValRef *in, uint32_t nin, const ValRef *out,
                     uint32_t nout);
/* Shows node n, which no torch-level call stands for. */
int mg_fx_show(MgCapture *cap, NodeRef n);
enum { MG_FX_SYMBOL = 1 << 30 };
/* The 0-dim value of a number that depends on data was made: in calls it stands for the number. */
int mg_fx_late_value(MgCapture *cap, MgSymNode *n);
/* Does a torch-level graph compute f of the number with that source? */
bool mg_fx_computes(const MgCapture *cap, SrcRef src, PyObject *f);
/* A call of torch that sees numbers only; nothing when there is no torch-level graph of
 * calls.  -1 with an exception. */
int mg_fx_number_call(MgCapture *cap, PyObject *fn, PyObject *const *arg, Py_ssize_t n);
/* Finishes the graph: outputs are the graph's.  New torch.fx.GraphModule; *inputs receives, malloc'ed, the
 * index into cap->input of each placeholder, or MG_FX_SYMBOL and the number of a symbol, *ninput
 * entries.  NULL with an exception. */
PyObject *mg_fx_module(MgRec *r, uint32_t **inputs, uint32_t *ninput);

/* ---- fx_explain.c: new; the graph of a recording that has none, or a text that says why it cannot be shown.
 * NULL with an exception. */
PyObject *mg_fx_explain(MgRec *r);

/* ---- fx_function_mode.c ---- */
int mg_torchfn_init(void);
PyObject *mg_torchfn_mode_new(MgCapture *cap);
void mg_torchfn_mode_end(PyObject *mode);
#endif
