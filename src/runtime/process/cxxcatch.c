/* See the header.  x86-64 only; elsewhere functions are called as they are, and nothing is caught. */
#define _GNU_SOURCE /* dlinfo */
#include "runtime/process/cxxcatch.h"
#include "runtime/process/torch_abi.h"
#include <dlfcn.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__x86_64__) && defined(__linux__)
#include <unwind.h>

enum { CXX_REGS = 6, CXX_XMM = 8 };
#define CXX_LEAVE 0x4d47004c45415645ull /* class of our own exception: a library gave up */

static void *(*cxx_begin_catch)(void *);
static void (*cxx_end_catch)(void);
static _Thread_local unsigned cxx_depth; /* calls of mg_cxx_catch on this thread */
static _Thread_local struct _Unwind_Exception cxx_leaving;

void mg_cxx_landing(void) __attribute__((visibility("hidden")));
void mg_cxx_caught(struct _Unwind_Exception *e) __attribute__((visibility("hidden"), used));
_Unwind_Reason_Code mg_cxx_personality(int version, _Unwind_Action actions, _Unwind_Exception_Class kind,
                                       struct _Unwind_Exception *e, struct _Unwind_Context *at)
    __attribute__((visibility("hidden"), used));

__asm__(
    ".text\n.p2align 4\n.globl mg_cxx_enter, mg_cxx_landing\n.hidden mg_cxx_enter, mg_cxx_landing\n"
    ".type mg_cxx_enter, @function\nmg_cxx_enter:\n.cfi_startproc\n.cfi_personality 0x1b, "
    "mg_cxx_personality\n"
    "pushq %rbp\n.cfi_def_cfa_offset 16\n.cfi_offset %rbp, -16\nmovq %rsp, %rbp\n.cfi_def_cfa_register %rbp\n"
    "movq %rdi, %r11\nmovq %rsi, %r10\n"
    "leaq 15(,%r8,8), %rax\nandq $-16, %rax\nsubq %rax, %rsp\nxorl %eax, %eax\n"
    "1: cmpq %r8, %rax\njae 2f\nmovq (%rcx,%rax,8), %r9\nmovq %r9, (%rsp,%rax,8)\nincq %rax\njmp 1b\n"
    "2: movsd (%rdx), %xmm0\nmovsd 8(%rdx), %xmm1\nmovsd 16(%rdx), %xmm2\nmovsd 24(%rdx), %xmm3\n"
    "movsd 32(%rdx), %xmm4\nmovsd 40(%rdx), %xmm5\nmovsd 48(%rdx), %xmm6\nmovsd 56(%rdx), %xmm7\n"
    "movq (%r10), %rdi\nmovq 8(%r10), %rsi\nmovq 16(%r10), %rdx\nmovq 24(%r10), %rcx\nmovq 32(%r10), "
    "%r8\nmovq 40(%r10), %r9\n"
    "call *%r11\nmovl $1, %eax\n"
    "3: leave\n.cfi_remember_state\n.cfi_def_cfa %rsp, 8\nret\n.cfi_restore_state\n"
    "mg_cxx_landing: movq %rax, %rdi\ncall mg_cxx_caught\nxorl %eax, %eax\njmp 3b\n"
    ".cfi_endproc\n.size mg_cxx_enter, .-mg_cxx_enter\n");

void mg_cxx_caught(struct _Unwind_Exception *e) {
  if (e->exception_class == CXX_LEAVE || !cxx_begin_catch) return;
  cxx_begin_catch(e);
  cxx_end_catch();
}

_Unwind_Reason_Code mg_cxx_personality(int version, _Unwind_Action actions, _Unwind_Exception_Class kind,
                                       struct _Unwind_Exception *e, struct _Unwind_Context *at) {
  if (version != 1) return _URC_FATAL_PHASE1_ERROR;
  if (actions & _UA_FORCE_UNWIND) return _URC_CONTINUE_UNWIND; /* a thread that ends */
  if (actions & _UA_SEARCH_PHASE) return _URC_HANDLER_FOUND;
  if (!(actions & _UA_HANDLER_FRAME)) return _URC_CONTINUE_UNWIND;
  _Unwind_SetGR(at, __builtin_eh_return_data_regno(0), (_Unwind_Word)(uintptr_t)e);
  _Unwind_SetIP(at, (_Unwind_Ptr)(uintptr_t)mg_cxx_landing);
  return _URC_INSTALL_CONTEXT;
}

bool mg_cxx_find_catch(void *library) {
  if (cxx_begin_catch && cxx_end_catch) return true;
  void *begin = library ? dlsym(library, "__cxa_begin_catch") : mg_abi_symbol("__cxa_begin_catch");
  void *end = library ? dlsym(library, "__cxa_end_catch") : mg_abi_symbol("__cxa_end_catch");
  if (!begin || !end) return false;
  *(void **)&cxx_end_catch = end;
  *(void **)&cxx_begin_catch = begin;
  return true;
}

