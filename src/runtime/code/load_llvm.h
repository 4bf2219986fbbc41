/* LLVM as a library, used through dlopen: IR text in, object bytes out.
 * Two libraries are known: libllvmlite (the shared object of the pip package llvmlite) and a system's libLLVM
 * with the LLVM-C API.  No IR passes are run; code generation level 1; host CPU; position-independent, small
 * code model. A context and a target machine belong to one thread at a time. */
#ifndef MG_LOAD_LLVM_H
#define MG_LOAD_LLVM_H
#include "base/ctx.h"

typedef struct MgObject { /* an object file in memory; data is malloc'ed */
  void *data;
  size_t len;
} MgObject;

/* Finds and starts a library: $MAGNETO_LLVM ("none": there is none), llvmlite beside torch or beside us, a
 * system libLLVM.  NULL, or a message for users. */
const char *mg_llvm_open(void);
const char *mg_llvm_library(void);  /* its path */
const char *mg_llvm_cpu(void);      /* "znver4", or the level that MAGNETO_CPU names */
const char *mg_llvm_features(void); /* "+avx2,-sse4a,..." */
/* Major version of the LLVM that reads the text, 0: llvmlite's, which is a recent
 * one (known without opening it).
 * -1: there is no LLVM. */
int mg_llvm_major(void);
/* Compiles n independent modules on up to nthread threads.  out[i].data is new, freed by the caller with
 * free(); after an error nothing is left in out. */
MgRc mg_llvm_emit(MgCtx *c, const char *const *text, uint32_t n, unsigned nthread, MgObject *out);
/* The assembly of one module: a text in *out, which is the caller's to free. */
MgRc mg_llvm_assembly(MgCtx *c, const char *text, MgObject *out);
#endif
