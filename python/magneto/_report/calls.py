"""Who called which compiled frame: the tree of calls, with what each did itself."""

from __future__ import annotations

from typing import Any

from . import sources

Facts = dict[str, Any]


def rows(tree: list[Facts], entries: list[Facts], codes: dict[int, Any], plans: list[Facts]) -> list[Facts]:
    """The nodes in the order of a walk, callers first, of callees the most expensive first.

    Arguments:
        tree: the nodes that the C core kept.
        entries: what was compiled.
        codes: by the number of an entry, its code object.
        plans: their graphs.
    """
    of_caller: dict[int, list[Facts]] = {}
    for n in tree:
        of_caller.setdefault(n["caller"], []).append(n)
    total = sum(n["ms"] for n in of_caller.get(0, [])) or 1.0
    out: list[Facts] = []

    def walk(caller: int, depth: int) -> None:
        for n in sorted(of_caller.get(caller, []), key=lambda n: -n["ms"]):
            code, inner = n["code"], of_caller.get(n["number"], [])
            own = [e for e in entries if codes[e["number"]] is code]
            recordings = {e["recording"] for e in own if e["recording"]}
            graphs = [p for p in plans if p["recording"] in recordings and p["what"] != "backward"]
            out.append(
                {
                    "id": f"f{len(out)}",
                    "depth": depth,
                    "name": n["of"] if n["of"] and sources.is_torch(code.co_filename) else code.co_qualname,
                    "callable": n["callable"],
                    "file": code.co_filename,
                    "line": code.co_firstlineno,
                    "calls": n["n"],
                    "ms": n["ms"],
                    "own_ms": max(0.0, n["ms"] - sum(c["ms"] for c in inner)),
                    "made_ms": sum(e["record_ms"] + e["compile_ms"] for e in own),
                    "share": n["ms"] / total,
                    "graphs": [p["id"] for p in graphs if p["graph"] or p["steps"]],
                    "breaks": len([e for e in own if e["break"]]),
                }
            )
            walk(n["number"], depth + 1)

    walk(0, 0)
    return out
