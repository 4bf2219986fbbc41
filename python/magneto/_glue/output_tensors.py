"""Tensors over memory that a compiled graph has made."""

from __future__ import annotations

import torch


def inference_alias(t: torch.Tensor, inference: bool) -> torch.Tensor:
    """The same elements of the same memory as an inference tensor, or as an ordinary one."""
    with torch.inference_mode(inference):
        return torch.empty(0, dtype=t.dtype, device=t.device).set_(
            t.untyped_storage(), t.storage_offset(), t.size(), t.stride()
        )


def view_of_parts(base: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """A view of base with the elements of like, of which one is complex and the other real."""
    n = base.untyped_storage().nbytes() // base.itemsize
    if like.is_complex():
        all = torch.view_as_complex(base.as_strided((n // 2, 2), (2, 1), 0))
    else:
        all = torch.view_as_real(base.as_strided((n,), (1,), 0))
    return all.as_strided(like.size(), like.stride(), like.storage_offset())


def batch_norm(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    mean: torch.Tensor,
    var: torch.Tensor,
    training: bool,
    momentum: float,
    eps: float,
    cudnn: bool,
) -> torch.Tensor:
    """torch.batch_norm in training, with a momentum that a graph computes.

    Torch's takes a number only: a momentum of 1 gives the statistics of the batch.
    """
    m, v = torch.zeros_like(mean), torch.zeros_like(var)
    y = torch.batch_norm(x, weight, bias, m, v, training, 1.0, eps, cudnn)
    with torch.no_grad(), torch.autograd._unsafe_preserve_version_counter((mean, var)):
        for running, batch in ((mean, m), (var, v)):
            running.mul_(1 - momentum).add_(batch * momentum)
    return y
