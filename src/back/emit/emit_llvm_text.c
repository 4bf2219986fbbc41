/* Text of LLVM values: types, constants, templates of scalar_ops.def, and the declarations of a module.
 * i1 is a byte in memory; bf16 is i16 everywhere (its arithmetic is in f32). */
#include "back/emit/emit_llvm_priv.h"
#include <math.h>
#include <string.h>

const char *em_ty(MgTy t) {
  static const char *const name[] = {"i1",  "i8",  "i8",   "i16", "i16",   "i32",   "i32",
                                     "i64", "i64", "half", "i16", "float", "double"};
  return name[t];
}
const char *em_mem(MgTy t) { return t == TY_i1 ? "i8" : em_ty(t); }

void em_put_ty(MgStrbuf *b, const char *elem, int lanes) {
  if (lanes == 1) mg_sb_puts(b, elem);
  else mg_sb_printf(b, "<%d x %s>", lanes, elem);
}

MgStrbuf *em_at(Em *e, int level) { return &e->scope[level].buf; }

EmRef em_new(Em *e, int level, int lanes) {
  return (EmRef){.id = e->nid++, .lanes = (uint8_t)lanes, .level = (uint8_t)level};
}

EmRef em_int(Em *e, int64_t v) { return (EmRef){.id = -1, .k = mg_ex_int(e->x, TY_i64, v), .lanes = 1}; }

int em_level(const EmRef *s, int n) {
  int level = 0;
  for (int i = 0; i < n; i++)
    if (s[i].id != -2 && s[i].level > level) level = s[i].level;
  return level;
}

/* A scalar constant. */
static void put_const(MgStrbuf *b, const MgExpr *k) {
  MgScalar v = {.i = k->u.i};
  if (k->ty == TY_i1) mg_sb_puts(b, v.i ? "true" : "false");
  else if (k->ty == TY_bf16) mg_sb_printf(b, "%d", (int)(int16_t)mg_scalar_bits(TY_bf16, v));
  else if (k->ty == TY_f16) mg_sb_printf(b, "0xH%04X", (unsigned)mg_scalar_bits(TY_f16, v));
  else if (mg_ty_is_float(k->ty)) /* float constants are written as the double of the same value */
    mg_sb_printf(b, "0x%016llX", (unsigned long long)mg_scalar_bits(TY_f64, v));
  else mg_sb_printf(b, "%lld", (long long)v.i);
}

void em_put(Em *e, MgStrbuf *b, EmRef v, MgTy ty) {
  if (v.id >= 0) {
    mg_sb_printf(b, "%%v%d", v.id);
    return;
  }
  const MgExpr *k = mg_expr(e->x, v.k);
  if (v.lanes == 1) {
    put_const(b, k);
  } else if (mg_scalar_bits(k->ty, (MgScalar){.i = k->u.i}) == 0) {
    mg_sb_puts(b, "zeroinitializer");
  } else if (!e->t->llvm || e->t->llvm >= 19) {
    mg_sb_printf(b, "splat (%s ", em_ty(ty));
    put_const(b, k);
    mg_sb_putc(b, ')');
  } else {
    for (int i = 0; i < v.lanes; i++) {
      mg_sb_printf(b, "%s%s ", i ? ", " : "<", em_ty(ty));
      put_const(b, k);
    }
    mg_sb_putc(b, '>');
  }
}

void em_put_size(Em *e, MgStrbuf *b, EmRef v) {
  if (e->t->marks && v.id < 0 && v.lanes == 1) mg_sb_putc(b, MG_EMIT_MARK);
  em_put(e, b, v, TY_i64);
}

/* Is the instruction as good with a loaded number?  (Divisions and shifts are
 * much better with a constant.) */
