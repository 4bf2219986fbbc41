"""Results of a recorded backward pass: their gradient graph was freed inside of a compiled function."""

from __future__ import annotations

from typing import Any

import torch

_FREED = (
    "Trying to backward through the graph a second time (or directly access saved tensors after they have "
    "already been freed). Saved intermediate values of the graph are freed when you call .backward() or "
    "autograd.grad(). Specify retain_graph=True if you need to backward through the graph a second time or "
    "if you need to access saved tensors after calling backward."
)


def raise_freed() -> None:
    raise RuntimeError(_FREED)


def check_version(t: torch.Tensor, version: int) -> None:
    """torch's error for a saved tensor that was written to since it had ``version``."""
    if t._version == version:
        return
    raise RuntimeError(
        "one of the variables needed for gradient computation has been modified by an inplace operation: "
        f"[{t.type()} {list(t.shape)}] is at version {t._version}; expected version {version} instead. "
        "Hint: enable anomaly detection to find the operation that failed to compute its gradient, with "
        "torch.autograd.set_detect_anomaly(True)."
    )


class Freed(torch.autograd.Function):
    """The place of a gradient graph that has been freed."""

    @staticmethod
    def forward(ctx: Any, box: list[torch.Tensor], anchor: torch.Tensor) -> torch.Tensor:
        # A tensor that autograd has not seen go in gets its grad_fn without a write.
        # A version would tell of a write.
        return box[0]

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise_freed()


_anchor = torch.zeros((), requires_grad=True)


def spent(t: torch.Tensor) -> torch.Tensor:
    """``t``, which requires no grad yet, as a result whose backward raises torch's error for freed graphs."""
    with torch.enable_grad():
        return Freed.apply([t], _anchor)
