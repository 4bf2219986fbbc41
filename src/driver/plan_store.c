/* Plans on disk.  See the header.
 * A file's digest says that a process of this user wrote it; all the same each number that is read is checked
 * before it is used. A file is a StoredHead, then the plan's tables one after the other, each from a multiple
 * of 8 bytes on; the last ones are the arguments of each step.  Struct layouts need no version of their own:
 * the key has the build in it.  Only StoredMade, at the front, is read of other builds' files. */
#include "driver/plan_store.h"
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "back/kernel/loop_nest.h"
#include "driver/compile.h"
#include "driver/engine_choice.h"
#include "driver/graph_key.h"
#include "driver/kernel/kernels.h"
#include "driver/kernel/label.h"
#include "driver/options.h"
#include "driver/planner.h"
#include "runtime/code/disk_cache.h"
#include "runtime/plan/plan_check.h"
#include "runtime/process/torch_abi.h"
#include "tuning.h"

enum { STORED_ALIGN = 8 };

static const char *const stored_fate[] = {
    [MG_SF_kept] = "kept",       [MG_SF_hit] = "hit",         [MG_SF_absent] = "absent",
    [MG_SF_other] = "other",     [MG_SF_refused] = "refused", [MG_SF_damaged] = "damaged",
    [MG_SF_unfit] = "unfit",     [MG_SF_small] = "small",     [MG_SF_early] = "early",
    [MG_SF_symbols] = "symbols", [MG_SF_device] = "device",   [MG_SF_off] = "off"};

const char *mg_stored_fate(MgStoredFate f) { return stored_fate[f]; }

/* By number of MgStoredKey.setup: words for people.  Digests have none: their numbers say nothing. */
static const struct {
  const char *what;
  bool digest;
} stored_setup[MG_STORED_SETUP] = {{"build of magneto", true},
                                   {"CPU", true},
                                   {"option freeze", false},
                                   {"option keep_layout", false},
                                   {"option threads", false},
                                   {"number of torch's threads", false},
                                   {"width of vectors", false},
                                   {"fused multiply-add", false},
                                   {"AVX-512", false},
                                   {"conversions of float16", false},
                                   {"AVX-512 with bfloat16", false},
                                   {"functions of SLEEF", false},
                                   {"version of LLVM", false},
                                   {"option numerics", false},
                                   {"mode that searches", false}};

enum { STORED_NEAR = 16 }; /* plans of one graph that are looked at for a report */

#define STORED_MAGIC 0x31656461746f6c70 /* counted up when StoredMade changes */
typedef struct StoredMade {
  int64_t magic, setup[MG_STORED_SETUP];
} StoredMade;

typedef struct StoredHead {
  StoredMade made;
  uint32_t ninput, nbuf, nstep, nfresh, nout, nslot, nsizeop, nblock, ncheck, nwritten, err;
  uint32_t nkernel; /* different ones */
  uint32_t text;    /* bytes of the checks' texts */
  uint64_t arena, bytes_moved;
  bool dynamic;
} StoredHead;

typedef struct StoredKernel { /* code that steps run */
  MgKey key;
  MgKcPlace place;
} StoredKernel;

typedef struct StoredStep {
  uint8_t kind; /* MgPlanStepKind */
  bool beside, guessed;
  /* PK_kernel */
  uint32_t kernel, nbuf, outer, sizes, nsizes; /* nsizes: slots of its table */
  int64_t grain, work;
  NodeRef from[MG_LABEL_NODES]; /* that it computes: its name has lines, which the key has not */
  uint32_t nfrom;
  /* others */
  NodeRef node;
  uint32_t nin, nout, scratch;
  uint64_t scratch_bytes;
} StoredStep;

static atomic_ullong stored_loaded, stored_saved;

void mg_stored_info(MgStoredInfo *out) {
  *out = (MgStoredInfo){.loaded = stored_loaded, .saved = stored_saved};
}

/* ---- the key ---- */

/* Graphs with something that is asked for early: lowering puts their nodes into another
 * order than they have here. */
