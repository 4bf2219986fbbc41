/* The folder of the on-disk cache.  See the header.
 * In: MAGNETO_CACHE, MAGNETO_CACHE_DIR, XDG_CACHE_HOME, HOME.  Out: a descriptor and the folder's key.
 * What is wrong with the folder is a notice, since without it every process compiles everything again.
 * Invariant: nothing is read from a descriptor before fstat has shown that it is a regular file of ours. */
#define _GNU_SOURCE
#include "runtime/code/cachedir.h"
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/env.h"
#include "base/notice.h"
#include "base/fork.h"

enum { CACHEDIR_PATH = 1024, CACHEDIR_SUFFIX = 16 /* random bytes in the name of a temporary */ };
#define CACHEDIR_TEMP "tmp-"
static const char cachedir_key_name[] = "key";

/* Guarded by MG_LOCK_cache. */
static bool cachedir_opened; /* was it tried? */
static int cachedir_fd = -1;
static dev_t cachedir_dev;
static ino_t cachedir_ino;
static char cachedir_path[CACHEDIR_PATH]; /* written once */
static char cachedir_why[MG_NOTICE_TEXT]; /* empty: the cache is on */
static uint8_t cachedir_key[MG_CACHE_KEY];

/* Notes why there is no cache. */
static bool __attribute__((format(printf, 1, 2))) cachedir_off(const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(cachedir_why, sizeof cachedir_why, fmt, ap);
  va_end(ap);
  return false;
}

/* ---- rules ---- */

const char *mg_cachedir_wrong(uid_t owner, mode_t mode) {
  if (owner != geteuid()) return "it belongs to another user";
  if (mode & (S_IWGRP | S_IWOTH)) return "other users may write it (chmod go-w mends that)";
  return NULL;
}

MgCacheFile mg_cachedir_open(int dir, const char *name, int *out, uint64_t *size) {
  static atomic_flag told = ATOMIC_FLAG_INIT;
  struct stat st;
  int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0 && errno == ENOENT) return MG_CF_absent;
  const char *wrong = NULL;
  if (fd < 0 || fstat(fd, &st)) wrong = errno == ELOOP ? "it is a symbolic link" : strerror(errno);
  if (!wrong && !S_ISREG(st.st_mode)) wrong = "it is no regular file";
  if (!wrong) wrong = mg_cachedir_wrong(st.st_uid, st.st_mode);
  if (!wrong) return *out = fd, *size = (uint64_t)st.st_size, MG_CF_open;
  if (fd >= 0) close(fd);
  if (!atomic_flag_test_and_set(&told))
    mg_notice("a file of the cache folder %s is not used: %s: %s", cachedir_path, name, wrong);
  return MG_CF_refused;
}

/* ---- temporary files ---- */

int mg_cachedir_temp(int dir, char name[MG_CACHE_TEMP]) {
  uint8_t r[CACHEDIR_SUFFIX];
  if (getrandom(r, sizeof r, GRND_NONBLOCK) != sizeof r) return -1;
  char *p = stpcpy(name, CACHEDIR_TEMP);
  for (size_t i = 0; i < sizeof r; i++) p += sprintf(p, "%02x", r[i]);
  return openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
}

bool mg_cachedir_is_temp(const char *name) {
  if (!strncmp(name, CACHEDIR_TEMP, sizeof CACHEDIR_TEMP - 1)) return true;
  size_t hex = strspn(name, "0123456789abcdef"), end;
  const char *rest = name + hex; /* <key>.o.<process>.<number> */
  if (hex != 32) return false;
  if (!strncmp(rest, ".o.", 3)) rest += 3;
  else if (!strncmp(rest, ".plan.", 6)) rest += 6;
  else return false;
  end = strspn(rest, "0123456789.");
  return end && !rest[end];
}

/* ---- the key ---- */

