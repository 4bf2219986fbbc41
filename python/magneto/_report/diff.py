"""What differs between two reports, as text."""

from __future__ import annotations

import json
import os
import re
from typing import Any

from . import numbers

_FACTS = re.compile(r'<script type="application/json" id="facts">(.*?)</script>', re.S)
_NOISE = 0.05  # of a time: less is no difference
_MOST = 20  # kernels in the list


def load(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The facts of a report."""
    with open(path, encoding="utf-8") as f:
        m = _FACTS.search(f.read())
    if not m:
        raise ValueError(f"{path} is no report of magneto")
    facts: dict[str, Any] = json.loads(m[1])
    return facts


def _kernels(facts: dict[str, Any]) -> dict[str, tuple[float, int]]:
    """By label: milliseconds of a run of its graph, and how many there are."""
    out: dict[str, tuple[float, int]] = {}
    for p in facts["plans"]:
        for s in p["steps"]:
            ms, n = out.get(s["label"], (0.0, 0))
            out[s["label"]] = (ms + s["run_ms"], n + 1)
    return out


def _row(name: str, a: str, b: str, note: str = "") -> str:
    return f"{name:<34} {a:>14} {b:>14}  {note}".rstrip()


def _change(a: float, b: float) -> str:
    return f"{b / a:.2f}x" if a and b and abs(b / a - 1) > _NOISE else ""


def text(first: str | os.PathLike[str], second: str | os.PathLike[str]) -> str:
    """The table that ``--diff`` prints."""
    a, b = load(first), load(second)
    out = [_row("", os.path.basename(first), os.path.basename(second))]
    va, vb = a["verdict"], b["verdict"]
    for key in ("calls_ms", "record_ms", "compile_ms", "plans_ms", "backward_ms", "outside_ms"):
        x, y = va[key], vb[key]
        out.append(
            _row(key.removesuffix("_ms"), numbers.milliseconds(x), numbers.milliseconds(y), _change(x, y))
        )
    for key in ("calls", "graphs", "kernels", "breaks", "recompiles", "fallbacks"):
        out.append(_row(key, str(va[key]), str(vb[key]), "" if va[key] == vb[key] else "differs"))
    for key in ("arena", "saved", "peak_rss"):
        out.append(_row(key, numbers.size(va[key]), numbers.size(vb[key]), _change(va[key], vb[key])))
    out += _lists(
        "graph breaks", a, b, "breaks", lambda x: f"{os.path.basename(x['file'])}:{x['line']} {x['reason']}"
    )
    out += _lists(
        "recompiles", a, b, "recompiles", lambda x: f"{os.path.basename(x['file'])}:{x['line']} {x['text']}"
    )
    ka, kb = _kernels(a), _kernels(b)
    moved = sorted(ka.keys() | kb.keys(), key=lambda k: -abs(kb.get(k, (0, 0))[0] - ka.get(k, (0, 0))[0]))
    out += ["", _row("kernels by change, per run of a graph", "", "")]
    for k in moved[:_MOST]:
        x, y = ka.get(k, (0.0, 0)), kb.get(k, (0.0, 0))
        note = _change(x[0], y[0]) if x[1] and y[1] else "new" if y[1] else "gone"
        if note:
            out.append(_row(k[:34], numbers.milliseconds(x[0]), numbers.milliseconds(y[0]), note))
    for name in sorted({s["name"] for f in (a, b) for s in f["environment"]["switches"]}):
        x, y = (
            next((s["value"] for s in f["environment"]["switches"] if s["name"] == name), "") for f in (a, b)
        )
        if x != y and name != "MAGNETO_REPORT":
            out.append(_row(name, x or "not set", y or "not set", "differs"))
    return "\n".join(out)


def _lists(title: str, a: dict[str, Any], b: dict[str, Any], key: str, name: Any) -> list[str]:
    x, y = {name(v) for v in a[key]}, {name(v) for v in b[key]}
    if x == y:
        return []
    return (
        ["", f"{title}:"] + [f"  gone: {v}" for v in sorted(x - y)] + [f"  new:  {v}" for v in sorted(y - x)]
    )
