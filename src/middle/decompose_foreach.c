/* List ops: one op per tensor (fusion puts them side by side again), and the fused
 * optimizers as arithmetic. */
#include "ir/infer/infer.h"
#include "middle/decompose_priv.h"
#include <string.h>

/* ---- foreach ---- */

/* The op that a list op applies to each tensor.  Arguments follow the list op's parameters; one entry of a
 * scalar list or tensor list stands where the list stood. */
static const struct {
  uint16_t list, one;
} foreach_one[] = {
    {TOP__foreach_add_Scalar, TOP_add_Scalar},
    {TOP__foreach_add_List, TOP_add_Tensor},
    {TOP__foreach_add_ScalarList, TOP_add_Scalar},
    {TOP__foreach_add_Tensor, TOP_add_Tensor},
    {TOP__foreach_sub_Scalar, TOP_sub_Scalar},
    {TOP__foreach_sub_List, TOP_sub_Tensor},
    {TOP__foreach_sub_ScalarList, TOP_sub_Scalar},
    {TOP__foreach_mul_Scalar, TOP_mul_Scalar},
    {TOP__foreach_mul_List, TOP_mul_Tensor},
    {TOP__foreach_mul_ScalarList, TOP_mul_Scalar},
    {TOP__foreach_mul_Tensor, TOP_mul_Tensor},
    {TOP__foreach_div_Scalar, TOP_div_Scalar},
    {TOP__foreach_div_List, TOP_div_Tensor},
    {TOP__foreach_div_ScalarList, TOP_div_Scalar},
    {TOP__foreach_div_Tensor, TOP_div_Tensor},
    {TOP__foreach_addcmul_Scalar, TOP_addcmul},
    {TOP__foreach_addcmul_ScalarList, TOP_addcmul},
    {TOP__foreach_addcdiv_Scalar, TOP_addcdiv},
    {TOP__foreach_addcdiv_ScalarList, TOP_addcdiv},
    {TOP__foreach_sqrt, TOP_sqrt},
    {TOP__foreach_rsqrt, TOP_rsqrt},
    {TOP__foreach_reciprocal, TOP_reciprocal},
    {TOP__foreach_neg, TOP_neg},
    {TOP__foreach_abs, TOP_abs},
    {TOP__foreach_exp, TOP_exp},
    {TOP__foreach_log, TOP_log},
    {TOP__foreach_sign, TOP_sign},
    {TOP__foreach_sigmoid, TOP_sigmoid},
    {TOP__foreach_tanh, TOP_tanh},
    {TOP__foreach_pow_Scalar, TOP_pow_Tensor_Scalar},
    {TOP__foreach_pow_ScalarList, TOP_pow_Tensor_Scalar},
    {TOP__foreach_pow_List, TOP_pow_Tensor_Tensor},
    {TOP__foreach_maximum_Scalar, TOP_clamp_min},
    {TOP__foreach_maximum_ScalarList, TOP_clamp_min},
    {TOP__foreach_maximum_List, TOP_maximum},
    {TOP__foreach_minimum_Scalar, TOP_clamp_max},
    {TOP__foreach_minimum_ScalarList, TOP_clamp_max},
    {TOP__foreach_minimum_List, TOP_minimum},
    {TOP__foreach_clamp_min_Scalar, TOP_clamp_min},
    {TOP__foreach_clamp_min_ScalarList, TOP_clamp_min},
    {TOP__foreach_clamp_min_List, TOP_maximum},
    {TOP__foreach_clamp_max_Scalar, TOP_clamp_max},
    {TOP__foreach_clamp_max_ScalarList, TOP_clamp_max},
    {TOP__foreach_clamp_max_List, TOP_minimum},
    {TOP__foreach_lerp_Scalar, TOP_lerp_Scalar},
    {TOP__foreach_lerp_List, TOP_lerp_Tensor},
    {TOP__foreach_lerp_ScalarList, TOP_lerp_Scalar},
    {TOP__foreach_copy, TOP_copy},
    {TOP__foreach_zero, TOP_zeros_like},
    {TOP__foreach_norm_Scalar, TOP_linalg_vector_norm},
};

static MgRc foreach_each(MgRewrite *rw) {
  MgNode n = rw->n;
  size_t row = 0;
  while (foreach_one[row].list != n.op->code) row++;
  const MgOp *one = mg_op_by_code(foreach_one[row].one);
  TRYP(one);
  for (int i = 0; i < n.nout; i++) {
    MgArg arg[8];
    int na = 0;
    for (int k = 0; k < n.narg && na < one->nparam && na < 8; k++)
      arg[na++] = n.arg[k].tag == MA_list ? n.arg[k].u.item[i] : n.arg[k];
    if (n.op->code == TOP__foreach_norm_Scalar)
      arg[4] = arg[2], arg[2] = mg_arg_none(), arg[3] = mg_arg_bool(false), na = 5; /* its dtype */
    if (n.op->code == TOP__foreach_copy || n.op->code == TOP__foreach_zero)
      na = n.op->code == TOP__foreach_copy ? 2 : 1;
    TRY(mg_dec_give(rw, i, mg_graph_emit1(rw->g, one->code, arg, na)));
  }
  return MG_OK;
}

