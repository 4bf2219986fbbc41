/* Calls of ATen operators as C++ makes them.
 * In: constants and places of tensors.  Out: an image of the argument registers and of the stack, into which
 * a run puts the
 * tensors.  An exception ends here (cxxcatch.h): the caller then calls in another way, which reports it. */
#include "runtime/process/cxxcall.h"
#include "base/ctx.h"
#include "runtime/process/cxxcatch.h"
#include "runtime/process/cxxmangle.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__) && defined(__linux__)
enum {
  CXX_ARGS = 24,
  CXX_REGS = 6,
  CXX_XMM = 8,
  CXX_STACK = 40,
  CXX_STORE = 96,
  CXX_IN = 64,
  CXX_OUT = 8,
  CXX_BOOLS = 4, /* longest array of bools in a schema */
  CXX_EITHER = 6
};

typedef enum CxxWay {
  WAY_tensor,
  WAY_maybe,
  WAY_list
} CxxWay; /* a reference, one to an optional tensor, pointer and length */

struct MgCxxCall {
  void *fn;
  uint64_t word[CXX_REGS + CXX_STACK]; /* registers for integers, then the stack */
  double xmm[CXX_XMM];
  uint64_t store[CXX_STORE] __attribute__((aligned(16))); /* what references point to */
  char *text;                                             /* strings, owned */
  struct {
    uint8_t way; /* CxxWay */
    uint8_t at;  /* word that gets the address */
    uint32_t n;  /* WAY_list: tensors */
  } tensor[CXX_ARGS];
  int ntensor, nint, nxmm, nstack, nstore, nret;
};

static const void *cxx_undefined; /* the tensor that is none */
static bool cxx_usable;

/* ---- the call ---- */

bool mg_cxxcall_run(const MgCxxCall *call, MgTensor *const *in, MgTensor **out) {
  uint64_t word[CXX_REGS + CXX_STACK], room[2 * CXX_IN];
  void *result[CXX_OUT];
  int used = 0, next = 0;
  memcpy(word, call->word, (CXX_REGS + call->nstack) * sizeof *word);
  for (int i = 0; i < call->ntensor; i++) {
    uint64_t *at = &word[call->tensor[i].at];
    if (call->tensor[i].way == WAY_tensor) {
      *at = (uint64_t)(uintptr_t)(in[next] ? (const void *)in[next]
                                           : &cxx_undefined); /* a tensor is one pointer */
      next++;
      continue;
    }
    *at = (uint64_t)(uintptr_t)&room[used];
    if (call->tensor[i].way == WAY_maybe) {
      const MgTensor *t = in[next++];
      room[used++] = t ? *(const uint64_t *)t : 0; /* lent: nobody counts it */
      room[used++] = t != NULL;
    }
    for (int k = 0; call->tensor[i].way == WAY_list && k < call->tensor[i].n; k++) {
      if (!in[next]) return false;
      room[used++] = *(const uint64_t *)in[next++];
    }
  }
  if (call->nret) word[0] = (uint64_t)(uintptr_t)result;
  if (!mg_cxx_enter(call->fn, word, call->xmm, word + CXX_REGS, call->nstack)) return false;
  for (int i = 0; i < call->nret; i++) {
    void *impl = result[call->nret - 1 - i]; /* the first of a tuple lies last */
    out[i] = NULL;
    if (impl == cxx_undefined) continue;
    void **t = mg_abi.operator_new(sizeof *t);
    *t = impl;
    out[i] = (MgTensor *)t;
  }
  return true;
}

/* ---- building ---- */

/* Parameters' types; those of sizes are either numbers or symbolic ones, which a
 * schema's kinds do not tell. */
