/* The attention kernel's text.
 * In: a head size.  Out: PTX.  A block has 64 queries, which stay in registers; keys and values pass through
 * two halves of shared memory, one being filled while the other is used.  Scores, their running maxima and
 * sums, and the result stay in the registers of mma.m16n8k8: lane 4g+t has rows g and g+8, columns 2t and
 * 2t+1 of each tile.
 * The order in which a product is summed is free, so columns 2t and 2t+1 of queries and keys stand for t and
 * t+4 of the instruction: one load gives both, and scores become its left operand as they lie. */
#include "cuda/device_attention.h"

#define PUT(...) mg_sb_printf(b, __VA_ARGS__)

enum { ROW_PAD_K = 8, ROW_PAD_V = 4 }; /* floats; lanes of a warp then read 32 different banks */

typedef struct Att {
  AttentionShape s;
  int steps, cols;         /* 8-wide parts of a head; of a tile of keys */
  int k_row, v_row;        /* bytes of a row in shared memory */
  int k_bytes, v_bytes;    /* of a half */
  int chunks, rows_a_load; /* 16-byte parts of a row; rows that all threads load at a time */
} Att;

AttentionShape mg_attention_shape(int dim, bool causal) {
  bool wide = dim > 64; /* registers for 16 queries a warp only */
  return (AttentionShape){
      .dim = dim, .tiles = wide ? 1 : 2, .warps = wide ? 4 : 2, .keys = wide ? 16 : 32, .causal = causal};
}

static void att_declare(MgStrbuf *b, const Att *a) {
  static const char *const number[] = {"qb", "qh", "qs", "kb",    "kh", "ks", "vb",   "vh",    "vs",
                                       "ob", "oh", "os", "heads", "nq", "nk", "nlse", "nblock"};
  PUT(".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry mg_attention(");
  for (const char *p = "qkvol"; *p; p++) PUT(".param .u64 %c, ", *p);
  for (size_t i = 0; i < sizeof number / sizeof *number; i++) PUT(".param .u32 %s, ", number[i]);
  PUT(".param .f32 scale)\n.maxntid %d\n{\n", a->s.warps * 32);
  PUT("  .reg .pred %%p<8>;\n  .reg .b32 %%r<64>;\n  .reg .b64 %%d<32>;\n  .reg .f32 %%x<16>;\n");
  PUT("  .reg .b32 %%b<4>;\n  .reg .b32 %%q<%d>;\n", a->s.tiles * a->steps * 4);
  PUT("  .reg .f32 %%s<%d>;\n  .reg .f32 %%o<%d>;\n", a->s.tiles * a->cols * 4, a->s.tiles * a->steps * 4);
  PUT("  .reg .b32 %%a<%d>;\n", a->s.tiles * a->cols * 4); /* the scores as an operand */
  PUT("  .reg .f32 %%m<%d>;\n  .reg .f32 %%l<%d>;\n  .reg .b32 %%e<%d>;\n", a->s.tiles * 2, a->s.tiles * 2,
      a->s.tiles * 2);
  PUT("  .shared .align 16 .b8 smem[%d];\n", 2 * (a->k_bytes + a->v_bytes));
}

/* d = base + batch * first stride + head * second */
static void att_base(MgStrbuf *b, int d, const char *base) {
  PUT("  ld.param.u64 %%d%d, [%s];\n", d, base);
  for (int i = 0; i < 2; i++)
    PUT("  ld.param.u32 %%r0, [%s%c];\n  mul.wide.u32 %%d0, %%r0, %%r%d;\n  add.u64 %%d%d, %%d%d, %%d0;\n",
        base, i ? 'h' : 'b', i ? 12 : 11, d, d);
}

/* r1 lane/4, r2 lane%4, r3 first query of the block, r4 that of the thread, r5 queries, r6 keys, r10 batch *
 * heads + head, r11 batch, r12 head. */
