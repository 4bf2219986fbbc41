/* Products and convolutions of a GPU as cuBLAS and cuDNN are fast at them.
 * In: a node on a CUDA device.  Out: the same call on operands of other strides, which
 * the kernels that compute them write as they like, or a product in place of a convolution. */
#include "middle/decompose_priv.h"
#include "tuning.h"

#define V mg_arg_val

enum { ALIGNED = 4 }; /* numbers of float32 that 16 bytes hold */

static bool cuda_matrix(const MgGraph *g, ValRef v, int64_t *size, int64_t *stride) {
  const MgVal *m = mg_val(g, v);
  if (m->ndim != 2 || m->dtype != DT_f32 || m->device != DEV_cuda) return false;
  for (int i = 0; i < 2; i++)
    if (!mg_ex_const_int(g->x, m->size[i], &size[i]) || !mg_ex_const_int(g->x, m->stride[i], &stride[i]))
      return false;
  return size[0] * size[1] >= MG_TUNE_GPU_TURNED;
}

static ValRef cuda_contiguous(MgRewrite *rw, ValRef v) {
  return mg_dec(rw, TOP_clone, V(v), mg_arg_code(MA_memory_format, MF_contiguous));
}

/* An operand whose rows do not begin at multiples of 16 bytes while its columns would: its elements by
 * columns. v itself if that is no gain, or would be one more pass over memory. */
static ValRef cuda_operand(MgRewrite *rw, ValRef v) {
  int64_t size[2], stride[2];
  if (!mg_val(rw->g, v)->def || !cuda_matrix(rw->g, v, size, stride)) return v;
  if (stride[1] == 1 && stride[0] % ALIGNED && !(size[0] % ALIGNED))
    return mg_dec(rw, TOP_t, V(cuda_contiguous(rw, mg_dec(rw, TOP_t, V(v)))));
  if (stride[0] == 1 && stride[1] % ALIGNED && !(size[1] % ALIGNED)) return cuda_contiguous(rw, v);
  return v;
}

/* Rows of an odd length make every TF32 kernel of cuBLAS take its slow way: 1024x768x50257 takes 635 us by
 * rows and 210 by columns on an H200. */
ValRef mg_dec_cuda_columns(MgRewrite *rw, ValRef a, ValRef b) {
  int64_t size[2], stride[2];
  bool odd = cuda_matrix(rw->g, rw->n.out[0], size, stride) && stride[0] % ALIGNED && !(size[0] % ALIGNED);
  if (!odd) return 0;
  return mg_dec(rw, TOP_t, V(mg_dec(rw, TOP_mm, V(mg_dec(rw, TOP_t, V(b))), V(mg_dec(rw, TOP_t, V(a))))));
}

MgRc mg_dec_cuda_mm(MgRewrite *rw) {
  ValRef a = mg_dec_val(rw, "self"), b = mg_dec_val(rw, "mat2");
  ValRef turned = mg_dec_cuda_columns(rw, a, b);
  if (turned) return mg_dec_give(rw, 0, turned);
  ValRef x = cuda_operand(rw, a), y = cuda_operand(rw, b);
  if (x == a && y == b) return MG_UNSUP;
  return mg_dec_give(rw, 0, mg_dec(rw, TOP_mm, V(x), V(y)));
}

/* The numbers of a list of two; false: others, or not known. */
static bool cuda_pair(const MgRewrite *rw, const char *name, int64_t out[2]) {
  const MgArg *a = mg_dec_arg(rw, name);
  if (a->tag != MA_list || a->n != 2) return false;
  for (int i = 0; i < 2; i++)
    if (a->u.item[i].tag != MA_int || !mg_ex_const_int(rw->g->x, a->u.item[i].u.sym, &out[i])) return false;
  return true;
}

static bool cuda_sizes(const MgGraph *g, ValRef v, int64_t size[4]) {
  const MgVal *m = mg_val(g, v);
  if (m->device != DEV_cuda || m->ndim != 4) return false;
  for (int i = 0; i < 4; i++)
    if (!mg_ex_const_int(g->x, m->size[i], &size[i]) || !size[i]) return false;
  return true;
}

