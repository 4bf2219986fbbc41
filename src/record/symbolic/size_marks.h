/* What the program says about sizes beforehand: mark_dynamic and its like,
 * torch.compiler.config.dynamic_sources. */
#ifndef MG_SIZE_MARKS_H
#define MG_SIZE_MARKS_H
#include "entry/guard/source_kinds.h"

typedef enum MgSizeMark {
  MARK_none,
  MARK_static,
  MARK_dynamic, /* changes; 0 and 1 are recorded on their own */
  MARK_must,    /* the same, and it is an error to make it a constant */
  MARK_free     /* any size, about which nothing may be asked */
} MgSizeMark;
/* Of dimension k of a tensor from src; *lo and *hi: bounds, where the program has given some. */
MgSizeMark mg_symmark_dim(PyObject *tensor, SrcRef src, int k, int64_t *lo, int64_t *hi);
#endif
