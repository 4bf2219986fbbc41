/* Recorded graph -> run-time plan: every pass, in order, in compile_middle and compile_new.
 * With MAGNETO_STRICT=1 the graph is verified after every pass; see compile_verify.
 * MAGNETO_LOGS shows what each stage made; MAGNETO_STOP=<stage> ends every compilation after that stage and
 * MAGNETO_ONLY=<n> or <a>-<b> compiles only those (counted from 1): what is not compiled runs op by op, so a
 * wrong result is found by bisecting. */
#include "driver/compile.h"
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "back/kernel/back.h"
#include "back/lower/lower.h"
#include "base/env.h"
#include "base/log.h"
#include "cuda/device.h"
#include "driver/engine_choice.h"
#include "driver/kernel/kernels.h"
#include "driver/options.h"
#include "driver/plan_record.h"
#include "driver/plan_store.h"
#include "driver/planner.h"
#include "driver/size_facts.h"
#include "ir/infer/graph_at.h"
#include "ir/infer/infer.h"
#include "middle/middle.h"
#include "middle/partition.h"
#include "ptx/ptx.h"
#include "runtime/engine/gemm.h"
#include "runtime/engine/onednn.h"
#include "runtime/plan/plan_priv.h"
#include "runtime/process/generator.h"
#include "runtime/process/torch_abi.h"
#include "tuning.h"

typedef struct Compile {
  MgCtx *c;
  MgGraph *g;
  int cuda; /* the device that kernels run on; -1: the CPU */
  const MgOptions *o;
  MgHostOps *h;
  MgSched s;
  MgFused f;
  MgMemPlan m;
  MgPlanExt *ext;     /* per step */
  MgSizeFacts *facts; /* what was assumed of symbols */
  MgKernelSet k;
  void **constant;
  uint32_t nconstant;   /* what mg_fold computed */
  double t;             /* when the running stage began */
  MgStrbuf times;       /* text of MAGNETO_LOGS=timing */
  MgPlanRecord *record; /* for reports; NULL: none is kept */
  const char *stop;     /* MAGNETO_STOP, or NULL */
  bool strict;          /* MAGNETO_STRICT: verify after every pass */
} Compile;

/* ---- stages ---- */

typedef enum CompileStage {
#define STAGE(name) CS_##name,
#include "stages.def"
} CompileStage;

typedef enum CompilePromise { CV_recorded, CV_functional, CV_primitive } CompilePromise;

typedef enum CompilePass {
#define PASS(name, what) CP_##name,
#include "passes.def"
} CompilePass;

static atomic_int compile_limit = -1, compile_wrong = -1;
static atomic_bool compile_crash;

void mg_compile_set_passes(int limit) { compile_limit = limit; }

void mg_compile_plant(int wrong, bool crash) {
  compile_wrong = wrong;
  compile_crash = crash;
}

static char compile_illegal_pass[32]; /* of tests, which compile on one thread */
static MgIllegal compile_illegal;

void mg_compile_plant_illegal(const char *pass, MgIllegal what) {
  snprintf(compile_illegal_pass, sizeof compile_illegal_pass, "%s", pass);
  compile_illegal = what;
}

const char *mg_compile_pass(int i) {
  static const char *const name[] = {
#define PASS(name, what) #name,
#include "passes.def"
  };
  return i >= 0 && i < (int)(sizeof name / sizeof *name) ? name[i] : NULL;
}

static bool compile_runs(CompilePass p) { return compile_limit < 0 || (int)p < compile_limit; }

/* The planted defect: the first difference of two values is taken the other way round. */
static void compile_spoil(const Compile *k, CompilePass p) {
  if (compile_wrong != (int)p) return;
  for (NodeRef n = 1; n < k->g->nnode; n++) {
    MgNode *node = mg_node(k->g, n);
    if (node->dead || node->op->code != TOP_sub_Tensor) continue;
    MgArg *self = mg_node_arg(node, "self"), *other = mg_node_arg(node, "other"), first = *self;
    if (other->tag != MA_val) continue;
    if (compile_crash) abort();
    *self = *other;
    *other = first;
    return;
  }
}

static bool compile_is_illegal(const char *pass, MgIllegal what) {
  return compile_illegal == what && !strcmp(compile_illegal_pass, pass);
}

