/* Tensors whose memory is read through a bit: the conj bit of conj() and the neg bit of imag of it.
 * Stand-ins carry the bits of the values they stand for, so that torch asks and clears them as it does for real tensors;
 * compiled graphs hold memory only (middle/functionalize), and results get their bits when a run is over. */
#include "front/lazybits.h"
#include "front/names.h"

void mg_lazybits_follow(MgGraph *g, NodeRef n) {
  const MgNode *node = mg_node(g, n);
  const MgOp *op = node->op;
  if (!op->is_view || op->mutates) return;
  for (int i = 0; i < node->narg; i++) {
    if (op->param[i].alias_set < 0 || node->arg[i].tag != MA_val) continue;
    uint8_t bits = mg_val(g, node->arg[i].u.val)->bits ^ mg_op_bit(op);
    for (int k = 0; bits && k < node->nout; k++)
      if (node->out[k]) mg_val(g, node->out[k])->bits = bits;
    return;
  }
}

static int lazybits_call(PyObject **fn, const char *name, PyObject *tensor) {
  if (!*fn) {
    PyObject *c = mg_import("torch._C");
    *fn = c ? PyObject_GetAttrString(c, name) : NULL;
    Py_XDECREF(c);
    if (!*fn) return -1;
  }
  PyObject *r = PyObject_CallFunctionObjArgs(*fn, tensor, Py_True, NULL);
  Py_XDECREF(r);
  return r ? 0 : -1;
}

int mg_lazybits_set(PyObject *tensor, uint8_t bits) {
  static PyObject *set_conj, *set_neg;
  if (bits & MG_BIT_conj && lazybits_call(&set_conj, "_set_conj", tensor)) return -1;
  return bits & MG_BIT_neg ? lazybits_call(&set_neg, "_set_neg", tensor) : 0;
}
