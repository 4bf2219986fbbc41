/* Finds an LLVM shared library and compiles IR text with it.  See the header. */
#define _GNU_SOURCE
#include "runtime/code/load_llvm.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/env.h"
#include "base/fork.h"
#include "base/notice.h"
#include "base/memory_room.h"
#include "runtime/process/cpu.h"
#include "runtime/process/cxxcatch.h"
#include "runtime/process/torch_abi.h"

typedef void *Ref; /* any LLVM object */

/* Functions of llvmlite's binding layer.  Strings that come back are leaked by
 * design of that API: few bytes. */
#define LLVM_LITE(F)                                                                                         \
  F(Ref, LLVMPY_ContextCreate, (void))                                                                       \
  F(void, LLVMPY_ContextDispose, (Ref))                                                                      \
  F(Ref, LLVMPY_ParseAssembly, (Ref, const char *, const char **))                                           \
  F(void, LLVMPY_DisposeModule, (Ref))                                                                       \
  F(void, LLVMPY_InitializeNativeTarget, (void))                                                             \
  F(void, LLVMPY_InitializeNativeAsmPrinter, (void))                                                         \
  F(void, LLVMPY_GetProcessTriple, (const char **))                                                          \
  F(void, LLVMPY_GetHostCPUName, (const char **))                                                            \
  F(int, LLVMPY_GetHostCPUFeatures, (const char **))                                                         \
  F(Ref, LLVMPY_GetTargetFromTriple, (const char *, const char **))                                          \
  F(Ref, LLVMPY_CreateTargetMachine,                                                                         \
    (Ref, const char *, const char *, const char *, int, const char *, const char *, int, int,               \
     const char *))                                                                                          \
  F(void, LLVMPY_DisposeTargetMachine, (Ref))                                                                \
  F(Ref, LLVMPY_CreateTargetMachineData, (Ref))                                                              \
  F(void, LLVMPY_CopyStringRepOfTargetData, (Ref, char **))                                                  \
  F(void, LLVMPY_DisposeTargetData, (Ref))                                                                   \
  F(void, LLVMPY_DisposeString, (const char *))                                                              \
  F(void, LLVMPY_SetDataLayout, (Ref, const char *))                                                         \
  F(void, LLVMPY_SetTarget, (Ref, const char *))                                                             \
  F(Ref, LLVMPY_TargetMachineEmitToMemory, (Ref, Ref, int, const char **))                                   \
  F(const void *, LLVMPY_GetBufferStart, (Ref))                                                              \
  F(size_t, LLVMPY_GetBufferSize, (Ref))                                                                     \
  F(void, LLVMPY_DisposeMemoryBuffer, (Ref))

#define LLVM_C(F)                                                                                            \
  F(void, LLVMGetVersion, (unsigned *, unsigned *, unsigned *))                                              \
  F(Ref, LLVMContextCreate, (void))                                                                          \
  F(void, LLVMContextDispose, (Ref))                                                                         \
  F(Ref, LLVMCreateMemoryBufferWithMemoryRangeCopy, (const char *, size_t, const char *))                    \
  F(int, LLVMParseIRInContext, (Ref, Ref, Ref *, char **))                                                   \
  F(void, LLVMDisposeModule, (Ref))                                                                          \
  F(void, LLVMDisposeMessage, (char *))                                                                      \
  F(void, LLVMInitializeX86TargetInfo, (void))                                                               \
  F(void, LLVMInitializeX86Target, (void))                                                                   \
  F(void, LLVMInitializeX86TargetMC, (void))                                                                 \
  F(void, LLVMInitializeX86AsmPrinter, (void))                                                               \
  F(char *, LLVMGetDefaultTargetTriple, (void))                                                              \
  F(char *, LLVMGetHostCPUName, (void))                                                                      \
  F(char *, LLVMGetHostCPUFeatures, (void))                                                                  \
  F(int, LLVMGetTargetFromTriple, (const char *, Ref *, char **))                                            \
  F(Ref, LLVMCreateTargetMachine, (Ref, const char *, const char *, const char *, int, int, int))            \
  F(void, LLVMDisposeTargetMachine, (Ref))                                                                   \
  F(Ref, LLVMCreateTargetDataLayout, (Ref))                                                                  \
  F(void, LLVMSetModuleDataLayout, (Ref, Ref))                                                               \
  F(void, LLVMSetTarget, (Ref, const char *))                                                                \
  F(int, LLVMTargetMachineEmitToMemoryBuffer, (Ref, Ref, int, char **, Ref *))                               \
  F(const void *, LLVMGetBufferStart, (Ref))                                                                 \
  F(size_t, LLVMGetBufferSize, (Ref))                                                                        \
  F(void, LLVMDisposeMemoryBuffer, (Ref))

