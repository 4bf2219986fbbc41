/* Result inference.  What rules share is for the infer*.c files only; others call what comes after the list
 * of rules. A rule reads a node's arguments and makes its results with the dtype, sizes and strides that
 * eager would give. Rules are named by the last column of tensor_ops.def.  Questions about symbolic sizes
 * have three answers; a rule that needs a fact which cannot be proven returns MG_UNSUP
 * and the caller asks torch. */
#ifndef MG_INFER_H
#define MG_INFER_H
#include "ir/graph/graph.h"

#define MG_INFER_RANK 64 /* dimensions at most, as in torch */

typedef struct MgInfer { /* one node */
  MgGraph *g;
  MgExprs *x;
  MgNode *n;
  const MgOp *op;
} MgInfer;

typedef struct MgDims { /* sizes or strides under construction */
  int n;
  SymRef d[MG_INFER_RANK];
} MgDims;

#define UNKNOWN 2 /* third answer of the questions below; others are booleans, or -1 0 1 of a comparison */
int mg_infer_cmp(MgInfer *in, SymRef a, SymRef b); /* sign of a - b */
int mg_infer_less(MgInfer *in, SymRef a,
                  SymRef b); /* a < b: 1, 0 or UNKNOWN; to be asked where the sign is not needed */
int mg_infer_is(MgInfer *in, SymRef a, int64_t v); /* a == v */
int mg_infer_eq(MgInfer *in, SymRef a, SymRef b);
static inline SymRef mg_infer_c(MgInfer *in, int64_t v) { return mg_sym(in->x, v); }

/* Nothing was found that torch would refuse (infer_check.c). */
bool mg_infer_plausible(MgInfer *in);
MgRc mg_infer_scatter_fits(
    MgInfer *in); /* MG_UNSUP: select_scatter or slice_scatter of other sizes than the part's */

/* Arguments. */
int mg_infer_find(const MgInfer *in, const char *name);         /* position of a parameter, or -1 */
const MgArg *mg_infer_arg(const MgInfer *in, const char *name); /* a None when the op has no such parameter */
/* Tensor arguments; 0 when it is none: by name, by position, and the first, which ops of one rule name
 * differently. */
ValRef mg_infer_tensor(const MgInfer *in, const char *name);
ValRef mg_infer_nth(const MgInfer *in, int k);
static inline ValRef mg_infer_first(const MgInfer *in) { return mg_infer_nth(in, 0); }
bool mg_infer_flag(const MgInfer *in, const char *name);    /* a boolean, false when absent */
MgRc mg_infer_int(MgInfer *in, const MgArg *a, int64_t *v); /* MG_UNSUP when it is not a constant integer */
MgRc mg_infer_dim(MgInfer *in, const MgArg *a, int ndim, int *d); /* wrapped */
/* A list of dimensions, one, or None (all) as a set. */
MgRc mg_infer_dim_set(MgInfer *in, const MgArg *a, int ndim, bool *set);
MgRc mg_infer_sizes(MgInfer *in, const MgArg *a,
                    MgDims *out); /* a list of integers (one integer: a list of it) */
/* The k-th of a list that may be shorter than its use (one entry stands for all), or dflt when empty. */
MgRc mg_infer_pick(MgInfer *in, const MgArg *a, int k, int64_t dflt, int64_t *v);

/* Dtypes. */
MgDtype mg_infer_dtype_arg(const MgInfer *in, MgDtype dflt); /* the `dtype` argument, or dflt */
MgDtype mg_infer_float(const MgInfer *in, MgDtype d);        /* integers become the default dtype */
/* torch.result_type over arguments (tensors and numbers) of the node. */
MgDtype mg_infer_result_type(const MgInfer *in, const MgArg *const *arg, int n);

/* Results. */
MgRc mg_infer_results(MgInfer *in, int n); /* makes room for n results */
MgRc mg_infer_out(MgInfer *in, int i, MgDtype d, const MgDims *size,
                  const MgDims *stride); /* NULL: contiguous */
/* A result with v's sizes and the strides empty_like(v, preserve_format) gives it. */
MgRc mg_infer_like(MgInfer *in, int i, MgDtype d, ValRef v);
MgRc mg_infer_like_val(MgInfer *in, int i, MgDtype d, const MgVal *t); /* t: not in the graph's table */
/* A result with the sizes and strides that an elementwise op over v[0..n) gives it
 * (0 entries: 0-dim scalars). */
