/* The on-disk cache.  See the header.
 * In: keys and bytes.  Out: files of the folder that runtime/code/cachedir opens, and bytes that
 * this user's processes wrote.
 * Invariant: bytes go out only if their keyed digest is right, so nothing behind this file
 * sees what somebody else made. */
#define _GNU_SOURCE
#include "runtime/code/disk_cache.h"
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
#include <time.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif
#include "base/blake2b.h"
#include "base/env.h"
#include "runtime/code/cachedir.h"
#include "runtime/process/cpu.h"

#define ARTIFACT_MAGIC "MGOBJ02" /* counted up when generated code or this format means something else */
enum {
  ARTIFACT_MAX_FILE = 64 << 20,
  ARTIFACT_TRIM_EVERY = 64,
  ARTIFACT_BLOCK = 4096, /* bytes that the smallest file takes */
  ARTIFACT_DIGEST = 32,
  ARTIFACT_NAME = 48,
  ARTIFACT_STALE = 600, /* seconds: a temporary that nobody wrote to for so long has no writer */
  ARTIFACT_MB = 512     /* MAGNETO_CACHE_MB by default */
};
static const char *const artifact_suffix[] = {".o", ".plan", ".cubin", ".choice"}; /* by MgArtifactKind */

typedef struct ArtifactHead {
  char magic[8];
  MgKey key;
  uint64_t len;                    /* bytes that follow */
  uint8_t digest[ARTIFACT_DIGEST]; /* of the fields above and these bytes, with the folder's key */
} ArtifactHead;

/* Of this process. */
static atomic_ullong artifact_loaded, artifact_stored, artifact_damaged, artifact_refused, artifact_swept;

/* ---- keys ---- */

static uint8_t
    artifact_machine[ARTIFACT_DIGEST]; /* digest of this CPU's identity, and of the level it is capped to */

static void artifact_find_machine(void) {
  uint32_t id[17] = {0};
#if defined(__x86_64__)
  __get_cpuid(0, &id[0], &id[1], &id[2], &id[3]);
  __get_cpuid(1, &id[4], &id[5], &id[6], &id[7]);
  id[5] &= 0x00ffffff; /* the core this happens to run on */
  __get_cpuid_count(7, 0, &id[8], &id[9], &id[10], &id[11]);
  __get_cpuid_count(7, 1, &id[12], &id[13], &id[14], &id[15]);
#endif
  id[16] = mg_cpu_cap() ? mg_cpu()->level : 0;
  MgBlake b;
  mg_blake_begin(&b, sizeof artifact_machine, NULL, 0);
  mg_blake_add(&b, id, sizeof id);
  mg_blake_end(&b, artifact_machine);
}

MgKey mg_artifact_key(const char *text, size_t len) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  MgBlake b;
  MgKey key;
  pthread_once(&once, artifact_find_machine);
  mg_blake_begin(&b, sizeof key, artifact_machine, sizeof artifact_machine);
  mg_blake_add(&b, ARTIFACT_MAGIC, sizeof ARTIFACT_MAGIC);
  mg_blake_add(&b, text, len);
  mg_blake_end(&b, &key);
  return key;
}

static void artifact_name(MgArtifactKind kind, MgKey key, char out[ARTIFACT_NAME]) {
  snprintf(out, ARTIFACT_NAME, "%016llx%016llx%s", (unsigned long long)key.hi, (unsigned long long)key.lo,
           artifact_suffix[kind]);
}

bool mg_artifact_on(void) { return mg_cachedir() >= 0; }

/* ---- the build ---- */

typedef struct ArtifactBuild {
  const void *id;
  size_t n;
} ArtifactBuild;

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
      if (note->n_type == NT_GNU_BUILD_ID && note->n_namesz == 4 && !memcmp(name, "GNU", 4))
        *b = (ArtifactBuild){desc, note->n_descsz};
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

/* ---- reading ---- */

static bool artifact_read(int fd, void *p, size_t n) {
  for (size_t at = 0; at < n;) {
    ssize_t got = read(fd, (char *)p + at, n - at);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    at += (size_t)got;
  }
  return true;
}

