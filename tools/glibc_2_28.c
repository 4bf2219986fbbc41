/* For wheels: the extension runs with glibc 2.28, whatever glibc it is linked with.  Each function that has
 * had a newer version since is called through a wrapper (ld's --wrap; meson.build has the names), which asks
 * for the older one.  stat and its kin are older still: functions of other names.  `make wheel` finds what is
 * missing. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <sys/stat.h>

#define OLDER(type, name, version, params, args)                                                             \
  extern type older_##name params;                                                                           \
  __asm__(".symver older_" #name ", " #name "@GLIBC_" version);                                              \
  type __wrap_##name params;                                                                                 \
  type __wrap_##name params { return older_##name args; }

OLDER(double, exp, "2.2.5", (double x), (x))
OLDER(double, exp2, "2.2.5", (double x), (x))
OLDER(double, log, "2.2.5", (double x), (x))
OLDER(double, log2, "2.2.5", (double x), (x))
OLDER(double, pow, "2.2.5", (double x, double y), (x, y))
OLDER(int, dladdr, "2.2.5", (const void *address, Dl_info *info), (address, info))
OLDER(int, dlclose, "2.2.5", (void *handle), (handle))
OLDER(char *, dlerror, "2.2.5", (void), ())
OLDER(int, dlinfo, "2.3.3", (void *handle, int request, void *info), (handle, request, info))
OLDER(void *, dlopen, "2.2.5", (const char *file, int mode), (file, mode))
OLDER(void *, dlsym, "2.2.5", (void *handle, const char *name), (handle, name))
OLDER(int, pthread_attr_getstack, "2.2.5", (const pthread_attr_t *a, void **stack, size_t *size),
      (a, stack, size))
OLDER(int, pthread_create, "2.2.5",
      (pthread_t * thread, const pthread_attr_t *a, void *(*run)(void *), void *arg), (thread, a, run, arg))
OLDER(int, pthread_getattr_np, "2.2.5", (pthread_t thread, pthread_attr_t *a), (thread, a))
OLDER(int, pthread_join, "2.2.5", (pthread_t thread, void **result), (thread, result))
OLDER(int, pthread_once, "2.2.5", (pthread_once_t * once, void (*run)(void)), (once, run))

enum { STAT_VERSION = 1 }; /* of struct stat on x86-64 */
extern int __fxstat64(int version, int fd, struct stat64 *to);
extern int __fxstatat64(int version, int folder, const char *path, struct stat64 *to, int flags);
extern int __xstat64(int version, const char *path, struct stat64 *to);
int __wrap_fstat64(int fd, struct stat64 *to);
int __wrap_fstatat64(int folder, const char *path, struct stat64 *to, int flags);
int __wrap_stat64(const char *path, struct stat64 *to);

int __wrap_fstat64(int fd, struct stat64 *to) { return __fxstat64(STAT_VERSION, fd, to); }
int __wrap_fstatat64(int folder, const char *path, struct stat64 *to, int flags) {
  return __fxstatat64(STAT_VERSION, folder, path, to, flags);
}
int __wrap_stat64(const char *path, struct stat64 *to) { return __xstat64(STAT_VERSION, path, to); }
