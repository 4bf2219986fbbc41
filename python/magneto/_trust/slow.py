"""Graphs that are slower than eager: how long both take, and the program that shows it.

``python -m magneto.bisect --slow FACTOR`` sets MAGNETO_REPRO_SLOW, and the first call of each graph is timed.

Other programs must not spoil the figures.
On the CPU, time that one thread computes is taken: waiting for a core does not count.
Time on the clock, with all threads, is taken only where the threads hardly waited for a core.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from .. import _magneto
from . import beside

LEAST = 2e-5  # seconds that a call has to be slower by: less is the cost of a call
_ROUNDS = 9
_ENOUGH = 0.2  # seconds of all rounds of a way
_WAITED = 0.1  # of the time on the clock: threads that wait longer for a core spoil it
_ALONE = ", on one thread"

TAIL = """

{inputs}
{threads}fast = magneto.compile(f, fullgraph=True)
for name, g in (("compiled", fast), ("eager", f)):
    best = 1e9
    with torch.{mode}():
        for _ in range(20):
            start = time.{clock}()
            g(*inputs)
            best = min(best, time.{clock}() - start)
    print(f"{{name}}: {{best * 1e3:.4g}} ms")
"""


def factor() -> float | None:
    """How many times as long as eager a graph may take; None: nobody asks."""
    percent = os.environ.get("MAGNETO_REPRO_SLOW", "")
    return int(percent) / 100 if percent.isdigit() and int(percent) else None


def tail(text: str, inputs: str, mode: str) -> str:
    """The end of a program that shows what the text says."""
    alone = text.endswith(_ALONE)
    return TAIL.format(
        inputs=inputs,
        mode=mode,
        threads="torch.set_num_threads(1)\n" if alone else "",
        clock="thread_time" if alone else "perf_counter",
    )


def _on_gpu() -> bool:
    return torch.cuda.is_available() and torch.cuda.is_initialized()


def _waited() -> float:
    """Seconds that this process's threads were ready to run and had no core; 0 where Linux does not tell."""
    total = 0
    for file in pathlib.Path("/proc/self/task").glob("*/schedstat"):
        with contextlib.suppress(OSError, IndexError, ValueError):  # threads come and go
            total += int(file.read_text().split()[1])
    return total * 1e-9


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def best(ways: Sequence[Callable[[], Any]], clock: Callable[[], float]) -> list[float]:
    """Seconds of a call of each, the least of rounds in turn; first calls do not count."""
    for way in ways:
        way()
        way()
    best = [float("inf")] * len(ways)
    end = time.perf_counter() + _ENOUGH * len(ways)
    for round_ in range(_ROUNDS):
        for i, way in enumerate(ways):
            start = clock()
            way()
            if _on_gpu():
                torch.cuda.synchronize()
            best[i] = min(best[i], clock() - start)
        if round_ > 1 and time.perf_counter() > end:
            break
    return best


def _text(best: Sequence[float], how: str = "") -> str | None:
    compiled, eager = best
    most = factor()
    if most is None or compiled < most * eager or compiled - eager < LEAST:
        return None
    return f"it takes {compiled * 1e3:.4g} ms, eager {eager * 1e3:.4g} ms{how}"


def _on_the_clock(ways: Sequence[Callable[[], Any]]) -> list[float] | None:
    """Seconds of each with all threads; None: these waited for a core too long."""
    before, start = _waited(), time.perf_counter()
    seconds = best(ways, time.perf_counter)
    spoilt = _waited() - before > _WAITED * (time.perf_counter() - start)
    return None if spoilt and not _on_gpu() else seconds


def times(ways: Sequence[Callable[[], Any]]) -> tuple[list[float], str]:
    """Seconds of a call of each, and how they were measured if not with all threads."""
    seconds = _on_the_clock(ways)
    if seconds:
        return seconds, ""
    with _one_thread():
        return best(ways, time.thread_time), _ALONE


def _judged(ways: Sequence[Callable[[], Any]]) -> str | None:
    """What to tell about a compiled way and eager's.

    None: it is not slow, or the machine is too busy to tell.
    """
    if not _on_gpu():
        with _one_thread():
            text = _text(best(ways, time.thread_time), _ALONE)
        if text:
            return text
    seconds = _on_the_clock(ways)
    return _text(seconds) if seconds else None


def found(ways: Any, inputs: list[Any], diff: list[int]) -> str | None:
    """What to tell about a graph that is compiled; None: it is not slow."""
    if factor() is None:
        return None

    def go(way: Any) -> Callable[[], Any]:
        return lambda: beside.run(way, inputs, diff, ways.writes)

    try:
        return _judged([go(ways.compiled), go(ways.eager)])
    except Exception:
        return None  # the program's own error


def trial(case: Any, limit: int = -1) -> beside.Found | None:
    """Compiles a case and times it beside eager."""
    p, inputs, diff = case
    _magneto.set_passes(limit)
    try:
        f = p.function()
        fast = _magneto.Callable(f, isolated=True)
        own, other = beside.copies(inputs, diff, True), beside.copies(inputs, diff, True)
        text = _judged([lambda: fast(*own), lambda: f(*other)])
    except Exception:
        return None  # the case is no program
    finally:
        _magneto.set_passes(-1)
    return beside.Found(text, []) if text else None