static void artifact_digest(const ArtifactHead *h, const void *data, uint8_t out[ARTIFACT_DIGEST]) {
  MgBlake b;
  mg_blake_begin(&b, ARTIFACT_DIGEST, mg_cachedir_key(), MG_CACHE_KEY);
  mg_blake_add(&b, h, offsetof(ArtifactHead, digest));
  mg_blake_add(&b, data, h->len);
  mg_blake_end(&b, out);
}

/* The bytes of an open file of `size` bytes; NULL: it is damaged, or another folder's. */
static void *artifact_read_all(int fd, uint64_t size, MgKey key, ArtifactHead *h) {
  uint8_t digest[ARTIFACT_DIGEST];
  if (size < sizeof *h || size - sizeof *h > ARTIFACT_MAX_FILE || !artifact_read(fd, h, sizeof *h))
    return NULL;
  if (memcmp(h->magic, ARTIFACT_MAGIC, sizeof h->magic) || !mg_key_same(h->key, key) ||
      h->len != size - sizeof *h)
    return NULL;
  void *data = mg_malloc(h->len);
  if (!data) return NULL;
  bool ok = artifact_read(fd, data, h->len);
  if (ok) artifact_digest(h, data, digest);
  if (ok && !memcmp(digest, h->digest, sizeof digest)) return data;
  free(data);
  return NULL;
}

MgArtifactFound mg_artifact_find(MgArtifactKind kind, MgKey key, MgObject *out) {
  char name[ARTIFACT_NAME];
  ArtifactHead h;
  uint64_t size;
  int fd, dir = mg_cachedir();
  *out = (MgObject){0};
  if (dir < 0) return MG_AF_absent;
  artifact_name(kind, key, name);
  MgCacheFile found = mg_cachedir_open(dir, name, &fd, &size);
  if (found == MG_CF_refused) artifact_refused++;
  if (found != MG_CF_open) return found == MG_CF_refused ? MG_AF_refused : MG_AF_absent;
  if ((out->data = artifact_read_all(fd, size, key, &h))) {
    out->len = h.len;
    futimens(fd, NULL); /* recently used */
    artifact_loaded++;
  } else {
    artifact_damaged++;
  }
  close(fd);
  return out->data ? MG_AF_loaded : MG_AF_damaged;
}

bool mg_artifact_load(MgArtifactKind kind, MgKey key, MgObject *out) {
  return mg_artifact_find(kind, key, out) == MG_AF_loaded;
}

/* ---- what is in the folder ---- */

typedef struct ArtifactFile {
  char name[ARTIFACT_NAME];
  uint64_t bytes;
  time_t used;
  bool temp;
  bool right; /* a regular file that obeys the rules */
} ArtifactFile;

static int artifact_by_age(const void *a, const void *b) {
  const ArtifactFile *p = a, *q = b;
  return p->used < q->used ? -1 : p->used > q->used;
}

static bool artifact_is_file(const char *name) {
  size_t hex = strspn(name, "0123456789abcdef");
  for (size_t i = 0; hex == 32 && i < sizeof artifact_suffix / sizeof *artifact_suffix; i++)
    if (!strcmp(name + hex, artifact_suffix[i])) return true;
  return false;
}

/* The cache's files and temporaries in the folder; a new array, NULL if there are none.  Other
 * files are not ours to look at. */
static ArtifactFile *artifact_list(int dir, size_t *n) {
  int again = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR *d = again >= 0 ? fdopendir(again) : NULL;
  ArtifactFile *f = NULL;
  size_t cap = 0;
  *n = 0;
  if (!d && again >= 0) close(again);
  for (struct dirent *e; d && (e = readdir(d));) {
    struct stat st;
    bool temp = mg_cachedir_is_temp(e->d_name);
    if ((!temp && !artifact_is_file(e->d_name)) || strlen(e->d_name) >= ARTIFACT_NAME) continue;
    if (fstatat(dir, e->d_name, &st, AT_SYMLINK_NOFOLLOW)) continue;
    if (*n == cap) {
      ArtifactFile *g = mg_realloc(f, (cap = cap ? cap * 2 : 256) * sizeof *f);
      if (!g) break;
      f = g;
    }
    ArtifactFile *p = &f[(*n)++];
    *p =
        (ArtifactFile){.bytes = ((uint64_t)st.st_size + ARTIFACT_BLOCK - 1) / ARTIFACT_BLOCK * ARTIFACT_BLOCK,
                       .used = st.st_mtime,
                       .temp = temp,
                       .right = S_ISREG(st.st_mode) && !mg_cachedir_wrong(st.st_uid, st.st_mode)};
    strcpy(p->name, e->d_name);
  }
  if (d) closedir(d);
  return f;
}

