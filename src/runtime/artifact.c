/* The on-disk cache.  See the header. */
#define _GNU_SOURCE
#include "runtime/artifact.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif
#include "base/table.h"
#include "runtime/cpu.h"

#define ARTIFACT_MAGIC "MGOBJ01" /* counted up when generated code means something else */
enum { ARTIFACT_MAX_FILE = 64 << 20, ARTIFACT_TRIM_EVERY = 64, ARTIFACT_BLOCK = 4096 /* bytes that the smallest file takes */ };
static const char *const artifact_suffix[] = {".o", ".plan"}; /* by MgArtifactKind */
static uint64_t artifact_max_bytes = 512ull << 20; /* of all files; MAGNETO_CACHE_MB */

typedef struct ArtifactHead {
  char magic[8];
  MgKey key;
  uint64_t len, sum; /* bytes that follow and their hash */
} ArtifactHead;

static pthread_once_t artifact_once = PTHREAD_ONCE_INIT;
static char artifact_dir[512];    /* empty: off */
static uint64_t artifact_machine; /* hash of this CPU's identity, and of the level it is capped to */

static uint64_t artifact_cpu(void) {
  uint32_t id[16] = {0};
#if defined(__x86_64__)
  __get_cpuid(0, &id[0], &id[1], &id[2], &id[3]);
  __get_cpuid(1, &id[4], &id[5], &id[6], &id[7]);
  id[5] &= 0x00ffffff; /* the core this happens to run on */
  __get_cpuid_count(7, 0, &id[8], &id[9], &id[10], &id[11]);
  __get_cpuid_count(7, 1, &id[12], &id[13], &id[14], &id[15]);
#endif
  return mg_hash_bytes(id, sizeof id, mg_cpu_cap() ? mg_cpu()->level : 0);
}

static void artifact_open(void) {
  const char *off = getenv("MAGNETO_CACHE"), *dir = getenv("MAGNETO_CACHE_DIR"), *xdg = getenv("XDG_CACHE_HOME");
  const char *home = getenv("HOME"), *limit = getenv("MAGNETO_CACHE_MB");
  artifact_machine = artifact_cpu();
  if (off && !strcmp(off, "0")) return;
  if (limit && *limit) artifact_max_bytes = strtoull(limit, NULL, 10) << 20;
  if (dir && *dir) snprintf(artifact_dir, sizeof artifact_dir, "%s", dir);
  else if (xdg && *xdg) snprintf(artifact_dir, sizeof artifact_dir, "%s/magneto", xdg);
  else if (home && *home) snprintf(artifact_dir, sizeof artifact_dir, "%s/.cache/magneto", home);
  else return;
  for (char *p = artifact_dir + 1; (p = strchr(p, '/')); *p++ = '/') { /* parents, as far as they are missing */
    *p = 0;
    mkdir(artifact_dir, 0755);
  }
  struct stat st;
  bool ok = (!mkdir(artifact_dir, 0700) || errno == EEXIST) && !stat(artifact_dir, &st);
  /* Code is loaded from here: nobody else may be able to write it. */
  if (!ok || !S_ISDIR(st.st_mode) || st.st_uid != geteuid() || st.st_mode & (S_IWGRP | S_IWOTH)) *artifact_dir = 0;
}

bool mg_artifact_on(void) {
  pthread_once(&artifact_once, artifact_open);
  return *artifact_dir;
}

static bool artifact_path(MgArtifactKind kind, MgKey key, char *out, size_t n) {
  if (!mg_artifact_on()) return false;
  return snprintf(out, n, "%s/%016llx%016llx%s", artifact_dir, (unsigned long long)key.hi, (unsigned long long)key.lo, artifact_suffix[kind]) < (int)n;
}

typedef struct ArtifactBuild { const void *id; size_t n; } ArtifactBuild;

/* The build id among the notes of the library that this function is in. */
static int artifact_find_build(struct dl_phdr_info *lib, size_t size, void *arg) {
  ArtifactBuild *b = arg;
  uintptr_t self = (uintptr_t)artifact_find_build;
  bool ours = false;
  for (int i = 0; i < lib->dlpi_phnum; i++) {
    const ElfW(Phdr) *h = &lib->dlpi_phdr[i];
    ours |= h->p_type == PT_LOAD && self - (lib->dlpi_addr + h->p_vaddr) < h->p_memsz;
  }
  for (int i = 0; ours && i < lib->dlpi_phnum; i++) {
    const ElfW(Phdr) *h = &lib->dlpi_phdr[i];
    const char *p = (const char *)(lib->dlpi_addr + h->p_vaddr), *end = p + h->p_memsz;
    while (h->p_type == PT_NOTE && !b->id && (size_t)(end - p) > sizeof(ElfW(Nhdr))) {
      const ElfW(Nhdr) *note = (const void *)p;
      const char *name = p + sizeof *note, *desc = name + (note->n_namesz + 3) / 4 * 4;
      if (note->n_type == NT_GNU_BUILD_ID && note->n_namesz == 4 && !memcmp(name, "GNU", 4)) *b = (ArtifactBuild){desc, note->n_descsz};
      p = desc + (note->n_descsz + 3) / 4 * 4;
    }
  }
  return ours;
}

