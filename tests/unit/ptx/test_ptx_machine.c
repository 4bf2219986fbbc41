/* Kernels of every mapping on the PTX machine, beside the reference evaluator; and what the machine notices.
 */
#include "kernel_run.h"
#include "ptx_cases.h"
#include "ptx_machine/check.h"

/* Memory of every buffer: that of the test, or fresh for those that fusion made. */
static PtxMemory *memory_of(Env *e) {
  PtxMemory *m = calloc(e->s.nbuf, sizeof *m);
  for (BufRef b = 1; b < e->s.nbuf; b++) {
    void *own = b < ENV_MAX_BUF ? e->mem[b] : NULL;
    int64_t n = own ? e->elems[b] : mg_sym_eval(&e->x, e->s.buf[b].nelem, e->sym);
    m[b].bytes = (size_t)(n * mg_dtype_size((MgDtype)e->s.buf[b].dtype));
    m[b].base = own ? own : calloc(m[b].bytes + 64, 1);
  }
  return m;
}

static void memory_free(Env *e, PtxMemory *m) {
  for (BufRef b = 1; b < e->s.nbuf; b++)
    if (b >= ENV_MAX_BUF || !e->mem[b]) free((void *)(uintptr_t)m[b].base);
  free(m);
}

static void test_case(const struct PtxCase *t, bool vectors) {
  Env e;
  char err[PTX_ERR];
  env_init(&e);
  t->make(&e);
  ptx_on_gpu(&e);
  CHECK(mg_fuse(&e.s, &e.f) == MG_OK);
  PtxMemory *memory = memory_of(&e);
  for (uint32_t i = 0; i < e.f.nstep; i++) {
    MgStrbuf text = {0};
    MgPtxPlan plan;
    MgKernel *k = e.f.step[i].u.kernel;
    snprintf(k->name, sizeof k->name, "k%u", i);
    CHECK(mg_ptx_plan(&e.s, k, vectors, &plan) == MG_OK && mg_ptx_emit(&e.s, k, &plan, &text) == MG_OK);
    bool ran = ptx_launch(&e.s, k, &plan, mg_sb_text(&text), memory, e.sym, err) == PTX_ran;
    if (!ran) printf("%s, %s: %s\n", t->name, k->name, err);
    CHECK(ran);
    mg_sb_free(&text);
  }
  env_reference(&e);
  for (BufRef b = 1; b < ENV_MAX_BUF && b < e.s.nbuf; b++)
    if (e.mem[b] && (e.s.buf[b].kind == MB_output || e.s.buf[b].kind == MB_input))
      env_compare(&e, b, t->tolerance, t->name);
  memory_free(&e, memory);
  env_free(&e);
}

/* ---- what the machine notices ---- */

static const struct Wrong {
  const char *body, *says;
} wrong[] = {
    {"  add.s32 %r1, %r2, 1;\n", "not set"},
    {"  mov.b32 %r1, 7;\n  setp.lt.s32 %p0, %r1, 3;\n  @%p0 mov.b32 %r2, 1;\n  add.s32 %r1, %r2, 1;\n",
     "not set"},
    {"  @%p1 mov.b32 %r1, 7;\n", "predicate"},
    {"  ld.global.v4.f32 {%f0, %f1, %f2, %f3}, [%q0+4];\n", "aligned"},
    {"  ld.global.f32 %f0, [%q0+256];\n", "outside"},
    {"  st.global.b32 [%q0+-4], %r0;\n", "outside"},
    {"  ld.shared.f32 %f0, [%r3];\n", "nobody wrote"},
    {"  st.shared.b32 [%r3], %r0;\n", "races"},
    {"  st.shared.b32 [%r4], %r0;\n  ld.shared.b32 %r5, [%r4+4];\n", "nobody wrote"},
    {"  st.shared.b32 [%r4], %r0;\n  bar.sync 0;\n  st.shared.b32 [%r3], %r0;\n", "races"},
    {"  setp.eq.u32 %p0, %r0, 3;\n  @%p0 bra L0;\n  bar.sync 0;\nL0:\n  ret;\n", "waits"},
    {"  setp.eq.u32 %p0, %r0, 3;\n  @%p0 ret;\n  shfl.sync.bfly.b32 %r1, %r0, 1, 31, -1;\n", "exchanges"},
    {"L0:\n  bra.uni L0;\n", "does not end"},
    {"  frobnicate.b32 %r1, %r0;\n", "no such instruction"},
};

static void test_wrong(const struct Wrong *w) {
  static float memory[64];
  char text[2048], err[PTX_ERR] = "";
  snprintf(
      text, sizeof text,
      ".visible .entry k(.param .u64 a0)\n{\n  .reg .pred %%p<4>;\n  .reg .b32 %%r<8>;\n  .reg .f32 %%f<8>;\n"
      "  .reg .b64 %%q<2>;\n  .shared .align 8 .b8 tile[512];\n  ld.param.u64 %%q0, [a0];\n"
      "  mov.u32 %%r0, %%tid.x;\n  mov.u32 %%r3, tile;\n  mad.lo.u32 %%r4, %%r0, 4, %%r3;\n%s  ret;\n}\n",
      w->body);
  uint64_t arg = (uint64_t)(uintptr_t)memory;
  PtxMemory m = {memory, sizeof memory};
  PtxLaunch l = {1, 64, &arg, &m, 1};
  PtxProgram *p = ptx_parse(text, "k", err);
  bool noticed = (!p || ptx_run(p, &l, err) == PTX_wrong) && strstr(err, w->says);
  if (!noticed) printf("%s: %s\n", w->body, err);
  CHECK(noticed);
  ptx_free(p);
}

/* A whole schedule: right as it is, and not once the reference computes something else. */
static void test_schedule(void) {
  Env e;
  MgStrbuf says = {0};
  env_init(&e);
  ptx_norm(&e);
  ptx_on_gpu(&e);
  BufRef n = e.s.nbuf;
  MgBuf *before = mg_new(&e.c, MgBuf, n);
  memcpy(before, e.s.buf, sizeof *before * n);
  CHECK(mg_fuse(&e.s, &e.f) == MG_OK);
  for (uint32_t i = 0; i < e.f.nstep; i++)
    snprintf(e.f.step[i].u.kernel->name, sizeof e.f.step[i].u.kernel->name, "k%u", i);
  CHECK(ptx_check(&e.s, &e.f, before, n, 1, &says) == 0);
  MgLoop *last = e.s.item[e.s.nitem - 1].u.loop;
  last->value = env_expr(&e, "1:bf16");
  CHECK(ptx_check(&e.s, &e.f, before, n, 1, &says) == 1 && strstr(mg_sb_text(&says), "49152 differ"));
  mg_sb_free(&says);
  env_free(&e);
}

int main(void) {
  for (size_t i = 0; i < sizeof ptx_cases / sizeof *ptx_cases; i++)
    for (int vectors = 0; vectors < 2; vectors++) test_case(&ptx_cases[i], vectors);
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) test_wrong(&wrong[i]);
  test_schedule();
  return test_done();
}
