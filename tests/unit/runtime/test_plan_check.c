/* Descriptions of plans: a sound one is taken, and each number in it that is wrong is found. */
#include <string.h>
#include "check.h"
#include "runtime/plan/plan_check.h"

/* Two inputs of 6 floats; a call makes buffer 4 of input 1; a kernel reads input 2, buffer 4 and the arena
 * and writes the new tensor; an engine writes the arena.  Slots: 0 to 3 are 6, 1, 0, 24. */
typedef struct Made {
  int64_t slot[4];
  MgPlanBuf buf[6];
  MgPlanView in, out, arena;
  uint32_t arg[4];
  MgPlanStep step[3];
  MgPlanFresh fresh;
  MgPlanBlock block[2];
  MgPlanOut result[4];
  MgPlanCheck check;
  MgSizeOp op;
  uint32_t written;
  uint64_t bytes[2];
  MgPlanSpec s;
} Made;

static MgPlanView view(uint32_t buf) {
  return (MgPlanView){.buf = buf, .dtype = 6, .ndim = 1, .elsize = 4, .size = 0, .stride = 1, .offset = 2};
}

static void make(Made *m) {
  *m = (Made){.slot = {6, 1, 0, 24},
              .bytes = {24, 24},
              .arg = {2, 4, 3, 5},
              .check = {"IndexError", "out of range"},
              .op = {SZ_add, 2, 2, 2}};
  m->buf[1] = (MgPlanBuf){PM_input, 0};
  m->buf[2] = (MgPlanBuf){PM_input, 1};
  m->buf[3] = (MgPlanBuf){PM_arena, 0};
  m->buf[4] = (MgPlanBuf){PM_extern, 0};
  m->buf[5] = (MgPlanBuf){PM_fresh, 0};
  m->in = view(1);
  m->out = view(4);
  m->arena = view(3);
  m->step[0] = (MgPlanStep){.kind = PK_host, .in = &m->in, .nin = 1, .out = &m->out, .nout = 1};
  m->step[1] =
      (MgPlanStep){.kind = PK_engine, .in = &m->in, .nin = 1, .out = &m->arena, .nout = 1, .scratch = 2};
  m->step[2] = (MgPlanStep){.kind = PK_kernel, .buf = m->arg, .nbuf = 4, .outer = 0, .grain = 1, .work = 3};
  m->fresh.view = view(5);
  m->block[1].offset = 32;
  m->result[0] = (MgPlanOut){.kind = PO_fresh};
  m->result[1] = (MgPlanOut){.kind = PO_same_input, .index = 1};
  m->result[2] = (MgPlanOut){.kind = PO_view, .view = view(4)};
  m->result[3] = (MgPlanOut){.kind = PO_same_output, .index = 2};
  m->s = (MgPlanSpec){.ninput = 2,
                      .buf = m->buf,
                      .nbuf = 6,
                      .step = m->step,
                      .nstep = 3,
                      .fresh = &m->fresh,
                      .nfresh = 1,
                      .out = m->result,
                      .nout = 4,
                      .slot0 = m->slot,
                      .nslot = 4,
                      .sizeop = &m->op,
                      .nsizeop = 1,
                      .block = m->block,
                      .nblock = 2,
                      .arena = 64,
                      .err = 1,
                      .check = &m->check,
                      .ncheck = 1,
                      .written = &m->written,
                      .nwritten = 1};
}

static MgCtx ctx;

