/* Schedules of loop nests: construction and text.
 * In: a functional graph (mg_sched_init keeps a pointer) and the nests that lowering appends.
 * Out: growing tables in the context's arena; the text of MAGNETO_LOGS=loops.
 * Invariants: buf[0] is unused; items are in program order; nothing here looks into expressions. */
#include "back/kernel/loop_nest.h"
#include "tuning.h"
#include <string.h>

/* Makes room for one more entry of a table whose elements have `size` bytes. */
static MgRc loop_grow(MgCtx *c, void **p, uint32_t n, uint32_t *cap, size_t size) {
  if (n < *cap) return MG_OK;
  uint32_t want = *cap ? *cap * 2 : 16;
  void *q = mg_ctx_grow(c, *p, n * size, want * size);
  TRYP(q);
  *p = q;
  *cap = want;
  return MG_OK;
}

MgRc mg_sched_init(MgSched *s, MgGraph *g) {
  memset(s, 0, sizeof *s);
  s->c = g->c;
  s->g = g;
  s->x = g->x;
  for (int k = 0; k < MG_MAX_IDX; k++)
    mg_ex_set_idx_range(s->x, k, 0); /* another graph's, when it shares expressions */
  TRY(loop_grow(s->c, (void **)&s->buf, s->nbuf, &s->cap_buf, sizeof *s->buf));
  s->nbuf = 1;
  s->nout = g->noutput;
  s->out = mg_new(s->c, MgView, g->noutput ? g->noutput : 1);
  TRYP(s->out);
  return MG_OK;
}

BufRef mg_sched_buf(MgSched *s, MgBufKind kind, MgDtype dtype, SymRef nelem, const char *name) {
  if (loop_grow(s->c, (void **)&s->buf, s->nbuf, &s->cap_buf, sizeof *s->buf) != MG_OK) return 0;
  s->buf[s->nbuf] = (MgBuf){.kind = kind, .dtype = dtype, .index = -1, .nelem = nelem, .name = name};
  return s->nbuf++;
}

static MgItem *sched_item(MgSched *s) {
  if (loop_grow(s->c, (void **)&s->item, s->nitem, &s->cap_item, sizeof *s->item) != MG_OK) return NULL;
  return &s->item[s->nitem++];
}

MgLoop *mg_sched_loop(MgSched *s, MgLoopKind kind, NodeRef node) {
  MgLoop *l = mg_new(s->c, MgLoop, 1);
  MgItem *it = l ? sched_item(s) : NULL;
  if (!it) return NULL;
  l->kind = kind;
  l->node = node;
  it->kind = MI_loop;
  it->u.loop = l;
  return l;
}

MgExtern *mg_sched_extern(MgSched *s, NodeRef node, int nin, int nout) {
  MgExtern *e = mg_new(s->c, MgExtern, 1);
  if (!e) return NULL;
  e->node = node;
  e->nin = (uint32_t)nin;
  e->nout = (uint32_t)nout;
  e->in = mg_new(s->c, MgView, nin ? nin : 1);
  e->out = mg_new(s->c, MgView, nout ? nout : 1);
  MgItem *it = e->in && e->out ? sched_item(s) : NULL;
  if (!it) return NULL;
  it->kind = MI_extern;
  it->u.ext = e;
  return e;
}

MgRc mg_sched_check(MgSched *s, NodeRef node, const char *type, const char *msg, uint32_t *cell) {
  if (!s->err) {
    s->err = mg_sched_buf(s, MB_error, DT_i32, 0, "err");
    TRYP(s->err);
  }
  TRY(loop_grow(s->c, (void **)&s->check, s->ncheck, &s->cap_check, sizeof *s->check));
  s->check[s->ncheck] = (MgCheck){.node = node, .type = type, .msg = msg};
  *cell = s->ncheck++;
  s->buf[s->err].nelem = mg_sym(s->x, s->ncheck);
  return MG_OK;
}