/* What a test planted after this pass, in the first difference of two values. */
static void compile_break(const Compile *k, const char *pass) {
  if (!*compile_illegal_pass || strcmp(compile_illegal_pass, pass)) return;
  for (NodeRef n = 1; n < k->g->nnode; n++) {
    MgNode *node = mg_node(k->g, n);
    if (node->dead || node->op->code != TOP_sub_Tensor) continue;
    if (compile_illegal == ILLEGAL_order) *mg_node_arg(node, "self") = mg_arg_val(node->out[0]);
    if (compile_illegal == ILLEGAL_write) node->op = mg_op_by_code(TOP_sub__Tensor);
    return;
  }
}

/* Ends a stage: its time, and MAGNETO_STOP. */
static MgRc compile_done(Compile *k, CompileStage which) {
  const char *stage = mg_stage_names[which];
  double now = mg_now_ms();
  if (mg_log_on(MG_LOG_timing)) mg_sb_printf(&k->times, "%s %.2f  ", stage, now - k->t);
  mg_record_stage(k->record, which, now - k->t);
  k->t = mg_now_ms();
  TRY(mg_ctx_poll(k->c));
  if (k->stop && !strcmp(k->stop, stage))
    return mg_fail(k->c, MG_UNSUP, "stopped after %s (MAGNETO_STOP)", stage);
  return MG_OK;
}

/* Ends a pass over the graph: in strict mode, does it hold what is promised from there on?
 * recorded    the structure is whole
 * functional  and nothing writes
 * primitive   and no decomposition applies: true right after decompose only,
 * simplify may make other ops again */
static MgRc compile_verify(const Compile *k, CompilePromise promise, const char *pass) {
  static MgRc (*const check[])(MgGraph *, const char *) = {
      [CV_recorded] = mg_graph_verify,
      [CV_functional] = mg_graph_verify_functional,
      [CV_primitive] = mg_decompose_verify,
  };
  compile_break(k, pass);
  return k->strict ? check[promise](k->g, pass) : MG_OK;
}

static void compile_log_graph(const Compile *k, MgLog ch, const char *title) {
  MgStrbuf sb = {0};
  if (!mg_log_on(ch)) return;
  mg_graph_print(k->g, &sb);
  mg_log_text(ch, title, mg_sb_text(&sb));
  mg_sb_free(&sb);
}

static void compile_log_loops(const Compile *k) {
  MgStrbuf sb = {0};
  if (!mg_log_on(MG_LOG_loops)) return;
  mg_sched_print(&k->s, &sb);
  mg_log_text(MG_LOG_loops, "loops", mg_sb_text(&sb));
  mg_sb_free(&sb);
}

static void compile_log_fusion(const Compile *k) {
  MgStrbuf sb = {0};
  if (!mg_log_on(MG_LOG_fusion)) return;
  mg_fused_print(&k->s, &k->f, &sb);
  mg_log_text(MG_LOG_fusion, "fused", mg_sb_text(&sb));
  mg_sb_free(&sb);
}

static void compile_log_plan(const Compile *k) {
  MgStrbuf sb = {0};
  if (!mg_log_on(MG_LOG_plan)) return;
  mg_planner_print(&k->s, &k->f, &k->m, k->ext, &sb);
  mg_size_facts_print(k->facts, &sb);
  mg_log_text(MG_LOG_plan, "plan", mg_sb_text(&sb));
  mg_sb_free(&sb);
}

static void compile_record(const Compile *k) {
  MgStrbuf facts = {0};
  if (!k->record) return;
  mg_size_facts_print(k->facts, &facts);
  mg_record_symbols(k->record, k->g, mg_sb_text(&facts));
  mg_sb_free(&facts);
  mg_record_graph(k->record, &k->record->compiled, k->g);
  mg_record_steps(k->record, &k->s, &k->f, &k->m, k->ext, &k->k);
}

/* Ends the record of a compilation. */
static void compile_record_end(const Compile *k, double ms, MgRc rc) {
  const char *why = *k->c->msg ? k->c->msg : mg_rc_text(rc);
  mg_record_end(k->record, ms, rc == MG_OK ? NULL : why);
}

/* ---- extern calls ---- */

/* An engine writes into memory of ours: results that a host call would have allocated get a place in the
 * arena, or are the output itself. */
