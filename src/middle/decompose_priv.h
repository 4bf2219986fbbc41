/* Decompositions, shared by the decompose*.c files; not for other folders.
 * A rule is given a node (rw->n) and appends nodes that compute the same; it names
 * their values by mg_dec_give. */
#ifndef MG_DECOMPOSE_PRIV_H
#define MG_DECOMPOSE_PRIV_H
#include "ir/infer/infer.h"
#include "middle/middle.h"

typedef MgRc (*MgDecRule)(MgRewrite *rw);

typedef struct MgDecRow {
  uint16_t code; /* MgTop */
  MgDecRule rule;
} MgDecRow;

/* Ends with a row of code 0. */
extern const MgDecRow mg_dec_foreach[], mg_dec_dense[], mg_dec_random[];

/* op(arg...) with the rest at their defaults; 0 when it failed (the context has the error). */
#define mg_dec(rw, code, ...)                                                                                \
  mg_graph_emit1((rw)->g, (code), (const MgArg[]){__VA_ARGS__},                                              \
                 sizeof((MgArg[]){__VA_ARGS__}) / sizeof(MgArg))
/* decompose_cuda.c: for the libraries of a GPU. */
MgRc mg_dec_cuda_mm(MgRewrite *rw);
/* The product of matrices computed by columns; 0: that is no gain. */
ValRef mg_dec_cuda_columns(MgRewrite *rw, ValRef a, ValRef b);
MgRc mg_dec_cuda_convolution(MgRewrite *rw);
MgRc mg_dec_cuda_convolution_backward(MgRewrite *rw);
/* decompose_random.c: draws that follow each other become one, of which each takes its part. */
MgRc mg_dec_join_draws(MgGraph *g);
/* Result i of the node is v, in the dtype and strides that the node's result has. */
MgRc mg_dec_give(MgRewrite *rw, int i, ValRef v);
const MgArg *mg_dec_arg(const MgRewrite *rw, const char *name); /* a None when there is no such parameter */
ValRef mg_dec_val(const MgRewrite *rw, const char *name);       /* the tensor that the argument is, or 0 */
/* Is x @ w, of matrices one of which has one row or column, faster as a loop?  It is bound by memory then,
 * and fuses; decompose does it. */
bool mg_dense_is_thin(const MgGraph *g, ValRef x, ValRef w);
#endif
