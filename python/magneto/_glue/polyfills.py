"""Torch's higher-order operators, and its C functions that call back, as plain Python.

The recorder calls these functions in their place.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._functorch.autograd_function import custom_function_call
from torch.autograd.function import _SingleLevelFunction
from torch.fx.immutable_collections import immutable_dict, immutable_list
from torch.utils import _pytree as pytree


def scan(
    combine_fn: Callable[..., Any],
    init: Sequence[Any],
    xs: Sequence[torch.Tensor],
    additional_inputs: Sequence[Any] = (),
) -> Any:
    """torch.ops.higher_order.scan: one step per row of xs.

    Returns the final carry, then what the steps gave, stacked.
    """
    carry, rows, spec = list(init), [], None
    for i in range(xs[0].shape[0]):
        out, spec = pytree.tree_flatten(combine_fn(*carry, *[x.select(0, i) for x in xs], *additional_inputs))
        carry = out[: len(carry)]
        rows.append(out[len(carry) :])
    assert spec is not None, "scan() over no rows"
    stacked = [None if column[0] is None else torch.stack(column) for column in zip(*rows, strict=True)]
    return pytree.tree_unflatten([*carry, *stacked], spec)


def upsample(name: str, *args: Any) -> torch.Tensor:
    """torch._C._nn's interpolation by name, for sizes that are symbols: the operator of each size.

    Torch's own Python kernels compute with other formulas, which make NaN of infinities.
    """
    x, size, *align, scales = args
    if scales is not None and not isinstance(scales, (list, tuple)):
        raise TypeError("scales one by one: the operator has been called itself")
    from torch._decomp.decompositions import upsample_compute_output_size

    size = upsample_compute_output_size(x.shape, size, scales)
    operator = getattr(torch.ops.aten, name).default
    return operator(x, size, *align, *(scales or [None] * len(size)))


def map_impl(f: Callable[..., Any], xs: Sequence[torch.Tensor], pos_args: Sequence[Any]) -> Any:
    """torch.ops.higher_order.map_impl: f of each row of xs, stacked."""
    results = [f(*[x.select(0, i) for x in xs], *pos_args) for i in range(xs[0].shape[0])]
    leaves = [pytree.tree_flatten(r) for r in results]
    stacked = [
        None if c[0] is None else torch.stack(c) for c in zip(*[flat for flat, _ in leaves], strict=True)
    ]
    return pytree.tree_unflatten(stacked, leaves[0][1])


def associative_scan(
    combine_fn: Callable[..., Any], xs: Sequence[torch.Tensor], additional_inputs: Sequence[Any]
) -> Any:
    """torch.ops.higher_order.associative_scan, whose combine_fn is about single rows: all rows at a time."""
    from torch._higher_order_ops.associative_scan import generic_associative_scan

    in_dims = (0,) * (2 * len(xs)) + (None,) * len(additional_inputs)
    return generic_associative_scan(
        torch.vmap(combine_fn, in_dims=in_dims), xs, additional_inputs=tuple(additional_inputs)
    )


def batched_cond(
    pred: torch.Tensor, true_fn: Callable[..., Any], false_fn: Callable[..., Any], operands: Sequence[Any]
) -> Any:
    """torch.cond under vmap, with a predicate for each row: both branches, as torch's own rule has it."""
    yes, spec = pytree.tree_flatten(true_fn(*operands))
    no, _ = pytree.tree_flatten(false_fn(*operands))
    return pytree.tree_unflatten([torch.where(pred, a, b) for a, b in zip(yes, no, strict=True)], spec)


def out_dtype(op: Callable[..., torch.Tensor], output_dtype: torch.dtype, *args: Any) -> torch.Tensor:
    """torch.ops.higher_order.out_dtype: op of arguments that are promoted with output_dtype."""
    from torch._higher_order_ops.out_dtype import ALLOWABLE_OPS, out_dtype_dense

    if op not in ALLOWABLE_OPS:
        raise ValueError(f"out_dtype only allows the following operators: {ALLOWABLE_OPS}.")
    return out_dtype_dense(op, output_dtype, *args)


class _Applied(torch.autograd.Function):
    """Two graphs: forward's gives the results and what backward's takes behind their gradients."""

    @staticmethod
    def forward(
        ctx: Any,
        fwd: Callable[..., Any],
        bwd: Callable[..., Any],
        marks: tuple[Sequence[int], ...],
        *args: Any,
    ) -> Any:
        result, saved = fwd(*args)
        results = result if isinstance(result, (tuple, list)) else [result]
        checked, dirty, constant = marks
        ctx.save_for_backward(*[saved[i] for i in checked])
        ctx.others = [None if i in checked else t for i, t in enumerate(saved)]
        ctx.bwd, ctx.checked = bwd, checked
        if dirty:
            ctx.mark_dirty(*[results[i] for i in dirty])
        if constant:
            ctx.mark_non_differentiable(*[results[i] for i in constant])
        return result

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        saved = list(ctx.others)
        for i, t in zip(ctx.checked, ctx.saved_tensors, strict=True):
            saved[i] = t
        given = ctx.bwd(*grads, *saved)
        return (None, None, None, *(given if isinstance(given, (tuple, list)) else [given]))


