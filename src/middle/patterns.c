/* Library calls and what they take along.
 * In: a functional graph of ATen ops.
 * Out: convolutions, matrix products and attention as mg:: ops, with the batch norm, bias, residual and
 * activation around them folded in; everything else is untouched.
 * Invariants: a value is folded away only when nothing else uses it.  Sizes and strides must be constants,
 * because the engines are made for one shape (runtime/engine/onednn.h).  Values the user sees keep their
 * metadata.
 *
 * One walk in program order.  A node is first rewritten into its mg:: op; a later node that can be folded
 * takes over the op of its producer (the producer dies), or, when only reshapes lie between them, hands its
 * work to the producer and is replaced by its own input. */
#include "ir/graph/ops_mg.h"
#include "middle/decompose_priv.h"
#include <math.h>
#include <string.h>
#include "tuning.h"

typedef struct Pat {
  MgGraph *g;
  uint32_t *uses; /* per value: arguments of live nodes, outputs and write-backs that name it */
  ValRef *now;    /* per value: what replaced it, or 0 */
  const MgSimplifyOpts *o;
} Pat;

/* Positions of arguments of ATen's convolution, and of its batch norms, which go on differently. */
enum { AC_x, AC_w, AC_bias, AC_stride, AC_padding, AC_dilation, AC_transposed, AC_output_padding, AC_groups };
enum { BN_x, BN_weight, BN_bias, BN_mean, BN_var };

/* and of its index_put. */
enum { IP_self, IP_indices, IP_values, IP_accumulate };

/* ---- questions about values
 * ---------------------------------------------------------------------------------- */

static bool pat_const(const Pat *p, SymRef s, int64_t *v) { return mg_ex_const_int(p->g->x, s, v); }

/* A CPU tensor with sizes that are not zero and strides that are not negative, of a dtype the engines take.
 * Only the first `broadcast` dimensions may have stride 0.  Of symbolic sizes the hints decide: an engine
 * refuses runs with others. */
static bool pat_takes_as(const Pat *p, ValRef v, int broadcast, bool widens) {
  if (!v) return false;
  const MgVal *t = mg_val(p->g, v);
  bool bf16 = t->dtype == DT_bf16;
  int64_t step, most;
  if (t->device != DEV_cpu) return false;
  if (t->dtype != DT_f32 && !(p->o->bf16 && bf16) && !(widens && (bf16 || t->dtype == DT_f16))) return false;
  for (int i = 0; i < t->ndim; i++) {
    int64_t size = mg_sym_hint(p->g->x, t->size[i]);
    if (size < 1 || !mg_ex_range(p->g->x, t->stride[i], &step, &most) || step < 0) return false;
    if (step == 0 && !mg_sym_is(p->g->x, t->size[i], 1) && i >= broadcast) return false;
  }
  return true;
}

static bool pat_takes(const Pat *p, ValRef v, int broadcast) { return pat_takes_as(p, v, broadcast, false); }

/* 16-bit values that the processor has no products of: our tiles widen them, but not in thin products. */
static bool pat_widens(const Pat *p, ValRef out) {
  const MgVal *t = mg_val(p->g, out);
  if (t->device != DEV_cpu ||
      !(t->dtype == DT_f16 ? p->o->widen_f16 : t->dtype == DT_bf16 && p->o->widen_bf16))
    return false;
  for (int i = 0; i < t->ndim; i++) {
    int64_t least, most;
    if (!mg_ex_range(p->g->x, t->size[i], &least, &most) || least < (i < t->ndim - 2 ? 1 : MG_TUNE_GEMM_FEW))
      return false;
  }
  return true;
}

static bool pat_takes_arg_as(const Pat *p, const MgArg *a, int broadcast, bool widens) {
  return a->tag == MA_none || (a->tag == MA_val && pat_takes_as(p, a->u.val, broadcast, widens));
}

static bool pat_takes_arg(const Pat *p, const MgArg *a, int broadcast) {
  return pat_takes_arg_as(p, a, broadcast, false);
}

/* A dense vector of n elements and v's dtype, or absent. */
static bool pat_vector(const Pat *p, const MgArg *a, SymRef n, ValRef v) {
  if (a->tag == MA_none) return true;
  if (!pat_takes_arg_as(p, a, 0, pat_widens(p, v))) return false;
  const MgVal *t = mg_val(p->g, a->u.val);
  return t->ndim == 1 && t->dtype == mg_val(p->g, v)->dtype && mg_ex_same(t->size[0], n) &&
         (mg_sym_is(p->g->x, n, 1) || mg_sym_is(p->g->x, t->stride[0], 1));
}

