/* Ops with random slopes: where they draw nothing they are activations like others.  Dropout on a GPU: its
 * numbers are a function of the seed and of the place, and so fuse with what is around them. */
#include <string.h>
#include "middle/decompose_priv.h"

static bool random_number(const MgRewrite *rw, const char *name, double *out) {
  const MgArg *a = mg_dec_arg(rw, name);
  int64_t k;
  if (a->tag == MA_float) return *out = a->u.f, true;
  if (a->tag != MA_int || !mg_ex_const_int(rw->g->x, a->u.sym, &k)) return false;
  *out = (double)k;
  return true;
}

/* The slope of rrelu outside of training. */
static bool random_mean_slope(const MgRewrite *rw, MgArg *out) {
  double lower, upper;
  if (!random_number(rw, "lower", &lower) || !random_number(rw, "upper", &upper)) return false;
  *out = (MgArg){.tag = MA_float, .u.f = (lower + upper) / 2};
  return true;
}

/* rrelu_with_noise(self, noise, lower, upper, training): the result and the noise,
 * which only training changes */
static MgRc random_rrelu(MgRewrite *rw) {
  MgArg slope;
  if (mg_node_flag(&rw->n, "training") || !random_mean_slope(rw, &slope)) return MG_UNSUP;
  if (rw->n.nout > 1 && rw->n.out[1]) TRY(mg_dec_give(rw, 1, mg_dec_val(rw, "noise")));
  return mg_dec_give(rw, 0, mg_dec(rw, TOP_leaky_relu, *mg_dec_arg(rw, "self"), slope));
}

/* rrelu_with_noise_backward(grad, self, noise, lower, upper, training, self_is_result); ATen takes a
 * narrow range for one slope */
static MgRc random_rrelu_backward(MgRewrite *rw) {
  double lower, upper;
  MgArg slope;
  if (!random_number(rw, "lower", &lower) || !random_number(rw, "upper", &upper) ||
      !random_mean_slope(rw, &slope))
    return MG_UNSUP;
  if (mg_node_flag(&rw->n, "training") && upper - lower > 1e-6)
    return mg_dec_give(rw, 0,
                       mg_dec(rw, TOP_mul_Tensor, *mg_dec_arg(rw, "grad_output"), *mg_dec_arg(rw, "noise")));
  return mg_dec_give(rw, 0,
                     mg_dec(rw, TOP_leaky_relu_backward, *mg_dec_arg(rw, "grad_output"),
                            *mg_dec_arg(rw, "self"), slope, *mg_dec_arg(rw, "self_is_result")));
}

/* ---- dropout on a GPU ---- */

/* Threads of a block; numbers that a thread draws at a time. */
enum { DROP_BLOCK = 256, DROP_LANES = 4, DROP_DIMS = 16 };

/* The one result of a new node of an op of ours; 0: out of memory. */
static ValRef random_node(MgRewrite *rw, MgTop code, const MgArg *arg, int narg, MgDtype dtype, int ndim,
                          const SymRef *size, const SymRef *stride) {
  MgGraph *g = rw->g;
  NodeRef k = mg_graph_node(g, mg_op_by_code(code), narg, 1);
  ValRef v = k ? mg_graph_val(g, dtype, ndim) : 0;
  if (!v) return 0;
  MgVal *m = mg_val(g, v);
  const MgVal *like = mg_val(g, rw->n.out[0]);
  memcpy(m->size, size, (size_t)ndim * sizeof *size);
  memcpy(m->stride, stride, (size_t)ndim * sizeof *stride);
  m->device = like->device;
  m->dev_index = like->dev_index;
  m->offset = mg_sym(g->x, 0);
  m->def = k;
  memcpy(mg_node(g, k)->arg, arg, (size_t)narg * sizeof *arg);
  mg_node(g, k)->out[0] = v;
  mg_node(g, k)->grad_mode = rw->n.grad_mode;
  return v;
}

/* The number of elements of a tensor of known sizes without gaps; 0: another one. */
static int64_t random_dense(const MgGraph *g, const MgVal *m) {
  int64_t size[DROP_DIMS], stride[DROP_DIMS], n = 1;
  if (m->ndim > DROP_DIMS) return 0;
  for (int i = 0; i < m->ndim; i++)
    if (!mg_ex_const_int(g->x, m->size[i], &size[i]) || !mg_ex_const_int(g->x, m->stride[i], &stride[i]))
      return 0;
  for (;;) { /* dimensions from the innermost out */
    int at = 0;
    while (at < m->ndim && (size[at] == 1 || stride[at] != n)) at++;
    if (at == m->ndim) break;
    n *= size[at];
    if (!n) return 0;
    size[at] = 1;
  }
  for (int i = 0; i < m->ndim; i++)
    if (size[i] != 1) return 0;
  return n;
}

/* How many neighbours a thread of PyTorch's kernel has: 16 bytes of an input that lies where memory of its
 * own begins.  0: not four or eight. */
