/* mgopt: runs named passes over a graph text.
 *     mgopt [-pass ...] [FILE]      passes in order; "-" or no file reads standard input; prints the result
 *     mgopt -schema < schemas       parses one schema a line and prints what was understood
 * -infer recomputes every node's results and reports those that differ from the text (exit status 1).
 * -externs names the nodes that lowering leaves to the dispatcher.
 * -verify checks the structure; it also runs after every other pass.  -functional and -primitive check what
 * functionalize and decompose promise, -lowered lowers a copy and checks the schedule.  -q prints nothing.
 * Last passes, which print what the back end makes of the graph instead of the graph:
 * -loops     loop nests
 * -fused     loop nests by kernel
 * -llvm      LLVM text for a CPU with AVX2 and torch's SLEEF, whatever this machine has
 * -ptx       PTX text, for graphs on a CUDA device; no device is needed
 * -ptx-run   runs it on the PTX machine, beside the reference evaluator; prints what differs (exit status 1)
 * -plan      steps, buffers and the arena, every call through the host */
#include "back/kernel/back.h"
#include "back/emit/emit_llvm.h"
#include "back/lower/lower.h"
#include "driver/kernel/kernels.h"
#include "driver/planner.h"
#include "ir/infer/graph_at.h"
#include "ir/infer/infer.h"
#include "middle/middle.h"
#include "ptx/ptx.h"
#include "ptx_machine/check.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct Opt { /* one run */
  MgCtx c;
  MgExprs x;
  MgGraph g;
  MgSched s; /* of the last passes */
  MgFused f;
  MgBuf *before; /* buffers before fusion */
  BufRef nbefore;
  MgStrbuf text; /* what they print */
  int bad;       /* mismatches reported */
} Opt;

static char *opt_read(FILE *f) {
  size_t n = 0, cap = 1 << 16;
  char *p = malloc(cap);
  for (size_t k; p && (k = fread(p + n, 1, cap - n - 1, f)) > 0;) {
    n += k;
    if (cap - n < 2) {
      char *q = realloc(p, cap *= 2);
      if (!q) free(p);
      p = q;
    }
  }
  if (p) p[n] = 0;
  return p;
}

/* A value's type as the graph text shows it. */
static void opt_type(const MgGraph *g, ValRef v, MgStrbuf *out) {
  MgGraph one = *g;
  MgStrbuf text = {0};
  if (!v) {
    mg_sb_puts(out, "_");
    return;
  }
  MgVal keep = *mg_val(g, v);
  one.ninput = 1;
  one.input = &v;
  one.nnode = 1;
  one.noutput = one.nwb = 0;
  mg_val(g, v)->requires_grad = false;
  mg_graph_print(&one, &text);
  *mg_val(g, v) = keep;
  const char *p = strstr(mg_sb_text(&text), "= input ");
  if (p) mg_sb_printf(out, "%.*s", (int)strcspn(p + 8, "\n"), p + 8);
  mg_sb_free(&text);
}

static bool opt_same_val(const MgGraph *g, ValRef a, ValRef b) {
  if (!a || !b) return a == b;
  const MgVal *p = mg_val(g, a), *q = mg_val(g, b);
  return p->dtype == q->dtype && p->ndim == q->ndim && p->device == q->device &&
         !memcmp(p->size, q->size, p->ndim * sizeof *p->size) &&
         !memcmp(p->stride, q->stride, p->ndim * sizeof *p->stride) && p->offset == q->offset;
}

