"""Branches and loops that a graph contains as a whole: what runs when the graph does, and their gradients.

The parts are ``_magneto.Part`` objects.  Their ``run`` takes a list of tensors.
It runs the ops of a branch, or of a loop body, one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch

from magneto import _magneto

_library = torch.library.Library("magneto", "FRAGMENT")  # kept: it takes its operators along when it dies
_PARTS = {  # what a node is given besides the tensors xs that its parts read
    "cond": "Scalar yes, Scalar no",  # xs[0]: the predicate
    "while_loop": "int ncarry, Scalar test, Scalar body",
    "scan": "int ncarry, int nrow, Scalar body",
}
for _name, _parts in _PARTS.items():
    _library.define(f"{_name}(Tensor[] xs, {_parts}) -> Tensor[]")
    _library.define(f"{_name}_backward(Tensor[] xs, Tensor[] grads, int[] need, {_parts}) -> Tensor[]")

OPERATORS = {
    name: getattr(torch.ops.magneto, name).default for op in _PARTS for name in (op, f"{op}_backward")
}


def _apart(xs: list[torch.Tensor]) -> list[torch.Tensor]:
    """What a part is given.

    Parts switch autograd on and off as they were recorded.
    Without autograd around them there is nothing to track.
    """
    return xs if torch.is_grad_enabled() else [x.detach() for x in xs]


def _run(part: Any) -> Callable[[list[torch.Tensor]], list[torch.Tensor]]:
    """What runs a part: compiled, unless nodes of ours in it look at values."""
    if part.fast is None:
        part.fast = _compiled(part.run) if part.plain else part.run
    return part.fast


def _compiled(
    run: Callable[[list[torch.Tensor]], list[torch.Tensor]],
) -> Callable[[list[torch.Tensor]], list[torch.Tensor]]:
    import magneto

    @magneto.allow_in_graph
    def ops(*xs: torch.Tensor) -> list[torch.Tensor]:
        return run(list(xs))

    def turn(*xs: torch.Tensor) -> list[torch.Tensor]:
        return ops(*xs)

    variants: dict[tuple[bool, ...], Any] = {}  # apart, because none of them is a recompile of the program's

    def fast(xs: list[torch.Tensor]) -> list[torch.Tensor]:
        key = (torch.is_grad_enabled(), *[x.requires_grad for x in xs])
        if key not in variants:  # entries belong to code objects
            variants[key] = magneto.compile(
                FunctionType(turn.__code__.replace(), turn.__globals__, "turn", None, turn.__closure__)
            )
        return variants[key](*xs)

    return fast


def cond(xs: list[torch.Tensor], yes: Any, no: Any) -> list[torch.Tensor]:
    """Runs one of two parts."""
    return _run(yes if bool(xs[0]) else no)(_apart(xs))


def while_loop(xs: list[torch.Tensor], ncarry: int, test: Any, body: Any) -> list[torch.Tensor]:
    """Runs body on the first ncarry tensors while test says so; the others stay."""
    xs, again, turn = _apart(xs), _run(test), _run(body)
    carry, rest = [x.clone() for x in xs[:ncarry]], xs[ncarry:]
    while bool(again(carry + rest)[0]):
        carry = turn(carry + rest)
    return carry


def scan(xs: list[torch.Tensor], ncarry: int, nrow: int, body: Any) -> list[torch.Tensor]:
    """Runs body on what is carried, a row of each of the next nrow tensors, and the others.

    Returns the final carry, then what the turns gave, stacked.
    """
    xs, turn = _apart(xs), _run(body)
    carry, rows, rest = xs[:ncarry], [x.unbind() for x in xs[ncarry : ncarry + nrow]], xs[ncarry + nrow :]
    given: list[list[torch.Tensor]] = []
    for row in zip(*rows, strict=True):
        out = turn(carry + list(row) + rest)
        carry = out[:ncarry]
        given.append(out[ncarry:])
    return carry + [torch.stack(column).contiguous() for column in zip(*given, strict=True)]


def _like(g: torch.Tensor | None, x: torch.Tensor) -> torch.Tensor:
    """A gradient of x in the layout that was recorded for it.

    That is x's layout, or a contiguous one where elements of x share memory.
    """
    span = 1 + sum((n - 1) * s for n, s in zip(x.size(), x.stride(), strict=True) if n > 1)
    dense = not x.numel() or span == x.numel()
    out = (
        torch.empty_strided(x.size(), x.stride(), dtype=x.dtype, device=x.device)
        if dense
        else torch.empty(x.size(), dtype=x.dtype, device=x.device)
    )
    return out.zero_() if g is None else out.copy_(g)


def _backward(op: Callable[..., list[torch.Tensor]]) -> Callable[..., list[torch.Tensor]]:
    """Gradients of xs[i] for i in need: op runs again, under autograd."""

    def backward(
        xs: list[torch.Tensor], grads: list[torch.Tensor], need: list[int], *parts: Any
    ) -> list[torch.Tensor]:
        with torch.enable_grad():
            leaves = [x.detach().requires_grad_(i in need) for i, x in enumerate(xs)]
            pairs = [(o, g) for o, g in zip(op(leaves, *parts), grads, strict=True) if o.requires_grad]
            found: Any = [None] * len(need)
            if pairs:
                found = torch.autograd.grad(
                    [o for o, _ in pairs], [leaves[i] for i in need], [g for _, g in pairs], allow_unused=True
                )
        return [_like(g, xs[i]) for i, g in zip(need, found, strict=True)]

    return backward


cond_backward = _backward(cond)
while_loop_backward = _backward(while_loop)
scan_backward = _backward(scan)


class Node(torch.autograd.Function):
    """Ties the stand-ins of a recorded branch or loop to those of its gradients."""

    @staticmethod
    def forward(
        ctx: Any, op: str, head: tuple[Any, ...], part: Any, *xs: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        ctx.call = op, head
        ctx.save_for_backward(*xs)
        return tuple(_magneto.emit(op, (list(xs), *head), part))

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[Any, ...]:
        op, head = ctx.call
        xs = list(ctx.saved_tensors)
        need = [i for i, wanted in enumerate(ctx.needs_input_grad[3:]) if wanted]
        made = _magneto.emit_gradients(f"{op}_backward", (xs, list(grads), need, *head), xs, need)
        out: list[Any] = [None] * (3 + len(xs))
        for i, g in zip(need, made, strict=True):
            out[3 + i] = g
        return tuple(out)


def widen_shown(
    parts: list[tuple[torch.fx.GraphModule, list[torch.fx.Node]]], nturn: int, test: bool
) -> tuple[list[torch.fx.Node], list[torch.fx.GraphModule]]:
    """The nodes that any of the parts reads, and the parts with placeholders for all of these.

    Arguments:
        parts: their graphs, and what their placeholders after the first nturn stand for outside.
        nturn: how many placeholders a part has for what differs from turn to turn.
        test: whether the first part is a loop's test, which gives one tensor.
    """
    inputs = [[node for node in gm.graph.nodes if node.op == "placeholder"] for gm, _ in parts]
    union = {
        outer: node
        for (_, reads), old in zip(parts, inputs, strict=True)
        for outer, node in zip(reads, old[nturn:], strict=True)
    }
    wide = []
    for k, ((gm, reads), old) in enumerate(zip(parts, inputs, strict=True)):
        graph = torch.fx.Graph()
        own = dict(zip(reads, old[nturn:], strict=True))
        order = [*old[:nturn], *[own.get(outer, node) for outer, node in union.items()]]
        out: Any = graph.graph_copy(gm.graph, {node: graph.node_copy(node) for node in order})
        graph.output(out[0] if test and not k else out)
        wide.append(torch.fx.GraphModule(gm, graph))
    return list(union), wide


def widen(gm: torch.fx.GraphModule, pick: list[int], n: int, alone: bool) -> torch.fx.GraphModule:
    """The same graph with n inputs; those that it has are number pick[i].

    alone: its one result as it is, not in a tuple.
    """
    graph = torch.fx.Graph()
    inputs = [graph.placeholder(f"arg{i}") for i in range(n)]
    old = [node for node in gm.graph.nodes if node.op == "placeholder"]
    out: Any = graph.graph_copy(gm.graph, {node: inputs[i] for node, i in zip(old, pick, strict=True)})
    graph.output(out[0] if alone else out)
    return torch.fx.GraphModule(gm, graph)
