/* LLVM through dlopen, the loader and the kernel cache together.  Skipped (77) where no LLVM is found. */
#include "runtime/code/load_llvm.h"
#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include "base/memory_room.h"
#include "check.h"
#include "runtime/process/cxxcatch.h"
#include "runtime/code/kernel_cache.h"
#include "runtime/process/torch_abi.h"

/* A vector constant (.rodata), a libm call (stub) and a plain loop. */
static const char good[] =
    "declare double @cos(double)\n"
    "define void @kernel_N(ptr %buf, ptr %size, i64 %begin, i64 %end) {\n"
    "entry:\n  %pa = load ptr, ptr %buf\n  br label %loop\n"
    "loop:\n  %i = phi i64 [%begin, %entry], [%next, %loop]\n"
    "  %p = getelementptr double, ptr %pa, i64 %i\n  %x = load double, ptr %p\n"
    "  %y = call double @cos(double %x)\n  %z = fadd double %y, 0x40091EB851EB851F\n  store double %z, ptr "
    "%p\n"
    "  %next = add i64 %i, 1\n  %more = icmp slt i64 %next, %end\n  br i1 %more, label %loop, label %done\n"
    "done:\n  ret void\n}\n";

typedef void (*Kernel)(void *const *, const int64_t *, int64_t, int64_t);

/* Called through a pointer: clang computes cos(1) itself, and libm, which kernels call, is not loaded then.
 */
static double (*volatile test_cos)(double) = cos;

static void test_modules(uint32_t n, unsigned threads) {
  MgCtx c;
  MgObject obj[32];
  char text[32][sizeof good], name[16] = "kernel_A";
  const char *texts[32];
  mg_ctx_init(&c);
  for (uint32_t i = 0; i < n; i++) {
    memcpy(text[i], good, sizeof good);
    *strstr(text[i], "_N") = '_';
    strstr(text[i], "kernel_N")[7] = (char)('A' + i);
    texts[i] = text[i];
  }
  CHECK(mg_llvm_emit(&c, texts, n, threads, obj) == MG_OK);
  for (uint32_t i = 0; i < n && c.rc == MG_OK; i++) {
    MgCode *code;
    MgKcRef ref, again;
    CHECK(mg_elf_load(&c, obj[i].data, obj[i].len, mg_abi_symbol, &code) == MG_OK);
    name[7] = (char)('A' + i);
    void *fn = mg_elf_symbol(code, name);
    double v[3] = {0, 1, 2};
    void *buf[1] = {v};
    CHECK(fn != NULL);
    ((Kernel)fn)(buf, NULL, 0, 3);
    for (int k = 0; k < 3; k++) CHECK(fabs(v[k] - (test_cos(k) + 3.14)) < 1e-12);
    MgKey key = mg_kcache_key(text[i], strlen(text[i]));
    MgKcPlace place = {.number = i}, at;
    CHECK(!mg_kcache_find(key, &again) && !mg_kcache_place(key, &at));
    CHECK(mg_kcache_add(&c, code, &key, &fn, &place, 1, &ref) == MG_OK);
    CHECK(mg_kcache_find(key, &again) == fn && again == ref);
    CHECK(mg_kcache_place(key, &at) && at.number == i);
    mg_kcache_unref(again);
    mg_kcache_unref(ref);
    CHECK(mg_kcache_find(key, &again) == fn); /* idle code is kept for a while */
    mg_kcache_unref(again);
    free(obj[i].data);
  }
  mg_ctx_free(&c);
  mg_kcache_clear();
  MgKcInfo info;
  mg_kcache_info(&info);
  CHECK(info.nkernel == 0 && info.ncode == 0 && info.bytes == 0);
}

static void test_errors(void) {
  MgCtx c;
  MgObject obj[2];
  const char *texts[2] = {good, "define void @broken( {"};
  mg_ctx_init(&c);
  CHECK(mg_llvm_emit(&c, texts, 2, 2, obj) == MG_BUG && !strncmp(c.msg, "LLVM: ", 6));
  CHECK(!obj[0].data && !obj[1].data);
  mg_ctx_free(&c);
}

static void ask_for_too_much(void *new) { ((void *(*)(size_t)) new)((size_t)1 << 62); }

/* C++ throws where it lacks memory; LLVM ends the process, here since it has no code for an instruction. */
static void test_ends(void) {
  static const char fatal[] =
      "declare <2 x i64> @llvm.x86.aesni.aesenc(<2 x i64>, <2 x i64>)\n"
      "define <2 x i64> @f(<2 x i64> %a) \"target-features\"=\"-aes\" {\n"
      "  %r = call <2 x i64> @llvm.x86.aesni.aesenc(<2 x i64> %a, <2 x i64> %a)\n  ret <2 x i64> %r\n}\n";
  const char *text[3] = {fatal, fatal, fatal};
  MgObject obj[3];
  void *new = dlsym(dlopen("libstdc++.so.6", RTLD_LAZY), "_Znwm");
  CHECK(new && !mg_cxx_catch(ask_for_too_much, new) && !mg_cxx_catch(ask_for_too_much, new));
  for (int i = 0; i < 2; i++) {
    MgCtx c;
    mg_ctx_init(&c);
    CHECK(mg_llvm_emit(&c, text, 3, 2, obj) != MG_OK && strstr(c.msg, "not called again"));
    CHECK(!obj[0].data && !obj[2].data && mg_llvm_open());
    mg_ctx_free(&c);
  }
}

static MgRc emit_with_room(uint64_t room, MgObject *obj) {
  const char *text = good;
  struct rlimit was, now;
  MgCtx c;
  mg_ctx_init(&c);
  getrlimit(RLIMIT_AS, &was);
  now = (struct rlimit){0, was.rlim_max};
  setrlimit(RLIMIT_AS, &now);
  CHECK(mg_room() == 0);
  now.rlim_cur = (rlim_t)1 << 46;
  setrlimit(RLIMIT_AS, &now);
  now.rlim_cur -= mg_room() - room;
  setrlimit(RLIMIT_AS, &now);
  CHECK(mg_room() == room && mg_room_threads(3, room) == 0);
  MgRc rc = mg_llvm_emit(&c, &text, 1, 1, obj);
  setrlimit(RLIMIT_AS, &was);
  mg_ctx_free(&c);
  return rc;
}

/* LLVM is not called where it could run out of memory, and is called again where it cannot. */
static void test_room(void) {
  MgObject obj = {0};
  CHECK(emit_with_room(0, &obj) == MG_NOMEM && !obj.data);
  CHECK(emit_with_room((uint64_t)1 << 20, &obj) == MG_NOMEM && !obj.data);
  CHECK(emit_with_room((uint64_t)1 << 30, &obj) == MG_OK && obj.data);
  free(obj.data);
}

int main(void) {
#ifdef __SANITIZE_ADDRESS__
  const char *why =
      "the sanitizer maps terabytes, and ends the process where LLVM or operator new would throw";
#else
  const char *why = mg_llvm_open();
#endif
  if (why) {
    printf("skipped: %s\n", why);
    return 77;
  }
  CHECK(*mg_llvm_cpu() && *mg_llvm_features());
  test_modules(1, 1);
  test_modules(12, 2);
  test_errors();
  test_room();
  test_ends(); /* the last: LLVM is not called again */
  return test_done();
}
