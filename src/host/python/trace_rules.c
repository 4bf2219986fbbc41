/* Code by file: one table of path fragments; the last row that matches decides.
 * In: code objects.  Out: is it torch's dispatch machinery (opaque), is it compiled as a frame of its own.
 * Answers are cached per code object by their callers (entry_cache.c). */
#include "host/python/trace_rules.h"
#include <string.h>
#include "host/python/code_info.h"
#include "host/python/pyobject.h"

typedef enum SkipKind {
  SKIP_none,   /* the user's code */
  SKIP_inline, /* library code: recorded when user code calls it, never compiled on its own */
  SKIP_rnn,    /* run as it is, and a break, where it works on a packed sequence; the user's code otherwise */
  SKIP_opaque, /* run by C++ in the middle of an op: must not be recorded */
  SKIP_modes,  /* the same, but part of the program where a torch_function mode of the program is on top */
  SKIP_break,  /* the same, and a break where a recording calls it */
  SKIP_wrapper /* runs as it is, and so does the function that it calls, but not what that calls */
} SkipKind;

typedef enum SkipRoot { ROOT_torch, ROOT_stdlib, ROOT_magneto, ROOT_numpy, ROOT__COUNT } SkipRoot;
static char *skip_root[ROOT__COUNT]; /* directories, with the final slash */

static const struct {
  SkipRoot root;
  const char *path; /* prefix below the root; "" is everything */
  SkipKind kind;
} skip_rules[] = {
    {ROOT_stdlib, "", SKIP_inline},
    {ROOT_stdlib, "site-packages/", SKIP_none},
    {ROOT_stdlib, "dist-packages/", SKIP_none},
    {ROOT_torch, "", SKIP_inline},
    {ROOT_torch, "nn/modules/", SKIP_none}, /* containers call user modules */
    {ROOT_torch, "nn/modules/module.py", SKIP_inline},
    {ROOT_torch, "_ops.py", SKIP_opaque},
    {ROOT_torch, "overrides.py", SKIP_opaque}, /* hands torch-level calls to the function mode */
    {ROOT_torch, "_library/", SKIP_opaque},
    {ROOT_torch, "_dynamo/", SKIP_opaque},
    {ROOT_torch, "_dynamo/external_utils.py", SKIP_inline}, /* calls hooks and other functions of the user */
    {ROOT_torch, "_subclasses/", SKIP_opaque},
    {ROOT_torch, "_refs/", SKIP_opaque},
    {ROOT_torch, "_meta_registrations.py", SKIP_opaque},
    {ROOT_torch, "_prims/", SKIP_opaque},
    {ROOT_torch, "_prims_common/", SKIP_opaque},
    {ROOT_torch, "_decomp/", SKIP_opaque},
    {ROOT_torch, "utils/_python_dispatch.py", SKIP_opaque},
    {ROOT_torch, "fx/experimental/", SKIP_opaque},
    {ROOT_magneto, "", SKIP_opaque},
    {ROOT_numpy, "", SKIP_inline},
    {ROOT_magneto, "_glue/collectives.py", SKIP_inline},
    {ROOT_magneto, "_glue/polyfills.py", SKIP_inline},
    {ROOT_magneto, "_glue/tensor_hooks.py", SKIP_inline}, /* calls the hook of the user */
};

/* Functions of torch._dynamo/decorators.py that change what torch's compiler does. */
static const char *const skip_breaking[] = {
    "set_stance.__init__", "set_stance.__enter__", "set_stance.__exit__",
    "set_stance.__call__", "set_stance.clone",     "CudagraphOverrideContextManager.__enter__"};

/* Functions of torch that are part of the program: they keep a flag in a global, or call
 * what they wrap or were given. */
static const struct {
  const char *file, *name;
} skip_recorded[] = {
    {"_dynamo/decorators.py", "error_on_graph_break"},
    {"_dynamo/decorators.py", "ErrorOnGraphBreakDecoratorContextManager.__init__"},
    {"_dynamo/decorators.py", "ErrorOnGraphBreakDecoratorContextManager.__enter__"},
    {"_dynamo/decorators.py", "ErrorOnGraphBreakDecoratorContextManager.__exit__"},
    {"_dynamo/decorators.py", "DynamoConfigPatchProxy.__enter__"},
    {"_dynamo/decorators.py", "DynamoConfigPatchProxy.__exit__"},
    {"_dynamo/utils.py", "_get_error_on_graph_break"},
    {"_dynamo/utils.py", "_set_error_on_graph_break"},
    {"_dynamo/external_utils.py", "wrap_dunder_call_ctx_manager"},
    {"_dynamo/external_utils.py", "wrap_dunder_call_ctx_manager.<locals>.inner"},
    {"overrides.py", "BaseTorchFunctionMode.__torch_function__"},
};

