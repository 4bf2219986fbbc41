/* Programs for numbers of the CPU.  See the header.
 * Each op gives one cell.  First come the addresses of inputs, which plans fill in. */
#include "driver/numbers.h"
#include <string.h>

typedef enum NumberKind { NK_const, NK_load, NK_convert, NK_bits, NK_where, NK_op, NK_store } NumberKind;

typedef struct NumberOp {
  uint8_t kind;    /* NumberKind */
  uint8_t ty;      /* MgTy of the result */
  uint8_t from;    /* MgTy of the operands */
  uint16_t op;     /* NK_op: MgScalarOp */
  uint32_t src[3]; /* cells */
  MgScalar value;  /* NK_const; NK_load: i is the number of the element */
} NumberOp;

typedef struct NumberProgram {
  uint32_t first, n; /* the cell of op[0]; ops */
  NumberOp op[];
} NumberProgram;

typedef struct Numbers { /* a program being made */
  const MgSched *s;
  const MgPlanBuf *buf;
  NumberOp *op;
  uint32_t n, cap;
  uint32_t *cell;        /* per expression: its cell, or 0 */
  uint32_t *input;       /* inputs that are read */
  uint32_t ninput, most; /* most: cells before those of the ops */
  MgRc rc;
} Numbers;

/* ---- running ---- */

static MgScalar number_load(const NumberOp *o, const uint64_t *cell) {
  const char *base = (const char *)(uintptr_t)cell[o->src[0]];
  size_t bytes = mg_ty_size((MgTy)o->ty);
  uint64_t bits = 0;
  memcpy(&bits, base + o->value.i * (int64_t)bytes, bytes);
  return mg_scalar_from_bits((MgTy)o->ty, bits);
}

static MgScalar number_apply(const NumberOp *o, const MgScalar *a) {
  MgScalar v = {0};
  switch ((NumberKind)o->kind) {
  case NK_const: return o->value;
  case NK_convert: return mg_scalar_cvt((MgTy)o->ty, (MgTy)o->from, a[0]);
  case NK_bits: return mg_scalar_from_bits((MgTy)o->ty, mg_scalar_bits((MgTy)o->from, a[0]));
  case NK_where: return a[0].i ? a[1] : a[2];
  case NK_op: mg_scalar_eval((MgScalarOp)o->op, (MgTy)o->from, a[0], a[1], a[2], &v); return v;
  case NK_store: v.i = (int64_t)mg_scalar_bits((MgTy)o->from, a[0]); return v;
  case NK_load: break;
  }
  return v;
}

static void number_run(const void *program, uint64_t *cell) {
  const NumberProgram *p = program;
  for (uint32_t i = 0; i < p->n; i++) {
    const NumberOp *o = &p->op[i];
    MgScalar a[3], v;
    for (int k = 0; k < 3; k++) memcpy(&a[k], &cell[o->src[k]], sizeof a[k]);
    v = o->kind == NK_load ? number_load(o, cell) : number_apply(o, a);
    memcpy(&cell[p->first + i], &v, sizeof v);
  }
}

/* ---- making ---- */

static uint32_t number_add(Numbers *b, NumberOp op) {
  if (b->n == b->cap) {
    uint32_t cap = b->cap * 2 + 64;
    b->op = mg_ctx_grow(b->s->c, b->op, sizeof *b->op * b->n, sizeof *b->op * cap);
    if (!b->op) return b->rc = MG_NOMEM, 0;
    b->cap = cap;
  }
  b->op[b->n++] = op;
  return b->n - 1 + b->most;
}

/* The cell with the address of an input. */
static uint32_t number_input(Numbers *b, uint32_t input) {
  uint32_t i = 0;
  while (i < b->ninput && b->input[i] != input) i++;
  if (i == b->ninput) b->input[b->ninput++] = input;
  return i;
}

/* The cell with what a load gives: an element of an input, or an earlier number, whose value is in front of
 * its stored bits. */
static uint32_t number_of_load(Numbers *b, const MgExpr *n) {
  BufRef from = (BufRef)n->u.i;
  int64_t at = 0;
  if (b->s->buf[from].kind == MB_number) return b->buf[from].index - 1;
  mg_ex_const_int(b->s->x, n->src[0], &at);
  uint32_t input = number_input(b, (uint32_t)b->s->buf[from].index);
  return number_add(b, (NumberOp){.kind = NK_load, .ty = n->ty, .src = {input}, .value.i = at});
}

static bool number_see(const MgExprs *x, ExprRef e, void *arg) {
  Numbers *b = arg;
  const MgExpr *n = mg_expr(x, e);
  NumberOp o = {.ty = n->ty};
  if (b->cell[e]) return false;
  for (int i = 0; i < n->nsrc; i++) o.src[i] = b->cell[n->src[i]];
  o.from = n->nsrc ? mg_expr(x, n->src[0])->ty : n->ty;
  switch (n->op) {
  case OP_const:
    o.kind = NK_const;
    if (mg_ty_is_float(n->ty)) o.value.f = n->u.f;
    else o.value.i = n->u.i;
    break;
  case OP_load: b->cell[e] = number_of_load(b, n); return b->rc != MG_OK;
  case OP_cvt: o.kind = NK_convert; break;
  case OP_bitcast: o.kind = NK_bits; break;
  case OP_where: o.kind = NK_where; break;
  default: o.kind = NK_op, o.op = n->op; break;
  }
  b->cell[e] = number_add(b, o);
  return b->rc != MG_OK;
}

MgRc mg_numbers_program(const MgSched *s, MgPlanBuf *buf, MgPlanNumbers *out) {
  Numbers b = {.s = s, .buf = buf, .most = s->g->ninput + 1};
  *out = (MgPlanNumbers){0};
  if (!s->nnumber) return MG_OK;
  b.cell = mg_new(s->c, uint32_t, s->x->n);
  b.input = mg_new(s->c, uint32_t, s->g->ninput + 1);
  TRYP(b.cell && b.input);
  for (uint32_t i = 0; i < s->nnumber; i++) {
    const MgNumber *n = &s->number[i];
    mg_ex_any(s->x, n->value, number_see, &b);
    TRY(b.rc);
    MgTy ty = mg_dtype_ty((MgDtype)s->buf[n->buf].dtype), from = mg_expr(s->x, n->value)->ty;
    NumberOp convert = {.kind = NK_convert, .ty = ty, .from = from, .src = {b.cell[n->value]}};
    NumberOp store = {.kind = NK_store, .ty = ty, .from = ty, .src = {number_add(&b, convert)}};
    buf[n->buf].index = number_add(&b, store);
    TRY(b.rc);
  }
  size_t bytes = sizeof(NumberProgram) + sizeof *b.op * b.n;
  NumberProgram *p = mg_ctx_grow(s->c, NULL, 0, bytes);
  TRYP(p);
  p->first = b.most;
  p->n = b.n;
  memcpy(p->op, b.op, sizeof *b.op * b.n);
  *out = (MgPlanNumbers){.run = number_run,
                         .program = p,
                         .bytes = bytes,
                         .ncell = b.most + b.n,
                         .input = b.input,
                         .ninput = b.ninput};
  return MG_OK;
}
