/* Captures of CUDA graphs through PyTorch. */
#ifndef MG_FRONT_CUDAGRAPH_H
#define MG_FRONT_CUDAGRAPH_H
void mg_cudagraph_init(void); /* from here on plans may be captured */
#endif