/* ---- fused optimizers: the formulas of aten/src/ATen/native/cpu/Fused*Kernel.cpp ---- */

typedef struct Fused { /* one optimizer step */
  MgRewrite *rw;
  ValRef lr; /* learning rate as a tensor, or 0: number below */
  double lr_number;
} Fused;

static MgRc fused_open(MgRewrite *rw, Fused *f) {
  const MgArg *lr = mg_dec_arg(rw, "lr");
  *f = (Fused){.rw = rw};
  if (lr->tag == MA_val) f->lr = lr->u.val;
  else if (lr->tag == MA_float) f->lr_number = lr->u.f;
  else return MG_UNSUP;
  /* gradient scaling and early exit on infinities depend on data outside the formulas */
  return mg_dec_arg(rw, "grad_scale")->tag == MA_none && mg_dec_arg(rw, "found_inf")->tag == MA_none
             ? MG_OK
             : MG_UNSUP;
}

static double fused_number(const MgRewrite *rw, const char *name) {
  const MgArg *a = mg_dec_arg(rw, name);
  return a->tag == MA_float ? a->u.f : 0;
}

static ValRef fused_item(const MgRewrite *rw, const char *list, int i) {
  const MgArg *a = mg_dec_arg(rw, list);
  return a->tag == MA_list && i < (int)a->n && a->u.item[i].tag == MA_val ? a->u.item[i].u.val : 0;
}

#define V mg_arg_val
#define F mg_arg_float

/* x * lr */
static ValRef fused_times_lr(const Fused *f, ValRef x) {
  return f->lr ? mg_dec(f->rw, TOP_mul_Tensor, V(x), V(f->lr))
               : mg_dec(f->rw, TOP_mul_Scalar, V(x), F(f->lr_number));
}

/* 1 - beta^step, or its root, in the dtype of `like`; step is a tensor.  In double as in ATen:
 * the difference loses digits. */
static ValRef fused_correction(const Fused *f, double beta, ValRef step, ValRef like, bool root) {
  ValRef p = mg_dec(f->rw, TOP_pow_Scalar, F(beta),
                    V(mg_dec(f->rw, TOP__to_copy, V(step), mg_arg_code(MA_dtype, DT_f64))));
  p = mg_dec(f->rw, TOP_rsub_Scalar, V(p), F(1));
  if (root) p = mg_dec(f->rw, TOP_sqrt, V(p));
  return mg_dec(f->rw, TOP__to_copy, V(p), mg_arg_code(MA_dtype, mg_val(f->rw->g, like)->dtype));
}

static ValRef fused_grad(const Fused *f, int i) {
  ValRef g = fused_item(f->rw, "grads", i);
  return g && mg_node_flag(&f->rw->n, "maximize") ? mg_dec(f->rw, TOP_neg, V(g)) : g;
}

