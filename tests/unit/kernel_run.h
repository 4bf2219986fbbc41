/* Test harness of the back end: nests written as text, run by the reference
 * evaluator and as compiled kernels. */
#ifndef MG_TEST_KERNEL_RUN_H
#define MG_TEST_KERNEL_RUN_H
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "back/emit/emit_llvm.h"
#include "back/kernel/back.h"
#include "base/log.h"
#include "check.h"
#include "runtime/process/cpu.h"
#include "runtime/code/load_elf.h"
#include "runtime/code/load_llvm.h"
#include "runtime/process/torch_abi.h"

enum { ENV_MAX_BUF = 96 };

typedef struct Env { /* one schedule with its memory */
  MgCtx c;
  MgExprs x;
  MgGraph g;
  MgSched s;
  MgFused f;
  MgCode *code;
  void *mem[ENV_MAX_BUF]; /* per buffer: memory of the compiled run */
  void *ref[ENV_MAX_BUF]; /* memory of the reference run */
  int64_t elems[ENV_MAX_BUF], sym[8];
  double emit_ms, llvm_ms;
  size_t text_bytes;
} Env;

typedef void (*Kernel)(void *const *, const int64_t *, int64_t, int64_t);

/* CPU milliseconds of this process: compile times are measured so, as the machine may be busy. */
static inline double cpu_ms(void) { return (double)clock() * 1e3 / CLOCKS_PER_SEC; }

static inline MgTarget host_target(void) {
  const MgCpu *cpu = mg_cpu();
  MgTarget t = {.vector_bits = cpu->vector_bits,
                .fma = cpu->fma,
                .avx512 = cpu->avx512,
                .f16c = cpu->f16c,
                .avx512bf16 = cpu->avx512bf16};
  if (getenv("TARGET_LLVM")) t.llvm = atoi(getenv("TARGET_LLVM")); /* spelled for an old LLVM */
  return t;
}

static inline void env_init(Env *e) {
  memset(e, 0, sizeof *e);
  mg_ctx_init(&e->c);
  CHECK(mg_exprs_init(&e->x, &e->c) == MG_OK);
  CHECK(mg_graph_init(&e->g, &e->c, &e->x) == MG_OK);
  CHECK(mg_sched_init(&e->s, &e->g) == MG_OK);
}

static inline void env_free(Env *e) {
  for (int i = 0; i < ENV_MAX_BUF; i++) free(e->mem[i]), free(e->ref[i]);
  if (e->code) mg_elf_free(e->code);
  mg_ctx_free(&e->c);
}

static inline BufRef env_buf(Env *e, MgBufKind kind, MgDtype d, int64_t n) {
  BufRef b = mg_sched_buf(&e->s, kind, d, mg_sym(&e->x, n), "");
  e->elems[b] = n;
  e->mem[b] = aligned_alloc(64, (size_t)(n * mg_dtype_size(d) + 127) / 64 * 64);
  e->ref[b] = aligned_alloc(64, (size_t)(n * mg_dtype_size(d) + 127) / 64 * 64);
  memset(e->mem[b], 0, (size_t)(n * mg_dtype_size(d)));
  memset(e->ref[b], 0, (size_t)(n * mg_dtype_size(d)));
  return b;
}

static inline void env_put(Env *e, BufRef b, int64_t i, MgScalar v) {
  MgTy ty = mg_dtype_ty((MgDtype)e->s.buf[b].dtype);
  uint64_t bits = mg_scalar_bits(ty, v);
  memcpy((char *)e->mem[b] + i * mg_ty_size(ty), &bits, (size_t)mg_ty_size(ty));
  memcpy((char *)e->ref[b] + i * mg_ty_size(ty), &bits, (size_t)mg_ty_size(ty));
}

static inline MgScalar env_get(const Env *e, void *const *mem, BufRef b, int64_t i) {
  MgTy ty = mg_dtype_ty((MgDtype)e->s.buf[b].dtype);
  uint64_t bits = 0;
  memcpy(&bits, (char *)mem[b] + i * mg_ty_size(ty), (size_t)mg_ty_size(ty));
  return mg_scalar_from_bits(ty, bits);
}

static uint64_t run_seed = 1;
static inline uint64_t run_rand(void) { return run_seed = mg_hash_u64(run_seed + 0x9E3779B97F4A7C15ull); }
static inline void env_fill(Env *e, BufRef b, double lo, double hi) {
  bool f = mg_dtype_is_float((MgDtype)e->s.buf[b].dtype);
  for (int64_t i = 0; i < e->elems[b]; i++) {
    double v = lo + (hi - lo) * (double)(run_rand() >> 11) * 0x1p-53;
    env_put(e, b, i, f ? (MgScalar){.f = v} : (MgScalar){.i = (int64_t)floor(v)});
  }
}

static inline ExprRef env_expr(Env *e, const char *t) {
  const char *p = t;
  if (!t) return 0;
  ExprRef r = mg_ex_parse(&e->x, &p);
  if (!r) printf("cannot parse %s: %s\n", t, e->c.msg), exit(1);
  return r;
}

