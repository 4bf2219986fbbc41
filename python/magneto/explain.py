"""``magneto.explain(f)(*args)`` tells what becomes of a function: graphs, breaks with reasons, guards."""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import os
import types
from collections.abc import Callable
from typing import Any

import torch

from . import _interpreter, _magneto
from ._backends import exported_program
from .compiler import checked, compile_callable
from .module import original

_OPS = ("call_function", "call_method", "call_module")


@dataclasses.dataclass(frozen=True)
class BreakReason:
    """Why a graph ended before the function returned.

    Attributes:
        reason: what happened there.
        kind: name of the rule, as in MAGNETO_LOGS=graph_breaks.
        hint: what to write instead; may be empty.
        file, line, function: where it happened.

    Example:
        >>> import torch, magneto
        >>> report = magneto.explain(lambda x: (x + 1, magneto.graph_break()))(torch.ones(2))
        >>> why = report.break_reasons[0]
        >>> why.kind
        'user'
    """

    reason: str
    kind: str
    hint: str
    file: str
    line: int
    function: str

    def __str__(self) -> str:
        text = f"{self.file}:{self.line} in {self.function}: {self.reason} [{self.kind}]"
        return f"{text}\n      hint: {self.hint}" if self.hint else text


@dataclasses.dataclass(frozen=True)
class Explanation:
    """What explain() found.  Printing it shows all of this.

    Attributes:
        graph_count: graphs with operations that the call recorded.
        graph_break_count: compiled segments that ended by a break.
            A break with nothing recorded since the last one, or since the start, is not counted.
        op_count: operations in all graphs.
        break_reasons: why each graph that is no last one ended.
        guards: one text per compiled segment, in the order of compiling.
        graphs: per graph, a torch.fx.GraphModule; or a text that says why it cannot be shown.
            Of ATen operators for magneto's own back end, of torch-level calls for others.
        ops_per_graph: the operations of each graph.
        result: what the function returned.
        left: functions among these that compiled calls have left to CPython.

    Example:
        >>> import torch, magneto
        >>> magneto.explain(torch.sin)(torch.ones(2)).ops_per_graph
        [[<OpOverload(op='aten.sin', overload='default')>]]
    """

    graph_count: int
    graph_break_count: int
    op_count: int
    break_reasons: list[BreakReason]
    guards: list[str]
    graphs: list[torch.fx.GraphModule | str]
    ops_per_graph: list[list[Any]]
    result: Any
    left: list[str] = dataclasses.field(default_factory=list)

    def __str__(self) -> str:
        lines = [
            f"graphs: {self.graph_count}   graph breaks: {self.graph_break_count}   "
            f"operations: {self.op_count}",
        ]
        if self.break_reasons:
            lines.append("break reasons:")
            lines += [f"  {i}. {r}" for i, r in enumerate(self.break_reasons, 1)]
        if self.left:
            lines.append("left to CPython, since recording them again and again costs more than it brings:")
            lines += [f"  {text}" for text in self.left]
        for i, gm in enumerate(self.graphs, 1):
            lines.append(f"graph {i}: {len(self.ops_per_graph[i - 1])} operations")
            text = gm if isinstance(gm, str) else str(gm.graph).split("\n", 1)[1]
            lines += [f"  {line}" for line in text.splitlines()]
        for i, text in enumerate(self.guards, 1):
            lines.append(f"guards of segment {i}:")
            lines += [f"  {line}" for line in text.splitlines()]
        return "\n".join(lines)

    __repr__ = __str__


def _left(codes: set[types.CodeType]) -> list[str]:
    places = [(p["code"], p) for p in _magneto.left() if p["code"] in codes]
    return [
        f"{code.co_filename}:{code.co_firstlineno} in {code.co_qualname}: "
        f"{p['compiled_ms']:.3g} ms a call that records, "
        f"{p['eager_ms']:.3g} ms in CPython; tried again in {p['wait']} calls"
        for code, p in places
    ]


def _operations(graph: torch.fx.GraphModule | str) -> list[Any]:
    return [] if isinstance(graph, str) else [n.target for n in graph.graph.nodes if n.op in _OPS]