/* Reads the key; false: there is none that can be used, and *absent tells whether there is none at all. */
static bool cachedir_read_key(int dir, bool *absent) {
  struct stat st;
  int fd = openat(dir, cachedir_key_name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  *absent = fd < 0 && errno == ENOENT;
  if (fd < 0) return false;
  bool ok = !fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_uid == geteuid() &&
            !(st.st_mode & (S_IRWXG | S_IRWXO)) && st.st_size == MG_CACHE_KEY &&
            read(fd, cachedir_key, MG_CACHE_KEY) == MG_CACHE_KEY;
  close(fd);
  return ok;
}

/* Puts a new key into the folder, unless another process does so first. */
static void cachedir_make_key(int dir) {
  uint8_t key[MG_CACHE_KEY];
  char temp[MG_CACHE_TEMP];
  int fd = getrandom(key, sizeof key, 0) == sizeof key ? mg_cachedir_temp(dir, temp) : -1;
  if (fd < 0) return;
  bool ok = write(fd, key, sizeof key) == sizeof key;
  ok &= !close(fd);
  if (ok && linkat(dir, temp, dir, cachedir_key_name, 0) && errno != EEXIST) /* a file system without links */
    ok = !renameat(dir, temp, dir, cachedir_key_name);
  unlinkat(dir, temp, 0);
}

/* A key that others could read, or that is damaged, goes: files that were made with it are misses then. */
static bool cachedir_load_key(int dir) {
  bool absent;
  for (int i = 0; i < 3; i++) {
    if (cachedir_read_key(dir, &absent)) return true;
    if (!absent && unlinkat(dir, cachedir_key_name, 0) && errno != ENOENT) break;
    cachedir_make_key(dir);
  }
  return cachedir_off("no key can be kept in the cache folder %s", cachedir_path);
}

/* ---- the folder ---- */

/* Where it is, as an absolute path. */
static bool cachedir_choose(void) {
  const char *dir = mg_env(ENV_CACHE_DIR), *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
  size_t room = sizeof cachedir_path;
  char here[CACHEDIR_PATH] = "";
  int n;
  if (dir && *dir != '/' && !getcwd(here, sizeof here))
    return cachedir_off("the current folder is not known");
  if (dir) n = snprintf(cachedir_path, room, "%s%s%s", here, *here ? "/" : "", dir);
  else if (xdg && *xdg == '/') n = snprintf(cachedir_path, room, "%s/magneto", xdg);
  else if (home && *home == '/') n = snprintf(cachedir_path, room, "%s/.cache/magneto", home);
  else return cachedir_off("MAGNETO_CACHE_DIR, XDG_CACHE_HOME and HOME name no folder");
  if (n < (int)room) return true;
  *cachedir_path = 0;
  return cachedir_off("the name of the cache folder is too long");
}

/* Opens the folder, made with its parents where they are missing. */
static int cachedir_make(void) {
  char path[CACHEDIR_PATH];
  strcpy(path, cachedir_path);
  for (char *p = path + 1; (p = strchr(p, '/')); *p++ = '/') {
    *p = 0;
    mkdir(path, 0755);
  }
  int why = mkdir(path, 0700) ? errno : EEXIST;
  int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0)
    cachedir_off("the cache folder %s cannot be opened: %s", path, strerror(why == EEXIST ? errno : why));
  return fd;
}

/* Looks at the open folder; false with the reason. */
static bool cachedir_allowed(int fd, struct stat *st) {
  const char *wrong = fstat(fd, st) ? strerror(errno) : mg_cachedir_wrong(st->st_uid, st->st_mode);
  return !wrong || cachedir_off("the cache folder %s is not used: %s", cachedir_path, wrong);
}

static void cachedir_try(void) {
  struct stat st;
  *cachedir_why = 0;
  if (!mg_env_switch(ENV_CACHE, true)) {
    cachedir_off("switched off by MAGNETO_CACHE");
    return;
  }
  int fd = *cachedir_path || cachedir_choose() ? cachedir_make() : -1;
  if (fd >= 0 && cachedir_allowed(fd, &st) && cachedir_load_key(fd)) {
    cachedir_fd = fd;
    cachedir_dev = st.st_dev;
    cachedir_ino = st.st_ino;
    if (faccessat(fd, ".", W_OK, AT_EACCESS))
      mg_notice("nothing is added to the cache: %s cannot be written", cachedir_path);
    return;
  }
  if (fd >= 0) close(fd);
  mg_notice("compiled code is not kept on disk, and each process compiles anew: %s", cachedir_why);
}

/* Is the descriptor still the folder?  The program may have closed it, and removed the folder. */
static bool cachedir_holds(struct stat *st) {
  return !fstat(cachedir_fd, st) && st->st_dev == cachedir_dev && st->st_ino == cachedir_ino;
}

/* The lock is held. */
static int cachedir_get(void) {
  struct stat st;
  if (!cachedir_opened) {
    cachedir_opened = true;
    cachedir_try();
  }
  if (cachedir_fd < 0) return -1;
  bool holds = cachedir_holds(&st);
  if (!holds || !st.st_nlink) { /* a descriptor that is not ours any more is left alone */
    if (holds) close(cachedir_fd);
    cachedir_fd = -1;
    cachedir_try();
    if (cachedir_fd < 0 || !cachedir_holds(&st)) return -1;
  }
  const char *wrong = mg_cachedir_wrong(st.st_uid, st.st_mode);
  if (wrong) mg_notice("the cache folder %s is not used any more: %s", cachedir_path, wrong);
  return wrong ? -1 : cachedir_fd;
}

int mg_cachedir(void) {
  mg_fork_lock(MG_LOCK_cache);
  int fd = cachedir_get();
  mg_fork_unlock(MG_LOCK_cache);
  return fd;
}

const char *mg_cachedir_path(void) { return cachedir_path; }

const char *mg_cachedir_why(void) {
  if (mg_cachedir() >= 0) return NULL;
  return *cachedir_why ? cachedir_why : "other users may write its folder";
}

const uint8_t *mg_cachedir_key(void) { return cachedir_key; }
