/* CUDA graphs through the driver, and what a captured call of torch's depends on.
 * Functions that a driver may lack: without one of them there are no graphs. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include "cuda/device.h"

typedef struct KernelParams { /* CUDA_KERNEL_NODE_PARAMS_v2 */
  void *func;
  unsigned grid[3], block[3], shared;
  void **params, **extra;
  void *kern, *ctx;
} KernelParams;

static struct {
  int (*capturing)(void *, int *);
  int (*info)(void *, int *, uint64_t *, void **, void *const **, size_t *);
  int (*make)(void **, void *, unsigned long long);
  int (*set)(void *, void *, const KernelParams *);
  int (*launch)(void *, void *);
  int (*drop)(void *);
  int (*begin)(void *, int);
  int (*end)(void *, void **);
  int (*destroy)(void *);
} graph_fn;

/* Members of at::Context that take no argument and give a bool or a small number. */
static const char *const graph_setting[] = {
    "_ZNK2at7Context14benchmarkCuDNNEv",
    "_ZNK2at7Context16userEnabledCuDNNEv",
    "_ZNK2at7Context18deterministicCuDNNEv",
    "_ZNK2at7Context18userEnabledMathSDPEv",
    "_ZNK2at7Context19userEnabledCuDNNSDPEv",
    "_ZNK2at7Context19userEnabledFlashSDPEv",
    "_ZNK2at7Context26userEnabledMemEfficientSDPEv",
    "_ZNK2at7Context23deterministicAlgorithmsEv",
    "_ZNK2at7Context29allowFP16BF16ReductionMathSDPEv",
};
enum { GRAPH_SETTINGS = sizeof graph_setting / sizeof *graph_setting };
static bool (*graph_ask[GRAPH_SETTINGS])(const void *);
static uint8_t (*graph_precision)(const void *, uint8_t backend, uint8_t op);
static uint8_t (*graph_reduction[2])(const void *);
static const void *(*graph_context)(void);
static pthread_once_t graph_once = PTHREAD_ONCE_INIT;
static const char *graph_missing;

static void graph_get(void *lib, const char *name, void *to) {
  if (!(*(void **)to = dlsym(lib, name)) && !graph_missing) graph_missing = name;
}

static void graph_find(void) {
  graph_missing = mg_cuda_missing();
  void *h = graph_missing ? NULL : dlopen("libcuda.so.1", RTLD_NOW),
       *torch = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
  if (!h) return;
  graph_get(h, "cuStreamIsCapturing", &graph_fn.capturing);
  graph_get(h, "cuStreamGetCaptureInfo_v2", &graph_fn.info);
  graph_get(h, "cuGraphInstantiateWithFlags", &graph_fn.make);
  graph_get(h, "cuGraphExecKernelNodeSetParams_v2", &graph_fn.set);
  graph_get(h, "cuGraphLaunch", &graph_fn.launch);
  graph_get(h, "cuGraphExecDestroy", &graph_fn.drop);
  graph_get(h, "cuStreamBeginCapture_v2", &graph_fn.begin);
  graph_get(h, "cuStreamEndCapture", &graph_fn.end);
  graph_get(h, "cuGraphDestroy", &graph_fn.destroy);
  for (int i = 0; i < GRAPH_SETTINGS; i++) graph_get(torch, graph_setting[i], &graph_ask[i]);
  graph_get(torch, "_ZN2at13globalContextEv", &graph_context);
  graph_get(torch, "_ZNK2at7Context16float32PrecisionENS_14Float32BackendENS_9Float32OpE", &graph_precision);
  graph_get(torch, "_ZNK2at7Context24allowBF16ReductionCuBLASEv", &graph_reduction[0]);
  graph_get(torch, "_ZNK2at7Context24allowFP16ReductionCuBLASEv", &graph_reduction[1]);
}

const char *mg_cuda_graphs_missing(void) {
  pthread_once(&graph_once, graph_find);
  return graph_missing;
}

uint64_t mg_cuda_settings(void) {
  const void *c = graph_context();
  uint64_t all = 0;
  for (int i = 0; i < GRAPH_SETTINGS; i++) all = all << 1 | graph_ask[i](c);
  for (uint8_t op = 0; op < 4; op++)
    all = all << 2 | (graph_precision(c, 1, op) & 3); /* back end CUDA: all, conv, rnn, matmul */
  for (int i = 0; i < 2; i++) all = all << 2 | (graph_reduction[i](c) & 3);
  return all;
}

bool mg_cuda_tf32(void) {
  enum { CUDA = 1, MATMUL = 3, TF32 = 2 };
  return !mg_cuda_graphs_missing() && graph_precision(graph_context(), CUDA, MATMUL) == TF32;
}

bool mg_cuda_capturing(void *stream) {
  int status = 1;
  return graph_fn.capturing(stream, &status) || status;
}

int mg_cuda_capture_begin(void *stream) {
  enum { THREAD_LOCAL = 1 };
  return graph_fn.begin(stream, THREAD_LOCAL);
}

int mg_cuda_capture_end(void *stream, void **graph) {
  *graph = NULL;
  return graph_fn.end(stream, graph);
}

void mg_cuda_graph_drop(void *graph) {
  if (graph) graph_fn.destroy(graph);
}

void *mg_cuda_captured(void *stream) {
  int status = 0;
  uint64_t id;
  void *graph = NULL, *const *last = NULL;
  size_t n = 0;
  return !graph_fn.info(stream, &status, &id, &graph, &last, &n) && status == 1 && n == 1 ? last[0] : NULL;
}

int mg_cuda_graph_make(void *graph, void **exec) { return graph_fn.make(exec, graph, 0); }

int mg_cuda_graph_set(void *exec, void *node, void *fn, unsigned blocks, unsigned threads, void **arg) {
  const KernelParams p = {.func = fn, .grid = {blocks, 1, 1}, .block = {threads, 1, 1}, .params = arg};
  return graph_fn.set(exec, node, &p);
}

int mg_cuda_graph_launch(void *exec, void *stream) { return graph_fn.launch(exec, stream); }

void mg_cuda_graph_free(void *exec) {
  if (exec) graph_fn.drop(exec);
}
