"""Back ends that trace the graph they get (AOTAutograd, Inductor), told which sizes are symbols.

They find the fake tensors of the examples, with sizes of a ShapeEnv, where Dynamo leaves them.
What they then take for granted about the sizes is in that ShapeEnv.
What they made is only called for sizes for which it holds.
"""

from __future__ import annotations

import contextvars
import signal
import types
from collections.abc import Callable, Sequence
from typing import Any

import torch

from .. import _magneto

Backend = Callable[..., Callable[..., Any]]
# Of each example, the dimensions that are symbols; None: it is a number that is one.
Dims = Sequence[tuple[int, ...] | None]

# Compilations for sizes that the one with symbols does not take.  After these the graph is called as it is.
_VARIANTS = 8
inside = contextvars.ContextVar("inside", default=False)  # a back end is being called with symbols


def call(fn: Backend, gm: torch.fx.GraphModule, example_inputs: list[Any], dims: Dims) -> Callable[..., Any]:
    """fn(gm, example_inputs), in that context.

    NotImplemented when what it gives may be for the sizes of the examples alone, or when it raises.
    """
    from torch._guards import TracingContext, tracing
    from torch._subclasses import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    env = ShapeEnv()
    mode = FakeTensorMode(shape_env=env)
    fakes = [_fake(mode, i, e, d) for i, (e, d) in enumerate(zip(example_inputs, dims, strict=True))]
    traced, find = [], mode.from_tensor

    def noted(*args: Any, **kwargs: Any) -> Any:
        traced.append(True)
        return find(*args, **kwargs)

    mode.from_tensor = noted  # type: ignore[method-assign]  # tells whether the back end looks at tensors
    examples = [f if d is None else e for e, f, d in zip(example_inputs, fakes, dims, strict=True)]
    token = inside.set(True)
    try:
        with tracing(TracingContext(mode)):
            compiled = call_backend(fn, gm, examples)
    except Exception as e:
        if from_signal(e):
            raise
        return NotImplemented
    finally:
        inside.reset(token)
        del mode.from_tensor
    if not traced and not _only_calls(compiled, gm):
        return NotImplemented
    if (
        not (env.guards or env.replacements or env.deferred_runtime_asserts)
        or not callable(compiled)
        or _is_graph(compiled, gm)
    ):
        return compiled
    return _checked(
        fn,
        gm,
        compiled,
        env,
        [(i, f) for i, (f, d) in enumerate(zip(fakes, dims, strict=True)) if d is None or d],
    )


def call_backend(
    fn: Backend, gm: torch.fx.GraphModule, example_inputs: list[Any], **kwargs: Any
) -> Callable[..., Any]:
    """fn(gm, example_inputs), where handlers of signals wait: not in there, it may take minutes."""
    return _magneto.call_holding(False, fn, (gm, example_inputs), kwargs)


def from_signal(e: Exception) -> bool:
    """Was it raised by a handler of signals, which has nothing to do with what it interrupted?"""
    handlers = [signal.getsignal(s) for s in signal.valid_signals()]
    codes = {getattr(getattr(h, "__func__", h), "__code__", None) for h in handlers} - {None}
    tb = e.__traceback__
    while tb and tb.tb_frame.f_code not in codes:
        tb = tb.tb_next
    return tb is not None


def _is_graph(compiled: Any, gm: torch.fx.GraphModule) -> bool:
    return getattr(compiled, "__self__", compiled) is gm


def _filled(cell: types.CellType) -> list[Any]:
    try:
        return [cell.cell_contents]
    except ValueError:  # nothing has been assigned yet
        return []


def _only_calls(compiled: Any, gm: torch.fx.GraphModule) -> bool:
    """Is it the graph, or a function around it that knows nothing of sizes?"""
    if _is_graph(compiled, gm):
        return True
    if not isinstance(compiled, types.FunctionType):
        return False
    known = [v for c in compiled.__closure__ or () for v in _filled(c)] + [
        *(compiled.__defaults__ or ()),
        *(compiled.__kwdefaults__ or {}).values(),
    ]
    return any(_is_graph(x, gm) for x in known) and not any(
        isinstance(x, (int, tuple, torch.Tensor, torch.SymInt)) for x in known
    )


def _fake(mode: Any, i: int, example: Any, dims: tuple[int, ...] | None) -> Any:
    """What stands for an example; the mode finds it again by the example's identity while this lives."""
    from torch._dynamo.source import ConstantSource
    from torch.fx.experimental.symbolic_shapes import DimDynamic, StatelessSymbolicContext

    source = ConstantSource(f"arg{i}")
    if dims is None:
        symbol = mode.shape_env.create_unspecified_symbol(example, source, DimDynamic.DYNAMIC)
        return mode.shape_env.create_symintnode(symbol, hint=example, source=source)
    if not isinstance(example, torch.Tensor):
        return example
    if not dims:
        return mode.from_tensor(example, static_shapes=True)
    how = [DimDynamic.DYNAMIC if d in dims else DimDynamic.STATIC for d in range(example.dim())]
    return mode.from_tensor(example, symbolic_context=StatelessSymbolicContext(how), source=source)


def _checked(
    fn: Backend,
    gm: torch.fx.GraphModule,
    compiled: Callable[..., Any],
    env: Any,
    symbolic: Sequence[tuple[int, Any]],
) -> Callable[..., Any]:
    """compiled, for sizes that it was made for; for others what fn makes of them."""
    from torch.fx.experimental.symbolic_shapes import SYMPY_INTERP

    text = (
        env.produce_guards_expression([f for _, f in symbolic], ignore_static=False) or "True"
    )  # also sizes that it made constants
    holds = eval(f"lambda L: {text}", dict(SYMPY_INTERP))
    where = [(f"t{k}", i) for k, (i, _) in enumerate(symbolic)]
    others: dict[Any, Callable[..., Any]] = {}

    def run(*args: Any) -> Any:
        if holds({name: args[i] for name, i in where}):
            return compiled(*args)
        key = tuple(tuple(args[i].size()) if isinstance(args[i], torch.Tensor) else args[i] for _, i in where)
        if key not in others:
            others[key] = fn(gm, list(args)) if len(others) < _VARIANTS else gm.forward
        return others[key](*args)

    return run
