/* Tensors of classes of the program that change what torch's functions do with them (__torch_function__) or
 * only add attributes and methods; classes with a __torch_dispatch__ of their own are no such ones.
 * Their stand-ins are instances of a class made for the recording, derived from the program's class and from
 * the stand-in type, in this order: what the program's class defines comes first, what a stand-in overrides
 * comes before torch.Tensor. */
#ifndef MG_SUBCLASS_H
#define MG_SUBCLASS_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

typedef struct MgCapture MgCapture;

int mg_subclass_init(void);
/* Can tensors of this class have stand-ins? */
bool mg_subclass_known(PyTypeObject *c);
/* The class of their stand-ins: borrowed from the capture; NULL with a break or an exception. */
PyTypeObject *mg_subclass_type(MgCapture *cap, PyTypeObject *c);
/* An alias of a stand-in, or with detach set one outside of autograd, that is of class c.  New. */
PyObject *mg_subclass_cast(PyObject *standin, PyTypeObject *c, bool detach);
/* Are the classes of the program asked in a call of func with these types?  Then the torch-level
 * graph waits for what they do. */
bool mg_subclass_among(const MgCapture *cap, PyObject *types);
#endif
