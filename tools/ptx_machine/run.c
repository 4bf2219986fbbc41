/* The machine's threads: block after block, each thread until it waits for others.
 * In: decoded instructions and a launch.  Out: written memory, or the first thing that is wrong.
 * Invariants: a register is read only once it was set; two threads touch a byte of shared memory, one of them
 * writing, only with a barrier between. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "machine_arith.h"

enum { WARP = 32, NOBODY = 0xFFFF, STEPS = 100000000 };

typedef enum ThreadState { TS_runs, TS_barrier, TS_exchange, TS_ended } ThreadState;

typedef struct Thread {
  int pc;
  uint8_t state; /* ThreadState */
} Thread;

typedef struct SharedByte { /* who touched it since the last barrier */
  uint16_t writer, reader;
  bool set;
} SharedByte;

typedef struct Machine {
  const PtxProgram *p;
  const PtxLaunch *l;
  Thread *thread;
  uint64_t *reg;
  uint8_t *known; /* per register of each thread */
  uint8_t *shared;
  SharedByte *byte;
  unsigned block;
  long steps; /* of this block */
  const PtxInstr *at;
  char *err;
} Machine;

static const char run_unset[] = "reads a register that was not set";

static PtxEnd run_wrong(Machine *m, unsigned t, const char *what) {
  snprintf(m->err, PTX_ERR, "block %u thread %u, line %d: %s: %.160s", m->block, t, m->at->line, what,
           m->p->line[m->at->line]);
  return PTX_wrong;
}

/* ---- registers ---- */

static bool run_read(Machine *m, unsigned t, int reg, uint64_t *v) {
  size_t at = (size_t)t * (size_t)m->p->nreg + (size_t)reg;
  *v = m->reg[at];
  return m->known[at];
}

static void run_set(Machine *m, unsigned t, int reg, uint64_t v) {
  size_t at = (size_t)t * (size_t)m->p->nreg + (size_t)reg;
  m->reg[at] = v;
  m->known[at] = 1;
}

static bool run_value(Machine *m, unsigned t, const PtxOperand *o, uint64_t *v) {
  switch (o->kind) {
  case PK_reg: return run_read(m, t, o->reg, v);
  case PK_bits: *v = o->bits; return true;
  case PK_special: *v = o->reg == PX_tid ? t : m->block; return true;
  default: return false;
  }
}

/* ---- memory ---- */

static bool run_inside(const Machine *m, uint64_t at, size_t bytes) {
  for (int i = 0; i < m->l->nmemory; i++) {
    uint64_t base = (uint64_t)(uintptr_t)m->l->memory[i].base;
    if (at >= base && at + bytes <= base + m->l->memory[i].bytes) return true;
  }
  return false;
}

/* A touch of shared memory: NULL, or what is wrong with it. */
static const char *run_touch(Machine *m, unsigned t, uint64_t at, size_t bytes, bool writes) {
  for (size_t k = 0; k < bytes; k++) {
    SharedByte *b = &m->byte[at - PTX_SHARED_BASE + k];
    bool others_wrote = b->writer != NOBODY && b->writer != t,
         others_read = b->reader != NOBODY && b->reader != t;
    if (!writes && !b->set) return "reads shared memory that nobody wrote";
    if (others_wrote || (writes && others_read)) return "races for shared memory";
    if (writes) b->writer = (uint16_t)t, b->set = true;
    else b->reader = (uint16_t)t;
  }
  return NULL;
}

/* The host's address of an access, or NULL and *why. */
static uint8_t *run_address(Machine *m, unsigned t, const PtxOperand *o, size_t bytes, const char **why) {
  uint64_t base = 0;
  *why = run_unset;
  if (o->reg >= 0 && !run_read(m, t, o->reg, &base)) return NULL;
  bool shared = m->at->space == PS_shared;
  if (shared) base = (uint32_t)base;
  uint64_t at = base + o->bits;
  *why = "is not aligned";
  if (at % bytes) return NULL;
  *why = "is outside of its memory";
  if (!shared) return run_inside(m, at, bytes) ? (uint8_t *)(uintptr_t)at : NULL;
  if (at < PTX_SHARED_BASE || at + bytes > PTX_SHARED_BASE + m->p->shared) return NULL;
  *why = run_touch(m, t, at, bytes, m->at->op == PO_st);
  return *why ? NULL : m->shared + (at - PTX_SHARED_BASE);
}