static void compile_adopt(Compile *k, const MgExtern *e) {
  for (uint32_t i = 0; i < e->nout; i++) {
    MgBuf *b = &k->s.buf[e->out[i].buf];
    if (!e->out[i].buf || b->kind != MB_extern_out) continue;
    b->kind = MB_temp;
    for (uint32_t o = 0; o < k->s.nout && b->kind == MB_temp; o++) {
      if (k->s.out[o].buf != e->out[i].buf) continue;
      b->kind = MB_output; /* the first output that lives here owns the memory; others are views of it */
      b->index = (int32_t)o;
    }
  }
}

static MgRc compile_externs(Compile *k) {
  k->ext = mg_new(k->c, MgPlanExt, k->f.nstep + 1);
  TRYP(k->ext);
  for (uint32_t i = 0; i < k->f.nstep; i++) {
    if (k->f.step[i].kind != MS_extern) continue;
    const MgExtern *e = k->f.step[i].u.ext;
    bool own = e->prealloc || (k->cuda < 0 && compile_runs(CP_engines));
    MgRc rc = own ? mg_engine_make(&k->s, e, k->o, &k->ext[i].engine, &k->ext[i].sized) : MG_UNSUP;
    if (rc == MG_OK) {
      k->f.step[i].scratch = k->ext[i].engine->scratch;
      k->f.step[i].sized = k->ext[i].sized;
      compile_adopt(k, e);
    } else if (rc != MG_UNSUP || k->c->rc != MG_OK) {
      return rc;
    } else if (!e->prealloc) {
      TRY(k->h->add_call(k->h->host.self, k->g, e->node, &k->ext[i].host_id));
    }
  }
  return MG_OK;
}

/* What engines may be used.  oneDNN takes a few milliseconds to load, so only graphs with work for a library
 * ask for it. */
static void compile_engines(const Compile *k, MgSimplifyOpts *o) {
  bool wanted = false;
  if (!mg_graph_on_cpu(k->g)) return;
  for (NodeRef n = 1; n < k->g->nnode && !wanted; n++)
    wanted = !mg_node(k->g, n)->dead && !mg_lower_knows(k->g, n);
  if (!wanted) return;
  o->onednn = mg_onednn_ready();
  o->products = o->onednn || mg_gemm_wanted();
  o->bf16 = o->onednn && mg_onednn_bf16();
  bool fast =
      k->o->numerics == MN_fast; /* else each op rounds, also between a product and what it takes along */
  o->widen_f16 = fast && mg_gemm_widens(true);
  o->widen_bf16 = fast && !o->bf16 && mg_gemm_widens(false);
}

/* ---- the passes ---- */

/* Graph to graph.  j: the graph is a joint one, to be cut. */
static MgRc compile_middle(Compile *k, MgJoint *j) {
  MgGraph *g = k->g;
  MgSimplifyOpts simplify = {.keep_layout = k->o->keep_layout, .lowers = mg_lower_knows};

  compile_log_graph(k, MG_LOG_graph, "recorded");
  mg_record_recorded(k->record, g);
  TRY(compile_verify(k, CV_recorded, "recording"));
  if (g->x->ask) TRY(mg_infer_settle(g));
  if (j) TRY(mg_joint_mark(g, j));
  TRY(compile_verify(k, CV_recorded, "settle"));
  TRY(mg_functionalize(g));
  TRY(compile_verify(k, CV_functional, "functionalize"));
  if (j) TRY(mg_joint_stable(g, j));
  TRY(mg_dce(g)); /* before anything counts uses */
  TRY(compile_verify(k, CV_functional, "dce"));
  compile_log_graph(k, MG_LOG_functional, "functional");
  TRY(compile_done(k, CS_functionalize));
  compile_engines(k, &simplify);
  if (compile_runs(CP_patterns)) {
    TRY(mg_patterns(g, &simplify)); /* on ATen's own ops, before they are taken apart */
    compile_spoil(k, CP_patterns);
  }
  TRY(compile_verify(k, CV_functional, "patterns"));
  TRY(compile_done(k, CS_patterns));
  if (compile_runs(CP_decompose)) {
    if (!compile_is_illegal("decompose", ILLEGAL_whole)) TRY(mg_decompose(g));
    TRY(compile_verify(k, CV_primitive, "decompose"));
    compile_spoil(k, CP_decompose);
  }
  TRY(compile_done(k, CS_decompose));
  if (compile_runs(CP_simplify)) {
    TRY(mg_simplify(g, &simplify));
    compile_spoil(k, CP_simplify);
  }
  TRY(compile_verify(k, CV_functional, "simplify"));
  if (compile_runs(CP_layout)) {
    TRY(mg_layout(g, &simplify));
    compile_spoil(k, CP_layout);
  }
  TRY(compile_verify(k, CV_functional, "layout"));
  TRY(mg_dce(g));
  compile_log_graph(k, MG_LOG_simplified, "simplified");
  TRY(mg_graph_verify(g, "the last dce")); /* once in any mode */
  TRY(compile_done(k, CS_simplify));
  if (!j) return MG_OK;
  TRY(mg_partition(g, &simplify, j)); /* on what lowering will see, with layouts that both halves agree on */
  return compile_done(k, CS_partition);
}