static ArtifactBuild artifact_build;
static void artifact_find(void) { dl_iterate_phdr(artifact_find_build, &artifact_build); }

const void *mg_artifact_build(size_t *n) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, artifact_find);
  *n = artifact_build.n;
  return artifact_build.id;
}

MgKey mg_artifact_key(const char *text, size_t len) {
  pthread_once(&artifact_once, artifact_open);
  uint64_t seed = artifact_machine ^ mg_hash_bytes(ARTIFACT_MAGIC, sizeof ARTIFACT_MAGIC, 0);
  return (MgKey){mg_hash_bytes(text, len, seed), mg_hash_bytes(text, len, ~seed)};
}

static bool artifact_read(int fd, void *p, size_t n) {
  for (size_t at = 0; at < n;) {
    ssize_t got = read(fd, (char *)p + at, n - at);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    at += (size_t)got;
  }
  return true;
}

bool mg_artifact_load(MgArtifactKind kind, MgKey key, MgObject *out) {
  char path[640];
  ArtifactHead h;
  struct stat st;
  *out = (MgObject){0};
  if (!artifact_path(kind, key, path, sizeof path)) return false;
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return false;
  bool ok = !fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_uid == geteuid() && artifact_read(fd, &h, sizeof h) &&
            !memcmp(h.magic, ARTIFACT_MAGIC, sizeof h.magic) && mg_key_same(h.key, key) &&
            h.len <= ARTIFACT_MAX_FILE && (uint64_t)st.st_size == sizeof h + h.len;
  ok = ok && (out->data = mg_malloc(h.len)) && artifact_read(fd, out->data, h.len) &&
       mg_hash_bytes(out->data, h.len, key.lo) == h.sum;
  if (ok) {
    out->len = h.len;
    futimens(fd, NULL); /* recently used */
  } else {
    free(out->data);
    out->data = NULL;
  }
  close(fd);
  return ok;
}

/* ---- writing ---- */

typedef struct ArtifactFile { char name[48]; uint64_t bytes; time_t used; } ArtifactFile;

static int artifact_by_age(const void *a, const void *b) {
  const ArtifactFile *p = a, *q = b;
  return p->used < q->used ? -1 : p->used > q->used;
}

static bool artifact_is_file(const char *name) {
  size_t len = strlen(name);
  for (size_t i = 0; i < sizeof artifact_suffix / sizeof *artifact_suffix; i++) {
    size_t n = strlen(artifact_suffix[i]);
    if (len > n && len < sizeof((ArtifactFile *)0)->name && !strcmp(name + len - n, artifact_suffix[i])) return true;
  }
  return false;
}

/* Removes the least recently used files when all together have grown too large. */
static void artifact_trim(void) {
  DIR *d = opendir(artifact_dir);
  ArtifactFile *f = NULL;
  size_t n = 0, cap = 0;
  uint64_t total = 0;
  for (struct dirent *e; d && (e = readdir(d));) {
    struct stat st;
    if (!artifact_is_file(e->d_name) || fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW)) continue;
    if (n == cap) {
      ArtifactFile *g = mg_realloc(f, (cap = cap ? cap * 2 : 256) * sizeof *f);
      if (!g) break;
      f = g;
    }
    f[n] = (ArtifactFile){.bytes = ((uint64_t)st.st_size + ARTIFACT_BLOCK - 1) / ARTIFACT_BLOCK * ARTIFACT_BLOCK, .used = st.st_mtime};
    strcpy(f[n].name, e->d_name);
    total += f[n++].bytes;
  }
  if (total > artifact_max_bytes) {
    qsort(f, n, sizeof *f, artifact_by_age);
    for (size_t i = 0; i < n && total > artifact_max_bytes / 4 * 3; i++)
      if (!unlinkat(dirfd(d), f[i].name, 0)) total -= f[i].bytes;
  }
  free(f);
  if (d) closedir(d);
}

void mg_artifact_store(MgArtifactKind kind, MgKey key, const MgObject *obj) {
  static atomic_uint stored;
  char path[640], temp[680];
  if (!artifact_path(kind, key, path, sizeof path) || obj->len > ARTIFACT_MAX_FILE) return;
  ArtifactHead h = {.magic = ARTIFACT_MAGIC, .key = key, .len = obj->len, .sum = mg_hash_bytes(obj->data, obj->len, key.lo)};
  snprintf(temp, sizeof temp, "%s.%ld.%u", path, (long)getpid(), atomic_fetch_add(&stored, 1));
  int fd = open(temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return;
  bool ok = write(fd, &h, sizeof h) == (ssize_t)sizeof h && write(fd, obj->data, obj->len) == (ssize_t)obj->len;
  ok &= !close(fd);
  if (!ok || rename(temp, path)) unlink(temp);
  else if (stored % ARTIFACT_TRIM_EVERY == 1) artifact_trim();
}