static int64_t random_each(const MgGraph *g, ValRef v, int64_t n) {
  NodeRef def = mg_val(g, v)->def;
  if (!n || n % DROP_LANES || !def || mg_node(g, def)->op->is_view) return 0;
  int64_t most = 16 / mg_dtype_size((MgDtype)mg_val(g, v)->dtype);
  return n % most ? DROP_LANES : most;
}

/* native_dropout(input, p, train): the result, and which elements stay */
static MgRc random_dropout(MgRewrite *rw) {
  MgGraph *g = rw->g;
  ValRef x = mg_dec_val(rw, "input");
  const MgArg *train = mg_dec_arg(rw, "train");
  const MgVal *m = mg_val(g, x);
  double p;
  bool half = m->dtype == DT_f16 || m->dtype == DT_bf16;
  if (!g->draw_threads || m->device != DEV_cuda || (m->dtype != DT_f32 && !half) || rw->n.nout != 2 ||
      !random_number(rw, "p", &p) || p <= 0 || p >= 1 || (train->tag == MA_bool && !train->u.b))
    return MG_UNSUP;
  int64_t n = random_dense(g, m), each = random_each(g, x, n);
  if (!each) return MG_UNSUP;
  int64_t blocks = (n + DROP_BLOCK - 1) / DROP_BLOCK, most = g->draw_threads / DROP_BLOCK;
  int64_t threads = DROP_BLOCK * (blocks < most ? blocks : most);
  int64_t drawn = ((n - 1) / (threads * DROP_LANES) + 1) * DROP_LANES;
  const SymRef two[] = {mg_sym(g->x, 2)}, one[] = {mg_sym(g->x, 1)};
  MgArg draw = mg_arg_int(g, drawn);
  ValRef draws = random_node(rw, TOP_mg_draws, &draw, 1, DT_i64, 1, two, one);
  m = mg_val(g, x);
  MgArg where[] = {mg_arg_val(draws),
                   mg_arg_int(g, 0),
                   mg_arg_int(g, threads),
                   mg_arg_int(g, each),
                   mg_arg_syms(g, m->size, m->ndim),
                   mg_arg_syms(g, m->stride, m->ndim)};
  ValRef u = draws ? random_node(rw, TOP_mg_uniform, where, 6, DT_f32, m->ndim, m->size, m->stride) : 0;
  if (!u) return g->c->rc ? g->c->rc : MG_NOMEM;
  float keep = (float)(1 - p), scale = (float)(1 / (double)keep);
  ValRef kept = mg_dec(rw, TOP_lt_Scalar, mg_arg_val(u), mg_arg_float(keep));
  ValRef y = kept ? mg_dec(rw, TOP_mul_Tensor, mg_arg_val(x), mg_arg_val(kept)) : 0;
  y = y ? mg_dec(rw, TOP_mul_Scalar, mg_arg_val(y), mg_arg_float(scale)) : 0;
  if (rw->n.out[1] && kept) TRY(mg_dec_give(rw, 1, kept));
  return mg_dec_give(rw, 0, y);
}

static int64_t random_int(const MgGraph *g, const MgNode *n, const char *name) {
  int64_t k = 0;
  mg_ex_const_int(g->x, mg_node_arg(n, name)->u.sym, &k);
  return k;
}

MgRc mg_dec_join_draws(MgGraph *g) {
  ValRef *first = mg_new(g->c, ValRef, g->nval + 1); /* per result of a draw: that of the first of its run */
  int64_t *skip = mg_new(g->c, int64_t, g->nval + 1);
  NodeRef run = 0; /* the first draw, if no other random call has come since */
  TRYP(first && skip);
  for (NodeRef k = 1; k < g->nnode; k++) {
    MgNode *n = mg_node(g, k);
    if (n->dead) continue;
    if (n->op->code == TOP_mg_uniform && first[mg_node_first(n)]) {
      ValRef v = mg_node_first(n);
      *mg_node_arg(n, "draws") = mg_arg_val(first[v]);
      *mg_node_arg(n, "skip") = mg_arg_int(g, random_int(g, n, "skip") + skip[v] / DROP_LANES);
    } else if (n->op->code == TOP_mg_draws && run && mg_node(g, run)->backward == n->backward) {
      MgNode *all = mg_node(g, run);
      int64_t before = random_int(g, all, "n");
      first[n->out[0]] = all->out[0];
      skip[n->out[0]] = before;
      *mg_node_arg(all, "n") = mg_arg_int(g, before + random_int(g, n, "n"));
      n->dead = true;
    } else if (mg_node_random(n)) {
      run = n->op->code == TOP_mg_draws ? k : 0;
    }
  }
  return MG_OK;
}

const MgDecRow mg_dec_random[] = {
    {TOP_native_dropout, random_dropout},
    {TOP_rrelu_with_noise, random_rrelu},
    {TOP_rrelu_with_noise_backward, random_rrelu_backward},
    {0},
};