/* Is t what the graph says of v? */
static bool compile_fits(const MgGraph *g, ValRef v, MgTensor *t) {
  const MgVal *m = mg_val(g, v);
  int64_t dim = 0, *size = NULL, *stride = NULL, want;
  int32_t dtype = 0;
  mg_abi.aoti_torch_get_dim(t, &dim);
  mg_abi.aoti_torch_get_dtype(t, &dtype);
  mg_abi.aoti_torch_get_sizes(t, &size);
  mg_abi.aoti_torch_get_strides(t, &stride);
  if (dim != m->ndim || dtype != m->dtype) return false;
  for (int d = 0; d < dim; d++)
    if (!mg_ex_const_int(g->x, m->size[d], &want) || size[d] != want ||
        !mg_ex_const_int(g->x, m->stride[d], &want) || stride[d] != want)
      return false;
  return true;
}

static bool compile_eval(void *self, MgGraph *g, NodeRef n, void *const *in, int nin, void **out) {
  const Compile *k = self;
  const MgNode *node = mg_node(g, n);
  if (!k->h->eval(k->h->host.self, g, n, (MgTensor *const *)in, nin, (MgTensor **)out, node->nout))
    return false;
  bool fits = true;
  for (int i = 0; i < node->nout; i++) fits = fits && compile_fits(g, node->out[i], out[i]);
  for (int i = 0; !fits && i < node->nout; i++) mg_abi.aoti_torch_delete_tensor_object(out[i]);
  return fits;
}

static void compile_drop_tensor(void *tensor) { mg_abi.aoti_torch_delete_tensor_object(tensor); }

static MgRc compile_fold(Compile *k) {
  MgFoldOps o = {.self = k, .eval = compile_eval, .drop = compile_drop_tensor};
  if (!k->h->eval || !compile_runs(CP_fold)) return MG_OK;
  compile_spoil(k, CP_fold);
  TRY(mg_fold(k->g, &o, &k->constant, &k->nconstant));
  if (k->nconstant) compile_log_graph(k, MG_LOG_simplified, "folded");
  return compile_done(k, CS_fold);
}

/* Does somebody want to see stages that a stored plan skips? */
static bool compile_shows(const Compile *k) {
  bool stops = k->stop && strcmp(k->stop, mg_stage_names[CS_stored]);
  return stops || k->record || mg_log_on(MG_LOG_loops) || mg_log_on(MG_LOG_fusion) ||
         mg_log_on(MG_LOG_output_code) || mg_log_on(MG_LOG_plan);
}

/* Are all nests for kernels of a GPU? */
static bool compile_gpu_can(Compile *k) {
  for (uint32_t i = 0; i < k->s.nitem; i++)
    if (k->s.item[i].kind == MI_loop && !mg_ptx_takes(&k->s, k->s.item[i].u.loop)) return false;
  return true;
}

/* Loop nests of the graph.  What a GPU's kernels cannot do becomes calls, which may take
 * other nodes' loops with it. */
