/* A small relocating loader.  See the header for the contract.
 * Layout of the mapping: read-only and executable sections in file order, then one 16-byte jump stub for each
 * external function that is called, then the table of addresses (GOT) that stubs and code load from.  After
 * relocation everything is read+execute; the pages are never writable and executable at once. */
#define _GNU_SOURCE
#include "runtime/code/load_elf.h"
#include "runtime/code/perf_map.h"
#include <elf.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

typedef struct ElfFunc { /* an exported function */
  uint32_t name;         /* offset in names */
  uint64_t addr;
} ElfFunc;

struct MgCode {
  uint8_t *map; /* the mapping */
  size_t bytes;
  char *names; /* copied string table of the exported functions */
  ElfFunc *func;
  uint32_t nfunc;
  void *other; /* code that is not ours to map, and how it is given back */
  void (*drop)(void *other);
};

typedef struct ElfIn { /* one object being loaded */
  MgCtx *c;
  const uint8_t *p; /* file bytes */
  size_t len;
  const Elf64_Shdr *sh; /* section headers (copied: alignment of the input is unknown) */
  uint32_t nsh;
  const char *shstr; /* section names */
  size_t shstr_len;
  Elf64_Sym *sym; /* symbols (copied) */
  uint32_t nsym;
  const char *str; /* symbol names */
  size_t str_len;
  uint64_t *at;       /* per section: offset in the mapping, or ELF_NOWHERE */
  uint64_t *ext;      /* per symbol: resolved external address */
  uint64_t stub, got; /* offsets of the stubs and of the GOT, one entry a symbol */
  uint64_t total;     /* bytes of the mapping */
  MgElfResolve resolve;
} ElfIn;

#define ELF_NOWHERE UINT64_MAX
#define ELF_MAX (256u << 20) /* no kernel object is larger; keeps all sums far from overflow */
#define ELF_STUB 16

#define elf_bad(in, ...) mg_fail((in)->c, MG_BUG, __VA_ARGS__)
static bool elf_inside(const ElfIn *in, uint64_t off, uint64_t n) {
  return off <= in->len && n <= in->len - off;
}

/* The NUL-terminated name at offset i of a string table, or NULL. */
static const char *elf_name(const char *table, size_t len, uint64_t i) {
  return i < len && memchr(table + i, 0, len - i) ? table + i : NULL;
}

static MgRc elf_read_headers(ElfIn *in) {
  Elf64_Ehdr eh;
  if (in->len < sizeof eh || in->len > ELF_MAX) return elf_bad(in, "object of %zu bytes", in->len);
  memcpy(&eh, in->p, sizeof eh);
  if (memcmp(eh.e_ident, ELFMAG, SELFMAG) || eh.e_ident[EI_CLASS] != ELFCLASS64 ||
      eh.e_ident[EI_DATA] != ELFDATA2LSB || eh.e_type != ET_REL)
    return elf_bad(in, "not a relocatable ELF object");
  if (eh.e_machine != EM_X86_64) return mg_fail(in->c, MG_UNSUP, "object for machine %d", eh.e_machine);
  if (eh.e_shentsize != sizeof(Elf64_Shdr) || !eh.e_shnum ||
      !elf_inside(in, eh.e_shoff, eh.e_shnum * sizeof(Elf64_Shdr)))
    return elf_bad(in, "section headers outside of the object");
  Elf64_Shdr *sh = mg_new(in->c, Elf64_Shdr, eh.e_shnum);
  TRYP(sh);
  memcpy(sh, in->p + eh.e_shoff, eh.e_shnum * sizeof *sh);
  in->sh = sh;
  in->nsh = eh.e_shnum;
  for (uint32_t i = 0; i < in->nsh; i++)
    if (sh[i].sh_type != SHT_NOBITS && sh[i].sh_type != SHT_NULL &&
        !elf_inside(in, sh[i].sh_offset, sh[i].sh_size))
      return elf_bad(in, "section %u outside of the object", i);
  if (eh.e_shstrndx >= in->nsh || sh[eh.e_shstrndx].sh_type != SHT_STRTAB)
    return elf_bad(in, "no section names");
  in->shstr = (const char *)in->p + sh[eh.e_shstrndx].sh_offset;
  in->shstr_len = sh[eh.e_shstrndx].sh_size;
  return MG_OK;
}

