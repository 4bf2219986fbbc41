/* Numbers that a recording computes with: floats and ints that differ from call to call (automatic_dynamic.c
 * says which), and those that depend on values of tensors (item_numbers.c).  User code sees an object like a
 * float, int or bool.  Arithmetic is done by Python in every run; answers to questions about the former are
 * guarded.  PyTorch sees a torch.SymFloat or SymInt and hands it to the dispatch mode, which turns it into a
 * 0-dim tensor.  Whoever wants the number itself gets it, guarded by equality, or ends the graph when it
 * depends on the values of tensors. */
#ifndef MG_NUMBER_H
#define MG_NUMBER_H
#include "entry/guard/source_kinds.h"
#include "ir/graph/graph.h"

typedef struct MgCapture MgCapture;
typedef struct MgSymNode MgSymNode;

typedef struct MgSymTypes {            /* strong references, process lifetime; filled by mg_symfloat_init */
  PyTypeObject *float_, *int_, *bool_; /* ours */
  PyTypeObject *torch_float, *torch_int, *torch_bool; /* torch.SymFloat, torch.SymInt, torch.SymBool */
  PyObject *node_name;
} MgSymTypes;
extern MgSymTypes mg_sym_types;
extern PyTypeObject mg_symnode_type; /* sym_node.c */

bool mg_symfloat_is(PyObject *o);      /* ours, or a torch.SymFloat, SymInt or SymBool around one of ours */
bool mg_symfloat_is_bool(PyObject *o); /* such a truth value */
PyTypeObject *mg_symfloat_class(PyObject *o); /* float, int or bool, or NumPy's class of a number; borrowed */
bool mg_symfloat_is_numpy(PyObject *o);       /* such a number of one of NumPy's classes */
PyObject *mg_symfloat_of(MgSymNode *n); /* the number object of a node, which is stolen; NULL stays NULL */
void mg_symnode_expect(MgCapture *cap, SrcRef src, PyObject *want); /* guards what it is */
/* hint is stolen, NULL for numbers that depend on tensors. */
MgSymNode *mg_symnode_new(MgCapture *cap, SrcRef src, PyObject *hint);
MgSymNode *mg_symnode_of(PyObject *o); /* of a node or a number object, borrowed; NULL: something else */
MgSymNode *mg_symnode_value(MgCapture *cap,
                            char kind); /* new, for item_numbers.c to fill; NULL with an exception */
#endif