MgRc mg_infer_iter(MgInfer *in, int i, MgDtype d, const ValRef *v, int n);
/* The same for n operands of these strides, which are 0 where an operand is broadcast to the shape. */
MgRc mg_infer_iter_strides(MgInfer *in, int i, MgDtype d, const MgDims *shape, const MgDims *stride, int n);
/* A result in a memory format (torch's number). */
MgRc mg_infer_format(MgInfer *in, int i, MgDtype d, const MgDims *size, int format);
/* The strides of one that is channels last; false: it has another number of dimensions. */
bool mg_infer_format_strides(MgInfer *in, const MgDims *size, int format, MgDims *stride);
MgRc mg_infer_broadcast(MgInfer *in, MgDims *acc, const SymRef *size,
                        int n); /* acc becomes the common shape */
void mg_infer_dims_of(const MgInfer *in, ValRef v, MgDims *size);
int mg_infer_contiguous(MgInfer *in, ValRef v, int format); /* is_contiguous(memory_format) */
int mg_infer_dense(MgInfer *in, ValRef v);                  /* non-overlapping and dense */
MgRc mg_infer_suggest(MgInfer *in, ValRef v, int *format);  /* suggest_memory_format: 0, 2 or 3 */
MgRc mg_infer_suggest_val(MgInfer *in, const MgVal *t, int *format);
/* The format that t has with a dimension of one inserted at d, as unsqueeze inserts it. */
MgRc mg_infer_suggest_unsqueezed(MgInfer *in, ValRef v, int d, int *format);
/* A view: shares storage with v. */
MgRc mg_infer_view_out(MgInfer *in, int i, ValRef v, const MgDims *size, const MgDims *stride, SymRef offset);
/* The strides that let sizes `to` view v without a copy; *ok false when there are none. */
MgRc mg_infer_view_strides(MgInfer *in, ValRef v, const MgDims *to, MgDims *stride, bool *ok);
/* Replaces one -1 in to by what numel leaves over. */
MgRc mg_infer_fill_size(MgInfer *in, MgDims *to, SymRef numel);

enum { MF_contiguous = 0, MF_preserve = 1, MF_channels_last = 2, MF_channels_last_3d = 3 };

typedef MgRc (*MgInferRule)(MgInfer *in);
/* clang-format off */
#define INFER_RULES(R) \
  R(same) R(float1) R(bool1) R(promote) R(float2) R(bool2) R(masked) R(logsig) R(glu) R(reduce) \
  R(reduce_pair) R(reduce_two) R(scan) R(scan_pair) R(topk) R(softmax) R(softmax_backward) R(norm) \
  R(loss) R(nll) R(cdist) R(view) R(copy) R(clone) R(scatter_view) R(cat) R(shape) R(factory) \
  R(alike) R(new) R(random) R(index) R(matmul) R(svd) R(eig) R(eigh) R(factor) R(triangular) R(fft) \
  R(bag) R(ctc) R(conv) R(pool) R(pool_backward) R(upsample) R(sample) R(sdpa) R(foreach) R(fused) \
  R(written) R(inplace_random) R(unsup)
/* clang-format on */
#define R(name) MgRc mg_infer_##name(MgInfer *in);
INFER_RULES(R)
#undef R
/* Fills in the results of a node (values, metadata) from its arguments.  MG_UNSUP: this op is not known here
 * and the caller must ask torch's meta kernel.  Other codes: the arguments are wrong (torch would raise). */
MgRc mg_infer(MgGraph *g, NodeRef n);
/* Sizes that are 0 or 1 become constants, see MgSizeAsk. */
MgRc mg_infer_settle(MgGraph *g);
/* Will the kernel refuse what its meta kernel accepts? */
bool mg_infer_kernel_refuses(MgGraph *g, NodeRef n);
/* Is there anything about the arguments that the kernel may refuse? */
bool mg_infer_doubts(MgGraph *g, NodeRef n);
/* Would an in-place op store a float in an integer, or the like?  Some meta kernels do not see that. */
bool mg_infer_cannot_store(MgGraph *g, NodeRef n);
bool mg_infer_has(const MgOp *op); /* a rule for the results of op exists */
/* Appends a node of a known op: arguments as given, the rest at their defaults; results by mg_infer.  Returns
 * the node, 0 on failure (error in the context). */
NodeRef mg_graph_emit(MgGraph *g, MgTop code, const MgArg *arg, int narg);
ValRef mg_graph_emit1(MgGraph *g, MgTop code, const MgArg *arg, int narg);
#endif
