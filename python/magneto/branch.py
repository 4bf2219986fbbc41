"""Branches and loops that a graph contains as a whole: what runs when the graph does, and their gradients.

The parts are ``_magneto.Part`` objects: called with a list of tensors they run the ops of a branch or of a loop body.
"""

from __future__ import annotations

from typing import Any

import torch

from magneto import _magneto

_library = torch.library.Library("magneto", "FRAGMENT")  # kept: it takes its operators along when it dies
_library.define("cond(Tensor pred, Tensor[] xs, Scalar yes, Scalar no) -> Tensor[]")
_library.define("cond_backward(Tensor pred, Tensor[] xs, Tensor[] grads, int[] need, Scalar yes, Scalar no) -> Tensor[]")
_library.define("while_loop(Tensor[] xs, int ncarry, Scalar test, Scalar body) -> Tensor[]")

OPERATORS = {name: getattr(torch.ops.magneto, name).default for name in ("cond", "cond_backward", "while_loop")}


def _apart(xs: list[torch.Tensor]) -> list[torch.Tensor]:
    """Parts switch autograd on and off as they were recorded; without autograd around them there is nothing to track."""
    return xs if torch.is_grad_enabled() else [x.detach() for x in xs]


def cond(pred: torch.Tensor, xs: list[torch.Tensor], yes: Any, no: Any) -> list[torch.Tensor]:
    """Runs one of two parts."""
    return (yes if bool(pred) else no)(_apart(xs))


def _like(g: torch.Tensor | None, x: torch.Tensor) -> torch.Tensor:
    """A gradient of x in the layout that was recorded for it: x's, or a contiguous one where elements of x share memory."""
    span = 1 + sum((n - 1) * s for n, s in zip(x.size(), x.stride()) if n > 1)
    dense = not x.numel() or span == x.numel()
    out = torch.empty_strided(x.size(), x.stride(), dtype=x.dtype, device=x.device) if dense else torch.empty(x.size(), dtype=x.dtype, device=x.device)
    return out.zero_() if g is None else out.copy_(g)


def cond_backward(
    pred: torch.Tensor, xs: list[torch.Tensor], grads: list[torch.Tensor], need: list[int], yes: Any, no: Any
) -> list[torch.Tensor]:
    """Gradients of xs[i] for i in need: the part that had been chosen runs again."""
    with torch.enable_grad():
        leaves = [x.detach().requires_grad_(i in need) for i, x in enumerate(xs)]
        outs = (yes if bool(pred) else no)(leaves)
        pairs = [(o, g) for o, g in zip(outs, grads) if o.requires_grad]
        found: Any = [None] * len(need)
        if pairs:
            found = torch.autograd.grad([o for o, _ in pairs], [leaves[i] for i in need], [g for _, g in pairs], allow_unused=True)
    return [_like(g, xs[i]) for i, g in zip(need, found)]


def while_loop(xs: list[torch.Tensor], ncarry: int, test: Any, body: Any) -> list[torch.Tensor]:
    """Runs body on the first ncarry tensors while test says so; the others stay."""
    xs = _apart(xs)
    carry, rest = [x.clone() for x in xs[:ncarry]], xs[ncarry:]
    while bool(test(carry + rest)[0]):
        carry = body(carry + rest)
    return carry


class Cond(torch.autograd.Function):
    """Ties the stand-ins of a recorded cond to those of its gradients."""

    @staticmethod
    def forward(ctx: Any, yes: Any, no: Any, pred: torch.Tensor, *xs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ctx.parts = yes, no
        ctx.save_for_backward(pred, *xs)
        return tuple(_magneto.emit_cond(pred, list(xs), yes, no))

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[Any, ...]:
        pred, *xs = ctx.saved_tensors
        need = [i for i, wanted in enumerate(ctx.needs_input_grad[3:]) if wanted]
        made = _magneto.emit_cond_backward(pred, xs, list(grads), need, *ctx.parts)
        out: list[Any] = [None] * (3 + len(xs))
        for i, g in zip(need, made):
            out[3 + i] = g
        return tuple(out)


def widen(gm: torch.fx.GraphModule, pick: list[int], n: int, alone: bool) -> torch.fx.GraphModule:
    """The same graph with n inputs; those that it has are number pick[i].  alone: its one result as it is, not in a tuple."""
    graph = torch.fx.Graph()
    inputs = [graph.placeholder(f"arg{i}") for i in range(n)]
    old = [node for node in gm.graph.nodes if node.op == "placeholder"]
    out: Any = graph.graph_copy(gm.graph, {node: inputs[i] for node, i in zip(old, pick)})
    graph.output(out[0] if alone else out)
    return torch.fx.GraphModule(gm, graph)
