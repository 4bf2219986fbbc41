/* See the header. */
#include "host/python/names.h"
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>
#include "host/python/pyobject.h"

MgNameTable mg_names;
MgTorchObjs mg_torch;

/* One attribute path: "module:attr.attr". */
typedef struct Want {
  const char *module, *path;
  void *where; /* PyObject ** or PyTypeObject ** */
} Want;

static const char names_module[] = "torch.nn.modules.module";

/* What mg_torch has of Python's and torch's modules. */
static const Want names_wanted[] = {
    {"torch", "Tensor", &mg_torch.tensor},
    {"torch", "Size", &mg_torch.size},
    {"torch.nn", "Parameter", &mg_torch.parameter},
    {names_module, "Module", &mg_torch.module},
    {names_module, "Module.__getattr__", &mg_torch.module_getattr},
    {names_module, "Module.__setattr__", &mg_torch.module_setattr},
    {names_module, "Module.__call__", &mg_torch.module_call},
    {names_module, "Module._call_impl", &mg_torch.module_call_impl},
    {names_module, "_global_backward_pre_hooks", &mg_torch.global_hooks[0]},
    {names_module, "_global_backward_hooks", &mg_torch.global_hooks[1]},
    {names_module, "_global_forward_hooks", &mg_torch.global_hooks[2]},
    {names_module, "_global_forward_pre_hooks", &mg_torch.global_hooks[3]},
    {"torch.compiler", "is_compiling", &mg_torch.is_compiling[0]},
    {"torch.compiler", "is_dynamo_compiling", &mg_torch.is_compiling[1]},
    {"torch.nn.modules.activation", "_is_make_fx_tracing", &mg_torch.is_make_fx},
    {"torch", "_check_with", &mg_torch.check_with},
    {"torch._C", "_disabled_torch_function_impl", &mg_torch.no_function},
    {"torch._C", "DisableTorchFunction", &mg_torch.without_function},
    {"torch._C", "DisableTorchFunctionSubclass", &mg_torch.without_subclasses},
    {"torch._C", "_AutoDispatchBelowAutograd", &mg_torch.below_autograd},
    {"torch.utils.checkpoint", "checkpoint.__code__", &mg_torch.internal_disable_code},
    {"torch.utils.checkpoint", "checkpoint.__wrapped__", &mg_torch.checkpoint},
    {"torch.utils.checkpoint", "noop_context_fn", &mg_torch.checkpoint_no_context},
    {"torch.utils.checkpoint", "create_selective_checkpoint_contexts", &mg_torch.checkpoint_selective},
    {"torch.autograd.profiler", "record_function.__enter__", &mg_torch.record_enter},
    {"torch.autograd.profiler", "record_function.__exit__", &mg_torch.record_exit},
    {"torch.autograd.variable", "Variable._execution_engine", &mg_torch.engine},
    {"torch.autograd.graph", "_engine_run_backward", &mg_torch.engine_run_backward},
    {"torch.optim.optimizer", "_get_value", &mg_torch.optim_get_value},
    {"collections", "namedtuple", &mg_torch.namedtuple},
    {"torch.utils.hooks", "RemovableHandle", &mg_torch.removable_handle},
    {"torch.utils.hooks", "RemovableHandle.remove", &mg_torch.handle_remove},
    {"torch", "Tensor.register_hook", &mg_torch.hook_register[0]},
    {"torch", "Tensor.register_post_accumulate_grad_hook", &mg_torch.hook_register[1]},
    {"torch.nn.modules.lazy", "LazyModuleMixin._infer_parameters", &mg_torch.infer_parameters},
    {"torch.nested._internal.nested_tensor", "_nt_view_dummy", &mg_torch.jagged_dummy},
    {"torch._C", "_FunctionBase", &mg_torch.function_base},
    {"torch.nn.modules._functions", "BackwardHookFunction", &mg_torch.backward_hook_function},
    {"torch.optim.optimizer", "Optimizer", &mg_torch.optimizer},
    {"_abc", "_abc_subclasscheck", &mg_torch.abc_subclasscheck},
    {"_abc", "get_cache_token", &mg_torch.abc_token},
    {"torch._ops", "OpOverload", &mg_torch.op_overload},
    {"torch._ops", "OpOverloadPacket", &mg_torch.op_packet},
    {"torch.jit", "ScriptFunction", &mg_torch.script_function},
    {"torch._ops", "HigherOrderOperator", &mg_torch.higher_order},
    {"torch._higher_order_ops.cond", "cond", &mg_torch.cond},
    {"torch._higher_order_ops.invoke_subgraph", "invoke_subgraph_placeholder", &mg_torch.nested_region},
    {"torch._higher_order_ops.invoke_subgraph", "invoke_subgraph", &mg_torch.invoke_subgraph},
    {"torch._higher_order_ops.wrap", "tag_activation_checkpoint", &mg_torch.tag_checkpoint},
    {"enum", "EnumMeta", &mg_torch.enum_meta},
    {"functools", "cached_property", &mg_torch.cached_property},
    {"functools", "partial", &mg_torch.partial},
    {"functools", "_lru_cache_wrapper", &mg_torch.lru_cache},
    {"collections", "OrderedDict", &mg_torch.ordered_dict},
    {"collections", "deque", &mg_torch.deque},
    {"collections", "defaultdict", &mg_torch.defaultdict},
};

static PyObject *names_find(const char *module, const char *path) {
  PyObject *o = mg_import(module);
  const char *p = path;
  while (o && *p) {
    const char *dot = strchr(p, '.');
    Py_ssize_t n = dot ? dot - p : (Py_ssize_t)strlen(p);
    PyObject *name = PyUnicode_FromStringAndSize(p, n), *x = name ? PyObject_GetAttr(o, name) : NULL;
    Py_XDECREF(name);
    Py_DECREF(o);
    o = x;
    p += n + (dot != NULL);
  }
  return o;
}

int mg_names_init(void) {
  static bool done;
  if (done) return 0;
#define NAME(id, text)                                                                                       \
  if (!mg_names.id && !(mg_names.id = PyUnicode_InternFromString(text))) return -1;
  MG_NAMES(NAME)
#undef NAME
  for (size_t i = 0; i < sizeof names_wanted / sizeof *names_wanted; i++) {
    PyObject **slot = names_wanted[i].where;
    if (!*slot && !(*slot = names_find(names_wanted[i].module, names_wanted[i].path))) return -1;
  }
  done = true;
  return 0;
}