static MgRc compile_lower(Compile *k) {
  for (NodeRef n = 1; n < k->g->nnode && !compile_runs(CP_lower); n++)
    mg_node(k->g, n)->call = !strncmp(mg_node(k->g, n)->op->name, "aten::", 6);
  if (compile_runs(CP_lower)) compile_spoil(k, CP_lower);
  for (int turn = 0;; turn++) {
    memset(&k->s, 0, sizeof k->s);
    TRY(mg_sched_init(&k->s, k->g));
    TRY(mg_lower(&k->s));
    TRY(mg_sched_verify(&k->s, "lowering"));
    bool marked = false;
    if (k->cuda >= 0) TRY(mg_gpu_mark(&k->s, &marked));
    if (!marked) break;
    if (turn == MG_TUNE_LOWER_TURNS) return mg_fail(k->c, MG_UNSUP, "loops that kernels of a GPU cannot do");
  }
  return k->cuda < 0 || compile_gpu_can(k)
             ? MG_OK
             : mg_fail(k->c, MG_UNSUP, "a loop that kernels of a GPU cannot do");
}

static MgRc compile_code(Compile *k, MgGpuTexts *texts) {
  if (!texts) return mg_kernels_build(&k->s, &k->f, mg_abi_threads(), &k->k);
  return mg_gpu_build(texts, mg_abi_threads(), &k->k);
}

/* Graph to the description of a plan, but for what compile_back knows. */
static MgRc compile_new(Compile *k, MgPlanSpec *spec) {
  MgGpuTexts *texts = NULL;
  TRY(compile_lower(k));
  compile_log_loops(k);
  TRY(compile_done(k, CS_lower));
  k->s.alone = !compile_runs(CP_fuse);
  TRY(mg_fuse(&k->s, &k->f));
  compile_log_fusion(k);
  if (k->cuda >= 0) TRY(mg_gpu_texts(&k->s, &k->f, k->cuda, &texts));
  TRY(compile_done(k, CS_fuse));
  TRY(compile_externs(k));
  TRY(compile_done(k, CS_engines));
  TRY(compile_code(k, texts));
  TRY(compile_done(k, CS_code));
  spec->cuda = k->cuda >= 0;
  spec->device = spec->cuda ? k->cuda : 0;

  if (spec->cuda && !k->s.x->nsym) TRY(mg_gpu_branches(&k->s, &k->f));
  TRY(mg_memplan(&k->s, &k->f, &k->m));
  compile_log_plan(k);
  compile_record(k);
  if (k->record) spec->times = k->record->times;
  return mg_planner_spec(&k->s, &k->f, &k->m, k->ext, &k->k, k->facts, spec);
}

/* May the graph's plan be on disk?  MG_SF_kept: *key is filled in. */
static MgStoredFate compile_stored_key(const Compile *k, MgStoredKey *key) {
  if (k->cuda >= 0) return MG_SF_device;
  if (compile_limit >= 0 || compile_wrong >= 0) return MG_SF_off;
  return mg_stored_key(k->g, k->o, key);
}

/* Looks for the plan of an earlier process.  *save: a new one is to be kept. */
static MgRc compile_stored(Compile *k, MgPlanSpec *spec, MgStoredKey *key, bool *found, bool *save) {
  const char *note = NULL;
  MgStoredFate fate = compile_stored_key(k, key);
  bool shows = compile_shows(k), kept = fate == MG_SF_kept;
  *found = *save = false;
  if (kept && k->record) {
    fate = mg_stored_look(key, k->g, k->o, spec, &note);
    TRY(k->c->rc);
    *save = fate != MG_SF_hit;
  }
  mg_record_stored(k->record, mg_stored_fate(fate), note);
  if (!kept || shows) return MG_OK;
  TRY(mg_stored_load(key, k->g, k->o, k->h, spec, &k->ext, &k->k, found));
  *save = !*found;
  if (*found) k->f.nstep = spec->nstep;
  return compile_done(k, CS_stored);
}

/* Graph to the description of a plan: that of an earlier process, or a new one. */
static MgRc compile_back(Compile *k, MgPlanSpec *spec) {
  MgStoredKey key;
  bool found, save;
  TRY(compile_fold(k));
  TRY(compile_verify(k, CV_functional, "fold"));
  *spec = (MgPlanSpec){
      .label = k->h->label, .host = k->h->host, .threads = k->o->threads > 0 ? (unsigned)k->o->threads : 0};
  k->cuda = mg_graph_on_cpu(k->g) ? -1 : mg_graph_cuda(k->g);
  TRY(compile_stored(k, spec, &key, &found, &save));
  if (!found) TRY(compile_new(k, spec));
  if (save) mg_stored_save(&key, k->g, &k->f, k->ext, &k->k, spec);
  spec->code = k->k.code;
  spec->ncode = k->k.ncode;
  spec->constant = (MgTensor *const *)k->constant;
  spec->nconstant = k->nconstant;
  return compile_done(k, CS_plan);
}

