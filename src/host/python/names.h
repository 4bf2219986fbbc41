/* Python objects that the rooms of entry and record need: interned names, and torch's classes and functions
 * that the recorder treats by identity.  Filled once per process by mg_names_init; the objects live as long
 * as the process. */
#ifndef MG_NAMES_H
#define MG_NAMES_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

/* NAME(C identifier, text) */
#define MG_NAMES(NAME)                                                                                       \
  NAME(class_, "__class__")                                                                                  \
  NAME(dict, "__dict__")                                                                                     \
  NAME(cause, "__cause__")                                                                                   \
  NAME(step, "step")                                                                                         \
  NAME(stop, "stop")                                                                                         \
  NAME(start, "start")                                                                                       \
  NAME(suppress_context, "__suppress_context__")                                                             \
  NAME(slotnames, "__slotnames__")                                                                           \
  NAME(getattr, "__getattr__")                                                                               \
  NAME(getattribute, "__getattribute__")                                                                     \
  NAME(setattr, "__setattr__")                                                                               \
  NAME(delattr, "__delattr__")                                                                               \
  NAME(getitem, "__getitem__")                                                                               \
  NAME(setitem, "__setitem__")                                                                               \
  NAME(contains, "__contains__")                                                                             \
  NAME(iter, "__iter__")                                                                                     \
  NAME(next, "__next__")                                                                                     \
  NAME(call, "__call__")                                                                                     \
  NAME(init, "__init__")                                                                                     \
  NAME(new, "__new__")                                                                                       \
  NAME(eq, "__eq__")                                                                                         \
  NAME(self, "__self__")                                                                                     \
  NAME(wrapped, "__wrapped__")                                                                               \
  NAME(module, "__module__")                                                                                 \
  NAME(reduce, "__reduce__")                                                                                 \
  NAME(reduce_ex, "__reduce_ex__")                                                                           \
  NAME(iterator, "iterator")                                                                                 \
  NAME(compiler_config, "torch.compiler.config")                                                             \
  NAME(filters, "filters")                                                                                   \
  NAME(setstate, "__setstate__")                                                                             \
  NAME(del, "__del__")                                                                                       \
  NAME(to_save, "to_save")                                                                                   \
  NAME(saved_tensors, "saved_tensors")                                                                       \
  NAME(materialize_grads, "materialize_grads")                                                               \
  NAME(needs_input_grad, "needs_input_grad")                                                                 \
  NAME(version, "_version")                                                                                  \
  NAME(magneto_run, "_magneto_run")                                                                          \
  NAME(active_ddp_module, "_active_ddp_module")                                                              \
  NAME(bucket_bytes_cap, "bucket_bytes_cap")                                                                 \
  NAME(comm_hooks, "_comm_hooks")                                                                            \
  NAME(attrname, "attrname")                                                                                 \
  NAME(fget, "fget")                                                                                         \
  NAME(func, "func")                                                                                         \
  NAME(args, "args")                                                                                         \
  NAME(keywords, "keywords")                                                                                 \
  NAME(call_impl, "_call_impl")                                                                              \
  NAME(compiled_call_impl, "_compiled_call_impl")                                                            \
  NAME(forward, "forward")                                                                                   \
  NAME(parameters, "_parameters")                                                                            \
  NAME(buffers, "_buffers")                                                                                  \
  NAME(modules, "_modules")                                                                                  \
  NAME(forward_hooks, "_forward_hooks")                                                                      \
  NAME(forward_pre_hooks, "_forward_pre_hooks")                                                              \
  NAME(backward_hooks, "_backward_hooks")                                                                    \
  NAME(backward_pre_hooks, "_backward_pre_hooks")                                                            \
  NAME(compiling_flag, "_is_compiling_flag")                                                                 \
  NAME(device_module, "torch.utils._device")                                                                 \
  NAME(forward_ad, "torch.autograd.forward_ad")                                                              \
  NAME(current_level, "_current_level")                                                                      \
  NAME(current_device, "CURRENT_DEVICE")                                                                     \
  NAME(parallel_distributed, "torch.nn.parallel.distributed")                                                \
  NAME(torchdynamo_disable, "_torchdynamo_disable")                                                          \
  NAME(orig_callable, "_torchdynamo_orig_callable")                                                          \
  NAME(wrapper_id, "_torchdynamo_wrapper_id")                                                                \
  NAME(marked_constant, "_dynamo_marked_constant")                                                           \
  NAME(in_graph, "_magneto_in_graph")                                                                        \
  NAME(torch_function, "__torch_function__")                                                                 \
  NAME(torch_dispatch, "__torch_dispatch__")                                                                 \
  NAME(base_hop, "torch._higher_order_ops.base_hop")                                                         \
  NAME(call_composite, "_call_CompositeExplicitAutograd")                                                    \
  NAME(trace_rules, "torch._dynamo.trace_rules")                                                             \
  NAME(dynamo_config, "torch._dynamo.config")                                                                \
  NAME(dataclass_params, "__dataclass_params__")                                                             \
  NAME(post_init, "__post_init__")                                                                           \
  NAME(builtins, "__builtins__")                                                                             \
  NAME(dir, "__dir__")                                                                                       \
  NAME(globals, "__globals__")                                                                               \
  NAME(callback, "__callback__")                                                                             \
  NAME(append, "append")                                                                                     \
  NAME(clear, "clear")                                                                                       \
  NAME(update, "update")                                                                                     \
  NAME(copy, "copy")                                                                                         \
  NAME(data, "data")                                                                                         \
  NAME(grad, "grad")                                                                                         \
  NAME(requires_grad, "requires_grad")

