/* Loops of a kernel: scopes that are opened and closed, with the accumulators that they carry.
 * In: bounds, and how often the loop runs.  Out: blocks with phis in the text of the scope around it. */
#include "back/emit/emit_llvm_priv.h"
#include "base/assert.h"
#include <string.h>

void em_fail(Em *e, MgRc rc) {
  if (e->rc == MG_OK) e->rc = rc;
}

bool em_is_const(Em *e, EmRef v, int64_t *k) { return v.id == -1 && mg_ex_const_int(e->x, v.k, k); }

EmRef em_arith(Em *e, const char *tmpl, MgScalarOp op, EmRef a, EmRef b) {
  EmRef s[2] = {a, b};
  if (a.id == -1 && b.id == -1) return (EmRef){.id = -1, .k = mg_ex_op(e->x, op, a.k, b.k, 0), .lanes = 1};
  return em_template(e, tmpl, TY_i64, TY_i64, 1, s, 2);
}

void em_go_to(Em *e, int k, EmRef v, int by) {
  e->scope[v.level].serial = ++e->serial;
  e->scope[e->depth].serial = ++e->serial;
  e->idx[k] = by ? em_arith(e, "add $t $a, $b", OP_add, v, em_int(e, by)) : v;
  e->idx[k].level = v.level;
}

/* Opens the loop idx(k) = lo, lo + step, ... < hi; accumulators marked live are carried. */
void em_loop_open(Em *e, int k, EmRef lo, EmRef hi, int step, int run, bool maybe_empty, const bool *live) {
  if (e->depth + 1 >= EMIT_MAX_SCOPE) {
    em_fail(e, MG_UNSUP);
    return;
  }
  EmScope *s = &e->scope[++e->depth];
  MgStrbuf keep = s->buf;
  keep.len = 0;
  memset(s, 0, sizeof *s);
  s->buf = keep;
  if (s->buf.p) s->buf.p[0] = 0;
  s->serial = ++e->serial;
  s->idx = k;
  s->lo = lo;
  s->hi = hi;
  s->step = step;
  s->maybe_empty = maybe_empty;
  s->body = run == EM_RUN_straight ? -1 : e->nlabel++;
  s->label = run == EM_RUN_straight ? e->scope[e->depth - 1].label : s->body;
  s->iv = run == EM_RUN_straight ? lo : em_new(e, e->depth, 1);
  if (run == EM_RUN_once) { /* a value of its own keeps the code from leaving the conditional block */
    mg_sb_printf(&s->buf, "  %%v%d = add i64 ", s->iv.id);
    em_put(e, &s->buf, lo, TY_i64);
    mg_sb_puts(&s->buf, ", 0\n");
  }
  s->iv.level =
      (uint8_t)e->depth; /* also of a constant: what depends on the index must not outlive this binding */
  e->idx[k] = s->iv;
  for (int i = 0; i < EMIT_MAX_ACC; i++) s->phi[i] = -1;
  for (int i = 0; i < e->nacc && run != EM_RUN_straight; i++) {
    if (!live[i]) continue;
    s->phi[i] = e->nid++;
  }
}

static void put_phi(Em *e, MgStrbuf *b, int id, const EmAcc *a, EmRef from, int from_label, EmRef back,
                    int back_label) {
  mg_sb_printf(b, "  %%v%d = phi ", id);
  em_put_ty(b, em_ty(a->ty), a->lanes);
  mg_sb_puts(b, " [ ");
  em_put(e, b, from, a->ty);
  mg_sb_printf(b, ", %%L%d ], [ ", from_label);
  em_put(e, b, back, a->ty);
  mg_sb_printf(b, ", %%L%d ]\n", back_label);
}

void em_loop_enter(Em *e, int run, EmEntry *in) {
  EmScope *s = &e->scope[e->depth];
  for (int i = 0; i < e->nacc; i++) {
    in->v[i] = e->acc[i].cur;
    if (run == EM_RUN_loop && s->phi[i] >= 0)
      e->acc[i].cur = (EmRef){.id = s->phi[i], .lanes = e->acc[i].lanes, .level = (uint8_t)e->depth};
  }
}