/* What compile_back made and no plan took over. */
static void compile_drop(Compile *k) {
  for (uint32_t i = 0; i < k->nconstant; i++) compile_drop_tensor(k->constant[i]);
  mg_kernels_free(&k->k);
  for (uint32_t i = 0; k->ext && i < k->f.nstep; i++)
    if (k->ext[i].engine) k->ext[i].engine->ops->free(k->ext[i].engine);
}

static void compile_log_times(const Compile *k, long n, const char *what, double ms, MgRc rc) {
  if (mg_log_on(MG_LOG_timing))
    mg_log(MG_LOG_timing,
           "compilation %ld%s: %.2f ms (%u kernels compiled; emit %.2f llvm %.2f load %.2f)  %s%s", n, what,
           ms, k->k.ncompiled, k->k.emit_ms, k->k.llvm_ms, k->k.load_ms, mg_sb_text(&k->times),
           rc == MG_OK ? "" : mg_rc_text(rc));
}

/* Compilation number n of this process: is it one of MAGNETO_ONLY's? */
static bool compile_selected(long n) {
  long from, to;
  return !mg_env_span(ENV_ONLY, &from, &to) || (n >= from && n <= to);
}

/* Asked once per process, as the recorder does. */
static bool compile_strict(void) {
  static atomic_int on = -1;
  if (on < 0) on = mg_env_switch(ENV_STRICT, false);
  return on > 0;
}

/* What is known of eager's bits is about the CPU. */
static void compile_numerics(const Compile *k, const MgGraph *g) {
  bool eager = k->o->numerics == MN_eager;
  g->x->numerics = eager && !mg_graph_on_cpu(g) ? MN_rounded : k->o->numerics;
  g->x->sleef = eager && mg_kernels_target().sleef;
}

/* Counts the compilation; MG_UNSUP when MAGNETO_ONLY leaves it out. */
static MgRc compile_begin(Compile *k, long *n) {
  static atomic_long count;
  *n = atomic_fetch_add(&count, 1) + 1;
  mg_env_check();
  k->stop = mg_env(ENV_STOP);
  k->strict = compile_strict();
  compile_numerics(k, k->g);
  int device = mg_graph_on_cpu(k->g) ? -1 : mg_graph_cuda(k->g);
  k->g->draw_threads = device < 0 || mg_draws_missing() ? 0 : mg_cuda_draw_threads(device);
  k->t = mg_now_ms();
  return compile_selected(*n) ? MG_OK
                              : mg_fail(k->c, MG_UNSUP, "compilation %ld is left out (MAGNETO_ONLY)", *n);
}

bool mg_compile_takes(const MgGraph *g) {
  enum { LEAST_CAPABILITY = 80 };
  if (mg_graph_on_cpu(g)) return true;
  int device = mg_env_switch(ENV_GPU, true) ? mg_graph_cuda(g) : -1;
  return device >= 0 && !mg_cuda_missing() && mg_cuda_capability(device) >= LEAST_CAPABILITY;
}

MgRc mg_compile(MgGraph *g, const MgOptions *o, MgHostOps *h, MgPlan **out) {
  long n;
  double t0 = mg_now_ms();
  MgSizeFacts facts;
  Compile k = {.c = g->c, .g = g, .o = o, .h = h, .facts = &facts};
  MgPlanSpec spec;
  *out = NULL;
  TRY(compile_begin(&k, &n));
  k.record = mg_record_new(n, "", h);
  mg_size_facts_begin(&facts, g->x);
  MgRc rc = compile_middle(&k, NULL);
  if (rc == MG_OK) rc = compile_back(&k, &spec);
  if (rc == MG_OK) rc = mg_plan_new(k.c, &spec, out);
  mg_size_facts_end(&facts);
  if (rc != MG_OK) compile_drop(&k);
  compile_log_times(&k, n, "", mg_now_ms() - t0, rc);
  compile_record_end(&k, mg_now_ms() - t0, rc);
  mg_sb_free(&k.times);
  return rc;
}

/* ---- joint graphs ---- */