static struct {
#define F(ret, name, args) ret(*name) args;
  LLVM_LITE(F) LLVM_C(F)
#undef F
} ll;

enum {
  LLVM_ASSEMBLY_FILE = 0,
  LLVM_OBJECT_FILE = 1,
  LLVM_RELOC_PIC = 2,
  LLVM_MODEL_SMALL = 3,
  LLVM_CODEGEN_LEVEL = 1,
  LLVM_MAX_IDLE = 8
};

typedef enum LlvmState { LLVM_not_tried, LLVM_ready, LLVM_missing, LLVM_broken } LlvmState;

/* Room that LLVM takes: to start, to compile a module, for a byte of text (9 to 24 measured). */
#define LLVM_ROOM_START ((uint64_t)64 << 20)
#define LLVM_ROOM_FILE ((uint64_t)192 << 20) /* a library whose file is not known */
#define LLVM_ROOM_MODULE ((uint64_t)32 << 20)
enum { LLVM_ROOM_TEXT = 32 };

/* MG_LOCK_llvm guards the state, and is held while LLVM runs, since LLVM's own
 * locks do not survive fork(). */
static LlvmState llvm_state;
/* Guards the idle target machines among the threads of one mg_llvm_emit. */
static pthread_mutex_t llvm_idle_lock = PTHREAD_MUTEX_INITIALIZER;
static char llvm_path[1024], llvm_error[512];
static bool llvm_lite; /* llvmlite's functions, not LLVM-C's */
static const char *llvm_triple, *llvm_cpu_name;
static char *llvm_feature_text, *llvm_layout_text;
static Ref llvm_target, llvm_layout;
static Ref llvm_idle[LLVM_MAX_IDLE]; /* target machines nobody uses now */
static int llvm_nidle;

static Ref llvm_machine_new(void) {
  if (llvm_lite)
    return ll.LLVMPY_CreateTargetMachine(llvm_target, llvm_triple, llvm_cpu_name, llvm_feature_text,
                                         LLVM_CODEGEN_LEVEL, "pic", "small", 0, 1, "");
  return ll.LLVMCreateTargetMachine(llvm_target, llvm_triple, llvm_cpu_name, llvm_feature_text,
                                    LLVM_CODEGEN_LEVEL, LLVM_RELOC_PIC, LLVM_MODEL_SMALL);
}

static Ref llvm_machine_take(void) {
  Ref tm = NULL;
  pthread_mutex_lock(&llvm_idle_lock);
  if (llvm_nidle) tm = llvm_idle[--llvm_nidle];
  pthread_mutex_unlock(&llvm_idle_lock);
  return tm ? tm : llvm_machine_new();
}

static void llvm_machine_give(Ref tm) {
  pthread_mutex_lock(&llvm_idle_lock);
  if (llvm_nidle < LLVM_MAX_IDLE) llvm_idle[llvm_nidle++] = tm, tm = NULL;
  pthread_mutex_unlock(&llvm_idle_lock);
  if (tm) llvm_lite ? ll.LLVMPY_DisposeTargetMachine(tm) : ll.LLVMDisposeTargetMachine(tm);
}

