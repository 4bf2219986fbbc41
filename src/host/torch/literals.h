/* Python objects that ATen arguments hold (dtypes, layouts, devices, memory formats, numbers) <-> MgArg, and
 * OpOverload <-> MgOp. */
#ifndef MG_LITERALS_H
#define MG_LITERALS_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

typedef struct MgArg MgArg;
typedef struct MgGraph MgGraph;
typedef struct MgOp MgOp;

int mg_torchobj_init(void); /* needs torch imported; -1 with an exception */
/* torch's number of a dtype, layout or memory format object; -1 when it is none. */
int mg_torchobj_dtype(PyObject *o);
int mg_torchobj_layout(PyObject *o);
int mg_torchobj_memory_format(PyObject *o);
bool mg_torchobj_device(PyObject *o, int *type, int *index);
/* New references; NULL with an exception. */
PyObject *mg_torchobj_new_dtype(int code);
PyObject *mg_torchobj_new_device(int type, int index);
/* The Python object of an argument without tensors; objs is the list that MA_object indexes. */
PyObject *mg_torchobj_from_arg(MgGraph *g, const MgArg *a, PyObject *objs);
/* A literal (not a tensor, not a list) into *out.  1 done, 0 not a literal known
 * here, -1 with an exception. */
int mg_torchobj_to_arg(MgGraph *g, PyObject *o, int kind, MgArg *out);

/* What the dispatch mode does with an op. */
typedef enum MgOpFate {
  FATE_record,
  FATE_break_value,  /* its result depends on tensor values: data_dependent */
  FATE_break_mask,   /* the same when an index is a mask (bool or byte); else recorded */
  FATE_record_grad,  /* recorded; its kernel asks whether autograd is on */
  FATE_record_dense, /* recorded, or run as other ops where its argument `sparse` is true */
  FATE_break_memory, /* gives a tensor another memory, or more of it */
  FATE_break_layout, /* takes or gives a tensor that is not strided */
  FATE_break_op,     /* cannot be recorded */
  FATE_decompose,    /* composite: arrives whole under inference mode */
  FATE_run           /* no tensors involved (profiler marks): run, do not record */
} MgOpFate;

typedef struct MgFrontOp {
  const MgOp *op;
  PyObject *func;    /* torch._ops.OpOverload, strong */
  PyObject *call;    /* its _op: the fastest way to call it, strong */
  PyObject **deflt;  /* per parameter: default value, strong, or NULL */
  PyObject **name;   /* per parameter: interned name, strong */
  uint8_t fate;      /* MgOpFate */
  bool inplace_view; /* changes the metadata of its argument */
  bool lift_fresh;   /* marks a constant made from Python data */
  bool zero_tensor;  /* zeros without memory */
  bool detach;       /* the result is cut from autograd */
  bool data_shape;   /* how large its results are depends on its data */
  bool plain;        /* all returns are tensors or tensor lists */
  PyObject *parts;   /* FATE_decompose, FATE_record_dense: the callable that runs the op as others */
} MgFrontOp;

/* Borrowed, process lifetime; NULL with an exception. */
const MgFrontOp *mg_frontop_find(PyObject *opoverload);
const MgFrontOp *mg_frontop_of(const MgOp *op); /* through torch.ops.<namespace>.<name>.<overload> */
#endif
