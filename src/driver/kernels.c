/* From fused kernels to callable code.
 * Every kernel is emitted under a placeholder name, so that its text is a key that does not depend on where it came
 * from; equal kernels, in this graph or an earlier one, are compiled once.  New ones are dealt out to a few modules
 * that LLVM compiles in parallel. */
#include "driver/kernels.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/log.h"
#include "runtime/artifact.h"
#include "runtime/load_llvm.h"
#include "runtime/torch_abi.h"

#define KERNEL_NAME "mg_kernel_00000000" /* placeholder; the digits become the kernel's number */
enum {
  KERNEL_DIGITS = 8,
  KERNEL_MAX_MODULES = 16,
  KERNEL_SLOW = 150 /* about a second of LLVM: worth a word on a terminal */
};

typedef struct KernelNew { /* a kernel to be compiled */
  MgKey key;
  char *text;
  size_t len;
  uint32_t module;         /* which module it went to */
  char name[sizeof KERNEL_NAME];
} KernelNew;

typedef struct KernelJob {
  MgSched *s;
  const MgFused *f;
  MgTarget target;
  MgEmitter *emitter;
  MgKernelSet *out;
  KernelNew *todo; uint32_t ntodo;
  uint32_t *of_step;       /* per step: todo entry + 1 */
  MgStrbuf module[KERNEL_MAX_MODULES];
  MgObject object[KERNEL_MAX_MODULES];
  MgKey key[KERNEL_MAX_MODULES]; /* of the module's text, on disk */
  uint32_t nmodule;
} KernelJob;

MgTarget mg_kernels_target(void) {
#if defined(__x86_64__)
  __builtin_cpu_init();
  bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
                __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq");
  return (MgTarget){.vector_bits = avx512 ? 512 : __builtin_cpu_supports("avx2") ? 256 : 128,
                    .fma = __builtin_cpu_supports("fma"), .avx512 = avx512, .f16c = __builtin_cpu_supports("f16c"),
                    .avx512bf16 = __builtin_cpu_supports("avx512bf16"), .llvm = mg_llvm_major()};
#else
  return (MgTarget){.vector_bits = 128, .fma = true, .llvm = mg_llvm_major()};
#endif
}

/* Gives every kernel of the text its number in place of the placeholder's digits. */
static void kernel_rename(char *text, const char *name) {
  for (char *p = text; (p = strstr(p, KERNEL_NAME)); p += sizeof KERNEL_NAME - 1) memcpy(p, name, sizeof KERNEL_NAME - 1);
}

static MgRc kernel_emit(KernelJob *j, uint32_t step, MgStrbuf *sb) {
  MgKernel *k = j->f->step[step].u.kernel;
  sb->len = 0;
  snprintf(k->name, sizeof k->name, "%s", KERNEL_NAME);
  TRY(mg_emit_llvm(j->emitter, k, sb));
  if (!mg_sb_ok(sb)) return mg_fail(j->s->c, MG_NOMEM, "out of memory");
  MgKey key = mg_kcache_key(mg_sb_text(sb), sb->len);
  MgKcRef ref;
  k->key = key.lo;
  void *fn = mg_kcache_find(key, &ref);
  if (fn) {
    j->out->fn[step] = (MgRangeFn)fn;
    j->out->code[j->out->ncode++] = ref;
    return MG_OK;
  }
  for (uint32_t i = 0; i < j->ntodo; i++)
    if (j->todo[i].key.lo == key.lo && j->todo[i].key.hi == key.hi) return j->of_step[step] = i + 1, MG_OK;
  KernelNew *n = &j->todo[j->ntodo];
  *n = (KernelNew){.key = key, .len = sb->len, .text = mg_ctx_grow(j->s->c, mg_sb_text(sb), sb->len + 1, sb->len + 1)};
  TRYP(n->text);
  snprintf(n->name, sizeof n->name, "%.*s%0*x", (int)(sizeof KERNEL_NAME - 1 - KERNEL_DIGITS), KERNEL_NAME, KERNEL_DIGITS,
           j->ntodo);
  kernel_rename(n->text, n->name);
  snprintf(k->name, sizeof k->name, "%s", n->name);
  j->of_step[step] = ++j->ntodo;
  return MG_OK;
}

/* Longest texts first, each to the module that has least. */
static MgRc kernel_deal(KernelJob *j, unsigned nthread) {
  j->nmodule = nthread < j->ntodo ? nthread : j->ntodo;
  if (j->nmodule > KERNEL_MAX_MODULES) j->nmodule = KERNEL_MAX_MODULES;
  for (uint32_t i = 0; i < j->nmodule; i++) mg_emit_llvm_prologue(&j->target, &j->module[i]);
  for (uint32_t done = 0; done < j->ntodo; done++) {
    uint32_t long_one = 0, least = 0;
    for (uint32_t i = 1; i < j->ntodo; i++)
      if (j->todo[i].len > j->todo[long_one].len) long_one = i;
    for (uint32_t i = 1; i < j->nmodule; i++)
      if (j->module[i].len < j->module[least].len) least = i;
    KernelNew *n = &j->todo[long_one];
    mg_sb_puts(&j->module[least], n->text);
    n->module = least;
    n->len = 0; /* dealt */
  }
  for (uint32_t i = 0; i < j->nmodule; i++)
    if (!mg_sb_ok(&j->module[i])) return mg_fail(j->s->c, MG_NOMEM, "out of memory");
  return MG_OK;
}