static MgRc opt_infer(Opt *o) {
  MgGraph *g = &o->g;
  uint32_t nnode = g->nnode;
  for (uint32_t k = 1; k < nnode; k++) {
    MgNode old = *mg_node(g, k);
    NodeRef r = mg_graph_node(g, old.op, old.narg, old.op->nret);
    TRYP(r);
    MgNode *n = mg_node(g, r);
    memcpy(n->arg, old.arg, old.narg * sizeof *n->arg);
    MgRc rc = mg_infer(g, r);
    n = mg_node(g, r);
    if (rc == MG_UNSUP) {
      fprintf(stderr, "unsupported: %s\n", old.op->full);
      o->c.rc = MG_OK;
    } else if (rc != MG_OK) {
      fprintf(stderr, "failed: %s: %s\n", old.op->full, o->c.msg);
      o->c.rc = MG_OK;
      o->bad++;
    } else if (n->nout != old.nout) {
      fprintf(stderr, "mismatch: %s: %d results of %d\n", old.op->full, n->nout, old.nout);
      o->bad++;
    } else {
      for (int i = 0; i < n->nout; i++) {
        if (opt_same_val(g, n->out[i], old.out[i])) continue;
        MgStrbuf want = {0}, got = {0};
        opt_type(g, old.out[i], &want);
        opt_type(g, n->out[i], &got);
        fprintf(stderr, "mismatch: %s: result %d is %s, inferred %s\n", old.op->full, i, mg_sb_text(&want),
                mg_sb_text(&got));
        mg_sb_free(&want);
        mg_sb_free(&got);
        o->bad++;
      }
    }
    mg_node(g, r)->dead = true;
  }
  g->nnode = nnode;
  return MG_OK;
}

static MgRc opt_verify(Opt *o) { return MG_OK; }
enum { OPT_DRAW_THREADS = 132 * 2048 }; /* of an H100 or H200, for graphs of a GPU */

static MgRc opt_is_functional(Opt *o) { return mg_graph_verify_functional(&o->g, "-functional"); }
static MgRc opt_is_primitive(Opt *o) { return mg_decompose_verify(&o->g, "-primitive"); }
static MgRc opt_lowered(Opt *o) {
  MgExprs x;
  MgGraph copy; /* lowering reorders nodes */
  MgSched s;
  TRY(mg_exprs_init(&x, &o->c));
  TRY(mg_graph_init(&copy, &o->c, &x));
  TRY(mg_graph_clone(&copy, &o->g));
  TRY(mg_sched_init(&s, &copy));
  TRY(mg_lower(&s));
  return mg_sched_verify(&s, "-lowered");
}
static MgRc opt_decompose(Opt *o) { return mg_decompose(&o->g); }
static MgRc opt_dce(Opt *o) { return mg_dce(&o->g); }

/* Stands for the back end: every op of the table is taken to become loops. */
static bool opt_lowers(const MgGraph *g, NodeRef n) { return mg_node(g, n)->op->code != TOP_extern; }
static const MgSimplifyOpts opt_options = {
    .onednn = true, .products = true, .bf16 = true, .lowers = opt_lowers};
static MgRc opt_functionalize(Opt *o) { return mg_functionalize(&o->g); }
static MgRc opt_patterns(Opt *o) { return mg_patterns(&o->g, &opt_options); }
static MgRc opt_simplify(Opt *o) { return mg_simplify(&o->g, &opt_options); }
static MgRc opt_layout(Opt *o) { return mg_layout(&o->g, &opt_options); }

/* Names the nodes that would run through the dispatcher. */
static MgRc opt_externs(Opt *o) {
  for (NodeRef n = 1; n < o->g.nnode; n++)
    if (!mg_node(&o->g, n)->dead && !mg_lower_knows(&o->g, n))
      fprintf(stderr, "extern: %s\n", mg_node(&o->g, n)->op->full);
  return MG_OK;
}

/* ---- the back end ---- */

static MgRc opt_lower(Opt *o) {
  memset(&o->s, 0, sizeof o->s);
  TRY(mg_sched_init(&o->s, &o->g));
  TRY(mg_lower(&o->s));
  return mg_sched_verify(&o->s, "lowering");
}

