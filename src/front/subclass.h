/* Tensors of classes of the program that change what torch's functions do with them (__torch_function__) or only add attributes
 * and methods; classes with a __torch_dispatch__ of their own are no such ones.
 * Their stand-ins are instances of a class made for the recording, derived from the program's class and from the stand-in type, in
 * this order: what the program's class defines comes first, what a stand-in overrides comes before torch.Tensor. */
#ifndef MG_FRONT_SUBCLASS_H
#define MG_FRONT_SUBCLASS_H
#include "front/standin.h"

int mg_subclass_init(void);
/* Can tensors of this class have stand-ins? */
bool mg_subclass_known(PyTypeObject *c);
/* The class of their stand-ins: borrowed from the capture; NULL with a break or an exception. */
PyTypeObject *mg_subclass_type(MgCapture *cap, PyTypeObject *c);
/* The program's class behind the class of a stand-in (borrowed), or t itself. */
static inline PyTypeObject *mg_subclass_of(PyTypeObject *t) {
  return t->tp_base == mg_standin_type ? (PyTypeObject *)PyTuple_GET_ITEM(t->tp_bases, 0) : t;
}
/* An alias of a stand-in, or with detach set one outside of autograd, that is of class c.  New. */
PyObject *mg_subclass_cast(PyObject *standin, PyTypeObject *c, bool detach);
/* On results of a graph: t becomes an instance of class c, or, shared with others, gets an alias that is one.  Steals t. */
PyObject *mg_subclass_dress(PyObject *t, PyTypeObject *c, bool shared);
/* Are the classes of the program asked in a call of func with these types?  Then the torch-level graph waits for what they do. */
bool mg_subclass_among(const MgCapture *cap, PyObject *types);
#endif
