/* Ops with random slopes: where they draw nothing they are activations like others. */
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

const MgDecRow mg_dec_random[] = {
    {TOP_rrelu_with_noise, random_rrelu},
    {TOP_rrelu_with_noise_backward, random_rrelu_backward},
    {0},
};
