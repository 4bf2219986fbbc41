"""Tensors over memory that a compiled graph has made."""

from __future__ import annotations

import torch


def inference_alias(t: torch.Tensor, inference: bool) -> torch.Tensor:
    """The same elements of the same memory as an inference tensor, or as an ordinary one."""
    with torch.inference_mode(inference):
        return torch.empty(0, dtype=t.dtype, device=t.device).set_(t.untyped_storage(), t.storage_offset(), t.size(), t.stride())
