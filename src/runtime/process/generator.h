/* PyTorch's default generator of a GPU: what a kernel that draws from it is given.
 * In: how many numbers a thread draws.  Out: a seed and an offset, and the generator moved on. */
#ifndef MG_GENERATOR_H
#define MG_GENERATOR_H
#include <stdbool.h>
#include <stdint.h>

typedef struct MgDraws {
  uint64_t seed,
      offset;      /* numbers; while the current stream is captured, addresses of numbers on the device */
  uint32_t within; /* captured: is added to the offset */
} MgDraws;

/* NULL, or the function of PyTorch's that is not there (static text). */
const char *mg_draws_missing(void);
/* As a kernel of PyTorch's asks, which then draws n numbers a thread.  False: PyTorch refuses. */
bool mg_draws(int device, uint64_t n, MgDraws *out);
#endif
