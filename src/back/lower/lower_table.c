/* Which ops have a lowering, and reading of node arguments.
 * In: op names and graph nodes.  Out: rows of the topics' tables.  No state but an
 * index built once per process. */
#include "back/lower/lower_priv.h"
#include <pthread.h>
#include <string.h>

/* One table a topic, ended by a row without name; each lives in the file of its lowerings. */
extern const LwRow lw_rows_point[], lw_rows_act[], lw_rows_grad[], lw_rows_view[], lw_rows_factory[],
    lw_rows_shape[], lw_rows_reduce[], lw_rows_norm[], lw_rows_index[], lw_rows_scatter[], lw_rows_window[],
    lw_rows_resize[], lw_rows_norm_grad[], lw_rows_loss[];
static const LwRow *const table_all[] = {lw_rows_point,     lw_rows_act,     lw_rows_grad,   lw_rows_view,
                                         lw_rows_factory,   lw_rows_shape,   lw_rows_reduce, lw_rows_norm,
                                         lw_rows_index,     lw_rows_scatter, lw_rows_window, lw_rows_resize,
                                         lw_rows_norm_grad, lw_rows_loss};

enum { TABLE_SLOTS = 2048 }; /* more than twice the number of rows */
static const LwRow *table_slot[TABLE_SLOTS];
static pthread_once_t table_once = PTHREAD_ONCE_INIT;

static uint32_t table_hash(const char *name) {
  return (uint32_t)mg_hash_bytes(name, strlen(name), 0) % TABLE_SLOTS;
}

static void table_build(void) {
  for (size_t t = 0; t < sizeof table_all / sizeof *table_all; t++)
    for (const LwRow *r = table_all[t]; r->name; r++) {
      uint32_t i = table_hash(r->name);
      while (table_slot[i]) i = (i + 1) % TABLE_SLOTS;
      table_slot[i] = r;
    }
}

const LwRow *lw_row(const char *full) {
  pthread_once(&table_once, table_build);
  for (uint32_t i = table_hash(full); table_slot[i]; i = (i + 1) % TABLE_SLOTS)
    if (!strcmp(table_slot[i]->name, full)) return table_slot[i];
  return NULL;
}

typedef struct TableVals {
  const MgGraph *g;
  bool ok;
  bool view;
} TableVals;

static void table_check_val(ValRef *v, void *arg) {
  TableVals *t = arg;
  if (!*v) return;
  const MgVal *m = mg_val(t->g, *v);
  t->ok &= m->ndim <= LW_MAX_NDIM && (t->view || mg_dtype_has_ty((MgDtype)m->dtype));
}

/* Has the op of this PyTorch the parameters that its lowering names?  An op with a row in tensor_ops.def has
 * that row's code only if its parameters are the row's. */
static bool table_is_ours(const MgOp *o) { return o->code != TOP_extern || mg_op_by_name(o->full) == o; }

const LwRow *lw_row_for(const MgGraph *g, const MgNode *n) {
  const LwRow *r = n->call ? NULL : lw_row(n->op->full);
  if (!r || !table_is_ours(n->op)) return NULL;
  /* views move no data, so any dtype will do; whoever reads the elements checks it */
  TableVals t = {g, true, (r->flags & LWF_view) != 0};
  mg_node_each_val((MgNode *)n, table_check_val, &t);
  for (int i = 0; i < n->nout; i++) table_check_val(&n->out[i], &t);
  for (int i = 0; i < n->narg && i < n->op->nparam; i++) /* complex numbers have no scalar type */
    if (n->arg[i].tag == MA_object && n->op->param[i].kind != AK_generator) return NULL;
  if (!t.ok || (r->ok && !r->ok(g, n)) || !lw_exact(g, n, r)) return NULL;
  return r;
}

bool lw_ok_float(const MgGraph *g, const MgNode *n) {
  return mg_dtype_is_float((MgDtype)mg_val(g, n->out[0])->dtype);
}
bool lw_ok_not_bool(const MgGraph *g, const MgNode *n) { return mg_val(g, n->out[0])->dtype != DT_bool; }

/* ---- arguments
 * --------------------------------------------------------------------------------------------------- */

const MgArg *lw_arg(const MgNode *n, const char *name) {
  static const MgArg none;
  const MgArg *a = mg_node_arg(n, name);
  return a ? a : &none;
}

const char *lw_either(const MgNode *n, const char *name, const char *other) {
  return mg_node_arg(n, name) ? name : other;
}

bool lw_arg_bool(const MgNode *n, const char *name, bool deflt) {
  const MgArg *a = lw_arg(n, name);
  return a->tag == MA_bool ? a->u.b : deflt;
}

SymRef lw_arg_sym(Lower *L, const MgNode *n, const char *name, int64_t deflt) {
  const MgArg *a = lw_arg(n, name);
  return a->tag == MA_int ? a->u.sym : lw_int(L, a->tag == MA_bool ? a->u.b : deflt);
}

double lw_arg_float(const MgGraph *g, const MgNode *n, const char *name, double deflt) {
  const MgArg *a = lw_arg(n, name);
  int64_t i;
  if (a->tag == MA_float) return a->u.f;
  if (a->tag == MA_bool) return a->u.b;
  return a->tag == MA_int && mg_ex_const_int(g->x, a->u.sym, &i) ? (double)i : deflt;
}

bool lw_arg_int(const MgGraph *g, const MgNode *n, const char *name, int64_t *v) {
  const MgArg *a = lw_arg(n, name);
  return a->tag == MA_int && mg_ex_const_int(g->x, a->u.sym, v);
}

int lw_arg_len(const MgNode *n, const char *name) {
  const MgArg *a = lw_arg(n, name);
  return a->tag == MA_list ? (int)a->n : a->tag == MA_int ? 1 : 0;
}

SymRef lw_arg_item(Lower *L, const MgNode *n, const char *name, int i, int64_t deflt) {
  const MgArg *a = lw_arg(n, name);
  if (a->tag == MA_list && a->n > 0) a = &a->u.item[a->n == 1 ? 0 : i];
  return a->tag == MA_int ? a->u.sym : lw_int(L, deflt);
}

bool lw_arg_dim(const MgGraph *g, const MgNode *n, const char *name, int ndim, int *d) {
  int64_t v;
  if (!lw_arg_int(g, n, name, &v)) return false;
  int64_t span = ndim ? ndim : 1;
  if (v < 0) v += span;
  if (v < 0 || v >= span) return false;
  *d = (int)v;
  return true;
}

ExprRef lw_arg_scalar(Lower *L, const MgArg *a, MgTy ty) {
  switch (a->tag) {
  case MA_int: return mg_ex_cvt(L->x, ty, a->u.sym);
  case MA_bool: return lw_const(L, ty, a->u.b);
  case MA_float: /* through f64, so conversion to an integer type is torch's */
    return mg_ty_is_float(ty) ? mg_ex_float(L->x, ty, a->u.f)
                              : mg_ex_cvt(L->x, ty, mg_ex_float(L->x, TY_f64, a->u.f));
  default: return lw_const(L, ty, 0);
  }
}