static bool skip_is_recorded(PyCodeObject *co, const char *below_torch) {
  const char *name = PyUnicode_AsUTF8(co->co_qualname);
  if (!name) mg_clear_as_no();
  for (size_t i = 0; name && i < sizeof skip_recorded / sizeof *skip_recorded; i++)
    if (!strcmp(name, skip_recorded[i].name) && !strcmp(below_torch, skip_recorded[i].file)) return true;
  return false;
}

static bool skip_is_breaking(PyCodeObject *co, const char *below_torch) {
  static const struct {
    const char *file, *name;
  } most[] = {
      {"fx/experimental/proxy_tensor.py", "make_fx.<locals>.wrapped"}, /* a tracer would keep what it sees */
      {"nested/_internal/nested_int.py",
       "NestedIntNode._str"}, /* "j3": a jagged size has another number in each run */
      {"fx/experimental/const_fold.py", "FoldedGraphModule.__call__"},
      {"_functorch/eager_transforms.py", "linearize"},
      {"utils/_python_dispatch.py", "TorchDispatchMode.__enter__"},
      {"utils/_python_dispatch.py", "_disable_current_modes"}, /* the recording is such a mode */
      {"_tensor_str.py", "_str"}, /* of what a transform wraps; the others break in their methods */
      {"_subclasses/fake_tensor.py", "FakeTensorMode.__enter__"},
  };
  const char *name = PyUnicode_AsUTF8(co->co_qualname);
  if (!name) return mg_clear_as_no(), false;
  for (size_t i = 0; i < sizeof most / sizeof *most; i++)
    if (!strcmp(name, most[i].name) && !strcmp(below_torch, most[i].file)) return true;
  for (size_t i = 0; i < sizeof skip_breaking / sizeof *skip_breaking; i++)
    if (!strcmp(name, skip_breaking[i])) return !strcmp(below_torch, "_dynamo/decorators.py");
  return false;
}

/* What gives a call to the handlers of torch_function modes. */
static bool skip_is_handing(PyCodeObject *co) {
  return !PyUnicode_CompareWithASCIIString(co->co_name, "handle_torch_function") ||
         !PyUnicode_CompareWithASCIIString(co->co_name, "_get_overloaded_args");
}

/* torch.func's first use registers operators: no part of the program. */
static bool skip_is_setup(PyCodeObject *co) {
  return !PyUnicode_CompareWithASCIIString(co->co_name, "lazy_load_decompositions");
}

/* What makes packed sequences and takes them apart, and forward of RNN, LSTM and GRU. */
static bool skip_is_packing(PyCodeObject *co) {
  return !PyUnicode_CompareWithASCIIString(co->co_name, "pack_padded_sequence") ||
         !PyUnicode_CompareWithASCIIString(co->co_name, "pad_packed_sequence");
}
static bool skip_is_rnn(PyCodeObject *co, const char *below_torch) {
  if (!strcmp(below_torch, "nn/utils/rnn.py")) return skip_is_packing(co);
  return !strcmp(below_torch, "nn/modules/rnn.py") &&
         !PyUnicode_CompareWithASCIIString(co->co_name, "forward");
}

/* What torch.compiler.disable(recursive=False) puts around a function. */
static bool skip_is_wrapper(PyCodeObject *co) {
  return !PyUnicode_CompareWithASCIIString(co->co_name, "nonrecursive_disable_wrapper");
}

/* Methods that dataclasses and named tuples write: library code without a file. */
static bool skip_is_generated(PyCodeObject *co, const char *file) {
  if (strcmp(file, "<string>")) return false;
  const char *name = PyUnicode_AsUTF8(co->co_qualname);
  if (!name) return mg_clear_as_no(), false;
  if (!strncmp(name, "__create_fn__.", 14)) return true;
  PyObject *first = co->co_argcount ? PyTuple_GET_ITEM(co->co_localsplusnames, 0) : NULL;
  return !strcmp(name, "<lambda>") && first && !PyUnicode_CompareWithASCIIString(first, "_cls");
}

/* What C code that warns calls: the lists that handlers write to are no part of the program. */
static bool skip_is_warning(PyCodeObject *co) {
  return !PyUnicode_CompareWithASCIIString(co->co_qualname, "_showwarnmsg") ||
         !PyUnicode_CompareWithASCIIString(co->co_qualname, "WarningMessage.__init__");
}