static bool takes_size(const char *tmpl, MgTy ty, int lanes) {
  static const char *const good[] = {"mul ", "add ", "sub ", "icmp "};
  for (size_t i = 0; ty == TY_i64 && lanes == 1 && i < sizeof good / sizeof *good; i++)
    if (!strncmp(tmpl, good[i], strlen(good[i]))) return true;
  return false;
}

/* ---- elementary functions ---- */

/* How exact SLEEF's version of libm's function is, in its names: that which ATen calls. */
static const char *sleef_accuracy(const char *name) {
  if (!strcmp(name, "fmod") || !strcmp(name, "nextafter")) return "";
  return !strcmp(name, "erfc") ? "u15" : "u10";
}

void em_sleef_name(MgStrbuf *b, const char *name, MgTy ty, int width) {
  mg_sb_printf(b, "Sleef_%s%c%d_%s%s", name, ty == TY_f32 ? 'f' : 'd', width, sleef_accuracy(name),
               width * mg_ty_size(ty) == 64 ? "avx512f" : "avx2");
}

const char *em_math_name(int op) {
  const char *t = mg_scalar_info[op].ll[SOC_F];
  return t && !strncmp(t, "libm:", 5) ? t + 5 : NULL;
}

EmRef em_broadcast(Em *e, EmRef v, MgTy ty, int lanes) {
  MgStrbuf *b = em_at(e, v.level);
  EmRef one = em_new(e, v.level, lanes), all = em_new(e, v.level, lanes);
  const char *t = em_ty(ty);
  mg_sb_printf(b, "  %%v%d = insertelement <%d x %s> poison, %s ", one.id, lanes, t, t);
  em_put(e, b, v, ty);
  mg_sb_printf(
      b, ", i64 0\n  %%v%d = shufflevector <%d x %s> %%v%d, <%d x %s> poison, <%d x i32> zeroinitializer\n",
      all.id, lanes, t, one.id, lanes, t, lanes);
  return all;
}

EmRef em_lane(Em *e, EmRef v, MgTy ty, int lane) {
  if (v.id == -1) return (EmRef){.id = -1, .k = v.k, .lanes = 1, .level = v.level};
  MgStrbuf *b = em_at(e, v.level);
  EmRef r = em_new(e, v.level, 1);
  mg_sb_printf(b, "  %%v%d = extractelement <%d x %s> %%v%d, i64 %d\n", r.id, v.lanes, em_ty(ty), v.id, lane);
  return r;
}

/* Lanes [at, at + n) of a vector; those past its end are undefined. */
EmRef em_take_lanes(Em *e, EmRef v, MgTy ty, int at, int n, int level) {
  if (v.id == -1) return (EmRef){.id = -1, .k = v.k, .lanes = (uint8_t)n, .level = v.level};
  if (v.lanes == n) return v;
  MgStrbuf *b = em_at(e, level);
  EmRef r = em_new(e, level, n);
  mg_sb_printf(b, "  %%v%d = shufflevector <%d x %s> %%v%d, <%d x %s> poison, <%d x i32> <", r.id, v.lanes,
               em_ty(ty), v.id, v.lanes, em_ty(ty), n);
  for (int i = 0; i < n; i++)
    mg_sb_printf(b, at + i < v.lanes ? "%si32 %d" : "%si32 poison", i ? ", " : "", at + i);
  mg_sb_puts(b, ">\n");
  return r;
}

static EmRef join_lanes(Em *e, EmRef a, EmRef c, MgTy ty, int level) {
  MgStrbuf *b = em_at(e, level);
  EmRef r = em_new(e, level, 2 * a.lanes);
  mg_sb_printf(b, "  %%v%d = shufflevector <%d x %s> %%v%d, <%d x %s> %%v%d, <%d x i32> <", r.id, a.lanes,
               em_ty(ty), a.id, a.lanes, em_ty(ty), c.id, r.lanes);
  for (int i = 0; i < r.lanes; i++) mg_sb_printf(b, "%si32 %d", i ? ", " : "", i);
  mg_sb_puts(b, ">\n");
  return r;
}