static void att_place(MgStrbuf *b, const Att *a) {
  PUT("  mov.u32 %%r20, %%tid.x;\n  and.b32 %%r21, %%r20, 31;\n  shr.u32 %%r22, %%r20, 5;\n");
  PUT("  shr.u32 %%r1, %%r21, 2;\n  and.b32 %%r2, %%r21, 3;\n");
  PUT("  mov.u32 %%r0, %%ctaid.x;\n  ld.param.u32 %%r23, [nblock];\n");
  PUT("  div.u32 %%r10, %%r0, %%r23;\n  rem.u32 %%r24, %%r0, %%r23;\n");
  if (a->s.causal) /* the longest rows first */
    PUT("  sub.u32 %%r24, %%r23, %%r24;\n  sub.u32 %%r24, %%r24, 1;\n");
  PUT("  ld.param.u32 %%r23, [heads];\n  div.u32 %%r11, %%r10, %%r23;\n  rem.u32 %%r12, %%r10, %%r23;\n");
  PUT("  shl.b32 %%r3, %%r24, 6;\n  mad.lo.u32 %%r4, %%r22, %d, %%r3;\n  add.u32 %%r4, %%r4, %%r1;\n",
      16 * a->s.tiles);
  PUT("  ld.param.u32 %%r5, [nq];\n  ld.param.u32 %%r6, [nk];\n");
  att_base(b, 1, "q");
  att_base(b, 2, "k");
  att_base(b, 3, "v");
  att_base(b, 4, "o");
}

/* The queries, times scale and log2(e), as left operands. */
static void att_queries(MgStrbuf *b, const Att *a) {
  PUT("  ld.param.f32 %%x8, [scale];\n  ld.param.u32 %%r23, [qs];\n");
  for (int row = 0; row < a->s.tiles * 2; row++) {
    PUT("  add.u32 %%r24, %%r4, %d;\n  setp.lt.u32 %%p1, %%r24, %%r5;\n", row * 8);
    PUT("  mul.wide.u32 %%d0, %%r24, %%r23;\n  add.u64 %%d5, %%d1, %%d0;\n");
    PUT("  mul.wide.u32 %%d0, %%r2, 8;\n  add.u64 %%d5, %%d5, %%d0;\n");
    for (int i = 0; i < a->steps; i++) {
      int at = (row / 2 * a->steps + i) * 4 + row % 2;
      PUT("  mov.f32 %%x0, 0f00000000;\n  mov.f32 %%x1, 0f00000000;\n");
      PUT("  @%%p1 ld.global.v2.f32 {%%x0, %%x1}, [%%d5+%d];\n", i * 32);
      PUT("  mul.f32 %%x0, %%x0, %%x8;\n  mul.f32 %%x1, %%x1, %%x8;\n");
      PUT("  cvt.rna.tf32.f32 %%q%d, %%x0;\n  cvt.rna.tf32.f32 %%q%d, %%x1;\n", at, at + 2);
    }
  }
}

/* r30, r31 where the thread writes keys and values, r32, r33 where it reads them, in half 0; r34, r35 the
 * halves' offsets; r36 its row among those of a load; d6, d7 what it reads of row 0. */
static void att_lanes(MgStrbuf *b, const Att *a) {
  PUT("  rem.u32 %%r24, %%r20, %d;\n  div.u32 %%r36, %%r20, %d;\n", a->chunks, a->chunks);
  PUT("  mul.wide.u32 %%d0, %%r24, 16;\n  add.u64 %%d6, %%d2, %%d0;\n  add.u64 %%d7, %%d3, %%d0;\n");
  PUT("  mov.u32 %%r25, smem;\n  shl.b32 %%r24, %%r24, 4;\n  add.u32 %%r26, %%r25, %%r24;\n");
  PUT("  mad.lo.u32 %%r30, %%r36, %d, %%r26;\n", a->k_row);
  PUT("  add.u32 %%r26, %%r26, %d;\n  mad.lo.u32 %%r31, %%r36, %d, %%r26;\n", 2 * a->k_bytes, a->v_row);
  PUT("  shl.b32 %%r26, %%r2, 3;\n  add.u32 %%r26, %%r26, %%r25;\n  mad.lo.u32 %%r32, %%r1, %d, %%r26;\n",
      a->k_row);
  PUT("  shl.b32 %%r26, %%r1, 2;\n  add.u32 %%r26, %%r26, %%r25;\n  add.u32 %%r26, %%r26, %d;\n",
      2 * a->k_bytes);
  PUT("  mad.lo.u32 %%r33, %%r2, %d, %%r26;\n", 2 * a->v_row);
  PUT("  mov.u32 %%r34, 0;\n  mov.u32 %%r35, 0;\n");
  PUT("  ld.param.u32 %%r37, [ks];\n  ld.param.u32 %%r38, [vs];\n  sub.u32 %%r39, %%r6, 1;\n");
}

