/* See the header. */
#include "base/env.h"
#include "base/fork.h"
#include "base/notice.h"
#include "base/memory_room.h"
#include "runtime/process/cpu.h"
#include "runtime/engine/onednn_prim.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ONEDNN_FILE "libdnnl.so.3"
#define ONEDNN_ROOM ((uint64_t)192 << 20) /* of the library and what it makes when it starts */

DnnApi dnn;
DnnEngine dnn_engine;
int dnn_post_op_base;
static DnnStream onednn_stream;
static bool onednn_tried;
static const char *onednn_why = "not loaded yet";

/* ---- loading
 * ------------------------------------------------------------------------------------------------- */

/* Is b the number of the first post-op's argument?  A 1x1 product with a residual tells. */
static bool onednn_probe(int b) {
  int64_t one[2] = {1, 1};
  float x = 2, w = 3, residual = 4, y = 0;
  void *ptr[4] = {&x, &w, &residual, &y};
  const int arg[4] = {DNN_ARG_SRC, DNN_ARG_WEIGHTS, b | DNN_ARG_SRC_1, DNN_ARG_DST};
  DnnMd md = dnn_md_strided(DNN_f32, 2, one, one);
  DnnAttr attr = md ? dnn_attr(&(MgActDesc){.name = ""}, md) : NULL;
  DnnPd pd = NULL;
  DnnCall call = {0};
  DnnCallState st = {0};
  uint64_t scratch = 0;
  int bad = !attr || dnn.dnnl_matmul_primitive_desc_create(&pd, dnn_engine, md, md, NULL, md, attr);
  for (int i = 0; i < 4 && !bad; i++) {
    DnnMd m = NULL;
    if (!(bad = dnn.dnnl_memory_desc_clone(&m, md))) dnn_call_arg(&call, arg[i], i, 0, m);
  }
  if (!bad) bad = dnn_call_prim(&call, pd, &scratch);
  else if (pd) dnn.dnnl_primitive_desc_destroy(pd);
  MgEngineArgs a = {.ptr = ptr, .scratch = bad ? NULL : aligned_alloc(64, dnn_align(scratch) + 64)};
  if (a.scratch && !dnn_call_state(&call, onednn_stream, &st)) {
    bad = dnn_call_run(&call, &st, &a, NULL) || y != 2 * 3 + 4;
    dnn_call_state_free(&call, &st);
  } else {
    bad = 1;
  }
  free(a.scratch);
  dnn_call_free(&call);
  if (attr) dnn.dnnl_primitive_attr_destroy(attr);
  if (md) dnn.dnnl_memory_desc_destroy(md);
  return !bad;
}

/* The number of a post-op's argument is 16384 * (i + 1) in older releases and 32768 * (i + 1) in newer ones.
 * A primitive refuses arguments that it does not know.  0: neither. */
static int onednn_probe_base(void) {
  for (int b = 16384; b <= 32768; b *= 2)
    if (onednn_probe(b)) return b;
  return 0;
}

/* pip puts the library into <prefix>/lib, and packages into <prefix>/lib/pythonX.Y/site-packages. */
static void *onednn_beside(void) {
  char path[sizeof mg_abi.site[0] + 64];
  void *h = NULL;
  for (int i = 0; i < 2 && !h; i++) {
    snprintf(path, sizeof path, "%s/../../" ONEDNN_FILE, mg_abi.site[i]);
    if (*mg_abi.site[i]) h = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  }
  return h;
}

/* Its primitives stay within the level that MAGNETO_CPU names; only possible before the first one is made. */
static void onednn_cap(void) {
  static const int isa[] = {
      [CPU_v2] = DNN_isa_sse41, [CPU_v3] = DNN_isa_avx2, [CPU_v4] = DNN_isa_avx512_core};
  if (mg_cpu_cap()) dnn.dnnl_set_max_cpu_isa(isa[mg_cpu()->level]);
}

static const char *onednn_open(const char *path) {
  const char *env = mg_env(ENV_ONEDNN);
  if (env && (!strcmp(env, "0") || !strcmp(env, "none"))) return "switched off by MAGNETO_ONEDNN";
  if (mg_room() < ONEDNN_ROOM) return "out of memory: too little address space is left to load oneDNN";
  void *h = env ? dlopen(env, RTLD_NOW | RTLD_LOCAL) : NULL;
  if (env && (!h || !dlsym(h, "dnnl_version"))) {
    const char *why = h ? "no oneDNN library" : dlerror();
    mg_notice("MAGNETO_ONEDNN=%s is ignored: %s; accepted are the path of a libdnnl.so.3, none and 0", env,
              why ? why : "not loaded");
    h = NULL;
  }
  if (!h && path) h = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!h) h = onednn_beside();
  if (!h) h = dlopen(ONEDNN_FILE, RTLD_NOW | RTLD_LOCAL);
  if (!h) return "libdnnl.so.3 (oneDNN 3) was not found";
