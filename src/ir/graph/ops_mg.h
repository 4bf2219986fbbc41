/* Where the arguments of the compiler's own ops stand, as their schemas in ops_mg.def say.
 * middle/patterns builds the ops and driver/engine_choice reads them; tests/unit/ir/test_graph.c compares the
 * names. */
#ifndef MG_OPS_MG_H
#define MG_OPS_MG_H

enum { MM_x, MM_w, MM_bias, MM_residual, MM_act, MM_act_a, MM_act_b }; /* mg::matmul */
enum {                                                                 /* mg::conv */
       CV_x,
       CV_w,
       CV_bias,
       CV_bn_weight,
       CV_bn_bias,
       CV_bn_mean,
       CV_bn_var,
       CV_residual,
       CV_eps,
       CV_act,
       CV_act_a,
       CV_act_b,
       CV_stride,
       CV_padding,
       CV_dilation,
       CV_transposed,
       CV_output_padding,
       CV_groups
};
enum { SD_q, SD_k, SD_v, SD_mask, SD_is_causal, SD_scale }; /* mg::sdpa */
#endif