/* Does the convolution cut its input into patches that do not overlap? */
static bool cuda_cuts(const MgRewrite *rw, const int64_t in[4], const int64_t w[4]) {
  int64_t stride[2], padding[2], dilation[2], groups;
  const MgArg *transposed = mg_dec_arg(rw, "transposed"), *n = mg_dec_arg(rw, "groups");
  if (!cuda_pair(rw, "stride", stride) || !cuda_pair(rw, "padding", padding) ||
      !cuda_pair(rw, "dilation", dilation) || !mg_ex_const_int(rw->g->x, n->u.sym, &groups))
    return false;
  bool cuts = groups == 1 && !(transposed->tag == MA_bool && transposed->u.b);
  for (int i = 0; i < 2; i++)
    cuts &= stride[i] == w[2 + i] && !padding[i] && dilation[i] == 1 && in[2 + i] % stride[i] == 0;
  return cuts;
}

/* Patches of few channels as a product: cuDNN's kernels want a multiple of 4 channels, and take 170 us for
 * ViT's 16x3x224x224 by 768x3x16x16, of which the product takes 20 on an H200. */
static MgRc cuda_patches(MgRewrite *rw) {
  MgGraph *g = rw->g;
  ValRef x = mg_dec_val(rw, "input"), weight = mg_dec_val(rw, "weight"), bias = mg_dec_val(rw, "bias");
  int64_t in[4], w[4];
  if (!cuda_sizes(g, x, in) || !cuda_sizes(g, weight, w) || in[1] % ALIGNED == 0 ||
      !mg_val_is_contiguous(g, weight) || !cuda_cuts(rw, in, w))
    return MG_UNSUP;
  int64_t rows = in[2] / w[2], cols = in[3] / w[3], len = w[1] * w[2] * w[3];
  const int64_t cut[] = {in[0], in[1], rows, w[2], cols, w[3]}, order[] = {0, 2, 4, 1, 3, 5},
                flat[] = {in[0] * rows * cols, len}, filters[] = {w[0], len},
                image[] = {in[0], rows, cols, w[0]}, back[] = {0, 3, 1, 2};
  ValRef parts = mg_dec(rw, TOP_permute, V(mg_dec(rw, TOP_view, V(x), mg_arg_ints(g, cut, 6))),
                        mg_arg_ints(g, order, 6));
  parts = mg_dec(rw, TOP_view, V(cuda_contiguous(rw, parts)), mg_arg_ints(g, flat, 2));
  weight = mg_dec(rw, TOP_t, V(mg_dec(rw, TOP_view, V(weight), mg_arg_ints(g, filters, 2))));
  ValRef y =
      bias ? mg_dec(rw, TOP_addmm, V(bias), V(parts), V(weight)) : mg_dec(rw, TOP_mm, V(parts), V(weight));
  y = mg_dec(rw, TOP_view, V(y), mg_arg_ints(g, image, 4));
  return mg_dec_give(rw, 0, mg_dec(rw, TOP_permute, V(y), mg_arg_ints(g, back, 4)));
}

/* An operand of four dimensions that is the program's and that cuDNN would turn. */
static bool cuda_turns(const MgGraph *g, ValRef v) {
  const MgVal *m = mg_val(g, v);
  return m->device == DEV_cuda && m->ndim == 4 && !m->def && !mg_sym_is(g->x, m->stride[1], 1);
}

static bool cuda_one_group(const MgRewrite *rw) {
  const MgArg *groups = mg_dec_arg(rw, "groups");
  return groups->tag == MA_int && mg_sym_is(rw->g->x, groups->u.sym, 1);
}

/* Is it a filter of more than one place, in a convolution without groups? */
static bool cuda_filters(const MgRewrite *rw, ValRef v) {
  const MgVal *m = mg_val(rw->g, v);
  const MgArg *transposed = mg_dec_arg(rw, "transposed");
  return cuda_one_group(rw) && !(transposed->tag == MA_bool && transposed->u.b) &&
         !(mg_sym_is(rw->g->x, m->size[2], 1) && mg_sym_is(rw->g->x, m->size[3], 1)) &&
         !mg_sym_is(rw->g->x, m->size[1], 1);
}

/* cuDNN's kernels want channels-last operands and turn others each for themselves, at each call: what a
 * convolution or its gradients read from the program is turned once, and layout.c goes on with that.  False:
 * nothing is. */
static bool cuda_turn_operands(MgRewrite *rw) {
  ValRef x = mg_dec_val(rw, "input"), w = mg_dec_val(rw, "weight");
  bool data = cuda_turns(rw->g, x), weight = cuda_turns(rw->g, w) && cuda_filters(rw, w);
  if (data) x = mg_dec(rw, TOP_clone, V(x), mg_arg_code(MA_memory_format, MF_channels_last));
  if (weight) w = mg_dec(rw, TOP_clone, V(w), mg_arg_code(MA_memory_format, MF_channels_last));
  if ((!data && !weight) || !x || !w) return false;
  *mg_node_arg(&rw->n, "input") = V(x);
  *mg_node_arg(&rw->n, "weight") = V(w);
  return true;
}