static bool pat_same_size(const Pat *p, ValRef a, ValRef b) {
  const MgVal *s = mg_val(p->g, a), *t = mg_val(p->g, b);
  return s->ndim == t->ndim && s->dtype == t->dtype && !memcmp(s->size, t->size, s->ndim * sizeof *s->size);
}

static bool pat_same_layout(const Pat *p, ValRef a, ValRef b) {
  const MgVal *s = mg_val(p->g, a), *t = mg_val(p->g, b);
  return pat_same_size(p, a, b) && !memcmp(s->stride, t->stride, s->ndim * sizeof *s->stride);
}

static bool pat_number(const Pat *p, const MgArg *a, double *v) {
  int64_t i;
  if (a->tag == MA_float) return *v = a->u.f, true;
  if (a->tag == MA_bool) return *v = a->u.b, true;
  if (a->tag == MA_int && pat_const(p, a->u.sym, &i)) return *v = (double)i, true;
  return false;
}

static bool pat_is_tensor(const MgNode *n, const char *name) { return mg_node_arg(n, name)->tag == MA_val; }

static bool pat_is(const Pat *p, const MgArg *a, double want) {
  double v;
  return pat_number(p, a, &v) && v == want;
}

/* ---- producers
 * ----------------------------------------------------------------------------------------------- */

typedef struct Producer { /* an mg:: node that still can take something along */
  MgNode *n;              /* NULL: none */
  ValRef direct;          /* its result */
  bool reshaped;          /* reshapes lie between it and the value asked for */
  uint8_t residual, act;  /* positions of these arguments */
} Producer;

/* Reshapes keep the elements and their order, so what is elementwise may be done before or after them. */
static bool pat_reshapes(uint16_t code) {
  return code == TOP_view || code == TOP__unsafe_view || code == TOP_reshape || code == TOP_unsqueeze ||
         code == TOP_squeeze || code == TOP_squeeze_dim || code == TOP_squeeze_dims ||
         code == TOP_flatten_using_ints;
}

static Producer pat_producer(const Pat *p, const MgArg *a) {
  Producer r = {0};
  ValRef v = a->tag == MA_val ? a->u.val : 0;
  while (v && p->uses[v] == 1 && mg_val(p->g, v)->def) {
    MgNode *n = mg_node(p->g, mg_val(p->g, v)->def);
    if (n->dead) return r;
    if (pat_reshapes(n->op->code)) {
      v = mg_node_first(n);
      r.reshaped = true;
      continue;
    }
    if (n->op->code != TOP_mg_conv && n->op->code != TOP_mg_matmul) return r;
    r.residual = n->op->code == TOP_mg_conv ? CV_residual : MM_residual;
    r.act = n->op->code == TOP_mg_conv ? CV_act : MM_act;
    r.direct = v;
    if (!*n->arg[r.act].u.str) r.n = n;
    return r;
  }
  return r;
}

/* The node that defines an argument, when it has the code and no other use. */
static MgNode *pat_def(const Pat *p, const MgArg *a, uint16_t code) {
  if (a->tag != MA_val || p->uses[a->u.val] != 1 || !mg_val(p->g, a->u.val)->def) return NULL;
  MgNode *n = mg_node(p->g, mg_val(p->g, a->u.val)->def);
  return n->op->code == code && !n->dead ? n : NULL;
}

static void pat_unuse(ValRef *v, void *arg) { ((Pat *)arg)->uses[*v]--; }
static void pat_use(ValRef *v, void *arg) { ((Pat *)arg)->uses[*v]++; }

static void pat_kill(Pat *p, MgNode *n) {
  mg_node_each_val(n, pat_unuse, p);
  n->dead = true;
}

/* Makes n the op `code` with narg arguments; its first result stays, the others must be unused. */
static void pat_become(Pat *p, MgNode *n, MgTop code, MgArg *arg) {
  mg_node_each_val(n, pat_unuse, p);
  n->op = mg_op_by_code(code);
  n->arg = arg;
  n->narg = n->op->nparam;
  n->nout = 1;
  mg_node_each_val(n, pat_use, p);
}

/* n takes over its producer, which dies: n computes what both did.  Returns n's new
 * arguments to be completed. */
static MgArg *pat_take_over(Pat *p, MgNode *n, MgNode *producer) {
  MgTop code = producer->op->code;
  MgArg *arg = producer->arg;
  pat_kill(p, producer);
  pat_become(p, n, code, arg);
  return arg;
}

/* n's work was given to its producer: its result is its input from now on. */
static void pat_forward(Pat *p, MgNode *n, ValRef input) {
  p->now[n->out[0]] = input;
  p->uses[input] += p->uses[n->out[0]];
  pat_kill(p, n);
}

/* ---- rules
 * --------------------------------------------------------------------------------------------------- */