/* Which CPU code is made for: the host, or the level that MAGNETO_CPU names.
 * Some CPUs are tuned to prefer 256-bit vectors, which would split our explicit 512-bit ones. */
static bool llvm_choose_cpu(const char *host, const char *features) {
  const char *cap = mg_cpu_cap();
  llvm_cpu_name = cap ? cap : host;
  if (cap) features = "";
  return asprintf(&llvm_feature_text, "%s%s-prefer-256-bit", features, *features ? "," : "") >= 0;
}

static const char *llvm_start_lite(void *h) {
#define F(ret, name, args)                                                                                   \
  if (!(*(void **)&ll.name = dlsym(h, #name))) return #name;
  LLVM_LITE(F)
#undef F
  const char *host = NULL, *features = NULL, *err = NULL;
  ll.LLVMPY_InitializeNativeTarget();
  ll.LLVMPY_InitializeNativeAsmPrinter();
  ll.LLVMPY_GetProcessTriple(&llvm_triple);
  ll.LLVMPY_GetHostCPUName(&host);
  ll.LLVMPY_GetHostCPUFeatures(&features);
  llvm_lite = true;
  Ref tm, td;
  if (!(llvm_target = ll.LLVMPY_GetTargetFromTriple(llvm_triple, &err))) return "a target for this machine";
  bool kept = llvm_choose_cpu(host, features ? features : "");
  if (features) ll.LLVMPY_DisposeString(features);
  if (!kept || !(tm = llvm_machine_new())) return "a target machine";
  if (!(td = ll.LLVMPY_CreateTargetMachineData(tm))) return "a data layout";
  ll.LLVMPY_CopyStringRepOfTargetData(td, &llvm_layout_text);
  ll.LLVMPY_DisposeTargetData(td);
  llvm_machine_give(tm);
  return NULL;
}

static const char *llvm_start_c(void *h) {
#define F(ret, name, args)                                                                                   \
  if (!(*(void **)&ll.name = dlsym(h, #name))) return #name;
  LLVM_C(F)
#undef F
  char *err = NULL;
  ll.LLVMInitializeX86TargetInfo();
  ll.LLVMInitializeX86Target();
  ll.LLVMInitializeX86TargetMC();
  ll.LLVMInitializeX86AsmPrinter();
  llvm_triple = ll.LLVMGetDefaultTargetTriple();
  llvm_lite = false;
  Ref tm;
  if (ll.LLVMGetTargetFromTriple(llvm_triple, &llvm_target, &err)) return "a target for this machine";
  char *features = ll.LLVMGetHostCPUFeatures();
  bool kept = llvm_choose_cpu(ll.LLVMGetHostCPUName(), features);
  ll.LLVMDisposeMessage(features);
  if (!kept || !(tm = llvm_machine_new())) return "a target machine";
  llvm_layout = ll.LLVMCreateTargetDataLayout(tm);
  llvm_machine_give(tm);
  return NULL;
}

typedef struct LlvmStart {
  void *library;
  const char *missing;
} LlvmStart;

static void llvm_start(void *arg) {
  LlvmStart *s = arg;
  s->missing =
      dlsym(s->library, "LLVMPY_ParseAssembly") ? llvm_start_lite(s->library) : llvm_start_c(s->library);
}

/* Is there room to load this file?  A library that lacks memory while it starts would end the process. */
static bool llvm_has_room(const char *path) {
  struct stat st;
  uint64_t need = LLVM_ROOM_START + (stat(path, &st) ? LLVM_ROOM_FILE : (uint64_t)st.st_size);
  if (mg_room() >= need) return true;
  snprintf(llvm_error, sizeof llvm_error, "out of memory: LLVM needs %u MiB of address space to be loaded",
           (unsigned)(need >> 20));
  return false;
}

/* Tries one library; true when it is ready.  The first library that loads but cannot be used leaves its
 * reason. env: MAGNETO_LLVM names it, so that the user is told when it cannot be used. */
static bool llvm_try(const char *path, bool env) {
  static const char *const accepted = "accepted are the path of an LLVM library and none";
  LlvmStart s = {0};
  if (!path || !*path || !llvm_has_room(path)) return false;
  if (!(s.library = dlopen(path, RTLD_NOW | RTLD_LOCAL))) {
    const char *why = dlerror();
    if (env) mg_notice("MAGNETO_LLVM=%s is ignored: %s; %s", path, why ? why : "not loaded", accepted);
    if (why && strchr(path, '/') && !access(path, F_OK) && !*llvm_error)
      snprintf(llvm_error, sizeof llvm_error, "%s", why);
    return false;
  }
  mg_cxx_find_catch(s.library);
  mg_cxx_no_exit(s.library);
  if (!mg_cxx_catch(llvm_start, &s)) s.missing = "the memory to start";
  if (s.missing && env) mg_notice("MAGNETO_LLVM=%s is ignored: it lacks %s; %s", path, s.missing, accepted);
  if (s.missing) {
    if (!*llvm_error) snprintf(llvm_error, sizeof llvm_error, "%s lacks %s", path, s.missing);
    return false;
  }
  snprintf(llvm_path, sizeof llvm_path, "%s", path);
  return true;
}

/* llvmlite installed beside torch, or beside us. */
static bool llvm_beside(char *path, size_t n) {
  mg_abi_load();
  for (int i = 0; i < 2; i++)
    if (*mg_abi.site[i] && snprintf(path, n, "%s/llvmlite/binding/libllvmlite.so", mg_abi.site[i]) < (int)n &&
        !access(path, R_OK))
      return true;
  return false;
}

static bool llvm_find(void) {
  static const char *const system[] = {/* as distributions and LLVM's own packages name them */
                                       "libLLVM.so.22.1", "libLLVM.so.21.1", "libLLVM.so.20.1",
                                       "libLLVM.so.19.1", "libLLVM-19.so.1", "libLLVM-18.so.1",
                                       "libLLVM.so.18.1", "libLLVM-17.so.1", "libLLVM-17.so",
                                       "libLLVM-16.so.1", "libLLVM-16.so"};
  char beside[1024];
  const char *env = mg_env(ENV_LLVM);
  bool none = env && !strcmp(env, "none"); /* as if there were no LLVM */
  if (!none && llvm_try(env, true)) return true;
  if (!none && llvm_beside(beside, sizeof beside) && llvm_try(beside, false)) return true;
  for (size_t i = 0; !none && !*llvm_error && i < sizeof system / sizeof *system; i++)
    if (llvm_try(system[i], false)) return true;
  size_t n = strlen(llvm_error);
  if (!strncmp(llvm_error, "out of memory", strlen("out of memory"))) return false;
  snprintf(llvm_error + n, sizeof llvm_error - n,
           "%sno LLVM library was found: pip install llvmlite (or set MAGNETO_LLVM to a libLLVM)",
           n ? "; " : "");
  return false;
}

/* The lock is held.  NULL, or why there is none; under a limit of memory there may be one later. */
static const char *llvm_get(void) {
  if (llvm_state == LLVM_not_tried) {
    *llvm_error = 0;
    if (llvm_find()) llvm_state = LLVM_ready;
    else if (mg_room() == UINT64_MAX) llvm_state = LLVM_missing;
  }
  return llvm_state == LLVM_ready ? NULL : llvm_error;
}

const char *mg_llvm_open(void) {
  mg_fork_lock(MG_LOCK_llvm);
  const char *why = llvm_get();
  mg_fork_unlock(MG_LOCK_llvm);
  return why;
}

int mg_llvm_major(void) {
  char beside[1024];
  unsigned major = 0, minor, patch;
  const char *first = mg_env(ENV_LLVM);
  if (!first && llvm_beside(beside, sizeof beside)) first = beside;
  if (first && strstr(first, "llvmlite") && !access(first, R_OK)) return 0;
  if (mg_llvm_open()) return -1;
  if (!llvm_lite) ll.LLVMGetVersion(&major, &minor, &patch);
  return (int)major;
}

const char *mg_llvm_library(void) { return llvm_path; }
const char *mg_llvm_cpu(void) { return llvm_cpu_name ? llvm_cpu_name : ""; }
const char *mg_llvm_features(void) { return llvm_feature_text ? llvm_feature_text : ""; }

/* A module parsed from text, or NULL with *err. */
static Ref llvm_parse(Ref ctx, const char *text, const char **err) {
  Ref m = NULL;
  if (llvm_lite) {
    m = ll.LLVMPY_ParseAssembly(ctx, text, err);
    if (!m) return NULL;
    ll.LLVMPY_SetDataLayout(m, llvm_layout_text);
    ll.LLVMPY_SetTarget(m, llvm_triple);
    return m;
  }
  Ref buf = ll.LLVMCreateMemoryBufferWithMemoryRangeCopy(text, strlen(text), "kernel");
  if (ll.LLVMParseIRInContext(ctx, buf, &m, (char **)err)) return NULL; /* takes buf */
  ll.LLVMSetModuleDataLayout(m, llvm_layout);
  ll.LLVMSetTarget(m, llvm_triple);
  return m;
}

/* One module on the calling thread.  false with err filled. */
static bool llvm_emit_one(const char *text, int file, MgObject *out, char *err, size_t err_len) {
  Ref tm = llvm_machine_take(), m = NULL, buf = NULL;
  Ref ctx = llvm_lite ? ll.LLVMPY_ContextCreate() : ll.LLVMContextCreate();
  const char *why = NULL, *ours = "LLVM failed"; /* LLVM's message (new), and what to say without one */
  if (!tm || !ctx) ours = "no memory for LLVM";
  if (tm && ctx && (m = llvm_parse(ctx, text, &why))) {
    if (llvm_lite) buf = ll.LLVMPY_TargetMachineEmitToMemory(tm, m, file, &why);
    else if (ll.LLVMTargetMachineEmitToMemoryBuffer(tm, m, file, (char **)&why, &buf)) buf = NULL;
  }
  if (buf) {
    out->len = llvm_lite ? ll.LLVMPY_GetBufferSize(buf) : ll.LLVMGetBufferSize(buf);
    out->data = mg_malloc(out->len);
    if (out->data)
      memcpy(out->data, llvm_lite ? ll.LLVMPY_GetBufferStart(buf) : ll.LLVMGetBufferStart(buf), out->len);
    else ours = "out of memory";
    llvm_lite ? ll.LLVMPY_DisposeMemoryBuffer(buf) : ll.LLVMDisposeMemoryBuffer(buf);
  }
  if (!out->data) snprintf(err, err_len, "%s", why ? why : ours);
  if (why) llvm_lite ? ll.LLVMPY_DisposeString(why) : ll.LLVMDisposeMessage((char *)why);
  if (m) llvm_lite ? ll.LLVMPY_DisposeModule(m) : ll.LLVMDisposeModule(m);
  if (ctx) llvm_lite ? ll.LLVMPY_ContextDispose(ctx) : ll.LLVMContextDispose(ctx);
  if (tm) llvm_machine_give(tm);
  return out->data != NULL;
}

typedef struct LlvmJob { /* shared by the threads of one mg_llvm_emit */
  const char *const *text;
  MgObject *out;
  uint32_t n;
  int file;                   /* what is made: LLVM_OBJECT_FILE or LLVM_ASSEMBLY_FILE */
  atomic_uint next;           /* module to take */
  atomic_bool failed, broken; /* broken: LLVM was left in the middle */
  atomic_bool stopped;        /* the work is to be given up */
  MgCtx *c;                   /* of the thread that waits for the others; only that one asks it */
  pthread_t caller;
  pthread_mutex_t lock; /* guards err */
  char err[400];        /* first message */
} LlvmJob;

typedef struct LlvmOne {
  const char *text;
  int file;
  MgObject *out;
  char err[sizeof(((LlvmJob *)0)->err)];
  bool ok;
} LlvmOne;

static void llvm_one(void *arg) {
  LlvmOne *o = arg;
  o->ok = llvm_emit_one(o->text, o->file, o->out, o->err, sizeof o->err);
}

static void *llvm_worker(void *arg) {
  LlvmJob *j = arg;
  bool asks = pthread_equal(pthread_self(), j->caller);
  for (uint32_t i; !j->failed && !j->stopped && (i = atomic_fetch_add(&j->next, 1)) < j->n;) {
    if (asks && mg_ctx_poll(j->c)) {
      j->stopped = true;
      break;
    }
    LlvmOne one = {.text = j->text[i], .file = j->file, .out = &j->out[i]};
    if (!mg_cxx_catch(llvm_one, &one)) {
      j->broken = true;
      snprintf(one.err, sizeof one.err,
               "out of memory or a fatal error; it is not called again in this process");
    } else if (one.ok) {
      continue;
    }
    pthread_mutex_lock(&j->lock);
    if (!j->failed) memcpy(j->err, one.err, sizeof one.err);
    pthread_mutex_unlock(&j->lock);
    j->failed = true;
  }
  return NULL;
}

/* The lock is held. */
static MgRc llvm_emit(MgCtx *c, LlvmJob *j, unsigned nthread) {
  enum { MAX_THREADS = 16 };
  pthread_t thread[MAX_THREADS];
  unsigned started = 0;
  uint64_t most = 0; /* longest text */
  const char *why = llvm_get();
  if (why) return mg_fail(c, MG_UNSUP, "%s", why);
  for (uint32_t i = 0; i < j->n; i++) most = strlen(j->text[i]) > most ? strlen(j->text[i]) : most;
  uint64_t need = LLVM_ROOM_MODULE + most * LLVM_ROOM_TEXT;
  if (mg_room() < need)
    return mg_fail(c, MG_NOMEM, "out of memory: too little address space is left for LLVM");
  if (nthread > j->n) nthread = j->n;
  if (nthread > MAX_THREADS) nthread = MAX_THREADS;
  if (nthread > 1) nthread = 1 + mg_room_threads(nthread - 1, need * nthread);
  while (started + 1 < nthread && !pthread_create(&thread[started], NULL, llvm_worker, j)) started++;
  llvm_worker(j);
  for (unsigned i = 0; i < started; i++) pthread_join(thread[i], NULL);
  if (j->broken) {
    llvm_state = LLVM_broken; /* its locks may be held for ever */
    snprintf(llvm_error, sizeof llvm_error, "LLVM: %s", j->err);
  }
  if (!j->failed && !j->stopped) return MG_OK;
  for (uint32_t i = 0; i < j->n; i++) free(j->out[i].data), j->out[i] = (MgObject){0};
  return j->stopped ? MG_NOMEM : mg_fail(c, MG_BUG, "LLVM: %s", j->err);
}

static MgRc llvm_make(MgCtx *c, int file, const char *const *text, uint32_t n, unsigned nthread,
                      MgObject *out) {
  LlvmJob j = {.text = text,
               .out = out,
               .n = n,
               .file = file,
               .lock = PTHREAD_MUTEX_INITIALIZER,
               .c = c,
               .caller = pthread_self()};
  memset(out, 0, sizeof *out * n);
  mg_fork_lock(MG_LOCK_llvm);
  MgRc rc = llvm_emit(c, &j, nthread);
  mg_fork_unlock(MG_LOCK_llvm);
  return rc;
}

MgRc mg_llvm_emit(MgCtx *c, const char *const *text, uint32_t n, unsigned nthread, MgObject *out) {
  return llvm_make(c, LLVM_OBJECT_FILE, text, n, nthread, out);
}

MgRc mg_llvm_assembly(MgCtx *c, const char *text, MgObject *out) {
  return llvm_make(c, LLVM_ASSEMBLY_FILE, &text, 1, 1, out);
}