static MgRc cuda_turned(MgRewrite *rw) {
  if (cuda_turn_operands(rw)) return mg_graph_keep(rw);
  return rw->g->c->rc ? rw->g->c->rc : MG_UNSUP;
}

MgRc mg_dec_cuda_convolution(MgRewrite *rw) {
  MgRc cut = cuda_patches(rw);
  if (cut != MG_UNSUP) return cut;
  return cuda_turned(rw);
}

/* One of the gradients by a call of its own. */
static MgRc cuda_gradient(MgRewrite *rw, const MgNode *both, bool data) {
  MgGraph *g = rw->g;
  MgNode *n = &rw->n;
  *n = *both;
  n->arg = mg_ctx_grow(g->c, both->arg, both->narg * sizeof *n->arg, both->narg * sizeof *n->arg);
  n->out = mg_new(g->c, ValRef, both->nout);
  MgArg *mask = n->arg ? mg_node_arg(n, "output_mask") : NULL,
        *item = mg_new(g->c, MgArg, mask ? mask->n : 1);
  TRYP(mask && n->out && item);
  for (uint32_t i = 0; i < mask->n; i++) {
    bool wanted = (i == 0) == data && both->out[i];
    item[i] = mg_arg_bool(wanted);
    n->out[i] = wanted ? both->out[i] : 0;
  }
  mask->u.item = item;
  return mg_graph_keep(rw);
}

/* The gradients of the data and of the filters by two calls, of which a CUDA graph can run one beside others.
 */
MgRc mg_dec_cuda_convolution_backward(MgRewrite *rw) {
  const MgGraph *g = rw->g;
  ValRef w = mg_dec_val(rw, "weight");
  const MgArg *mask = mg_dec_arg(rw, "output_mask");
  const MgVal *m = mg_val(g, w);
  bool two = m->device == DEV_cuda && m->ndim == 4 && rw->n.nout == 3 && rw->n.out[0] && rw->n.out[1] &&
             mask->tag == MA_list && mask->n == 3 && cuda_one_group(rw);
  if (!two) return cuda_turned(rw);
  cuda_turn_operands(rw);
  TRY(g->c->rc);
  const MgNode both = rw->n;
  TRY(cuda_gradient(rw, &both, true));
  return cuda_gradient(rw, &both, false);
}

/* ---- products of one operand ----
 * Queries, keys and values: each product alone leaves half of the chip idle, one product of joined weights
 * fills it.  The weights are joined at each call, as they may have changed. */

enum { JOIN_MOST = 8, JOIN_TILE = 128 };

/* A product of a GPU with a weight of the program: x [rows, inner] @ w.t(), w [columns, inner]. */
typedef struct Product {
  ValRef x, w, bias;
  int64_t rows, inner, columns;
  bool fixed;  /* somebody needs its strides */
  bool joined; /* it is one of a group, the first one or a later one */
  ValRef next; /* of the group; 0: none */
  ValRef part; /* what stands for it, once the group's first product was written */
} Product;

typedef struct Join {
  MgGraph *g;
  const MgSimplifyOpts *o;
  Product *product; /* per value: what it is, inner 0 where it is none */
  ValRef *of;       /* per value: the product that it is or that it is a view of, or 0 */
  bool *turned;     /* per value: a view whose last dimensions are no longer the product's columns */
  NodeRef reader;   /* the node being looked at */
} Join;

static bool join_dims(const MgGraph *g, ValRef v, int ndim, int64_t *size, int64_t *stride) {
  const MgVal *m = mg_val(g, v);
  if (m->ndim != ndim || m->device != DEV_cuda) return false;
  for (int i = 0; i < ndim; i++)
    if (!mg_ex_const_int(g->x, m->size[i], &size[i]) || !mg_ex_const_int(g->x, m->stride[i], &stride[i]))
      return false;
  return true;
}

static bool join_is_one(const MgGraph *g, const MgNode *n, const char *name) {
  const MgArg *a = mg_node_arg(n, name);
  return (a->tag == MA_int && mg_sym_is(g->x, a->u.sym, 1)) || (a->tag == MA_float && a->u.f == 1);
}

