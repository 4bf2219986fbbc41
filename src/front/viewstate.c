/* See the header.  Kernels know memory only: a result over the memory of an input comes out as a tensor of its own, and an input that
 * was written has been written once.  The program may see more: a write through a view that autograd tracks makes its base part of
 * the gradient graph, backward compares version counters, and inference tensors have only such views.
 * In: the recorded graph, version counters of stand-ins, which torch keeps.  Out: views and counters as eager has them.
 * Does not do: views of a tensor that is no result itself; the running statistics that a batch norm writes. */
#include "front/viewstate.h"
#include <stdlib.h>
#include <string.h>
#include "front/facts.h"
#include "front/fmodes.h"
#include "front/guard.h"
#include "front/identity.h"
#include "front/inference_mode.h"
#include "front/names.h"
#include "front/source.h"

typedef struct View {
  uint32_t out, base;    /* base: input, or ninput + result */
  bool grad;             /* made in grad mode */
} View;

typedef struct Version { uint32_t input, by; } Version;

struct MgViewState {
  View *view;
  Version *version;
  uint32_t nview, nversion, ninput;
  bool joint;            /* the forward run sets the counters, before it saves inputs for backward */
};

static PyObject *view_names[3]; /* _version, _base, as_strided */

static PyObject *view_name(int i) {
  static const char *const text[] = {"_version", "_base", "as_strided"};
  if (!view_names[i]) view_names[i] = PyUnicode_InternFromString(text[i]);
  return view_names[i];
}

/* The attribute as torch has it: a stand-in's own says what the program sees. */
static PyObject *view_get(PyObject *t, int name) {
  static PyObject *descr[2];
  PyObject *n = view_name(name);
  if (!descr[name] && (!n || !(descr[name] = PyObject_GetAttr((PyObject *)mg_tensor_type, n)))) return NULL;
  return Py_TYPE(descr[name])->tp_descr_get(descr[name], t, (PyObject *)mg_tensor_type);
}

static int view_number(PyObject *t, int64_t *n) {
  const uint32_t *counter = mg_facts_version(t);
  if (counter) return *n = __atomic_load_n(counter, __ATOMIC_SEQ_CST), 0;
  PyObject *v = view_get(t, 0);
  *n = v ? PyLong_AsLongLong(v) : -1;
  Py_XDECREF(v);
  return PyErr_Occurred() ? -1 : 0;
}

/* ---- what the program reads ---- */

static const MgCapInput *view_owner(const MgCapture *cap, ValRef v, int *n) {
  const MgCapInput *found = NULL;
  *n = 0;
  for (uint32_t i = 0; i < cap->ninput; i++) {
    const MgCapInput *in = &cap->input[i];
    if (!in->real || in->scalar || in->outer || mg_val(cap->rec->g, in->val)->storage != mg_val(cap->rec->g, v)->storage) continue;
    found = in;
    ++*n;
  }
  return found;
}

/* Have both one version counter?  1, 0, or -1 with an exception. */
static int view_counts_alike(PyObject *a, PyObject *b) {
  int64_t n, m, now;
  if (a == b) return 1;
  if (view_number(a, &n) || view_number(b, &m) || n != m) return PyErr_Occurred() ? -1 : 0;
  if (mg_facts_set_version(a, n + 1) || view_number(b, &now) || mg_facts_set_version(a, n)) return -1;
  return now == n + 1;
}

PyObject *mg_viewstate_version(PyObject *self) {
  MgStandInfo *info = mg_standin_info(self);
  MgRec *r = info->cap->rec;
  int n;
  if (mg_inference_mode_of(info->cap, info->val)) return mg_rec_break(BK_op, "the version of an inference tensor");
  const MgCapInput *in = view_owner(info->cap, info->val, &n);
  PyObject *own = view_get(self, 0), *seen = NULL, *first = NULL, *sum = NULL;
  if (!own || !n) return own;
  if (n == 1 && in->src && !in->array && r->guards) seen = mg_wrap(in->real, in->src);
  int alike = seen ? view_counts_alike(seen, self) : -1;
  if (!seen && !PyErr_Occurred()) mg_rec_break(BK_op, "the version of a tensor that shares its memory");
  if (alike == 0) sum = Py_NewRef(own);
  PyObject *now = alike > 0 ? view_get(in->real, 0) : NULL;
  if (now) first = mg_wrap(now, mg_source(r->guards, SRC_attr, in->src, 0, view_name(0)));
  if (first) sum = PyNumber_Add(first, own);
  Py_XDECREF(first);
  Py_XDECREF(now);
  Py_XDECREF(seen);
  Py_DECREF(own);
  return sum;
}