static const struct {
  const char *plain, *maybe, *sym, *maybe_sym;
} cxx_type[] = {
    [CXX_tensor] = {"RKN2at6TensorE", "RKSt8optionalIN2at6TensorEE"},
    [CXX_tensors] = {"N3c108ArrayRefIN2at6TensorEEE"},
    [CXX_int] = {"l", "St8optionalIlE", "N3c106SymIntE", "St8optionalIN3c106SymIntEE"},
    [CXX_ints] = {"N3c108ArrayRefIlEE", "N3c1016OptionalArrayRefIlEE", "N3c108ArrayRefIN3c106SymIntEEE",
                  "N3c1016OptionalArrayRefIN3c106SymIntEEE"},
    [CXX_float] = {"d", "St8optionalIdE"},
    [CXX_floats] = {"N3c108ArrayRefIdEE", "St8optionalIN3c108ArrayRefIdEEE"},
    [CXX_bool] = {"b", "St8optionalIbE"},
    [CXX_bools] = {NULL, NULL}, /* cxx_bools */
    [CXX_scalar] = {"RKN3c106ScalarE", "RKSt8optionalIN3c106ScalarEE"},
    [CXX_dtype] = {"N3c1010ScalarTypeE", "St8optionalIN3c1010ScalarTypeEE"},
    [CXX_layout] = {"N3c106LayoutE", "St8optionalIN3c106LayoutEE"},
    [CXX_memory_format] = {"N3c1012MemoryFormatE", "St8optionalIN3c1012MemoryFormatEE"},
    [CXX_device] = {"N3c106DeviceE", "St8optionalIN3c106DeviceEE"},
    [CXX_str] = {"St17basic_string_viewIcSt11char_traitsIcEE",
                 "St8optionalISt17basic_string_viewIcSt11char_traitsIcEEE"},
    [CXX_generator] = {NULL, "St8optionalIN2at9GeneratorEE"},
};

/* Their number is a part of the type. */
static const char *const cxx_bools[CXX_BOOLS + 1] = {NULL, "St5arrayIbLm1EE", "St5arrayIbLm2EE",
                                                     "St5arrayIbLm3EE", "St5arrayIbLm4EE"};

static const char *cxx_plain(const MgCxxArg *a) {
  if (a->type == CXX_bools) return a->n <= CXX_BOOLS && !a->optional ? cxx_bools[a->n] : NULL;
  return a->optional ? cxx_type[a->type].maybe : cxx_type[a->type].plain;
}

/* n words of integers: in registers when all of them fit, else on the stack.  The place of the
 * first; -1: there is no room. */
static int cxx_words(MgCxxCall *c, const uint64_t *w, int n) {
  bool reg = c->nint + n <= CXX_REGS;
  if (!reg && c->nstack + n > CXX_STACK) return -1;
  int at = reg ? c->nint : CXX_REGS + c->nstack;
  memcpy(&c->word[at], w, n * sizeof *w);
  *(reg ? &c->nint : &c->nstack) += n;
  return at;
}

static int cxx_on_stack(MgCxxCall *c, const uint64_t *w, int n) {
  if (c->nstack + n > CXX_STACK) return -1;
  memcpy(&c->word[CXX_REGS + c->nstack], w, n * sizeof *w);
  c->nstack += n;
  return 0;
}

static int cxx_double(MgCxxCall *c, double d, bool optional, bool none) {
  uint64_t w[2] = {0, !none};
  if (c->nxmm == CXX_XMM || (optional && c->nint == CXX_REGS)) {
    memcpy(w, &d, sizeof d);
    return cxx_on_stack(c, w, optional ? 2 : 1);
  }
  c->xmm[c->nxmm++] = d;
  return optional ? cxx_words(c, w + 1, 1) : 0;
}

/* Room for n words that a reference points to, 16-byte aligned. */
static uint64_t *cxx_store(MgCxxCall *c, int n) {
  int at = (c->nstore + 1) & ~1;
  if (at + n > CXX_STORE) return NULL;
  c->nstore = at + n;
  return &c->store[at];
}

static int cxx_reference(MgCxxCall *c, const uint64_t *p) {
  uint64_t w = (uint64_t)(uintptr_t)p;
  return p ? cxx_words(c, &w, 1) : -1;
}

static int cxx_tensor(MgCxxCall *c, const MgCxxArg *a) {
  uint64_t w[2] = {0, a->n};
  int at = cxx_words(c, w, a->type == CXX_tensors ? 2 : 1);
  if (at < 0) return -1;
  c->tensor[c->ntensor].way = a->type == CXX_tensors ? WAY_list : a->optional ? WAY_maybe : WAY_tensor;
  c->tensor[c->ntensor].at = (uint8_t)at;
  c->tensor[c->ntensor++].n = a->n;
  return 0;
}

