"""Recurrent networks as one operator, for lengths that are symbols or large.

Torch's own is a loop over the steps.
``xs``: the input, the initial states, the parameters.
"""

from __future__ import annotations

from typing import Any

import torch

Tensors = list[torch.Tensor]

_library = torch.library.Library(
    "magneto_recurrent", "DEF"
)  # kept: it takes its operators along when it dies
_library.define(
    "run(str kind, Tensor[] xs, bool biases, int layers, bool both, bool batch_first) -> Tensor[]"
)
_library.define(
    "run_backward(str kind, Tensor[] grads, Tensor[] xs, bool biases, int layers, bool both, "
    "bool batch_first) -> Tensor[]"
)
_run, _run_backward = (
    torch.ops.magneto_recurrent.run.default,
    torch.ops.magneto_recurrent.run_backward.default,
)


def _states(kind: str) -> int:
    return 2 if kind == "lstm" else 1


def _compute(kind: str, xs: Tensors, biases: bool, layers: int, both: bool, batch_first: bool) -> Tensors:
    n = 1 + _states(kind)
    states = list(xs[1:n]) if kind == "lstm" else xs[1]
    return list(
        getattr(torch._VF, kind)(
            xs[0], states, xs[n:], biases, layers, 0.0, torch.is_grad_enabled(), both, batch_first
        )
    )


def _compute_backward(kind: str, grads: Tensors, xs: Tensors, *options: Any) -> Tensors:
    with torch.enable_grad():
        leaves = [x.detach().requires_grad_() for x in xs]
        results = _compute(kind, leaves, *options)
    found = torch.autograd.grad(results, leaves, grads, allow_unused=True)
    return [
        torch.zeros_like(x, memory_format=torch.contiguous_format) if g is None else g.contiguous()
        for g, x in zip(found, xs, strict=True)
    ]


def _shapes(kind: str, xs: Tensors, biases: bool, layers: int, both: bool, batch_first: bool) -> Tensors:
    x, states = xs[0], xs[1 : 1 + _states(kind)]
    features = states[0].shape[-1] * (2 if both else 1)
    steps, batch = (x.shape[1], x.shape[0]) if batch_first else (x.shape[0], x.shape[1])
    out = x.new_empty(steps, batch, features)
    return [out.transpose(0, 1) if batch_first else out, *[h.new_empty(h.shape) for h in states]]


class _Tracked(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, kind: str, options: tuple[Any, ...], *xs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ctx.call = kind, options
        ctx.save_for_backward(*xs)
        with torch._C._AutoDispatchBelowAutograd():
            return tuple(_run(kind, list(xs), *options))

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[Any, ...]:
        (kind, options), xs = ctx.call, ctx.saved_tensors
        if torch.is_grad_enabled():  # the gradient is to be differentiated as well: torch's own, step by step
            wanted = [x for x in xs if x.requires_grad]
            found = iter(
                torch.autograd.grad(
                    _compute(kind, list(xs), *options), wanted, grads, create_graph=True, allow_unused=True
                )
            )
            return (None, None, *(next(found) if x.requires_grad else None for x in xs))
        return (None, None, *_run_backward(kind, list(grads), list(xs), *options))


def _tracked(kind: str, xs: Tensors, *options: Any) -> Tensors:
    return list(_Tracked.apply(kind, options, *xs))


_library.impl("run", _tracked, "Autograd")
for _key in ("CPU", "Meta"):
    _library.impl("run", _compute if _key == "CPU" else _shapes, _key)
_library.impl("run_backward", _compute_backward, "CPU")
_library.impl("run_backward", lambda kind, grads, xs, *options: [x.new_empty(x.shape) for x in xs], "Meta")


def call(
    kind: str,
    x: torch.Tensor,
    states: Any,
    params: Tensors,
    biases: bool,
    layers: int,
    both: bool,
    batch_first: bool,
) -> tuple[torch.Tensor, ...]:
    """What torch's function of that name gives, without dropout."""
    return tuple(
        _run(kind, [x, *(states if kind == "lstm" else [states]), *params], biases, layers, both, batch_first)
    )
