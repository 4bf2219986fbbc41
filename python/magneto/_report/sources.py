"""The program's text, each line with what became of it and its milliseconds."""

from __future__ import annotations

import linecache
import os
import types
from typing import Any

import torch

_TORCH = os.path.dirname(torch.__file__)
_AROUND = 3  # lines shown before and after one that has something to tell
# What became of a line; where a line is of several kinds, the last one here counts.
STATES = ("recorded", "eager", "compiled", "break")


def lines_between(code: types.CodeType, start: int, end: int, returns: bool) -> list[int]:
    """The lines of a segment: from one code unit to another, or to the end."""
    out = set()
    for a, b, line in code.co_lines():
        if line and b > 2 * start and (returns or a < 2 * end):
            out.add(line)
    return sorted(out)


def is_torch(file: str) -> bool:
    return file.startswith(_TORCH)


class _File:
    def __init__(self, path: str) -> None:
        self.path = path
        self.state: dict[int, str] = {}
        self.ms: dict[int, float] = {}
        self.kernels: dict[int, list[str]] = {}
        self.to: dict[int, str] = {}

    def mark(self, line: int, state: str) -> None:
        if STATES.index(state) >= STATES.index(self.state.get(line, "recorded")):
            self.state[line] = state


def files(
    plans: list[dict[str, Any]],
    entries: list[dict[str, Any]],
    places: list[dict[str, Any]],
    breaks: list[dict[str, Any]],
) -> list[dict[str, Any]]:
    """The files with something to tell, the program's own first."""
    of: dict[str, _File] = {}

    def file(path: str) -> _File:
        return of.setdefault(path, _File(path))

    for e in entries:
        for line in e["lines"]:
            file(e["file"]).mark(line, "recorded")
    for p in places:
        if p["kind"] == "eager":
            for line in p["lines"]:
                if line >= p["line"] and line not in file(p["file"]).state:
                    file(p["file"]).mark(line, "eager")
            _add(file(p["file"]).ms, p["line"], p["ms"])
    for plan in plans:
        for n in plan["recorded"] + plan["graph"]:
            if n["file"] and n["line"]:
                file(n["file"]).mark(n["line"], "compiled")
        for s in plan["steps"]:
            for path, line in s["places"]:
                _add(file(path).ms, line, s["total_ms"] / len(s["places"]))
                file(path).kernels.setdefault(line, []).append(s["id"])
    for b in breaks:
        if b["file"]:
            file(b["file"]).mark(b["line"], "break")
            _add(file(b["file"]).ms, b["line"], b["total_ms"])
            file(b["file"]).to[b["line"]] = b["id"]
    shown = [_shown(f) for f in of.values() if f.state]
    return sorted(
        (f for f in shown if f["lines"]), key=lambda f: (f["torch"], -sum(x["ms"] for x in f["lines"]))
    )


def _add(to: dict[int, float], line: int, ms: float) -> None:
    to[line] = to.get(line, 0.0) + ms


def _shown(f: _File) -> dict[str, Any]:
    text = linecache.getlines(f.path)
    near = {n for line in f.state for n in range(line - _AROUND, line + _AROUND + 1)}
    lines = [
        {
            "n": n,
            "text": text[n - 1].rstrip("\n"),
            "state": f.state.get(n, ""),
            "ms": f.ms.get(n, 0.0),
            "kernels": f.kernels.get(n, []),
            "to": f.to.get(n, ""),
        }
        for n in sorted(near)
        if 0 < n <= len(text)
    ]
    return {"path": f.path, "name": os.path.basename(f.path), "torch": is_torch(f.path), "lines": lines}