static PtxEnd run_load(Machine *m, unsigned t) {
  const PtxInstr *i = m->at;
  PtxType ty = (PtxType)i->type[0];
  size_t bytes = (size_t)ptx_type_bytes(ty);
  const char *why;
  if (i->space == PS_param) return run_set(m, t, i->arg[0].reg, m->l->arg[i->arg[1].bits]), PTX_ran;
  const uint8_t *from = run_address(m, t, &i->arg[1], bytes * i->vec, &why);
  if (!from) return run_wrong(m, t, why);
  for (int k = 0; k < i->vec; k++) {
    uint64_t v = 0;
    memcpy(&v, from + bytes * (size_t)k, bytes);
    run_set(m, t, i->vec > 1 ? i->arg[0].list[k] : i->arg[0].reg, (uint64_t)ptx_int(ty, v));
  }
  return PTX_ran;
}

static PtxEnd run_store(Machine *m, unsigned t) {
  const PtxInstr *i = m->at;
  size_t bytes = (size_t)ptx_type_bytes((PtxType)i->type[0]);
  const char *why;
  uint8_t *to = run_address(m, t, &i->arg[0], bytes * i->vec, &why);
  if (!to) return run_wrong(m, t, why);
  for (int k = 0; k < i->vec; k++) {
    uint64_t v;
    PtxOperand one = {.kind = PK_reg, .reg = i->arg[1].list[k]};
    if (!run_value(m, t, i->vec > 1 ? &one : &i->arg[1], &v))
      return run_wrong(m, t, "stores a register that was not set");
    memcpy(to + bytes * (size_t)k, &v, bytes);
  }
  return PTX_ran;
}

/* ---- instructions ---- */

/* "mov.b32 %r1, {%h1, %h2}" and the other way round. */
static PtxEnd run_pack(Machine *m, unsigned t) {
  const PtxOperand *to = &m->at->arg[0], *from = &m->at->arg[1];
  const PtxOperand *list = to->kind == PK_list ? to : from;
  int bits = 8 * ptx_type_bytes((PtxType)m->at->type[0]) / list->nlist;
  uint64_t all = 0, v, mask = ((uint64_t)1 << bits) - 1;
  if (to->kind == PK_list) {
    if (!run_value(m, t, from, &all)) return run_wrong(m, t, run_unset);
    for (int k = 0; k < to->nlist; k++) run_set(m, t, to->list[k], all >> (bits * k) & mask);
    return PTX_ran;
  }
  for (int k = 0; k < from->nlist; k++) {
    if (!run_read(m, t, from->list[k], &v)) return run_wrong(m, t, run_unset);
    all |= (v & mask) << (bits * k);
  }
  run_set(m, t, to->reg, all);
  return PTX_ran;
}

static uint64_t run_result(const PtxInstr *i, const uint64_t *s) {
  switch (i->op) {
  case PO_mov:
  case PO_cvta: return s[0];
  case PO_selp: return s[2] ? s[0] : s[1];
  case PO_setp: return ptx_compare(i, s[0], s[1]) && (!i->combines || s[2]);
  case PO_cvt: return ptx_convert(i, s[0], s[1]);
  default: return ptx_arith(i, s);
  }
}

/* Everything that sets one register from others. */
static PtxEnd run_compute(Machine *m, unsigned t) {
  const PtxInstr *i = m->at;
  uint64_t s[PTX_OPERANDS] = {0};
  for (int k = 1; k < i->narg; k++)
    if (!run_value(m, t, &i->arg[k], &s[k - 1])) return run_wrong(m, t, run_unset);
  run_set(m, t, i->arg[0].reg, run_result(i, s));
  return PTX_ran;
}

/* One instruction of a thread that runs. */
static PtxEnd run_step(Machine *m, unsigned t) {
  Thread *th = &m->thread[t];
  uint64_t guard = 1;
  if (th->pc >= m->p->ninstr) return th->state = TS_ended, PTX_ran;
  const PtxInstr *i = m->at = &m->p->instr[th->pc++];
  if (i->guard >= 0 && !run_read(m, t, i->guard, &guard)) return run_wrong(m, t, "the predicate was not set");
  if (!guard != i->guard_not) return PTX_ran;
  if (++m->steps > STEPS) return run_wrong(m, t, "does not end");
  switch (i->op) {
  case PO_ret: th->state = TS_ended; return PTX_ran;
  case PO_trap: return PTX_trapped;
  case PO_bra: th->pc = i->arg[0].reg; return PTX_ran;
  case PO_bar: th->state = TS_barrier; return PTX_ran;
  case PO_shfl: th->state = TS_exchange; return PTX_ran;
  case PO_ld: return run_load(m, t);
  case PO_st: return run_store(m, t);
  case PO_mov:
    if (i->arg[0].kind == PK_list || i->arg[1].kind == PK_list) return run_pack(m, t);
    return run_compute(m, t);
  default: return run_compute(m, t);
  }
}

