/* From fused kernels to callable code.
 * Every kernel is emitted under a placeholder name, so that its text is a key that does not depend on where
 * it came from; equal kernels, in this graph or an earlier one, are compiled once, and so are kernels of this
 * graph that differ in numbers only (kernel_sharing.h).  New ones are dealt out to a few modules that
 * LLVM compiles in parallel. */
#include "driver/kernel/kernels.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <stdatomic.h>
#include "back/emit/emit_llvm.h"
#include "base/log.h"
#include "driver/kernel/kernel_sharing.h"
#include "runtime/code/disk_cache.h"
#include "runtime/code/load_llvm.h"
#include "runtime/plan/plan_spec.h"
#include "runtime/process/cpu.h"
#include "runtime/process/measure.h"
#include "runtime/process/torch_abi.h"
#include "tuning.h"

#define KERNEL_NAME "mg_kernel_00000000" /* placeholder, of the length of MG_KERNEL_NAME */

typedef struct KernelNew { /* a kernel that is not known yet */
  MgKey key, shape;
  char *text; /* with marks until kernels have been shared */
  size_t len;
  struct KernelNew *by; /* the kernel that does its work, itself or another with the same shape */
  const int64_t *size;
  uint32_t nsize;
  void *fn;        /* NULL: to be compiled */
  uint8_t origin;  /* MgCodeOrigin */
  uint32_t module; /* which module it goes to */
  char name[sizeof KERNEL_NAME];
} KernelNew;

typedef struct KernelJob {
  MgSched *s;
  const MgFused *f;
  MgTarget target;
  MgEmitter *emitter;
  MgKernelSet *out;
  KernelNew *todo;
  uint32_t ntodo;
  KernelNew **make;
  uint32_t nmake;    /* those that LLVM compiles */
  uint32_t *of_step; /* per step: todo entry + 1 */
  MgStrbuf *module;  /* nmodule */
  MgObject *object;
  MgKey *key; /* of the module's text, on disk */
  uint32_t nmodule;
} KernelJob;

MgTarget mg_kernels_target(void) {
  const MgCpu *cpu = mg_cpu();
  MgTarget t = {.vector_bits = cpu->vector_bits,
                .fma = cpu->fma,
                .avx512 = cpu->avx512,
                .f16c = cpu->f16c,
                .avx512bf16 = cpu->avx512bf16,
                .llvm = mg_llvm_major()};
  static _Atomic int found; /* torch's own SLEEF, looked for once: 1 yes, -1 no */
  if (!found) found = mg_emit_llvm_finds_sleef(&t, mg_abi_symbol) ? 1 : -1;
  t.sleef = found > 0;
  return t;
}

/* Gives every kernel of the text its number in place of the placeholder's digits. */
static void kernel_rename(char *text, const char *name) {
  for (char *p = text; (p = strstr(p, KERNEL_NAME)); p += sizeof KERNEL_NAME - 1)
    memcpy(p, name, sizeof KERNEL_NAME - 1);
}

static char *kernel_keep(KernelJob *j, const MgStrbuf *sb) {
  return mg_sb_ok(sb) ? mg_ctx_grow(j->s->c, mg_sb_text(sb), sb->len + 1, sb->len + 1) : NULL;
}

static void *kernel_known(KernelJob *j, MgKey key) {
  void *fn = mg_kcache_find(key, &j->out->code[j->out->ncode]);
  if (fn) j->out->ncode++;
  return fn;
}

static MgRc kernel_emit(KernelJob *j, uint32_t step, MgStrbuf *sb, MgStrbuf *part) {
  MgKernel *k = j->f->step[step].u.kernel;
  sb->len = part->len = 0;
  snprintf(k->name, sizeof k->name, "%s", KERNEL_NAME);
  TRY(mg_emit_llvm(j->emitter, k, sb));
  mg_share_plain(mg_sb_text(sb), part);
  if (!mg_sb_ok(part))
    return mg_fail(j->s->c, MG_NOMEM, "out of memory"); /* half a text may be that of another kernel */
  MgKey key = mg_kcache_key(mg_sb_text(part), part->len);
  k->key = key.lo;
  if ((j->out->of_step[step].fn = (MgRangeFn)kernel_known(j, key))) {
    j->out->of_step[step].key = key;
    j->out->of_step[step].origin = CO_memory;
    if (mg_measure_on) j->out->of_step[step].text = kernel_keep(j, part);
    return MG_OK;
  }
  for (uint32_t i = 0; i < j->ntodo; i++)
    if (mg_key_same(j->todo[i].key, key)) return j->of_step[step] = i + 1, MG_OK;
  part->len = 0;
  mg_share_shape(mg_sb_text(sb), part);
  KernelNew *n = &j->todo[j->ntodo];
  *n = (KernelNew){
      .key = key, .shape = mg_kcache_key(mg_sb_text(part), part->len), .text = kernel_keep(j, sb), .by = n};
  if (!n->text || !mg_sb_ok(part)) return mg_fail(j->s->c, MG_NOMEM, "out of memory");
  j->of_step[step] = ++j->ntodo;
  return MG_OK;
}