static MgRc pat_conv(Pat *p, MgNode *n) {
  MgArg *a = n->arg;
  ValRef x = a[AC_x].u.val, w = a[AC_w].u.val;
  if (a[AC_x].tag != MA_val || a[AC_w].tag != MA_val || !pat_takes(p, x, 0) || !pat_takes(p, w, 0) ||
      !pat_takes(p, n->out[0], 0))
    return MG_OK;
  const MgVal *t = mg_val(p->g, x);
  int64_t k;
  if (t->dtype != mg_val(p->g, w)->dtype || t->dtype != mg_val(p->g, n->out[0])->dtype) return MG_OK;
  if (t->ndim < 3 || t->ndim > 5 || !pat_vector(p, &a[AC_bias], mg_val(p->g, n->out[0])->size[1], x))
    return MG_OK;
  for (int i = AC_stride; i <= AC_output_padding; i++) {
    if (i == AC_transposed) continue;
    if (a[i].tag != MA_list || a[i].n != t->ndim - 2u) return MG_OK;
    for (uint32_t j = 0; j < a[i].n; j++)
      if (!pat_const(p, a[i].u.item[j].u.sym, &k) || k < 0) return MG_OK;
  }
  if (!pat_const(p, a[AC_groups].u.sym, &k)) return MG_OK;
  MgArg *m = mg_new(p->g->c, MgArg, CV_groups + 1);
  TRYP(m);
  memcpy(m, a, AC_stride * sizeof *m);
  m[CV_eps] = mg_arg_float(0);
  m[CV_act] = (MgArg){.tag = MA_str, .u.str = ""};
  m[CV_act_a] = m[CV_act_b] = mg_arg_float(0);
  memcpy(m + CV_stride, a + AC_stride, (AC_groups + 1 - AC_stride) * sizeof *m);
  pat_become(p, n, TOP_mg_conv, m);
  return MG_OK;
}

/* Has the same dimension of both stride 0?  The library takes a result's size from an
 * operand that does not broadcast. */
static bool pat_both_expanded(const Pat *p, ValRef a, ValRef b, int nbatch) {
  const MgVal *x = mg_val(p->g, a), *y = mg_val(p->g, b);
  for (int i = 0; i < nbatch; i++)
    if (mg_sym_is(p->g->x, x->stride[i], 0) && mg_sym_is(p->g->x, y->stride[i], 0)) return true;
  return false;
}

static MgRc pat_matmul(Pat *p, MgNode *n) {
  uint16_t code = n->op->code;
  bool adds = code == TOP_addmm || code == TOP_baddbmm;
  MgArg *self = n->arg, *x = self + adds; /* the two factors; before them what is added */
  if (x[0].tag != MA_val || x[1].tag != MA_val) return MG_OK;
  bool widens = pat_widens(p, n->out[0]);
  if (!pat_takes_as(p, n->out[0], 0, widens)) return MG_OK;
  if (mg_dense_is_thin(p->g, x[0].u.val, x[1].u.val)) return MG_OK;
  int nbatch = mg_val(p->g, n->out[0])->ndim - 2;
  for (int i = 0; i < 2; i++)
    if (!pat_takes_as(p, x[i].u.val, nbatch, widens)) return MG_OK;
  if (pat_both_expanded(p, x[0].u.val, x[1].u.val, nbatch)) return MG_OK;
  if (adds && (!pat_takes_arg_as(p, self, 8, widens) || !pat_is(p, mg_node_arg(n, "beta"), 1) ||
               !pat_is(p, mg_node_arg(n, "alpha"), 1)))
    return MG_OK;
  const MgVal *out = mg_val(p->g, n->out[0]);
  if (out->dtype != mg_val(p->g, x[0].u.val)->dtype || out->dtype != mg_val(p->g, x[1].u.val)->dtype)
    return MG_OK;
  if (widens && adds && self->tag == MA_val && mg_val(p->g, self->u.val)->dtype != out->dtype) return MG_OK;
  /* the library reads the innermost dimension of what it adds as dense, whatever its stride says */
  const MgVal *add = adds && self->tag == MA_val ? mg_val(p->g, self->u.val) : NULL;
  if (add && add->ndim && !mg_sym_is(p->g->x, add->size[add->ndim - 1], 1) &&
      !mg_sym_is(p->g->x, add->stride[add->ndim - 1], 1))
    return MG_OK;
  MgArg *m = mg_new(p->g->c, MgArg, MM_act_b + 1);
  TRYP(m);
  m[MM_x] = x[0], m[MM_w] = x[1];
  if (adds) /* the library's bias broadcasts along rows only; anything else is added as a residual */
    m[pat_vector(p, self, out->size[out->ndim - 1], n->out[0]) ? MM_bias : MM_residual] = *self;
  m[MM_act] = (MgArg){.tag = MA_str, .u.str = ""};
  m[MM_act_a] = m[MM_act_b] = mg_arg_float(0);
  pat_become(p, n, TOP_mg_matmul, m);
  return MG_OK;
}