static bool join_product(const MgGraph *g, const MgNode *n, Product *p) {
  bool add = n->op->code == TOP_addmm;
  int64_t size[2], stride[2];
  if (n->dead || (!add && n->op->code != TOP_mm)) return false;
  *p = (Product){.x = mg_node_arg(n, add ? "mat1" : "self")->u.val, .bias = add ? mg_node_first(n) : 0};
  ValRef t = mg_node_arg(n, "mat2")->u.val;
  const MgNode *turn = mg_val(g, t)->def ? mg_node(g, mg_val(g, t)->def) : NULL;
  if (!turn || !turn->op->is_view || !join_dims(g, t, 2, size, stride)) return false;
  p->w = mg_node_first(turn);
  p->inner = size[0], p->columns = size[1];
  if (mg_val(g, p->w)->def || mg_val(g, p->w)->ndim != 2 || !mg_val_is_contiguous(g, p->w) ||
      stride[0] != 1 || stride[1] != p->inner || p->columns % ALIGNED)
    return false;
  if (!join_dims(g, n->out[0], 2, size, stride) || stride[1] != 1) return false;
  p->rows = size[0];
  if (!add) return true;
  return join_is_one(g, n, "beta") && join_is_one(g, n, "alpha") && p->bias && !mg_val(g, p->bias)->def &&
         join_dims(g, p->bias, 1, size, stride) && stride[0] == 1 && size[0] == p->columns;
}

/* Do the last dimensions of v's sizes hold just the columns of the product? */
static bool join_keeps_rows(const MgGraph *g, ValRef v, ValRef product) {
  const MgVal *m = mg_val(g, v);
  int64_t columns, k, all = 1;
  if (!mg_ex_const_int(g->x, mg_val(g, product)->size[1], &columns)) return false;
  for (int d = m->ndim; d-- > 0 && all < columns;) {
    if (!mg_ex_const_int(g->x, m->size[d], &k)) return false;
    all *= k;
  }
  return all == columns;
}

static bool join_reshapes(const MgNode *n) {
  uint16_t c = n->op->code;
  return c == TOP_view || c == TOP__unsafe_view || c == TOP_reshape;
}

/* Attention takes operands of any strides but the last; loops take any. */
static bool join_reads_any(const Join *j, NodeRef k) {
  const MgNode *n = mg_node(j->g, k);
  switch (n->op->code) {
  case TOP__scaled_dot_product_flash_attention:
  case TOP__scaled_dot_product_efficient_attention:
  case TOP__scaled_dot_product_cudnn_attention: return true;
  default: return !n->op->is_view && j->o->lowers && j->o->lowers(j->g, k);
  }
}

static void join_read(ValRef *v, void *arg) {
  Join *j = arg;
  MgGraph *g = j->g;
  const MgNode *n = mg_node(g, j->reader);
  ValRef product = j->of[*v];
  if (!product) return;
  bool shapes = join_reshapes(n), view = n->op->is_view || shapes;
  bool follows = view && n->nout == 1 && n->out[0] && mg_node_first(n) == *v;
  if (shapes) follows &= !j->turned[*v] && join_keeps_rows(g, n->out[0], product);
  if (follows) {
    j->of[n->out[0]] = product;
    j->turned[n->out[0]] = j->turned[*v] || !shapes;
  } else if (view || !join_reads_any(j, j->reader)) {
    j->product[product].fixed = true;
  }
}

static void join_look(Join *j) {
  MgGraph *g = j->g;
  for (NodeRef k = 1; k < g->nnode; k++) {
    MgNode *n = mg_node(g, k);
    Product p;
    if (n->dead) continue;
    j->reader = k;
    mg_node_each_val(n, join_read, j);
    if (join_product(g, n, &p)) j->product[n->out[0]] = p, j->of[n->out[0]] = n->out[0];
  }
  for (uint32_t i = 0; i < g->noutput; i++) j->product[j->of[g->output[i]]].fixed = true;
  for (uint32_t i = 0; i < g->nwb; i++) j->product[j->of[g->wb_value[i]]].fixed = true;
}

/* Rounds in which the chip's multiprocessors take the blocks of a product of so many columns. */
static int64_t join_rounds(const Product *p, int64_t columns) {
  int64_t tiles = (p->rows + JOIN_TILE - 1) / JOIN_TILE * ((columns + JOIN_TILE - 1) / JOIN_TILE);
  return (tiles + MG_TUNE_GPU_UNITS - 1) / MG_TUNE_GPU_UNITS;
}

