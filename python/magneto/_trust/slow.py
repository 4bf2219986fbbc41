"""Graphs that are slower than eager: how long both take, and the program that shows it.

``python -m magneto.bisect --slow FACTOR`` sets MAGNETO_REPRO_SLOW, and the first call of each graph is timed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from .. import _magneto
from . import beside

LEAST = 2e-5  # seconds that a call has to be slower by: less is the cost of a call
_ROUNDS = 9
_ENOUGH = 0.2  # seconds of all rounds of a way

TAIL = """

{inputs}
fast = magneto.compile(f, fullgraph=True)
for name, g in (("compiled", fast), ("eager", f)):
    best = 1e9
    with torch.{mode}():
        for _ in range(20):
            start = time.perf_counter()
            g(*inputs)
            best = min(best, time.perf_counter() - start)
    print(f"{{name}}: {{best * 1e3:.4g}} ms")
"""


def factor() -> float | None:
    """How many times as long as eager a graph may take; None: nobody asks."""
    percent = os.environ.get("MAGNETO_REPRO_SLOW", "")
    return int(percent) / 100 if percent.isdigit() and int(percent) else None


def _best(ways: Sequence[Callable[[], Any]]) -> list[float]:
    """Seconds of a call of each, the least of rounds in turn; first calls do not count."""
    for way in ways:
        way()
        way()
    best = [float("inf")] * len(ways)
    end = time.perf_counter() + _ENOUGH * len(ways)
    for round_ in range(_ROUNDS):
        for i, way in enumerate(ways):
            start = time.perf_counter()
            way()
            if torch.cuda.is_available() and torch.cuda.is_initialized():
                torch.cuda.synchronize()
            best[i] = min(best[i], time.perf_counter() - start)
        if round_ > 1 and time.perf_counter() > end:
            break
    return best


def _text(compiled: float, eager: float) -> str | None:
    most = factor()
    if most is None or compiled < most * eager or compiled - eager < LEAST:
        return None
    return f"it takes {compiled * 1e3:.4g} ms, eager {eager * 1e3:.4g} ms"


def found(ways: Any, inputs: list[Any], diff: list[int]) -> str | None:
    """What to tell about a graph that is compiled; None: it is not slow."""
    if factor() is None:
        return None

    def go(way: Any) -> Callable[[], Any]:
        return lambda: beside.run(way, inputs, diff, ways.writes)

    try:
        return _text(*_best([go(ways.compiled), go(ways.eager)]))
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
        text = _text(*_best([lambda: fast(*own), lambda: f(*other)]))
    except Exception:
        return None  # the case is no program
    finally:
        _magneto.set_passes(-1)
    return beside.Found(text, []) if text else None