/* Batch norm by running statistics after a convolution. */
static MgRc pat_batch_norm(Pat *p, MgNode *n) {
  MgArg *a = n->arg, *training = mg_node_arg(n, "training");
  if (training && !pat_is(p, training, 0)) return MG_OK;
  for (int i = 1; i < n->nout; i++)
    if (n->out[i] && p->uses[n->out[i]]) return MG_OK;
  Producer pr = pat_producer(p, &a[BN_x]);
  if (!pr.n || pr.reshaped || pr.n->op->code != TOP_mg_conv || mg_val(p->g, pr.direct)->dtype != DT_f32)
    return MG_OK;
  MgArg *m = pr.n->arg;
  if (m[CV_bn_var].tag == MA_val || m[CV_residual].tag == MA_val) return MG_OK;
  if (a[BN_mean].tag != MA_val || a[BN_var].tag != MA_val) return MG_OK;
  SymRef chan = mg_val(p->g, n->out[0])->size[1];
  for (int i = BN_weight; i <= BN_var; i++)
    if (!pat_vector(p, &a[i], chan, n->out[0])) return MG_OK;
  MgArg bn[4] = {a[BN_weight], a[BN_bias], a[BN_mean], a[BN_var]};
  double eps = 0;
  if (!pat_number(p, mg_node_arg(n, "eps"), &eps)) return MG_OK;
  memcpy(m + CV_bn_weight, bn, sizeof bn);
  m[CV_eps] = mg_arg_float(eps);
  for (int i = 0; i < 4; i++)
    if (bn[i].tag == MA_val) p->uses[bn[i].u.val]++; /* balances what pat_take_over takes from the producer */
  pat_take_over(p, n, pr.n);
  return MG_OK;
}

/* x + embedding_dense_backward(grad, indices, ...), as a weight gets that is an embedding and a product, too:
 * the few rows are added to x. */
static MgRc pat_add_rows(Pat *p, MgNode *n, bool *done) {
  MgArg *a = n->arg;
  for (int i = 0; i < 2 && !*done; i++) {
    MgNode *e = pat_def(p, &a[i], TOP_embedding_dense_backward);
    if (!e || !pat_is(p, mg_node_arg(e, "padding_idx"), -1)) continue;
    if (!pat_is(p, mg_node_arg(e, "scale_grad_by_freq"), 0)) continue;
    MgDtype dt = (MgDtype)mg_val(p->g, n->out[0])->dtype;
    if (!pat_same_size(p, a[1 - i].u.val, n->out[0]) || !pat_same_size(p, a[i].u.val, n->out[0])) continue;
    if (dt != DT_f32 && dt != DT_f64) continue; /* sums of 16-bit rows are rounded once by eager */
    MgArg *m = mg_new(p->g->c, MgArg, IP_accumulate + 1);
    TRYP(m);
    m[IP_self] = a[1 - i];
    m[IP_indices] = mg_arg_vals(p->g, &mg_node_arg(e, "indices")->u.val, 1);
    m[IP_values] = *mg_node_arg(e, "grad_output");
    m[IP_accumulate] = mg_arg_bool(true);
    pat_become(p, n, TOP_index_put, m);
    pat_kill(p, e);
    *done = true;
  }
  return MG_OK;
}

/* A residual after a convolution, or a bias after a matrix product. */
static MgRc pat_add(Pat *p, MgNode *n) {
  MgArg *a = n->arg; /* self and other: either may be the one with a producer */
  bool done = false;
  if (!pat_is_tensor(n, "self") || !pat_is_tensor(n, "other") || !pat_is(p, mg_node_arg(n, "alpha"), 1))
    return MG_OK;
  TRY(pat_add_rows(p, n, &done));
  if (done) return MG_OK;
  for (int i = 0; i < 2; i++) {
    MgArg *other = &a[1 - i];
    Producer pr = pat_producer(p, &a[i]);
    if (!pr.n || pr.n->arg[pr.residual].tag == MA_val) continue;
    if (!pat_takes_arg_as(p, other, 0, pat_widens(p, pr.direct))) continue;
    if (a[i].u.val == other->u.val || !pat_same_size(p, a[i].u.val, n->out[0])) continue;
    if (pr.n->op->code == TOP_mg_conv) {
      if (pr.reshaped || !pat_same_size(p, other->u.val, n->out[0])) continue;
      pr.n->arg[CV_residual] = *other;
      p->uses[other->u.val]++;
      pat_take_over(p, n, pr.n);
      return MG_OK;
    }
    const MgVal *out = mg_val(p->g, n->out[0]), *direct = mg_val(p->g, pr.direct);
    if (pr.n->arg[MM_bias].tag == MA_val || !pat_vector(p, other, out->size[out->ndim - 1], n->out[0]))
      continue;
    if (pr.reshaped &&
        (!mg_ex_same(out->size[out->ndim - 1], direct->size[direct->ndim - 1]) ||
         mg_val(p->g, other->u.val)->def > direct->def || !pat_same_layout(p, a[i].u.val, n->out[0])))
      continue; /* given to the producer, so the bias must be there before it */
    ValRef input = a[i].u.val;
    pr.n->arg[MM_bias] = *other;
    p->uses[other->u.val]++;
    if (pr.reshaped) pat_forward(p, n, input);
    else pat_take_over(p, n, pr.n);
    return MG_OK;
  }
  return MG_OK;
}

