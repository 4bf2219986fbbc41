/* Kernels of a GPU: PTX texts, machine code from the driver or from the disk, loaded once a process.
 * In: a fused schedule whose nests ptx/ takes.  Out: an MgKernelSet, as driver/kernel/kernels.c makes for the
 * CPU. Equal kernels are one.  New ones go to modules of a few, which several threads compile. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "back/lower/lower.h"
#include "base/log.h"
#include "cuda/device.h"
#include "driver/kernel/kernels.h"
#include "driver/kernel/label.h"
#include "ptx/ptx.h"
#include "runtime/code/disk_cache.h"
#include "runtime/plan/plan_spec.h"
#include "runtime/process/measure.h"
#include "tuning.h"

#define GPU_NAME "mg_kernel_00000000" /* placeholder, of the length of MG_KERNEL_NAME */

typedef struct GpuNew { /* a kernel that is not loaded yet */
  MgKey key;
  char *text;
  void *fn;
  uint8_t origin;                /* MgCodeOrigin */
  char ops[MG_LABEL_IDENTIFIER]; /* of its name */
} GpuNew;

enum { GPU_NAME_CHARS = sizeof GPU_NAME + MG_LABEL_IDENTIFIER };

struct MgGpuTexts {
  MgSched *s;
  const MgFused *f;
  int device;
  MgPtxPlan *plan, *plain; /* per step; plain: of `other` */
  MgKey *key;              /* per step */
  char **text, **other;    /* per step; other: for arguments that are not aligned, or NULL */
  GpuNew *todo;
  uint32_t ntodo;
};

/* ---- what becomes a call ---- */

typedef struct GpuScalars {
  const MgGraph *g;
  const bool *known; /* per value: a number that the host computes of inputs before the steps run */
  bool tensor, late; /* among the operands is one that is no number; one that is not known */
} GpuScalars;

/* A number of the CPU, which kernels take as a parameter. */
static bool gpu_is_number(const MgGraph *g, ValRef v) {
  const MgVal *m = mg_val(g, v);
  return m->device == DEV_cpu && !m->ndim && m->dtype != DT_c32 && m->dtype != DT_c64 && m->dtype != DT_c128;
}

/* Kernels take numbers of the CPU, no tensors. */
static void gpu_see_operand(ValRef *v, void *arg) {
  GpuScalars *s = arg;
  s->tensor |= *v && mg_val(s->g, *v)->device != DEV_cuda && !gpu_is_number(s->g, *v);
}

static void gpu_see_number(ValRef *v, void *arg) {
  GpuScalars *s = arg;
  s->tensor |= *v && !gpu_is_number(s->g, *v);
  s->late |= *v && !s->known[*v];
}

/* Ops of float64 that kernels can do: there are no exponentials and powers among them. */
static bool gpu_does_double(const MgNode *n) {
  switch (n->op->code) {
  case TOP__to_copy:
  case TOP_add_Tensor:
  case TOP_add_Scalar:
  case TOP_sub_Tensor:
  case TOP_sub_Scalar:
  case TOP_rsub_Scalar:
  case TOP_mul_Tensor:
  case TOP_mul_Scalar:
  case TOP_div_Tensor:
  case TOP_div_Scalar:
  case TOP_neg:
  case TOP_sqrt:
  case TOP_reciprocal: return true;
  case TOP_pow_Tensor_Scalar: { /* a root */
    const MgArg *exponent = mg_node_arg(n, "exponent");
    return exponent->tag == MA_float && exponent->u.f == 0.5;
  }
  default: return false;
  }
}

/* Arithmetic on numbers of the CPU (an optimizer's step counts): the host computes it for all kernels that
 * read its result.  Where it needs what a call gives, each of these kernels computes it. */
static bool gpu_is_arithmetic(MgGraph *g, NodeRef r, bool *known) {
  MgNode *n = mg_node(g, r);
  GpuScalars s = {.g = g, .known = known};
  mg_node_each_val(n, gpu_see_number, &s);
  if (s.tensor || n->nout != 1 || !n->out[0] || !gpu_is_number(g, n->out[0]) || n->op->is_view ||
      !mg_lower_knows(g, r))
    return false;
  known[n->out[0]] = !s.late && !n->call && !mg_node_random(n);
  return known[n->out[0]] || mg_val(g, n->out[0])->dtype != DT_f64 || gpu_does_double(n);
}

static bool gpu_mark_node(MgNode *n) {
  bool new = !n->call && !n->dead;
  n->call = true;
  return new;
}

