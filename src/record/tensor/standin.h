/* The tensor side of a recording: stand-ins, the dispatch mode and what the graph's nodes need of Python.
 * A stand-in is a torch.Tensor subclass instance that claims the real dtype, device, sizes and strides and
 * owns no memory.  Its place in the graph is kept in an MgStandInfo object behind one C slot of the instance,
 * so it lives exactly as long as the stand-in does.  The recording itself never holds a stand-in:
 * autograd steers by use counts. */
#ifndef MG_STANDIN_H
#define MG_STANDIN_H
#include "entry/guard/source_kinds.h"
#include "ir/graph/graph.h"

typedef struct MgCapture MgCapture;
typedef struct MgRec MgRec;

/* Imports torch, makes the types, adds the methods to the extension module.  -1 with an exception. */
int mg_standin_init(PyObject *module);
/* The recording is over, and its views find their history again: ops of its stand-ins give any tensor. */
extern bool mg_standin_cutting;
/* A new stand-in for a graph value. */
PyObject *mg_standin_new(MgCapture *cap, ValRef val);
/* The graph value of a real tensor met as an argument: a constant that the entry keeps
 * alive.  0 with an exception. */
ValRef mg_standin_pin(MgCapture *cap, PyObject *tensor);
/* Makes a tensor that wraps others a graph input, which only the torch-level graph can read: its
 * value; 0 with an exception. */
ValRef mg_standin_outer_input(MgCapture *cap, PyObject *tensor, SrcRef src);
/* Appends a gradient of a result to the graph's inputs: no tensor of the recording.  -1 with an exception. */
int mg_standin_add_tangent(MgCapture *cap, ValRef val);
/* Turns autocast off until mg_standin_end restores it.  -1 with an exception. */
int mg_standin_autocast_off(void);
/* Makes a 0-dim tensor of a float from src a graph input: its value; 0 with an exception. */
ValRef mg_standin_scalar_input(MgCapture *cap, PyObject *tensor, SrcRef src);
/* The stand-in of a NumPy array from src, over whose memory the real tensor lies; NULL with an exception. */
PyObject *mg_standin_array_input(PyObject *tensor, SrcRef src);
/* The recording relies on whether an input that requires grad is a leaf. */
void mg_standin_guard_leaf(const MgCapture *cap, uint32_t input);
/* Was autocast on, for any device type, when the recording began? */
bool mg_standin_autocast_on(const MgCapture *cap);
/* Index of a Python object in cap->objs; -1 with an exception. */
long mg_standin_object(MgCapture *cap, PyObject *o);
/* Fills a value's metadata from a real tensor.  False: a kind of tensor that is not
 * recorded (reason in why). */
bool mg_standin_describe(MgGraph *g, PyObject *tensor, ValRef *val, const char **why);
struct MgFrontOp;

/* ---- meta_kernel.c ---- */
/* Fills in the results of node n by running torch's meta kernel.  Non-tensor results go to *pyret (new; NULL
 * when all are tensors).  -1 with an exception: torch's own error, or a break; META_DATA: some size depends
 * on data (but while those are tried, when it is made up). */
enum { META_DATA = 1 };

/* ---- graph_interp.c: the graph node by node through ATen, under autograd when it is on ---- */
typedef struct MgNodeRun MgNodeRun;
struct MgCallSizes;

/* Methods for the extension module: recording one callable without the frame loop
 * (tests of the tensor side). */
extern PyMethodDef mg_tensor_methods[];
PyObject *mg_standin_input(PyObject *tensor, SrcRef src); /* stand-in of an older tensor: a graph input */
void mg_compared_one(PyObject *o);
/* Autocast: enabled and dtype per device type, and the cache flag. */
extern const char *const mg_standin_autocast_devices[];
/* What was last assigned to `.data` of an input, borrowed; NULL: nothing. */
PyObject *mg_standin_swapped(const MgCapture *cap, PyObject *standin);
void mg_compared_tensor(PyObject *standin);
#endif