static MgRc opt_fuse(Opt *o) {
  TRY(opt_lower(o));
  o->nbefore = o->s.nbuf;
  TRYP(o->before = mg_new(&o->c, MgBuf, o->s.nbuf));
  memcpy(o->before, o->s.buf, sizeof *o->before * o->s.nbuf);
  TRY(mg_fuse(&o->s, &o->f));
  for (uint32_t i = 0; i < o->f.nstep; i++) {
    MgKernel *k = o->f.step[i].kind == MS_kernel ? o->f.step[i].u.kernel : NULL;
    if (k) snprintf(k->name, sizeof k->name, "kernel_%u", i);
  }
  return MG_OK;
}

static MgRc opt_loops(Opt *o) {
  TRY(opt_lower(o));
  mg_sched_print(&o->s, &o->text);
  return MG_OK;
}

static MgRc opt_fused(Opt *o) {
  TRY(opt_fuse(o));
  mg_fused_print(&o->s, &o->f, &o->text);
  return MG_OK;
}

static MgRc opt_llvm(Opt *o) {
  const MgTarget avx2 = {.vector_bits = 256, .fma = true, .f16c = true, .sleef = true};
  MgEmitter *e;
  TRY(opt_fuse(o));
  MgRc rc = mg_emitter_new(&o->s, &avx2, &e);
  for (uint32_t i = 0; i < o->f.nstep && rc == MG_OK; i++)
    if (o->f.step[i].kind == MS_kernel) rc = mg_emit_llvm(e, o->f.step[i].u.kernel, &o->text);
  mg_emitter_free(e);
  return rc;
}

/* What kernels of a GPU cannot do is left to ATen. */
static MgRc opt_gpu_fuse(Opt *o) {
  for (bool marked = true; marked;) { /* each turn marks one node more, at least */
    TRY(opt_lower(o));
    TRY(mg_gpu_mark(&o->s, &marked));
  }
  return opt_fuse(o);
}

static MgRc opt_ptx(Opt *o) {
  TRY(opt_gpu_fuse(o));
  for (uint32_t i = 0; i < o->f.nstep; i++) {
    const MgStepIR *t = &o->f.step[i];
    MgPtxPlan p;
    if (t->kind == MS_extern) {
      mg_sb_printf(&o->text, "// step %u: %s\n", i, mg_node(&o->g, t->u.ext->node)->op->full);
      continue;
    }
    TRY(mg_ptx_plan(&o->s, t->u.kernel, true, &p));
    TRY(mg_ptx_emit(&o->s, t->u.kernel, &p, &o->text));
  }
  return MG_OK;
}

static MgRc opt_ptx_run(Opt *o) {
  TRY(opt_gpu_fuse(o));
  for (uint64_t seed = 1; seed <= 2; seed++) { /* the second with NaN and the like */
    int wrong = ptx_check(&o->s, &o->f, o->before, o->nbefore, seed, &o->text);
    if (wrong < 0) return mg_fail(&o->c, MG_UNSUP, "too large for the PTX machine");
    o->bad += wrong;
  }
  return MG_OK;
}

static MgRc opt_plan(Opt *o) {
  MgMemPlan m;
  TRY(opt_fuse(o));
  if (mg_graph_cuda(&o->g) >= 0) TRY(mg_gpu_branches(&o->s, &o->f));
  TRY(mg_memplan(&o->s, &o->f, &m));
  MgPlanExt *ext = mg_new(&o->c, MgPlanExt, o->f.nstep + 1); /* no engines */
  TRYP(ext);
  mg_planner_print(&o->s, &o->f, &m, ext, &o->text);
  return MG_OK;
}

static const struct {
  const char *name;
  MgRc (*run)(Opt *o);
} opt_pass[] = {
    {"-verify", opt_verify},
    {"-functional", opt_is_functional},
    {"-primitive", opt_is_primitive},
    {"-lowered", opt_lowered},
    {"-infer", opt_infer},
    {"-functionalize", opt_functionalize},
    {"-patterns", opt_patterns},
    {"-decompose", opt_decompose},
    {"-simplify", opt_simplify},
    {"-layout", opt_layout},
    {"-dce", opt_dce},
    {"-externs", opt_externs},
    {"-loops", opt_loops},
    {"-fused", opt_fused},
    {"-llvm", opt_llvm},
    {"-ptx", opt_ptx},
    {"-ptx-run", opt_ptx_run},
    {"-plan", opt_plan},
};