/* Loads module m and puts its kernels into the cache. */
static MgRc kernel_load(KernelJob *j, uint32_t m) {
  MgCtx *c = j->s->c;
  MgKey *key = mg_new(c, MgKey, j->ntodo);
  void **fn = mg_new(c, void *, j->ntodo);
  uint32_t n = 0;
  MgCode *code;
  TRYP(key && fn);
  TRY(mg_elf_load(c, j->object[m].data, j->object[m].len, mg_abi_symbol, &code));
  MgRc rc = MG_OK;
  for (uint32_t i = 0; i < j->ntodo && rc == MG_OK; i++) {
    if (j->todo[i].module != m) continue;
    fn[n] = mg_elf_symbol(code, j->todo[i].name);
    key[n] = j->todo[i].key;
    if (!fn[n]) rc = mg_fail(c, MG_BUG, "kernel %s is not in its object", j->todo[i].name);
    for (uint32_t k = 0; k < j->f->nstep; k++)
      if (j->of_step[k] == i + 1) j->out->fn[k] = (MgRangeFn)fn[n];
    n++;
  }
  if (rc == MG_OK) rc = mg_kcache_add(c, code, key, fn, n, &j->out->code[j->out->ncode]);
  if (rc == MG_OK) j->out->ncode++;
  else mg_elf_free(code);
  return rc;
}

static MgRc kernel_compile(KernelJob *j, unsigned nthread) {
  const char *text[KERNEL_MAX_MODULES];
  MgObject made[KERNEL_MAX_MODULES];
  uint32_t from[KERNEL_MAX_MODULES], n = 0; /* modules that are not on disk */
  double t0 = mg_now_ms();
  TRY(kernel_deal(j, nthread));
  for (uint32_t i = 0; i < j->nmodule; i++) {
    const char *t = mg_sb_text(&j->module[i]);
    mg_log_text(MG_LOG_output_code, "module", t);
    j->key[i] = mg_artifact_key(t, j->module[i].len);
    if (!mg_artifact_load(j->key[i], &j->object[i])) from[n] = i, text[n++] = t;
  }
  bool slow = n && j->ntodo >= KERNEL_SLOW;
  if (slow) mg_log_progress("magneto: compiling %u kernels", j->ntodo);
  MgRc rc = n ? mg_llvm_emit(j->s->c, text, n, nthread, made) : MG_OK;
  if (slow) mg_log_progress(NULL);
  TRY(rc);
  for (uint32_t i = 0; i < n; i++) {
    j->object[from[i]] = made[i];
    mg_artifact_store(j->key[from[i]], &made[i]);
  }
  double t1 = mg_now_ms();
  j->out->llvm_ms = t1 - t0;
  for (uint32_t i = 0; i < j->nmodule; i++) TRY(kernel_load(j, i));
  j->out->load_ms = mg_now_ms() - t1;
  return MG_OK;
}

static MgRc kernel_all(KernelJob *j, unsigned nthread) {
  MgStrbuf sb = {0};
  double t0 = mg_now_ms();
  MgRc rc = mg_emitter_new(j->s, &j->target, &j->emitter);
  for (uint32_t i = 0; i < j->f->nstep && rc == MG_OK; i++)
    if (j->f->step[i].kind == MS_kernel) rc = kernel_emit(j, i, &sb);
  mg_sb_free(&sb);
  mg_emitter_free(j->emitter);
  j->out->emit_ms = mg_now_ms() - t0;
  j->out->ncompiled = j->ntodo;
  if (rc == MG_OK && j->ntodo) rc = kernel_compile(j, nthread);
  return rc;
}

MgRc mg_kernels_build(MgSched *s, const MgFused *f, unsigned nthread, MgKernelSet *out) {
  KernelJob j = {.s = s, .f = f, .out = out};
  uint32_t nkernel = 0;
  memset(out, 0, sizeof *out);
  for (uint32_t i = 0; i < f->nstep; i++) nkernel += f->step[i].kind == MS_kernel;
  out->fn = mg_new(s->c, MgRangeFn, f->nstep + 1);
  out->code = mg_new(s->c, MgKcRef, nkernel + KERNEL_MAX_MODULES);
  j.todo = mg_new(s->c, KernelNew, nkernel + 1);
  j.of_step = mg_new(s->c, uint32_t, f->nstep + 1);
  TRYP(out->fn && out->code && j.todo && j.of_step);
  if (!nkernel) return MG_OK; /* only library calls: no LLVM needed */
  j.target = mg_kernels_target();
  MgRc rc = kernel_all(&j, nthread ? nthread : 1);
  for (uint32_t i = 0; i < j.nmodule; i++) {
    mg_sb_free(&j.module[i]);
    free(j.object[i].data);
  }
  if (rc != MG_OK) mg_kernels_free(out);
  return rc;
}

void mg_kernels_free(MgKernelSet *k) {
  for (uint32_t i = 0; i < k->ncode; i++) mg_kcache_unref(k->code[i]);
  k->ncode = 0;
}