MgRc mg_sched_number(MgSched *s, BufRef buf, ExprRef value) {
  TRY(loop_grow(s->c, (void **)&s->number, s->nnumber, &s->cap_number, sizeof *s->number));
  s->buf[buf].kind = MB_number;
  s->number[s->nnumber++] = (MgNumber){buf, value};
  return MG_OK;
}

bool mg_index_turned(MgExprs *x, ExprRef index, int last) {
  ExprRef coef, rest;
  int64_t far;
  if (!mg_ex_linear(x, index, last, &coef, &rest) || !mg_ex_const_int(x, coef, &far) ||
      far < MG_TUNE_GPU_JUMP)
    return false;
  for (int d = 0; d < last; d++)
    if (mg_ex_linear(x, index, d, &coef, &rest) && mg_sym_is(x, coef, 1)) return true;
  return false;
}

MgRc mg_sched_size(MgSched *s, SymRef e) {
  TRY(loop_grow(s->c, (void **)&s->size, s->nsize, &s->cap_size, sizeof *s->size));
  s->size[s->nsize++] = e;
  return MG_OK;
}

ExprRef mg_view_index(MgExprs *x, const MgView *v, const ExprRef *at) {
  ExprRef i = v->offset;
  for (int d = 0; d < v->ndim; d++) i = mg_sym_add(x, i, mg_sym_mul(x, at[d], v->stride[d]));
  return i;
}

SymRef mg_view_extent(MgExprs *x, const MgView *v) {
  SymRef n = mg_sym_add(x, v->offset, mg_sym(x, 1)), numel = mg_sym(x, 1);
  for (int d = 0; d < v->ndim; d++) {
    n = mg_sym_add(x, n, mg_sym_mul(x, mg_sym_sub(x, v->size[d], mg_sym(x, 1)), v->stride[d]));
    numel = mg_sym_mul(x, numel, v->size[d]);
  }
  return mg_sym_is(x, numel, 0) ? numel : n;
}

/* ---- text
 * ---------------------------------------------------------------------------------------------------- */

static const char *const buf_kind[] = {"input", "temp", "output", "extern", "number", "local", "error"};
static const char *const loop_kind[] = {"point", "reduce", "scan", "scatter"};
static const char *const red_name[] = {"sum", "prod", "max",    "min",    "any",
                                       "all", "xor",  "argmax", "argmin", "argpool"};
static const char *const mode_name[] = {"=", "+=", "max=", "min=", "*="};

static void print_dims(const MgExprs *x, const SymRef *v, int n, MgStrbuf *out) {
  for (int i = 0; i < n; i++) {
    if (i) mg_sb_putc(out, ',');
    mg_ex_print(x, v[i], out);
  }
}

/* b3 f32[4,8]{8,1}+16 */
static void print_view(const MgSched *s, const MgView *v, MgStrbuf *out) {
  if (!v->buf) {
    mg_sb_puts(out, "None");
    return;
  }
  mg_sb_printf(out, "b%u %s[", v->buf, mg_dtype_name(v->dtype));
  print_dims(s->x, v->size, v->ndim, out);
  mg_sb_puts(out, "]{");
  print_dims(s->x, v->stride, v->ndim, out);
  mg_sb_putc(out, '}');
  if (v->offset && !mg_sym_is(s->x, v->offset, 0)) {
    mg_sb_putc(out, '+');
    mg_ex_print(s->x, v->offset, out);
  }
}

static const char *node_name(const MgSched *s, NodeRef n) {
  return n && n < s->g->nnode && s->g->node[n].op ? s->g->node[n].op->full : "";
}

