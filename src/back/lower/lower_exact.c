/* Which pointwise nodes may become loops when eager's bits are asked for.
 * In: a node that has a lowering.  Out: whether its loops give eager's bits, by lower_exact.def.
 * Invariant: without that option nothing is asked. */
#include "back/lower/lower_priv.h"
#include <math.h>
#include <string.h>

enum { D = 1, S = 2, B = 4, H = 8, I = 16, ALL = 31, V = 32 };

typedef unsigned (*ExactAsk)(const MgGraph *g, const MgNode *n, unsigned types);

/* The number that the argument is; NAN: it is a tensor, or not known yet. */
static double exact_number(const MgGraph *g, const MgNode *n, const char *name) {
  const MgArg *a = mg_node_arg(n, name);
  int64_t i;
  if (!a) return NAN;
  if (a->tag == MA_float) return a->u.f;
  if (a->tag == MA_bool) return a->u.b;
  return a->tag == MA_int && mg_ex_const_int(g->x, a->u.sym, &i) ? (double)i : NAN;
}

/* Sums with a factor are rounded twice or once, as eager's vectors are wide. */
static unsigned ask_alpha(const MgGraph *g, const MgNode *n, unsigned types) {
  const MgArg *alpha = mg_node_arg(n, "alpha");
  bool one = !alpha || alpha->tag == MA_none || exact_number(g, n, "alpha") == 1;
  return one ? types : types & ~(unsigned)(B | H);
}

static unsigned ask_square(const MgGraph *g, const MgNode *n, unsigned types) {
  double e = exact_number(g, n, "exponent");
  return e == 1 || e == 2 ? ALL : types;
}

/* Sums over elements are added up in an order of their own anyway. */
static unsigned ask_loss(const MgGraph *g, const MgNode *n, unsigned types) {
  enum { NONE };
  const MgArg *a = mg_node_arg(n, "reduction");
  int64_t reduction;
  bool known = a && a->tag == MA_int && mg_ex_const_int(g->x, a->u.sym, &reduction);
  return known && reduction == NONE ? types : ALL;
}

static const struct ExactRow {
  const char *name;
  unsigned types;
  ExactAsk ask;
} exact_rows[] = {
#define ask_0 NULL
#define EXACT(name, types, ask) {name, types, ask_##ask},
#include "back/lower/lower_exact.def"
#undef ask_0
};

static const struct ExactRow *exact_row(const char *full) {
  const char *name = full + strlen("aten::");
  for (size_t i = 0; i < sizeof exact_rows / sizeof *exact_rows; i++) {
    const char *row = exact_rows[i].name;
    size_t len = strlen(row);
    if (!strncmp(name, row, len) && (!name[len] || (name[len] == '.' && !strchr(row, '.'))))
      return &exact_rows[i];
  }
  return NULL;
}

static unsigned exact_bit(MgDtype d) {
  switch (d) {
  case DT_f64: return D;
  case DT_f32: return S;
  case DT_bf16: return B;
  case DT_f16: return H;
  default: return I;
  }
}

typedef struct ExactType {
  const MgGraph *g;
  unsigned bit; /* of the widest float so far; 0: none */
} ExactType;

static void exact_operand(ValRef *v, void *arg) {
  ExactType *t = arg;
  unsigned bit = *v ? exact_bit((MgDtype)mg_val(t->g, *v)->dtype) : I;
  if (bit != I && (!t->bit || bit < t->bit)) t->bit = bit;
}

static unsigned exact_type(const MgGraph *g, const MgNode *n) {
  ExactType t = {g, 0};
  unsigned result = exact_bit((MgDtype)mg_val(g, n->out[0])->dtype);
  if (result != I) return result;
  mg_node_each_val((MgNode *)n, exact_operand, &t);
  return t.bit ? t.bit : I;
}

bool lw_exact(const MgGraph *g, const MgNode *n, const LwRow *r) {
  bool apart = !strcmp(r->name, "aten::glu") || !strcmp(r->name, "aten::log_sigmoid_forward");
  if (g->x->numerics != MN_eager || (!r->expr && !apart)) return true;
  const struct ExactRow *row = exact_row(r->name);
  if (!row || !n->out[0] || (row->types & V && !g->x->sleef)) return false;
  return exact_type(g, n) & (row->ask ? row->ask(g, n, row->types) : row->types);
}