static int cxx_list(MgCxxCall *c, const MgCxxArg *a) {
  uint64_t *p = cxx_store(c, (int)(a->n < CXX_STORE ? a->n : CXX_STORE) + 1);
  if (!p) return -1;
  if (a->n) memcpy(p, a->type == CXX_ints ? (const void *)a->ints : a->floats, a->n * sizeof *p);
  uint64_t w[3] = {(uint64_t)(uintptr_t)p, a->n, !a->none};
  return a->optional ? cxx_on_stack(c, w, 3) : cxx_words(c, w, 2);
}

/* c10::Scalar: what it holds, then 16 bytes of value. */
static int cxx_scalar(MgCxxCall *c, const MgCxxArg *a) {
  enum { HOLDS_double = 0, HOLDS_int = 1, HOLDS_bool = 4 };
  uint64_t *p = cxx_store(c, a->optional ? 6 : 4);
  if (!p) return -1;
  p[0] = a->scalar == 'd' ? HOLDS_double : a->scalar == 'b' ? HOLDS_bool : HOLDS_int;
  if (a->scalar == 'd') memcpy(&p[2], &a->d, sizeof a->d);
  else p[2] = (uint64_t)a->i;
  if (a->optional) p[4] = !a->none;
  return cxx_reference(c, p);
}

static int cxx_size(MgCxxCall *c, const MgCxxArg *a, bool sym) {
  uint64_t w[2] = {(uint64_t)a->i, !a->none};
  if (!sym) return cxx_words(c, w, a->optional ? 2 : 1);
  uint64_t *p = cxx_store(c, 2);
  if (p) memcpy(p, w, sizeof w);
  return cxx_reference(c, p);
}

/* A small structure goes by value: a byte each. */
static int cxx_bytes(MgCxxCall *c, const MgCxxArg *a) {
  uint64_t w = 0;
  for (uint32_t i = 0; i < a->n; i++) w |= (uint64_t)(a->ints[i] != 0) << (8 * i);
  return cxx_words(c, &w, 1);
}

static int cxx_text(MgCxxCall *c, const MgCxxArg *a, char **spare) {
  size_t n = a->none ? 0 : strlen(a->str);
  if (n) memcpy(*spare, a->str, n);
  uint64_t w[3] = {n, (uint64_t)(uintptr_t)*spare, !a->none};
  *spare += n;
  return a->optional ? cxx_on_stack(c, w, 3) : cxx_words(c, w, 2);
}

/* Where one argument goes.  spare: room for strings. */
static int cxx_place(MgCxxCall *c, const MgCxxArg *a, bool sym, char **spare) {
  uint64_t some = a->optional ? !a->none : 0, code = (uint64_t)a->i & 0xff;
  uint64_t byte = code | some << 8, device = code | (uint64_t)(uint8_t)a->index << 8 | some << 16;
  switch ((MgCxxType)a->type) {
  case CXX_tensor:
  case CXX_tensors: return cxx_tensor(c, a);
  case CXX_int: return cxx_size(c, a, sym);
  case CXX_ints:
  case CXX_floats: return cxx_list(c, a);
  case CXX_bools: return cxx_bytes(c, a);
  case CXX_float: return cxx_double(c, a->d, a->optional, a->none);
  case CXX_scalar: return cxx_scalar(c, a);
  case CXX_str: return cxx_text(c, a, spare);
  case CXX_generator: return cxx_reference(c, cxx_store(c, 2)); /* none */
  case CXX_device: return cxx_words(c, &device, 1);
  case CXX_bool:
  case CXX_dtype:
  case CXX_layout:
  case CXX_memory_format: return cxx_words(c, &byte, 1);
  }
  return -1;
}

/* The function that takes these arguments; which of the sizes it takes are symbolic
 * ones is found out by asking. */
static void *cxx_find(const char *scope, const MgCxxArg *arg, int narg, uint32_t *sym) {
  const char *type[CXX_ARGS];
  char name[1024];
  int either[CXX_EITHER], n = 0;
  for (int i = 0; i < narg; i++) {
    type[i] = cxx_plain(&arg[i]);
    if (!type[i]) return NULL;
    if (!cxx_type[arg[i].type].sym) continue;
    if (n == CXX_EITHER) return NULL;
    either[n++] = i;
  }
  for (uint32_t set = 0; set < 1u << n; set++) {
    *sym = 0;
    for (int k = 0; k < n; k++) {
      const MgCxxArg *a = &arg[either[k]];
      bool is = set >> k & 1;
      type[either[k]] = !is           ? cxx_plain(a)
                        : a->optional ? cxx_type[a->type].maybe_sym
                                      : cxx_type[a->type].sym;
      *sym |= (uint32_t)is << either[k];
    }
    void *fn = mg_cxxmangle(name, sizeof name, scope, "4call", type, narg) ? mg_abi_symbol(name) : NULL;
    if (fn) return fn;
  }
  return NULL;
}