/* Elementwise functions the engines can apply.  a, b: names of the arguments that
 * are its parameters, or NULL. */
static const struct PatAct {
  uint16_t code;
  const char *name;
  const char *a, *b;
} pat_acts[] = {
    {TOP_relu, "relu"},
    {TOP_relu6, "clip"},
    {TOP_hardtanh, "clip", "min_val", "max_val"},
    {TOP_gelu, "gelu"},
    {TOP_silu, "silu"},
    {TOP_sigmoid, "sigmoid"},
    {TOP_tanh, "tanh"},
    {TOP_hardswish, "hardswish"},
    {TOP_hardsigmoid, "hardsigmoid"},
    {TOP_leaky_relu, "leaky_relu", "negative_slope"},
    {TOP_mish, "mish"},
};

static const struct PatAct *pat_find_act(uint16_t code) {
  for (size_t i = 0; i < sizeof pat_acts / sizeof *pat_acts; i++)
    if (pat_acts[i].code == code) return &pat_acts[i];
  return NULL;
}

static MgRc pat_act(Pat *p, MgNode *n) {
  const struct PatAct *f = pat_find_act(n->op->code);
  const char *name = f->name;
  double lo = 0, hi = n->op->code == TOP_relu6 ? 6 : 0;
  if (f->a && !pat_number(p, mg_node_arg(n, f->a), &lo)) return MG_OK;
  if (f->b && !pat_number(p, mg_node_arg(n, f->b), &hi)) return MG_OK;
  if (n->op->code == TOP_leaky_relu && lo == 0) return MG_OK; /* the library takes it for a relu: 0 for NaN */
  const MgArg *how = n->op->code == TOP_gelu ? mg_node_arg(n, "approximate") : NULL;
  if (how && how->tag == MA_str && !strcmp(how->u.str, "tanh")) name = "gelu_tanh";
  const MgArg *self = mg_node_arg(n, "self");
  Producer pr = pat_producer(p, self);
  if (!pr.n || !pat_same_size(p, self->u.val, n->out[0])) return MG_OK;
  if (pr.reshaped && !pat_same_layout(p, self->u.val, n->out[0])) return MG_OK;
  pr.n->arg[pr.act].u.str = name;
  pr.n->arg[pr.act + 1] = mg_arg_float(lo);
  pr.n->arg[pr.act + 2] = mg_arg_float(hi);
  if (pr.reshaped) pat_forward(p, n, self->u.val);
  else pat_take_over(p, n, pr.n);
  return MG_OK;
}

/* ---- gelu written out: 0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))) ---- */

static bool pat_near(const Pat *p, const MgArg *a, double want) {
  double v;
  return pat_number(p, a, &v) && fabs(v - want) <= 1e-6 * fabs(want);
}

/* The other argument of n when one is the constant c; NULL when none is. */
static const MgArg *pat_with(const Pat *p, const MgNode *n, double c) {
  for (int i = 0; n && i < 2; i++)
    if (pat_near(p, &n->arg[i], c) && n->arg[1 - i].tag == MA_val) return &n->arg[1 - i];
  return NULL;
}

static MgNode *pat_def_add(const Pat *p, const MgArg *a) {
  MgNode *n = pat_def(p, a, TOP_add_Tensor);
  return n && pat_is(p, mg_node_arg(n, "alpha"), 1) ? n : NULL;
}

