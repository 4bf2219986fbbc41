"""A recorded FX graph as a ``torch.export.ExportedProgram``.

In: the graph that a call gave, the tensors that it took, and arguments and result of that call.
Out: PyTorch's own program of ATen operators, made by torch.export from a module that calls the graph.
Inputs of the graph are found again by identity: arguments, parameters and buffers by name, or constants.
Where sizes are to be symbols, torch.export traces the function itself.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.utils._pytree as pytree

# What a result may have in it beside tensors.
_PLAIN = (bool, int, float, complex, str, torch.dtype, torch.device, type(None))

Read = Callable[
    ["_Root", list[Any]], Any
]  # an input of the graph, from the module and the leaves of its arguments


@dataclasses.dataclass(frozen=True)
class Call:
    """One call of a function, as its back end saw it."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    graph: torch.fx.GraphModule
    inputs: list[Any]
    outputs: list[Any]
    result: Any


class _Root(torch.nn.Module):
    """Has the state of the exported function; ``call`` is what forward does."""

    call: Callable[..., Any]

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return type(self).call(self, *args, **kwargs)


class _Function(torch.nn.Module):
    """A module that calls a function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.forward = _signed(function, function)


def _state(module: Any) -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(module, torch.nn.Module):
        yield from module.named_parameters(remove_duplicate=False)
        yield from module.named_buffers(remove_duplicate=False)


def _by_name(name: str) -> Read:
    path, _, last = name.rpartition(".")
    return lambda root, leaves: getattr(root.get_submodule(path), last)


def _argument(at: int) -> Read:
    return lambda root, leaves: leaves[at]


def _constant(value: Any) -> Read:
    return lambda root, leaves: value


def _readers(call: Call, root: _Root) -> list[Read]:
    leaves = pytree.tree_leaves((call.args, call.kwargs))
    arguments = {id(leaf): i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)}
    names = {id(t): name for name, t in _state(call.function)}
    readers: list[Read] = []
    holes = [node.name for node in call.graph.graph.nodes if node.op == "placeholder"]
    for hole, value in zip(holes, call.inputs, strict=True):
        if id(value) in arguments:
            readers.append(_argument(arguments[id(value)]))
        elif id(value) in names:
            readers.append(_by_name(names[id(value)]))
        elif isinstance(value, torch.nn.Parameter):
            root.register_parameter(hole, value)
            readers.append(_by_name(hole))
        elif isinstance(value, torch.Tensor):
            root.register_buffer(hole, value, persistent=False)
            readers.append(_by_name(hole))
        else:
            readers.append(_constant(value))
    return readers


def _results(call: Call) -> Callable[[tuple[Any, ...], list[Any]], Any]:
    """Makes the result out of the graph's outputs and the leaves of the arguments."""
    leaves, spec = pytree.tree_flatten(call.result)
    outputs = {id(t): i for i, t in enumerate(call.outputs)}
    arguments = {id(t): i for i, t in enumerate(pytree.tree_leaves((call.args, call.kwargs)))}
    parts: list[tuple[int, Any]] = []
    for leaf in leaves:
        if isinstance(leaf, torch.Tensor) and id(leaf) in outputs:
            parts.append((0, outputs[id(leaf)]))
        elif isinstance(leaf, torch.Tensor) and id(leaf) in arguments:
            parts.append((1, arguments[id(leaf)]))
        elif isinstance(leaf, torch.Tensor):
            raise RuntimeError("magneto.export: a result is no output of the graph")
        elif not isinstance(leaf, _PLAIN):
            raise RuntimeError(f"magneto.export: the result has a {type(leaf).__name__}; return tensors")
        else:
            parts.append((2, leaf))

    def make(out: tuple[Any, ...], given: list[Any]) -> Any:
        return pytree.tree_unflatten([(out, given)[kind][at] if kind < 2 else at for kind, at in parts], spec)

    return make


def make(call: Call, state: dict[str, int], dynamic_shapes: Any) -> torch.export.ExportedProgram:
    """The program.  ``state`` are the identities of parameters and buffers before the call, by name."""
    function: Any = call.function
    if dynamic_shapes is not None:
        module = function if isinstance(function, torch.nn.Module) else _Function(function)
        return torch.export.export(
            module, call.args, call.kwargs, dynamic_shapes=dynamic_shapes, strict=False
        )
    if state != identities(call.function):
        raise RuntimeError("magneto.export: the call replaces a parameter or buffer; write into it instead")
    forward = function.forward if isinstance(function, torch.nn.Module) else function
    root = type(type(function).__name__, (_Root,), {})()
    if isinstance(function, torch.nn.Module):  # the same names, without the hooks: these are in the graph
        for kind in ("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set", "training"):
            object.__setattr__(root, kind, getattr(function, kind))
        for kind in ("_parameters", "_buffers", "_non_persistent_buffers_set"):  # it may get more of them
            object.__setattr__(root, kind, getattr(root, kind).copy())
    readers, results = _readers(call, root), _results(call)

    def run(self: _Root, *args: Any, **kwargs: Any) -> Any:
        leaves = pytree.tree_leaves((args, kwargs))
        return results(call.graph.forward(*(read(self, leaves) for read in readers)), leaves)

    type(root).call = run
    root.forward = _signed(root.forward, forward)
    return torch.export.export(root, call.args, call.kwargs, strict=False)


def _signed(run: Callable[..., Any], forward: Callable[..., Any]) -> Callable[..., Any]:
    """``run`` with the signature of ``forward``, by which torch.export knows arguments."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return run(*args, **kwargs)

    call.__signature__ = inspect.signature(forward)  # type: ignore[attr-defined]
    return call


def identities(function: Any) -> dict[str, int]:
    """Which tensors a module's parameters and buffers are."""
    return {name: id(t) for name, t in _state(function)}