def _reason(entry: _magneto._Entry, kind: str) -> BreakReason:
    return BreakReason(
        reason=entry["reason"],
        kind=kind,
        hint=_magneto.break_hints[kind],
        file=entry["end_file"],
        line=entry["end_line"],
        function=entry["end_name"],
    )


def _report(entries: list[_magneto._Entry], result: Any) -> Explanation:
    shown = [(e, graph) for e in entries if (graph := e["graph"]) is not None]
    graphs = [graph for _, graph in shown]
    reasons = [_reason(e, kind) for e in entries if (kind := e["break"]) is not None]
    return Explanation(
        graph_count=len(graphs),
        graph_break_count=len(reasons),
        op_count=sum(e["nodes"] if isinstance(g, str) else len(_operations(g)) for e, g in shown),
        break_reasons=reasons,
        guards=[e["guards"] for e in entries],
        graphs=graphs,
        ops_per_graph=[_operations(g) for g in graphs],
        result=result,
        left=_left({e["code"] for e in entries}),
    )


def explain(f: Callable[..., Any], **options: Any) -> Callable[..., Explanation]:
    """Returns a callable that compiles ``f`` as compile() does, runs it once, and tells what was compiled.

    The function does run, with its side effects.  It is recorded anew, whatever was compiled before.
    For what compile() has returned, its own back end and options are used.

    Arguments:
        f: a function, module or other callable, compiled or not.
        options: arguments of compile(), such as ``backend="aot_eager"``.
            They replace those of a compiled ``f``.

    Returns:
        A callable that takes the arguments of ``f`` and gives an Explanation.

    Raises:
        TypeError: ``f`` is not callable, or an option has the wrong type.
        ValueError: an option has an unknown value.
        RuntimeError: with ``fullgraph=True``, a graph break, when the callable is called.

    Example:
        >>> import torch, magneto
        >>> def f(x):
        ...     y = x.sin()
        ...     magneto.graph_break()
        ...     return y + 1
        >>> report = magneto.explain(f)(torch.ones(3))
        >>> report.graph_count, report.graph_break_count, report.op_count
        (2, 1, 2)
    """
    if not callable(f):
        raise TypeError(f"magneto.explain: f must be callable, got {type(f).__name__}")
    made = getattr(type(f), "_magneto_callable", f)  # that of a compiled module
    config = made.options() if isinstance(made, _magneto.Callable) else {}
    if options:
        config = checked(**options)
    config.update(isolated=True, explained=True)

    def run(*args: Any, **kwargs: Any) -> Explanation:
        compiled = _callable(f, config)
        result = compiled(*args, **kwargs)
        entries = [e for e in _magneto.entries() if e["config"] == compiled.config_id]
        return _report(sorted(entries, key=lambda e: e["number"]), result)

    return run


def _callable(f: Callable[..., Any], config: dict[str, Any]) -> _magneto.Callable:
    """A compiled callable of what compile() compiles of ``f``."""
    while getattr(f, "_torchdynamo_wrapper_id", None) == id(f):
        f = f._torchdynamo_orig_callable  # type: ignore[attr-defined]  # what torch has wrapped
    if isinstance(f, torch.nn.Module):
        return _magneto.Callable(original(f), **config)
    return compile_callable(f.__wrapped__ if isinstance(f, _magneto.Callable) else f, config)


@dataclasses.dataclass(frozen=True)
class ExportResult:
    """What export() gives.  Unpacks as ``graph_module, guards``.

    Attributes:
        graph_module: the graph, of torch-level calls.
        example_inputs: the tensors that it takes, in the order of its placeholders.
        guards: what the graph relies on, as a text.
        result: what the function returned.

    Example:
        >>> import torch, magneto
        >>> graph, guards = magneto.export(lambda x: x + 1)(torch.ones(2))
        >>> graph(torch.zeros(2))
        (tensor([1., 1.]),)
    """

    graph_module: torch.fx.GraphModule
    example_inputs: list[torch.Tensor]
    guards: str
    result: Any
    _make: Callable[[], torch.export.ExportedProgram] = dataclasses.field(init=False, repr=False)

    def __iter__(self) -> Any:
        return iter((self.graph_module, self.guards))

    @functools.cached_property
    def program(self) -> torch.export.ExportedProgram:
        """The graph as PyTorch's ExportedProgram, which torch.export.save() writes to a file.

        Parameters and buffers have their names.  Making it takes seconds.
        """
        return self._make()


