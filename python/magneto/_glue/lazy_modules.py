"""Lazy modules that a compiled function calls for the first time."""

from __future__ import annotations

from typing import Any

import torch


def _sizes(x: Any) -> Any:
    """``x`` with tensors that have sizes and no data."""
    if isinstance(x, torch.Tensor):
        return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="meta")
    if isinstance(x, (tuple, list)):
        return type(x)(map(_sizes, x))
    return {k: _sizes(v) for k, v in x.items()} if isinstance(x, dict) else x


def initialize(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> None:
    """Gives ``module`` its parameters for these arguments.

    A recording's mode is the only one on torch's stack.
    """
    if torch._C._len_torch_dispatch_stack() != 1:
        raise RuntimeError("another dispatch mode is active")
    mode = torch._C._pop_torch_dispatch_stack(None)
    try:
        with torch._C.DisableTorchFunction():
            module._infer_parameters(module, _sizes(tuple(args)), _sizes(dict(kwargs or {})))
    finally:
        torch._C._push_on_torch_dispatch_stack(mode)