/* Work on the CPU and between devices. */
static MgRc gpu_mark_devices(MgGraph *g, bool *any) {
  bool *known = mg_new(g->c, bool, g->nval + 1);
  TRYP(known);
  for (uint32_t i = 0; i < g->ninput; i++) known[g->input[i]] = gpu_is_number(g, g->input[i]);
  for (NodeRef r = 1; r < g->nnode; r++) {
    MgNode *n = mg_node(g, r);
    GpuScalars s = {.g = g};
    if (n->dead || gpu_is_arithmetic(g, r, known)) continue;
    for (int i = 0; i < n->nout; i++) s.tensor |= n->out[i] && mg_val(g, n->out[i])->device != DEV_cuda;
    mg_node_each_val(n, gpu_see_operand, &s);
    if (s.tensor) *any |= gpu_mark_node(n);
  }
  return MG_OK;
}

/* Nodes of a nest that no kernel can do; numbers: only those that give a number of the CPU. */
static bool gpu_mark_nest(MgGraph *g, const MgLoop *l, bool numbers) {
  bool any = false;
  for (int k = 0; k <= l->nfrom; k++) {
    NodeRef r = k < l->nfrom ? l->from[k] : l->node;
    MgNode *n = r ? mg_node(g, r) : NULL;
    if (n && (!numbers || (n->nout == 1 && n->out[0] && gpu_is_number(g, n->out[0]))))
      any |= gpu_mark_node(n);
  }
  return any;
}

MgRc mg_gpu_mark(MgSched *s, bool *any) {
  *any = false;
  TRY(gpu_mark_devices(s->g, any));
  for (uint32_t i = 0; i < s->nitem; i++) {
    const MgLoop *l = s->item[i].kind == MI_loop ? s->item[i].u.loop : NULL;
    if (!l || mg_ptx_takes(s, l)) continue;
    *any |= gpu_mark_nest(s->g, l, true) || gpu_mark_nest(s->g, l, false);
  }
  return MG_OK;
}

/* ---- texts ---- */

static MgRc gpu_text(MgGpuTexts *t, uint32_t step, bool vectors, MgPtxPlan *plan, char **out, size_t *len) {
  MgStrbuf sb = {0};
  MgKernel *k = t->f->step[step].u.kernel;
  snprintf(k->name, sizeof k->name, "%s", GPU_NAME);
  MgRc rc = mg_ptx_plan(t->s, k, vectors, plan);
  if (rc == MG_OK) rc = mg_ptx_emit(t->s, k, plan, &sb);
  if (rc == MG_OK && !(*out = mg_ctx_strdup(t->s->c, mg_sb_text(&sb)))) rc = MG_NOMEM;
  *len = sb.len;
  mg_sb_free(&sb);
  return rc;
}

MgRc mg_gpu_texts(MgSched *s, const MgFused *f, int device, MgGpuTexts **out) {
  MgGpuTexts *t = mg_new(s->c, MgGpuTexts, 1);
  TRYP(t);
  *t = (MgGpuTexts){.s = s, .f = f, .device = device};
  t->plan = mg_new(s->c, MgPtxPlan, f->nstep + 1);
  t->plain = mg_new(s->c, MgPtxPlan, f->nstep + 1);
  t->key = mg_new(s->c, MgKey, f->nstep + 1);
  t->text = mg_new(s->c, char *, f->nstep + 1);
  t->other = mg_new(s->c, char *, f->nstep + 1);
  t->todo = mg_new(s->c, GpuNew, f->nstep + 1);
  TRYP(t->plan && t->plain && t->key && t->text && t->other && t->todo);
  for (uint32_t i = 0; i < f->nstep; i++) {
    size_t len, unused;
    if (f->step[i].kind != MS_kernel) continue;
    MgRc rc = gpu_text(t, i, true, &t->plan[i], &t->text[i], &len);
    if (rc == MG_OK && t->plan[i].vectors) rc = gpu_text(t, i, false, &t->plain[i], &t->other[i], &unused);
    if (rc != MG_OK) return mg_fail(s->c, rc, "no PTX for a kernel of %u nests", f->step[i].u.kernel->nloop);
    t->key[i] = mg_kcache_key(t->text[i], len);
    t->key[i].hi ^= mg_hash_u64((uint64_t)device + 1); /* code is loaded for a device */
  }
  *out = t;
  return MG_OK;
}

/* ---- code ---- */

static void gpu_drop_module(void *m) { mg_cuda_unload(m); }