/* SLEEF's vector function, on as many whole vectors as there are lanes. */
static EmRef sleef_call(Em *e, const char *name, MgTy ty, int lanes, const EmRef *s, int n, int level) {
  enum { MOST = 8 };
  MgStrbuf *b = em_at(e, level);
  int size = mg_ty_size(ty), width = e->t->vector_bits / 8 / size, parts;
  while (width * size > 32 && width > lanes) width /= 2;
  parts = lanes > width ? lanes / width : 1;
  EmRef part[MOST];
  for (int k = 0; k < parts; k++) {
    EmRef a[3];
    for (int i = 0; i < n; i++)
      a[i] = lanes == 1 && s[i].id >= 0 ? em_broadcast(e, s[i], ty, width)
                                        : em_take_lanes(e, s[i], ty, k * width, width, level);
    part[k] = em_new(e, level, width);
    mg_sb_printf(b, "  %%v%d = call <%d x %s> @", part[k].id, width, em_ty(ty));
    em_sleef_name(b, name, ty, width);
    for (int i = 0; i < n; i++) {
      mg_sb_printf(b, "%s<%d x %s> ", i ? ", " : "(", width, em_ty(ty));
      em_put(e, b, a[i], ty);
    }
    mg_sb_puts(b, ")\n");
  }
  for (int live = parts; live > 1; live /= 2)
    for (int k = 0; k < live / 2; k++) part[k] = join_lanes(e, part[2 * k], part[2 * k + 1], ty, level);
  return lanes == 1 ? em_lane(e, part[0], ty, 0) : em_take_lanes(e, part[0], ty, 0, lanes, level);
}

/* libm's scalar function, once per lane. */
static EmRef libm_call(Em *e, const char *name, MgTy ty, int lanes, const EmRef *s, int n, int level) {
  if (e->t->sleef && (lanes > 1 || e->x->numerics == MN_eager))
    return sleef_call(e, name, ty, lanes, s, n, level);
  MgStrbuf *b = em_at(e, level);
  EmRef r = {.id = -2};
  for (int lane = 0; lane < lanes; lane++) {
    EmRef a[3], v;
    for (int i = 0; i < n; i++) a[i] = lanes == 1 ? s[i] : em_lane(e, s[i], ty, lane);
    v = em_new(e, level, 1);
    mg_sb_printf(b, "  %%v%d = call %s @%s%s(", v.id, em_ty(ty), name, ty == TY_f32 ? "f" : "");
    for (int i = 0; i < n; i++) {
      mg_sb_printf(b, "%s%s ", i ? ", " : "", em_ty(ty));
      em_put(e, b, a[i], ty);
    }
    mg_sb_puts(b, ")\n");
    if (lanes == 1) return v;
    EmRef w = em_new(e, level, lanes);
    mg_sb_printf(b, "  %%v%d = insertelement <%d x %s> ", w.id, lanes, em_ty(ty));
    if (lane) mg_sb_printf(b, "%%v%d", r.id);
    else mg_sb_puts(b, "poison");
    mg_sb_printf(b, ", %s %%v%d, i64 %d\n", em_ty(ty), v.id, lane);
    r = w;
  }
  return r;
}

void em_put_mangled(MgStrbuf *b, MgTy ty, int lanes) {
  if (lanes > 1) mg_sb_printf(b, "v%d", lanes);
  mg_sb_printf(b, "%s%d", mg_ty_is_float(ty) ? "f" : "i", 8 * mg_ty_size(ty));
}

/* b, or libm's function of a in lanes where a is beyond 2^48. These are rare: the call is branched around,
 * where the value is made in the innermost block (labels of outer ones that are open
 * have been taken already). */
