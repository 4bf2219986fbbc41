/* Records of compilations.  See the header.
 * In: graphs, schedules, kernels and memory while they exist.  Out: copies that outlive them. */
#include "driver/plan_record.h"
#include <stdlib.h>
#include <string.h>
#include "back/kernel/back.h"
#include "driver/compile.h"
#include "driver/kernel/kernel_work.h"
#include "driver/kernel/kernels.h"
#include "driver/kernel/label.h"
#include "driver/planner.h"
#include "middle/partition.h"
#include "runtime/engine/engine.h"
#include "runtime/process/measure.h"

const char *const mg_stage_names[] = {
#define STAGE(name) #name,
#include "stages.def"
    NULL};

static MgPlanRecord *record_newest;

MgPlanRecord *mg_record_new(long number, const char *what, const MgHostOps *h) {
  MgPlanRecord *r = mg_measure_on ? mg_calloc(1, sizeof *r) : NULL;
  if (!r) return NULL;
  mg_ctx_init(&r->mem);
  r->number = number;
  r->begun = mg_ticks();
  r->what = what;
  r->recording = h ? h->recording : 0;
  r->label = mg_ctx_strdup(&r->mem, h && h->label ? h->label : "");
  return r;
}

static void record_free(MgPlanRecord *r) {
  mg_plan_times_drop(r->times);
  mg_ctx_free(&r->mem);
  free(r);
}

void mg_record_stage(MgPlanRecord *r, unsigned stage, double ms) {
  if (r && stage < MG_RECORD_STAGES) r->stage_ms[stage] += ms;
}

void mg_record_stored(MgPlanRecord *r, const char *fate, const char *note) {
  if (!r) return;
  r->stored = fate;
  r->stored_note = note ? mg_ctx_strdup(&r->mem, note) : NULL;
}

/* A copy of the buffer's text, which is emptied. */
static const char *record_text(MgPlanRecord *r, MgStrbuf *sb) {
  const char *text = mg_sb_ok(sb) ? mg_ctx_strdup(&r->mem, mg_sb_text(sb)) : NULL;
  mg_sb_free(sb);
  *sb = (MgStrbuf){0};
  return text;
}

/* ---- graphs ---- */

typedef struct RecordInputs {
  const MgGraph *g;
  uint32_t *to, n;
} RecordInputs;

static void record_input(ValRef *v, void *arg) {
  RecordInputs *i = arg;
  if (!*v || mg_val(i->g, *v)->def) return;
  if (i->to) i->to[i->n] = mg_val(i->g, *v)->out;
  i->n++;
}

static void record_node(MgPlanRecord *r, const MgGraph *g, NodeRef k, MgNodeRecord *to) {
  const MgNode *n = mg_node(g, k);
  MgNode copy = *n;
  RecordInputs in = {.g = g};
  to->op = mg_ctx_strdup(&r->mem, n->op->full);
  to->file = n->file;
  to->line = n->line;
  to->backward = n->backward;
  to->view = n->op->is_view;
  mg_node_each_val(&copy, record_input, &in);
  in.to = to->input = in.n ? mg_new(&r->mem, uint32_t, in.n) : NULL;
  to->ninput = in.to ? in.n : 0;
  in.n = 0;
  if (in.to) mg_node_each_val(&copy, record_input, &in);
}

void mg_record_graph(MgPlanRecord *r, MgGraphRecord *to, const MgGraph *g) {
  if (!r) return;
  MgStrbuf sb = {0};
  size_t *at = mg_new(&r->mem, size_t, g->nnode + 1);
  MgNodeRecord *node = mg_new(&r->mem, MgNodeRecord, g->nnode + 1);
  if (!at || !node) return;
  mg_graph_print_at(g, &sb, at);
  const char *text = record_text(r, &sb);
  if (!text) return;
  for (NodeRef k = 1; k < g->nnode; k++) {
    if (mg_node(g, k)->dead) continue;
    record_node(r, g, k, &node[k]);
    node[k].text = text + at[k];
  }
  *to = (MgGraphRecord){text, node, g->nnode};
}

static uint64_t record_bytes(const MgGraph *g, ValRef v) {
  const MgVal *val = mg_val(g, v);
  int64_t n = mg_dtype_size((MgDtype)val->dtype);
  for (int k = 0; k < val->ndim; k++) n *= mg_sym_hint(g->x, val->size[k]);
  return n > 0 ? (uint64_t)n : 0;
}

typedef struct RecordUses {
  const MgGraph *g;
  uint32_t *of; /* by storage: its block, counted from 1 */
  MgBlockRecord *block;
  NodeRef now;
} RecordUses;

static void record_use(ValRef *v, void *arg) {
  RecordUses *u = arg;
  uint32_t i = *v ? u->of[mg_val(u->g, *v)->storage] : 0;
  if (i) u->block[i - 1].last = u->now;
}

