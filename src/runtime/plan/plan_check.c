/* Checks the description of a plan.  See the header.
 * Rules, in the order of the functions: slots exist; buffers name what exists; views lie in their buffer's
 * memory; an extern result is made once and before it is used; outputs, checks and blocks name what exists.
 * Only descriptions without symbols: sizes are the constants in slot0. */
#include "runtime/plan/plan_check.h"

enum { CHECK_MAX_ARGS = 512, CHECK_MAX_DIMS = 64, CHECK_MAX_ITEM = 16 /* bytes of an element */ };
#define CHECK_MAX_ARENA ((uint64_t)1 << 46)
#define CHECK_MAX_WORK ((int64_t)1 << 52)

typedef struct PlanCheck {
  const MgPlanSpec *s;
  uint64_t *bytes; /* per buffer: of its memory; UINT64_MAX: not known */
  bool *made;      /* per buffer: an extern result that exists by now */
} PlanCheck;

#define CHECK(condition, what)                                                                               \
  do {                                                                                                       \
    if (!(condition)) return what;                                                                           \
  } while (0)
#define CHECK_ALL(call)                                                                                      \
  do {                                                                                                       \
    const char *wrong_ = (call);                                                                             \
    if (wrong_) return wrong_;                                                                               \
  } while (0)

/* A bool from a file may be any byte. */
static bool check_bool(const bool *b) { return *(const unsigned char *)b <= 1; }

/* Slots [first, first + n) exist. */
static bool check_slots(const MgPlanSpec *s, uint32_t first, uint32_t n) {
  return (uint64_t)first + n <= s->nslot;
}

/* ---- views ---- */

/* Bytes from the buffer's base to the end of the last element; false: negative or too large. */
static bool check_extent(const MgPlanSpec *s, const MgPlanView *v, uint64_t *out) {
  int64_t last = s->slot0[v->offset], part;
  bool empty = false;
  if (last < 0) return false;
  for (uint32_t d = 0; d < v->ndim; d++) {
    int64_t size = s->slot0[v->size + d], stride = s->slot0[v->stride + d];
    if (size < 0 || stride < 0) return false;
    empty |= !size;
    if (size &&
        (__builtin_mul_overflow(size - 1, stride, &part) || __builtin_add_overflow(last, part, &last)))
      return false;
  }
  if (last > (int64_t)CHECK_MAX_ARENA) return false;
  *out = empty ? 0 : ((uint64_t)last + 1) * v->elsize;
  return true;
}

/* A view whose buffer exists, in memory of `bytes`. */
static const char *check_view(const PlanCheck *k, const MgPlanView *v) {
  const MgPlanSpec *s = k->s;
  uint64_t bytes;
  if (!v->buf) return NULL;
  CHECK(v->buf < s->nbuf, "the buffer of a view");
  CHECK(check_bool(&v->whole) && check_bool(&v->opaque), "a flag of a view");
  CHECK(v->ndim <= CHECK_MAX_DIMS && v->elsize <= CHECK_MAX_ITEM, "rank or dtype of a view");
  CHECK(check_slots(s, v->size, v->ndim) && check_slots(s, v->stride, v->ndim), "a slot of a view");
  CHECK(check_slots(s, v->offset, 1), "the offset of a view");
  CHECK(check_extent(s, v, &bytes), "the size of a view");
  CHECK(bytes <= k->bytes[v->buf], "a view beyond its buffer");
  return NULL;
}

/* A buffer that is read or written now. */
static const char *check_use(const PlanCheck *k, uint32_t buf) {
  CHECK(buf < k->s->nbuf, "a buffer");
  if (!buf) return NULL;
  CHECK(k->s->buf[buf].mem != PM_none, "a buffer without memory");
  CHECK(k->s->buf[buf].mem != PM_extern || k->made[buf], "a result that nothing has made");
  return NULL;
}

/* ---- tables ---- */

static const char *check_blocks(const MgPlanSpec *s) {
  CHECK(!s->dynamic && !s->nsym && !s->nfact, "symbols");
  CHECK(s->arena <= CHECK_MAX_ARENA, "the size of the arena");
  for (uint32_t i = 0; i < s->nblock; i++) CHECK(s->block[i].offset <= s->arena, "a block of the arena");
  CHECK(!s->ncheck || (s->err < s->nblock &&
                       s->arena - s->block[s->err].offset >= sizeof(int32_t) * (uint64_t)s->ncheck),
        "the place of the checks");
  for (uint32_t i = 0; i < s->nsizeop; i++) {
    const MgSizeOp *o = &s->sizeop[i];
    CHECK(o->op <= SZ_max && o->dst < s->nslot && o->a < s->nslot && o->b < s->nslot,
          "an operation on sizes");
  }
  for (uint32_t i = 0; i < s->nwritten; i++) CHECK(s->written[i] < s->ninput, "an input that is written");
  return NULL;
}

