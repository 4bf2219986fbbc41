"""Operators of jagged tensors that recordings do not run, and jagged sizes times symbolic ones."""

from __future__ import annotations

from typing import Any

import torch
from torch.nested._internal.nested_int import NestedIntNode

_multiply = NestedIntNode.mul


def _multiply_symbols(self: NestedIntNode, other: Any) -> NestedIntNode:
    """Strides of jagged tensors whose width is a symbol of a recording: torch multiplies by numbers only."""
    if type(other).__module__ != "magneto._magneto":
        return _multiply(self, other)
    coeff: Any = self.coeff * torch.SymInt(other)
    return NestedIntNode(self.t_id, coeff)


NestedIntNode.mul = _multiply_symbols  # type: ignore[method-assign]


def attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """A tensor like the result of attention over (batch, heads, jagged, width) on the CPU.

    Attention itself asks tensors for their values.  NotImplemented for other arguments.
    """
    from torch.nested._internal.nested_tensor import NestedTensor, nested_view_from_values_offsets

    inputs = (query, key, value)
    if attn_mask is not None or enable_gqa or query.device.type != "cpu" or torch.is_autocast_enabled("cpu"):
        return NotImplemented
    if any(
        not isinstance(t, NestedTensor) or t.dim() != 4 or t._ragged_idx != 2 or t._lengths is not None
        for t in inputs
    ):
        return NotImplemented
    if (
        len({(t.dtype, t.device, t.shape[0], t.shape[1]) for t in inputs}) > 1
        or query.shape[-1] != key.shape[-1]
        or key._offsets is not value._offsets
    ):
        return NotImplemented
    heads, width = query.shape[1], value.shape[-1]
    flat = query.values().new_empty(query._values.numel() // max(heads * query.shape[-1], 1), heads, width)
    if torch.is_grad_enabled():
        flat = sum((t.values().sum() for t in inputs if t.requires_grad), flat)
    out = nested_view_from_values_offsets(
        flat, query.offsets(), min_seqlen=query._maybe_min_seqlen, max_seqlen=query._maybe_max_seqlen
    )
    return out.transpose(1, 2)
