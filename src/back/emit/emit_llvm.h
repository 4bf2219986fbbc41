/* Kernels as LLVM IR text. */
#ifndef MG_EMIT_LLVM_H
#define MG_EMIT_LLVM_H
#include "back/kernel/back.h"

/* Writes the kernels of one schedule as LLVM IR.  new; t is borrowed; freed also when making it failed. */
typedef struct MgEmitter MgEmitter;
MgRc mg_emitter_new(MgSched *s, const MgTarget *t, MgEmitter **out);
void mg_emitter_free(MgEmitter *e); /* or NULL */
/* Appends the LLVM IR text of one kernel: define void @name(ptr buf, ptr size, i64 begin, i64 end);
 * buf is a table of base pointers in kernel argument order, size the values of the symbols. */
MgRc mg_emit_llvm(MgEmitter *e, const MgKernel *k, MgStrbuf *out);
/* Appends declarations of what the kernels of a module call: last, once a module.
 * LLVM takes 3 us to read one; all of them were 160, and 0.4 ms a module. */
void mg_emit_llvm_declare(const MgTarget *t, MgStrbuf *module);
/* Does `find` know all functions of SLEEF that kernels for t may call? */
bool mg_emit_llvm_finds_sleef(const MgTarget *t, void *(*find)(const char *name));
#endif