/* x when the two factors of n are 0.5 * x and 1 + tanh(...); nodes of the chain are collected in dead[]. */
static ValRef pat_gelu_input(const Pat *p, const MgNode *n, int half, MgNode *dead[8], int *ndead) {
  const MgArg *x = NULL, *u;
  MgNode *h = pat_def(p, &n->arg[half], TOP_mul_Tensor), *one = pat_def_add(p, &n->arg[1 - half]), *th, *in,
         *sum, *cube;
  if (!(x = pat_with(p, h, 0.5)) || !(u = pat_with(p, one, 1)) || !(th = pat_def(p, u, TOP_tanh))) return 0;
  if (!(in = pat_def(p, mg_node_arg(th, "self"), TOP_mul_Tensor)) ||
      !(u = pat_with(p, in, 0.7978845608028654)))
    return 0;
  if (!(sum = pat_def_add(p, u))) return 0;
  for (int i = 0; i < 2; i++) {
    MgNode *scaled = pat_def(p, &sum->arg[1 - i], TOP_mul_Tensor);
    if (sum->arg[i].tag != MA_val || sum->arg[i].u.val != x->u.val || !(u = pat_with(p, scaled, 0.044715)))
      continue;
    if (!(cube = pat_def(p, u, TOP_pow_Tensor_Scalar)) || !pat_is(p, mg_node_arg(cube, "exponent"), 3))
      continue;
    if (mg_node_first(cube) != x->u.val) continue;
    MgNode *all[] = {h, one, th, in, sum, scaled, cube};
    memcpy(dead, all, sizeof all);
    *ndead = 7;
    return x->u.val;
  }
  return 0;
}

static MgRc pat_mul(Pat *p, MgNode *n) {
  MgNode *dead[8];
  int ndead = 0;
  ValRef x = 0;
  if (!pat_is_tensor(n, "self") || !pat_is_tensor(n, "other")) return MG_OK;
  for (int half = 0; half < 2 && !x; half++) x = pat_gelu_input(p, n, half, dead, &ndead);
  if (!x || !mg_dtype_is_float(mg_val(p->g, x)->dtype) || !pat_same_size(p, x, n->out[0])) return MG_OK;
  enum { GELU_self, GELU_approximate, GELU__COUNT };
  MgArg *a = mg_new(p->g->c, MgArg, GELU__COUNT);
  TRYP(a);
  a[GELU_self] = mg_arg_val(x);
  a[GELU_approximate] = (MgArg){.tag = MA_str, .u.str = "tanh"};
  p->uses[x]++; /* until n reads it */
  for (int i = 0; i < ndead; i++) pat_kill(p, dead[i]);
  pat_become(p, n, TOP_gelu, a);
  p->uses[x]--;
  return pat_act(p, n);
}

/* ---- attention
 * ----------------------------------------------------------------------------------------------- */

/* n becomes mg::sdpa if the engine takes its operands (each [batch, head, length, width]).  *done: it did. */
static MgRc pat_become_sdpa(Pat *p, MgNode *n, const MgArg qkv[3], MgArg mask, bool causal, double scale,
                            bool *done) {
  int64_t k;
  for (int i = 0; i < 4; i++) {
    ValRef v = i < 3 ? qkv[i].u.val : n->out[0];
    if (!pat_takes(p, v, 0) || mg_val(p->g, v)->ndim != 4 || mg_val(p->g, v)->dtype != DT_f32) return MG_OK;
    if (!pat_const(p, mg_val(p->g, v)->stride[3], &k) || k != 1) return MG_OK;
  }
  const MgVal *q = mg_val(p->g, qkv[SD_q].u.val);
  if (!pat_takes_arg(p, &mask, 4) || (mask.tag == MA_val && mg_val(p->g, mask.u.val)->ndim > 4)) return MG_OK;
  if (!mg_ex_same(mg_val(p->g, qkv[SD_k].u.val)->size[1], q->size[1]))
    return MG_OK; /* heads that share keys */
  MgArg *m = mg_new(p->g->c, MgArg, SD_scale + 1);
  TRYP(m);
  memcpy(m, qkv, SD_mask * sizeof *m);
  m[SD_mask] = mask;
  m[SD_is_causal] = mg_arg_bool(causal);
  m[SD_scale] = mg_arg_float(scale);
  pat_become(p, n, TOP_mg_sdpa, m);
  *done = true;
  return MG_OK;
}

/* ATen's attention, when nobody reads its log-sum-exp. */
static MgRc pat_attention(Pat *p, MgNode *n) {
  const MgArg *causal = mg_node_arg(n, "is_causal"), *given = mg_node_arg(n, "scale");
  int64_t k;
  double scale = 0;
  bool done = false;
  if (n->nout > 1 && n->out[1] && p->uses[n->out[1]]) return MG_OK;
  if (!pat_is(p, mg_node_arg(n, "dropout_p"), 0) || causal->tag != MA_bool) return MG_OK;
  const MgVal *q = mg_val(p->g, mg_node_first(n));
  if (q->ndim != 4 || !pat_const(p, q->size[3], &k)) return MG_OK;
  if (given->tag == MA_none) scale = 1 / sqrt((double)k);
  else if (!pat_number(p, given, &scale)) return MG_OK;
  return pat_become_sdpa(p, n, n->arg, *mg_node_arg(n, "attn_mask"), causal->u.b, scale, &done);
}

