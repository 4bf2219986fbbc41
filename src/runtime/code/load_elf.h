/* Loads a relocatable ELF object (what LLVM emits) into executable memory, without a linker.
 * In: object bytes, also hostile ones (a cache file may be damaged): every offset, size and index is checked.
 * Out: mapped code; writable only while it is being relocated.  x86-64. */
#ifndef MG_LOAD_ELF_H
#define MG_LOAD_ELF_H
#include "base/ctx.h"

typedef struct MgCode MgCode;

/* Address of an external function, or NULL when generated code may not use it. */
typedef void *(*MgElfResolve)(const char *name);

/* New code; freed by mg_elf_free.  MG_BUG with the reason when the object is malformed or needs what is not
 * there, MG_UNSUP for another machine's object. */
MgRc mg_elf_load(MgCtx *c, const void *obj, size_t len, MgElfResolve resolve, MgCode **out);
/* Code that somebody else has loaded (a GPU's), for caches that hold both.  drop: when it is
 * freed.  NULL: out of memory. */
MgCode *mg_elf_foreign(void *other, size_t bytes, void (*drop)(void *other));
/* Address of a global function of the object, or NULL. */
void *mg_elf_symbol(const MgCode *code, const char *name);
size_t mg_elf_bytes(const MgCode *code); /* mapped bytes */
void mg_elf_free(MgCode *code);
#endif