#define WRONG(change)                                                                                        \
  do {                                                                                                       \
    Made m;                                                                                                  \
    make(&m);                                                                                                \
    change;                                                                                                  \
    const char *why = mg_plan_check(&ctx, &m.s, m.bytes);                                                    \
    CHECK(why &&#change);                                                                                    \
  } while (0)

static void check_tables(void) {
  WRONG(m.buf[1].index = 2);
  WRONG(m.buf[1].mem = 9);
  WRONG(m.buf[3].index = 2);
  WRONG(m.buf[5].index = 1);
  WRONG(m.buf[4].mem = PM_fresh);
  WRONG(m.buf[5].mem = PM_none);
  WRONG(m.fresh.view.buf = 4);
  WRONG(m.fresh.view.offset = 1);
  WRONG(m.fresh.view.size = 4);
  WRONG(m.block[1].offset = 65);
  WRONG(m.block[1].offset = 61);
  WRONG(m.block[0].offset = 44);
  WRONG(m.s.arena = (uint64_t)1 << 60);
  WRONG(m.s.err = 2);
  WRONG(m.s.ncheck = 100);
  WRONG(m.s.dynamic = true);
  WRONG(m.s.nsym = 1);
  WRONG(m.s.nfact = 1);
  WRONG(m.op.op = SZ_max + 1);
  WRONG(m.op.dst = 4);
  WRONG(m.op.a = 4);
  WRONG(m.op.b = UINT32_MAX);
  WRONG(m.written = 2);
}

static void check_views(void) {
  WRONG(m.in.buf = 6);
  WRONG(m.in.ndim = 65);
  WRONG(m.in.elsize = 17);
  WRONG(m.in.elsize = 8);
  WRONG(m.in.size = UINT32_MAX);
  WRONG(m.in.size = 4);
  WRONG(m.in.stride = 4);
  WRONG(m.in.stride = 3);
  WRONG(m.in.offset = 4);
  WRONG(m.in.offset = 1);
  WRONG(m.slot[0] = -1);
  WRONG(m.slot[0] = 7);
  WRONG(m.slot[0] = INT64_MAX);
  WRONG(m.slot[1] = -1);
  WRONG(m.slot[1] = INT64_MAX);
  WRONG(m.slot[2] = -1);
  WRONG(m.slot[2] = 1);
  WRONG(m.bytes[0] = 23);
  WRONG(m.arena.size = 3);
  WRONG(m.in.ndim = 5);
  WRONG(memset(&m.in.whole, 0x55, 1));
  WRONG(memset(&m.in.opaque, 2, 1));
}

static void check_steps(void) {
  WRONG(m.step[0].kind = PK_host + 1);
  WRONG(m.step[0].nin = 513);
  WRONG(m.step[0].nout = UINT32_MAX);
  WRONG(m.step[1].scratch = 3);
  WRONG(m.step[2].outer = 4);
  WRONG(m.step[2].sizes = 5);
  WRONG(m.step[2].grain = -1);
  WRONG(m.step[2].work = -1);
  WRONG(m.step[2].work = INT64_MAX);
  WRONG(m.arg[0] = 6);
  WRONG(m.buf[2].mem = PM_none);
  WRONG(m.out.buf = 3);                               /* a call makes its results' memory itself */
  WRONG(m.in.buf = 4);                                /* before it is made */
  WRONG((m.step[1] = m.step[0]));                     /* made twice */
  WRONG((m.step[0] = m.step[2], m.step[2].nbuf = 0)); /* a kernel reads what is made later */
  WRONG((m.arena.buf = 4, m.step[0].nout = 0));       /* an engine makes no memory */
}

static void check_outputs(void) {
  WRONG(m.result[0].kind = PO_view + 1);
  WRONG(m.result[0].index = 1);
  WRONG(m.result[1].index = 2);
  WRONG(m.result[3].index = 3);
  WRONG(m.result[2].view.buf = 0);
  WRONG(m.result[2].view.buf = 7);
  WRONG(m.result[2].view.offset = 3);
  WRONG(m.result[2].viewed = true);
  WRONG(memset(&m.result[2].viewed, 3, 1));
}

int main(void) {
  Made m;
  mg_ctx_init(&ctx);
  make(&m);
  CHECK(!mg_plan_check(&ctx, &m.s, m.bytes));
  m.bytes[0] = UINT64_MAX; /* not known */
  CHECK(!mg_plan_check(&ctx, &m.s, m.bytes));
  check_tables();
  check_views();
  check_steps();
  check_outputs();
  mg_ctx_free(&ctx);
  return test_done();
}