typedef struct MgNameTable {
#define NAME(id, text) PyObject *id;
  MG_NAMES(NAME)
#undef NAME
} MgNameTable;

/* torch's own objects.  All are strong references; torch is imported by mg_names_init. */
typedef struct MgTorchObjs {
  PyTypeObject *tensor, *parameter, *module, *size;
  PyObject *module_getattr;   /* nn.Module.__getattr__ */
  PyObject *module_setattr;   /* nn.Module.__setattr__ */
  PyObject *module_call;      /* nn.Module.__call__ (_wrapped_call_impl) */
  PyObject *module_call_impl; /* nn.Module._call_impl */
  PyObject *global_hooks[4];  /* the process-wide hook dicts that _call_impl tests */
  PyObject *check_with;       /* torch._check_with */
  PyObject *no_function;      /* torch._C._disabled_torch_function_impl */
  PyObject *without_function,
      *without_subclasses;         /* torch._C.DisableTorchFunction, DisableTorchFunctionSubclass */
  PyObject *below_autograd;        /* torch._C._AutoDispatchBelowAutograd */
  PyObject *is_compiling[2];       /* functions that answer True while recording */
  PyObject *is_make_fx;            /* torch.nn.modules.activation._is_make_fx_tracing */
  PyObject *internal_disable_code; /* code of the wrapper that torch._disable_dynamo makes */
  PyObject *checkpoint, *checkpoint_no_context,
      *checkpoint_selective;              /* functions of torch.utils.checkpoint */
  PyObject *record_enter, *record_exit;   /* torch.autograd.profiler.record_function.__enter__, __exit__ */
  PyObject *engine, *engine_run_backward; /* the autograd engine, and the function that calls it */
  PyObject *optim_get_value;              /* torch.optim.optimizer._get_value */
  PyObject *namedtuple;                   /* collections.namedtuple */
  PyTypeObject *removable_handle;         /* torch.utils.hooks.RemovableHandle */
  PyObject *handle_remove;                /* its remove */
  PyObject *hook_register[2];             /* torch.Tensor.register_hook, register_post_accumulate_grad_hook */
  PyObject *jagged_dummy;                 /* torch.nested._internal.nested_tensor._nt_view_dummy */
  PyObject *infer_parameters;             /* torch.nn.modules.lazy.LazyModuleMixin._infer_parameters */
  PyObject *backward_hook_function; /* torch.nn.modules._functions.BackwardHookFunction, through which modules
                                       hook into backward */
  PyTypeObject *function_base; /* torch._C._FunctionBase: nodes of gradient graphs that are made in Python */
  PyTypeObject *optimizer;     /* torch.optim.Optimizer */
  PyObject *abc_subclasscheck; /* what ABCMeta.__subclasscheck__ calls */
  PyObject *abc_token;         /* abc.get_cache_token */
  PyObject *op_overload;       /* torch._ops.OpOverload */
  PyObject *cond;              /* torch.cond */
  PyObject *nested_region,
      *invoke_subgraph;          /* what nested_compile_region calls; the operator that it stands for */
  PyObject *tag_checkpoint;      /* the operator that stands for a checkpointed block */
  PyTypeObject *script_function; /* torch.jit.ScriptFunction */
  PyTypeObject *higher_order;    /* torch._ops.HigherOrderOperator */
  PyObject *op_packet;           /* torch._ops.OpOverloadPacket */
  PyTypeObject *enum_meta, *cached_property, *partial, *lru_cache, *ordered_dict, *deque, *defaultdict;
} MgTorchObjs;

extern MgNameTable mg_names;
extern MgTorchObjs mg_torch;
int mg_names_init(void); /* -1 with an exception set; later calls do nothing */
/* Changes with every change of a class, and of what it inherits; 0: it has none now.  From 3.13 on the flag
 * has no meaning. */
static inline uint32_t mg_type_version(const PyTypeObject *t) {
#if PY_VERSION_HEX >= 0x030D0000
  return t->tp_version_tag;
#else
  return t->tp_flags & Py_TPFLAGS_VALID_VERSION_TAG ? t->tp_version_tag : 0;
#endif
}
/* What a weak reference refers to, borrowed; None when that is gone. */
static inline PyObject *mg_weakref_target(PyObject *ref) {
#if PY_VERSION_HEX >= 0x030D0000
  PyObject *o;
  if (PyWeakref_GetRef(ref, &o) <= 0) return Py_None;
  Py_DECREF(o); /* somebody else holds it */
  return o;
#else
  return PyWeakref_GET_OBJECT(ref);
#endif
}
/* A class's own attributes, borrowed.  3.12 keeps those of static types outside of the type object. */
static inline PyObject *mg_type_dict(PyTypeObject *t) {
#if PY_VERSION_HEX >= 0x030C0000
  PyObject *d = PyType_GetDict(t);
  Py_XDECREF(d); /* the class keeps it */
  return d;
#else
  return t->tp_dict;
#endif
}
#endif
