/* The ELF loader: a hand-made object with every relocation kind runs; damaged objects
 * are refused, never followed. */
#include "runtime/code/load_elf.h"
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "check.h"

static int external(int x) { return x * 3; }
static void *resolve(const char *name) {
  return strcmp(name, "external") ? NULL : (void *)(uintptr_t)external;
}

/* f(x) = x + 40 (constant by PC32); g(x) = external(x) + 0 (PLT32); h(x) = external(x) (GOTPCRELX). */
static const uint8_t text[] = {
    0x8b, 0x05, 0,    0,    0,    0, 0x01, 0xf8, 0xc3, /* f at 0: mov eax,[rip+?]; add; ret */
    0x48, 0x83, 0xec, 0x08, 0xe8, 0, 0,    0,    0,    0x48, 0x83, 0xc4, 0x08, 0xc3, /* g at 9: call ? */
    0x48, 0x8b, 0x05, 0,    0,    0, 0,    0xff, 0xe0,  /* h at 23: mov rax,[rip+?]; jmp rax */
    0x48, 0x8b, 0x05, 0,    0,    0, 0,    0xff, 0xe0}; /* k at 32: jumps to the address in .rodata */
static const int32_t rodata[4] = {40, 0, 0, 0}; /* then a 64-bit address of f, and a PC64 distance to f */
static const char names[] = "\0f\0g\0h\0k\0external"; /* 1 3 5 7 9 */
static const char shnames[] = "\0.text\0.rodata\0.rela.text\0.rela.rodata\0.symtab\0.strtab\0.shstrtab";

typedef struct Obj {
  Elf64_Ehdr eh;
  Elf64_Shdr sh[8];
  Elf64_Sym sym[7];
  Elf64_Rela rel[4], rel2[2];
  uint8_t text[sizeof text], rodata[24];
  char str[sizeof names], shstr[sizeof shnames];
} Obj;

static Elf64_Shdr section(uint32_t name, uint32_t type, uint64_t flags, size_t off, size_t size,
                          uint32_t link, uint32_t info, uint64_t align, uint64_t ent) {
  return (Elf64_Shdr){.sh_name = name,
                      .sh_type = type,
                      .sh_flags = flags,
                      .sh_offset = off,
                      .sh_size = size,
                      .sh_link = link,
                      .sh_info = info,
                      .sh_addralign = align,
                      .sh_entsize = ent};
}

static void build(Obj *o) {
  memset(o, 0, sizeof *o);
  memcpy(o->eh.e_ident, ELFMAG, SELFMAG);
  o->eh.e_ident[EI_CLASS] = ELFCLASS64;
  o->eh.e_ident[EI_DATA] = ELFDATA2LSB;
  o->eh.e_type = ET_REL;
  o->eh.e_machine = EM_X86_64;
  o->eh.e_shoff = offsetof(Obj, sh);
  o->eh.e_shentsize = sizeof(Elf64_Shdr);
  o->eh.e_shnum = 8;
  o->eh.e_shstrndx = 7;
#define AT(f) offsetof(Obj, f), sizeof o->f
  o->sh[1] = section(1, SHT_PROGBITS, SHF_ALLOC | SHF_EXECINSTR, AT(text), 0, 0, 16, 0);
  o->sh[2] = section(7, SHT_PROGBITS, SHF_ALLOC, AT(rodata), 0, 0, 64, 0);
  o->sh[3] = section(15, SHT_RELA, 0, AT(rel), 5, 1, 8, sizeof(Elf64_Rela));
  o->sh[4] = section(26, SHT_RELA, 0, AT(rel2), 5, 2, 8, sizeof(Elf64_Rela));
  o->sh[5] = section(39, SHT_SYMTAB, 0, AT(sym), 6, 2, 8, sizeof(Elf64_Sym));
  o->sh[6] = section(47, SHT_STRTAB, 0, AT(str), 0, 0, 1, 0);
  o->sh[7] = section(55, SHT_STRTAB, 0, AT(shstr), 0, 0, 1, 0);
  unsigned char func = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC);
  o->sym[1] = (Elf64_Sym){.st_info = ELF64_ST_INFO(STB_LOCAL, STT_SECTION), .st_shndx = 2};
  o->sym[2] = (Elf64_Sym){.st_name = 1, .st_info = func, .st_shndx = 1, .st_value = 0};
  o->sym[3] = (Elf64_Sym){.st_name = 3, .st_info = func, .st_shndx = 1, .st_value = 9};
  o->sym[4] = (Elf64_Sym){.st_name = 5, .st_info = func, .st_shndx = 1, .st_value = 23};
  o->sym[5] = (Elf64_Sym){.st_name = 7, .st_info = func, .st_shndx = 1, .st_value = 32};
  o->sym[6] =
      (Elf64_Sym){.st_name = 9, .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_NOTYPE), .st_shndx = SHN_UNDEF};
  o->rel[0] = (Elf64_Rela){2, ELF64_R_INFO(1, R_X86_64_PC32), -4};
  o->rel[1] = (Elf64_Rela){14, ELF64_R_INFO(6, R_X86_64_PLT32), -4};
  o->rel[2] = (Elf64_Rela){26, ELF64_R_INFO(6, R_X86_64_REX_GOTPCRELX), -4};
  o->rel[3] = (Elf64_Rela){35, ELF64_R_INFO(1, R_X86_64_PC32), 8 - 4};
  o->rel2[0] = (Elf64_Rela){8, ELF64_R_INFO(2, R_X86_64_64), 0};
  o->rel2[1] = (Elf64_Rela){16, ELF64_R_INFO(2, R_X86_64_PC64), 0};
  memcpy(o->text, text, sizeof text);
  memcpy(o->rodata, rodata, sizeof rodata);
  memcpy(o->str, names, sizeof names);
  memcpy(o->shstr, shnames, sizeof shnames);
}

