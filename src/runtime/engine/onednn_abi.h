/* The part of oneDNN's C API (version 3) that is used, declared here because its headers are not needed to
 * build. Functions are looked up in libdnnl.so.3 when the first engine is made (onednn.c).  Enumerators are
 * part of the library's ABI and equal in all 3.x. */
#ifndef MG_ONEDNN_ABI_H
#define MG_ONEDNN_ABI_H
#include <stddef.h>
#include <stdint.h>

#define DNN_MAX_NDIMS 12
typedef int64_t DnnDims[DNN_MAX_NDIMS];
typedef struct dnnl_engine *DnnEngine;
typedef struct dnnl_stream *DnnStream;
typedef struct dnnl_memory *DnnMemory;
typedef struct dnnl_memory_desc *DnnMd;
typedef struct dnnl_primitive *DnnPrimitive;
typedef struct dnnl_primitive_desc *DnnPd;
typedef struct dnnl_primitive_attr *DnnAttr;
typedef struct dnnl_post_ops *DnnPostOps;
typedef struct DnnArg {
  int arg;
  DnnMemory memory;
} DnnArg;
typedef struct DnnVersion {
  int major, minor, patch;
} DnnVersion;

enum { /* dnnl_data_type_t, dnnl_engine_kind_t, dnnl_prop_kind_t, stream flags, dnnl_scratchpad_mode_t,
          formats */
       DNN_f16 = 1,
       DNN_bf16 = 2,
       DNN_f32 = 3,
       DNN_cpu = 1,
       DNN_forward_inference = 96,
       DNN_stream_default = 1,
       DNN_scratchpad_user = 1,
       DNN_tag_any = 1,
       DNN_tag_aBc16b = 56,
       DNN_tag_aBcd16b = 78,
       DNN_tag_aBcde16b = 121,
       DNN_blocked = 2
};
enum { /* dnnl_alg_kind_t */
       DNN_convolution_direct = 1,
       DNN_deconvolution_direct = 10,
       DNN_eltwise_relu = 0x20,
       DNN_eltwise_tanh = 0x21,
       DNN_eltwise_elu = 0x22,
       DNN_eltwise_linear = 0x26,
       DNN_eltwise_hardsigmoid = 0x28,
       DNN_eltwise_logistic = 0x29,
       DNN_eltwise_gelu_tanh = 0x2b,
       DNN_eltwise_swish = 0x2c,
       DNN_eltwise_clip = 0x2e,
       DNN_eltwise_gelu_erf = 0x31,
       DNN_eltwise_mish = 0x33,
       DNN_eltwise_hardswish = 0x34,
       DNN_binary_add = 0x1fff0
};
enum { /* dnnl_query_t */
       DNN_query_impl_info_str = 8,
       DNN_query_strides = 14,
       DNN_query_src_md = 129,
       DNN_query_diff_src_md = 130,
       DNN_query_weights_md = 131,
       DNN_query_diff_weights_md = 132,
       DNN_query_dst_md = 133,
       DNN_query_diff_dst_md = 134,
       DNN_query_scratchpad_md = 136,
       DNN_query_padded_dims = 260,
       DNN_query_format_kind = 262,
       DNN_query_inner_nblks = 263,
       DNN_query_inner_blks = 264,
       DNN_query_inner_idxs = 265
};
enum { DNN_isa_sse41 = 0x1, DNN_isa_avx2 = 0x7, DNN_isa_avx512_core = 0x27 }; /* dnnl_cpu_isa_t */
enum {                                                                        /* arguments of a primitive */
       DNN_ARG_SRC = 1,
       DNN_ARG_SRC_1 = 2,
       DNN_ARG_DST = 17,
       DNN_ARG_WEIGHTS = 33,
       DNN_ARG_BIAS = 41,
       DNN_ARG_SCRATCHPAD = 80,
       DNN_ARG_DIFF_SRC = 129,
       DNN_ARG_DIFF_DST = 145,
       DNN_ARG_DIFF_WEIGHTS = 161,
       DNN_ARG_DIFF_BIAS = 169
};