/* What profilers show: the number in its module, and what it does. */
static void gpu_name(const GpuNew *k, uint32_t number, char name[GPU_NAME_CHARS]) {
  snprintf(name, GPU_NAME_CHARS, MG_KERNEL_NAME "_%s", number, *k->ops ? k->ops : "kernel");
}

static void gpu_rename(MgStrbuf *to, const GpuNew *k, uint32_t number) {
  char name[GPU_NAME_CHARS];
  const char *text = k->text, *at = strstr(text, GPU_NAME);
  gpu_name(k, number, name);
  mg_sb_write(to, text, (size_t)(at - text));
  mg_sb_puts(to, name);
  mg_sb_puts(to, at + sizeof GPU_NAME - 1);
}

/* Loads module m, of todo entries [first, first + n), and puts its kernels into the cache. */
static MgRc gpu_load(MgGpuTexts *t, const MgCubin *code, MgKey file, uint32_t first, uint32_t n,
                     MgKernelSet *out) {
  MgCtx *c = t->s->c;
  MgCudaModule *m;
  MgKey key[MG_TUNE_GPU_MODULE];
  void *fn[MG_TUNE_GPU_MODULE];
  MgKcPlace place[MG_TUNE_GPU_MODULE];
  TRY(mg_cuda_load(c, t->device, code, &m));
  MgCode *held = mg_elf_foreign(m, mg_cuda_module_bytes(m), gpu_drop_module);
  if (!held) return mg_cuda_unload(m), mg_fail(c, MG_NOMEM, "out of memory");
  MgRc rc = MG_OK;
  for (uint32_t i = 0; i < n; i++) {
    char name[GPU_NAME_CHARS];
    gpu_name(&t->todo[first + i], i, name);
    t->todo[first + i].fn = fn[i] = mg_cuda_function(m, name);
    key[i] = t->todo[first + i].key;
    place[i] = (MgKcPlace){file, i};
    if (!fn[i]) rc = mg_fail(c, MG_UNSUP, "a kernel is not in its module");
  }
  if (rc == MG_OK) rc = mg_kcache_add(c, held, key, fn, place, n, &out->code[out->ncode]);
  if (rc == MG_OK) out->ncode++;
  else mg_elf_free(held);
  return rc;
}

static MgRc gpu_compile(MgGpuTexts *t, unsigned nthread, MgKernelSet *out) {
  MgCtx *c = t->s->c;
  uint32_t nmodule = (t->ntodo + MG_TUNE_GPU_MODULE - 1) / MG_TUNE_GPU_MODULE, n = 0;
  const char **text = mg_new(c, const char *, nmodule + 1);
  MgCubin *code = mg_new(c, MgCubin, nmodule + 1), *made = mg_new(c, MgCubin, nmodule + 1);
  MgKey *file = mg_new(c, MgKey, nmodule + 1);
  uint32_t *from = mg_new(c, uint32_t, nmodule + 1);
  double t0 = mg_now_ms();
  TRYP(text && code && made && file && from);
  MgRc rc = MG_OK;
  for (uint32_t i = 0; i < nmodule && rc == MG_OK; i++) {
    MgStrbuf sb = {0};
    MgObject old;
    mg_sb_printf(&sb, "// sm_%d\n", mg_cuda_capability(t->device));
    mg_ptx_prologue(&sb);
    for (uint32_t k = i * MG_TUNE_GPU_MODULE; k < t->ntodo && k < (i + 1) * MG_TUNE_GPU_MODULE; k++)
      gpu_rename(&sb, &t->todo[k], k - i * MG_TUNE_GPU_MODULE);
    char *all = mg_sb_ok(&sb) ? mg_ctx_strdup(c, mg_sb_text(&sb)) : NULL;
    file[i] = mg_artifact_key(mg_sb_text(&sb), sb.len);
    mg_sb_free(&sb);
    if (!all) {
      rc = mg_fail(c, MG_NOMEM, "out of memory");
      break;
    }
    mg_log_text(MG_LOG_output_code, "module", all);
    bool stored = mg_artifact_load(MG_ART_cubin, file[i], &old);
    if (stored) code[i] = (MgCubin){old.data, old.len};
    else from[n] = i, text[n++] = all;
    for (uint32_t k = i * MG_TUNE_GPU_MODULE; k < t->ntodo && k < (i + 1) * MG_TUNE_GPU_MODULE; k++)
      t->todo[k].origin = stored ? CO_disk : CO_compiled;
  }
  if (rc == MG_OK && n) rc = mg_cuda_link(c, t->device, text, n, nthread, made);
  for (uint32_t i = 0; i < n && rc == MG_OK; i++) {
    code[from[i]] = made[i];
    mg_artifact_store(MG_ART_cubin, file[from[i]], &(MgObject){made[i].data, made[i].len});
  }
  double t1 = mg_now_ms();
  out->llvm_ms = t1 - t0;
  for (uint32_t i = 0; i < nmodule && rc == MG_OK; i++) {
    uint32_t first = i * MG_TUNE_GPU_MODULE, left = t->ntodo - first;
    rc = gpu_load(t, &code[i], file[i], first, left < MG_TUNE_GPU_MODULE ? left : MG_TUNE_GPU_MODULE, out);
  }
  for (uint32_t i = 0; i < nmodule; i++) free(code[i].data);
  out->load_ms = mg_now_ms() - t1;
  return rc;
}