MgStoredFate mg_stored_key(const MgGraph *g, const MgOptions *o, MgStoredKey *out) {
  uint32_t alive = 0;
  for (NodeRef n = 1; n < g->nnode; n++) alive += !mg_node(g, n)->dead;
  size_t nbuild;
  const void *build = mg_artifact_build(&nbuild);
  if (!build || !mg_artifact_on()) return MG_SF_off;
  if (alive < MG_TUNE_STORED_NODES) return MG_SF_small;
  if (g->early) return MG_SF_early;
  MgStrbuf sb = {0};
  MgTarget t = mg_kernels_target();
  const int64_t setup[MG_STORED_SETUP] = {(int64_t)mg_kcache_key(build, nbuild).hi,
                                          (int64_t)mg_artifact_key("", 0).hi,
                                          o->freeze,
                                          o->keep_layout,
                                          o->threads,
                                          mg_abi_threads(),
                                          t.vector_bits,
                                          t.fma,
                                          t.avx512,
                                          t.f16c,
                                          t.avx512bf16,
                                          t.sleef,
                                          t.llvm,
                                          o->numerics,
                                          o->search};
  MgStoredFate fate = mg_graph_describe(g, &sb) ? MG_SF_kept : MG_SF_symbols;
  uint64_t graph = mg_kcache_key(mg_sb_text(&sb), sb.len).hi;
  mg_sb_write(&sb, build, nbuild);
  mg_sb_write(&sb, (const char *)setup, sizeof setup);
  memcpy(out->setup, setup, sizeof setup);
  if (fate == MG_SF_kept && !mg_sb_ok(&sb)) fate = MG_SF_off; /* out of memory */
  if (fate == MG_SF_kept) out->key = (MgKey){.hi = graph, .lo = mg_artifact_key(mg_sb_text(&sb), sb.len).lo};
  mg_sb_free(&sb);
  return fate;
}

/* ---- what is read and written ---- */

/* How far each input's memory reaches; NULL: no memory. */
static uint64_t *stored_inputs(MgCtx *c, const MgGraph *g) {
  uint64_t *bytes = mg_new(c, uint64_t, g->ninput + 1);
  for (uint32_t i = 0; bytes && i < g->ninput; i++) {
    const MgVal *v = mg_val(g, g->input[i]);
    int64_t last = 0, size, stride;
    bool known =
        v->storage == g->input[i]; /* else it lies in memory of another one, which may reach further */
    for (int d = 0; known && d < v->ndim; d++) {
      known = mg_ex_const_int(g->x, v->size[d], &size) && mg_ex_const_int(g->x, v->stride[d], &stride) &&
              size >= 0 && stride >= 0;
      if (known && size) last += (size - 1) * stride;
    }
    bytes[i] = known ? ((uint64_t)last + 1) * (uint64_t)mg_dtype_size((MgDtype)v->dtype) : UINT64_MAX;
  }
  return bytes;
}

static bool stored_dtypes(const MgPlanView *v, uint32_t n) {
  for (uint32_t i = 0; i < n; i++)
    if (v[i].buf &&
        (v[i].dtype < 0 || v[i].dtype > DT_none || mg_dtype_size((MgDtype)v[i].dtype) != v[i].elsize))
      return false;
  return true;
}

/* Is every number in the tables of spec and steps one that a plan of this graph may have? */
static bool stored_sound(MgCtx *c, const MgGraph *g, const MgPlanSpec *s) {
  const uint64_t *inputs = stored_inputs(c, g);
  bool ok = inputs != NULL;
  for (uint32_t i = 0; ok && i < s->nfresh; i++) ok = stored_dtypes(&s->fresh[i].view, 1);
  for (uint32_t i = 0; ok && i < s->nout; i++)
    ok = s->out[i].kind != PO_view || stored_dtypes(&s->out[i].view, 1);
  for (uint32_t i = 0; ok && i < s->nstep; i++)
    ok = s->step[i].kind == PK_kernel ||
         (stored_dtypes(s->step[i].in, s->step[i].nin) && stored_dtypes(s->step[i].out, s->step[i].nout));
  return ok && !mg_plan_check(c, s, inputs);
}

/* ---- writing ---- */

static void stored_table(MgStrbuf *sb, const void *p, size_t n, size_t size) {
  static const char zero[STORED_ALIGN];
  if (n) mg_sb_write(sb, p, n * size);
  mg_sb_write(sb, zero, -(n * size) % STORED_ALIGN);
}