void mg_loop_print(const MgSched *s, const MgLoop *l, MgStrbuf *out) {
  mg_sb_puts(out, loop_kind[l->kind]);
  if (l->kind == ML_reduce || l->kind == ML_scan) mg_sb_printf(out, " %s", red_name[l->red_op]);
  mg_sb_puts(out, " [");
  print_dims(s->x, l->range, l->nouter, out);
  if (l->nred) {
    mg_sb_puts(out, " | ");
    print_dims(s->x, l->range + l->nouter, l->nred, out);
  }
  mg_sb_printf(out, "] b%u[", l->buf);
  mg_ex_print(s->x, l->index, out);
  mg_sb_printf(out, "] %s ", mode_name[l->mode]);
  mg_ex_print(s->x, l->value, out);
  if (l->body) {
    mg_sb_puts(out, " over ");
    mg_ex_print(s->x, l->body, out);
  }
  if (l->mask) {
    mg_sb_puts(out, " if ");
    mg_ex_print(s->x, l->mask, out);
  }
  if (l->node) mg_sb_printf(out, "    # %s", node_name(s, l->node));
  mg_sb_putc(out, '\n');
}

static void print_extern(const MgSched *s, const MgExtern *e, MgStrbuf *out) {
  mg_sb_printf(out, "extern %s(", node_name(s, e->node));
  for (int i = 0; i < e->nin; i++) {
    if (i) mg_sb_puts(out, ", ");
    print_view(s, &e->in[i], out);
  }
  mg_sb_puts(out, e->prealloc ? ") into " : ") -> ");
  for (int i = 0; i < e->nout; i++) {
    if (i) mg_sb_puts(out, ", ");
    print_view(s, &e->out[i], out);
  }
  mg_sb_putc(out, '\n');
}

void mg_sched_print(const MgSched *s, MgStrbuf *out) {
  for (uint32_t i = 1; i < s->nbuf; i++) {
    const MgBuf *b = &s->buf[i];
    mg_sb_printf(out, "buf b%u %s", i, buf_kind[b->kind]);
    if (b->index >= 0) mg_sb_printf(out, " %d", b->index);
    mg_sb_printf(out, " %s[", mg_dtype_name(b->dtype));
    mg_ex_print(s->x, b->nelem, out);
    mg_sb_puts(out, b->device == DEV_cuda ? "] cuda" : "]");
    if (b->name) mg_sb_printf(out, " %s", b->name);
    mg_sb_putc(out, '\n');
  }
  for (uint32_t i = 0; i < s->nitem; i++) {
    if (s->item[i].kind == MI_loop) mg_loop_print(s, s->item[i].u.loop, out);
    else print_extern(s, s->item[i].u.ext, out);
  }
  for (uint32_t i = 0; i < s->ncheck; i++)
    mg_sb_printf(out, "check %u: %s(\"%s\")    # %s\n", i, s->check[i].type, s->check[i].msg,
                 node_name(s, s->check[i].node));
  for (uint32_t i = 0; i < s->nout; i++) {
    mg_sb_printf(out, "return %u: ", i);
    if (s->out[i].buf) print_view(s, &s->out[i], out);
    else if (s->g->out_alias && s->g->out_alias[i].of_input >= 0)
      mg_sb_printf(out, "alias of input %d", s->g->out_alias[i].of_input);
    else if (s->g->out_alias && s->g->out_alias[i].of_output >= 0)
      mg_sb_printf(out, "alias of output %d", s->g->out_alias[i].of_output);
    mg_sb_putc(out, '\n');
  }
}

void mg_fused_print(const MgSched *s, const MgFused *f, MgStrbuf *out) {
  for (uint32_t i = 0; i < f->nstep; i++) {
    const MgStepIR *t = &f->step[i];
    if (t->kind == MS_extern) {
      mg_sb_printf(out, "step %u: %s\n", i, mg_node(s->g, t->u.ext->node)->op->full);
      continue;
    }
    mg_sb_printf(out, "step %u: kernel of %u nests\n", i, t->u.kernel->nloop);
    for (uint32_t n = 0; n < t->u.kernel->nloop; n++) mg_loop_print(s, t->u.kernel->loop[n], out);
  }
}
