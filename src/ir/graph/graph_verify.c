/* Checks of the graph IR, run between passes: a broken invariant is reported where it was broken.
 * In: a graph and the name of the pass before.  Out: MG_OK, or MG_BUG with the node and what is wrong.
 * Nothing is changed.
 * Structure: argument kinds against the schema, definitions before uses, links from values to nodes, complete
 * metadata. Functional: nothing writes, and the write-backs fit the inputs.  The checks of other stages:
 * middle/decompose.c, back/kernel/loop_verify.c. */
#include "ir/graph/graph.h"
#include <string.h>

/* Which tags an argument kind admits; lists are checked item by item. */
static bool verify_arg(const MgGraph *g, const MgArg *a, uint8_t kind, bool optional) {
  static const struct {
    uint16_t tags; /* bit set of MgArgTag */
    uint8_t item;  /* kind of the items; AK_other: any */
  } row[] = {
      [AK_tensor] = {1 << MA_val | 1 << MA_int | 1 << MA_float | 1 << MA_bool | 1 << MA_object,
                     0}, /* wrapped scalars; object: a complex one */
      [AK_tensor_list] = {1 << MA_list, AK_tensor},
      [AK_opt_tensor_list] = {1 << MA_list, AK_tensor},
      [AK_int] = {1 << MA_int | 1 << MA_bool, 0},
      [AK_int_list] = {1 << MA_list | 1 << MA_int, AK_int},
      [AK_float] = {1 << MA_float | 1 << MA_int | 1 << MA_bool, 0},
      [AK_float_list] = {1 << MA_list, AK_float},
      [AK_bool] = {1 << MA_bool | 1 << MA_int, 0},
      [AK_bool_list] = {1 << MA_list | 1 << MA_bool, AK_bool},
      [AK_scalar] = {1 << MA_int | 1 << MA_float | 1 << MA_bool | 1 << MA_object, 0},
      [AK_scalar_list] = {1 << MA_list, AK_scalar},
      [AK_dtype] = {1 << MA_dtype, 0},
      [AK_layout] = {1 << MA_layout, 0},
      [AK_device] = {1 << MA_device, 0},
      [AK_memory_format] = {1 << MA_memory_format, 0},
      [AK_str] = {1 << MA_str, 0},
      [AK_generator] = {1 << MA_object, 0},
      [AK_other] = {0xffff, AK_other},
  };
  if (a->tag == MA_none)
    return optional || kind == AK_other ||
           kind == AK_tensor; /* backward ops get undefined tensors, whatever the schema says */
  if (!(row[kind].tags >> a->tag & 1)) return false;
  if (a->tag == MA_val) return a->u.val && a->u.val < g->nval;
  if (a->tag == MA_int) return a->u.sym != 0;
  if (a->tag == MA_list)
    for (uint32_t i = 0; i < a->n; i++)
      if (!verify_arg(g, &a->u.item[i], row[kind].item, kind == AK_opt_tensor_list)) return false;
  return true;
}

typedef struct VerifyUse { /* a walk over the uses of one node */
  const MgGraph *g;
  const uint8_t *seen; /* values defined so far */
  ValRef bad;          /* first use that is not defined */
} VerifyUse;

static void verify_use(ValRef *v, void *arg) {
  VerifyUse *u = arg;
  if (!u->bad && (*v >= u->g->nval || !u->seen[*v])) u->bad = *v;
}

static bool verify_val(const MgGraph *g, ValRef v) {
  const MgVal *t = mg_val(g, v);
  if (mg_dtype_size(t->dtype) == 0 || !t->offset) return false;
  for (int i = 0; i < t->ndim; i++)
    if (!t->size[i] || !t->stride[i]) return false;
  return true;
}