/* The bytes of arguments that are numbers of the CPU; NULL: there are none. */
static const uint8_t *gpu_numbers(const MgSched *s, const MgKernel *k) {
  uint8_t *number = mg_new(s->c, uint8_t, k->nbuf + 1);
  bool any = false;
  for (uint32_t i = 0; number && i < k->nbuf; i++) {
    const MgBuf *b = &s->buf[k->buf[i]];
    if (b->device == DEV_cuda || k->buf[i] == s->err) continue;
    number[i] = (uint8_t)mg_dtype_size((MgDtype)b->dtype);
    any = true;
  }
  return any ? number : NULL;
}

static MgRc gpu_step(MgGpuTexts *t, uint32_t i, MgKernelCode *out) {
  MgCtx *c = t->s->c;
  MgPlanGpu *g = mg_new(c, MgPlanGpu, 1);
  TRYP(g);
  *g = (MgPlanGpu){.shape = {.threads = t->plan[i].threads},
                   .plain = {.threads = t->plain[i].threads},
                   .number = gpu_numbers(t->s, t->f->step[i].u.kernel)};
  TRYP(c->rc == MG_OK);
  out->gpu = g;
  out->blocks = t->plan[i].blocks;
  out->plain_blocks = t->plain[i].blocks;
  if (!t->other[i]) return MG_OK;
  MgStrbuf sb = {0};
  mg_ptx_prologue(&sb);
  mg_sb_puts(&sb, t->other[i]);
  if (mg_sb_ok(&sb)) g->other = mg_cuda_lazy_new(t->device, mg_sb_text(&sb), GPU_NAME);
  mg_sb_free(&sb);
  return g->other ? MG_OK : mg_fail(c, MG_NOMEM, "out of memory");
}

MgRc mg_gpu_build(MgGpuTexts *t, unsigned nthread, MgKernelSet *out) {
  MgCtx *c = t->s->c;
  uint32_t nstep = t->f->nstep, *of = mg_new(c, uint32_t, nstep + 1);
  memset(out, 0, sizeof *out);
  out->of_step = mg_new(c, MgKernelCode, nstep + 1);
  out->code = mg_new(c, MgKcRef, 2 * nstep + 1);
  TRYP(of && out->of_step && out->code);
  out->nstep = nstep;
  out->gpu = true;
  for (uint32_t i = 0; i < nstep; i++) {
    uint32_t k = 0;
    if (!t->text[i]) continue;
    void *fn = mg_kcache_find(t->key[i], &out->code[out->ncode]);
    if (fn) {
      out->ncode++;
      out->of_step[i].fn = (MgRangeFn)fn;
      out->of_step[i].origin = CO_memory;
      continue;
    }
    while (k < t->ntodo && !mg_key_same(t->todo[k].key, t->key[i])) k++;
    of[i] = k + 1;
    if (k < t->ntodo) continue;
    t->todo[t->ntodo] = (GpuNew){.key = t->key[i], .text = t->text[i]};
    mg_label_identifier(t->s->g, t->f->step[i].u.kernel, t->todo[t->ntodo++].ops);
  }
  out->ncompiled = t->ntodo;
  MgRc rc = t->ntodo ? gpu_compile(t, nthread, out) : MG_OK;
  for (uint32_t i = 0; i < nstep && rc == MG_OK; i++) {
    if (!t->text[i]) continue;
    MgKernelCode *code = &out->of_step[i];
    if (of[i]) code->fn = (MgRangeFn)t->todo[of[i] - 1].fn;
    if (of[i]) code->origin = t->todo[of[i] - 1].origin;
    code->key = t->key[i];
    code->text = mg_measure_on ? t->text[i] : NULL; /* with the placeholder's name */
    rc = gpu_step(t, i, &out->of_step[i]);
  }
  if (rc != MG_OK) mg_kernels_free(out);
  return rc;
}