/* Results in schema order, a list after the other: self, grads, exp_avgs, exp_avg_sqs[, max_exp_avg_sqs]. */
static MgRc fused_adam(MgRewrite *rw) {
  MgGraph *g = rw->g;
  Fused f;
  TRY(fused_open(rw, &f));
  int code = rw->n.op->code, n = mg_dec_arg(rw, "self")->n;
  bool decoupled = code == TOP__fused_adamw || code == TOP__fused_adamw_tensor_lr,
       ams = mg_node_flag(&rw->n, "amsgrad");
  double b1 = fused_number(rw, "beta1"), b2 = fused_number(rw, "beta2"), eps = fused_number(rw, "eps");
  double decay = fused_number(rw, "weight_decay");
  int nmax = mg_dec_arg(rw, "max_exp_avg_sqs")->n;
  if (rw->n.nout != 4 * n + nmax) return MG_UNSUP;
  for (int i = 0; i < n; i++) {
    ValRef p = fused_item(rw, "self", i), grad = fused_grad(&f, i), m = fused_item(rw, "exp_avgs", i);
    ValRef v = fused_item(rw, "exp_avg_sqs", i), step = fused_item(rw, "state_steps", i),
           given = fused_item(rw, "grads", i);
    if (!p || !grad || !m || !v || !step || mg_dtype_size(mg_val(g, p)->dtype) < 4) return MG_UNSUP;
    if (decay != 0 && decoupled) { /* p -= lr * decay * p */
      ValRef d = fused_times_lr(&f, mg_dec(rw, TOP_mul_Scalar, V(p), F(decay)));
      p = mg_dec(rw, TOP_sub_Tensor, V(p), V(d));
    } else if (decay != 0) {
      grad = mg_dec(rw, TOP_add_Tensor, V(grad), V(mg_dec(rw, TOP_mul_Scalar, V(p), F(decay))));
    }
    m = mg_dec(rw, TOP_lerp_Scalar, V(m), V(grad), F(1 - b1));
    ValRef gg = mg_dec(rw, TOP_mul_Scalar, V(mg_dec(rw, TOP_mul_Tensor, V(grad), V(grad))), F(1 - b2));
    v = mg_dec(rw, TOP_add_Tensor, V(mg_dec(rw, TOP_mul_Scalar, V(v), F(b2))), V(gg));
    ValRef c1 = fused_correction(&f, b1, step, p, false), c2 = fused_correction(&f, b2, step, p, true);
    ValRef top = v;
    if (ams) {
      if (!fused_item(rw, "max_exp_avg_sqs", i)) return MG_UNSUP;
      top = mg_dec(rw, TOP_maximum, V(fused_item(rw, "max_exp_avg_sqs", i)), V(v));
      TRY(mg_dec_give(rw, 4 * n + i, top));
    }
    ValRef den = mg_dec(rw, TOP_div_Tensor, V(mg_dec(rw, TOP_sqrt, V(top))), V(c2));
    den = mg_dec(rw, TOP_add_Scalar, V(den), F(eps));
    ValRef up =
        mg_dec(rw, TOP_div_Tensor, V(fused_times_lr(&f, mg_dec(rw, TOP_div_Tensor, V(m), V(c1)))), V(den));
    TRY(mg_dec_give(rw, i, mg_dec(rw, TOP_sub_Tensor, V(p), V(up))));
    TRY(mg_dec_give(rw, n + i, mg_dec(rw, TOP_alias, V(given))));
    TRY(mg_dec_give(rw, 2 * n + i, m));
    TRY(mg_dec_give(rw, 3 * n + i, v));
  }
  for (int i = 0; !ams && i < nmax; i++)
    TRY(mg_dec_give(rw, 4 * n + i, mg_dec(rw, TOP_alias, V(fused_item(rw, "max_exp_avg_sqs", i)))));
  return MG_OK;
}

/* Results: self, grads, momentum_buffer_list. */
static MgRc fused_sgd(MgRewrite *rw) {
  Fused f;
  TRY(fused_open(rw, &f));
  int n = mg_dec_arg(rw, "self")->n, nbuf = mg_dec_arg(rw, "momentum_buffer_list")->n;
  double decay = fused_number(rw, "weight_decay"), momentum = fused_number(rw, "momentum");
  double damp = fused_number(rw, "dampening");
  bool first = mg_node_flag(&rw->n, "is_first_step"), nesterov = mg_node_flag(&rw->n, "nesterov");
  if (rw->n.nout != 2 * n + nbuf || (momentum != 0 && nbuf != n)) return MG_UNSUP;
  for (int i = 0; i < n; i++) {
    ValRef p = fused_item(rw, "self", i), grad = fused_grad(&f, i),
           buf = fused_item(rw, "momentum_buffer_list", i);
    if (!p || !grad || mg_dtype_size(mg_val(rw->g, p)->dtype) < 4) return MG_UNSUP;
    if (decay != 0) grad = mg_dec(rw, TOP_add_Tensor, V(grad), V(mg_dec(rw, TOP_mul_Scalar, V(p), F(decay))));
    if (momentum != 0) {
      if (first) {
        buf = mg_dec(rw, TOP_clone, V(grad));
      } else {
        ValRef part = mg_dec(rw, TOP_mul_Scalar, V(grad), F(1 - damp));
        buf = mg_dec(rw, TOP_add_Tensor, V(mg_dec(rw, TOP_mul_Scalar, V(buf), F(momentum))), V(part));
      }
      grad = nesterov
                 ? mg_dec(rw, TOP_add_Tensor, V(grad), V(mg_dec(rw, TOP_mul_Scalar, V(buf), F(momentum))))
                 : buf;
    }
    TRY(mg_dec_give(rw, i, mg_dec(rw, TOP_sub_Tensor, V(p), V(fused_times_lr(&f, grad)))));
    TRY(mg_dec_give(rw, n + i, mg_dec(rw, TOP_alias, V(fused_item(rw, "grads", i)))));
    if (i < nbuf) TRY(mg_dec_give(rw, 2 * n + i, momentum != 0 ? buf : mg_dec(rw, TOP_alias, V(buf))));
  }
  return MG_OK;
}

/* Results: self, grads, state_sums[, state_steps].  Everything divides by what the
 * step count has decayed lr by. */