/* ranges: "4 100|7": kept sizes, then reduced ones after the bar. */
static inline MgLoop *env_nest(Env *e, MgLoopKind kind, const char *ranges, MgRedOp op, const char *body,
                               BufRef buf, const char *index, const char *value) {
  MgLoop *l = mg_sched_loop(&e->s, kind, 0);
  int n = 0;
  bool red = false;
  for (const char *p = ranges; *p;) {
    if (*p == '|') red = true, p++;
    else if (*p == ' ') p++;
    else {
      l->range[n++] =
          *p == 's' ? env_expr(e, (char[]){p[0], p[1], 0}) : mg_sym(&e->x, strtoll(p, (char **)&p, 10));
      if (*p == 's') p += 2;
      if (red) l->nred++;
      else l->nouter++;
    }
  }
  l->red_op = op;
  for (int k = 0; k < MG_MAX_IDX; k++) mg_ex_set_idx_range(&e->x, k, k < n ? l->range[k] : 0);
  l->body = env_expr(e, body);
  l->value = env_expr(e, value);
  l->index = env_expr(e, index);
  l->buf = buf;
  return l;
}

/* Fuses, emits and compiles; false (and a failed check) when something refuses. */
static inline bool env_compile(Env *e) {
  MgTarget t = host_target();
  MgStrbuf b = {0};
  MgObject obj;
  double t0 = cpu_ms();
  MgEmitter *emitter = NULL;
  MgRc rc = mg_fuse(&e->s, &e->f);
  if (rc == MG_OK) rc = mg_emitter_new(&e->s, &t, &emitter);
  for (uint32_t i = 0; i < e->f.nstep && rc == MG_OK; i++) {
    MgKernel *k = e->f.step[i].u.kernel;
    snprintf(k->name, sizeof k->name, "k%u", i);
    rc = mg_emit_llvm(emitter, k, &b);
  }
  mg_emit_llvm_declare(&t, &b);
  mg_emitter_free(emitter);
  double t1 = cpu_ms();
  const char *text = mg_sb_text(&b);
  e->text_bytes = b.len;
  if (getenv("DUMP")) puts(text);
  if (rc == MG_OK) rc = mg_llvm_emit(&e->c, &text, 1, 1, &obj);
  e->emit_ms = t1 - t0;
  e->llvm_ms = cpu_ms() - t1;
  if (rc == MG_OK) {
    rc = mg_elf_load(&e->c, obj.data, obj.len, mg_abi_symbol, &e->code);
    free(obj.data);
  }
  if (rc != MG_OK) printf("compile: %s %s\n", mg_rc_text(rc), e->c.msg), puts(text);
  mg_sb_free(&b);
  CHECK(rc == MG_OK);
  return rc == MG_OK;
}

static inline void env_run_step(Env *e, uint32_t i, int parts) {
  MgKernel *k = e->f.step[i].u.kernel;
  Kernel fn = (Kernel)mg_elf_symbol(e->code, k->name);
  void *arg[ENV_MAX_BUF];
  for (uint32_t j = 0; j < k->nbuf; j++) arg[j] = e->mem[k->buf[j]];
  int64_t n = k->nshared ? mg_sym_eval(&e->x, k->outer, e->sym) : 1, at = 0;
  for (int p = 1; p <= parts; p++) {
    int64_t end = k->nshared ? n * p / parts : 1;
    if (end > at) fn(arg, e->sym, at, end);
    at = end;
  }
}

static inline void env_run(Env *e, int parts) {
  for (uint32_t i = 0; i < e->f.nstep; i++) env_run_step(e, i, parts);
}

static inline void env_reference(Env *e) {
  for (uint32_t i = 0; i < e->s.nitem; i++)
    CHECK(mg_interp_loop(&e->s, e->s.item[i].u.loop, e->ref, e->sym) == MG_OK);
}

/* Distance in units in the last place of the type; 0 for equal, NaN equals NaN; signed zeros differ by 1. */
static inline double ulps(MgTy ty, MgScalar a, MgScalar b) {
  if (!mg_ty_is_float(ty)) return a.i == b.i ? 0 : 1e9;
  if (isnan(a.f) || isnan(b.f)) return isnan(a.f) && isnan(b.f) ? 0 : 1e9;
  int64_t p = (int64_t)mg_scalar_bits(ty, a), q = (int64_t)mg_scalar_bits(ty, b),
          top = (int64_t)(1ull << (8 * mg_ty_size(ty) - 1));
  if (mg_ty_size(ty) == 8) {
    if (p < 0) p = INT64_MIN - p - 1;
    if (q < 0) q = INT64_MIN - q - 1;
  } else {
    if (p & top) p = top - 1 - p;
    if (q & top) q = top - 1 - q;
  }
  return fabs((double)p - (double)q);
}

/* Compares one buffer; tolerance relative + absolute. */
static inline void env_compare(Env *e, BufRef b, double tol, const char *what) {
  int bad = 0;
  for (int64_t i = 0; i < e->elems[b]; i++) {
    MgScalar p = env_get(e, e->mem, b, i), q = env_get(e, e->ref, b, i);
    bool f = mg_dtype_is_float((MgDtype)e->s.buf[b].dtype);
    bool ok =
        f ? p.f == q.f || (isnan(p.f) && isnan(q.f)) || fabs(p.f - q.f) <= tol + tol * fabs(q.f) : p.i == q.i;
    if (!ok && bad++ < 4) {
      if (f) printf("%s: buffer %u [%lld]: %.9g, should be %.9g\n", what, b, (long long)i, p.f, q.f);
      else
        printf("%s: buffer %u [%lld]: %lld, should be %lld\n", what, b, (long long)i, (long long)p.i,
               (long long)q.i);
    }
  }
  CHECK(bad == 0);
}
#endif