PyObject *mg_viewstate_base(PyObject *self) {
  PyObject *own = view_get(self, 1), *real, *b = NULL;
  PyObject *root = own && own != Py_None ? own : self;
  MgStandInfo *info = mg_standin_info(self), *top = own && mg_standin_is(root) ? mg_standin_info(root) : NULL;
  MgRec *r = info->cap->rec;
  if (!own || !top || !top->input) return own;
  const MgCapInput *in = &info->cap->input[top->input - 1];
  if (in->src && !in->array && r->guards && (real = view_get(in->real, 1))) {
    b = mg_wrap(real, mg_source(r->guards, SRC_attr, in->src, 0, view_name(1)));
    Py_DECREF(real);
  } else if (!PyErr_Occurred()) mg_rec_break(BK_op, "the base of a tensor");
  if (b == Py_None) Py_SETREF(b, Py_NewRef(own));
  Py_DECREF(own);
  return b;
}

int mg_viewstate_written(PyObject *list) {
  static PyObject *increment; /* torch._C._increment_version */
  PyObject *c = increment ? NULL : mg_import("torch._C");
  if (c) increment = PyObject_GetAttrString(c, "_increment_version");
  Py_XDECREF(c);
  PyObject *r = increment ? PyObject_CallOneArg(increment, list) : NULL;
  Py_XDECREF(r);
  return r ? 0 : -1;
}

int mg_viewstate_take(MgCapture *cap) {
  const MgGraph *g = cap->rec->g;
  bool writes = false;
  for (NodeRef n = 1; n < g->nnode && !writes; n++) writes = g->node[n].op->mutates;
  for (MgStandInfo *i = cap->live; i && writes; i = i->next) {
    int64_t n;
    if (!i->input || !i->self) continue;
    if (view_number(i->self, &n)) return -1;
    MgCapInput *in = &cap->input[i->input - 1];
    if (in->moved < n) in->moved = (uint32_t)n; /* the leaf behind one that is none stays as it was */
  }
  return 0;
}

/* ---- building ---- */

/* The value that an op of a view, or one in place, gives a result for; 0: it makes its result. */
static ValRef view_step(const MgGraph *g, ValRef v, bool *view) {
  const MgNode *node = mg_node(g, mg_val(g, v)->def);
  const MgOp *op = node->op;
  *view = op->is_view && !op->mutates;
  if (*view ? !strcmp(op->full, "aten::detach") : !op->mutates) return 0;
  for (int i = 0; i < node->narg; i++) {
    if (node->arg[i].tag != MA_val || op->param[i].alias_set < 0) continue;
    ValRef of = node->arg[i].u.val;
    if (mg_val(g, of)->storage == mg_val(g, v)->storage) return of;
  }
  return 0;
}

/* What v is seen as by autograd: the tensor that it is a view of (an input, or what an op made) and the mode of the first view. */
static ValRef view_root(const MgGraph *g, ValRef v, bool *any, bool *grad) {
  bool view;
  ValRef of;
  *any = false;
  while (mg_val(g, v)->def && (of = view_step(g, v, &view))) {
    *any |= view;
    if (view) *grad = mg_node(g, mg_val(g, v)->def)->grad_mode;
    v = of;
  }
  return v;
}

/* Can a view of the base be had by its strides? */
static bool view_by_strides(const MgVal *v, const MgVal *base) {
  return v->dtype == base->dtype && v->bits == base->bits && v->device == base->device;
}

/* The other result that is what result i is a view of, or UINT32_MAX. */
static uint32_t view_result(const MgGraph *g, uint32_t i, ValRef root) {
  for (uint32_t k = 0; k < g->noutput; k++) {
    bool any, grad;
    if (k != i && mg_val(g, g->output[k])->storage == mg_val(g, root)->storage && view_root(g, g->output[k], &any, &grad) == root && !any) return k;
  }
  return UINT32_MAX;
}

static int view_add(MgViewState *s, uint32_t out, uint32_t base, bool grad) {
  View *p = mg_realloc(s->view, (s->nview + 1) * sizeof *p);
  if (!p) return PyErr_NoMemory(), -1;
  s->view = p;
  p[s->nview++] = (View){out, base, grad};
  return 0;
}

static uint32_t view_input(const MgGraph *g, ValRef v) {
  uint32_t at = 0;
  while (at < g->ninput && g->input[at] != v) at++;
  return at < g->ninput ? at : UINT32_MAX;
}

/* Views of inference tensors are made of them in any case, and so are those of others under inference mode. */
static bool view_needs_kind(const MgRec *r, ValRef root) {
  return mg_inference_mode_of(r->cap, root) != mg_inference_mode_on();
}