/* Where buffers are, and how much memory they have. */
static const char *check_bufs(PlanCheck *k, const uint64_t *input_bytes) {
  const MgPlanSpec *s = k->s;
  uint32_t nfresh = 0;
  for (uint32_t i = 0; i < s->nbuf; i++) {
    const MgPlanBuf *b = &s->buf[i];
    k->bytes[i] = UINT64_MAX;
    switch (b->mem) {
    case PM_none:
    case PM_extern: break;
    case PM_input:
      CHECK(b->index < s->ninput, "the input of a buffer");
      k->bytes[i] = input_bytes[b->index];
      break;
    case PM_arena:
      CHECK(b->index < s->nblock, "the block of a buffer");
      k->bytes[i] = s->arena - s->block[b->index].offset;
      break;
    case PM_fresh:
      CHECK(b->index == nfresh && nfresh < s->nfresh, "the tensor of a buffer"); /* in order, each once */
      CHECK(s->fresh[nfresh++].view.buf == i, "the buffer of a new tensor");
      break;
    default: return "the kind of a buffer";
    }
  }
  CHECK(nfresh == s->nfresh, "the number of new tensors");
  for (uint32_t i = 0; i < s->nfresh; i++) {
    const MgPlanView *v = &s->fresh[i].view;
    CHECK_ALL(check_view(k, v));
    CHECK(s->slot0[v->offset] == 0, "the offset of a new tensor");
    check_extent(s, v, &k->bytes[v->buf]);
  }
  return NULL;
}

/* ---- steps ---- */

static const char *check_kernel(const PlanCheck *k, const MgPlanStep *d) {
  CHECK(check_slots(k->s, d->outer, 1) && d->sizes <= k->s->nslot, "a slot of a kernel");
  CHECK(d->grain >= 0 && d->work >= 0 && d->work <= CHECK_MAX_WORK && k->s->slot0[d->outer] >= 0,
        "the work of a kernel");
  for (uint32_t i = 0; i < d->nbuf; i++) CHECK_ALL(check_use(k, d->buf[i]));
  return NULL;
}

static const char *check_call(PlanCheck *k, const MgPlanStep *d) {
  const MgPlanSpec *s = k->s;
  CHECK(d->nin <= CHECK_MAX_ARGS && d->nout <= CHECK_MAX_ARGS, "the number of arguments");
  CHECK(d->scratch <= s->nblock, "scratch memory");
  for (uint32_t i = 0; i < d->nin; i++) {
    CHECK_ALL(check_view(k, &d->in[i]));
    CHECK_ALL(check_use(k, d->in[i].buf));
  }
  for (uint32_t i = 0; i < d->nout; i++) {
    const MgPlanView *v = &d->out[i];
    CHECK_ALL(check_view(k, v));
    if (!v->buf || d->kind == PK_engine) {
      CHECK_ALL(check_use(k, v->buf));
      continue;
    }
    CHECK(s->buf[v->buf].mem == PM_extern && !k->made[v->buf], "the place of a result");
    k->made[v->buf] = true;
    if (!v->opaque) check_extent(s, v, &k->bytes[v->buf]);
  }
  return NULL;
}

/* ---- outputs ---- */

static const char *check_out(const PlanCheck *k, uint32_t i) {
  const MgPlanOut *o = &k->s->out[i];
  switch (o->kind) {
  case PO_same_input: CHECK(o->index < k->s->ninput, "the input that is an output"); break;
  case PO_same_output: CHECK(o->index < i, "the output that is an output"); break;
  case PO_fresh: CHECK(o->index < k->s->nfresh, "the tensor that is an output"); break;
  case PO_view:
    CHECK(check_bool(&o->viewed), "a flag of an output");
    CHECK(o->view.buf, "an output without memory");
    CHECK_ALL(check_view(k, &o->view));
    CHECK_ALL(check_use(k, o->view.buf));
    CHECK(!o->viewed || k->s->buf[o->view.buf].mem == PM_input, "an output that is a view");
    break;
  default: return "the kind of an output";
  }
  return NULL;
}

const char *mg_plan_check(MgCtx *c, const MgPlanSpec *s, const uint64_t *input_bytes) {
  PlanCheck k = {.s = s, .bytes = mg_new(c, uint64_t, s->nbuf + 1), .made = mg_new(c, bool, s->nbuf + 1)};
  CHECK(k.bytes && k.made, "out of memory");
  CHECK_ALL(check_blocks(s));
  CHECK_ALL(check_bufs(&k, input_bytes));
  for (uint32_t i = 0; i < s->nstep; i++) {
    CHECK(s->step[i].kind <= PK_host, "the kind of a step");
    CHECK_ALL(s->step[i].kind == PK_kernel ? check_kernel(&k, &s->step[i]) : check_call(&k, &s->step[i]));
  }
  for (uint32_t i = 0; i < s->nout; i++) CHECK_ALL(check_out(&k, i));
  return NULL;
}