static SkipKind skip_kind(PyCodeObject *co) {
  const char *file = PyUnicode_AsUTF8(co->co_filename);
  if (!file) {
    mg_clear_as_no();
    return SKIP_inline;
  }
  if (!strncmp(file, "<frozen importlib", 17)) return SKIP_opaque;
  if (!strncmp(file, "<frozen ", 8) || skip_is_generated(co, file)) return SKIP_inline;
  SkipKind kind = SKIP_none;
  for (size_t i = 0; i < sizeof skip_rules / sizeof *skip_rules; i++) {
    const char *root = skip_root[skip_rules[i].root];
    size_t n = root ? strlen(root) : 0;
    if (n && !strncmp(file, root, n) && !strncmp(file + n, skip_rules[i].path, strlen(skip_rules[i].path)))
      kind = skip_rules[i].kind;
    if (n && skip_rules[i].root == ROOT_stdlib && !strncmp(file, root, n) &&
        (!strcmp(file + n, "warnings.py") || !strcmp(file + n, "_py_warnings.py")) && skip_is_warning(co))
      return SKIP_opaque;
    if (n && skip_rules[i].root == ROOT_torch && !strncmp(file, root, n) && skip_is_breaking(co, file + n))
      return SKIP_break;
    if (n && skip_rules[i].root == ROOT_torch && !strncmp(file, root, n) && skip_is_rnn(co, file + n))
      return SKIP_rnn;
    if (n && skip_rules[i].root == ROOT_torch && !strncmp(file, root, n) && skip_is_recorded(co, file + n))
      return SKIP_inline;
    if (n && skip_rules[i].root == ROOT_torch && !strncmp(file, root, n) &&
        !strcmp(file + n, "_functorch/predispatch.py") && skip_is_setup(co))
      return SKIP_opaque;
    if (n && skip_rules[i].root == ROOT_torch && !strncmp(file, root, n) &&
        !strcmp(file + n, "overrides.py") && skip_is_handing(co))
      return SKIP_modes;
    if (n && skip_rules[i].root == ROOT_torch && !strncmp(file, root, n) &&
        !strcmp(file + n, "_dynamo/external_utils.py") && skip_is_wrapper(co))
      return SKIP_wrapper;
  }
  return kind;
}

static SkipKind skip_cached(PyCodeObject *co) {
  MgCodeInfo *info = mg_code_info(co);
  if (!info) {
    PyErr_Clear(); /* out of memory: as code of the program */
    return SKIP_inline;
  }
  if (info->skip < 0) info->skip = (int8_t)skip_kind(co);
  return (SkipKind)info->skip;
}

bool mg_skip_opaque(PyCodeObject *co) { return skip_cached(co) >= SKIP_opaque; }
bool mg_skip_modes(PyCodeObject *co) { return skip_cached(co) == SKIP_modes; }
bool mg_skip_wrapper(PyCodeObject *co) { return skip_cached(co) == SKIP_wrapper; }
bool mg_skip_breaks(PyCodeObject *co) { return skip_cached(co) == SKIP_break; }
bool mg_skip_compile(PyCodeObject *co) { return skip_cached(co) != SKIP_none && skip_cached(co) != SKIP_rnn; }

bool mg_skip_packed(MgFrame *f) {
  PyCodeObject *co = mg_pyframe_code(f);
  if (skip_cached(co) != SKIP_rnn || mg_pyframe_next(f)) return false;
  if (skip_is_packing(co)) return true;
  PyObject *input = co->co_argcount > 1 ? mg_pyframe_peek(f, 1) : NULL;
  return input && PyTuple_Check(input) && !strcmp(Py_TYPE(input)->tp_name, "PackedSequence");
}

bool mg_skip_is_torch(PyCodeObject *co) {
  const char *file = PyUnicode_AsUTF8(co->co_filename), *root = skip_root[ROOT_torch];
  if (!file) mg_clear_as_no();
  return file && root && !strncmp(file, root, strlen(root));
}

bool mg_skip_is_copy(PyCodeObject *co) {
  const char *file = PyUnicode_AsUTF8(co->co_filename), *root = skip_root[ROOT_stdlib];
  if (!file) mg_clear_as_no();
  return file && root && !strncmp(file, root, strlen(root)) && !strcmp(file + strlen(root), "copy.py");
}

/* The directory of a file of the module, with the final slash; malloc'ed. */
static char *skip_directory(PyObject *m) {
  PyObject *file = m ? PyObject_GetAttrString(m, "__file__") : NULL;
  const char *text = file && PyUnicode_Check(file) ? PyUnicode_AsUTF8(file) : NULL, *end;
  char *dir = NULL;
  if (text && (end = strrchr(text, '/')) && (dir = mg_calloc(1, (size_t)(end - text) + 2)))
    memcpy(dir, text, (size_t)(end - text) + 1);
  Py_XDECREF(file);
  return dir;
}

int mg_skip_init(PyObject *module) {
  static const char *const names[ROOT__COUNT] = {
      [ROOT_torch] = "torch", [ROOT_stdlib] = "os", [ROOT_magneto] = "magneto", [ROOT_numpy] = "numpy"};
  for (int i = 0; i < ROOT__COUNT; i++) {
    if (skip_root[i]) continue;
    PyObject *m = mg_import(names[i]);
    if (!m && i == ROOT_numpy && PyErr_ExceptionMatches(PyExc_ImportError)) { /* torch runs without */
      mg_clear_if(PyExc_ImportError);
      continue;
    }
    if (!m) return -1;
    skip_root[i] = skip_directory(m);
    Py_DECREF(m);
    if (!skip_root[i]) {
      if (!PyErr_Occurred()) PyErr_Format(PyExc_ImportError, "magneto: where is %s?", names[i]);
      return -1;
    }
  }
  return 0;
}