/* Plans can make a view of an input in the mode of the run. */
static int view_by_plan(const MgRec *r, uint32_t out, bool grad) {
  if (r->joint || (!grad && mg_abi.aoti_torch_grad_mode_is_enabled())) return 0;
  if (!r->g->viewed && !(r->g->viewed = mg_new(r->ctx, bool, r->g->noutput + 1))) return PyErr_NoMemory(), -1;
  r->g->viewed[out] = true;
  return 0;
}

static int view_find(const MgRec *r, MgViewState *s) {
  const MgGraph *g = r->g;
  for (uint32_t i = 0; i < g->noutput; i++) {
    bool any, grad = false;
    ValRef v = g->output[i], root = view_root(g, v, &any, &grad), of = mg_val(g, v)->storage;
    uint32_t base = UINT32_MAX;
    if (!mg_val(g, of)->def && view_needs_kind(r, of)) base = view_input(g, mg_val(g, root)->def ? of : root);
    else if (any && view_by_strides(mg_val(g, v), mg_val(g, root))) {
      bool result = mg_val(g, root)->def;
      base = result ? view_result(g, i, root) : view_input(g, root);
      if (base != UINT32_MAX && result) base += g->ninput;
      if (base != UINT32_MAX && !result && view_by_plan(r, i, grad)) return -1;
    }
    if (base != UINT32_MAX && view_add(s, i, base, grad)) return -1;
  }
  return 0;
}

/* Batch norm, whose writes torch does not count, writes its running statistics. */
static void view_count_norm(const MgGraph *g, const MgNode *n, uint32_t *count) {
  if (n->op->code != TOP_native_batch_norm || n->arg[5].tag != MA_bool || !n->arg[5].u.b) return;
  ValRef mean = n->arg[3].tag == MA_val ? n->arg[3].u.val : 0, var = n->arg[4].tag == MA_val ? n->arg[4].u.val : 0;
  if (mean) count[mg_val(g, mean)->storage]++;
  if (var && (!mean || mg_val(g, var)->storage != mg_val(g, mean)->storage)) count[mg_val(g, var)->storage]++;
}

/* How often the nodes write to each memory: by storage, in the arena. */
static uint32_t *view_count_writes(const MgGraph *g) {
  uint32_t *count = mg_new(g->c, uint32_t, g->nval + 1);
  for (NodeRef i = 1; count && i < g->nnode; i++) {
    const MgNode *node = mg_node(g, i);
    if (node->dead) continue;
    for (MgWritten t = {0}; mg_node_written(node, &t);) count[mg_val(g, t.v)->storage]++;
    view_count_norm(g, node, count);
  }
  return count;
}

/* Inputs whose counter no way of running the graph leaves where eager does. */
static int view_find_versions(const MgRec *r, MgViewState *s) {
  const MgGraph *g = r->g;
  uint32_t *count = view_count_writes(g);
  if (!count) return PyErr_NoMemory(), -1;
  for (uint32_t k = 0; k < r->cap->ninput; k++) {
    const MgCapInput *in = &r->cap->input[k];
    int n;
    uint32_t at = view_input(g, in->val), written = at == UINT32_MAX ? 0 : count[mg_val(g, in->val)->storage];
    if (!written || in->array || in->pinned || (in->moved == 1 && written == 1)) continue;
    if (!view_owner(r->cap, in->val, &n) || n != 1 || mg_inference_mode_of(r->cap, in->val)) continue;
    Version *p = mg_realloc(s->version, (s->nversion + 1) * sizeof *p);
    if (!p) return PyErr_NoMemory(), -1;
    s->version = p;
    p[s->nversion++] = (Version){at, in->moved};
  }
  return 0;
}

int mg_viewstate_build(const MgRec *r, MgViewState **out) {
  MgViewState *s = mg_calloc(1, sizeof *s);
  if (!s) return PyErr_NoMemory(), -1;
  s->ninput = r->g->ninput;
  int rc = view_find(r, s) || view_find_versions(r, s) ? -1 : 0;
  s->joint = r->joint;
  if (rc || !(s->nview + s->nversion)) mg_viewstate_free(s);
  else *out = s;
  return rc;
}

void mg_viewstate_free(MgViewState *s) {
  if (!s) return;
  free(s->view);
  free(s->version);
  free(s);
}

/* ---- runs ---- */

uint32_t mg_viewstate_versions(const MgViewState *s, bool joint) { return s->joint == joint ? s->nversion : 0; }

int mg_viewstate_before(const MgViewState *s, PyObject *const *in, int64_t *versions) {
  for (uint32_t i = 0; i < s->nversion; i++)
    if (view_number(in[s->version[i].input], &versions[i])) return -1;
  return 0;
}