/* One half to a plan, which takes over the host; on failure the host is the caller's. */
static MgRc compile_half(const Compile *joint, MgGraph *g, MgHostOps *h, long n, const char *what,
                         MgPlan **out) {
  double t0 = mg_now_ms();
  Compile k = {.c = joint->c,
               .g = g,
               .o = joint->o,
               .h = h,
               .facts = joint->facts,
               .stop = joint->stop,
               .strict = joint->strict,
               .t = t0};
  MgPlanSpec spec;
  compile_numerics(&k, g);
  k.record = mg_record_new(n, what, h);
  compile_log_graph(&k, MG_LOG_joint, what);
  MgRc rc = compile_back(&k, &spec);
  spec.strict_strides = true; /* the other half relies on what is saved */
  if (rc == MG_OK) rc = mg_plan_new(k.c, &spec, out);
  if (rc != MG_OK) compile_drop(&k);
  compile_log_times(&k, n, what, mg_now_ms() - t0, rc);
  compile_record_end(&k, mg_now_ms() - t0, rc);
  mg_sb_free(&k.times);
  return rc;
}

static MgRc compile_joint_facts(const MgJoint *j, MgJointPlans *out) {
  out->saved = mg_malloc((j->nsaved + 1) * sizeof *out->saved);
  if (!out->saved) return mg_fail(j->fwd.c, MG_NOMEM, "out of memory");
  memcpy(out->saved, j->saved, j->nsaved * sizeof *out->saved);
  out->nsaved = j->nsaved;
  out->nfwd = j->spec.nfwd;
  out->nintermediate = j->nintermediate;
  out->ntangent = j->bwd.ninput - j->nsaved;
  out->ngrad = j->bwd.noutput;
  out->saved_bytes = j->saved_bytes;
  return MG_OK;
}

MgRc mg_compile_joint(MgGraph *joint, const MgJointSpec *spec, const MgOptions *o, MgHostOps *fwd_host,
                      MgHostOps *bwd_host, MgGraph *kept, MgJointPlans *out) {
  long n = 0;
  double t0 = mg_now_ms();
  MgSizeFacts facts;
  Compile k = {.c = joint->c, .g = joint, .o = o, .facts = &facts};
  MgJoint j = {.spec = *spec};
  *out = (MgJointPlans){0};
  mg_size_facts_begin(&facts, joint->x);
  MgRc rc = compile_begin(&k, &n);
  k.record = mg_record_new(n, " joint", fwd_host);
  if (rc == MG_OK) rc = compile_middle(&k, &j);
  if (rc == MG_OK) mg_record_saved(k.record, joint, &j);
  compile_log_times(&k, n, " joint", mg_now_ms() - t0, rc);
  compile_record_end(&k, mg_now_ms() - t0, rc);
  if (rc == MG_OK) rc = compile_joint_facts(&j, out);
  if (rc == MG_OK && kept) rc = mg_graph_clone(kept, &j.bwd);
  if (rc == MG_OK) rc = compile_half(&k, &j.fwd, fwd_host, n, " forward", &out->fwd);
  if (rc == MG_OK) rc = compile_half(&k, &j.bwd, bwd_host, n, " backward", &out->bwd);
  mg_size_facts_end(&facts);
  mg_sb_free(&k.times);
  if (rc == MG_OK) return MG_OK;
  if (out->fwd) mg_plan_free(out->fwd); /* and its host */
  else fwd_host->host.free(fwd_host->host.self);
  bwd_host->host.free(bwd_host->host.self);
  free(out->saved);
  *out = (MgJointPlans){0};
  return rc;
}

MgRc mg_compile_backward(MgGraph *bwd, uint32_t nsaved, const uint64_t *given, const MgOptions *o,
                         MgHostOps *h, MgPlan **out) {
  long n = 0;
  bool cut;
  MgSizeFacts facts;
  Compile k = {.c = bwd->c, .g = bwd, .o = o, .facts = &facts};
  *out = NULL;
  MgRc rc = mg_undefined_tangents(bwd, nsaved, given, &cut);
  if (rc == MG_OK && cut) {
    mg_size_facts_begin(&facts, bwd->x);
    rc = compile_begin(&k, &n);
    if (rc == MG_OK) rc = compile_half(&k, bwd, h, n, " backward of some results", out);
    mg_size_facts_end(&facts);
  }
  if (!*out) h->host.free(h->host.self);
  return rc;
}