/* Is one product faster than these, by more than the weights' way through memory? */
static bool join_pays(const Join *j, const ValRef *out, int n) {
  const Product *p = &j->product[out[0]];
  int64_t rounds = 0, columns = 0, size = mg_dtype_size((MgDtype)mg_val(j->g, p->x)->dtype);
  for (int i = 0; i < n; i++) {
    columns += j->product[out[i]].columns;
    rounds += join_rounds(p, j->product[out[i]].columns);
  }
  double round = 2.0 * MG_TUNE_GPU_UNITS * JOIN_TILE * JOIN_TILE * (double)p->inner; /* operations */
  double saved = (double)(rounds - join_rounds(p, columns)) * round;
  double moved = 2.0 * (double)(columns * p->inner * size);
  return p->rows >= MG_TUNE_GPU_JOIN_ROWS && saved * (double)size > moved * MG_TUNE_GPU_JOIN_FLOPS;
}

/* The group that node k begins. */
static void join_group(Join *j, NodeRef k) {
  MgGraph *g = j->g;
  const MgNode *lead = mg_node(g, k);
  ValRef out[JOIN_MOST];
  int n = 0;
  if (lead->dead || !lead->nout || !j->product[lead->out[0]].inner) return;
  const Product *p = &j->product[lead->out[0]];
  for (NodeRef r = k; r < g->nnode && r < k + MG_TUNE_GPU_JOIN_NEAR && n < JOIN_MOST; r++) {
    const MgNode *m = mg_node(g, r);
    if (m->dead || m->op != lead->op || m->backward != lead->backward || m->again != lead->again) continue;
    const Product *q = &j->product[m->out[0]];
    if (q->inner && q->x == p->x && !q->fixed && !q->joined) out[n++] = m->out[0];
    else if (r == k) return;
  }
  if (n < 2 || !join_pays(j, out, n)) return;
  for (int i = 0; i < n; i++) {
    j->product[out[i]].joined = true;
    if (i) j->product[out[i - 1]].next = out[i];
  }
}

/* The group's one product, and the columns of it that each member is. */
static MgRc join_write(MgRewrite *rw, Join *j) {
  MgGraph *g = rw->g;
  Product *p = j->product;
  ValRef lead = rw->n.out[0], w[JOIN_MOST], bias[JOIN_MOST],
         x = mg_dec_val(rw, p[lead].bias ? "mat1" : "self");
  int n = 0;
  for (ValRef v = lead; v; v = p[v].next) w[n] = p[v].w, bias[n++] = p[v].bias;
  ValRef t = mg_dec(rw, TOP_t, V(mg_dec(rw, TOP_cat, mg_arg_vals(g, w, n), mg_arg_int(g, 0))));
  ValRef y = p[lead].bias
                 ? mg_dec(rw, TOP_addmm, V(mg_dec(rw, TOP_cat, mg_arg_vals(g, bias, n), mg_arg_int(g, 0))),
                          V(x), V(t))
                 : mg_dec(rw, TOP_mm, V(x), V(t));
  int64_t at = 0;
  for (ValRef v = lead; v && y; v = p[v].next) {
    p[v].part = mg_dec(rw, TOP_slice_Tensor, V(y), mg_arg_int(g, 1), mg_arg_int(g, at),
                       mg_arg_int(g, at + p[v].columns));
    TRYP(p[v].part);
    at += p[v].columns;
  }
  return g->c->rc;
}

static MgRc join_node(MgRewrite *rw, void *arg) {
  Join *j = arg;
  ValRef v = rw->n.nout ? rw->n.out[0] : 0, product = v ? j->of[v] : 0;
  if (!product || !j->product[product].joined) return mg_graph_keep(rw);
  if (v == product && !j->product[v].part) TRY(join_write(rw, j));
  if (v == product) return mg_graph_replace(rw, v, j->product[v].part);
  ValRef view = mg_graph_emit1(rw->g, (MgTop)rw->n.op->code, rw->n.arg, (int)rw->n.narg);
  return view ? mg_graph_replace(rw, v, view) : rw->g->c->rc; /* of other strides */
}

MgRc mg_join_products(MgGraph *g, const MgSimplifyOpts *o) {
  Join j = {.g = g, .o = o};
  bool any = false;
  TRYP(j.product = mg_new(g->c, Product, g->nval + 1));
  TRYP(j.of = mg_new(g->c, ValRef, g->nval + 1));
  TRYP(j.turned = mg_new(g->c, bool, g->nval + 1));
  join_look(&j);
  for (NodeRef k = 1; k < g->nnode; k++) join_group(&j, k);
  for (ValRef v = 1; v < g->nval; v++) any |= j.product[v].joined;
  return any ? mg_graph_rewrite(g, join_node, &j) : MG_OK;
}
