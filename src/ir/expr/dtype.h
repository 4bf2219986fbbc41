/* Tensor dtypes (numbered as PyTorch's ScalarType) and the scalar types of the loop IR. */
#ifndef MG_DTYPE_H
#define MG_DTYPE_H
#include <stdbool.h>
#include <stdint.h>

typedef enum MgDtype { /* values are c10::ScalarType, so they cross torch's C ABI unchanged */
                       DT_u8 = 0,
                       DT_i8 = 1,
                       DT_i16 = 2,
                       DT_i32 = 3,
                       DT_i64 = 4,
                       DT_f16 = 5,
                       DT_f32 = 6,
                       DT_f64 = 7,
                       DT_c32 = 8,
                       DT_c64 = 9,
                       DT_c128 = 10,
                       DT_bool = 11,
                       DT_bf16 = 15,
                       DT_f8e5m2 = 23,
                       DT_f8e4m3fn = 24,
                       DT_f8e5m2fnuz = 25,
                       DT_f8e4m3fnuz = 26,
                       DT_u16 = 27,
                       DT_u32 = 28,
                       DT_u64 = 29,
                       DT_f8e8m0fnu = 44,
                       DT_bc32 = 46,
                       DT_none = 255
} MgDtype;

typedef enum MgTy {
  TY_i1,
  TY_i8,
  TY_u8,
  TY_i16,
  TY_u16,
  TY_i32,
  TY_u32,
  TY_i64,
  TY_u64,
  TY_f16,
  TY_bf16,
  TY_f32,
  TY_f64,
  TY__COUNT
} MgTy;

static inline bool mg_ty_is_float(MgTy t) { return t >= TY_f16; }
static inline bool mg_ty_is_signed(MgTy t) { return t == TY_i8 || t == TY_i16 || t == TY_i32 || t == TY_i64; }
int mg_ty_size(MgTy t);                            /* bytes in memory (TY_i1 is one byte) */
const char *mg_ty_name(MgTy t);                    /* "f32" */
int mg_dtype_size(MgDtype d);                      /* bytes; 0 for dtypes the compiler does not know */
const char *mg_dtype_name(MgDtype d);              /* "f32", "i64", "bool", "bf16", "c64" */
MgDtype mg_dtype_parse(const char *name, int len); /* DT_none when unknown */
bool mg_dtype_is_float(MgDtype d);                 /* f16 bf16 f32 f64 */
bool mg_dtype_is_barebones(MgDtype d); /* u16 u32 u64: torch has few kernels for them, and no promotion */
bool mg_dtype_is_complex(MgDtype d);
MgDtype mg_dtype_real(MgDtype d); /* of one half of a complex number */
bool mg_dtype_is_int(MgDtype d);  /* integers, not bool */
bool mg_dtype_has_ty(MgDtype d);  /* the loop IR can hold it */
MgTy mg_dtype_ty(MgDtype d);      /* storage type; DT_bool -> TY_i1; DT_c128 -> TY_f64, twice */
MgTy mg_dtype_compute(MgDtype d); /* type arithmetic is done in: f16/bf16 -> f32, else the storage type */
MgDtype mg_dtype_promote(MgDtype a, MgDtype b); /* torch.promote_types */
#endif