/* Memory as eager has it, if nothing is kept after its last use: what is computed stays to the end of the
 * graph if it is a result. */
static void record_eager(MgPlanRecord *r, const MgGraph *g) {
  uint32_t nstorage = 1, n = 0;
  for (ValRef v = 1; v < g->nval; v++)
    if (mg_val(g, v)->storage >= nstorage) nstorage = mg_val(g, v)->storage + 1;
  RecordUses u = {.g = g, .of = mg_new(g->c, uint32_t, nstorage)};
  bool *given = mg_new(g->c, bool, nstorage);
  u.block = mg_new(&r->mem, MgBlockRecord, g->nval + 1);
  if (!u.of || !given || !u.block) return;
  for (uint32_t i = 0; i < g->ninput; i++) given[mg_val(g, g->input[i])->storage] = true;
  for (u.now = 1; u.now < g->nnode; u.now++) {
    MgNode node = *mg_node(g, u.now);
    if (node.dead) continue;
    for (uint32_t i = 0; i < node.nout; i++) {
      const MgVal *val = node.out[i] ? mg_val(g, node.out[i]) : NULL;
      if (!val || u.of[val->storage] || given[val->storage]) continue;
      u.block[n] = (MgBlockRecord){0, record_bytes(g, node.out[i]), u.now, u.now, u.now};
      u.of[val->storage] = ++n;
    }
    mg_node_each_val(&node, record_use, &u);
  }
  for (uint32_t i = 0; i < g->noutput; i++) record_use(&g->output[i], &u);
  r->eager = u.block;
  r->neager = n;
}

void mg_record_recorded(MgPlanRecord *r, const MgGraph *g) {
  if (!r) return;
  mg_record_graph(r, &r->recorded, g);
  record_eager(r, g);
}

static const char *record_type(MgPlanRecord *r, const MgGraph *g, ValRef v) {
  MgStrbuf sb = {0};
  const MgVal *val = mg_val(g, v);
  mg_sb_printf(&sb, "%s[", mg_dtype_name((MgDtype)val->dtype));
  for (int k = 0; k < val->ndim; k++) {
    if (k) mg_sb_puts(&sb, ", ");
    mg_ex_print(g->x, val->size[k], &sb);
  }
  mg_sb_putc(&sb, ']');
  return record_text(r, &sb);
}

void mg_record_saved(MgPlanRecord *r, const MgGraph *joint, const MgJoint *j) {
  if (!r || !(r->saved = mg_new(&r->mem, MgSavedRecord, j->nsaved + 1))) return;
  for (uint32_t i = 0; i < j->nsaved; i++) {
    ValRef v = j->bwd.input[i]; /* values of both halves have the numbers of the joint graph */
    NodeRef def = mg_val(joint, v)->def;
    const MgNode *n = def ? mg_node(joint, def) : NULL;
    r->saved[i] = (MgSavedRecord){.kind = j->saved[i].kind,
                                  .index = j->saved[i].index,
                                  .node = def,
                                  .op = n ? mg_ctx_strdup(&r->mem, n->op->full) : NULL,
                                  .type = record_type(r, joint, v),
                                  .file = n ? n->file : NULL,
                                  .line = n ? n->line : 0,
                                  .bytes = record_bytes(joint, v)};
  }
  r->nsaved = j->nsaved;
  r->saved_bytes = j->saved_bytes;
}

void mg_record_symbols(MgPlanRecord *r, const MgGraph *g, const char *facts) {
  if (!r) return;
  MgStrbuf sb = {0};
  for (uint32_t i = 0; i < g->x->nsym; i++) {
    const MgSymbol *s = &g->x->sym[i];
    mg_sb_printf(&sb, "s%u = %lld in [%lld, %lld]\n", i, (long long)s->hint, (long long)s->lo,
                 (long long)s->hi);
  }
  r->symbols = record_text(r, &sb);
  r->facts = mg_ctx_strdup(&r->mem, facts);
}

/* ---- steps ---- */

static void record_kernel(MgPlanRecord *r, const MgSched *s, const MgFused *f, uint32_t i,
                          const MgKernelCode *code) {
  enum { MOST = 256 };
  const MgKernel *k = f->step[i].u.kernel;
  MgStepRecord *to = &r->step[i];
  MgStrbuf sb = {0};
  MgWork work = {0};
  NodeRef *node = mg_new(&r->mem, NodeRef, MOST);
  if (!node || mg_kernel_work(s, k, &work) != MG_OK) return;
  to->runs = "kernel";
  to->node = node;
  to->nnode = mg_label_nodes(k, node, MOST);
  to->label = mg_ctx_strdup(&r->mem, mg_label_text(s->g, node, to->nnode));
  to->bytes = work.bytes;
  to->flops = work.flops;
  for (uint32_t n = 0; n < k->nloop; n++) mg_loop_print(s, k->loop[n], &sb);
  to->loops = record_text(r, &sb);
  to->code = code->text ? mg_ctx_strdup(&r->mem, code->text) : NULL;
  to->key = code->key;
  to->origin = code->origin;
  to->apart = k->apart;
  to->apart_from = k->apart_from;
}