bool mg_cxx_catch(void (*fn)(void *), void *arg) {
  const uint64_t reg[CXX_REGS] = {(uint64_t)(uintptr_t)arg};
  const double xmm[CXX_XMM] = {0};
  cxx_depth++;
  bool done = mg_cxx_enter((void *)(uintptr_t)fn, reg, xmm, NULL, 0);
  cxx_depth--;
  return done;
}

/* ---- libraries that end the process ---- */

/* Unwinds to the innermost mg_cxx_catch of this thread; returns when there is none. */
static void cxx_leave(void) {
  if (!cxx_depth) return;
  cxx_leaving = (struct _Unwind_Exception){.exception_class = CXX_LEAVE};
  _Unwind_RaiseException(&cxx_leaving);
}

static _Noreturn void cxx_abort(void) {
  cxx_leave();
  abort();
}

static _Noreturn void cxx_exit(int code) {
  cxx_leave();
  exit(code);
}

typedef struct CxxRelocs { /* what a library's dynamic section says of its calls of others */
  uintptr_t base;
  const ElfW(Sym) * sym;
  const char *str;
  const ElfW(Rela) * rela[2]; /* of calls, of data */
  size_t n[2], relative;      /* relative: the first of data's, which have no name */
  bool now;                   /* the table was made read-only */
} CxxRelocs;

static CxxRelocs cxx_relocs(const struct link_map *m) {
  CxxRelocs r = {.base = m->l_addr};
  for (const ElfW(Dyn) *d = m->l_ld; d->d_tag; d++) {
    uintptr_t at =
        d->d_un.d_ptr < r.base ? d->d_un.d_ptr + r.base : d->d_un.d_ptr; /* glibc has added the base */
    if (d->d_tag == DT_SYMTAB) r.sym = (const ElfW(Sym) *)at;
    if (d->d_tag == DT_STRTAB) r.str = (const char *)at;
    if (d->d_tag == DT_JMPREL) r.rela[0] = (const ElfW(Rela) *)at;
    if (d->d_tag == DT_RELA) r.rela[1] = (const ElfW(Rela) *)at;
    if (d->d_tag == DT_PLTRELSZ) r.n[0] = d->d_un.d_val / sizeof(ElfW(Rela));
    if (d->d_tag == DT_RELASZ) r.n[1] = d->d_un.d_val / sizeof(ElfW(Rela));
    if (d->d_tag == DT_RELACOUNT) r.relative = d->d_un.d_val;
    if (d->d_tag == DT_BIND_NOW || (d->d_tag == DT_FLAGS && d->d_un.d_val & DF_BIND_NOW) ||
        (d->d_tag == DT_FLAGS_1 && d->d_un.d_val & DF_1_NOW))
      r.now = true;
  }
  return r;
}

static bool cxx_write(const CxxRelocs *r, uintptr_t slot, void *to) {
  uintptr_t size = (uintptr_t)sysconf(_SC_PAGESIZE);
  void *page = (void *)(slot & ~(size - 1));
  if (r->now && mprotect(page, size, PROT_READ | PROT_WRITE)) return false;
  *(void **)slot = to;
  if (r->now) mprotect(page, size, PROT_READ);
  return true;
}

bool mg_cxx_no_exit(void *library) {
  static const struct {
    const char *name;
    void *to;
  } end[] = {{"abort", (void *)cxx_abort}, {"exit", (void *)cxx_exit}};
  struct link_map *m = NULL;
  bool found = false;
  if (dlinfo(library, RTLD_DI_LINKMAP, &m) || !m) return false;
  CxxRelocs r = cxx_relocs(m);
  if (!r.sym || !r.str) return false;
  for (int t = 0; t < 2; t++)
    for (size_t i = t ? r.relative : 0; r.rela[t] && i < r.n[t]; i++) {
      const ElfW(Rela) *e = &r.rela[t][i];
      unsigned type = ELF64_R_TYPE(e->r_info);
      if (type != R_X86_64_JUMP_SLOT && type != R_X86_64_GLOB_DAT) continue;
      const char *name = r.str + r.sym[ELF64_R_SYM(e->r_info)].st_name;
      for (size_t k = 0; k < sizeof end / sizeof *end; k++)
        if (!strcmp(name, end[k].name) && cxx_write(&r, r.base + e->r_offset, end[k].to)) found |= !k;
    }
  return found;
}

#else
bool mg_cxx_find_catch(void *library) { return false; }
bool mg_cxx_no_exit(void *library) { return false; }
bool mg_cxx_catch(void (*fn)(void *), void *arg) {
  fn(arg);
  return true;
}
#endif
