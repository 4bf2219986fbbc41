/* How much a step does, for reports: bytes that it has to move at least, and operations on floats.
 * Symbols count with the sizes of the recording. */
#ifndef MG_KERNEL_WORK_H
#define MG_KERNEL_WORK_H
#include "base/ctx.h"

typedef struct MgExtern MgExtern;
typedef struct MgKernel MgKernel;
typedef struct MgSched MgSched;

typedef struct MgWork {
  double bytes; /* each element that is read counts once, and so does each that is written */
  double flops; /* an elementary function is one, a multiply-add two; 0 of a call: not known */
} MgWork;

/* MG_NOMEM, or MG_OK. */
MgRc mg_kernel_work(const MgSched *s, const MgKernel *k, MgWork *out);
void mg_extern_work(const MgSched *s, const MgExtern *e, MgWork *out);
#endif
