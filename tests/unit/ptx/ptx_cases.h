/* Kernels of every mapping that ptx/ptx_sched chooses, for tests that assemble them
 * and for those that run them. */
#ifndef MG_TEST_PTX_CASES_H
#define MG_TEST_PTX_CASES_H
#include "kernel_run.h"
#include "ptx/ptx.h"

static inline void ptx_on_gpu(Env *e) {
  for (BufRef b = 1; b < e->s.nbuf; b++) e->s.buf[b].device = DEV_cuda;
}

static BufRef ptx_in(Env *e, MgDtype d, int64_t n) {
  BufRef b = env_buf(e, MB_input, d, n);
  env_fill(e, b, -2, 2);
  return b;
}
static BufRef ptx_out(Env *e, MgDtype d, int64_t n) { return env_buf(e, MB_output, d, n); }
static BufRef ptx_temp(Env *e, MgDtype d, int64_t n) { return env_buf(e, MB_temp, d, n); }

static void ptx_point(Env *e) { /* buffers 1, 2 -> 3, 4 */
  ptx_in(e, DT_f32, 4096 * 33), ptx_in(e, DT_f32, 4096 * 33);
  env_nest(e, ML_point, "135168", 0, NULL, ptx_out(e, DT_f32, 4096 * 33), "i0",
           "add(mul(load:f32(b1, i0), load:f32(b2, i0)), 1:f32)");
  env_nest(e, ML_point, "135168", 0, NULL, ptx_out(e, DT_bool, 4096 * 33), "i0",
           "lt(load:f32(b1, i0), load:f32(b2, i0))");
}

static void ptx_point_odd(Env *e) {
  ptx_in(e, DT_f32, 10007);
  env_nest(e, ML_point, "10007", 0, NULL, ptx_out(e, DT_f32, 10007), "i0", "exp(load:f32(b1, i0))");
}

static void ptx_point_half(Env *e) {
  ptx_in(e, DT_bf16, 8192), ptx_in(e, DT_f16, 8192), ptx_in(e, DT_f32, 64);
  env_nest(e, ML_point, "128 64", 0, NULL, ptx_out(e, DT_bf16, 8192), "add(mul(i0, 64), i1)",
           "add(tanh(cvt:f32(load:bf16(b1, add(mul(i0, 64), i1)))), add(cvt:f32(load:f16(b2, add(mul(i0, "
           "64), i1))), load:f32(b3, i1)))");
}

static void ptx_broadcast(Env *e) { /* rows, columns and one number */
  ptx_in(e, DT_f64, 30 * 20), ptx_in(e, DT_i64, 30), ptx_in(e, DT_f64, 1);
  env_nest(e, ML_point, "30 20", 0, NULL, ptx_out(e, DT_f64, 600), "add(mul(i0, 20), i1)",
           "add(mul(load:f64(b1, add(mul(i0, 20), i1)), cvt:f64(load:i64(b2, i0))), load:f64(b3, 0))");
}

static void ptx_transposed(Env *e) {
  ptx_in(e, DT_f32, 96 * 160);
  env_nest(e, ML_point, "160 96", 0, NULL, ptx_out(e, DT_f32, 160 * 96), "add(mul(i0, 96), i1)",
           "add(load:f32(b1, add(mul(i1, 160), i0)), 1:f32)");
}

static void ptx_transposed_odd(Env *e) { /* and a second operand as it lies */
  ptx_in(e, DT_bf16, 3 * 70 * 41), ptx_in(e, DT_f32, 3 * 41 * 70);
  env_nest(e, ML_point, "3 41 70", 0, NULL, ptx_out(e, DT_f32, 3 * 41 * 70),
           "add(mul(i0, 2870), add(mul(i1, 70), i2))",
           "add(cvt:f32(load:bf16(b1, add(mul(i0, 2870), add(mul(i2, 41), i1)))), load:f32(b2, add(mul(i0, "
           "2870), add(mul(i1, 70), i2))))");
}

static void ptx_masked(Env *e) { /* padding, and two parts side by side */
  ptx_in(e, DT_f32, 64 * 32), ptx_in(e, DT_f32, 64 * 32);
  env_nest(e, ML_point, "64 64", 0, NULL, ptx_out(e, DT_f32, 64 * 64), "add(mul(i0, 64), i1)",
           "where(lt(i1, 32), load:f32(b1, add(mul(i0, 32), i1), lt(i1, 32), 0:f32), load:f32(b2, "
           "sub(add(mul(i0, 32), i1), 32), le(32, i1), 0:f32))");
  env_nest(e, ML_point, "64 30", 0, NULL, ptx_out(e, DT_f32, 64 * 30), "add(mul(i0, 30), i1)",
           "load:f32(b1, sub(add(mul(i0, 32), i1), 3), le(3, i1), 7:f32)");
}

