"""From a graph that differs from eager to the operator, the pass, and the smallest graph that differs.

Each trial compiles a smaller program and compares it with eager, as ``verify`` does.
"""

from __future__ import annotations

import dataclasses
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch

from .. import _magneto
from . import beside
from .program import Program, Unknown

Case = tuple[Program, list[Any], list[int]]  # a program, its inputs, and which get gradients
# What is wrong with a case; None: nothing.  limit: how many of the optional passes run, -1: all.
Trial = Callable[[Case, int], "beside.Found | None"]


@dataclasses.dataclass
class Place:
    """Where a difference comes from, as far as that could be told."""

    op: str = ""
    where: str = ""
    stage: str = ""  # the pass
    kernel: str = ""
    text: str = ""
    case: Case | None = None  # the smallest one; None: no smaller graph differs


def in_process(case: Case, limit: int = -1) -> beside.Found | None:
    """Compiles a case and compares its first call."""
    return next((f for f in _compiled(case, limit)[0] if f.text), None)


def compile_fails(case: Case, limit: int = -1) -> beside.Found | None:
    """Compiles a case, which is to fail."""
    return beside.Found("it cannot be compiled", []) if _compiled(case, limit)[1] else None


def _compiled(case: Case, limit: int) -> tuple[list[beside.Found], bool]:
    """What was found in the first call, and whether the graph was left to eager."""
    p, inputs, diff = case
    found: list[beside.Found] = []
    token = beside.collected.set(found)
    before = _magneto.stats()["fallbacks"]
    _magneto.set_passes(limit)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compiled = _magneto.Callable(p.function(), isolated=True, verify=1)
            compiled(*beside.copies(inputs, diff, True))
    except Exception:
        pass  # eager raises it as well, the case is no program, or the failure is counted
    finally:
        _magneto.set_passes(-1)
        beside.collected.reset(token)
    return found, _magneto.stats()["fallbacks"] > before


def locate(p: Program, inputs: list[Any], diff: list[int], trial: Trial, seconds: float) -> Place:
    """inputs: as they were before the run."""
    end = time.monotonic() + seconds
    place = Place()
    try:
        case = _first_wrong(p, inputs, diff, trial, end)
        if case is None:
            return place
        last = case[0].calls[-1]
        place.op, place.where = last.op or "", last.where
        case = _smallest(case, trial, end)
        found = trial(case, -1)
        place.case = case
        if found:
            place.text = found.text or ""
            place.kernel = ", ".join(dict.fromkeys(found.steps))
        place.stage = _stage(case, trial)
    except (Unknown, beside.NotComparable):
        pass  # what is known so far
    return place


def _prefix(p: Program, n: int) -> Program:
    """The first n calls, with what the last one gives."""
    call = p.calls[n - 1]
    outs = tuple(at for at in call.outs if at) or tuple(dict.fromkeys(call.reads()))
    return _without_unused(Program(p.inputs, outs, p.calls[:n]))


def _first_wrong(p: Program, inputs: list[Any], diff: list[int], trial: Trial, end: float) -> Case | None:
    """The prefix that ends with the first call whose results differ, or the whole."""
    low, high = 0, len(p.calls)  # the first `low` calls are right, as far as is known
    if not trial((_prefix(p, high), inputs, diff), -1):
        whole = (_without_unused(p), inputs, diff)
        return whole if trial(whole, -1) else None
    while high - low > 1 and time.monotonic() < end:
        middle = (low + high) // 2
        if trial((_prefix(p, middle), inputs, diff), -1):
            high = middle
        else:
            low = middle
    return _prefix(p, high), inputs, diff


def _without_unused(p: Program) -> Program:
    """Without calls that nothing needs.  What writes stays."""
    needed, kept = set(p.outputs), []
    for call in reversed(p.calls):
        if call.mutates or needed & set(call.outs):
            kept.append(call)
            needed |= set(call.reads())
    return dataclasses.replace(p, calls=tuple(reversed(kept)))


def _used(case: Case) -> Case:
    """Without inputs that nothing reads."""
    p, inputs, diff = case
    read = {at for call in p.calls for at in call.reads()} | set(p.outputs)
    keep = [i for i, at in enumerate(p.inputs) if at in read]
    return (
        dataclasses.replace(p, inputs=tuple(p.inputs[i] for i in keep)),
        [inputs[i] for i in keep],
        [keep.index(i) for i in diff if i in keep],
    )


def _tail(case: Case, n: int) -> Case | None:
    """The last n calls, with what the ones before give as inputs; None: they differ in more than that."""
    p, inputs, diff = case
    head, tail = p.calls[:-n], p.calls[-n:]
    made = {at for call in tail for at in call.outs}
    read = dict.fromkeys([at for call in tail for at in call.reads()] + list(p.outputs))
    wanted = [at for at in read if at not in made]
    with torch.no_grad():
        fed = beside.copies(inputs, [], True)
        known = dataclasses.replace(p, calls=head).run(fed)
    if any(not isinstance(known.get(at), torch.Tensor) for at in wanted):
        return None
    values = [known[at].detach() for at in wanted]
    leaves = [i for i, t in enumerate(values) if diff and t.is_floating_point()]
    return dataclasses.replace(p, inputs=tuple(wanted), calls=tail), values, leaves


def _cuts(case: Case) -> Iterator[Case]:
    n = len(case[0].calls)
    sizes = sorted({min(2**k, n - 1) for k in range(n.bit_length())} | set(range(1, min(n, 9))))
    for size in sizes:
        if 0 < size < n:
            smaller = _tail(case, size)
            if smaller:
                yield smaller


def _drops(case: Case) -> Iterator[Case]:
    """A call less: the values that it gives become inputs."""
    p, inputs, diff = case
    for i in range(len(p.calls) - 2, -1, -1):
        call = p.calls[i]
        with torch.no_grad():
            known = p.run(beside.copies(inputs, [], True))
        outs = [at for at in call.outs if isinstance(known.get(at), torch.Tensor)]
        fed = [known[at].detach() for at in outs]
        leaves = [len(inputs) + k for k, t in enumerate(fed) if diff and t.is_floating_point()]
        shorter = Program((*p.inputs, *outs), p.outputs, p.calls[:i] + p.calls[i + 1 :])
        yield _without_unused(shorter), [*inputs, *fed], [*diff, *leaves]
    for i in diff:
        yield p, inputs, [d for d in diff if d != i]


def _smallest(case: Case, trial: Trial, end: float) -> Case:
    case = _used(case)
    for candidates in (_cuts, _drops):
        progress = True
        while progress and time.monotonic() < end:
            progress = False
            for candidate in candidates(case):
                candidate = _used(candidate)
                if trial(candidate, -1):
                    case, progress = candidate, candidates is _drops
                    break
                if time.monotonic() > end:
                    break
    return case


def _stage(case: Case, trial: Trial) -> str:
    """The first optional pass with which the difference appears."""
    names = _magneto.set_passes(-1)
    for limit in range(len(names) + 1):
        if trial(case, limit):
            return names[limit - 1] if limit else "functionalize"
    return ""
