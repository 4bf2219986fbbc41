"""What torch's higher-order operators do to a program, as plain Python: the recorder calls these functions in their place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree


def scan(combine_fn: Callable[..., Any], init: Sequence[Any], xs: Sequence[torch.Tensor], additional_inputs: Sequence[Any] = ()) -> Any:
    """torch.ops.higher_order.scan: one step per row of xs; the final carry, then what the steps gave, stacked."""
    carry, rows, spec = list(init), [], None
    for i in range(xs[0].shape[0]):
        out, spec = pytree.tree_flatten(combine_fn(*carry, *[x.select(0, i) for x in xs], *additional_inputs))
        carry = out[: len(carry)]
        rows.append(out[len(carry) :])
    assert spec is not None, "scan() over no rows"
    stacked = [None if column[0] is None else torch.stack(column) for column in zip(*rows)]
    return pytree.tree_unflatten([*carry, *stacked], spec)


def map_impl(f: Callable[..., Any], xs: Sequence[torch.Tensor], pos_args: Sequence[Any]) -> Any:
    """torch.ops.higher_order.map_impl: f of each row of xs, stacked."""
    results = [f(*[x.select(0, i) for x in xs], *pos_args) for i in range(xs[0].shape[0])]
    leaves = [pytree.tree_flatten(r) for r in results]
    stacked = [None if c[0] is None else torch.stack(c) for c in zip(*[flat for flat, _ in leaves])]
    return pytree.tree_unflatten(stacked, leaves[0][1])


def flex_attention(query: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    """torch.ops.higher_order.flex_attention: all scores, softmax, product."""
    from torch._higher_order_ops.flex_attention import sdpa_dense

    return sdpa_dense(query, *args, **kwargs)