static void ptx_gather(Env *e) {
  BufRef b = env_buf(e, MB_input, DT_i64, 50);
  env_fill(e, b, 0, 39.9);
  ptx_in(e, DT_bf16, 40 * 64);
  env_nest(e, ML_point, "50 64", 0, NULL, ptx_out(e, DT_bf16, 50 * 64), "add(mul(i0, 64), i1)",
           "load:bf16(b2, add(mul(load:i64(b1, i0), 64), i1))");
}

#define PTX_ROW(n) "add(mul(i0, " #n "), i1)"
#define PTX_SOFTMAX(rows, n)                                                                                 \
  ptx_in(e, DT_f32, rows *n), ptx_temp(e, DT_f32, rows), ptx_temp(e, DT_f32, rows);                          \
  env_nest(e, ML_reduce, #rows "|" #n, RED_max, "load:f32(b1, " PTX_ROW(n) ")", 2, "i0", "red:f32");         \
  env_nest(e, ML_reduce, #rows "|" #n, RED_sum, "exp(sub(load:f32(b1, " PTX_ROW(n) "), load:f32(b2, i0)))",  \
           3, "i0", "red:f32");                                                                              \
  env_nest(e, ML_point, #rows " " #n, 0, NULL, ptx_out(e, DT_f32, rows *n), PTX_ROW(n),                      \
           "div(exp(sub(load:f32(b1, " PTX_ROW(n) "), load:f32(b2, i0))), load:f32(b3, i0))")

static void ptx_softmax(Env *e) { PTX_SOFTMAX(300, 1024); }
static void ptx_softmax_odd(Env *e) { PTX_SOFTMAX(77, 1001); }
static void ptx_softmax_small(Env *e) { PTX_SOFTMAX(1000, 12); }
static void ptx_softmax_long(Env *e) { PTX_SOFTMAX(20, 32768); }
static void ptx_softmax_longer(Env *e) { PTX_SOFTMAX(17, 50257); }

static void ptx_norm(Env *e) { /* residual + layer norm of bf16 rows: the sum is a row buffer */
  ptx_in(e, DT_bf16, 64 * 768), ptx_in(e, DT_bf16, 64 * 768), ptx_in(e, DT_bf16, 768);
  ptx_temp(e, DT_bf16, 64 * 768), ptx_temp(e, DT_f32, 64), ptx_temp(e, DT_f32, 64);
  env_nest(e, ML_point, "64 768", 0, NULL, 4, PTX_ROW(768),
           "add(cvt:f32(load:bf16(b1, " PTX_ROW(768) ")), cvt:f32(load:bf16(b2, " PTX_ROW(768) ")))");
  env_nest(e, ML_reduce, "64|768", RED_sum, "cvt:f32(load:bf16(b4, " PTX_ROW(768) "))", 5, "i0",
           "div(red:f32, 768:f32)");
  env_nest(e, ML_reduce, "64|768", RED_sum,
           "mul(sub(cvt:f32(load:bf16(b4, " PTX_ROW(
               768) ")), load:f32(b5, i0)), sub(cvt:f32(load:bf16(b4, " PTX_ROW(768) ")), load:f32(b5, i0)))",
           6, "i0", "div(red:f32, 768:f32)");
  env_nest(
      e, ML_point, "64 768", 0, NULL, ptx_out(e, DT_bf16, 64 * 768), PTX_ROW(768),
      "mul(mul(sub(cvt:f32(load:bf16(b4, " PTX_ROW(768) ")), load:f32(b5, i0)), rsqrt(add(load:f32(b6, i0), "
                                                        "1e-05:f32))), cvt:f32(load:bf16(b3, i1)))");
}

static void ptx_columns(Env *e) {
  ptx_in(e, DT_f32, 333 * 512);
  env_nest(e, ML_reduce, "512|333", RED_sum, "load:f32(b1, add(mul(i1, 512), i0))", ptx_out(e, DT_f32, 512),
           "i0", "red:f32");
}

static void ptx_columns_long(Env *e) { /* few of them, of a length that nothing divides */
  ptx_in(e, DT_f32, 4099 * 40);
  env_nest(e, ML_reduce, "40|4099", RED_max, "load:f32(b1, add(mul(i1, 40), i0))", ptx_out(e, DT_f32, 40),
           "i0", "red:f32");
  env_nest(e, ML_reduce, "40|4099", RED_sum, "exp(sub(load:f32(b1, add(mul(i1, 40), i0)), load:f32(b2, i0)))",
           ptx_out(e, DT_f32, 40), "i0", "red:f32");
}

static void ptx_columns_softmax(Env *e) { /* three phases over columns */
  ptx_in(e, DT_f32, 501 * 48);
  env_nest(e, ML_reduce, "48|501", RED_max, "load:f32(b1, add(mul(i1, 48), i0))", ptx_out(e, DT_f32, 48),
           "i0", "red:f32");
  env_nest(e, ML_reduce, "48|501", RED_sum, "exp(sub(load:f32(b1, add(mul(i1, 48), i0)), load:f32(b2, i0)))",
           ptx_out(e, DT_f32, 48), "i0", "red:f32");
  env_nest(e, ML_point, "48 501", 0, NULL, ptx_out(e, DT_f32, 501 * 48), "add(mul(i1, 48), i0)",
           "div(exp(sub(load:f32(b1, add(mul(i1, 48), i0)), load:f32(b2, i0))), load:f32(b3, i0))");
}

static void ptx_sums(Env *e) { /* whole tensors, of several types */
  ptx_in(e, DT_f32, 200000), ptx_in(e, DT_i32, 70000), ptx_in(e, DT_f64, 3000), ptx_in(e, DT_bool, 5000);
  env_nest(e, ML_reduce, "|200000", RED_sum, "load:f32(b1, i0)", ptx_out(e, DT_f32, 1), "0", "red:f32");
  env_nest(e, ML_reduce, "|70000", RED_sum, "cvt:i64(load:i32(b2, i0))", ptx_out(e, DT_i64, 1), "0",
           "red:i64");
  env_nest(e, ML_reduce, "|3000", RED_min, "load:f64(b3, i0)", ptx_out(e, DT_f64, 1), "0", "red:f64");
  env_nest(e, ML_reduce, "|5000", RED_all, "load:i1(b4, i0)", ptx_out(e, DT_bool, 1), "0", "red:i1");
  env_nest(e, ML_reduce, "|5000", RED_any, "load:i1(b4, i0)", ptx_out(e, DT_bool, 1), "0", "red:i1");
}

static void ptx_window(Env *e) { /* the largest of 3 x 3 */
  ptx_in(e, DT_f32, 8 * 18 * 18);
  env_nest(e, ML_reduce, "8 16 16|3 3", RED_max,
           "load:f32(b1, add(mul(i0, 324), add(mul(add(i1, i3), 18), add(i2, i4))))",
           ptx_out(e, DT_f32, 8 * 256), "add(mul(i0, 256), add(mul(i1, 16), i2))", "red:f32");
}

static void ptx_statistics(Env *e) { /* of channels in the middle */
  ptx_in(e, DT_f32, 6 * 10 * 50);
  env_nest(e, ML_reduce, "10|6 50", RED_sum, "load:f32(b1, add(mul(i1, 500), add(mul(i0, 50), i2)))",
           ptx_out(e, DT_f32, 10), "i0", "red:f32");
}

static void
ptx_variance(Env *e) { /* of channels, in two stages: the second reduction needs the first one's results */
  ptx_in(e, DT_f32, 64 * 16 * 1024), ptx_temp(e, DT_f32, 16);
  env_nest(e, ML_reduce, "16|64 1024", RED_sum, "load:f32(b1, add(mul(i1, 16384), add(mul(i0, 1024), i2)))",
           2, "i0", "div(red:f32, 65536:f32)");
  env_nest(e, ML_reduce, "16|64 1024", RED_sum,
           "mul(sub(load:f32(b1, add(mul(i1, 16384), add(mul(i0, 1024), i2))), load:f32(b2, i0)), "
           "sub(load:f32(b1, add(mul(i1, 16384), add(mul(i0, 1024), i2))), load:f32(b2, i0)))",
           ptx_out(e, DT_f32, 16), "i0", "div(red:f32, 65536:f32)");
  env_nest(e, ML_reduce, "16|4", RED_sum, "load:f32(b1, add(mul(i0, 4), i1))", ptx_out(e, DT_f32, 16), "i0",
           "add(red:f32, load:f32(b2, i0))");
}

static void ptx_groups(Env *e) { /* a reduction within each row's parts, which the row then uses */
  ptx_in(e, DT_f32, 40 * 8 * 64), ptx_temp(e, DT_f32, 40 * 8);
  env_nest(e, ML_reduce, "40 8|64", RED_sum, "load:f32(b1, add(mul(i0, 512), add(mul(i1, 64), i2)))", 2,
           "add(mul(i0, 8), i1)", "red:f32");
  env_nest(e, ML_point, "40 8 64", 0, NULL, ptx_out(e, DT_f32, 40 * 512),
           "add(mul(i0, 512), add(mul(i1, 64), i2))",
           "div(load:f32(b1, add(mul(i0, 512), add(mul(i1, 64), i2))), load:f32(b2, add(mul(i0, 8), i1)))");
}

static void ptx_in_place(Env *e) { /* an optimizer's step: momentum, then the parameter */
  ptx_in(e, DT_f32, 5000), ptx_in(e, DT_f32, 5000), ptx_in(e, DT_f32, 5000);
  env_nest(e, ML_point, "5000", 0, NULL, 1, "i0", "add(mul(load:f32(b1, i0), 0.9:f32), load:f32(b2, i0))");
  env_nest(e, ML_point, "5000", 0, NULL, 3, "i0", "sub(load:f32(b3, i0), mul(load:f32(b1, i0), 0.1:f32))");
}

static void ptx_integers(Env *e) {
  ptx_in(e, DT_i8, 4096), ptx_in(e, DT_i16, 4096), ptx_in(e, DT_u8, 4096);
  env_nest(e, ML_point, "4096", 0, NULL, ptx_out(e, DT_i16, 4096), "i0",
           "add(load:i16(b2, i0), cvt:i16(load:i8(b1, i0)))");
  env_nest(e, ML_point, "4096", 0, NULL, ptx_out(e, DT_u8, 4096), "i0", "xor(load:u8(b3, i0), 3:u8)");
  env_nest(e, ML_point, "4096", 0, NULL, ptx_out(e, DT_f32, 4096), "i0", "cvt:f32(mod(i0, 7))");
}

static void ptx_symbols(Env *e) { /* sizes that only the call knows */
  mg_ex_symbol(&e->x, 57, 1, 100, "s0");
  e->sym[0] = 57;
  ptx_in(e, DT_f32, 100 * 100);
  env_nest(e, ML_reduce, "64|s0", RED_sum, "load:f32(b1, add(mul(i0, 100), i1))", ptx_out(e, DT_f32, 64),
           "i0", "red:f32");
  env_nest(e, ML_point, "s0", 0, NULL, ptx_out(e, DT_f32, 100), "i0",
           "load:f32(b1, sub(i0, 3), le(3, i0), 1:f32)");
}

static const struct PtxCase {
  const char *name;
  void (*make)(Env *e);
  double tolerance;
} ptx_cases[] = {
    {"point", ptx_point, 0},
    {"point_odd", ptx_point_odd, 1e-6},
    {"point_half", ptx_point_half, 1e-2},
    {"broadcast", ptx_broadcast, 0},
    {"transposed", ptx_transposed, 0},
    {"transposed_odd", ptx_transposed_odd, 0},
    {"masked", ptx_masked, 0},
    {"gather", ptx_gather, 0},
    {"softmax", ptx_softmax, 1e-5},
    {"softmax_odd", ptx_softmax_odd, 1e-5},
    {"softmax_small", ptx_softmax_small, 1e-5},
    {"softmax_long", ptx_softmax_long, 1e-5},
    {"softmax_longer", ptx_softmax_longer, 1e-5},
    {"norm", ptx_norm, 3e-2},
    {"columns", ptx_columns, 1e-4},
    {"columns_long", ptx_columns_long, 1e-4},
    {"columns_softmax", ptx_columns_softmax, 1e-5},
    {"sums", ptx_sums, 1e-3},
    {"window", ptx_window, 0},
    {"statistics", ptx_statistics, 1e-4},
    {"variance", ptx_variance, 1e-3},
    {"groups", ptx_groups, 1e-3},
    {"in_place", ptx_in_place, 1e-5},
    {"integers", ptx_integers, 0},
    {"symbols", ptx_symbols, 1e-4},
};
#endif