typedef struct StoredWriter {
  StoredHead head;
  StoredKernel *kernel; /* in order of first use */
  StoredStep *step;
  MgMap index; /* key.lo of a kernel -> its number */
  MgStrbuf out;
} StoredWriter;

/* false: the kernel cannot be told from another one, or is not loaded any more. */
static bool stored_kernel(StoredWriter *w, MgKey key, uint32_t *out) {
  MgKcPlace place;
  *out = mg_map_get(&w->index, key.lo);
  if (*out != MG_MAP_NONE) return w->kernel[*out].key.hi == key.hi;
  if (!mg_kcache_place(key, &place)) return false;
  *out = w->head.nkernel++;
  w->kernel[*out] = (StoredKernel){key, place};
  return mg_map_put(&w->index, key.lo, *out) == MG_OK;
}

static bool stored_step(StoredWriter *w, const MgPlanStep *s, const MgStepIR *ir, const MgPlanExt *ext,
                        const MgKernelCode *code, StoredStep *d) {
  *d = (StoredStep){.kind = s->kind, .beside = s->beside, .guessed = s->guessed};
  if (s->kind == PK_kernel) {
    d->nbuf = s->nbuf;
    d->outer = s->outer;
    d->sizes = s->sizes;
    d->nsizes = code->nsize;
    d->grain = s->grain;
    d->work = s->work;
    d->nfrom = mg_label_nodes(ir->u.kernel, d->from, MG_LABEL_NODES);
    return stored_kernel(w, code->key, &d->kernel);
  }
  d->node = ir->u.ext->node;
  d->nin = s->nin;
  d->nout = s->nout;
  d->scratch = s->scratch;
  d->scratch_bytes = ext->engine ? ext->engine->scratch : 0;
  return !s->sized; /* always: sizes are numbers */
}

static void stored_write(StoredWriter *w, const MgPlanSpec *s) {
  MgStrbuf text = {0}, *sb = &w->out;
  StoredHead *h = &w->head;
  for (uint32_t i = 0; i < s->ncheck; i++) {
    mg_sb_write(&text, s->check[i].type, strlen(s->check[i].type) + 1);
    mg_sb_write(&text, s->check[i].msg, strlen(s->check[i].msg) + 1);
  }
  h->text = (uint32_t)text.len;
  stored_table(sb, h, 1, sizeof *h);
  stored_table(sb, w->step, s->nstep, sizeof *w->step);
  stored_table(sb, w->kernel, h->nkernel, sizeof *w->kernel);
  stored_table(sb, s->buf, s->nbuf, sizeof *s->buf);
  stored_table(sb, s->fresh, s->nfresh, sizeof *s->fresh);
  stored_table(sb, s->out, s->nout, sizeof *s->out);
  stored_table(sb, s->slot0, s->nslot, sizeof *s->slot0);
  stored_table(sb, s->sizeop, s->nsizeop, sizeof *s->sizeop);
  stored_table(sb, s->block, s->nblock, sizeof *s->block);
  stored_table(sb, s->written, s->nwritten, sizeof *s->written);
  stored_table(sb, mg_sb_text(&text), text.len, 1);
  for (uint32_t i = 0; i < s->nstep; i++) {
    stored_table(sb, s->step[i].buf, s->step[i].nbuf, sizeof *s->step[i].buf);
    stored_table(sb, s->step[i].in, s->step[i].nin, sizeof *s->step[i].in);
    stored_table(sb, s->step[i].out, s->step[i].nout, sizeof *s->step[i].out);
  }
  if (!mg_sb_ok(&text)) sb->failed = true;
  mg_sb_free(&text);
}

