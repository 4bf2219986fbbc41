/* See the header. */
#include "entry/launch/trace.h"
#include <stdio.h>
#include "host/python/names.h"

/* ---- autograd.Function in a recorded graph ---- */

const MgFunction *mg_function_of(const MgFunction *all, NodeRef n) {
  for (const MgFunction *f = all; f; f = f->next)
    if (f->first <= n && n < f->end) return f;
  return NULL;
}

typedef struct Escape {
  const MgGraph *g;
  const MgFunction *f;
  bool yes;
} Escape;

static void function_see_use(ValRef *v, void *arg) {
  Escape *e = arg;
  NodeRef def = *v ? mg_val(e->g, *v)->def : 0;
  if (!def || def < e->f->first || def >= e->f->end) return;
  for (uint32_t i = 0; i < e->f->nout; i++)
    if (e->f->out[i] == *v) return;
  e->yes = true;
}

bool mg_function_whole(const MgTrace *t, const MgFunction *f) {
  Escape e = {t->g, f, f->once};
  for (NodeRef n = f->end; n < t->g->nnode; n++) mg_node_each_val(mg_node(t->g, n), function_see_use, &e);
  for (uint32_t i = 0; i < t->g->noutput; i++) function_see_use(&t->g->output[i], &e);
  return !e.yes;
}

bool mg_function_any_once(const MgTrace *t) {
  for (const MgFunction *f = t->function; f; f = f->next)
    if (f->once) return true;
  return false;
}

bool mg_function_any_hooked(const MgTrace *t) {
  for (const MgFunction *f = t->function; f; f = f->next)
    if (f->hooked) return true;
  return false;
}

bool mg_function_all_whole(const MgTrace *t) {
  for (const MgFunction *f = t->function; f; f = f->next)
    if (!mg_function_whole(t, f)) return false;
  return true;
}

typedef struct Loose {
  const MgGraph *g;
  bool *of;
} Loose;

static void function_see_tight(ValRef *v, void *arg) {
  Loose *l = arg;
  if (*v) l->of[mg_val(l->g, *v)->storage] = false;
}

int mg_function_loose(const MgTrace *t, NodeRef end, bool **loose) {
  Loose l = {.g = t->g};
  *loose = NULL;
  if (!t->function) return 0;
  if (!(l.of = mg_new(t->g->c, bool, t->g->nval + 1))) return -1;
  memset(l.of, true, t->g->nval + 1);
  for (NodeRef n = 1; n < end; n++)
    if (!mg_function_of(t->function, n)) mg_node_each_val(mg_node(t->g, n), function_see_tight, &l);
  for (const MgFunction *f = t->function; f; f = f->next)
    for (uint32_t i = 0; i < f->nsaved; i++) function_see_tight(&f->saved[i], &l);
  *loose = l.of;
  return 0;
}

int mg_function_run(PyObject *apply, PyObject *const *arg, uint32_t narg, PyObject **out, uint32_t nout) {
  PyObject *res = PyObject_Vectorcall(apply, arg, narg, NULL);
  if (!res) return -1;
  bool many = PyTuple_Check(res);
  int rc = many && PyTuple_GET_SIZE(res) != nout ? -1 : 0;
  if (rc)
    PyErr_SetString(PyExc_RuntimeError,
                    "magneto: an autograd.Function returned another number of results than before");
  for (uint32_t i = 0; !rc && i < nout; i++) {
    PyObject *o = many ? PyTuple_GET_ITEM(res, i) : res;
    out[i] = PyObject_TypeCheck(o, mg_torch.tensor) ? Py_NewRef(o) : NULL;
  }
  Py_DECREF(res);
  return rc;
}

/* ---- the graph as a whole ---- */

bool mg_joint_switched(const MgTrace *t) {
  bool any = false;
  for (uint32_t i = 0; i < t->ninput; i++) any |= t->input[i].switched;
  return any;
}

void mg_joint_extend(const MgTrace *t) {
  t->g->nnode = t->joint->nnode;
  t->g->nval = t->joint->nval;
  t->g->ninput = t->joint->ninput;
}

void mg_rec_move_graph(const MgTrace *t, MgCtx *ctx, MgExprs *x, MgGraph *g) {
  *ctx = *t->ctx;
  *x = *t->x;
  *g = *t->g;
  x->c = g->c = ctx;
  x->ask = NULL;
  g->x = x;
  mg_ctx_init(t->ctx);
}

static bool follow_has_symbol(const MgExprs *x, const SymRef *e, int n) {
  int64_t v;
  for (int i = 0; i < n; i++)
    if (e[i] && !mg_ex_const_int(x, e[i], &v)) return true;
  return false;
}

static bool follow_arg(const MgGraph *g, const MgArg *a) {
  const MgVal *t = a->tag == MA_val && a->u.val ? mg_val(g, a->u.val) : NULL;
  if (t) return follow_has_symbol(g->x, t->size, t->ndim) || follow_has_symbol(g->x, t->stride, t->ndim);
  if (a->tag == MA_int) return follow_has_symbol(g->x, &a->u.sym, 1);
  for (uint32_t i = 0; a->tag == MA_list && i < a->n; i++)
    if (follow_arg(g, &a->u.item[i])) return true;
  return false;
}

bool mg_symfollow_reads(const MgGraph *g, NodeRef n) {
  const MgNode *node = mg_node(g, n);
  bool any = false;
  for (int i = 0; i < node->narg && !any; i++) any = follow_arg(g, &node->arg[i]);
  return any;
}

bool mg_alias_find_written(Written *w) {
  for (uint32_t i = 1; i < w->g->nval; i++)
    if (w->g->val[i].storage >= w->n) w->n = w->g->val[i].storage + 1;
  w->storage = mg_calloc(w->n + 1, sizeof *w->storage);
  if (!w->storage) return false;
  for (NodeRef i = 1; i < w->g->nnode; i++)
    for (MgWritten t = {0}; !mg_node(w->g, i)->dead && mg_node_written(mg_node(w->g, i), &t);)
      w->storage[mg_val(w->g, t.v)->storage] = true;
  return true;
}

bool mg_alias_writes(const MgTrace *t) {
  Written w = {.g = t->g};
  if (!mg_alias_find_written(&w)) return PyErr_NoMemory(), true;
  bool any = false;
  for (uint32_t i = 0; i < t->ninput; i++) { /* tangents are values of the joint graph only */
    ValRef v = t->input[i].val;
    any |= v < t->g->nval && w.storage[t->g->val[v].storage];
  }
  free(w.storage);
  return any;
}

const char *mg_trace_label(const MgTrace *t, const char *suffix, char *label) {
  const MgNode *first = NULL;
  for (NodeRef n = 1; n < t->g->nnode && !first; n++)
    if (t->g->node[n].file) first = &t->g->node[n];
  if (first)
    snprintf(label, MG_TRACE_LABEL, "magneto::%s (%s:%u)%s", t->name, first->file, first->line, suffix);
  else snprintf(label, MG_TRACE_LABEL, "magneto::%s%s", t->name, suffix);
  return label;
}
