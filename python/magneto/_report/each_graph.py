"""``MAGNETO_REPORT_CHECK=1``: the first call of each graph, beside eager and float64.

Both ways run on inputs that the program does not see, before its own run, as with ``options={"verify": 1}``.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
from typing import Any

import torch

Facts = dict[str, Any]

_noted: dict[int, Facts] = {}  # by the number of the recording


def wanted() -> bool:
    """Are graphs to be looked at?"""
    asked = os.environ.get("MAGNETO_REPORT_CHECK", "").lower() in ("1", "on", "true", "yes")
    return asked and bool(os.environ.get("MAGNETO_REPORT"))


def note(ways: Any, p: Any, inputs: list[Any], diff: list[int]) -> None:
    """Keeps the figures of one graph, whose ways and calls these are."""
    if ways.recording in _noted:
        return
    try:
        _noted[ways.recording] = _figures(ways, p, inputs, diff)
    except Exception:  # the program's own error: its run raises it, too
        return


def _figures(ways: Any, p: Any, inputs: list[Any], diff: list[int]) -> Facts:
    from .._trust import beside, judge, slow

    generators = beside.generators_of(p)
    go = functools.partial(beside.run, inputs=inputs, diff=diff, writes=ways.writes)
    with beside.kept(generators):
        eager = go(ways.eager)
    with beside.kept(generators):
        compiled = go(ways.compiled)
    exact = None
    with contextlib.suppress(Exception), beside.kept(generators):  # many programs cannot run in float64
        if not p.draws:  # there it would draw other numbers
            exact = go(lambda xs: p.results(xs, judge.wide), change=judge.wide)
    with beside.kept(generators):
        times, how = slow.times([lambda: go(ways.compiled), lambda: go(ways.eager)])
    return {
        "compiled_ms": times[0] * 1e3,
        "eager_ms": times[1] * 1e3,
        "backward": bool(diff),
        "alone": bool(how),
        "outputs": _outputs(compiled, eager, exact),
    }


def _outputs(compiled: Any, eager: Any, exact: Any) -> list[Facts]:
    from .check import row

    rows = []
    for i, (name, c, e) in enumerate(zip(compiled.names, compiled.tensors, eager.tensors, strict=True)):
        x = exact.tensors[i] if exact else None
        if isinstance(c, torch.Tensor) and c.layout == torch.strided:
            rows.append({"name": name, **row(c, e, x)})
    return rows


def _named(outputs: list[Facts], inputs: list[str]) -> list[Facts]:
    """With the names of parameters and arguments in place of their numbers."""

    def name(m: re.Match[str]) -> str:
        return inputs[int(m[1])] if int(m[1]) < len(inputs) else m[0]

    return [{**o, "name": re.sub(r"\binput (\d+)", name, o["name"])} for o in outputs]


def rows(plans: list[Facts], inputs: dict[int, list[str]]) -> list[Facts]:
    """What was noted of the graphs of a report, the slowest first.

    Arguments:
        plans: those of the report.
        inputs: by the number of a recording, the names of its inputs.
    """
    out: list[Facts] = []
    for p in plans:
        figures = _noted.get(p["recording"])
        if (
            figures
            and p["what"] in ("", "forward")
            and not any(r["recording"] == p["recording"] for r in out)
        ):
            out.append(
                {
                    **figures,
                    "outputs": _named(figures["outputs"], inputs.get(p["recording"], [])),
                    "recording": p["recording"],
                    "plan": p["id"],
                    "label": p["label"],
                    "runs": p["runs"],
                }
            )
    return sorted(out, key=lambda r: -r["runs"] * r["compiled_ms"])


def speed(noted: list[Facts]) -> float | None:
    """How many times as fast as eager these graphs are, by how often each ran."""
    ours = sum(r["runs"] * r["compiled_ms"] for r in noted)
    return sum(r["runs"] * r["eager_ms"] for r in noted) / ours if ours else None
