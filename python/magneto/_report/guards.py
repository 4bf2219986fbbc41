"""Guards one by one, and what the program and the compiler decided about sizes."""

from __future__ import annotations

import re
from typing import Any

Facts = dict[str, Any]

_AT = re.compile(r"<([\w.]+) at 0x([0-9a-f]+)>")
_SYMBOL = re.compile(r"^(s\d+) = (-?\d+) in \[(-?\d+), (-?\d+)\]$")
_MOST = 1 << 40  # ends of ranges beyond this are none


def rows(measured: list[tuple[Any, ...]], names: dict[int, str]) -> list[Facts]:
    """The guards of an entry, those that failed and cost most first."""

    def named(m: re.Match[str]) -> str:
        name = names.get(int(m[2], 16))
        return f"<{m[1]} {name}>" if name else m[0]

    out = [
        {
            "text": " ".join(_AT.sub(named, text).split()),
            "ns": ns,
            "failed": failed,
            "file": path or "",
            "line": line,
        }
        for text, ns, failed, path, line in measured
    ]
    return sorted(out, key=lambda g: (-g["failed"], -(g["ns"] or 0.0)))


def _range(low: int, high: int) -> str:
    if low <= -_MOST:
        return "any number" if high >= _MOST else f"up to {high}"
    return f"{low} or more" if high >= _MOST else f"{low} to {high}"


def _decides(guard: Facts, source: str) -> bool:
    """Is the guard about the number that the source gives?"""
    text = guard["text"]
    if "computes to <class " in text:  # any number
        return False
    return source in text and (" computes to " in text or text.startswith(f"{source} == "))


def _fixes(guard: Facts, source: str) -> bool:
    """Does it leave one value?"""
    text = guard["text"]
    one = re.match(rf"^\(?{re.escape(source)} == -?\d+\)? computes to True$", text)
    return text.startswith(f"{source} == ") or text.startswith(f"{source} computes to ") or bool(one)


def sizes(entry: Facts, plans: list[Facts]) -> list[Facts]:
    """A row for each symbol of an entry: source, recorded value, range, and who decided what about it."""
    values: dict[str, tuple[int, str]] = {}
    assumed: list[str] = []
    for p in plans:
        for line in p["symbols"]:
            if m := _SYMBOL.match(line):
                values.setdefault(m[1], (int(m[2]), _range(int(m[3]), int(m[4]))))
        assumed += [a for a in p["facts"] if a not in assumed]
    out = []
    for i, source in enumerate(entry["symbols"]):
        name = f"s{i}"
        decided = [g for g in entry["guards"] if source and _decides(g, source)]
        value, span = values.get(name, (None, ""))
        out.append(
            {
                "name": name,
                "source": source or "depends on data",
                "value": value,
                "range": span,
                "fixed": any(_fixes(g, source) for g in decided),
                "decided": [{k: g[k] for k in ("text", "file", "line")} for g in decided],
                "assumed": [a for a in assumed if re.search(rf"\b{name}\b", a)],
            }
        )
    return out
