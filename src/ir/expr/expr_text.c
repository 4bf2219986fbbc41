/* Text of expressions.
 *   3  3:i32  true  1.5:f32  inf:f32  nan:f32     constants (a bare integer is i64)
 *   s0  i0  red:f32                               symbol, loop index, reduced value
 *   load:f32(b3, index[, mask, other])            load of buffer 3
 *   cvt:f32(a)  bitcast:i32(a)  rand:0(seed, index)
 *   add(a, b)  where(p, a, b)                     every other row by its name */
#include "ir/expr/expr_priv.h"
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void print_const(const MgExpr *e, MgStrbuf *out) {
  if (e->ty == TY_i1) mg_sb_puts(out, e->u.i ? "true" : "false");
  else if (e->ty == TY_i64) mg_sb_printf(out, "%lld", (long long)e->u.i);
  else if (!mg_ty_is_float(e->ty)) mg_sb_printf(out, "%lld:%s", (long long)e->u.i, mg_ty_name(e->ty));
  else if (isnan(e->u.f)) mg_sb_printf(out, "nan:%s", mg_ty_name(e->ty));
  else mg_sb_printf(out, "%.*g:%s", e->ty == TY_f64 ? 17 : 9, e->u.f, mg_ty_name(e->ty));
}

enum { PRINT_NODES = 10000 };

static void print_node(const MgExprs *x, ExprRef r, MgStrbuf *out, int *left) {
  const MgExpr *e = mg_expr(x, r);
  if (--*left < 0) {
    mg_sb_puts(out, "...");
    return;
  }
  switch (e->op) {
  case OP_none: mg_sb_puts(out, "none"); return;
  case OP_const: print_const(e, out); return;
  case OP_sym: mg_sb_printf(out, "s%lld", (long long)e->u.i); return;
  case OP_idx: mg_sb_printf(out, "i%lld", (long long)e->u.i); return;
  case OP_red: mg_sb_printf(out, "red:%s", mg_ty_name(e->ty)); return;
  case OP_load: mg_sb_printf(out, "load:%s(b%lld, ", mg_ty_name(e->ty), (long long)e->u.i); break;
  case OP_cvt:
  case OP_bitcast: mg_sb_printf(out, "%s:%s(", mg_scalar_info[e->op].name, mg_ty_name(e->ty)); break;
  case OP_rand: mg_sb_printf(out, "rand:%lld(", (long long)e->u.i); break;
  default: mg_sb_printf(out, "%s(", mg_scalar_info[e->op].name); break;
  }
  for (int i = 0; i < e->nsrc; i++) {
    if (i) mg_sb_puts(out, ", ");
    print_node(x, e->src[i], out, left);
    if (*left < 0) break;
  }
  mg_sb_putc(out, ')');
}

void mg_ex_print(const MgExprs *x, ExprRef r, MgStrbuf *out) {
  int left = PRINT_NODES;
  print_node(x, r, out, &left);
}

/* ---- parser ---- */

static void skip(const char **p) {
  while (isspace((unsigned char)**p)) ++*p;
}

static bool eat(const char **p, char c) {
  skip(p);
  if (**p != c) return false;
  ++*p;
  return true;
}

static ExprRef fail(MgExprs *x, const char *at) {
  mg_fail(x->c, MG_BUG, "expression text: cannot read '%.30s'", at);
  return 0;
}

static bool parse_ty(const char **p, MgTy *ty) {
  for (int t = 0; t < TY__COUNT; t++) {
    size_t n = strlen(mg_ty_name(t));
    if (!strncmp(*p, mg_ty_name(t), n) && !isalnum((unsigned char)(*p)[n])) {
      *p += n;
      *ty = t;
      return true;
    }
  }
  return false;
}

static ExprRef parse_number(MgExprs *x, const char **p) {
  const char *start = *p;
  char *end;
  MgTy ty = TY_i64;
  double f = strtod(start, &end); /* reads inf and nan too */
  if (end == start) return fail(x, start);
  int64_t i = (int64_t)strtoull(start, NULL, 10);
  *p = end;
  if (eat(p, ':') && !parse_ty(p, &ty)) return fail(x, start);
  return mg_ty_is_float(ty) ? mg_ex_float(x, ty, f) : mg_ex_int(x, ty, i);
}

static bool is_numbered(const char *w, char letter, int n) {
  if (n < 2 || w[0] != letter) return false;
  for (int i = 1; i < n; i++)
    if (!isdigit((unsigned char)w[i])) return false;
  return true;
}

ExprRef mg_ex_parse(MgExprs *x, const char **p) {
  ExprRef s[3] = {0, 0, 0};
  MgTy ty = TY_i64;
  long long num = 0;
  int n = 0, op;
  if (x->nomem) return 0;
  skip(p);
  const char *w = *p;
  if (isdigit((unsigned char)*w) || *w == '-' || !strncmp(w, "inf:", 4) || !strncmp(w, "nan:", 4))
    return parse_number(x, p);
  while (isalnum((unsigned char)w[n]) || w[n] == '_') n++;
  *p += n;
  if (n == 4 && !strncmp(w, "true", 4)) return mg_ex_int(x, TY_i1, 1);
  if (n == 5 && !strncmp(w, "false", 5)) return mg_ex_int(x, TY_i1, 0);
  if (is_numbered(w, 's', n)) {
    num = atoll(w + 1);
    if (num >= x->nsym) return fail(x, w);
    return expr_raw(x, OP_sym, TY_i64, 0, 0, 0, 0, num);
  }
  if (is_numbered(w, 'i', n)) return mg_ex_idx(x, atoi(w + 1));
  for (op = 0; op < OP__COUNT; op++)
    if (strlen(mg_scalar_info[op].name) == (size_t)n && !strncmp(w, mg_scalar_info[op].name, n)) break;
  if (op == OP__COUNT) return fail(x, w);
  if (eat(p, ':')) {
    if (op == OP_rand) num = strtoll(*p, (char **)p, 10);
    else if (!parse_ty(p, &ty)) return fail(x, w);
  }
  if (op == OP_red) return mg_ex_red(x, ty);
  if (!eat(p, '(')) return fail(x, w);
  if (op == OP_load) {
    if (!eat(p, 'b')) return fail(x, w);
    num = strtoll(*p, (char **)p, 10);
    if (!eat(p, ',')) return fail(x, w);
  }
  for (n = 0;; n++) {
    if (n == 3 || !(s[n] = mg_ex_parse(x, p))) return x->nomem || x->c->rc ? 0 : fail(x, w);
    if (!eat(p, ',')) break;
  }
  if (!eat(p, ')')) return fail(x, w);
  switch (op) {
  case OP_load: return mg_ex_load(x, ty, (uint32_t)num, s[0], s[1], s[2]);
  case OP_cvt: return mg_ex_cvt(x, ty, s[0]);
  case OP_bitcast: return mg_ex_bitcast(x, ty, s[0]);
  case OP_rand: return mg_ex_rand(x, (int)num, s[0], s[1]);
  default: return mg_ex_op(x, op, s[0], s[1], s[2]);
  }
}