static EmRef far_call(Em *e, const char *name, MgTy ty, int lanes, const EmRef *s, int level) {
  MgStrbuf *b = em_at(e, level);
  EmRef q[3] = {
      s[0], {.id = -1, .k = mg_ex_float(e->x, ty, 0x1p48), .lanes = (uint8_t)lanes, .level = (uint8_t)level}};
  q[0] = em_template(e, "$1 = call $t @llvm.fabs.$m($t $a)\n$d = fcmp ogt $t $1, $b", ty, TY_i1, lanes, q, 2);
  bool branch = level == e->depth;
  int from = e->scope[level].label, call = -1, join = -1, any = q[0].id;
  if (branch) {
    call = e->nlabel++, join = e->nlabel++;
    if (lanes > 1) {
      int all = e->nid++;
      any = e->nid++;
      mg_sb_printf(b, "  %%v%d = bitcast <%d x i1> %%v%d to i%d\n  %%v%d = icmp ne i%d %%v%d, 0\n", all,
                   lanes, q[0].id, lanes, any, lanes, all);
    }
    mg_sb_printf(b, "  br i1 %%v%d, label %%L%d, label %%L%d\nL%d:\n", any, call, join, call);
  }
  q[1] = libm_call(e, name, ty, lanes, s, 1, level), q[2] = s[1];
  EmRef v = em_template(e, "$d = select $p $a, $t $b, $t $c", ty, ty, lanes, q, 3);
  if (!branch) return v;
  EmRef r = em_new(e, level, lanes);
  mg_sb_printf(b, "  br label %%L%d\nL%d:\n  %%v%d = phi ", join, join, r.id);
  em_put_ty(b, em_ty(ty), lanes);
  mg_sb_puts(b, " [ ");
  em_put(e, b, s[1], ty);
  mg_sb_printf(b, ", %%L%d ], [ %%v%d, %%L%d ]\n", from, v.id, call);
  e->scope[level].label = join;
  return r;
}

/* Expands one template; operands have type ty, the result has type rty. */
EmRef em_template(Em *e, const char *tmpl, MgTy ty, MgTy rty, int lanes, const EmRef *s, int n) {
  int level = em_level(s, n), tmp[10];
  MgStrbuf *b = em_at(e, level);
  if (!strncmp(tmpl, "libm:", 5)) return libm_call(e, tmpl + 5, ty, lanes, s, n, level);
  if (!strncmp(tmpl, "far:", 4)) return far_call(e, tmpl + 4, ty, lanes, s, level);
  EmRef d = em_new(e, level, lanes);
  bool size = takes_size(tmpl, ty, lanes);
  memset(tmp, -1, sizeof tmp);
  for (const char *p = tmpl; *p;) {
    const char *eol = strchr(p, '\n') ? strchr(p, '\n') : p + strlen(p);
    mg_sb_puts(b, "  ");
    if (*p != '$')
      mg_sb_printf(b, "%%v%d = ", d.id); /* no "$d =" written: the result of the only instruction */
    for (; p < eol; p++) {
      if (*p != '$') {
        mg_sb_putc(b, *p);
        continue;
      }
      switch (*++p) {
      case 'd': mg_sb_printf(b, "%%v%d", d.id); break;
      case 'a':
      case 'b':
      case 'c':
        if (size) em_put_size(e, b, s[*p - 'a']);
        else em_put(e, b, s[*p - 'a'], ty);
        break;
      case 't': em_put_ty(b, em_ty(ty), lanes); break;
      case 'p': em_put_ty(b, "i1", lanes); break;
      case '~':
        em_put(e, b, (EmRef){.id = -1, .k = mg_ex_int(e->x, ty, -1), .lanes = (uint8_t)lanes}, ty);
        break;
      case 'm': em_put_mangled(b, ty, lanes); break;
      default:
        if (tmp[*p - '0'] < 0) tmp[*p - '0'] = e->nid++;
        mg_sb_printf(b, "%%v%d", tmp[*p - '0']);
      }
    }
    mg_sb_putc(b, '\n');
    if (*p) p++;
  }
  return d;
}