static MgRc elf_read_symbols(ElfIn *in) {
  const Elf64_Shdr *t = NULL;
  for (uint32_t i = 0; i < in->nsh; i++)
    if (in->sh[i].sh_type == SHT_SYMTAB) t = &in->sh[i];
  if (!t || t->sh_entsize != sizeof(Elf64_Sym) || t->sh_size % sizeof(Elf64_Sym) || t->sh_link >= in->nsh ||
      in->sh[t->sh_link].sh_type != SHT_STRTAB)
    return elf_bad(in, "no usable symbol table");
  in->nsym = t->sh_size / sizeof(Elf64_Sym);
  in->sym = mg_new(in->c, Elf64_Sym, in->nsym + 1);
  in->ext = mg_new(in->c, uint64_t, in->nsym + 1);
  TRYP(in->sym && in->ext);
  memcpy(in->sym, in->p + t->sh_offset, t->sh_size);
  in->str = (const char *)in->p + in->sh[t->sh_link].sh_offset;
  in->str_len = in->sh[t->sh_link].sh_size;
  for (uint32_t i = 0; i < in->nsym; i++)
    if (!elf_name(in->str, in->str_len, in->sym[i].st_name)) return elf_bad(in, "symbol %u has no name", i);
  return MG_OK;
}

/* Unwind tables are dropped: kernels neither throw nor are unwound through. */
static bool elf_wanted(const ElfIn *in, const Elf64_Shdr *s) {
  const char *name = elf_name(in->shstr, in->shstr_len, s->sh_name);
  if (s->sh_type != SHT_PROGBITS && s->sh_type != SHT_NOBITS) return false;
  return s->sh_flags & SHF_ALLOC && s->sh_size && name && strncmp(name, ".eh_frame", 9);
}

static MgRc elf_layout(ElfIn *in) {
  in->at = mg_new(in->c, uint64_t, in->nsh);
  TRYP(in->at);
  uint64_t total = 0, nundef = 0;
  for (uint32_t i = 0; i < in->nsh; i++) {
    const Elf64_Shdr *s = &in->sh[i];
    in->at[i] = ELF_NOWHERE;
    if (!elf_wanted(in, s)) continue;
    if (s->sh_flags & SHF_WRITE) return elf_bad(in, "section %u is writable", i);
    uint64_t align = s->sh_addralign ? s->sh_addralign : 1;
    if (align & (align - 1) || align > 4096 || s->sh_size > ELF_MAX)
      return elf_bad(in, "section %u: alignment or size", i);
    in->at[i] = (total + align - 1) & ~(align - 1);
    total = in->at[i] + s->sh_size;
    if (total > ELF_MAX) return elf_bad(in, "object too large");
  }
  for (uint32_t i = 1; i < in->nsym; i++) {
    const Elf64_Sym *s = &in->sym[i];
    const char *name = in->str + s->st_name;
    if (s->st_shndx != SHN_UNDEF) continue;
    nundef++;
    in->ext[i] = *name ? (uint64_t)(uintptr_t)in->resolve(name) : 0;
    if (*name && !in->ext[i]) return elf_bad(in, "generated code needs %.100s, which was not found", name);
  }
  in->stub = (total + ELF_STUB - 1) & ~(uint64_t)(ELF_STUB - 1);
  in->got = in->stub + (nundef ? (uint64_t)in->nsym * ELF_STUB : 0);
  in->total = in->got + (uint64_t)in->nsym * 8; /* a GOT entry may also hold a local address */
  return total ? MG_OK : elf_bad(in, "object without code");
}

/* Address of symbol i in the mapping m. */
static MgRc elf_symbol_addr(ElfIn *in, uint8_t *m, uint32_t i, uint64_t *out) {
  const Elf64_Sym *s = &in->sym[i];
  if (s->st_shndx == SHN_UNDEF)
    return *out = in->ext[i], *out ? MG_OK : elf_bad(in, "relocation against nothing");
  if (s->st_shndx == SHN_ABS) return *out = s->st_value, MG_OK;
  if (s->st_shndx >= in->nsh || in->at[s->st_shndx] == ELF_NOWHERE ||
      s->st_value > in->sh[s->st_shndx].sh_size)
    return elf_bad(in, "symbol %u outside of its section", i);
  *out = (uint64_t)(uintptr_t)m + in->at[s->st_shndx] + s->st_value;
  return MG_OK;
}