/* Makes one kernel of todo entry `first` and the later ones of its shape, if they are enough. */
static MgRc kernel_share(KernelJob *j, uint32_t first, KernelNew **same, const char **text, MgStrbuf *sb) {
  uint32_t n = 0, nsize = 0;
  int64_t *size;
  for (uint32_t i = first; i < j->ntodo; i++)
    if (mg_key_same(j->todo[i].shape, j->todo[first].shape))
      same[n] = &j->todo[i], text[n++] = j->todo[i].text;
  if (n < MG_TUNE_KERNEL_SHARE) return MG_OK;
  sb->len = 0;
  TRY(mg_share(j->s->c, text, n, sb, &size, &nsize));
  if (!nsize) return MG_OK;
  KernelNew *by = same[0];
  if (!(by->text = kernel_keep(j, sb))) return mg_fail(j->s->c, MG_NOMEM, "out of memory");
  by->key = mg_kcache_key(by->text, sb->len);
  by->fn = kernel_known(j, by->key);
  if (by->fn) by->origin = CO_memory;
  for (uint32_t i = 0; i < n; i++)
    same[i]->by = by, same[i]->size = size + (size_t)i * nsize, same[i]->nsize = nsize;
  return MG_OK;
}

/* Which kernels LLVM will see, with their texts and names. */
static MgRc kernel_share_all(KernelJob *j, MgStrbuf *sb) {
  KernelNew **same = mg_new(j->s->c, KernelNew *, j->ntodo + 1);
  const char **text = mg_new(j->s->c, const char *, j->ntodo + 1);
  j->make = mg_new(j->s->c, KernelNew *, j->ntodo + 1);
  TRYP(same && text && j->make);
  for (uint32_t i = 0; i < j->ntodo; i++) {
    KernelNew *n = &j->todo[i];
    if (!n->nsize) TRY(kernel_share(j, i, same, text, sb));
    if (n->by != n || n->fn) continue;
    sb->len = 0;
    mg_share_plain(n->text, sb);
    if (!(n->text = kernel_keep(j, sb))) return mg_fail(j->s->c, MG_NOMEM, "out of memory");
    n->len = sb->len;
    snprintf(n->name, sizeof n->name, MG_KERNEL_NAME, j->nmake);
    kernel_rename(n->text, n->name);
    j->make[j->nmake++] = n;
  }
  for (uint32_t i = 0; i < j->f->nstep; i++)
    if (j->of_step[i]) {
      MgKernel *k = j->f->step[i].u.kernel;
      snprintf(k->name, sizeof k->name, "%s", j->todo[j->of_step[i] - 1].by->name);
    }
  return MG_OK;
}

/* How many modules: one for each thread, more where these would take long. */
static MgRc kernel_modules(KernelJob *j, unsigned nthread) {
  MgCtx *c = j->s->c;
  size_t len = 0;
  for (uint32_t i = 0; i < j->nmake; i++) len += j->make[i]->len;
  size_t n = len / MG_TUNE_MODULE_TEXT;
  if (n < nthread) n = nthread;
  if (n > j->nmake) n = j->nmake;
  j->module = mg_new(c, MgStrbuf, n);
  j->object = mg_new(c, MgObject, n);
  j->key = mg_new(c, MgKey, n);
  TRYP(j->module && j->object && j->key);
  j->nmodule = (uint32_t)n;
  return MG_OK;
}

/* Longest texts first, each to the module that has least. */
static MgRc kernel_deal(KernelJob *j, unsigned nthread) {
  TRY(kernel_modules(j, nthread));
  for (uint32_t done = 0; done < j->nmake; done++) {
    uint32_t long_one = 0, least = 0;
    for (uint32_t i = 1; i < j->nmake; i++)
      if (j->make[i]->len > j->make[long_one]->len) long_one = i;
    for (uint32_t i = 1; i < j->nmodule; i++)
      if (j->module[i].len < j->module[least].len) least = i;
    KernelNew *n = j->make[long_one];
    mg_sb_puts(&j->module[least], n->text);
    n->module = least;
    n->len = 0; /* dealt */
  }
  for (uint32_t i = 0; i < j->nmodule; i++) mg_emit_llvm_declare(&j->target, &j->module[i]);
  for (uint32_t i = 0; i < j->nmodule; i++)
    if (!mg_sb_ok(&j->module[i])) return mg_fail(j->s->c, MG_NOMEM, "out of memory");
  return MG_OK;
}