#define MG_DNN_FUNCS(F)                                                                                      \
  F(const DnnVersion *, dnnl_version, (void))                                                                \
  F(int, dnnl_set_max_cpu_isa, (int isa))                                                                    \
  F(int, dnnl_engine_create, (DnnEngine *, int kind, size_t index))                                          \
  F(int, dnnl_stream_create, (DnnStream *, DnnEngine, unsigned flags))                                       \
  F(int, dnnl_memory_desc_create_with_strides,                                                               \
    (DnnMd *, int ndims, const int64_t *dims, int dtype, const int64_t *strides))                            \
  F(int, dnnl_memory_desc_create_with_tag, (DnnMd *, int ndims, const int64_t *dims, int dtype, int tag))    \
  F(int, dnnl_memory_desc_clone, (DnnMd *, const struct dnnl_memory_desc *))                                 \
  F(int, dnnl_memory_desc_destroy, (DnnMd))                                                                  \
  F(int, dnnl_memory_desc_query, (const struct dnnl_memory_desc *, int what, void *result))                  \
  F(int, dnnl_memory_desc_equal, (const struct dnnl_memory_desc *, const struct dnnl_memory_desc *))         \
  F(size_t, dnnl_memory_desc_get_size, (const struct dnnl_memory_desc *))                                    \
  F(int, dnnl_memory_create, (DnnMemory *, const struct dnnl_memory_desc *, DnnEngine, void *handle))        \
  F(int, dnnl_memory_destroy, (DnnMemory))                                                                   \
  F(int, dnnl_memory_set_data_handle, (DnnMemory, void *))                                                   \
  F(int, dnnl_primitive_attr_create, (DnnAttr *))                                                            \
  F(int, dnnl_primitive_attr_destroy, (DnnAttr))                                                             \
  F(int, dnnl_primitive_attr_set_scratchpad_mode, (DnnAttr, int))                                            \
  F(int, dnnl_primitive_attr_set_post_ops, (DnnAttr, const struct dnnl_post_ops *))                          \
  F(int, dnnl_post_ops_create, (DnnPostOps *))                                                               \
  F(int, dnnl_post_ops_destroy, (DnnPostOps))                                                                \
  F(int, dnnl_post_ops_append_eltwise, (DnnPostOps, int alg, float alpha, float beta))                       \
  F(int, dnnl_post_ops_append_binary, (DnnPostOps, int alg, const struct dnnl_memory_desc *))                \
  F(int, dnnl_matmul_primitive_desc_create,                                                                  \
    (DnnPd *, DnnEngine, DnnMd src, DnnMd weights, DnnMd bias, DnnMd dst, DnnAttr))                          \
  F(int, dnnl_convolution_forward_primitive_desc_create,                                                     \
    (DnnPd *, DnnEngine, int prop, int alg, DnnMd src, DnnMd weights, DnnMd bias, DnnMd dst,                 \
     const int64_t *strides, const int64_t *dilates, const int64_t *pad_l, const int64_t *pad_r, DnnAttr))   \
  F(int, dnnl_convolution_backward_data_primitive_desc_create,                                               \
    (DnnPd *, DnnEngine, int alg, DnnMd diff_src, DnnMd weights, DnnMd diff_dst, const int64_t *strides,     \
     const int64_t *dilates, const int64_t *pad_l, const int64_t *pad_r, DnnPd forward, DnnAttr))            \
  F(int, dnnl_convolution_backward_weights_primitive_desc_create,                                            \
    (DnnPd *, DnnEngine, int alg, DnnMd src, DnnMd diff_weights, DnnMd diff_bias, DnnMd diff_dst,            \
     const int64_t *strides, const int64_t *dilates, const int64_t *pad_l, const int64_t *pad_r,             \
     DnnPd forward, DnnAttr))                                                                                \
  F(int, dnnl_deconvolution_forward_primitive_desc_create,                                                   \
    (DnnPd *, DnnEngine, int prop, int alg, DnnMd src, DnnMd weights, DnnMd bias, DnnMd dst,                 \
     const int64_t *strides, const int64_t *dilates, const int64_t *pad_l, const int64_t *pad_r, DnnAttr))   \
  F(int, dnnl_reorder_primitive_desc_create, (DnnPd *, DnnMd from, DnnEngine, DnnMd to, DnnEngine, DnnAttr)) \
  F(const struct dnnl_memory_desc *, dnnl_primitive_desc_query_md, (DnnPd, int what, int index))             \
  F(int, dnnl_primitive_desc_query, (DnnPd, int what, int index, void *result))                              \
  F(int, dnnl_primitive_desc_destroy, (DnnPd))                                                               \
  F(int, dnnl_primitive_create, (DnnPrimitive *, DnnPd))                                                     \
  F(int, dnnl_primitive_execute, (DnnPrimitive, DnnStream, int nargs, const DnnArg *))                       \
  F(int, dnnl_primitive_destroy, (DnnPrimitive))
#endif