def autograd_function_apply(
    fwd: torch.fx.GraphModule, bwd: torch.fx.GraphModule, *args: Any, **kwargs: Any
) -> Any:
    """torch.ops.higher_order.autograd_function_apply: what Dynamo makes of a torch.autograd.Function."""
    if "saved_for_backward_idx" not in kwargs:  # other graphs, as torch before 2.13 may make them
        from torch._functorch.autograd_function import AutogradFunctionApply
        from torch._functorch.autograd_function import autograd_function_apply as operator

        return AutogradFunctionApply.__call__(operator, fwd, bwd, *args, **kwargs)
    marks = tuple(
        tuple(kwargs.get(k, ())) for k in ("saved_for_backward_idx", "dirty_idx", "non_differentiable_idx")
    )
    return _Applied.apply(fwd, bwd, marks, *args)


def _begin_apply(
    cls: type[torch.autograd.Function], *args: Any, **kwargs: Any
) -> tuple[Sequence[Any], dict[str, Any]] | list[Any]:
    """What torch's C code of autograd.Function.apply calls Python for before forward.

    Gives the arguments that it goes on with, or inside of transforms a list of the result.
    """
    whole = issubclass(cls, torch.autograd.Function)  # not one level of it, which a transform applies
    if whole and cls.setup_context != _SingleLevelFunction.setup_context:
        bound = inspect.signature(cls.forward).bind(*args, **kwargs)
        bound.apply_defaults()
        args, kwargs = bound.args, bound.kwargs
        if torch._C._are_functorch_transforms_active():
            return [custom_function_call(cls, *args, **kwargs)]
    return args, kwargs  # without a context apply itself refuses transforms


# Before torch 2.14 all of it is Python, which is recorded as it is: nothing is called in its place.
begin_apply = None if isinstance(vars(torch.autograd.Function)["apply"], classmethod) else _begin_apply


def tag_activation_checkpoint(graph: torch.fx.GraphModule, *args: Any, **kwargs: Any) -> Any:
    """torch.ops.higher_order.tag_activation_checkpoint: what Dynamo makes of torch.utils.checkpoint."""
    from torch.utils.checkpoint import checkpoint

    context = graph.meta.get("_checkpoint_context_fn")
    if context is not None:
        kwargs["context_fn"] = context
    return checkpoint(graph, *args, **{**kwargs, "use_reentrant": False})


def flex_attention(query: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    """torch.ops.higher_order.flex_attention: all scores, softmax, product, laid out like query."""
    from torch._higher_order_ops.flex_attention import math_attention

    out, *rest = math_attention(query, *args, **kwargs)
    last = out.dim() - 1
    slowest_first = [*sorted(range(last), key=query.stride)[::-1], last]
    if slowest_first != sorted(slowest_first):
        dense = out.permute(slowest_first).clone(memory_format=torch.contiguous_format)
        out = dense.permute([slowest_first.index(d) for d in range(out.dim())])
    return (out, *rest)


def _fx_map_aggregate(a: Any, fn: Callable[[Any], Any]) -> Any:
    """torch.fx.node.map_aggregate: fn of everything in nested tuples, lists, dicts and slices.

    Lists and dicts become immutable ones.
    """
    if isinstance(a, tuple):
        items = [_fx_map_aggregate(x, fn) for x in a]
        return type(a)(*items) if hasattr(a, "_fields") else tuple(items)
    if isinstance(a, list):
        return immutable_list([_fx_map_aggregate(x, fn) for x in a])
    if isinstance(a, dict):
        return immutable_dict([(k, _fx_map_aggregate(x, fn)) for k, x in a.items()])
    if isinstance(a, slice):
        return slice(
            _fx_map_aggregate(a.start, fn), _fx_map_aggregate(a.stop, fn), _fx_map_aggregate(a.step, fn)
        )
    return fn(a)


def _fx_map_arg(a: Any, fn: Callable[[torch.fx.Node], Any]) -> Any:
    """torch.fx.node.map_arg: fn of the nodes only."""
    return _fx_map_aggregate(a, lambda x: fn(x) if isinstance(x, torch.fx.Node) else x)
