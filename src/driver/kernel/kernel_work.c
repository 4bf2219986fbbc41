/* Bytes and operations of kernels and library calls.
 * In: the nests of a kernel after fusion, or a call with its views.  Out: MgWork.
 * Values that stay in registers or in a kernel's own buffers move no bytes. */
#include "driver/kernel/kernel_work.h"
#include <string.h>
#include "back/kernel/loop_nest.h"

typedef struct WorkCount { /* one walk over an expression */
  const MgSched *s;
  double points;  /* times that it is computed */
  double *loaded; /* per buffer: elements that loads ask for */
  double flops;   /* of one point */
} WorkCount;

static bool work_is_float(uint8_t ty) { return ty == TY_f32 || ty == TY_f64; }

static bool work_node(const MgExprs *x, ExprRef e, void *arg) {
  WorkCount *c = arg;
  const MgExpr *n = mg_expr(x, e);
  if (n->op == OP_load && n->u.i < c->s->nbuf) c->loaded[n->u.i] += c->points;
  bool moves = n->op == OP_load || n->op == OP_cvt || n->op == OP_bitcast || n->op == OP_where || !n->nsrc;
  if (!moves && work_is_float(n->ty)) c->flops += n->op == OP_fma ? 2 : 1;
  return false;
}

static double work_expr(WorkCount *c, ExprRef e, double points) {
  c->points = points;
  c->flops = 0;
  if (e) mg_ex_any(c->s->x, e, work_node, c);
  return c->flops * points;
}

static double work_range(const MgExprs *x, const SymRef *range, int from, int to) {
  double n = 1;
  for (int i = from; i < to; i++) n *= (double)mg_sym_hint(x, range[i]);
  return n;
}

/* Elements of b that are touched when n are asked for. */
static double work_most(const MgSched *s, BufRef b, double n) {
  double all = (double)mg_sym_hint(s->x, s->buf[b].nelem);
  return n < all ? n : all;
}

static double work_loop(WorkCount *c, const MgLoop *l, double *stored) {
  const MgExprs *x = c->s->x;
  double outer = work_range(x, l->range, 0, l->nouter);
  double all = outer * work_range(x, l->range, l->nouter, l->nouter + l->nred);
  bool reduces = l->kind == ML_reduce || l->kind == ML_scan;
  double value = l->kind == ML_reduce ? outer : all;
  double flops = work_expr(c, l->value, value);
  if (reduces) flops += work_expr(c, l->body, all) + (work_is_float(mg_expr(x, l->body)->ty) ? all : 0);
  work_expr(c, l->index, value); /* loads of indices */
  work_expr(c, l->mask, value);
  stored[l->buf] += value;
  if (l->mode != ST_set) c->loaded[l->buf] += value;
  return flops;
}

MgRc mg_kernel_work(const MgSched *s, const MgKernel *k, MgWork *out) {
  double *loaded = mg_new(s->c, double, s->nbuf), *stored = mg_new(s->c, double, s->nbuf);
  TRYP(loaded && stored);
  WorkCount c = {.s = s, .loaded = loaded};
  *out = (MgWork){0};
  for (uint32_t i = 0; i < k->nloop; i++) out->flops += work_loop(&c, k->loop[i], stored);
  for (uint32_t i = 0; i < k->nbuf; i++) {
    BufRef b = k->buf[i];
    double n = work_most(s, b, loaded[b]) + work_most(s, b, stored[b]);
    out->bytes += n * mg_dtype_size((MgDtype)s->buf[b].dtype);
  }
  return MG_OK;
}

/* ---- library calls ---- */

static double work_numel(const MgSched *s, const MgView *v) {
  return v->buf ? work_range(s->x, v->size, 0, v->ndim) : 0;
}

static double work_size(const MgSched *s, const MgView *v, int d) {
  return v->buf && v->ndim > d ? (double)mg_sym_hint(s->x, v->size[d < 0 ? v->ndim + d : d]) : 0;
}

/* What a call does for each element of one of its tensors. */
typedef enum WorkRule {
  WR_product,   /* of each result: two for each column of the first matrix */
  WR_added,     /* the same, the matrix being the second argument */
  WR_conv,      /* of each result: two for each weight of its channel */
  WR_conv_grad, /* the same of each element of the result's gradient, for each gradient that is asked for */
  WR_attention  /* of each query: four for each key and channel */
} WorkRule;

static const struct {
  const char *name;
  WorkRule rule;
} work_rules[] = {
    {"aten::mm", WR_product},
    {"aten::bmm", WR_product},
    {"aten::matmul", WR_product},
    {"aten::linear", WR_product},
    {"aten::mv", WR_product},
    {"aten::dot", WR_product},
    {"mg::matmul", WR_product},
    {"aten::addmm", WR_added},
    {"aten::baddbmm", WR_added},
    {"aten::addmv", WR_added},
    {"mg::conv", WR_conv},
    {"aten::convolution", WR_conv},
    {"aten::convolution_backward", WR_conv_grad},
    {"mg::sdpa", WR_attention},
    {"aten::scaled_dot_product_attention", WR_attention},
    {"aten::_scaled_dot_product_flash_attention_for_cpu", WR_attention},
};

static double work_call(const MgSched *s, const MgExtern *e, WorkRule rule) {
  double out = e->nout ? work_numel(s, &e->out[0]) : 0;
  if (e->nin < 2) return 0;
  double weights = work_size(s, &e->in[1], 0) > 0 ? work_numel(s, &e->in[1]) / work_size(s, &e->in[1], 0) : 0;
  switch (rule) {
  case WR_product: return 2 * out * work_size(s, &e->in[0], -1);
  case WR_added: return 2 * out * work_size(s, &e->in[1], -1);
  case WR_conv: return 2 * out * weights;
  case WR_conv_grad: {
    double grads = 0;
    for (uint32_t i = 0; i < e->nout && i < 2; i++) grads += e->out[i].buf != 0;
    if (e->nin < 3 || !work_size(s, &e->in[2], 0)) return 0;
    return 2 * grads * work_numel(s, &e->in[0]) * work_numel(s, &e->in[2]) / work_size(s, &e->in[2], 0);
  }
  case WR_attention: return 4 * work_numel(s, &e->in[0]) * work_size(s, &e->in[1], -2);
  }
  return 0;
}

static double work_bytes(const MgSched *s, const MgView *v, uint32_t n) {
  double bytes = 0;
  for (uint32_t i = 0; i < n; i++) bytes += work_numel(s, &v[i]) * mg_dtype_size((MgDtype)v[i].dtype);
  return bytes;
}

void mg_extern_work(const MgSched *s, const MgExtern *e, MgWork *out) {
  const MgOp *op = mg_node(s->g, e->node)->op;
  *out = (MgWork){.bytes = work_bytes(s, e->in, e->nin) + work_bytes(s, e->out, e->nout)};
  for (size_t i = 0; i < sizeof work_rules / sizeof *work_rules; i++)
    if (!strcmp(op->name, work_rules[i].name)) out->flops = work_call(s, e, work_rules[i].rule);
}