/* Removes the node that makes v, and then its arguments' nodes, as far as nothing uses them any more. */
static void pat_sweep(ValRef *v, void *arg) {
  Pat *p = arg;
  NodeRef def = mg_val(p->g, *v)->def;
  MgNode *n = def ? mg_node(p->g, def) : NULL;
  if (!n || n->dead || n->op->mutates || mg_node_random(n)) return;
  for (int i = 0; i < n->nout; i++)
    if (n->out[i] && p->uses[n->out[i]]) return;
  pat_kill(p, n);
  mg_node_each_val(n, pat_sweep, p);
}

/* The value of sizes batch, head, rows, cols (in this order) that v was copied or
 * reshaped from; 0: there is none. */
static ValRef pat_heads(const Pat *p, ValRef v, const SymRef size[4]) {
  for (;;) {
    const MgVal *t = mg_val(p->g, v);
    NodeRef def = t->def;
    const MgNode *n = def ? mg_node(p->g, def) : NULL;
    uint16_t c = n ? n->op->code : 0;
    bool same = t->ndim == 4 && !memcmp(t->size, size, 4 * sizeof *size);
    bool copy = c == TOP_clone || c == TOP_expand;
    if (same && !copy) return v;
    if (!n || n->dead || !mg_node_first(n) || !(copy || pat_reshapes(c))) return same ? v : 0;
    ValRef from = mg_node_first(n);
    if (copy && !pat_same_size(p, from, v)) return same ? v : 0;
    v = from;
  }
}

/* Attention written out: view of softmax(q @ k^T [* c] [+ mask]) @ v, with batches and heads folded for the
 * products as torch.matmul does.  n is the view that unfolds them again. */
static MgRc pat_attention_parts(Pat *p, MgNode *n) {
  const MgVal *out = mg_val(p->g, n->out[0]);
  MgNode *pv, *soft, *qk, *m;
  MgArg mask = mg_arg_none();
  double scale = 1, c;
  bool done = false;
  if (out->ndim != 4 || !(pv = pat_def(p, mg_node_arg(n, "self"), TOP_mg_matmul))) return MG_OK;
  if (pv->arg[MM_bias].tag == MA_val || pv->arg[MM_residual].tag == MA_val || *pv->arg[MM_act].u.str)
    return MG_OK;
  const MgArg *a = &pv->arg[MM_x];
  for (; (m = pat_def(p, a, TOP_view)) || (m = pat_def(p, a, TOP__unsafe_view)) ||
         (m = pat_def(p, a, TOP_expand));)
    a = mg_node_arg(m, "self");
  if (!(soft = pat_def(p, a, TOP__softmax)) || !pat_is(p, mg_node_arg(soft, "half_to_float"), 0))
    return MG_OK;
  const MgVal *s = mg_val(p->g, soft->out[0]);
  const MgArg *over = mg_node_arg(soft, "dim");
  if (s->ndim != 4 || !(pat_is(p, over, -1) || pat_is(p, over, 3))) return MG_OK;
  a = mg_node_arg(soft, "self");
  if ((m = pat_def_add(p, a)) && pat_is_tensor(m, "self") && pat_is_tensor(m, "other")) {
    a = mg_node_arg(m, "self"), mask = *mg_node_arg(m, "other");
    if (!pat_same_size(p, a->u.val, soft->out[0])) return MG_OK;
  }
  if ((m = pat_def(p, a, TOP_mul_Tensor)) && pat_number(p, mg_node_arg(m, "other"), &c))
    scale = c, a = mg_node_arg(m, "self");
  else if ((m = pat_def(p, a, TOP_div_Tensor)) && pat_number(p, mg_node_arg(m, "other"), &c))
    scale = 1 / c, a = mg_node_arg(m, "self");
  while ((m = pat_def(p, a, TOP_view)) || (m = pat_def(p, a, TOP__unsafe_view))) a = mg_node_arg(m, "self");
  if (!(qk = pat_def(p, a, TOP_mg_matmul)) || *qk->arg[MM_act].u.str) return MG_OK;
  if (qk->arg[MM_bias].tag == MA_val || qk->arg[MM_residual].tag == MA_val) return MG_OK;
  /* operands with their own batches and heads; the keys before their last transposition */
  const MgVal *x = mg_val(p->g, qk->arg[MM_x].u.val);
  SymRef width = x->size[x->ndim - 1], *z = s->size;
  ValRef q = pat_heads(p, qk->arg[MM_x].u.val, (SymRef[]){z[0], z[1], z[2], width});
  ValRef kt = pat_heads(p, qk->arg[MM_w].u.val, (SymRef[]){z[0], z[1], width, z[3]});
  ValRef v = pat_heads(p, pv->arg[MM_w].u.val, (SymRef[]){z[0], z[1], z[3], out->size[3]});
  if (!q || !kt || !v || !mg_val(p->g, kt)->def) return MG_OK;
  m = mg_node(p->g, mg_val(p->g, kt)->def);
  double d0, d1;
  if (m->op->code != TOP_transpose_int || !pat_number(p, mg_node_arg(m, "dim0"), &d0) ||
      !pat_number(p, mg_node_arg(m, "dim1"), &d1))
    return MG_OK;
  d0 += d0 < 0 ? 4 : 0, d1 += d1 < 0 ? 4 : 0;
  if (d0 + d1 != 5 || (d0 != 2 && d1 != 2)) return MG_OK;
  MgArg qkv[3] = {mg_arg_val(q), *mg_node_arg(m, "self"), mg_arg_val(v)};
  ValRef product = pv->out[0];
  TRY(pat_become_sdpa(p, n, qkv, mask, false, scale, &done));
  if (done) pat_sweep(&product, p);
  return MG_OK;
}