def export(f: Callable[..., Any], *, dynamic_shapes: Any = None) -> Callable[..., ExportResult]:
    """Returns a callable that runs ``f`` once on its arguments and gives its graph.

    Parameters and buffers are inputs of the graph.
    ``program`` of the result is a torch.export.ExportedProgram.

    Arguments:
        f: a function, module or other callable.
        dynamic_shapes: which sizes of the program may change, as torch.export.export() takes it.
            With it torch.export makes the program of ``f`` itself, not of magneto's graph.

    Returns:
        A callable that takes the arguments of ``f`` and gives an ExportResult.

    Raises:
        TypeError: ``f`` is not callable.
        RuntimeError: the function has no tensor operations or is not one graph, when the callable is called;
            magneto does not know this interpreter.

    Example:
        >>> import torch, magneto
        >>> exported = magneto.export(torch.nn.ReLU())(torch.ones(2))
        >>> len(exported.example_inputs)
        1
    """
    if not callable(f):
        raise TypeError(f"magneto.export: f must be callable, got {type(f).__name__}")

    if _interpreter.UNKNOWN is not None:
        raise RuntimeError(f"magneto.export: nothing is recorded on {_interpreter.UNKNOWN}")

    def run(*args: Any, **kwargs: Any) -> ExportResult:
        kept: list[tuple[torch.fx.GraphModule, list[torch.Tensor]]] = []
        inputs: list[Any] = []
        outputs: list[Any] = []

        def keep(gm: torch.fx.GraphModule, example_inputs: list[torch.Tensor]) -> Callable[..., Any]:
            kept.append((gm, example_inputs))

            def forward(*given: Any) -> Any:
                inputs[:], outputs[:] = given, gm.forward(*given)
                return tuple(outputs)

            return forward

        compiled = _callable(f, {"backend": keep, "fullgraph": True, "dynamic": 0})
        written = compiled.__wrapped__
        before = exported_program.identities(written)
        result = compiled(*args, **kwargs)
        if not kept:
            raise RuntimeError("magneto.export: the function has no tensor operations")
        entries = [e for e in _magneto.entries() if e["config"] == compiled.config_id]
        call = exported_program.Call(written, args, kwargs, kept[-1][0], inputs, outputs, result)
        exported = ExportResult(*kept[-1], entries[-1]["guards"], result)
        make = functools.partial(exported_program.make, call, before, dynamic_shapes)
        object.__setattr__(exported, "_make", make)
        return exported

    return run


def onnx(
    model: Callable[..., Any],
    args: tuple[Any, ...] = (),
    path: str | os.PathLike[str] | None = None,
    *,
    kwargs: dict[str, Any] | None = None,
    dynamic_shapes: Any = None,
    **options: Any,
) -> Any:
    """Writes ``model`` as an ONNX model: export() finds the graph, torch.onnx translates it.

    It needs the packages onnx and onnxscript.  The model runs once.

    Arguments:
        model: a function or module, compiled or not.
        args: its arguments.
        path: the file; None: none is written.
        kwargs: its keyword arguments.
        dynamic_shapes: which sizes may change, as in export().
        options: other arguments of torch.onnx.export(), such as ``opset_version``.

    Returns:
        The torch.onnx.ONNXProgram.

    Raises:
        ModuleNotFoundError: one of these packages is missing.
        RuntimeError: as export().
        What torch.onnx raises for operators that it does not know.

    Example:
        >>> import torch, magneto
        >>> magneto.onnx(torch.nn.ReLU(), (torch.ones(2),), "relu.onnx")  # doctest: +SKIP
    """
    missing = [name for name in ("onnx", "onnxscript") if importlib.util.find_spec(name) is None]
    if missing:
        raise ModuleNotFoundError(
            f"magneto.onnx needs {' and '.join(missing)}: pip install {' '.join(missing)}", name=missing[0]
        )
    if not isinstance(args, tuple):
        args = (args,)
    exported = export(model, dynamic_shapes=dynamic_shapes)(*args, **(kwargs or {}))
    options.setdefault("verbose", False)
    return torch.onnx.export(exported.program, args, path, kwargs=kwargs, dynamo=True, **options)
