/* Facts about dtypes, and torch.promote_types as a table.
 * In: c10::ScalarType numbers.  Out: sizes, names, loop IR types, the promotion lattice. */
#include "ir/expr/dtype.h"
#include <string.h>

/* One row per dtype: name, bytes, storage type, class.  Classes: b bool, u unsigned, i signed, f
 * float, c complex, m moved only. */
static const struct {
  const char *name;
  uint8_t size;
  uint8_t ty; /* MgTy; complex numbers and those of 8 bits are only moved, as bits; of complex128 it is the
                 type of one half */
  char cls;
} dtype_row[] = {
    [DT_u8] = {"u8", 1, TY_u8, 'u'},
    [DT_i8] = {"i8", 1, TY_i8, 'i'},
    [DT_i16] = {"i16", 2, TY_i16, 'i'},
    [DT_i32] = {"i32", 4, TY_i32, 'i'},
    [DT_i64] = {"i64", 8, TY_i64, 'i'},
    [DT_f16] = {"f16", 2, TY_f16, 'f'},
    [DT_f32] = {"f32", 4, TY_f32, 'f'},
    [DT_f64] = {"f64", 8, TY_f64, 'f'},
    [DT_c32] = {"c32", 4, TY_i32, 'c'},
    [DT_c64] = {"c64", 8, TY_i64, 'c'},
    [DT_c128] = {"c128", 16, TY_f64, 'c'},
    [DT_bool] = {"bool", 1, TY_i1, 'b'},
    [DT_bf16] = {"bf16", 2, TY_bf16, 'f'},
    [DT_u16] = {"u16", 2, TY_u16, 'u'},
    [DT_u32] = {"u32", 4, TY_u32, 'u'},
    [DT_u64] = {"u64", 8, TY_u64, 'u'},
    [DT_f8e5m2] = {"f8e5m2", 1, TY_u8, 'm'},
    [DT_f8e4m3fn] = {"f8e4m3fn", 1, TY_u8, 'm'},
    [DT_f8e5m2fnuz] = {"f8e5m2fnuz", 1, TY_u8, 'm'},
    [DT_f8e4m3fnuz] = {"f8e4m3fnuz", 1, TY_u8, 'm'},
    [DT_f8e8m0fnu] = {"f8e8m0fnu", 1, TY_u8, 'm'},
    [DT_bc32] = {"bc32", 4, TY_i32, 'c'},
};
#define DTYPE_ROWS ((int)(sizeof dtype_row / sizeof *dtype_row))

static bool dtype_known(MgDtype d) { return (int)d < DTYPE_ROWS && dtype_row[d].name; }
static char dtype_class(MgDtype d) { return dtype_known(d) ? dtype_row[d].cls : 0; }

int mg_ty_size(MgTy t) {
  static const uint8_t size[TY__COUNT] = {
      [TY_i1] = 1,  [TY_i8] = 1,  [TY_u8] = 1,  [TY_i16] = 2,  [TY_u16] = 2, [TY_i32] = 4, [TY_u32] = 4,
      [TY_i64] = 8, [TY_u64] = 8, [TY_f16] = 2, [TY_bf16] = 2, [TY_f32] = 4, [TY_f64] = 8};
  return size[t];
}

const char *mg_ty_name(MgTy t) {
  static const char *const name[TY__COUNT] = {"i1",  "i8",  "u8",  "i16",  "u16", "i32", "u32",
                                              "i64", "u64", "f16", "bf16", "f32", "f64"};
  return t < TY__COUNT ? name[t] : "?";
}

int mg_dtype_size(MgDtype d) { return dtype_known(d) ? dtype_row[d].size : 0; }
const char *mg_dtype_name(MgDtype d) { return dtype_known(d) ? dtype_row[d].name : "none"; }

MgDtype mg_dtype_parse(const char *name, int len) {
  for (int i = 0; i < DTYPE_ROWS; i++)
    if (dtype_row[i].name && (int)strlen(dtype_row[i].name) == len && !memcmp(dtype_row[i].name, name, len))
      return i;
  return DT_none;
}

bool mg_dtype_is_barebones(MgDtype d) { return d == DT_u16 || d == DT_u32 || d == DT_u64; }

bool mg_dtype_is_float(MgDtype d) { return dtype_class(d) == 'f'; }
bool mg_dtype_is_complex(MgDtype d) { return dtype_class(d) == 'c'; }
bool mg_dtype_is_int(MgDtype d) { return dtype_class(d) == 'i' || dtype_class(d) == 'u'; }
bool mg_dtype_has_ty(MgDtype d) { return dtype_known(d) && !strchr("cm", dtype_row[d].cls); }
MgTy mg_dtype_ty(MgDtype d) { return dtype_known(d) ? dtype_row[d].ty : TY__COUNT; }
MgTy mg_dtype_compute(MgDtype d) { return d == DT_f16 || d == DT_bf16 ? TY_f32 : mg_dtype_ty(d); }

MgDtype mg_dtype_real(MgDtype d) {
  return d == DT_c128 ? DT_f64 : d == DT_c64 ? DT_f32 : d == DT_c32 ? DT_f16 : DT_bf16;
}

/* A float and a complex number: the smallest complex number whose halves hold the float. */
static MgDtype dtype_join_complex(MgDtype real, MgDtype complex) {
  MgDtype half = mg_dtype_real(complex);
  if (real == DT_f64) return DT_c128;
  return real == half || dtype_row[complex].size > 4 ? complex : DT_c64;
}

/* c10::promoteTypes: within a class the wider wins; bool < integers < floats < complex.  The exceptions are
 * the pairs where neither operand holds the other: u8 with a signed type goes one signed width up; f16 with
 * bf16 is f32, and so are their complex numbers c64; a complex with a float takes the wider precision.
 * u16/u32/u64 promote only with themselves, bool, floats and complex (torch raises otherwise): DT_none. */
MgDtype mg_dtype_promote(MgDtype a, MgDtype b) {
  if (a == b) return dtype_known(a) ? a : DT_none;
  char ca = dtype_class(a), cb = dtype_class(b);
  if (!ca || !cb || ca == 'm' || cb == 'm') return DT_none;
  static const char rank[] = "buifc";
  if (strchr(rank, ca) > strchr(rank, cb)) { /* order so that a's class is the lower one */
    MgDtype t = a;
    a = b;
    b = t;
    char u = ca;
    ca = cb;
    cb = u;
  }
  if (ca == 'b') return b;
  if (cb == 'c') {
    if (ca == 'u' || ca == 'i') return b;
    if (ca == 'f') return dtype_join_complex(a, b);
    if (dtype_row[a].size == 4 && dtype_row[b].size == 4) return DT_c64;
    return dtype_row[a].size > dtype_row[b].size ? a : b;
  }
  if (cb == 'f') {
    if (ca != 'f') return b;
    if (dtype_row[a].size == 2 && dtype_row[b].size == 2) return DT_f32;
    return dtype_row[a].size > dtype_row[b].size ? a : b;
  }
  if (mg_dtype_is_barebones(a) || mg_dtype_is_barebones(b)) return DT_none;
  if (ca == 'u' && cb == 'i') return b == DT_i8 ? DT_i16 : b;
  return dtype_row[a].size > dtype_row[b].size ? a : b;
}