/* From outside into the first turn, if there is one. */
static void loop_put_entry(Em *e, MgStrbuf *b, const EmScope *s, bool sure, int exit) {
  if (sure) {
    mg_sb_printf(b, "  br label %%L%d\n", s->body);
    return;
  }
  int c = e->nid++;
  mg_sb_printf(b, "  %%v%d = icmp slt i64 ", c);
  em_put_size(e, b, s->lo);
  mg_sb_puts(b, ", ");
  em_put_size(e, b, s->hi);
  mg_sb_printf(b, "\n  br i1 %%v%d, label %%L%d, label %%L%d\n", c, s->body, exit);
}

/* The loop variable and what the accumulators hold at the start of a turn; pre: the block before the loop. */
static void loop_put_phis(Em *e, MgStrbuf *b, const EmScope *s, const EmEntry *in, EmRef next, int pre) {
  mg_sb_printf(b, "  %%v%d = phi i64 [ ", s->iv.id);
  em_put_size(e, b, s->lo);
  mg_sb_printf(b, ", %%L%d ], [ %%v%d, %%L%d ]\n", pre, next.id, s->label);
  for (int i = 0; i < e->nacc; i++)
    if (s->phi[i] >= 0) put_phi(e, b, s->phi[i], &e->acc[i], in->v[i], pre, e->acc[i].cur, s->label);
}

/* From the end of a turn into the next one, or out. */
static void loop_put_latch(Em *e, MgStrbuf *b, const EmScope *s, EmRef next, int exit) {
  int c = e->nid++;
  mg_sb_printf(b, "  %%v%d = icmp slt i64 %%v%d, ", c, next.id);
  em_put_size(e, b, s->hi);
  mg_sb_printf(b, "\n  br i1 %%v%d, label %%L%d, label %%L%d\n", c, s->body, exit);
}

/* What the accumulators hold behind the loop, which may have been skipped unless `sure`. */
static void loop_leave_accs(Em *e, MgStrbuf *b, const EmScope *s, const EmEntry *in, bool sure, int pre) {
  for (int i = 0; i < e->nacc; i++) {
    if (s->phi[i] < 0) continue;
    EmRef r = e->acc[i].cur;
    if (!sure) {
      r = em_new(e, e->depth, e->acc[i].lanes);
      put_phi(e, b, r.id, &e->acc[i], in->v[i], pre, e->acc[i].cur, s->label);
    }
    r.level = (uint8_t)e->depth;
    e->acc[i].cur = r;
  }
}

/* A scope that runs once, without blocks of its own. */
static void loop_close_straight(Em *e, const EmScope *s, EmScope *p) {
  mg_sb_puts(&p->buf, mg_sb_text(&s->buf));
  p->label = s->label;
  for (int i = 0; i < e->nacc; i++)
    if (e->acc[i].cur.level > e->depth) e->acc[i].cur.level = (uint8_t)e->depth;
}

void em_loop_close(Em *e, int run, const EmEntry *in) {
  MG_ASSERT(e->depth > 0, "a loop is closed that was not opened");
  EmScope *s = &e->scope[e->depth], *p = &e->scope[e->depth - 1];
  MgStrbuf *b = &p->buf;
  EmRef next = {.id = -2};
  int64_t lo, hi;
  bool sure = em_is_const(e, s->lo, &lo) && em_is_const(e, s->hi, &hi) && lo < hi;
  if (run == EM_RUN_loop) { /* in the loop's own text, at its end */
    EmRef q[2] = {s->iv, em_int(e, s->step)};
    next = em_template(e, "add $t $a, $b", TY_i64, TY_i64, 1, q, 2);
  }
  e->depth--;
  while (e->nfwd && e->fwd[e->nfwd - 1].level > e->depth) e->nfwd--;
  if (run == EM_RUN_straight) {
    loop_close_straight(e, s, p);
    return;
  }
  int exit = e->nlabel++, pre = p->label;
  loop_put_entry(e, b, s, sure, exit);
  mg_sb_printf(b, "L%d:\n", s->body);
  if (run == EM_RUN_loop) loop_put_phis(e, b, s, in, next, pre);
  mg_sb_puts(b, mg_sb_text(&s->buf));
  if (run == EM_RUN_loop) loop_put_latch(e, b, s, next, exit);
  else mg_sb_printf(b, "  br label %%L%d\n", exit);
  mg_sb_printf(b, "L%d:\n", exit);
  loop_leave_accs(e, b, s, in, sure, pre);
  p->label = exit;
  if (s->buf.failed) em_fail(e, MG_NOMEM);
}