MgRc mg_graph_verify(MgGraph *g, const char *after) {
  uint8_t *seen = mg_new(g->c, uint8_t, g->nval + 1);
  TRYP(seen);
  for (uint32_t i = 0; i < g->ninput; i++) {
    ValRef v = g->input[i];
    if (!v || v >= g->nval || g->val[v].def || g->val[v].out != i || !verify_val(g, v))
      return mg_fail(g->c, MG_BUG, "after %s: input %u is malformed", after, i);
    seen[v] = 1;
  }
  for (uint32_t k = 1; k < g->nnode; k++) {
    MgNode *n = mg_node(g, k);
    if (n->dead) continue;
    const MgOp *o = n->op;
    if (!o) return mg_fail(g->c, MG_BUG, "after %s: node %u has no op", after, k);
    if (n->narg != o->nparam)
      return mg_fail(g->c, MG_BUG, "after %s: node %u (%s) has %d arguments of %d", after, k, o->full,
                     n->narg, o->nparam);
    for (int i = 0; i < n->narg; i++)
      if (!verify_arg(g, &n->arg[i], o->param[i].kind, o->param[i].optional))
        return mg_fail(g->c, MG_BUG, "after %s: node %u (%s): argument %s has the wrong kind", after, k,
                       o->full, o->param[i].name);
    VerifyUse u = {g, seen, 0};
    mg_node_each_val(n, verify_use, &u);
    if (u.bad)
      return mg_fail(g->c, MG_BUG, "after %s: node %u (%s) uses value %u before its definition", after, k,
                     o->full, u.bad);
    for (int i = 0; i < n->nout; i++) {
      ValRef v = n->out[i];
      if (!v) continue;
      if (v >= g->nval || g->val[v].def != k || g->val[v].out != i || seen[v])
        return mg_fail(g->c, MG_BUG, "after %s: node %u (%s): result %d is linked wrongly", after, k, o->full,
                       i);
      if (!verify_val(g, v))
        return mg_fail(g->c, MG_BUG, "after %s: node %u (%s): result %d lacks metadata", after, k, o->full,
                       i);
      seen[v] = 1;
    }
  }
  for (uint32_t i = 0; i < g->noutput; i++)
    if (g->output[i] >= g->nval || (g->output[i] && !seen[g->output[i]]))
      return mg_fail(g->c, MG_BUG, "after %s: output %u is not defined", after, i);
  for (uint32_t i = 0; i < g->nwb; i++)
    if (!seen[g->wb_value[i]] || !seen[g->wb_input[i]] || g->val[g->wb_input[i]].def)
      return mg_fail(g->c, MG_BUG, "after %s: write-back %u is malformed", after, i);
  return MG_OK;
}

/* ---- what functionalize promises ---- */

static MgRc verify_broken(MgGraph *g, const char *after, NodeRef n, const char *what) {
  return mg_fail(g->c, MG_BUG, "after %s: node %u (%s) %s", after, n, mg_node(g, n)->op->full, what);
}

/* A node that writes copies of its arguments: the copies are its last results, after those of its op. */
bool mg_node_on_copies(const MgNode *n) {
  uint32_t copies = 0, own = 0;
  for (MgWritten w = {0}; mg_node_written(n, &w);) copies++;
  for (int i = 0; i < n->op->nret; i++) own += n->op->ret_kind[i] == AK_tensor;
  if (n->nout < own + copies) return false;
  for (uint32_t i = n->nout - copies; i < n->nout; i++)
    if (!n->out[i]) return false;
  return true;
}

/* Does the value fit into the memory of the input? */
static bool verify_fits(const MgGraph *g, ValRef input, ValRef value) {
  const MgVal *to = mg_val(g, input), *from = mg_val(g, value);
  if (to->dtype != from->dtype || to->ndim != from->ndim || to->device != from->device ||
      to->dev_index != from->dev_index)
    return false;
  for (int d = 0; d < to->ndim; d++)
    if (!mg_ex_same(to->size[d], from->size[d])) return false;
  return true;
}

static MgRc verify_writebacks(MgGraph *g, const char *after) {
  for (uint32_t i = 0; i < g->nwb; i++) {
    if (!verify_fits(g, g->wb_input[i], g->wb_value[i]))
      return mg_fail(g->c, MG_BUG, "after %s: write-back %u does not fit its input", after, i);
    for (uint32_t k = 0; k < i; k++)
      if (g->wb_input[k] == g->wb_input[i])
        return mg_fail(g->c, MG_BUG, "after %s: write-backs %u and %u are of one input", after, k, i);
  }
  return MG_OK;
}

static MgRc verify_aliases(MgGraph *g, const char *after) {
  for (uint32_t i = 0; g->out_alias && i < g->noutput; i++) {
    struct MgOutAlias a = g->out_alias[i];
    if (a.of_input >= (int64_t)g->ninput || a.of_output >= (int64_t)g->noutput || a.of_output == (int64_t)i)
      return mg_fail(g->c, MG_BUG, "after %s: output %u is said to be what is not there", after, i);
  }
  return MG_OK;
}

MgRc mg_graph_verify_functional(MgGraph *g, const char *after) {
  TRY(mg_graph_verify(g, after));
  for (NodeRef k = 1; k < g->nnode; k++) {
    const MgNode *n = mg_node(g, k);
    if (n->dead) continue;
    if (n->op->mutates && !mg_node_on_copies(n))
      return verify_broken(g, after, k, "still writes an argument");
    if (mg_node_updates_norm(n)) return verify_broken(g, after, k, "still writes its running statistics");
  }
  TRY(verify_writebacks(g, after));
  return verify_aliases(g, after);
}