static PyObject *view_tuple(const int64_t *v, int64_t n) {
  PyObject *t = PyTuple_New((Py_ssize_t)n);
  for (int64_t i = 0; t && i < n; i++) {
    PyObject *x = PyLong_FromLongLong(v[i]);
    if (!x) Py_CLEAR(t);
    else PyTuple_SET_ITEM(t, i, x);
  }
  return t;
}

static PyObject *view_of(PyObject *base, PyObject *like) {
  static PyObject *as_strided; /* the method of torch.Tensor */
  if (!as_strided && !(as_strided = PyObject_GetAttr((PyObject *)mg_tensor_type, view_name(2)))) return NULL;
  MgTensor *t = mg_facts_tensor(like);
  int64_t n = 0, *size = NULL, *stride = NULL, at = 0;
  mg_abi.aoti_torch_get_dim(t, &n);
  mg_abi.aoti_torch_get_sizes(t, &size);
  mg_abi.aoti_torch_get_strides(t, &stride);
  mg_abi.aoti_torch_get_storage_offset(t, &at);
  MgTensor *h = mg_abi.thpvariable_wrap && mg_facts_in_memory(base) ? mg_abi_view(mg_facts_tensor(base), n, size, stride, at) : NULL;
  if (h) {
    PyObject *o = mg_abi.thpvariable_wrap(h);
    mg_abi.aoti_torch_delete_tensor_object(h);
    return o;
  }
  PyObject *arg[] = {base, view_tuple(size, n), view_tuple(stride, n), PyLong_FromLongLong(at)}, *v = NULL;
  bool exact = Py_TYPE(base) == mg_torch.tensor || Py_TYPE(base) == mg_torch.parameter;
  PyObject *off = exact && !mg_fmodes_depth() ? NULL : mg_fmodes_off();
  if (arg[1] && arg[2] && arg[3] && !PyErr_Occurred()) v = PyObject_Vectorcall(as_strided, arg, 4, NULL);
  if (off && mg_context_exit(off)) Py_CLEAR(v);
  for (int i = 1; i < 4; i++) Py_XDECREF(arg[i]);
  return v;
}

/* Does the result begin in its base's memory where their offsets say?  One that has memory of its own is no view to be made of it. */
static bool view_shares(PyObject *out, PyObject *base) {
  int64_t a = 0, b = 0;
  int32_t dtype = 0;
  if (!mg_facts_in_memory(out) || !mg_facts_in_memory(base)) return true;
  mg_abi.aoti_torch_get_storage_offset(mg_facts_tensor(out), &a);
  mg_abi.aoti_torch_get_storage_offset(mg_facts_tensor(base), &b);
  mg_abi.aoti_torch_get_dtype(mg_facts_tensor(out), &dtype);
  return mg_facts_distance(base, out) == (a - b) * mg_dtype_size((MgDtype)dtype);
}

/* Steals out; what autograd tracks, and what is a view already, stays. */
static PyObject *view_make(PyObject *out, PyObject *base, bool mode) {
  if (mg_facts_requires_grad(out) || !view_shares(out, base)) return out;
  PyObject *was = view_get(out, 1), *v = NULL;
  if (was && was != Py_None) return Py_DECREF(was), out;
  bool before = mg_abi.aoti_torch_grad_mode_is_enabled();
  mg_abi.aoti_torch_grad_mode_set_enabled(mode && before);
  if (was) v = view_of(base, out);
  mg_abi.aoti_torch_grad_mode_set_enabled(before);
  Py_XDECREF(was);
  Py_DECREF(out);
  return v;
}

int mg_viewstate_count(const MgViewState *s, PyObject *const *in, const int64_t *versions) {
  int64_t now;
  for (uint32_t i = 0; i < s->nversion; i++) {
    PyObject *t = in[s->version[i].input];
    if (view_number(t, &now)) return -1;
    if (now != versions[i] + s->version[i].by && mg_facts_set_version(t, versions[i] + s->version[i].by)) return -1;
  }
  return 0;
}

int mg_viewstate_after(const MgViewState *s, PyObject *const *in, const int64_t *versions, PyObject **outs) {
  if (!s->joint && mg_viewstate_count(s, in, versions)) return -1;
  for (uint32_t i = 0; i < s->nview; i++) {
    const View *v = &s->view[i];
    PyObject *base = v->base < s->ninput ? in[v->base] : outs[v->base - s->ninput], **out = &outs[v->out];
    if (*out && base && *out != base && !(*out = view_make(*out, base, v->grad))) return -1;
  }
  return 0;
}
