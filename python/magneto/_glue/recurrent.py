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
_library.define("pack(Tensor x, Tensor lengths, bool batch_first) -> (Tensor, Tensor)")
_library.define(
    "pad(Tensor x, Tensor batch_sizes, bool batch_first, Scalar value, SymInt length) -> (Tensor, Tensor)"
)
_library.define(
    "run_packed(str kind, Tensor batch_sizes, Tensor[] xs, bool biases, int layers, bool both) -> Tensor[]"
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


def _compute_packed(
    kind: str, batch_sizes: torch.Tensor, xs: Tensors, biases: bool, layers: int, both: bool
) -> Tensors:
    n = 1 + _states(kind)
    states = list(xs[1:n]) if kind == "lstm" else xs[1]
    return list(
        getattr(torch._VF, kind)(xs[0], batch_sizes, states, xs[n:], biases, layers, 0.0, False, both)
    )


def _shapes_packed(
    kind: str, batch_sizes: torch.Tensor, xs: Tensors, biases: bool, layers: int, both: bool
) -> Tensors:
    states = xs[1 : 1 + _states(kind)]
    out = xs[0].new_empty(xs[0].shape[0], states[0].shape[-1] * (2 if both else 1))
    return [out, *[h.new_empty(h.shape) for h in states]]


def _shapes_pack(x: torch.Tensor, lengths: torch.Tensor, batch_first: bool) -> tuple[torch.Tensor, ...]:
    new_size = torch.library.get_ctx().new_dynamic_size
    return x.new_empty(new_size(), *x.shape[2:]), lengths.new_empty(new_size())


def _shapes_pad(
    x: torch.Tensor, batch_sizes: torch.Tensor, batch_first: bool, value: float, length: int
) -> tuple[torch.Tensor, ...]:
    batch = torch.library.get_ctx().new_dynamic_size()
    out = x.new_empty(length, batch, *x.shape[1:])
    return out.transpose(0, 1) if batch_first else out, batch_sizes.new_empty(batch)


_library.impl("pack", torch._VF._pack_padded_sequence, "CPU")
_library.impl("pad", torch._VF._pad_packed_sequence, "CPU")
_library.impl("run_packed", _compute_packed, "CPU")
_library.impl("run_packed", _shapes_packed, "Meta")
torch.library.register_fake("magneto_recurrent::pack", _shapes_pack, lib=_library)  # these ask for sizes
torch.library.register_fake("magneto_recurrent::pad", _shapes_pad, lib=_library)


def pack(*args: Any) -> tuple[torch.Tensor, ...]:
    """``torch._VF._pack_padded_sequence``: how many rows there are depends on data."""
    return tuple(torch.ops.magneto_recurrent.pack.default(*args))


def pad(*args: Any) -> tuple[torch.Tensor, ...]:
    """``torch._VF._pad_packed_sequence``."""
    return tuple(torch.ops.magneto_recurrent.pad.default(*args))


def call_packed(
    kind: str,
    x: torch.Tensor,
    batch_sizes: torch.Tensor,
    states: Any,
    params: Tensors,
    biases: bool,
    layers: int,
    both: bool,
) -> tuple[torch.Tensor, ...]:
    """What torch's function of that name gives for packed sequences, without dropout."""
    xs = [x, *(states if kind == "lstm" else [states]), *params]
    return tuple(torch.ops.magneto_recurrent.run_packed.default(kind, batch_sizes, xs, biases, layers, both))


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