#define F(ret, name, args)                                                                                   \
  if (!(*(void **)&dnn.name = dlsym(h, #name))) return "libdnnl lacks " #name;
  MG_DNN_FUNCS(F)
#undef F
  if (dnn.dnnl_version()->major != 3) return "libdnnl is not version 3";
  onednn_cap();
  if (dnn.dnnl_engine_create(&dnn_engine, DNN_cpu, 0)) return "oneDNN has no CPU engine";
  if (dnn.dnnl_stream_create(&onednn_stream, dnn_engine, DNN_stream_default)) return "oneDNN made no stream";
  dnn_post_op_base = onednn_probe_base();
  return dnn_post_op_base ? NULL : "oneDNN's post-op arguments are not understood";
}

const char *mg_onednn_load(const char *path) {
  mg_fork_lock(MG_LOCK_onednn);
  if (!onednn_tried) onednn_why = onednn_open(path), onednn_tried = !onednn_why || mg_room() >= ONEDNN_ROOM;
  mg_fork_unlock(MG_LOCK_onednn);
  return onednn_why;
}

bool mg_onednn_ready(void) { return !mg_onednn_load(NULL); }

int mg_onednn_version(void) {
  if (!mg_onednn_ready()) return 0;
  const DnnVersion *v = dnn.dnnl_version();
  return (v->major << 20) + (v->minor << 10) + v->patch;
}

bool mg_onednn_bf16(void) { return mg_onednn_ready() && mg_cpu()->avx512bf16; }

DnnStream dnn_stream(void) { return onednn_stream; }

/* ---- descriptors
 * --------------------------------------------------------------------------------------------- */

int dnn_dtype(uint8_t torch_dtype) {
  switch (torch_dtype) { /* c10::ScalarType */
  case 5: return DNN_f16;
  case 6: return DNN_f32;
  case 15: return DNN_bf16;
  default: return 0;
  }
}

DnnMd dnn_md_strided(int dtype, int ndim, const int64_t *size, const int64_t *stride) {
  DnnMd md = NULL;
  return dnn.dnnl_memory_desc_create_with_strides(&md, ndim, size, dtype, stride) ? NULL : md;
}

DnnMd dnn_md_any(int dtype, int ndim, const int64_t *size) {
  DnnMd md = NULL;
  return dnn.dnnl_memory_desc_create_with_tag(&md, ndim, size, dtype, DNN_tag_any) ? NULL : md;
}

DnnMd dnn_md(const MgTensorDesc *t) {
  int64_t stride[MG_DESC_RANK];
  int dtype = dnn_dtype(t->dtype);
  if (!dtype || !t->ndim) return NULL;
  for (int i = 0; i < t->ndim; i++) {
    if (t->size[i] < 1) return NULL;
    if (t->size[i] > 1 && t->stride[i] < 1)
      return NULL; /* broadcast by stride 0: the caller knows better ways */
    stride[i] = t->stride[i];
  }
  /* a dimension of size 1 gets the extent of the dimensions after it (as if row-major),
   * never less than they need */
  for (int i = t->ndim - 1; i >= 0; i--)
    if (t->size[i] == 1) {
      stride[i] = 1;
      for (int k = i + 1; k < t->ndim; k++)
        if (stride[k] * t->size[k] > stride[i]) stride[i] = stride[k] * t->size[k];
    }
  return dnn_md_strided(dtype, t->ndim, t->size, stride);
}

/* ---- activations
 * --------------------------------------------------------------------------------------------- */

enum { ACT_fixed, ACT_a, ACT_ab }; /* which parameters come from the description */
static const struct onednn_act {
  const char *name;
  int alg, params;
  float alpha, beta; /* unless given by the description */
} onednn_acts[] = {
    {"relu", DNN_eltwise_relu, ACT_fixed, 0, 0},
    {"leaky_relu", DNN_eltwise_relu, ACT_a, 0, 0},
    {"elu", DNN_eltwise_elu, ACT_a, 1, 0},
    {"clip", DNN_eltwise_clip, ACT_ab, 0, 0},
    {"gelu", DNN_eltwise_gelu_erf, ACT_fixed, 0, 0},
    {"gelu_tanh", DNN_eltwise_gelu_tanh, ACT_fixed, 0, 0},
    {"silu", DNN_eltwise_swish, ACT_fixed, 1, 0},
    {"sigmoid", DNN_eltwise_logistic, ACT_fixed, 0, 0},
    {"tanh", DNN_eltwise_tanh, ACT_fixed, 0, 0},
    {"hardswish", DNN_eltwise_hardswish, ACT_fixed, 1.f / 6, .5f},
    {"hardsigmoid", DNN_eltwise_hardsigmoid, ACT_fixed, 1.f / 6, .5f},
    {"mish", DNN_eltwise_mish, ACT_fixed, 0, 0},
};

static const struct onednn_act *onednn_find_act(const char *name) {
  for (size_t i = 0; i < sizeof onednn_acts / sizeof *onednn_acts; i++)
    if (!strcmp(onednn_acts[i].name, name)) return &onednn_acts[i];
  return NULL;
}

DnnAttr dnn_attr(const MgActDesc *act, DnnMd residual) {
  DnnAttr attr = NULL;
  DnnPostOps po = NULL;
  int bad = dnn.dnnl_primitive_attr_create(&attr) || dnn.dnnl_post_ops_create(&po) ||
            dnn.dnnl_primitive_attr_set_scratchpad_mode(attr, DNN_scratchpad_user);
  if (!bad && residual) bad = dnn.dnnl_post_ops_append_binary(po, DNN_binary_add, residual);
  if (!bad && act->name && *act->name) {
    const struct onednn_act *k = onednn_find_act(act->name);
    bad = !k || dnn.dnnl_post_ops_append_eltwise(po, k->alg, k->params >= ACT_a ? act->a : k->alpha,
                                                 k->params == ACT_ab ? act->b : k->beta);
  }
  if (!bad) bad = dnn.dnnl_primitive_attr_set_post_ops(attr, po);
  if (po) dnn.dnnl_post_ops_destroy(po);
  if (bad && attr) dnn.dnnl_primitive_attr_destroy(attr), attr = NULL;
  return attr;
}

/* ---- one primitive with its arguments
 * ------------------------------------------------------------------------ */

void dnn_call_arg(DnnCall *c, int arg, int32_t ptr, uint64_t off, DnnMd md) {
  c->slot[c->nslot++] = (DnnSlot){.arg = arg, .ptr = ptr, .off = off, .md = md};
}

int dnn_call_prim(DnnCall *c, DnnPd pd, uint64_t *scratch) {
  int bad = dnn.dnnl_primitive_create(&c->prim, pd);
  const struct dnnl_memory_desc *smd =
      bad ? NULL : dnn.dnnl_primitive_desc_query_md(pd, DNN_query_scratchpad_md, 0);
  size_t n = smd ? dnn.dnnl_memory_desc_get_size(smd) : 0;
  DnnMd md = NULL;
  if (n && !(bad = dnn.dnnl_memory_desc_clone(&md, smd))) {
    *scratch = dnn_align(*scratch);
    dnn_call_arg(c, DNN_ARG_SCRATCHPAD, SLOT_scratch, *scratch, md);
    *scratch += n;
  }
  dnn.dnnl_primitive_desc_destroy(pd);
  return bad;
}

int dnn_call_reorder(DnnCall *c, DnnMd from, int32_t from_ptr, uint64_t from_off, DnnMd to, int32_t to_ptr,
                     uint64_t to_off, uint64_t *scratch) {
  DnnAttr attr = dnn_attr(&(MgActDesc){.name = ""}, NULL);
  DnnPd pd = NULL;
  DnnMd f = NULL, t = NULL;
  int bad = !attr || dnn.dnnl_reorder_primitive_desc_create(&pd, from, dnn_engine, to, dnn_engine, attr) ||
            dnn.dnnl_memory_desc_clone(&f, from) || dnn.dnnl_memory_desc_clone(&t, to);
  if (f) dnn_call_arg(c, DNN_ARG_SRC, from_ptr, from_off, f);
  if (t) dnn_call_arg(c, DNN_ARG_DST, to_ptr, to_off, t);
  if (!bad) bad = dnn_call_prim(c, pd, scratch);
  else if (pd) dnn.dnnl_primitive_desc_destroy(pd);
  if (attr) dnn.dnnl_primitive_attr_destroy(attr);
  return bad;
}

void dnn_call_free(DnnCall *c) {
  if (c->prim) dnn.dnnl_primitive_destroy(c->prim);
  for (int i = 0; i < c->nslot; i++)
    if (c->slot[i].md) dnn.dnnl_memory_desc_destroy(c->slot[i].md);
  *c = (DnnCall){0};
}

int dnn_call_state(const DnnCall *c, DnnStream s, DnnCallState *st) {
  st->stream = s;
  for (int i = 0; i < c->nslot; i++) {
    st->arg[i].arg = c->slot[i].arg;
    if (dnn.dnnl_memory_create(&st->arg[i].memory, c->slot[i].md, dnn_engine, NULL)) {
      dnn_call_state_free(c, st);
      return -1;
    }
  }
  return 0;
}

void dnn_call_state_free(const DnnCall *c, DnnCallState *st) {
  for (int i = 0; i < c->nslot; i++)
    if (st->arg[i].memory) dnn.dnnl_memory_destroy(st->arg[i].memory), st->arg[i].memory = NULL;
}

int dnn_call_run(const DnnCall *c, DnnCallState *st, const MgEngineArgs *a, void *owned) {
  if (!c->prim) return 0;
  for (int i = 0; i < c->nslot; i++) {
    const DnnSlot *s = &c->slot[i];
    char *base = s->ptr >= 0 ? a->ptr[s->ptr] : s->ptr == SLOT_scratch ? a->scratch : owned;
    if (dnn.dnnl_memory_set_data_handle(st->arg[i].memory, base + s->off)) return -1;
  }
  return dnn.dnnl_primitive_execute(c->prim, st->stream, c->nslot, st->arg);
}

bool dnn_is_reference(DnnPd pd) {
  const char *name = NULL;
  return dnn.dnnl_primitive_desc_query(pd, DNN_query_impl_info_str, 0, &name) ||
         (name && !strncmp(name, "ref", 3));
}
