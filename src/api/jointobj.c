/* _magneto.Joint: compiles the text of a joint graph and runs its halves.  The test harness of partitioning:
 * no autograd, no version checks, tensors must be what the text says. */
#include <stdlib.h>
#include <string.h>
#include "driver/compile.h"
#include "driver/options.h"
#include "entry/launch/op_call.h"
#include "entry/launch/plan_call.h"
#include "ir/graph/joint_spec.h"
#include "runtime/plan/plan_priv.h"

typedef struct JointObj {
  PyObject_HEAD MgJointPlans p;
} JointObj;

static MgRc joint_compile(JointObj *self, MgCtx *c, const char *text, const MgJointSpec *spec,
                          const MgOptions *o) {
  MgExprs x;
  MgGraph g;
  MgHostOps fwd, bwd;
  TRY(mg_exprs_init(&x, c));
  TRY(mg_graph_init(&g, c, &x));
  TRY(mg_graph_parse(&g, text));
  TRY(mg_graph_verify(&g, "parse"));
  if (mg_nodecall_hostops(NULL, &fwd)) return MG_PYERR;
  if (mg_nodecall_hostops(NULL, &bwd)) {
    fwd.host.free(fwd.host.self);
    return MG_PYERR;
  }
  return mg_compile_joint(&g, spec, o, &fwd, &bwd, NULL, &self->p);
}

static PyObject *joint_new(PyTypeObject *type, PyObject *args, PyObject *kw) {
  static char *names[] = {"text", "nprimal", "nfwd", "backward", "keep_layout", "threads", NULL};
  const char *text;
  int keep = 0, threads = 0;
  MgJointSpec spec = {0};
  MgCtx c;
  if (!PyArg_ParseTupleAndKeywords(args, kw, "sII|Ipi:Joint", names, &text, &spec.nprimal, &spec.nfwd,
                                   &spec.backward, &keep, &threads))
    return NULL;
  JointObj *self = (JointObj *)type->tp_alloc(type, 0);
  if (!self) return NULL;
  MgOptions o = {.keep_layout = keep, .threads = threads};
  mg_ctx_init(&c);
  MgRc rc = joint_compile(self, &c, text, &spec, &o);
  if (rc != MG_OK) {
    char msg[700];
    snprintf(msg, sizeof msg, "%s (%s, %s:%d)", c.rc == MG_OK ? "no message" : c.msg, mg_rc_text(rc),
             c.file ? c.file : "", c.line);
    mg_planrun_raise(rc, msg);
    Py_CLEAR(self);
  }
  mg_ctx_free(&c);
  return (PyObject *)self;
}

static void joint_dealloc(JointObj *self) {
  if (self->p.fwd) mg_plan_free(self->p.fwd);
  if (self->p.bwd) mg_plan_free(self->p.bwd);
  free(self->p.saved);
  Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyObject *joint_run(MgPlan *p, PyObject *const *args, Py_ssize_t n) {
  MgPlanInfo info;
  mg_plan_info(p, &info);
  if (n != info.ninput)
    return PyErr_Format(PyExc_TypeError, "the graph has %d inputs, not %zd", info.ninput, n);
  PyObject *res = PyTuple_New(info.noutput);
  if (!res || !mg_planrun(p, args, NULL, ((PyTupleObject *)res)->ob_item)) return res;
  Py_DECREF(res);
  return NULL;
}

/* forward(*primals) -> (outputs, saved) */
static PyObject *joint_forward(JointObj *self, PyObject *const *args, Py_ssize_t n) {
  PyObject *all = joint_run(self->p.fwd, args, n), *saved = all ? PyTuple_New(self->p.nsaved) : NULL,
           *outs = NULL;
  for (uint32_t i = 0; saved && i < self->p.nsaved; i++) {
    MgSaved s = self->p.saved[i];
    PyObject *t = s.kind == MG_SAVED_primal
                      ? args[s.index]
                      : PyTuple_GET_ITEM(all, s.index + (s.kind == MG_SAVED_output ? 0 : self->p.nfwd));
    PyTuple_SET_ITEM(saved, i, Py_NewRef(t));
  }
  if (saved) outs = PyTuple_GetSlice(all, 0, self->p.nfwd);
  PyObject *res = outs ? PyTuple_Pack(2, outs, saved) : NULL;
  Py_XDECREF(outs);
  Py_XDECREF(saved);
  Py_XDECREF(all);
  return res;
}

static PyObject *joint_backward(JointObj *self, PyObject *const *args, Py_ssize_t n) {
  return joint_run(self->p.bwd, args, n);
}

static PyObject *joint_half(const MgPlan *p) {
  MgPlanInfo i;
  mg_plan_info(p, &i);
  return Py_BuildValue("{s:i,s:i,s:i,s:K}", "kernels", i.nkernel, "externs", i.nextern, "host_calls", i.nhost,
                       "arena_bytes", (unsigned long long)i.arena_bytes);
}

static PyObject *joint_info(JointObj *self, PyObject *unused) {
  static const char *const kind[] = {"primal", "output", "intermediate"};
  PyObject *list = PyList_New(0);
  for (uint32_t i = 0; list && i < self->p.nsaved; i++) {
    PyObject *o = Py_BuildValue("(sI)", kind[self->p.saved[i].kind], self->p.saved[i].index);
    if (!o || PyList_Append(list, o)) Py_CLEAR(list);
    Py_XDECREF(o);
  }
  if (!list) return NULL;
  return Py_BuildValue("{s:N,s:I,s:I,s:I,s:I,s:K,s:N,s:N}", "saved", list, "outputs", self->p.nfwd,
                       "intermediates", self->p.nintermediate, "tangents", self->p.ntangent, "gradients",
                       self->p.ngrad, "saved_bytes", (unsigned long long)self->p.saved_bytes, "forward",
                       joint_half(self->p.fwd), "backward", joint_half(self->p.bwd));
}

static PyMethodDef joint_methods[] = {
    {"forward", (PyCFunction)(void (*)(void))joint_forward, METH_FASTCALL,
     "forward(*primals) -> (outputs, saved)"},
    {"backward", (PyCFunction)(void (*)(void))joint_backward, METH_FASTCALL,
     "backward(*saved, *tangents) -> gradients"},
    {"info", (PyCFunction)joint_info, METH_NOARGS, "What is saved; counts and sizes of both plans."},
    {NULL, NULL, 0, NULL}};

static PyTypeObject joint_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "magneto._magneto.Joint",
    .tp_basicsize = sizeof(JointObj),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc =
        "Joint(text, nprimal, nfwd, backward=0, keep_layout=False, threads=0): a compiled joint graph text.",
    .tp_new = joint_new,
    .tp_dealloc = (destructor)joint_dealloc,
    .tp_methods = joint_methods};

int mg_jointobj_init(PyObject *module) {
  if (PyType_Ready(&joint_type)) return -1;
  return PyModule_AddObjectRef(module, "Joint", (PyObject *)&joint_type);
}