void mg_stored_save(const MgStoredKey *key, MgGraph *g, const MgFused *f, const MgPlanExt *ext,
                    const MgKernelSet *k, const MgPlanSpec *s) {
  StoredWriter w = {.kernel = mg_calloc(s->nstep, sizeof *w.kernel),
                    .step = mg_calloc(s->nstep, sizeof *w.step),
                    .head = {.ninput = s->ninput,
                             .nbuf = s->nbuf,
                             .nstep = s->nstep,
                             .nfresh = s->nfresh,
                             .nout = s->nout,
                             .nslot = s->nslot,
                             .nsizeop = s->nsizeop,
                             .nblock = s->nblock,
                             .ncheck = s->ncheck,
                             .nwritten = s->nwritten,
                             .err = s->err,
                             .arena = s->arena,
                             .bytes_moved = s->bytes_moved,
                             .dynamic = s->dynamic}};
  w.head.made.magic = STORED_MAGIC;
  memcpy(w.head.made.setup, key->setup, sizeof key->setup);
  bool ok = w.kernel && w.step && stored_sound(g->c, g, s); /* what is written can be read */
  for (uint32_t i = 0; ok && i < s->nstep; i++)
    ok = stored_step(&w, &s->step[i], &f->step[i], &ext[i], &k->of_step[i], &w.step[i]);
  if (ok) stored_write(&w, s);
  if (ok && mg_sb_ok(&w.out)) {
    mg_artifact_store(MG_ART_plan, key->key, &(MgObject){w.out.p, w.out.len});
    stored_saved++;
  }
  mg_sb_free(&w.out);
  mg_map_free(&w.index);
  free(w.kernel);
  free(w.step);
}

/* ---- reading ---- */

typedef struct StoredReader {
  MgGraph *g;
  MgCtx *c;
  const MgOptions *o;
  const char *p;
  size_t left;
  const StoredHead *h;
  const StoredStep *step;
  const StoredKernel *kernel;
  MgArtifactFound found;
  MgRangeFn *fn;    /* per kernel */
  MgPlanStep *plan; /* what comes out, per step */
  MgPlanExt *ext;
  MgSched s; /* as much of it as mg_engine_make looks at */
} StoredReader;

/* The next table; NULL: the file ends before it does. */
static const void *stored_take(StoredReader *r, size_t n, size_t size) {
  const char *p = r->p;
  size_t bytes = n * size, padded = bytes + (-bytes) % STORED_ALIGN;
  if (padded > r->left) return NULL;
  r->p += padded;
  r->left -= padded;
  return p;
}

/* The file, in the arena; false: there is none.  Steps' own tables are left to be taken. */
static bool stored_open(StoredReader *r, MgKey key, MgPlanSpec *s) {
  MgObject file;
  const char *text;
  r->found = mg_artifact_find(MG_ART_plan, key, &file);
  if (r->found != MG_AF_loaded) return false;
  r->p = mg_ctx_grow(r->c, file.data, file.len, file.len);
  r->left = file.len;
  free(file.data);
  const StoredHead *h = r->p ? r->h = stored_take(r, 1, sizeof *h) : NULL;
  if (!h) return false;
  bool ok = *(const unsigned char *)&h->dynamic <= 1 &&
            h->ncheck <= h->text / 2; /* two texts of one byte at least */
  MgPlanCheck *check = ok ? mg_new(r->c, MgPlanCheck, h->ncheck + 1) : NULL;
  ok = check && (r->step = stored_take(r, h->nstep, sizeof *r->step)) &&
       (r->kernel = stored_take(r, h->nkernel, sizeof *r->kernel)) &&
       (s->buf = stored_take(r, h->nbuf, sizeof *s->buf)) &&
       (s->fresh = stored_take(r, h->nfresh, sizeof *s->fresh)) &&
       (s->out = stored_take(r, h->nout, sizeof *s->out)) &&
       (s->slot0 = stored_take(r, h->nslot, sizeof *s->slot0)) &&
       (s->sizeop = stored_take(r, h->nsizeop, sizeof *s->sizeop)) &&
       (s->block = stored_take(r, h->nblock, sizeof *s->block)) &&
       (s->written = stored_take(r, h->nwritten, sizeof *s->written)) && (text = stored_take(r, h->text, 1));
  const char *end = ok ? text + h->text : NULL;
  for (uint32_t i = 0; ok && i < 2 * h->ncheck; i++) {
    *(i % 2 ? &check[i / 2].msg : &check[i / 2].type) = text;
    text = memchr(text, 0, (size_t)(end - text));
    ok = text++ != NULL;
  }
  s->check = check;
  s->ninput = h->ninput, s->nbuf = h->nbuf, s->nstep = h->nstep, s->nfresh = h->nfresh, s->nout = h->nout,
  s->nslot = h->nslot;
  s->nsizeop = h->nsizeop, s->nblock = h->nblock, s->ncheck = h->ncheck, s->nwritten = h->nwritten,
  s->err = h->err;
  s->arena = h->arena, s->bytes_moved = h->bytes_moved, s->dynamic = h->dynamic;
  return ok && h->ninput == r->g->ninput && h->nout == r->g->noutput;
}

