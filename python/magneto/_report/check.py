"""Speed and numbers of a function: compiled, eagerly, and eagerly in float64."""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from ..control import set_stance

_ROUNDS = 7
_LEAST_SECONDS = 0.02  # of one round


def run(f: Callable[..., Any], args: tuple[Any, ...]) -> dict[str, Any]:
    """Compares ``f(*args)`` with itself under the stance "force_eager".  ``f`` is compiled already."""
    compiled = f(*args)
    with set_stance("force_eager"):
        eager = f(*args)
        peak = _peak(f, args)
    try:
        exact, why = _float64(f, args), ""
    except Exception as e:  # the program's own: many cannot run in float64
        exact, why = None, f"{type(e).__name__}: {e}".splitlines()[0]
    return {
        "speed": _speed(f, args),
        "outputs": _outputs(compiled, eager, exact),
        "no_float64": why,
        "eager_peak": peak,
    }


def _peak(f: Callable[..., Any], args: tuple[Any, ...]) -> int:
    """How far the memory of tensors rises during a call."""
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        f(*args)
        return torch.cuda.max_memory_allocated() - before
    with torch.autograd.profiler.profile(profile_memory=True) as prof:
        f(*args)
    now = most = 0
    for e in sorted(prof.kineto_results.events(), key=lambda e: e.start_ns()):
        if e.name() == "[memory]":
            now += e.nbytes()
            most = max(most, now)
    return most


def _float64(f: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    def wide(x: Any) -> Any:
        if isinstance(x, torch.Tensor):
            return x.detach().double() if x.is_floating_point() else x
        if isinstance(x, (tuple, list)) and type(x) in (tuple, list):
            return type(x)(map(wide, x))
        return {k: wide(v) for k, v in x.items()} if type(x) is dict else x

    with set_stance("force_eager"):
        g = copy.deepcopy(f).double() if isinstance(f, torch.nn.Module) else f
        return g(*map(wide, args))


def _tensors(x: Any) -> list[torch.Tensor]:
    if isinstance(x, torch.Tensor):
        return [x.detach()]
    if isinstance(x, dict):
        x = list(x.values())
    return [t for item in x for t in _tensors(item)] if isinstance(x, (tuple, list)) else []


def _error(x: torch.Tensor, y: torch.Tensor) -> float | None:
    """The largest difference, in units of the largest value of y; None if the shapes differ."""
    if x.shape != y.shape:
        return None
    if not x.numel():
        return 0.0
    a, b = x.double(), y.double()
    same = (a == b) | (a.isnan() & b.isnan())
    if same.all():
        return 0.0
    scale = b[b.isfinite()].abs().max().item() if b.isfinite().any() else 1.0
    return (a - b).abs().masked_fill(same, 0).max().item() / (scale or 1.0)


def row(c: torch.Tensor, e: torch.Tensor | None, x: torch.Tensor | None) -> dict[str, Any]:
    """How far a compiled result is from eager's and from float64; None: there is none."""
    return {
        "shape": list(c.shape),
        "dtype": str(c.dtype).removeprefix("torch."),
        "eager": _error(c, e) if e is not None else None,
        "float64": _error(c, x) if x is not None else None,
        "eager_float64": _error(e, x) if x is not None and e is not None else None,
        "eps": torch.finfo(c.dtype).eps if c.is_floating_point() else 0.0,
    }


def _outputs(compiled: Any, eager: Any, exact: Any) -> list[dict[str, Any]]:
    c, e, x = _tensors(compiled), _tensors(eager), _tensors(exact)
    return [row(t, e[i] if i < len(e) else None, x[i] if i < len(x) else None) for i, t in enumerate(c)]


def _seconds(f: Callable[..., Any], args: tuple[Any, ...], n: int) -> float:
    t = time.perf_counter()
    for _ in range(n):
        f(*args)
    return (time.perf_counter() - t) / n


def _speed(f: Callable[..., Any], args: tuple[Any, ...]) -> dict[str, float]:
    """Rounds of both, one after the other, so that a busy machine slows both; the medians."""
    n = max(1, min(1000, int(_LEAST_SECONDS / max(_seconds(f, args, 1), 1e-7))))
    compiled, eager = [], []
    for _ in range(_ROUNDS):
        compiled.append(_seconds(f, args, n))
        with set_stance("force_eager"):
            eager.append(_seconds(f, args, n))
    ratios = sorted(e / c for e, c in zip(eager, compiled, strict=True))
    return {
        "compiled_ms": statistics.median(compiled) * 1e3,
        "eager_ms": statistics.median(eager) * 1e3,
        "times": statistics.median(ratios),
        "least": ratios[1],
        "most": ratios[-2],
    }
