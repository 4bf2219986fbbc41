/* Declarations of the functions that kernels call: LLVM's intrinsics, libm's and SLEEF's functions.
 * In: the text of a module, and the target.  Out: a line for each function that the text names. */
#include "back/emit/emit_llvm.h"
#include "back/emit/emit_llvm_priv.h"
#include "base/table.h"
#include <ctype.h>
#include <string.h>

bool mg_emit_llvm_finds_sleef(const MgTarget *t, void *(*find)(const char *name)) {
  bool all = t->vector_bits >= 256 && t->fma;
  for (int op = 0; op < OP__COUNT && all; op++)
    for (int bits = 256; em_math_name(op) && bits <= t->vector_bits; bits *= 2) {
      MgStrbuf f = {0}, d = {0};
      em_sleef_name(&f, em_math_name(op), TY_f32, bits / 32);
      em_sleef_name(&d, em_math_name(op), TY_f64, bits / 64);
      all &= mg_sb_ok(&f) && mg_sb_ok(&d) && find(mg_sb_text(&f)) && find(mg_sb_text(&d));
      mg_sb_free(&f);
      mg_sb_free(&d);
    }
  return all;
}

static void declare_math(MgStrbuf *b, MgTy ty, int lanes) {
  for (int op = 0; op < OP__COUNT; op++) {
    const char *t = mg_scalar_info[op].ll[SOC_F], *at = t ? strstr(t, "@llvm.") : NULL;
    if (!at) continue;
    mg_sb_puts(b, "declare ");
    em_put_ty(b, em_ty(ty), lanes);
    mg_sb_printf(b, " %.*s", (int)(strchr(at, '$') - at), at);
    em_put_mangled(b, ty, lanes);
    for (int i = 0; i < mg_scalar_info[op].nin; i++) {
      mg_sb_putc(b, i ? ',' : '(');
      em_put_ty(b, em_ty(ty), lanes);
    }
    mg_sb_puts(b, ")\n");
  }
}

static void declare_sleef(MgStrbuf *b, const char *name, MgTy ty, int width, bool one) {
  mg_sb_printf(b, "declare <%d x %s> @", width, em_ty(ty));
  em_sleef_name(b, name, ty, width);
  mg_sb_printf(b, one ? "(<%d x %s>)\n" : "(<%d x %s>, <%d x %s>)\n", width, em_ty(ty), width, em_ty(ty));
}

/* A line for every function that kernels may call. */
static void declare_all(const MgTarget *t, MgStrbuf *b) {
  static const char *const mem[] = {"i8", "i16", "i32", "i64", "half", "float", "double"};
  static const char *const mangled[] = {"i8", "i16", "i32", "i64", "f16", "f32", "f64"};
  int full = t->vector_bits / 32;
  for (int lanes = 1; lanes <= full; lanes = lanes == 1 ? full / 2 : lanes * 2) {
    declare_math(b, TY_f32, lanes);
    declare_math(b, TY_f64, lanes);
    for (int i = 0; i < 7 && lanes > 1 && t->vector_bits >= 256; i++) {
      mg_sb_printf(b, "declare <%d x %s> @llvm.vp.load.v%d%s.p0(ptr, <%d x i1>, i32)\n", lanes, mem[i], lanes,
                   mangled[i], lanes);
      mg_sb_printf(b, "declare void @llvm.vp.store.v%d%s.p0(<%d x %s>, ptr, <%d x i1>, i32)\n", lanes,
                   mangled[i], lanes, mem[i], lanes);
    }
  }
  mg_sb_puts(b, "declare <8 x i32> @llvm.x86.avx2.permd(<8 x i32>, <8 x i32>)\n");
  declare_math(b, TY_f32, full * EMIT_WIDE);
  for (int op = 0; op < OP__COUNT; op++) {
    const char *name = em_math_name(op);
    bool one = mg_scalar_info[op].nin == 1;
    if (!name) continue;
    mg_sb_printf(b, "declare float @%sf(%s)\ndeclare double @%s(%s)\n", name, one ? "float" : "float,float",
                 name, one ? "double" : "double,double");
    for (int bits = 256; t->sleef && bits <= t->vector_bits; bits *= 2) {
      declare_sleef(b, name, TY_f32, bits / 32, one);
      declare_sleef(b, name, TY_f64, bits / 64, one);
    }
  }
}

/* Bytes of the name behind an '@'. */
static size_t declare_name_len(const char *name) {
  size_t n = 0;
  while (isalnum((unsigned char)name[n]) || name[n] == '_' || name[n] == '.') n++;
  return n;
}

/* 0 and 1 are no keys of a table. */
static uint64_t declare_key(const char *name) { return mg_hash_bytes(name, declare_name_len(name), 0) | 2; }

void mg_emit_llvm_declare(const MgTarget *t, MgStrbuf *module) {
  MgStrbuf all = {0};
  MgMap named = {0};
  bool known = true; /* else every function is declared, which is right, too */
  for (const char *at = mg_sb_text(module); known && (at = strchr(at, '@')); at++)
    known = mg_map_put(&named, declare_key(at + 1), 1) == MG_OK;
  declare_all(t, &all);
  if (!mg_sb_ok(&all)) module->failed = true;
  for (const char *line = mg_sb_text(&all), *end; mg_sb_ok(&all) && *line; line = end + 1) {
    end = strchr(line, '\n');
    const char *name = strchr(line, '@') + 1;
    if (!known || mg_map_get(&named, declare_key(name)) != MG_MAP_NONE)
      mg_sb_write(module, line, (size_t)(end - line) + 1);
  }
  mg_map_free(&named);
  mg_sb_free(&all);
}