static MgRc fused_adagrad(MgRewrite *rw) {
  Fused f;
  TRY(fused_open(rw, &f));
  int n = mg_dec_arg(rw, "self")->n, nlist = rw->n.op->code == TOP__fused_adagrad ? 4 : 3;
  double decay = fused_number(rw, "weight_decay"), lr_decay = fused_number(rw, "lr_decay"),
         eps = fused_number(rw, "eps");
  if (rw->n.nout != nlist * n) return MG_UNSUP;
  for (int i = 0; i < n; i++) {
    ValRef p = fused_item(rw, "self", i), grad = fused_grad(&f, i), sum = fused_item(rw, "state_sums", i);
    ValRef step = fused_item(rw, "state_steps", i);
    if (!p || !grad || !sum || !step || mg_dtype_size(mg_val(rw->g, p)->dtype) < 4) return MG_UNSUP;
    if (decay != 0) grad = mg_dec(rw, TOP_add_Tensor, V(grad), V(mg_dec(rw, TOP_mul_Scalar, V(p), F(decay))));
    sum = mg_dec(rw, TOP_add_Tensor, V(sum), V(mg_dec(rw, TOP_mul_Tensor, V(grad), V(grad))));
    ValRef slow =
        mg_dec(rw, TOP__to_copy, V(step), mg_arg_code(MA_dtype, DT_f64)); /* the step count is a float32 */
    slow = mg_dec(rw, TOP_mul_Scalar, V(mg_dec(rw, TOP_sub_Scalar, V(slow), F(1))), F(lr_decay));
    slow = mg_dec(rw, TOP__to_copy, V(mg_dec(rw, TOP_add_Scalar, V(slow), F(1))),
                  mg_arg_code(MA_dtype, mg_val(rw->g, p)->dtype));
    ValRef den = mg_dec(rw, TOP_add_Scalar, V(mg_dec(rw, TOP_sqrt, V(sum))), F(eps));
    ValRef up = mg_dec(rw, TOP_div_Tensor,
                       V(fused_times_lr(&f, mg_dec(rw, TOP_div_Tensor, V(grad), V(slow)))), V(den));
    TRY(mg_dec_give(rw, i, mg_dec(rw, TOP_sub_Tensor, V(p), V(up))));
    TRY(mg_dec_give(rw, n + i, mg_dec(rw, TOP_alias, V(fused_item(rw, "grads", i)))));
    TRY(mg_dec_give(rw, 2 * n + i, sum));
    if (nlist == 4) TRY(mg_dec_give(rw, 3 * n + i, mg_dec(rw, TOP_alias, V(step))));
  }
  return MG_OK;
}

#define EACH(code) {TOP__foreach_##code, foreach_each}
const MgDecRow mg_dec_foreach[] = {
    EACH(add_Scalar),
    EACH(add_List),
    EACH(add_ScalarList),
    EACH(add_Tensor),
    EACH(sub_Scalar),
    EACH(sub_List),
    EACH(sub_ScalarList),
    EACH(mul_Scalar),
    EACH(mul_List),
    EACH(mul_ScalarList),
    EACH(mul_Tensor),
    EACH(div_Scalar),
    EACH(div_List),
    EACH(div_ScalarList),
    EACH(div_Tensor),
    EACH(addcmul_Scalar),
    EACH(addcmul_ScalarList),
    EACH(addcdiv_Scalar),
    EACH(addcdiv_ScalarList),
    EACH(sqrt),
    EACH(rsqrt),
    EACH(reciprocal),
    EACH(neg),
    EACH(abs),
    EACH(exp),
    EACH(log),
    EACH(sign),
    EACH(sigmoid),
    EACH(tanh),
    EACH(pow_Scalar),
    EACH(pow_ScalarList),
    EACH(pow_List),
    EACH(maximum_Scalar),
    EACH(maximum_ScalarList),
    EACH(maximum_List),
    EACH(minimum_Scalar),
    EACH(minimum_ScalarList),
    EACH(minimum_List),
    EACH(clamp_min_Scalar),
    EACH(clamp_min_ScalarList),
    EACH(clamp_min_List),
    EACH(clamp_max_Scalar),
    EACH(clamp_max_ScalarList),
    EACH(clamp_max_List),
    EACH(lerp_Scalar),
    EACH(lerp_List),
    EACH(lerp_ScalarList),
    EACH(copy),
    EACH(zero),
    EACH(norm_Scalar),
    {TOP__fused_adam, fused_adam},
    {TOP__fused_adamw, fused_adam},
    {TOP__fused_adam_tensor_lr, fused_adam},
    {TOP__fused_adamw_tensor_lr, fused_adam},
    {TOP__fused_sgd, fused_sgd},
    {TOP__fused_sgd_tensor_lr, fused_sgd},
    {TOP__fused_adagrad, fused_adagrad},
    {TOP__fused_adagrad_tensor_lr, fused_adagrad},
    {0},
};