/* Begins to load the tile whose first key is in r40 into the halves at r34, r35; zeros beyond the last. */
static void att_load(MgStrbuf *b, const Att *a) {
  PUT("  add.u32 %%r41, %%r40, %%r36;\n  add.u32 %%r43, %%r30, %%r34;\n  add.u32 %%r44, %%r31, %%r35;\n");
  for (int row = 0; row < a->s.keys; row += a->rows_a_load) {
    PUT("  add.u32 %%r42, %%r41, %d;\n  setp.lt.u32 %%p1, %%r42, %%r6;\n", row);
    PUT("  selp.u32 %%r45, 16, 0, %%p1;\n  min.u32 %%r42, %%r42, %%r39;\n");
    PUT("  mad.wide.u32 %%d8, %%r42, %%r37, %%d6;\n  mad.wide.u32 %%d9, %%r42, %%r38, %%d7;\n");
    PUT("  cp.async.cg.shared.global [%%r43+%d], [%%d8], 16, %%r45;\n", row * a->k_row);
    PUT("  cp.async.cg.shared.global [%%r44+%d], [%%d9], 16, %%r45;\n", row * a->v_row);
  }
}

static void att_mma(MgStrbuf *b, char c, int to, char l, int left) {
  PUT("  mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%%%c%d, %%%c%d, %%%c%d, %%%c%d}, ", c, to, c,
      to + 1, c, to + 2, c, to + 3);
  PUT("{%%%c%d, %%%c%d, %%%c%d, %%%c%d}, {%%b0, %%b1}, ", l, left, l, left + 1, l, left + 2, l, left + 3);
  PUT("{%%%c%d, %%%c%d, %%%c%d, %%%c%d};\n", c, to, c, to + 1, c, to + 2, c, to + 3);
}

static void att_round(MgStrbuf *b) {
  PUT("  cvt.rna.tf32.f32 %%b0, %%x0;\n  cvt.rna.tf32.f32 %%b1, %%x1;\n");
}

/* s = queries * keys of the half at r46 */
static void att_scores(MgStrbuf *b, const Att *a) {
  for (int i = 0; i < a->s.tiles * a->cols * 4; i++) PUT("  mov.f32 %%s%d, 0f00000000;\n", i);
  for (int step = 0; step < a->steps; step++)
    for (int n = 0; n < a->cols; n++) {
      PUT("  ld.shared.v2.f32 {%%x0, %%x1}, [%%r46+%d];\n", n * 8 * a->k_row + step * 32);
      att_round(b);
      for (int t = 0; t < a->s.tiles; t++)
        att_mma(b, 's', (t * a->cols + n) * 4, 'q', (t * a->steps + step) * 4);
    }
}

/* Keys that a query does not see: from e on.  r47: the tile's first key and the lane's column. */
static void att_mask(MgStrbuf *b, const Att *a) {
  for (int n = 0; n < a->cols; n++)
    for (int col = 0; col < 2; col++) {
      PUT("  add.u32 %%r48, %%r47, %d;\n", n * 8 + col);
      for (int row = 0; row < a->s.tiles * 2; row++) {
        int at = (row / 2 * a->cols + n) * 4 + row % 2 * 2 + col;
        PUT("  setp.ge.u32 %%p3, %%r48, %%e%d;\n  selp.f32 %%s%d, 0fff800000, %%s%d, %%p3;\n", row, at, at);
      }
    }
}

/* The value of four neighbouring lanes: op of x0, in x0. */
static void att_quad(MgStrbuf *b, const char *op) {
  for (int by = 1; by <= 2; by++)
    PUT("  shfl.sync.bfly.b32 %%x1, %%x0, %d, 31, 0xffffffff;\n  %s.f32 %%x0, %%x0, %%x1;\n", by, op);
}