/* The view that planner_view made v of. */
static bool stored_view(StoredReader *r, const MgPlanSpec *spec, const MgPlanView *v, MgView *out) {
  MgExprs *x = r->g->x;
  *out = (MgView){.buf = v->buf, .dtype = (uint8_t)v->dtype, .ndim = v->ndim};
  if (!v->buf) return true;
  SymRef *dims = mg_new(r->c, SymRef, 2 * v->ndim + 1);
  if (!dims) return false;
  for (int i = 0; i < v->ndim; i++)
    dims[i] = mg_sym(x, spec->slot0[v->size + i]), dims[v->ndim + i] = mg_sym(x, spec->slot0[v->stride + i]);
  out->size = dims;
  out->stride = dims + v->ndim;
  out->offset = mg_sym(x, spec->slot0[v->offset]);
  return mg_exprs_ok(x) == MG_OK;
}

/* Makes the library call of a step again.  false: none where there was one, or another one. */
static bool stored_engine(StoredReader *r, const MgPlanSpec *spec, uint32_t i) {
  const StoredStep *t = &r->step[i];
  const MgPlanStep *d = &r->plan[i];
  MgExtern e = {.node = t->node,
                .nin = t->nin,
                .nout = t->nout,
                .in = mg_new(r->c, MgView, t->nin + 1),
                .out = mg_new(r->c, MgView, t->nout + 1)};
  bool ok = e.in && e.out;
  for (uint32_t k = 0; ok && k < t->nin; k++) ok = stored_view(r, spec, &d->in[k], &e.in[k]);
  for (uint32_t k = 0; ok && k < t->nout; k++) ok = stored_view(r, spec, &d->out[k], &e.out[k]);
  if (!ok) return false;
  MgRc rc = mg_engine_make(&r->s, &e, r->o, &r->ext[i].engine, &r->ext[i].sized);
  if (rc != MG_OK) return rc == MG_UNSUP && r->c->rc == MG_OK && t->kind == PK_host;
  return t->kind == PK_engine && r->ext[i].engine->scratch == t->scratch_bytes;
}

/* What a file says of a step beside the plan's own table. */
static bool stored_step_sound(const StoredReader *r, const MgPlanSpec *s, const StoredStep *t) {
  if (*(const unsigned char *)&t->beside > 1 || *(const unsigned char *)&t->guessed > 1) return false;
  if (t->nfrom > MG_LABEL_NODES) return false;
  for (uint32_t i = 0; i < t->nfrom; i++)
    if (!t->from[i] || t->from[i] >= r->g->nnode) return false;
  if (t->kind == PK_kernel) return t->kernel < r->h->nkernel && (uint64_t)t->sizes + t->nsizes <= s->nslot;
  if (!t->node || t->node >= r->g->nnode || mg_node(r->g, t->node)->dead ||
      t->nout != mg_node(r->g, t->node)->nout)
    return false;
  if (!t->scratch) return !t->scratch_bytes;
  return t->scratch <= s->nblock && s->block[t->scratch - 1].offset <= s->arena &&
         t->scratch_bytes <= s->arena - s->block[t->scratch - 1].offset;
}

