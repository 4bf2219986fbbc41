/* Kernels that differ in numbers only (the same layer at other widths) are one kernel that loads those
 * numbers: LLVM sees it once.  Texts have MG_EMIT_MARK before each number that may be loaded. */
#ifndef MG_KERNEL_SHARING_H
#define MG_KERNEL_SHARING_H
#include "base/ctx.h"

typedef struct MgStrbuf MgStrbuf;

void mg_share_plain(const char *text, MgStrbuf *out); /* appends it without marks */
void mg_share_shape(const char *text,
                    MgStrbuf *out); /* and without the numbers: equal for kernels that may be one */
/* Appends the kernel that n > 1 texts of one shape have in common, without marks; it reads (*size)[0 ..
 * *nsize) of text k's table, which is row k.  *nsize is 0, and nothing appended,
 * where they differ in too much. */
MgRc mg_share(MgCtx *c, const char *const *text, uint32_t n, MgStrbuf *out, int64_t **size, uint32_t *nsize);
#endif