static void record_extern(MgPlanRecord *r, const MgSched *s, const MgExtern *e, const MgPlanExt *ext,
                          MgStepRecord *to) {
  NodeRef *node = mg_new(&r->mem, NodeRef, 1);
  MgWork work;
  if (!node) return;
  *node = e->node;
  mg_extern_work(s, e, &work);
  to->runs = ext->engine ? ext->engine->ops->name : "host";
  to->op = mg_ctx_strdup(&r->mem, mg_node(s->g, e->node)->op->full);
  to->node = node;
  to->nnode = 1;
  to->label = mg_ctx_strdup(&r->mem, mg_label_text(s->g, node, 1));
  to->bytes = work.bytes;
  to->flops = work.flops;
  to->apart_from = -1;
}

/* Per buffer: the node whose value is put there first. */
static NodeRef *record_writers(const MgSched *s, const MgFused *f) {
  NodeRef *by = mg_new(s->c, NodeRef, s->nbuf);
  for (uint32_t i = 0; by && i < f->nstep; i++) {
    const MgKernel *k = f->step[i].kind == MS_kernel ? f->step[i].u.kernel : NULL;
    const MgExtern *e = k ? NULL : f->step[i].u.ext;
    for (uint32_t n = 0; k && n < k->nloop; n++)
      if (!by[k->loop[n]->buf]) by[k->loop[n]->buf] = k->loop[n]->node;
    for (uint32_t n = 0; e && n < e->nout; n++)
      if (!by[e->out[n].buf]) by[e->out[n].buf] = e->node;
  }
  return by;
}

static void record_memory(MgPlanRecord *r, const MgSched *s, const MgFused *f, const MgMemPlan *m) {
  NodeRef *by = record_writers(s, f);
  MgBlockRecord *block = mg_new(&r->mem, MgBlockRecord, m->nblock + 1);
  if (!by || !block) return;
  for (uint32_t i = 0; i < m->nblock; i++) {
    const MgMemBlock *b = &m->block[i];
    int64_t bytes = b->bytes ? mg_sym_hint(s->x, b->bytes) : 0;
    block[i] = (MgBlockRecord){m->dynamic ? 0 : b->offset, (uint64_t)bytes, b->first, b->last, 0};
  }
  for (BufRef b = 1; b < s->nbuf; b++) {
    int64_t bytes = mg_sym_hint(s->x, s->buf[b].nelem) * mg_dtype_size((MgDtype)s->buf[b].dtype);
    if (s->buf[b].kind == MB_input) r->input_bytes += (uint64_t)bytes;
    if (s->buf[b].kind == MB_output || s->buf[b].kind == MB_extern_out) r->output_bytes += (uint64_t)bytes;
    if (m->of_buf[b] && !block[m->of_buf[b] - 1].node) block[m->of_buf[b] - 1].node = by[b];
  }
  r->block = block;
  r->nblock = m->nblock;
  r->arena = m->bytes;
  r->dynamic = m->dynamic;
}

void mg_record_steps(MgPlanRecord *r, const MgSched *s, const MgFused *f, const MgMemPlan *m,
                     const MgPlanExt *ext, const MgKernelSet *k) {
  if (!r || !(r->step = mg_new(&r->mem, MgStepRecord, f->nstep + 1))) return;
  r->nstep = f->nstep;
  r->emit_ms = k->emit_ms;
  r->llvm_ms = k->llvm_ms;
  r->load_ms = k->load_ms;
  r->ncompiled = k->ncompiled;
  for (uint32_t i = 0; i < f->nstep; i++) {
    if (f->step[i].kind == MS_kernel) record_kernel(r, s, f, i, &k->of_step[i]);
    else record_extern(r, s, f->step[i].u.ext, &ext[i], &r->step[i]);
  }
  record_memory(r, s, f, m);
  r->cuda = k->gpu;
  r->times = mg_plan_times_new(f->nstep);
}

/* ---- all of them ---- */

void mg_record_end(MgPlanRecord *r, double ms, const char *failed) {
  if (!r) return;
  r->ms = ms;
  if (failed) r->failed = mg_ctx_strdup(&r->mem, failed);
  r->next = record_newest;
  record_newest = r;
}

const MgPlanRecord *mg_records(void) { return record_newest; }

void mg_records_reset(void) {
  while (record_newest) {
    MgPlanRecord *r = record_newest;
    record_newest = r->next;
    record_free(r);
  }
}