/* Takes the steps' own tables; nothing in them is looked at yet. */
static bool stored_steps(StoredReader *r, MgPlanSpec *spec) {
  uint32_t n = r->h->nstep;
  spec->step = r->plan = mg_new(r->c, MgPlanStep, n + 1);
  if (!r->plan) return false;
  for (uint32_t i = 0; i < n; i++) {
    const StoredStep *t = &r->step[i];
    MgPlanStep *d = &r->plan[i];
    if (!stored_step_sound(r, spec, t)) return false;
    *d = (MgPlanStep){.kind = t->kind,
                      .nbuf = t->nbuf,
                      .outer = t->outer,
                      .sizes = t->sizes,
                      .grain = t->grain,
                      .work = t->work,
                      .beside = t->beside,
                      .nin = t->nin,
                      .nout = t->nout,
                      .scratch = t->scratch,
                      .guessed = t->guessed};
    d->buf = stored_take(r, t->nbuf, sizeof *d->buf);
    d->in = stored_take(r, t->nin, sizeof *d->in);
    d->out = stored_take(r, t->nout, sizeof *d->out);
    if (!d->buf || !d->in || !d->out) return false;
    bool kernel = t->kind == PK_kernel;
    const NodeRef *node = kernel ? t->from : &t->node;
    if (mg_label_scope(r->g, node, kernel ? t->nfrom : 1, NULL, NULL, &d->scope) != MG_OK) return false;
    if (!kernel) d->name = mg_node(r->g, t->node)->op->full;
  }
  return !r->left && stored_sound(r->c, r->g, spec);
}

/* Makes the library calls, of steps that are sound. */
static bool stored_engines(StoredReader *r, const MgPlanSpec *spec) {
  r->ext = mg_new(r->c, MgPlanExt, r->h->nstep + 1);
  r->s.buf = mg_new(r->c, MgBuf, spec->nbuf + 1);
  if (!r->ext || !r->s.buf) return false;
  r->s.nbuf = spec->nbuf;
  for (uint32_t b = 1; b < spec->nbuf; b++)
    r->s.buf[b] = (MgBuf){.kind = spec->buf[b].mem == PM_input ? MB_input : MB_temp,
                          .index = (int32_t)spec->buf[b].index};
  for (uint32_t i = 0; i < r->h->nstep; i++) {
    if (r->step[i].kind == PK_kernel) continue;
    if (!stored_engine(r, spec, i)) return false;
    r->plan[i].engine = r->ext[i].engine;
  }
  return true;
}

/* Loads the object that kernel `first` is in, for it and those of the later ones that are in it, too. */
static bool stored_object(StoredReader *r, uint32_t first, MgKernelSet *k) {
  uint32_t n = 0, most = r->h->nkernel - first;
  MgKcPlace *place = mg_new(r->c, MgKcPlace, most);
  MgKey *key = mg_new(r->c, MgKey, most);
  void **fn = mg_new(r->c, void *, most);
  MgCtx own; /* a bad object is no error of the compilation */
  MgCode *code = NULL;
  MgObject object;
  char name[32];
  if (!place || !key || !fn || !mg_artifact_load(MG_ART_object, r->kernel[first].place.object, &object))
    return false;
  mg_ctx_init(&own);
  bool ok = mg_elf_load(&own, object.data, object.len, mg_abi_symbol, &code) == MG_OK;
  free(object.data);
  for (uint32_t i = first; ok && i < r->h->nkernel; i++) {
    if (r->fn[i] || !mg_key_same(r->kernel[i].place.object, r->kernel[first].place.object)) continue;
    snprintf(name, sizeof name, MG_KERNEL_NAME, r->kernel[i].place.number);
    ok = (fn[n] = mg_elf_symbol(code, name)) != NULL;
    r->fn[i] = (MgRangeFn)fn[n];
    place[n] = r->kernel[i].place;
    key[n++] = r->kernel[i].key;
  }
  ok = ok && mg_kcache_add(&own, code, key, fn, place, n, &k->code[k->ncode]) == MG_OK;
  if (ok) k->ncode++;
  else if (code) mg_elf_free(code);
  mg_ctx_free(&own);
  return ok;
}

static bool stored_kernels(StoredReader *r, MgKernelSet *k) {
  uint32_t n = r->h->nkernel;
  r->fn = mg_new(r->c, MgRangeFn, n + 1);
  k->code = mg_new(r->c, MgKcRef, n + 1);
  if (!r->fn || !k->code) return false;
  for (uint32_t i = 0; i < n; i++)
    if ((r->fn[i] = (MgRangeFn)mg_kcache_find(r->kernel[i].key, &k->code[k->ncode]))) k->ncode++;
  for (uint32_t i = 0; i < n; i++)
    if (!r->fn[i] && !stored_object(r, i, k)) return false;
  for (uint32_t i = 0; i < r->h->nstep; i++)
    if (r->step[i].kind == PK_kernel) r->plan[i].fn = r->fn[r->step[i].kernel];
  return true;
}