/* Loads module m and puts its kernels into the cache.  stored: it comes from the disk. */
static MgRc kernel_load(KernelJob *j, uint32_t m, bool stored) {
  MgCtx *c = j->s->c;
  MgKey *key = mg_new(c, MgKey, j->nmake);
  void **fn = mg_new(c, void *, j->nmake);
  MgKcPlace *place = mg_new(c, MgKcPlace, j->nmake);
  uint32_t n = 0;
  MgCode *code;
  TRYP(key && fn && place);
  TRY(mg_elf_load(c, j->object[m].data, j->object[m].len, mg_abi_symbol, &code));
  MgRc rc = MG_OK;
  for (uint32_t i = 0; i < j->nmake && rc == MG_OK; i++) {
    KernelNew *k = j->make[i];
    if (k->module != m) continue;
    k->origin = stored ? CO_disk : CO_compiled;
    k->fn = fn[n] = mg_elf_symbol(code, k->name);
    place[n] = (MgKcPlace){j->key[m], i};
    key[n++] = k->key;
    if (!k->fn) rc = mg_fail(c, MG_BUG, "kernel %s is not in its object", k->name);
  }
  if (rc == MG_OK) rc = mg_kcache_add(c, code, key, fn, place, n, &j->out->code[j->out->ncode]);
  if (rc == MG_OK) j->out->ncode++;
  else mg_elf_free(code);
  return rc;
}

static MgRc kernel_compile(KernelJob *j, unsigned nthread) {
  MgCtx *c = j->s->c;
  uint32_t n = 0; /* modules that are not on disk */
  double t0 = mg_now_ms();
  TRY(kernel_deal(j, nthread));
  const char **text = mg_new(c, const char *, j->nmodule);
  MgObject *made = mg_new(c, MgObject, j->nmodule);
  uint32_t *from = mg_new(c, uint32_t, j->nmodule);
  TRYP(text && made && from);
  for (uint32_t i = 0; i < j->nmodule; i++) {
    const char *t = mg_sb_text(&j->module[i]);
    mg_log_text(MG_LOG_output_code, "module", t);
    j->key[i] = mg_artifact_key(t, j->module[i].len);
    if (!mg_artifact_load(MG_ART_object, j->key[i], &j->object[i])) from[n] = i, text[n++] = t;
  }
  bool slow = n && j->nmake >= MG_TUNE_KERNEL_SLOW;
  if (slow) mg_log_progress("magneto: compiling %u kernels", j->nmake);
  MgRc rc = n ? mg_llvm_emit(c, text, n, nthread, made) : MG_OK;
  if (slow) mg_log_progress(NULL);
  TRY(rc);
  for (uint32_t i = 0; i < n; i++) {
    j->object[from[i]] = made[i];
    mg_artifact_store(MG_ART_object, j->key[from[i]], &made[i]);
  }
  double t1 = mg_now_ms();
  j->out->llvm_ms = t1 - t0;
  for (uint32_t i = 0, next = 0; i < j->nmodule; i++) {
    bool compiled = next < n && from[next] == i;
    TRY(kernel_load(j, i, !compiled));
    next += compiled;
  }
  j->out->load_ms = mg_now_ms() - t1;
  return MG_OK;
}

static MgRc kernel_all(KernelJob *j, unsigned nthread) {
  MgStrbuf sb = {0}, part = {0};
  double t0 = mg_now_ms();
  MgRc rc = mg_emitter_new(j->s, &j->target, &j->emitter);
  for (uint32_t i = 0; i < j->f->nstep && rc == MG_OK; i++)
    if (j->f->step[i].kind == MS_kernel) rc = kernel_emit(j, i, &sb, &part);
  if (rc == MG_OK) rc = kernel_share_all(j, &sb);
  mg_sb_free(&sb);
  mg_sb_free(&part);
  mg_emitter_free(j->emitter);
  j->out->emit_ms = mg_now_ms() - t0;
  j->out->ncompiled = j->nmake;
  if (rc == MG_OK && j->nmake) rc = kernel_compile(j, nthread);
  for (uint32_t i = 0; i < j->f->nstep && rc == MG_OK; i++)
    if (j->of_step[i]) {
      const KernelNew *n = &j->todo[j->of_step[i] - 1];
      j->out->of_step[i] = (MgKernelCode){.fn = (MgRangeFn)n->by->fn,
                                          .size = n->size,
                                          .nsize = n->nsize,
                                          .key = n->by->key,
                                          .text = mg_measure_on ? n->by->text : NULL,
                                          .origin = n->by->origin};
    }
  return rc;
}

MgRc mg_kernels_build(MgSched *s, const MgFused *f, unsigned nthread, MgKernelSet *out) {
  KernelJob j = {.s = s, .f = f, .out = out};
  uint32_t nkernel = 0;
  memset(out, 0, sizeof *out);
  for (uint32_t i = 0; i < f->nstep; i++) nkernel += f->step[i].kind == MS_kernel;
  out->of_step = mg_new(s->c, MgKernelCode, f->nstep + 1);
  out->code = mg_new(s->c, MgKcRef, 2 * nkernel + 1); /* known ones, and modules */
  j.todo = mg_new(s->c, KernelNew, nkernel + 1);
  j.of_step = mg_new(s->c, uint32_t, f->nstep + 1);
  TRYP(out->of_step && out->code && j.todo && j.of_step);
  if (!nkernel) return MG_OK; /* only library calls: no LLVM needed */
  j.target = mg_kernels_target();
  j.target.marks = !s->x->nsym; /* with symbols the table of sizes is theirs */
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
  for (uint32_t i = 0; i < k->nstep; i++)
    if (k->of_step[i].gpu) mg_cuda_lazy_free(k->of_step[i].gpu->other);
  k->nstep = 0;
}
