/* Backward where only some gradients of results are defined.
 * In: a functional backward graph whose inputs from `first` on are tangents; which of them are defined.
 * Out: the same graph with zeros in place of what undefined tangents alone decide.  It would be zero,
 * gradients being linear, but for infinite derivatives, which make NaN of it; PyTorch's engine does not run
 * these nodes. */
#include <math.h>
#include "base/bits.h"
#include "ir/infer/infer.h"
#include "middle/middle.h"

enum { DEP_defined = 1, DEP_undefined = 2 }; /* on which tangents a value depends */

typedef struct Undefined {
  uint8_t *dep, now;
} Undefined;

static void undefined_see(ValRef *v, void *arg) {
  Undefined *u = arg;
  u->now |= u->dep[*v];
}

static bool undefined_number(const MgArg *a) {
  return a->tag == MA_int || (a->tag == MA_float && isfinite(a->u.f) && a->u.f != 0);
}

/* Is the result zero where the tangents are?  Then nothing is gained by leaving the node
 * out: it only moves or adds. */
static bool undefined_stays_zero(const MgNode *n) {
  if (n->op->is_view) return true;
  switch (n->op->code) {
  case TOP_add_Tensor:
  case TOP_sub_Tensor:
  case TOP_neg:
  case TOP_sum:
  case TOP_sum_dim_IntList:
  case TOP_clone:
  case TOP__to_copy:
  case TOP_cat:
  case TOP_stack:
  case TOP_slice_backward:
  case TOP_select_backward:
  case TOP_view:
  case TOP_reshape:
  case TOP__unsafe_view:
  case TOP_slice_scatter:
  case TOP_select_scatter:
  case TOP_copy:
  case TOP_repeat: return true;
  case TOP_mul_Tensor:
  case TOP_mul_Scalar:
  case TOP_div_Tensor:
  case TOP_div_Scalar: return undefined_number(mg_node_arg(n, "other"));
  default: return false;
  }
}

static MgRc undefined_rewrite(MgRewrite *rw, void *arg) {
  const Undefined *u = arg;
  MgGraph *g = rw->g;
  ValRef out = rw->n.nout ? rw->n.out[0] : 0;
  for (int i = 1; !out && i < rw->n.nout; i++) out = rw->n.out[i];
  if (!out || u->dep[out] != DEP_undefined) return mg_graph_keep(rw);
  for (int i = 0; i < rw->n.nout; i++) {
    ValRef v = rw->n.out[i], zero;
    if (!v) continue;
    const MgVal *m = mg_val(g, v);
    MgArg a[4] = {mg_arg_syms(g, m->size, m->ndim), mg_arg_code(MA_dtype, m->dtype), mg_arg_none(),
                  mg_arg_device(m->device, m->dev_index)};
    TRYP(zero = mg_graph_emit1(g, TOP_zeros, a, m->device == DEV_cpu ? 2 : 4));
    TRY(mg_graph_replace(rw, v, zero));
  }
  return MG_OK;
}

MgRc mg_undefined_tangents(MgGraph *g, uint32_t first, const uint64_t *given, bool *cut) {
  Undefined u = {.dep = mg_new(g->c, uint8_t, g->nval + 1)};
  TRYP(u.dep);
  *cut = false;
  for (uint32_t i = first; i < g->ninput; i++)
    u.dep[g->input[i]] = mg_bits_has(given, i - first) ? DEP_defined : DEP_undefined;
  for (NodeRef k = 1; k < g->nnode; k++) {
    MgNode *n = mg_node(g, k);
    if (n->dead) continue;
    u.now = 0;
    mg_node_each_val(n, undefined_see, &u);
    for (int i = 0; i < n->nout; i++)
      if (n->out[i]) u.dep[n->out[i]] = u.now;
    if (u.now != DEP_undefined) continue;
    *cut |= !undefined_stays_zero(n);
    n->dead = !n->nout; /* a check or the like: not reached */
  }
  if (!*cut) return MG_OK;
  for (uint32_t i = 0; g->out_alias && i < g->noutput; i++)
    if (u.dep[g->output[i]] == DEP_undefined && mg_val(g, g->output[i])->def)
      g->out_alias[i] = (struct MgOutAlias){-1, -1, false};
  TRY(mg_graph_rewrite(g, undefined_rewrite, &u));
  TRY(mg_dce(g));
  return mg_graph_verify(g, "undefined tangents");
}