uint32_t mg_artifact_near(MgArtifactKind kind, MgKey key, MgKey *out, uint32_t most) {
  enum { HALF = 16 };
  char name[ARTIFACT_NAME];
  size_t n = 0;
  uint32_t found = 0;
  int dir = mg_cachedir();
  ArtifactFile *f = dir < 0 ? NULL : artifact_list(dir, &n);
  artifact_name(kind, key, name);
  for (size_t i = 0; i < n && found < most; i++) {
    bool near = !f[i].temp && !strncmp(f[i].name, name, HALF) && strcmp(f[i].name, name) &&
                !strcmp(f[i].name + 2 * HALF, artifact_suffix[kind]);
    if (near) out[found++] = (MgKey){.hi = key.hi, .lo = strtoull(f[i].name + HALF, NULL, HALF)};
  }
  free(f);
  return found;
}

static uint64_t artifact_limit(void) { return mg_env_number(ENV_CACHE_MB, ARTIFACT_MB) << 20; }

/* Removes what killed writers left, and the least recently used files when all
 * together have grown too large. */
static void artifact_trim(int dir) {
  size_t n;
  uint64_t total = 0, most = artifact_limit();
  ArtifactFile *f = artifact_list(dir, &n);
  time_t now = time(NULL);
  for (size_t i = 0; i < n; i++) {
    bool stale = f[i].temp && now - f[i].used > ARTIFACT_STALE;
    if (stale && !unlinkat(dir, f[i].name, 0)) artifact_swept++;
    else total += f[i].bytes;
  }
  if (total > most) {
    qsort(f, n, sizeof *f, artifact_by_age);
    for (size_t i = 0; i < n && total > most / 4 * 3; i++)
      if (!f[i].temp && !unlinkat(dir, f[i].name, 0)) total -= f[i].bytes;
  }
  free(f);
}

void mg_artifact_info(MgArtifactInfo *out) {
  int dir = mg_cachedir();
  *out = (MgArtifactInfo){.limit = artifact_limit(),
                          .loaded = artifact_loaded,
                          .stored = artifact_stored,
                          .damaged = artifact_damaged,
                          .refused = artifact_refused,
                          .swept = artifact_swept};
  size_t n = 0;
  ArtifactFile *f = dir < 0 ? NULL : artifact_list(dir, &n);
  for (size_t i = 0; i < n; i++) {
    out->bytes += f[i].bytes;
    if (f[i].temp) out->ntemp++;
    else if (f[i].right) out->nfile++;
    else out->nwrong++;
  }
  free(f);
}

/* ---- writing ---- */

static bool artifact_write(int fd, const void *p, size_t n) {
  for (size_t at = 0; at < n;) {
    ssize_t put = write(fd, (const char *)p + at, n - at);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return false;
    at += (size_t)put;
  }
  return true;
}

void mg_artifact_store(MgArtifactKind kind, MgKey key, const MgObject *obj) {
  char name[ARTIFACT_NAME], temp[MG_CACHE_TEMP];
  int dir = mg_cachedir();
  if (dir < 0 || obj->len > ARTIFACT_MAX_FILE) return;
  ArtifactHead h = {.magic = ARTIFACT_MAGIC, .key = key, .len = obj->len};
  artifact_digest(&h, obj->data, h.digest);
  artifact_name(kind, key, name);
  int fd = mg_cachedir_temp(dir, temp);
  if (fd < 0) return;
  bool ok = artifact_write(fd, &h, sizeof h) && artifact_write(fd, obj->data, obj->len);
  ok &= !close(fd);
  if (!ok || renameat(dir, temp, dir, name)) unlinkat(dir, temp, 0);
  else if (artifact_stored++ % ARTIFACT_TRIM_EVERY == 0) artifact_trim(dir);
}
