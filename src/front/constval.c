/* See the header.  In: values of the graph being recorded.  Out: the constants that they copy.  Follows copies and aliases only. */
#include "front/constval.h"
#include <string.h>

/* Does the graph write to this storage? */
static bool constval_written(const MgGraph *g, uint32_t storage) {
  for (uint32_t i = 1; i < g->nnode; i++) {
    const MgNode *n = &g->node[i];
    if (n->dead || !n->op->mutates) continue;
    for (int k = 0; k < n->narg && k < n->op->nparam; k++) {
      const MgArg *a = &n->arg[k];
      uint32_t many = a->tag == MA_list ? a->n : 1;
      if (!n->op->param[k].writes) continue;
      for (uint32_t j = 0; j < many; j++) {
        const MgArg *one = a->tag == MA_list ? &a->u.item[j] : a;
        if (one->tag == MA_val && one->u.val && g->val[one->u.val].storage == storage) return true;
      }
    }
  }
  return false;
}

PyObject *mg_constval(MgCapture *cap, ValRef v) {
  static const char *const copies[] = {"aten::clone", "aten::detach", "aten::alias", "aten::lift_fresh", NULL};
  MgGraph *g = cap->rec->g;
  while (v && g->val[v].def) {
    const MgNode *n = &g->node[g->val[v].def];
    int i = 0;
    while (copies[i] && strcmp(copies[i], n->op->full)) i++;
    if (!copies[i] || !n->narg || n->arg[0].tag != MA_val || constval_written(g, g->val[v].storage)) return NULL;
    v = n->arg[0].u.val;
  }
  for (uint32_t i = 0; v && i < cap->ninput; i++)
    if (cap->input[i].val == v) return cap->input[i].pinned && !constval_written(g, g->val[v].storage) ? cap->input[i].real : NULL;
  return NULL;
}

static PyObject *constval_of(MgCapture *cap, PyObject *o) {
  return mg_standin_is(o) ? mg_constval(cap, mg_standin_val(o)) : NULL;
}

PyObject *mg_constval_call(MgCapture *cap, PyObject *func, PyObject *args) {
  PyObject *real = PyTuple_GET_SIZE(args) == 1 ? constval_of(cap, PyTuple_GET_ITEM(args, 0)) : NULL;
  return real ? PyObject_CallOneArg(func, real) : NULL;
}

/* Appends the positions of the true elements of a mask, one tensor per dimension. */
static int constval_positions(PyObject *mask, PyObject *out) {
  PyObject *p = PyObject_CallMethod(mask, "nonzero", NULL), *cols = p ? PyObject_CallMethod(p, "unbind", "i", 1) : NULL;
  PyObject *fast = cols ? PySequence_Fast(cols, "unbind") : NULL;
  int rc = fast ? 0 : -1;
  for (Py_ssize_t i = 0; !rc && i < PySequence_Fast_GET_SIZE(fast); i++) {
    PyObject *col = PyObject_CallMethod(PySequence_Fast_GET_ITEM(fast, i), "clone", NULL);
    rc = col ? PyList_Append(out, col) : -1;
    Py_XDECREF(col);
  }
  Py_XDECREF(p);
  Py_XDECREF(cols);
  Py_XDECREF(fast);
  return rc;
}

PyObject *mg_constval_index(MgCapture *cap, PyObject *args) {
  PyObject *list = PyTuple_GET_SIZE(args) > 1 ? PyTuple_GET_ITEM(args, 1) : NULL, *out = NULL, *r = NULL;
  if (!list || !PyList_Check(list) || !(out = PyList_New(0))) return NULL;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); i++) {
    PyObject *x = PyList_GET_ITEM(list, i);
    int dtype = mg_standin_is(x) ? mg_val(cap->rec->g, mg_standin_val(x))->dtype : DT_i64;
    bool mask = dtype == DT_bool || dtype == DT_u8;
    PyObject *real = mask ? constval_of(cap, x) : NULL;
    if (mask && !real) goto done;
    if (mask ? constval_positions(real, out) : PyList_Append(out, x)) goto done;
  }
  r = PyTuple_Pack(2, PyTuple_GET_ITEM(args, 0), out);
done:
  Py_DECREF(out);
  return r;
}
