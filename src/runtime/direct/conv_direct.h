/* Convolutions of few channels a group, and their gradients, as loops of our own: float32, one or two spatial
 * dimensions.  Tensors are read and written through their strides; weights are read on every
 * call. */
#ifndef MG_CONV_DIRECT_H
#define MG_CONV_DIRECT_H
#include "runtime/engine/onednn.h"

/* MG_UNSUP without an error in the context: the library is faster, or these loops do not take it. */
MgRc mg_direct_conv(MgCtx *c, const MgConvDesc *d, MgEngine **out);
MgRc mg_direct_conv_grad(MgCtx *c, const MgConvGradDesc *d, MgEngine **out);
#endif