static void stored_drop(StoredReader *r, MgKernelSet *k) {
  mg_kernels_free(k);
  for (uint32_t i = 0; r->ext && i < r->h->nstep; i++)
    if (r->ext[i].engine) r->ext[i].engine->ops->free(r->ext[i].engine);
}

/* How the circumstances of the plan that lies at `other` differ from these, and in how many things; NULL:
 * that cannot be told. */
static const char *stored_differs(const MgStoredKey *key, MgKey other, MgCtx *c, int *count) {
  MgObject file;
  MgStrbuf sb = {0};
  if (!mg_artifact_load(MG_ART_plan, other, &file)) return NULL;
  const StoredMade *made = file.data;
  bool known = file.len >= sizeof *made && made->magic == STORED_MAGIC;
  for (int i = 0; known && i < MG_STORED_SETUP; i++) {
    if (made->setup[i] == key->setup[i]) continue;
    ++*count;
    mg_sb_printf(&sb, "%s%s", sb.len ? ", " : "", stored_setup[i].what);
    if (!stored_setup[i].digest)
      mg_sb_printf(&sb, ": %lld there, %lld here", (long long)made->setup[i], (long long)key->setup[i]);
  }
  free(file.data);
  const char *text = sb.len && mg_sb_ok(&sb) ? mg_ctx_strdup(c, mg_sb_text(&sb)) : NULL;
  mg_sb_free(&sb);
  return text;
}

/* The plan that differs least. */
static const char *stored_nearest(const MgStoredKey *key, const MgKey *other, uint32_t n, MgCtx *c) {
  const char *best = NULL;
  for (uint32_t i = 0, least = UINT32_MAX; i < n; i++) {
    int count = 0;
    const char *text = stored_differs(key, other[i], c, &count);
    if (text && (uint32_t)count < least) best = text, least = (uint32_t)count;
  }
  return best;
}

MgStoredFate mg_stored_look(const MgStoredKey *key, MgGraph *g, const MgOptions *o, const MgPlanSpec *spec,
                            const char **note) {
  StoredReader r = {.g = g, .c = g->c, .o = o, .s = {.c = g->c, .g = g, .x = g->x}};
  MgPlanSpec s = *spec;
  MgKernelSet none = {0};
  MgKey other[STORED_NEAR];
  *note = NULL;
  bool fits = stored_open(&r, key->key, &s) && stored_steps(&r, &s) && stored_engines(&r, &s);
  if (r.h) stored_drop(&r, &none);
  if (fits) return MG_SF_hit;
  if (r.found == MG_AF_refused) return MG_SF_refused;
  if (r.found == MG_AF_damaged) return MG_SF_damaged;
  if (r.found == MG_AF_loaded) return MG_SF_unfit;
  uint32_t near = mg_artifact_near(MG_ART_plan, key->key, other, STORED_NEAR);
  if (!near) return MG_SF_absent;
  *note = stored_nearest(key, other, near, g->c);
  return MG_SF_other;
}

MgRc mg_stored_load(const MgStoredKey *key, MgGraph *g, const MgOptions *o, MgHostOps *h, MgPlanSpec *spec,
                    MgPlanExt **ext, MgKernelSet *k, bool *found) {
  StoredReader r = {.g = g, .c = g->c, .o = o, .s = {.c = g->c, .g = g, .x = g->x}};
  MgPlanSpec s = *spec;
  *found = false;
  if (!stored_open(&r, key->key, &s) || !stored_steps(&r, &s) || !stored_engines(&r, &s) ||
      !stored_kernels(&r, k)) {
    if (r.h) stored_drop(&r, k);
    return g->c->rc;
  }
  for (uint32_t i = 0; i < s.nstep; i++) {
    if (r.plan[i].kind != PK_host) continue;
    MgRc rc = h->add_call(h->host.self, g, r.step[i].node, &r.ext[i].host_id);
    if (rc != MG_OK) return stored_drop(&r, k), rc;
    r.plan[i].host_id = r.ext[i].host_id;
  }
  s.step = r.plan;
  *spec = s;
  *ext = r.ext;
  *found = true;
  stored_loaded++;
  return MG_OK;
}