static int opt_schemas(void) {
  static const char *const kind[] = {"tensor",  "tensor[]", "tensor?[]",     "int",    "int[]",     "float",
                                     "float[]", "bool",     "bool[]",        "scalar", "scalar[]",  "dtype",
                                     "layout",  "device",   "memory_format", "str",    "generator", "other"};
  char *text = opt_read(stdin);
  int bad = 0;
  for (char *l = strtok(text, "\n"); l; l = strtok(NULL, "\n")) {
    MgCtx c;
    mg_ctx_init(&c);
    const MgOp *o = mg_op_from_schema(&c, l);
    if (!o) {
      printf("error: %s\n", c.msg);
      bad++;
    } else {
      const MgOp *twin = mg_op_twin(o);
      printf("%s|%s|%d|%d|%d%d%d|%s|", o->name, o->overload, o->code, o->nret, o->mutates, o->is_view,
             o->random, twin ? twin->full : "");
      for (int i = 0; i < o->nparam; i++)
        printf("%s:%s%s%s%s%s%s ", o->param[i].name, kind[o->param[i].kind], o->param[i].optional ? "?" : "",
               o->param[i].writes ? "!" : "", o->param[i].kwarg_only ? "*" : "",
               o->param[i].has_default ? "=" : "", o->param[i].deflt);
      putchar('\n');
    }
    mg_ctx_free(&c);
  }
  free(text);
  return bad != 0;
}

int main(int argc, char **argv) {
  Opt o = {0};
  const char *path = NULL;
  bool quiet = false;
  for (int i = 1; i < argc; i++) {
    if (!strcmp(argv[i], "-schema")) return opt_schemas();
    if (!strcmp(argv[i], "-q")) quiet = true;
    else if (argv[i][0] != '-' || !argv[i][1]) path = argv[i];
  }
  FILE *f = path && strcmp(path, "-") ? fopen(path, "r") : stdin;
  char *text = f ? opt_read(f) : NULL;
  if (!text) {
    fprintf(stderr, "mgopt: cannot read %s\n", path ? path : "standard input");
    return 2;
  }
  mg_ctx_init(&o.c);
  MgRc rc = mg_exprs_init(&o.x, &o.c);
  if (rc == MG_OK) rc = mg_graph_init(&o.g, &o.c, &o.x);
  o.g.draw_threads = OPT_DRAW_THREADS;
  if (rc == MG_OK) rc = mg_graph_parse(&o.g, text);
  if (rc == MG_OK) rc = mg_graph_verify(&o.g, "parse");
  for (int i = 1; i < argc && rc == MG_OK; i++) {
    if (argv[i][0] != '-' || !argv[i][1] || !strcmp(argv[i], "-q")) continue;
    size_t k = 0;
    while (k < sizeof opt_pass / sizeof *opt_pass && strcmp(opt_pass[k].name, argv[i])) k++;
    if (k == sizeof opt_pass / sizeof *opt_pass) rc = mg_fail(&o.c, MG_BUG, "unknown pass %s", argv[i]);
    else if ((rc = opt_pass[k].run(&o)) == MG_OK) rc = mg_graph_verify(&o.g, argv[i]);
  }
  if (rc == MG_OK && !quiet) {
    if (!o.text.len && !o.s.c) mg_graph_print(&o.g, &o.text);
    fputs(mg_sb_text(&o.text), stdout);
  } else if (rc != MG_OK) {
    fprintf(stderr, "mgopt: %s: %s (%s:%d)\n", mg_rc_text(rc), o.c.msg, o.c.file ? o.c.file : "?", o.c.line);
  }
  mg_sb_free(&o.text);
  mg_ctx_free(&o.c);
  free(text);
  return rc != MG_OK ? 2 : o.bad ? 1 : 0;
}
