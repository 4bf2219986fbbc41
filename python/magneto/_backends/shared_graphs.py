"""One compilation of a custom back end for several instances of a module.

Their graphs are the same, call for call.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

_PLAIN = (int, float, complex, bool, str, bytes, type(None), torch.device)


class Compiled:
    """What a back end made of a graph, with what the graph does and what its examples are."""

    __slots__ = ("call", "_examples", "_nodes")

    def __init__(
        self, gm: torch.fx.GraphModule, examples: Sequence[Any], sizes: Any, call: Callable[..., Any] | None
    ) -> None:
        order = {node: i for i, node in enumerate(gm.graph.nodes)}
        self.call = call
        self._nodes = [
            (n.op, _target(n), _numbered(n.args, order), _numbered(n.kwargs, order)) for n in order
        ]
        self._examples = (
            torch.is_grad_enabled(),
            torch.is_autocast_enabled("cpu"),
            [_facts(e) for e in examples],
            _overlaps(examples),
            sizes,
        )

    def like(self, other: Compiled) -> bool:
        return _same(self._examples, other._examples) and _same(self._nodes, other._nodes)


def _target(node: torch.fx.Node) -> Any:
    return node.target if node.op in ("call_function", "call_method") else None  # others only have names


class _Number:
    """A node among arguments."""

    __slots__ = ("index",)

    def __init__(self, index: int) -> None:
        self.index = index


def _numbered(args: Any, order: dict[torch.fx.Node, int]) -> Any:
    def number(node: torch.fx.Node) -> Any:
        return _Number(order[node])

    return torch.fx.node.map_arg(args, number)


def _is_plain(example: Any) -> bool:
    return type(example) in (torch.Tensor, torch.nn.Parameter) and example.layout is torch.strided


def _facts(example: Any) -> Any:
    if not isinstance(example, torch.Tensor):
        return example
    if not _is_plain(example):
        return object()  # like no other; attributes of classes of the program are not looked at
    facts = (
        type(example),
        example.dtype,
        example.device,
        example.requires_grad,
        tuple(example.shape),
        example.stride(),
    )
    return (*facts, example.is_conj(), example.is_neg())


def _overlaps(examples: Sequence[Any]) -> list[int]:
    """By example, the first one over the same memory."""
    first: dict[Any, int] = {}
    return [
        first.setdefault(e.untyped_storage()._cdata if _is_plain(e) else -i, i)
        for i, e in enumerate(examples)
    ]


def _same(a: Any, b: Any) -> bool:
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if isinstance(a, _Number):
        return a.index == b.index
    if isinstance(a, (tuple, list)):
        return len(a) == len(b) and all(map(_same, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(map(_same, a.values(), b.values()))
    if isinstance(a, slice):
        return _same((a.start, a.stop, a.step), (b.start, b.stop, b.step))
    if isinstance(a, float):
        return a == b and math.copysign(1, a) == math.copysign(1, b)
    return isinstance(a, _PLAIN) and a == b


def describe(
    gm: torch.fx.GraphModule, examples: Sequence[Any], sizes: Any, call: Callable[..., Any] | None
) -> Compiled | None:
    """The graph as something to compare with.

    sizes: which of the examples are symbols.
    None if the graph holds objects of its own: no other is the same.
    """
    if any(n.op in ("get_attr", "call_module") for n in gm.graph.nodes):
        return None
    return Compiled(gm, examples, sizes, call)


def find(
    gm: torch.fx.GraphModule, examples: Sequence[Any], sizes: Any, others: Sequence[Compiled]
) -> Compiled | None:
    """Which of the others is the same graph for such inputs?"""
    mine = describe(gm, examples, sizes, None)
    return next((c for c in others if mine is not None and mine.like(c)), None)
