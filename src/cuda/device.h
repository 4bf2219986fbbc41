/* NVIDIA's driver, by dlopen: no toolkit, no headers.  PTX to machine code, loading it, launching it on
 * PyTorch's streams. Contexts are the devices' primary ones, which PyTorch uses, too.  Thread-safe. */
#ifndef MG_CUDA_DEVICE_H
#define MG_CUDA_DEVICE_H
#include "base/ctx.h"
#include "base/strbuf.h"

/* NULL, or why kernels of ours cannot run here (static text).  Looks once, when
 * torch's CUDA library is loaded. */
const char *mg_cuda_missing(void);
const char *mg_cuda_driver_missing(void); /* the same without PyTorch: what compiles and loads */
/* The compute capability as major * 10 + minor; 0: no such device. */
int mg_cuda_capability(int device);
/* CUdevice_attribute of the driver's header. */
typedef enum MgCudaAttribute { MG_CUDA_multiprocessors = 16, MG_CUDA_threads = 39 } MgCudaAttribute;
int mg_cuda_attribute(int device, MgCudaAttribute a); /* 0: unknown */

enum { MG_CUDA_DEVICES = 64 };

typedef struct MgCubin { /* machine code of one module */
  void *data;            /* malloc'ed */
  size_t len;
} MgCubin;
/* Compiles n PTX texts for a device, on up to nthread threads.  MG_UNSUP with the driver's
 * words when it refuses one. */
MgRc mg_cuda_link(MgCtx *c, int device, const char *const *text, uint32_t n, unsigned nthread, MgCubin *out);

typedef struct MgCudaModule MgCudaModule;
MgRc mg_cuda_load(MgCtx *c, int device, const MgCubin *code, MgCudaModule **out);
void *mg_cuda_function(const MgCudaModule *m, const char *name); /* NULL: there is none */
size_t mg_cuda_module_bytes(const MgCudaModule *m);
void mg_cuda_unload(MgCudaModule *m);

/* A kernel that is compiled when it is first asked for.  text: the whole module. */
typedef struct MgCudaLazy MgCudaLazy;
MgCudaLazy *mg_cuda_lazy_new(int device, const char *text, const char *name); /* NULL: out of memory */
void *mg_cuda_lazy_get(MgCudaLazy *l); /* NULL: the driver refuses it */
void mg_cuda_lazy_free(MgCudaLazy *l); /* or NULL */

/* Kernels of our own for one purpose, by device and form, for the life of the process. */
typedef struct MgCudaKept {
  const char *name;                             /* of the function in the text */
  void (*write)(MgStrbuf *text, uint32_t form); /* the whole module */
  uint32_t nform;
  MgCudaLazy **kernel; /* [MG_CUDA_DEVICES * nform] */
} MgCudaKept;
void *mg_cuda_kept(const MgCudaKept *k, int device, uint32_t form); /* NULL: as for mg_cuda_lazy_get */

typedef struct MgCudaScope { /* what mg_cuda_leave puts back */
  void *guard, *context;
} MgCudaScope;
/* Makes a device that of the thread: for the driver and for PyTorch.  False: not possible. */
bool mg_cuda_enter(int device, MgCudaScope *out);
void mg_cuda_leave(MgCudaScope *s);
void *mg_cuda_stream(int device); /* PyTorch's current one */
/* arg: addresses of the parameters.  0, or the driver's error. */
int mg_cuda_launch(void *fn, unsigned blocks, unsigned threads, void **arg, void *stream);
const char *mg_cuda_error(int rc);

/* ---- many copies in one launch ---- */
enum { MG_COPIES = 128 };
typedef struct MgCopies { /* the kernel's parameter; all zero: empty */
  uint64_t to[MG_COPIES], from[MG_COPIES], bytes[MG_COPIES];
  uint32_t first[MG_COPIES]; /* block of each copy */
  uint32_t n, blocks;
} MgCopies;
bool mg_cuda_copies_ready(int device); /* false: the driver refuses the kernel */
void mg_cuda_copies_add(MgCopies *l, void *to, const void *from, size_t bytes); /* l is not full */
/* Queues all copies of l and empties it.  0, or the driver's error. */
int mg_cuda_copies_launch(int device, MgCopies *l, void *stream);
const char *mg_cuda_copies_text(void); /* the kernel, as PTX */

/* ---- random numbers ---- */
/* A kernel of one thread that stores two numbers; a CUDA graph of random calls begins with it.  NULL: the
 * driver refuses it. */
void *mg_cuda_seed_kernel(int device);
enum { MG_SEED_ARGS = 4 }; /* the addresses, the numbers */
/* Stores a seed and a quarter of an offset at `out`.  captured: seed and offset are addresses of the numbers,
 * and `within` is added to the offset.  0, or the driver's error. */
int mg_cuda_draw(int device, uint64_t out, uint64_t seed, uint64_t offset, uint32_t within, bool captured,
                 void *stream);
const char *mg_cuda_draw_text(bool draw); /* one of the two kernels, as PTX */
/* The most threads of PyTorch's random kernels, as its calc_offset has it; 0: unknown. */
int64_t mg_cuda_draw_threads(int device);

/* ---- CUDA graphs ---- */
const char *mg_cuda_graphs_missing(void); /* NULL, or what is not there */
bool mg_cuda_capturing(void *stream);     /* into a graph of somebody's; also where the driver does not say */
int mg_cuda_capture_begin(void *stream);  /* of this thread's work alone; 0, or the driver's error */
int mg_cuda_capture_end(void *stream, void **graph);
void mg_cuda_graph_drop(void *graph);             /* or NULL */
void *mg_cuda_captured(void *stream);             /* the node that was captured last; NULL: unknown */
int mg_cuda_graph_make(void *graph, void **exec); /* 0, or the driver's error */
int mg_cuda_graph_set(void *exec, void *node, void *fn, unsigned blocks, unsigned threads, void **arg);
int mg_cuda_graph_launch(void *exec, void *stream);
void mg_cuda_graph_free(void *exec); /* or NULL */
/* Work beside the stream that is captured: a second stream of the device. */
typedef struct MgBranch {
  void *main, *side, *event, *guard;
  int device;
  bool open; /* it has work that main did not wait for */
} MgBranch;
/* main: the stream that is captured; replays: the one that the graph is for.  False: not possible. */
bool mg_cuda_branch_begin(int device, void *main, void *replays, MgBranch *out);
/* From here to mg_cuda_branch_leave the side stream is PyTorch's current one; its work comes after what main
 * has. False: the capture has failed. */
bool mg_cuda_branch_enter(MgBranch *b);
void mg_cuda_branch_leave(MgBranch *b);
bool mg_cuda_branch_join(MgBranch *b); /* main waits for all of it */
void mg_cuda_branch_end(MgBranch *b);
/* The settings of torch that its libraries' calls depend on, as one number: a graph holds
 * calls as they were asked for. */
uint64_t mg_cuda_settings(void);
bool mg_cuda_tf32(void); /* may products of float32 round their operands to TF32? */
#endif