/* ---- threads that wait ---- */

/* shfl.sync.bfly with all threads of a warp. */
static PtxEnd run_exchange(Machine *m, unsigned first) {
  unsigned n = m->l->threads - first < WARP ? m->l->threads - first : WARP;
  uint64_t v[WARP], lanes = 0;
  for (unsigned k = 0; k < n; k++) {
    const Thread *th = &m->thread[first + k];
    m->at = &m->p->instr[th->pc - 1];
    if (th->state != TS_exchange || th->pc != m->thread[first].pc)
      return run_wrong(m, first + k, "is not where its warp exchanges");
    if (!run_value(m, first + k, &m->at->arg[1], &v[k]))
      return run_wrong(m, first + k, "gives what was not set");
  }
  for (unsigned k = 0; k < n; k++) {
    run_value(m, first + k, &m->at->arg[2], &lanes);
    if ((k ^ lanes) >= n) return run_wrong(m, first + k, "takes from no thread");
    run_set(m, first + k, m->at->arg[0].reg, v[k ^ lanes]);
    m->thread[first + k].state = TS_runs;
  }
  return PTX_ran;
}

static PtxEnd run_barrier(Machine *m) {
  for (unsigned t = 0; t < m->l->threads; t++) {
    Thread *th = &m->thread[t];
    if (th->pc != m->thread[0].pc || th->state != TS_barrier) {
      m->at = &m->p->instr[th->pc - 1];
      return run_wrong(m, t, "is not where the block waits");
    }
    th->state = TS_runs;
  }
  for (size_t k = 0; k < m->p->shared; k++) m->byte[k].reader = m->byte[k].writer = NOBODY;
  return PTX_ran;
}

/* All threads have stopped: lets them go on.  *ended: there is nobody left. */
static PtxEnd run_release(Machine *m, bool *ended) {
  bool any = false;
  *ended = true;
  for (unsigned t = 0; t < m->l->threads; t++) {
    if (m->thread[t].state == TS_exchange) {
      PtxEnd e = run_exchange(m, t / WARP * WARP);
      if (e != PTX_ran) return e;
      any = true;
    }
    *ended &= m->thread[t].state == TS_ended;
  }
  return any || *ended ? PTX_ran : run_barrier(m);
}

static PtxEnd run_block(Machine *m) {
  memset(m->thread, 0, sizeof *m->thread * m->l->threads);
  memset(m->known, 0, (size_t)m->l->threads * (size_t)m->p->nreg);
  for (size_t k = 0; k < m->p->shared; k++) m->byte[k] = (SharedByte){NOBODY, NOBODY, false};
  for (bool ended = false; !ended;) {
    for (unsigned t = 0; t < m->l->threads; t++)
      while (m->thread[t].state == TS_runs) {
        PtxEnd e = run_step(m, t);
        if (e != PTX_ran) return e;
      }
    PtxEnd e = run_release(m, &ended);
    if (e != PTX_ran) return e;
  }
  return PTX_ran;
}

PtxEnd ptx_run(const PtxProgram *p, const PtxLaunch *l, char *err) {
  size_t regs = (size_t)l->threads * (size_t)p->nreg + 1;
  Machine m = {.p = p,
               .l = l,
               .thread = calloc(l->threads, sizeof(Thread)),
               .reg = calloc(regs, sizeof(uint64_t)),
               .known = calloc(regs, 1),
               .shared = calloc(p->shared + 1, 1),
               .byte = calloc(p->shared + 1, sizeof(SharedByte)),
               .err = err};
  bool ok = m.thread && m.reg && m.known && m.shared && m.byte;
  PtxEnd e = ok ? PTX_ran : PTX_wrong;
  if (!ok) snprintf(err, PTX_ERR, "out of memory");
  for (; e == PTX_ran && m.block < l->blocks; m.block++) m.steps = 0, e = run_block(&m);
  free(m.thread);
  free(m.reg);
  free(m.known);
  free(m.shared);
  free(m.byte);
  return e;
}
