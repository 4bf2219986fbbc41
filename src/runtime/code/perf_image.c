/* Code in mappings of files with symbols.  See the header.
 * In: sizes, and names of functions as plans give them.  Out: shared libraries with nothing but a symbol
 * table: a head of one page, room for the code, then symbols, texts and section headers.
 * Memory is mapped privately, so the code itself is not in the file, and a full disk harms nothing.
 * A forked child has its parent's images. Files stay when the process ends, as perf reads them later. */
#include "runtime/code/perf_image.h"
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "base/ctx.h"
#include "base/strbuf.h"

enum { IMAGE_HEAD = 4096, IMAGE_PATH = 64 };
enum { IMAGE_text = 1, IMAGE_symtab, IMAGE_strtab, IMAGE_shstrtab, IMAGE_SECTIONS };

typedef struct PerfImage {
  uintptr_t start;
  size_t bytes;
  char path[IMAGE_PATH];
} PerfImage;

static PerfImage *image_all;
static uint32_t image_count, image_cap;

static PerfImage *image_find(uintptr_t at) {
  for (uint32_t i = 0; i < image_count; i++)
    if (at - image_all[i].start < image_all[i].bytes) return &image_all[i];
  return NULL;
}

/* A new file; one that an earlier process of that number left is replaced. */
static int image_open(const char *path) {
  for (int turn = 0; turn < 2; turn++) {
    int file = open(path, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
    if (file >= 0 || errno != EEXIST || unlink(path)) return file;
  }
  return -1;
}

static void *image_map(int file, size_t bytes) {
  if (ftruncate(file, (off_t)(IMAGE_HEAD + bytes))) return NULL;
  void *p = mmap(NULL, bytes, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, IMAGE_HEAD);
  if (p == MAP_FAILED) return NULL;
  if (!mprotect(p, bytes, PROT_READ | PROT_WRITE)) return p;
  munmap(p, bytes);
  return NULL;
}

void *mg_perf_image_new(size_t bytes) {
  static unsigned number;
  PerfImage made = {.bytes = bytes};
  if (image_count == image_cap && !mg_grow(&image_all, &image_cap, sizeof *image_all, 64)) return NULL;
  snprintf(made.path, sizeof made.path, "/tmp/magneto-%ld-%u.so", (long)getpid(), ++number);
  int file = image_open(made.path);
  if (file < 0) return NULL;
  void *p = image_map(file, bytes);
  close(file);
  if (!p) return unlink(made.path), NULL;
  made.start = (uintptr_t)p;
  image_all[image_count++] = made;
  return p;
}

uintptr_t mg_perf_image_at(uintptr_t at, size_t *bytes) {
  const PerfImage *i = image_find(at);
  if (!i) return 0;
  *bytes = i->bytes;
  return i->start;
}

void mg_perf_image_drop(uintptr_t start) {
  PerfImage *i = image_find(start);
  if (!i) return;
  unlink(i->path);
  *i = image_all[--image_count];
}

/* ---- the file ---- */

static void image_section(Elf64_Shdr *s, uint32_t type, uint64_t offset, uint64_t size) {
  *s = (Elf64_Shdr){.sh_type = type, .sh_offset = offset, .sh_size = size, .sh_addralign = 1};
}

/* Symbols, their texts, and the section headers, which begin at *sections. */
static void image_tail(const PerfImage *image, const MgPerfSymbol *symbol, uint32_t n, MgStrbuf *out,
                       uint64_t *sections) {
  static const char names[] = "\0.text\0.symtab\0.strtab\0.shstrtab";
  uint64_t from = IMAGE_HEAD + image->bytes, size = (n + 1) * sizeof(Elf64_Sym);
  MgStrbuf text = {0};
  Elf64_Sym s = {0};
  Elf64_Shdr head[IMAGE_SECTIONS] = {0};
  mg_sb_write(out, (const char *)&s, sizeof s);
  mg_sb_write(&text, "", 1);
  for (uint32_t i = 0; i < n; i++) {
    s = (Elf64_Sym){.st_name = (Elf64_Word)text.len,
                    .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC),
                    .st_shndx = IMAGE_text,
                    .st_value = IMAGE_HEAD + (symbol[i].fn - image->start),
                    .st_size = symbol[i].bytes};
    mg_sb_write(out, (const char *)&s, sizeof s);
    mg_sb_write(&text, symbol[i].name, strlen(symbol[i].name) + 1);
  }
  image_section(&head[IMAGE_text], SHT_PROGBITS, IMAGE_HEAD, image->bytes);
  head[IMAGE_text].sh_addr = IMAGE_HEAD;
  head[IMAGE_text].sh_flags = SHF_ALLOC | SHF_EXECINSTR;
  image_section(&head[IMAGE_symtab], SHT_SYMTAB, from, size);
  head[IMAGE_symtab].sh_link = IMAGE_strtab;
  head[IMAGE_symtab].sh_info = 1; /* the first symbol that is global */
  head[IMAGE_symtab].sh_entsize = sizeof s;
  image_section(&head[IMAGE_strtab], SHT_STRTAB, from + size, text.len);
  image_section(&head[IMAGE_shstrtab], SHT_STRTAB, from + size + text.len, sizeof names);
  for (int i = 1, at = 1; i < IMAGE_SECTIONS; i++, at += (int)strlen(names + at) + 1)
    head[i].sh_name = (Elf64_Word)at;
  if (mg_sb_ok(&text)) mg_sb_write(out, mg_sb_text(&text), text.len);
  else out->failed = true;
  mg_sb_write(out, names, sizeof names);
  mg_sb_write(out, "\0\0\0\0\0\0\0", -out->len % 8);
  *sections = from + out->len;
  mg_sb_write(out, (const char *)head, sizeof head);
  mg_sb_free(&text);
}

void mg_perf_image_symbols(uintptr_t start, const MgPerfSymbol *symbol, uint32_t n) {
  const PerfImage *image = image_find(start);
  MgStrbuf tail = {0};
  struct {
    Elf64_Ehdr file;
    Elf64_Phdr load;
  } head = {.file = {.e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB, EV_CURRENT},
                     .e_type = ET_DYN,
                     .e_machine = EM_X86_64,
                     .e_version = EV_CURRENT,
                     .e_phoff = sizeof(Elf64_Ehdr),
                     .e_ehsize = sizeof(Elf64_Ehdr),
                     .e_phentsize = sizeof(Elf64_Phdr),
                     .e_phnum = 1,
                     .e_shentsize = sizeof(Elf64_Shdr),
                     .e_shnum = IMAGE_SECTIONS,
                     .e_shstrndx = IMAGE_shstrtab},
            .load = {.p_type = PT_LOAD,
                     .p_flags = PF_R | PF_X,
                     .p_offset = IMAGE_HEAD,
                     .p_vaddr = IMAGE_HEAD,
                     .p_paddr = IMAGE_HEAD,
                     .p_align = IMAGE_HEAD}};
  if (!image) return;
  head.load.p_filesz = head.load.p_memsz = image->bytes;
  image_tail(image, symbol, n, &tail, &head.file.e_shoff);
  int file = mg_sb_ok(&tail) ? open(image->path, O_WRONLY | O_NOFOLLOW | O_CLOEXEC) : -1;
  if (file >= 0) {
    off_t end = (off_t)(IMAGE_HEAD + image->bytes);
    if (pwrite(file, mg_sb_text(&tail), tail.len, end) != (ssize_t)tail.len ||
        pwrite(file, &head, sizeof head, 0) != (ssize_t)sizeof head) { /* the disk is full: no symbols */
    }
    close(file);
  }
  mg_sb_free(&tail);
}
