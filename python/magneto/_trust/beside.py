"""Runs a compiled graph beside eager, on inputs that the program does not see.

C calls ``check`` before a run that is to be verified (entry/verify), and the run itself comes after it.
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from . import judge, program
from .program import Program

# Set while a difference is looked for in smaller graphs: what is found goes there, and nobody is told.
collected: contextvars.ContextVar[list[Found] | None] = contextvars.ContextVar("collected", default=None)


class NotComparable(Exception):
    """Inputs that cannot be copied as the graph needs them."""


@dataclasses.dataclass
class Found:
    """A difference, or None: there is none.  steps: names of kernels and calls of the plan."""

    text: str | None
    steps: list[str]


def copies(inputs: Sequence[Any], diff: Sequence[int], writes: bool) -> list[Any]:
    """Inputs of a run that the program does not see.

    Where the graph writes, memory is copied, once for all tensors over it.
    diff: those that become leaves that require grad, or results of such leaves.
    """
    memory: dict[int, Any] = {}
    out = [_copy(x, memory, writes) if isinstance(x, torch.Tensor) else x for x in inputs]
    for i in diff:
        out[i].requires_grad_()
    return out


def _copy(x: torch.Tensor, memory: dict[int, Any], writes: bool) -> torch.Tensor:
    if type(x) not in (torch.Tensor, torch.nn.Parameter) or x.layout != torch.strided:
        raise NotComparable(f"an input of type {type(x).__name__}, layout {x.layout}")
    if not writes:
        return x.detach()
    if x.is_conj() or x.is_neg():
        raise NotComparable("a lazy conjugate that may be written")
    storage = x.untyped_storage()
    if storage.data_ptr() not in memory:
        memory[storage.data_ptr()] = storage.clone()
    with torch.no_grad():
        return torch.empty(0, dtype=x.dtype, device=x.device).set_(
            memory[storage.data_ptr()], x.storage_offset(), x.shape, x.stride()
        )


def generators_of(p: Program) -> list[torch.Generator]:
    """Those that a run may draw from."""
    found = [torch.default_generator]
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        found += torch.cuda.default_generators
    for call in p.calls:
        program.mapped(
            (call.args, call.kwargs), lambda x: found.append(x) if isinstance(x, torch.Generator) else None
        )
    return found


@contextlib.contextmanager
def kept(generators: Sequence[torch.Generator]) -> Iterator[None]:
    """Random numbers that are drawn inside are drawn again after it."""
    states = [g.get_state() for g in generators]
    try:
        yield
    finally:
        for g, state in zip(generators, states, strict=True):
            g.set_state(state)


def _saved_tensors_are_watched() -> bool:
    return torch._C._autograd._top_saved_tensors_default_hooks(True) is not None


def _tangents(outs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(11)
    return [
        torch.empty_like(t, requires_grad=False).copy_(
            torch.randn(t.shape, generator=generator, dtype=torch.float32)
        )
        for t in outs
    ]


def run(
    way: Callable[[list[Any]], list[Any]],
    inputs: Sequence[Any],
    diff: Sequence[int],
    writes: bool,
    gradients: bool = True,
    change: Callable[[Any], Any] = lambda x: x,
) -> judge.Seen:
    """What one way of running gives: results, what was written to the inputs, gradients.

    change: applied to the inputs first.
    """
    own = copies(inputs, [], writes)
    own = [change(x) for x in own]
    for i in diff:
        own[i].requires_grad_()
    fed = list(own)
    if writes:  # what is written in place must not be a leaf
        for i in diff:
            if inputs[i].grad_fn is not None:
                fed[i] = own[i].view_as(own[i]) if not own[i].requires_grad else own[i].clone()
                if fed[i].stride() != own[i].stride():
                    raise NotComparable("an input with gaps that may be written")
    outs = way(fed)
    seen = judge.Seen(
        [f"result {i}" for i in range(len(outs))],
        [None if t is None else judge.physical(t).clone() for t in outs],
    )
    if writes:
        for i, x in enumerate(fed):
            if isinstance(x, torch.Tensor):
                seen.names.append(f"input {i} afterwards")
                seen.tensors.append(x.detach().clone())
    if gradients and diff:
        _add_gradients(seen, [t for t in outs if t is not None and t.requires_grad], own, diff)
    return seen


def _add_gradients(
    seen: judge.Seen, outs: list[torch.Tensor], own: Sequence[Any], diff: Sequence[int]
) -> None:
    if not outs:
        return
    grads = torch.autograd.grad(outs, [own[i] for i in diff], _tangents(outs), allow_unused=True)
    seen.names += [f"the gradient of input {i}" for i in diff]
    seen.tensors += [None if g is None else judge.physical(g) for g in grads]


def difference(
    compiled: Callable[[list[Any]], list[Any]],
    eager: Callable[[list[Any]], list[Any]],
    p: Program,
    inputs: Sequence[Any],
    diff: Sequence[int],
    writes: bool,
) -> str | None:
    """What the compiled way does otherwise; None: nothing, or that cannot be told."""
    generators = generators_of(p)
    gradients = not _saved_tensors_are_watched()
    go = functools.partial(run, inputs=inputs, diff=diff, writes=writes, gradients=gradients)
    with kept(generators):
        try:
            want = go(eager)
        except NotComparable:
            return None
        except Exception:
            return None  # the program's own error: its run raises it, too
        after = [g.get_state() for g in generators]
    with kept(generators):
        try:
            got = go(compiled)
        except Exception as error:
            return f"it raises {type(error).__name__}: {error}"
        drew = [g.get_state() for g in generators]
    if not all(map(torch.equal, after, drew)):
        return "it draws other random numbers"

    def noisy() -> list[judge.Seen]:
        return [s for s in (attempt(noise) for noise in _noises()) if s is not None]

    def attempt(noise: judge.Noise) -> judge.Seen | None:
        with contextlib.suppress(Exception), kept(generators), noise:
            return go(eager)
        return None

    def exact() -> judge.Seen | None:
        if p.draws:
            return None  # in float64 it would draw other numbers
        with contextlib.suppress(Exception), kept(generators):
            return go(lambda xs: p.results(xs, judge.wide), change=judge.wide)
        return None

    return judge.first_difference(got, want, noisy, exact)


def _noises() -> Iterator[judge.Noise]:
    for seed in range(judge.NOISY_RUNS):
        yield judge.Noise(seed, flush=seed == 0)


def check(ways: Any, inputs: list[Any]) -> str | bool | None:
    """Called by C.  What to tell the user about a difference; None: there is none; False: it is collected."""
    p = program.of_calls(ways.calls(program.Value))
    diff = ways.diff if torch.is_grad_enabled() else []
    collecting = collected.get()
    if collecting is not None:
        collecting.append(
            Found(difference(ways.compiled, ways.eager, p, inputs, diff, ways.writes), ways.steps)
        )
        return False
    from .._report import each_graph
    from . import repro, slow  # which need this module

    if each_graph.wanted():
        each_graph.note(ways, p, inputs, diff)
    repro.announce(p, inputs, diff)
    text = difference(ways.compiled, ways.eager, p, inputs, diff, ways.writes)
    repro.withdraw()
    if text is None:
        repro.tell_slow(slow.found(ways, inputs, diff), p, inputs, diff)
    return None if text is None else repro.tell(text, p, inputs, diff)