/* A row's new maximum, what was there before scaled to it, and the scores as powers of 2. */
static void att_softmax_row(MgStrbuf *b, const Att *a, int row) {
  int s = row / 2 * a->cols * 4 + row % 2 * 2, o = row / 2 * a->steps * 4 + row % 2 * 2;
  PUT("  max.f32 %%x0, %%s%d, %%s%d;\n", s, s + 1);
  for (int n = 1; n < a->cols; n++)
    PUT("  max.f32 %%x0, %%x0, %%s%d;\n  max.f32 %%x0, %%x0, %%s%d;\n", s + n * 4, s + n * 4 + 1);
  att_quad(b, "max");
  PUT("  max.f32 %%x2, %%m%d, %%x0;\n  sub.f32 %%x3, %%m%d, %%x2;\n  ex2.approx.ftz.f32 %%x3, %%x3;\n", row,
      row);
  PUT("  mov.f32 %%m%d, %%x2;\n  mul.f32 %%l%d, %%l%d, %%x3;\n", row, row, row);
  for (int i = 0; i < a->steps; i++)
    for (int c = o + i * 4; c < o + i * 4 + 2; c++) PUT("  mul.f32 %%o%d, %%o%d, %%x3;\n", c, c);
  for (int n = 0; n < a->cols; n++)
    for (int c = 0; c < 2; c++) {
      int from = s + n * 4 + c, to = (row / 2 * a->cols + n) * 4 + row % 2 + 2 * c;
      PUT("  sub.f32 %%x0, %%s%d, %%x2;\n  ex2.approx.ftz.f32 %%x0, %%x0;\n", from);
      PUT("  add.f32 %%l%d, %%l%d, %%x0;\n  cvt.rna.tf32.f32 %%a%d, %%x0;\n", row, row, to);
    }
}

/* o += powers * values of the half at r49 */
static void att_values(MgStrbuf *b, const Att *a) {
  for (int n = 0; n < a->cols; n++)
    for (int step = 0; step < a->steps; step++) {
      PUT("  ld.shared.f32 %%x0, [%%r49+%d];\n", n * 8 * a->v_row + step * 32);
      PUT("  ld.shared.f32 %%x1, [%%r49+%d];\n", n * 8 * a->v_row + step * 32 + a->v_row);
      att_round(b);
      for (int t = 0; t < a->s.tiles; t++)
        att_mma(b, 'o', (t * a->steps + step) * 4, 'a', (t * a->cols + n) * 4);
    }
}

/* r7 where the keys of the block end, e where those of each query do. */
static void att_begin(MgStrbuf *b, const Att *a) {
  PUT("  mov.u32 %%r7, %%r6;\n");
  if (a->s.causal) PUT("  add.u32 %%r24, %%r3, %d;\n  min.u32 %%r7, %%r7, %%r24;\n", ATTENTION_ROWS);
  for (int row = 0; row < a->s.tiles * 2; row++) {
    PUT("  mov.f32 %%m%d, 0fff800000;\n  mov.f32 %%l%d, 0f00000000;\n  mov.u32 %%e%d, %%r6;\n", row, row,
        row);
    if (a->s.causal)
      PUT("  add.u32 %%r24, %%r4, %d;\n  min.u32 %%e%d, %%e%d, %%r24;\n", row * 8 + 1, row, row);
  }
  for (int i = 0; i < a->s.tiles * a->steps * 4; i++) PUT("  mov.f32 %%o%d, 0f00000000;\n", i);
  PUT("  mov.u32 %%r40, 0;\n");
  att_load(b, a);
}