static MgRc load(const void *p, size_t n, MgCode **code) {
  MgCtx c;
  mg_ctx_init(&c);
  MgRc rc = mg_elf_load(&c, p, n, resolve, code);
  CHECK((rc == MG_OK) == (*code != NULL));
  if (rc != MG_OK) CHECK(c.msg[0]);
  mg_ctx_free(&c);
  return rc;
}

static void test_runs(const Obj *o) {
  MgCode *code;
  CHECK(load(o, sizeof *o, &code) == MG_OK);
  static const char *const name[] = {"f", "g", "h", "k"};
  static const int want[] = {42, 6, 6, 42};
  for (int i = 0; i < 4; i++) {
    int (*fn)(int) = (int (*)(int))(uintptr_t)mg_elf_symbol(code, name[i]);
    CHECK(fn && fn(2) == want[i]);
  }
  CHECK(!mg_elf_symbol(code, "external") && !mg_elf_symbol(code, "nothing"));
  mg_elf_free(code);
}

static void test_refuses(const Obj *good) {
  MgCode *code;
  Obj o = *good;
  o.eh.e_machine = EM_AARCH64;
  CHECK(load(&o, sizeof o, &code) == MG_UNSUP);
  o = *good;
  o.str[9] = 'x'; /* an unknown function */
  CHECK(load(&o, sizeof o, &code) == MG_BUG);
  o = *good;
  o.rel[0].r_offset = sizeof text - 3; /* the last byte would be outside */
  CHECK(load(&o, sizeof o, &code) == MG_BUG);
  o = *good;
  o.rel[0].r_info = ELF64_R_INFO(1, R_X86_64_TPOFF32);
  CHECK(load(&o, sizeof o, &code) == MG_BUG);
  o = *good;
  o.sh[1].sh_flags |= SHF_WRITE;
  CHECK(load(&o, sizeof o, &code) == MG_BUG);
  for (size_t n = 0; n < sizeof o; n++) CHECK(load(good, n, &code) != MG_OK || (mg_elf_free(code), true));
}

/* Random damage, mostly in headers: must be refused or loaded, never crash (the code is not run). */
static void test_fuzz(const Obj *good) {
  uint64_t seed = 12345;
  uint32_t loaded = 0, n = 60000;
  for (uint32_t i = 0; i < n; i++) {
    Obj o = *good;
    for (int k = 0; k < 1 + (int)(seed >> 60); k++) {
      seed = seed * 6364136223846793005ull + 1442695040888963407ull;
      size_t at = (seed >> 20) % (seed >> 63 ? sizeof o : offsetof(Obj, text));
      static const uint8_t edge[] = {0, 1, 0x7f, 0x80, 0xff};
      ((uint8_t *)&o)[at] = seed >> 62 & 1 ? edge[(seed >> 33) % 5] : (uint8_t)(seed >> 40);
    }
    MgCode *code;
    if (load(&o, sizeof o, &code) == MG_OK) mg_elf_free(code), loaded++;
  }
  CHECK(loaded > 0 && loaded < n);
}

int main(void) {
  static Obj o;
  build(&o);
  test_runs(&o);
  test_refuses(&o);
  test_fuzz(&o);
  return test_done();
}
