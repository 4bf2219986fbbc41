"""Collectives of torch.distributed that write into tensors, by functional ones.

``form`` says what a call is, or None where it stays a call of the process group.
The functions after it are recorded in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional

Form = tuple[Callable[..., None], tuple[Any, ...]]

# Names since torch 2.13, and those of before.
_gather = getattr(functional, "all_gather_single", None) or functional.all_gather_tensor
_scatter = getattr(functional, "reduce_scatter_single", None) or functional.reduce_scatter_tensor


def form(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Form | None:
    """A function of this module and its arguments, for a call of a function of torch.distributed."""
    try:
        found = _FORMS.get(fn.__name__)
        return found and found(*args, **kwargs)
    except TypeError:
        return None  # arguments that the function refuses itself


def _plain(group: Any, async_op: Any, *tensors: Any) -> bool:
    """Is nothing asked of the call that only a process group does?"""
    member = group is None or group is dist.group.WORLD or dist.get_rank(group) >= 0
    return not async_op and member and all(_data(t) for t in tensors)


def _data(t: Any) -> bool:
    dense = isinstance(t, torch.Tensor) and t.layout is torch.strided and not t.is_complex()
    return dense and t.is_contiguous() and not (t.requires_grad and torch.is_grad_enabled())


def _all_reduce(
    tensor: Any, op: Any = dist.ReduceOp.SUM, group: Any = None, async_op: Any = False
) -> Form | None:
    word = functional.REDUCE_OP_TO_STR.get(op)
    return (all_reduce, (tensor, word, group)) if word and _plain(group, async_op, tensor) else None


def _broadcast(
    tensor: Any, src: Any = None, group: Any = None, async_op: Any = False, group_src: Any = None
) -> Form | None:
    if group is not None or group_src is not None or type(src) is not int:
        return None  # a rank in the group, which is found from that in the world
    return (broadcast, (tensor, src)) if _plain(group, async_op, tensor) else None


def _all_gather(tensor_list: Any, tensor: Any, group: Any = None, async_op: Any = False) -> Form | None:
    if not isinstance(tensor_list, (list, tuple)) or not _plain(group, async_op, tensor, *tensor_list):
        return None
    same = all(t.dtype is tensor.dtype for t in tensor_list)
    return (all_gather, (tensor_list, tensor, group)) if same else None


def _all_gather_single(
    output_tensor: Any, input_tensor: Any, group: Any = None, async_op: Any = False
) -> Form | None:
    if (
        not _plain(group, async_op, output_tensor, input_tensor)
        or output_tensor.dtype is not input_tensor.dtype
    ):
        return None
    return (all_gather_single, (output_tensor, input_tensor, group)) if input_tensor.dim() else None


def _reduce_scatter_single(
    output: Any, input: Any, op: Any = dist.ReduceOp.SUM, group: Any = None, async_op: Any = False
) -> Form | None:
    word = functional.REDUCE_OP_TO_STR.get(op)
    if not word or not _plain(group, async_op, output, input) or output.dtype is not input.dtype:
        return None
    return (reduce_scatter_single, (output, input, word, group)) if output.dim() else None


def _all_to_all_single(
    output: Any,
    input: Any,
    output_split_sizes: Any = None,
    input_split_sizes: Any = None,
    group: Any = None,
    async_op: Any = False,
) -> Form | None:
    if output_split_sizes or input_split_sizes or not _plain(group, async_op, output, input):
        return None
    same = output.dtype is input.dtype and input.dim()
    return (all_to_all_single, (output, input, group)) if same else None


_FORMS: dict[str, Callable[..., Form | None]] = {
    "all_reduce": _all_reduce,
    "broadcast": _broadcast,
    "all_gather": _all_gather,
    "all_gather_single": _all_gather_single,
    "reduce_scatter_single": _reduce_scatter_single,
    "all_to_all_single": _all_to_all_single,
}
if not hasattr(dist, "all_gather_single"):
    _FORMS["all_gather_into_tensor"] = _all_gather_single
    _FORMS["reduce_scatter_tensor"] = _reduce_scatter_single


# Sizes are looked at here, where they may be symbols.
# After an error the call of the program runs, which raises its own.


def _group(group: Any) -> Any:
    return dist.group.WORLD if group is None else group


def _check(fits: bool) -> None:
    if not fits:
        raise RuntimeError("sizes that do not fit")


def _check_joined(whole: torch.Tensor, part: torch.Tensor, group: Any) -> None:
    rows = part.shape[0] * _group(group).size()
    _check(whole.dim() == part.dim() and whole.shape[0] == rows and whole.shape[1:] == part.shape[1:])


def all_reduce(tensor: torch.Tensor, word: str, group: Any) -> None:
    tensor.copy_(functional.all_reduce(tensor, word, _group(group)))


def broadcast(tensor: torch.Tensor, src: int) -> None:
    tensor.copy_(functional.broadcast(tensor, src, _group(None)))


def all_gather(tensor_list: Sequence[torch.Tensor], tensor: torch.Tensor, group: Any) -> None:
    _check(len(tensor_list) == _group(group).size() and all(t.shape == tensor.shape for t in tensor_list))
    rows = _gather(tensor.unsqueeze(0), 0, _group(group))
    for i, t in enumerate(tensor_list):
        t.copy_(rows[i])


def all_gather_single(output: torch.Tensor, input: torch.Tensor, group: Any) -> None:
    _check_joined(output, input, group)
    output.copy_(_gather(input, 0, _group(group)))


def reduce_scatter_single(output: torch.Tensor, input: torch.Tensor, word: str, group: Any) -> None:
    _check_joined(input, output, group)
    output.copy_(_scatter(input, word, 0, _group(group)))


def all_to_all_single(output: torch.Tensor, input: torch.Tensor, group: Any) -> None:
    _check(output.shape == input.shape and input.shape[0] % _group(group).size() == 0)
    output.copy_(functional.all_to_all_single(input, None, None, _group(group)))