static void att_loop(MgStrbuf *b, const Att *a) {
  PUT("tile:\n  cp.async.wait_all;\n  bar.sync 0;\n");
  PUT("  add.u32 %%r46, %%r32, %%r34;\n  add.u32 %%r49, %%r33, %%r35;\n  shl.b32 %%r47, %%r2, 1;\n");
  PUT("  add.u32 %%r47, %%r47, %%r40;\n  mov.u32 %%r50, %%r40;\n  add.u32 %%r40, %%r40, %d;\n", a->s.keys);
  PUT("  sub.u32 %%r34, %d, %%r34;\n  sub.u32 %%r35, %d, %%r35;\n", a->k_bytes, a->v_bytes);
  PUT("  setp.lt.u32 %%p2, %%r40, %%r7;\n  @!%%p2 bra loaded;\n");
  att_load(b, a);
  PUT("loaded:\n");
  att_scores(b, a);
  PUT("  setp.le.u32 %%p3, %%r40, %%r6;\n");
  if (a->s.causal) PUT("  setp.le.and.u32 %%p3, %%r40, %%r3, %%p3;\n");
  PUT("  @%%p3 bra seen;\n");
  att_mask(b, a);
  PUT("seen:\n");
  for (int row = 0; row < a->s.tiles * 2; row++) att_softmax_row(b, a, row);
  att_values(b, a);
  PUT("  @%%p2 bra tile;\n");
}

/* A row of the result, and the logarithm of its sum. */
static void att_end_row(MgStrbuf *b, const Att *a, int row) {
  int o = row / 2 * a->steps * 4 + row % 2 * 2;
  PUT("  mov.f32 %%x0, %%l%d;\n", row);
  att_quad(b, "add");
  PUT("  rcp.rn.f32 %%x2, %%x0;\n  lg2.approx.f32 %%x3, %%x0;\n  add.f32 %%x3, %%x3, %%m%d;\n", row);
  PUT("  mul.f32 %%x3, %%x3, 0f3f317218;\n"); /* ln 2 */
  PUT("  add.u32 %%r24, %%r4, %d;\n  setp.lt.u32 %%p1, %%r24, %%r5;\n", row * 8);
  PUT("  mad.wide.u32 %%d5, %%r24, %%r23, %%d4;\n  mul.wide.u32 %%d0, %%r2, 8;\n  add.u64 %%d5, %%d5, "
      "%%d0;\n");
  for (int i = 0; i < a->steps; i++) {
    PUT("  mul.f32 %%x4, %%o%d, %%x2;\n  mul.f32 %%x5, %%o%d, %%x2;\n", o + i * 4, o + i * 4 + 1);
    PUT("  @%%p1 st.global.v2.f32 [%%d5+%d], {%%x4, %%x5};\n", i * 32);
  }
  PUT("  selp.f32 %%x3, %%x3, 0f7f800000, %%p1;\n  setp.lt.and.u32 %%p5, %%r24, %%r51, %%p4;\n");
  PUT("  mul.wide.u32 %%d0, %%r24, 4;\n  add.u64 %%d5, %%d10, %%d0;\n  @%%p5 st.global.f32 [%%d5], %%x3;\n");
}

/* p4: the lane writes logarithms; d10 where; r51 how many a row of them has. */
static void att_end(MgStrbuf *b, const Att *a) {
  PUT("  ld.param.u32 %%r23, [os];\n  ld.param.u64 %%d10, [l];\n  ld.param.u32 %%r51, [nlse];\n");
  PUT("  setp.ne.u64 %%p4, %%d10, 0;\n  setp.eq.and.u32 %%p4, %%r2, 0, %%p4;\n");
  PUT("  mul.wide.u32 %%d0, %%r10, %%r51;\n  shl.b64 %%d0, %%d0, 2;\n  add.u64 %%d10, %%d10, %%d0;\n");
  for (int row = 0; row < a->s.tiles * 2; row++) att_end_row(b, a, row);
  PUT("  ret;\n}\n");
}

void mg_attention_text(MgStrbuf *b, const AttentionShape *s) {
  Att a = {.s = *s, .steps = s->dim / 8, .cols = s->keys / 8, .chunks = s->dim / 4};
  a.k_row = (s->dim + ROW_PAD_K) * 4;
  a.v_row = (s->dim + ROW_PAD_V) * 4;
  a.k_bytes = s->keys * a.k_row;
  a.v_bytes = s->keys * a.v_row;
  a.rows_a_load = s->warps * 32 / a.chunks;
  att_declare(b, &a);
  att_place(b, &a);
  att_queries(b, &a);
  att_lanes(b, &a);
  att_begin(b, &a);
  att_loop(b, &a);
  att_end(b, &a);
}
