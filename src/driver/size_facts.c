/* See the header. */
#include "driver/size_facts.h"
#include <stdio.h>
#include "runtime/plan/plan_spec.h"

static void sizes_note(MgSizeFacts *f, MgPlanFactKind is, SymRef a, SymRef b) {
  MgExprs *x = f->x;
  for (uint32_t i = 0; i < f->n; i++)
    if (f->fact[i].is == is && f->fact[i].a == a && f->fact[i].b == b) return;
  if (f->n == f->cap) {
    uint32_t cap = f->cap ? 2 * f->cap : 16;
    MgFact *p = mg_ctx_grow(x->c, f->fact, f->n * sizeof *p, cap * sizeof *p);
    if (!p) {
      x->nomem = true;
      return;
    }
    f->fact = p;
    f->cap = cap;
  }
  f->fact[f->n++] = (MgFact){is, a, b};
}

static int sizes_compare(void *of, SymRef a, SymRef b) {
  MgSizeFacts *f = of;
  int64_t p = mg_sym_hint(f->x, a), q = mg_sym_hint(f->x, b);
  sizes_note(f, p < q ? SF_less : p > q ? SF_more : SF_equal, a, b);
  return p < q ? -1 : p > q;
}

/* That a is not less is that b - 1 is. */
static bool sizes_less(void *of, SymRef a, SymRef b) {
  MgSizeFacts *f = of;
  bool less = mg_sym_hint(f->x, a) < mg_sym_hint(f->x, b);
  SymRef below = less ? 0 : mg_sym_sub(f->x, b, mg_sym(f->x, 1));
  if (less) sizes_note(f, SF_less, a, b);
  else if (below) sizes_note(f, SF_less, below, a);
  return less;
}

static bool sizes_equal(void *of, SymRef a, SymRef b) {
  MgSizeFacts *f = of;
  bool same = mg_sym_hint(f->x, a) == mg_sym_hint(f->x, b);
  sizes_note(f, same ? SF_equal : SF_other, a, b);
  return same;
}

static int64_t sizes_value(void *of, SymRef e) {
  MgSizeFacts *f = of;
  int64_t v = mg_sym_hint(f->x, e);
  SymRef k = mg_sym(f->x, v);
  if (k) sizes_note(f, SF_equal, e, k);
  return v;
}

void mg_size_facts_begin(MgSizeFacts *f, MgExprs *x) {
  *f = (MgSizeFacts){.x = x, .ask = {sizes_compare, sizes_equal, sizes_value, NULL, f, sizes_less, true}};
  if (x->nsym) x->ask = &f->ask;
}

void mg_size_facts_end(MgSizeFacts *f) {
  if (f->x) f->x->ask = NULL;
}

void mg_size_facts_print(const MgSizeFacts *f, MgStrbuf *out) {
  static const char *const is[] = {[SF_equal] = "==", [SF_other] = "!=", [SF_less] = "<", [SF_more] = ">"};
  for (uint32_t i = 0; i < f->n; i++) {
    mg_sb_puts(out, "assumes ");
    mg_ex_print(f->x, f->fact[i].a, out);
    mg_sb_printf(out, " %s ", is[f->fact[i].is]);
    mg_ex_print(f->x, f->fact[i].b, out);
    mg_sb_putc(out, '\n');
  }
}
