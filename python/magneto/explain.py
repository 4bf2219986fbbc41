"""``magneto.explain(f)(*args)``: what becomes of a function: graphs, breaks with reasons and lines, guards."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable
from typing import Any

import torch

from . import _magneto
from .module import original

_OPS = ("call_function", "call_method", "call_module")


@dataclasses.dataclass(frozen=True)
class BreakReason:
    """Why a graph ended before the function returned."""

    reason: str
    kind: str  # name of the rule, as in MAGNETO_LOGS=graph_breaks
    hint: str
    file: str
    line: int
    function: str

    def __str__(self) -> str:
        text = f"{self.file}:{self.line} in {self.function}: {self.reason} [{self.kind}]"
        return f"{text}\n      hint: {self.hint}" if self.hint else text


@dataclasses.dataclass(frozen=True)
class Explanation:
    """The result of explain(): counts, reasons, guards, and the graphs themselves."""

    graph_count: int
    graph_break_count: int
    op_count: int
    break_reasons: list[BreakReason]
    guards: list[str]  # one text per compiled segment
    graphs: list[torch.fx.GraphModule]
    ops_per_graph: list[list[Any]]
    result: Any  # what the function returned
    left: list[str] = dataclasses.field(default_factory=list)  # functions among these that compiled calls have left to CPython

    def __str__(self) -> str:
        lines = [
            f"graphs: {self.graph_count}   graph breaks: {self.graph_break_count}   operations: {self.op_count}",
        ]
        if self.break_reasons:
            lines.append("break reasons:")
            lines += [f"  {i}. {r}" for i, r in enumerate(self.break_reasons, 1)]
        if self.left:
            lines.append("left to CPython, since recording them again and again costs more than it brings:")
            lines += [f"  {text}" for text in self.left]
        for i, gm in enumerate(self.graphs, 1):
            lines.append(f"graph {i}: {len(self.ops_per_graph[i - 1])} operations")
            lines += [f"  {line}" for line in str(gm.graph).splitlines()[1:]]
        for i, text in enumerate(self.guards, 1):
            lines.append(f"guards of segment {i}:")
            lines += [f"  {line}" for line in text.splitlines()]
        return "\n".join(lines)

    __repr__ = __str__


def _code(entry: dict[str, Any]) -> types.CodeType:
    return entry["code"]


def _left(codes: set[types.CodeType]) -> list[str]:
    places = [p for p in _magneto.left() if _code(p) in codes]
    return [
        f"{_code(p).co_filename}:{_code(p).co_firstlineno} in {_code(p).co_qualname}: {p['compiled_ms']:.3g} ms a call that records, "
        f"{p['eager_ms']:.3g} ms in CPython; tried again in {p['wait']} calls"
        for p in places
    ]


def explain(f: Callable[..., Any]) -> Callable[..., Explanation]:
    """Returns a callable that runs ``f`` once on its arguments and tells how it was compiled.

    The function does run, with its side effects; each graph runs as recorded.  Raises TypeError when ``f`` is not callable.
    """
    if not callable(f):
        raise TypeError(f"magneto.explain: f must be callable, got {type(f).__name__}")

    def run(*args: Any, **kwargs: Any) -> Explanation:
        graphs: list[torch.fx.GraphModule] = []

        def keep(gm: torch.fx.GraphModule, example_inputs: list[torch.Tensor]) -> Callable[..., Any]:
            graphs.append(gm)
            return gm.forward

        fn = original(f) if isinstance(f, torch.nn.Module) else getattr(f, "__wrapped__", f)
        compiled = _magneto.Callable(fn, backend=keep)
        result = compiled(*args, **kwargs)
        entries = [e for e in _magneto.entries() if e["config"] == compiled.config_id]
        entries.sort(key=lambda e: (_code(e).co_filename, _code(e).co_firstlineno, e["unit"]))
        reasons = [
            BreakReason(
                reason=e["reason"],
                kind=e["break"],
                hint=_magneto.break_hints[e["break"]],
                file=e["end_file"],
                line=e["end_line"],
                function=e["end_name"],
            )
            for e in entries
            if not e["returns"]
        ]
        ops = [[n.target for n in gm.graph.nodes if n.op in _OPS] for gm in graphs]
        return Explanation(
            graph_count=len(graphs),
            graph_break_count=len(reasons),
            op_count=sum(map(len, ops)),
            break_reasons=reasons,
            guards=[e["guards"] for e in entries],
            graphs=graphs,
            ops_per_graph=ops,
            result=result,
            left=_left({_code(e) for e in entries}),
        )

    return run


@dataclasses.dataclass(frozen=True)
class ExportResult:
    """The result of export(): one graph, the tensors it takes in order of its placeholders, and what it relies on."""

    graph_module: torch.fx.GraphModule
    example_inputs: list[torch.Tensor]
    guards: str
    result: Any  # what the function returned

    def __iter__(self) -> Any:
        return iter((self.graph_module, self.guards))


def export(f: Callable[..., Any]) -> Callable[..., ExportResult]:
    """Returns a callable that runs ``f`` once on its arguments and gives its graph, parameters and buffers as inputs.

    Raises TypeError when ``f`` is not callable and RuntimeError when it is not one graph, with the reason.
    """
    if not callable(f):
        raise TypeError(f"magneto.export: f must be callable, got {type(f).__name__}")

    def run(*args: Any, **kwargs: Any) -> ExportResult:
        kept: list[tuple[torch.fx.GraphModule, list[torch.Tensor]]] = []

        def keep(gm: torch.fx.GraphModule, example_inputs: list[torch.Tensor]) -> Callable[..., Any]:
            kept.append((gm, example_inputs))
            return gm.forward

        fn = original(f) if isinstance(f, torch.nn.Module) else getattr(f, "__wrapped__", f)
        compiled = _magneto.Callable(fn, backend=keep, fullgraph=True)
        result = compiled(*args, **kwargs)
        if not kept:
            raise RuntimeError("magneto.export: the function has no tensor operations")
        entries = [e for e in _magneto.entries() if e["config"] == compiled.config_id]
        return ExportResult(*kept[-1], entries[-1]["guards"], result)

    return run