/* A stub that jumps through the symbol's GOT entry: external functions may be further away than 2 GiB. */
static uint64_t elf_make_stub(ElfIn *in, uint8_t *m, uint32_t i) {
  uint8_t *st = m + in->stub + (uint64_t)i * ELF_STUB;
  int32_t rel = (int32_t)((m + in->got + (uint64_t)i * 8) - (st + 6));
  st[0] = 0xff, st[1] = 0x25; /* jmp [rip + rel] */
  memcpy(st + 2, &rel, 4);
  memcpy(m + in->got + (uint64_t)i * 8, &in->ext[i], 8);
  return (uint64_t)(uintptr_t)st;
}

static MgRc elf_relocate_one(ElfIn *in, uint8_t *m, uint32_t sec, const Elf64_Rela *r) {
  uint32_t i = ELF64_R_SYM(r->r_info), type = ELF64_R_TYPE(r->r_info);
  size_t width = type == R_X86_64_64 || type == R_X86_64_PC64 ? 8 : 4;
  if (i >= in->nsym || r->r_offset > in->sh[sec].sh_size || in->sh[sec].sh_size - r->r_offset < width)
    return elf_bad(in, "relocation outside of its section");
  if (in->sh[sec].sh_type == SHT_NOBITS) return elf_bad(in, "relocation in an empty section");
  uint8_t *place = m + in->at[sec] + r->r_offset;
  uint64_t s, p = (uint64_t)(uintptr_t)place, v;
  TRY(elf_symbol_addr(in, m, i, &s));
  switch (type) {
  case R_X86_64_64: v = s + r->r_addend; break;
  case R_X86_64_PC64: v = s + r->r_addend - p; break;
  case R_X86_64_PC32:
  case R_X86_64_PLT32:
    if (in->sym[i].st_shndx == SHN_UNDEF) s = elf_make_stub(in, m, i);
    v = s + r->r_addend - p;
    break;
  case R_X86_64_GOTPCREL:
  case R_X86_64_GOTPCRELX:
  case R_X86_64_REX_GOTPCRELX:
    memcpy(m + in->got + (uint64_t)i * 8, &s, 8);
    v = (uint64_t)(uintptr_t)(m + in->got + (uint64_t)i * 8) + r->r_addend - p;
    break;
  default: return elf_bad(in, "relocation type %u", type);
  }
  if (width == 8) return memcpy(place, &v, 8), MG_OK;
  if ((int64_t)v != (int32_t)v) return elf_bad(in, "relocation out of range");
  int32_t v32 = (int32_t)v;
  memcpy(place, &v32, 4);
  return MG_OK;
}

static MgRc elf_relocate(ElfIn *in, uint8_t *m) {
  for (uint32_t i = 0; i < in->nsh; i++) {
    const Elf64_Shdr *s = &in->sh[i];
    if (s->sh_type == SHT_REL) return elf_bad(in, "relocations without addends");
    if (s->sh_type != SHT_RELA) continue;
    if (s->sh_info >= in->nsh || s->sh_entsize != sizeof(Elf64_Rela))
      return elf_bad(in, "relocation section %u", i);
    if (in->at[s->sh_info] == ELF_NOWHERE) continue;
    for (uint64_t k = 0; k + sizeof(Elf64_Rela) <= s->sh_size; k += sizeof(Elf64_Rela)) {
      Elf64_Rela r;
      memcpy(&r, in->p + s->sh_offset + k, sizeof r);
      TRY(elf_relocate_one(in, m, s->sh_info, &r));
    }
  }
  return MG_OK;
}