static MgCxxCall *cxx_new(const char *name, const char *overload, const MgCxxArg *arg, int narg, int nret) {
  char scope[160], full[128];
  uint32_t sym = 0;
  size_t text = 1;
  int nin = 0;
  int n = snprintf(full, sizeof full, "%s%s%s", name, *overload ? "_" : "", overload);
  if (narg > CXX_ARGS || nret > CXX_OUT || n >= (int)sizeof full) return NULL;
  for (int i = 0; i < narg; i++) {
    nin += arg[i].type == CXX_tensor ? 1 : arg[i].type == CXX_tensors ? (int)arg[i].n : 0;
    text += arg[i].type == CXX_str && !arg[i].none ? strlen(arg[i].str) : 0;
    if (nin > CXX_IN) return NULL;
  }
  snprintf(scope, sizeof scope, "2at4_ops%d%s", n, full);
  MgCxxCall *c = mg_calloc(1, sizeof *c);
  char *spare = c ? c->text = mg_malloc(text) : NULL;
  bool ok = spare && (c->fn = cxx_find(scope, arg, narg, &sym));
  if (ok) {
    c->nret = nret;
    c->nint = nret > 0; /* where results go */
  }
  for (int i = 0; ok && i < narg; i++) ok = cxx_place(c, &arg[i], sym >> i & 1, &spare) >= 0;
  if (ok) return c;
  mg_cxxcall_free(c);
  return NULL;
}

/* The layout of numbers is not a part of any name: a tensor made of one shows
 * whether it is the expected one. */
static bool cxx_number_holds(MgCxxArg number) {
  enum { DOUBLE = 7 };
  MgCxxArg arg[] = {number,
                    {.type = CXX_dtype, .optional = true, .i = DOUBLE},
                    {.type = CXX_layout, .optional = true, .none = true},
                    {.type = CXX_device, .optional = true, .none = true},
                    {.type = CXX_bool, .optional = true, .none = true}};
  MgCxxCall *c = cxx_new("scalar_tensor", "", arg, 5, 1);
  MgTensor *t = NULL;
  void *p = NULL;
  bool ok = c && mg_cxxcall_run(c, NULL, &t) && t && !mg_abi.aoti_torch_get_data_ptr(t, &p) && p &&
            *(double *)p == (number.scalar == 'd' ? number.d : (double)number.i);
  if (t) mg_abi.aoti_torch_delete_tensor_object(t);
  mg_cxxcall_free(c);
  return ok;
}

void mg_cxxcall_init(void) {
  cxx_undefined = mg_abi_symbol("_ZN3c1019UndefinedTensorImpl10_singletonE");
  cxx_usable = mg_cxx_find_catch(NULL) && cxx_undefined && mg_abi.operator_new &&
               cxx_number_holds((MgCxxArg){.type = CXX_scalar, .scalar = 'd', .d = 2.5}) &&
               cxx_number_holds((MgCxxArg){.type = CXX_scalar, .scalar = 'i', .i = -3}) &&
               cxx_number_holds((MgCxxArg){.type = CXX_scalar, .scalar = 'b', .i = 1});
}

MgCxxCall *mg_cxxcall_new(const char *name, const char *overload, const MgCxxArg *arg, int narg, int nret) {
  return cxx_usable ? cxx_new(name, overload, arg, narg, nret) : NULL;
}

void mg_cxxcall_free(MgCxxCall *c) {
  if (!c) return;
  free(c->text);
  free(c);
}

#else
void mg_cxxcall_init(void) {}
MgCxxCall *mg_cxxcall_new(const char *name, const char *overload, const MgCxxArg *arg, int narg, int nret) {
  return NULL;
}
bool mg_cxxcall_run(const MgCxxCall *call, MgTensor *const *in, MgTensor **out) { return false; }
void mg_cxxcall_free(MgCxxCall *call) {}
#endif
