"""Where the rectangles of the charts are; the template draws them."""

from __future__ import annotations

from typing import Any

WIDTH, HEIGHT = 720.0, 200.0


def memory(plan: dict[str, Any]) -> dict[str, Any]:
    """The blocks of a plan's arena over its steps, and the most that is alive at one step."""
    blocks, steps = plan["blocks"], max(1, len(plan["steps"]))
    eager = plan["eager"]
    top = max(plan["arena"], *eager, *(b["offset"] + b["bytes"] for b in blocks), 1, 1)
    alive = [0] * steps
    rects = []
    nodes = {n["node"]: n for n in plan["graph"]}
    for b in blocks:
        last = min(b["last"], steps - 1)
        for i in range(b["first"], last + 1):
            alive[i] += b["bytes"]
        n = nodes.get(b["node"])
        rects.append(
            {
                "x": b["first"] / steps * WIDTH,
                "w": max(1.0, (last - b["first"] + 1) / steps * WIDTH),
                "y": HEIGHT - (b["offset"] + b["bytes"]) / top * HEIGHT,
                "h": max(0.5, b["bytes"] / top * HEIGHT),
                "owner": n["op"] if n else "a library's scratch",
                "node": f"{plan['id']}n{b['node']}" if n else "",
                "bytes": b["bytes"],
                "first": b["first"],
                "last": last,
            }
        )
    return {
        "rects": rects,
        "peak": max(alive, default=0),
        "eager": max(eager, default=0),
        "line": _stairs(eager, top),
        "width": WIDTH,
        "height": HEIGHT,
    }


def _stairs(values: list[int], top: int) -> list[tuple[float, float]]:
    """Points of a line over the width; of two equal neighbours one is enough."""
    out: list[tuple[float, float]] = []
    for i, v in enumerate(values):
        if i and v == values[i - 1]:
            continue
        x, y = i / len(values) * WIDTH, HEIGHT - v / top * HEIGHT
        if out:
            out.append((x, out[-1][1]))
        out.append((x, y))
    return out + [(WIDTH, out[-1][1])] if out else out


def stages(plan: dict[str, Any], entry: dict[str, Any] | None) -> list[dict[str, Any]]:
    """The stages of a compilation as parts of one bar."""
    parts = [("record", entry["record_ms"])] if entry and plan["what"] in ("", "joint") else []
    parts += list(plan["stages"].items())
    total = sum(ms for _, ms in parts) or 1.0
    out, x = [], 0.0
    for k, (name, ms) in enumerate(parts):
        out.append({"name": name, "ms": ms, "x": x, "w": ms / total * WIDTH, "k": k % 8})
        x += ms / total * WIDTH
    return out


def timeline(plans: list[dict[str, Any]]) -> dict[str, Any]:
    """Per plan: when it was compiled, and from when to when it ran; how much of that time it ran."""
    end = max((max(p["at_ms"] + p["ms"], p["to_ms"]) for p in plans), default=0.0) or 1.0
    scale = WIDTH / end
    rows = []
    for p in plans:
        span = p["to_ms"] - p["from_ms"]
        rows.append(
            {
                "plan": p,
                "compiled": (p["at_ms"] * scale, max(1.0, p["ms"] * scale)),
                "ran": (p["from_ms"] * scale, max(1.0, span * scale)) if p["runs"] else None,
                "share": min(1.0, p["total_ms"] / span) if span > 0 else 1.0,
            }
        )
    return {"rows": rows, "end": end, "width": WIDTH}