/* Bytes from function i on that no other exported one lies in: its code, and what only it calls. */
static size_t elf_reach(const ElfIn *in, uint32_t i) {
  const Elf64_Sym *s = &in->sym[i];
  uint64_t end = in->sh[s->st_shndx].sh_size;
  for (uint32_t k = 0; k < in->nsym; k++) {
    const Elf64_Sym *t = &in->sym[k];
    if (t->st_shndx == s->st_shndx && ELF64_ST_BIND(t->st_info) == STB_GLOBAL && t->st_value > s->st_value &&
        t->st_value < end)
      end = t->st_value;
  }
  return end - s->st_value;
}

/* Copies names and addresses of the functions that callers may ask for. */
static MgRc elf_export(ElfIn *in, MgCode *code) {
  code->names = mg_malloc(in->str_len);
  code->func = mg_malloc(sizeof(ElfFunc) * in->nsym);
  if (!code->names || !code->func) return mg_fail(in->c, MG_NOMEM, "out of memory");
  memcpy(code->names, in->str, in->str_len);
  for (uint32_t i = 0; i < in->nsym; i++) {
    const Elf64_Sym *s = &in->sym[i];
    if (s->st_shndx == SHN_UNDEF || ELF64_ST_TYPE(s->st_info) != STT_FUNC ||
        ELF64_ST_BIND(s->st_info) != STB_GLOBAL)
      continue;
    uint64_t addr;
    TRY(elf_symbol_addr(in, code->map, i, &addr));
    code->func[code->nfunc++] = (ElfFunc){s->st_name, addr};
    if (mg_perf_on() && s->st_shndx < in->nsh) mg_perf_loaded((void *)(uintptr_t)addr, elf_reach(in, i));
  }
  return MG_OK;
}

static MgRc elf_load(ElfIn *in, MgCode *code) {
  TRY(elf_read_headers(in));
  TRY(elf_read_symbols(in));
  TRY(elf_layout(in));
  code->bytes = (in->total + 4095) & ~(size_t)4095;
  code->map = mg_perf_on() ? mg_perf_memory(code->bytes) : NULL;
  if (!code->map)
    code->map = mmap(NULL, code->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (code->map == MAP_FAILED)
    return code->map = NULL, mg_fail(in->c, MG_NOMEM, "no memory for %zu bytes of code", code->bytes);
  for (uint32_t i = 0; i < in->nsh; i++)
    if (in->at[i] != ELF_NOWHERE && in->sh[i].sh_type != SHT_NOBITS)
      memcpy(code->map + in->at[i], in->p + in->sh[i].sh_offset, in->sh[i].sh_size);
  TRY(elf_relocate(in, code->map));
  TRY(elf_export(in, code));
  if (mprotect(code->map, code->bytes, PROT_READ | PROT_EXEC))
    return elf_bad(in, "memory cannot be made executable");
  return MG_OK;
}

MgRc mg_elf_load(MgCtx *c, const void *obj, size_t len, MgElfResolve resolve, MgCode **out) {
  ElfIn in = {.c = c, .p = obj, .len = len, .resolve = resolve};
  MgCode *code = mg_calloc(1, sizeof *code);
  *out = NULL;
  if (!code) return mg_fail(c, MG_NOMEM, "out of memory");
  MgRc rc = elf_load(&in, code);
  if (rc == MG_OK) *out = code;
  else mg_elf_free(code);
  return rc;
}

void *mg_elf_symbol(const MgCode *code, const char *name) {
  for (uint32_t i = 0; i < code->nfunc; i++)
    if (!strcmp(code->names + code->func[i].name, name)) return (void *)(uintptr_t)code->func[i].addr;
  return NULL;
}

MgCode *mg_elf_foreign(void *other, size_t bytes, void (*drop)(void *other)) {
  MgCode *c = mg_calloc(1, sizeof *c);
  if (c) *c = (MgCode){.bytes = bytes, .other = other, .drop = drop};
  return c;
}

size_t mg_elf_bytes(const MgCode *code) { return code->bytes; }

void mg_elf_free(MgCode *code) {
  if (!code) return;
  if (code->drop) code->drop(code->other);
  if (code->map && mg_perf_on()) mg_perf_unloaded(code->map, code->bytes);
  if (code->map) munmap(code->map, code->bytes);
  free(code->names);
  free(code->func);
  free(code);
}
