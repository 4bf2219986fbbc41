"""A recorded graph as a list of calls: to be run by hand, cut into pieces, and written as Python."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch


@dataclasses.dataclass(frozen=True)
class Value:
    """A tensor among the arguments of a call: the number of its value."""

    at: int


@dataclasses.dataclass(frozen=True)
class Call:
    """One operator.  outs: a number for each tensor that it returns, lists flattened; 0: not used."""

    op: str | None  # "aten.mul.Tensor"; None: the user's autograd.Function
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    outs: tuple[int, ...]
    grad: bool  # autograd was on
    where: str  # "FILE:12", or ""

    @property
    def overload(self) -> Any:
        if self.op is None:
            raise Unknown("a call of an autograd.Function")
        found: Any = torch.ops
        for name in self.op.split("."):
            found = getattr(found, name)
        return found

    def reads(self) -> list[int]:
        return [v.at for v in values((self.args, self.kwargs))]

    @property
    def mutates(self) -> bool:
        return bool(self.overload._schema.is_mutable)


class Unknown(Exception):
    """The graph cannot be run by hand."""


def values(x: Any) -> Iterator[Value]:
    if isinstance(x, Value):
        yield x
    elif isinstance(x, (list, tuple)):
        for item in x:
            yield from values(item)
    elif isinstance(x, dict):
        yield from values(list(x.values()))


def mapped(x: Any, fn: Callable[[Any], Any]) -> Any:
    """x with fn applied to what is no list, tuple or dict in it."""
    if isinstance(x, (list, tuple)):
        return type(x)([mapped(item, fn) for item in x])
    if isinstance(x, dict):
        return {name: mapped(item, fn) for name, item in x.items()}
    return fn(x)


def tensors_of(result: Any) -> list[Any]:
    """The tensors that an operator returned, as the recording counts them."""
    if isinstance(result, (list, tuple)):
        return [t for item in result for t in tensors_of(item)]
    return [] if isinstance(result, (int, float, complex)) else [result]


@dataclasses.dataclass(frozen=True)
class Program:
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    calls: tuple[Call, ...]

    @property
    def draws(self) -> bool:
        """Does it draw random numbers?"""
        return any(torch.Tag.nondeterministic_seeded in c.overload.tags for c in self.calls)

    def run(self, inputs: Sequence[Any], change: Callable[[Any], Any] | None = None) -> dict[int, Any]:
        """Every value by its number.  change: applied to arguments that are no tensors."""
        known = dict(zip(self.inputs, inputs, strict=True))
        mode = torch.is_grad_enabled()

        def argument(x: Any) -> Any:
            if isinstance(x, Value):
                return known[x.at]
            return change(x) if change else x

        for call in self.calls:
            with torch.set_grad_enabled(mode and call.grad):
                result = call.overload(*mapped(call.args, argument), **mapped(call.kwargs, argument))
            found = tensors_of(result)
            known.update((at, t) for at, t in zip(call.outs, found, strict=False) if at)
        return known

    def results(self, inputs: Sequence[Any], change: Callable[[Any], Any] | None = None) -> list[Any]:
        known = self.run(inputs, change)
        return [known.get(at) for at in self.outputs]

    def function(self) -> Callable[..., Any]:
        """The program as a Python function of its inputs, a new one at each call."""
        space: dict[str, Any] = {"torch": torch}
        exec(compile(self.text(), "<a graph as Python>", "exec"), space)
        found: Callable[..., Any] = space["f"]
        return found

    def text(self) -> str:
        head = f"def f({', '.join(f'v{at}' for at in self.inputs)}):"
        lines, inside = [head], False
        for call in self.calls:
            if not call.grad and not inside:
                lines.append("    with torch.no_grad():")
            inside = not call.grad
            lines.append(f"    {'    ' if inside else ''}{_call_text(call)}")
        lines.append(f"    return [{', '.join(f'v{at}' for at in self.outputs if at)}]")
        return "\n".join(lines)


def of_calls(described: tuple[Any, ...]) -> Program:
    """What ``_magneto.Ways.calls`` gives."""
    inputs, outputs, calls = described
    return Program(
        inputs,
        outputs,
        tuple(
            Call(str(op) if op else None, args, kwargs, outs, grad, f"{file}:{line}" if file else "")
            for op, args, kwargs, outs, grad, file, line in calls
        ),
    )


def _literal(x: Any) -> str:
    if isinstance(x, Value):
        return f"v{x.at}"
    if isinstance(x, (list, tuple)):
        inner = ", ".join(map(_literal, x))
        return f"[{inner}]" if isinstance(x, list) else f"({inner}{',' if len(x) == 1 else ''})"
    if isinstance(x, float) and not math.isfinite(x):
        return f"float('{x}')"
    if isinstance(x, complex):
        return f"complex({_literal(x.real)}, {_literal(x.imag)})"
    if isinstance(x, torch.device):
        return f"torch.device('{x}')"
    if x is None or isinstance(x, (bool, int, float, str, torch.dtype, torch.layout, torch.memory_format)):
        return repr(x)
    raise Unknown(f"an argument of type {type(x).__name__}")


def _call_text(call: Call) -> str:
    args = [*map(_literal, call.args), *[f"{name}={_literal(x)}" for name, x in call.kwargs.items()]]
    text = f"torch.ops.{call.op}({', '.join(args)})"
    returns = call.overload._schema.returns
    names = [f"v{at}" if at else "_" for at in call.outs]
    if not names or set(names) == {"_"}:
        return text
    if len(returns) == 1 and str(returns[0].type) != "List[Tensor]":
        return f"{names[0]} = {text}"
    if any(str(r.type) != "Tensor" for r in returns) and len(returns) > 1:
        raise Unknown("a call that returns lists among other results")
    return f"{', '.join(names)}{',' if len(names) == 1 else ''} = {text}"