/* Singular values and eigenvalues alone are much cheaper than with their vectors, which
 * recording asks for to be safe. */
static MgRc pat_values_only(Pat *p, MgNode *n) {
  int values = n->op->code == TOP__linalg_svd;
  for (uint32_t i = 0; i < n->nout; i++)
    if ((int)i != values && n->out[i] && p->uses[n->out[i]]) return MG_OK;
  MgArg *vectors = mg_node_arg(n, values ? "compute_uv" : "compute_v");
  if (vectors->tag == MA_bool) vectors->u.b = false;
  return MG_OK;
}

/* The engine of the node that a rule makes. */
typedef enum PatNeed { NEED_none, NEED_onednn, NEED_products } PatNeed;

static const struct PatRule {
  uint16_t code;
  PatNeed need;
  MgRc (*apply)(Pat *p, MgNode *n);
} pat_rules[] = {
    {TOP_convolution, NEED_onednn, pat_conv},
    {TOP__convolution, NEED_onednn, pat_conv},
    {TOP_mm, NEED_products, pat_matmul},
    {TOP_addmm, NEED_products, pat_matmul},
    {TOP_bmm, NEED_products, pat_matmul},
    {TOP_baddbmm, NEED_products, pat_matmul},
    {TOP_native_batch_norm, NEED_none, pat_batch_norm},
    {TOP__native_batch_norm_legit_no_training, NEED_none, pat_batch_norm},
    {TOP_add_Tensor, NEED_none, pat_add},
    {TOP_mul_Tensor, NEED_none, pat_mul},
    {TOP__scaled_dot_product_flash_attention_for_cpu, NEED_none, pat_attention},
    {TOP__linalg_svd, NEED_none, pat_values_only},
    {TOP__linalg_eigh, NEED_none, pat_values_only},
    {TOP_view, NEED_none, pat_attention_parts},
    {TOP__unsafe_view, NEED_none, pat_attention_parts},
};

/* ---- the walk
 * ------------------------------------------------------------------------------------------------ */

static void pat_rename(ValRef *v, void *arg) {
  const Pat *p = arg;
  while (p->now[*v]) *v = p->now[*v];
}

static bool pat_has(const Pat *p, PatNeed need) {
  return need == NEED_products ? p->o->products : need == NEED_onednn ? p->o->onednn : true;
}

static MgRc pat_node(Pat *p, MgNode *n) {
  mg_node_each_val(n, pat_rename, p);
  for (size_t i = 0; i < sizeof pat_rules / sizeof *pat_rules; i++)
    if (pat_rules[i].code == n->op->code)
      return pat_has(p, pat_rules[i].need) ? pat_rules[i].apply(p, n) : MG_OK;
  return pat_find_act(n->op->code) ? pat_act(p, n) : MG_OK;
}

MgRc mg_patterns(MgGraph *g, const MgSimplifyOpts *o) {
  Pat p = {.g = g, .o = o};
  TRYP(p.uses = mg_new(g->c, uint32_t, g->nval));
  TRYP(p.now = mg_new(g->c, ValRef, g->nval));
  for (uint32_t k = 1; k < g->nnode; k++)
    if (!mg_node(g, k)->dead) mg_node_each_val(mg_node(g, k), pat_use, &p);
  for (uint32_t i = 0; i < g->noutput; i++) p.uses[g->output[i]]++;
  for (uint32_t i = 0; i < g->nwb; i++) p.uses[g->wb_value[i]]++;
  for (uint32_t k = 1; k < g->nnode; k++)
    if (!mg_node(g, k)->dead) TRY(pat_node(&p, mg_node(g, k)));
  for (uint32_t i = 0; i < g->noutput; i++) pat_rename(&g->output[i], &p);
  for (uint32_t i = 0; i < g->nwb; i++) pat_rename(&g->wb_value[i], &p);
  return MG_OK;
}
