"""From what the C core kept to the facts of a report: dicts and lists, which the page embeds as JSON."""

from __future__ import annotations

import datetime
import os
import platform
import sys
from typing import Any

import torch

from .. import __version__, _magneto, doctor
from . import advice, caches, calls, each_graph, guards, modules, numbers, sources, switches

Facts = dict[str, Any]

_CODE_BYTES = 1_500_000  # of LLVM and PTX text and loop nests in a page, before compression
_ASSEMBLED = 12  # slowest kernels whose assembly is shown


def facts(data: Facts, checked: Facts | None) -> Facts:
    """Everything that the page shows."""
    made = sorted(_magneto.entries(), key=lambda e: e["number"])
    entries = [_entry(e) for e in made]
    names = modules.names()
    for e in entries:
        e["guards"] = guards.rows(e["guards"], names)
        e["inputs"] = [
            o if isinstance(o, str) else names.get(id(o), type(o).__name__) for o in e.pop("objects")
        ]
    roof = _magneto.roofline()
    by_recording = {e["recording"]: e for e in entries if e["recording"]}
    disk = _magneto.disk_cache_info()
    plans = [_plan(i, p, by_recording, roof) for i, p in enumerate(data["plans"])]
    for shown, p in zip(plans, data["plans"], strict=True):
        shown["disk"] = caches.plan(p["stored"], p["stored_note"], disk["off"])
        shown["origins"] = caches.kernels(shown["steps"])
    labels = {p["recording"]: p["label"] for p in reversed(plans) if p["recording"]}
    texts = _texts(plans)
    for e in entries:  # torch's own function of a module says little
        own = not sources.is_torch(e["file"])
        e["label"] = "" if own else labels.get(e["recording"], "").partition(" (")[0]
        e["sizes"] = guards.sizes(e, [p for p in plans if p["recording"] == e["recording"]])
    events = data["events"]
    places = [_place(p) for p in data["places"]]
    breaks = _breaks(entries, places)
    recompiles = _recompiles(events, entries)
    files = sources.files(plans, entries, places, breaks)
    out: Facts = {
        "made": datetime.datetime.now().isoformat(" ", "seconds"),
        "program": " ".join(sys.argv) or "python",
        "roofline": roof,
        "plans": plans,
        "entries": entries,
        "breaks": breaks,
        "recompiles": recompiles,
        "fallbacks": _events(events, "fallback"),
        "static": _events(events, "static"),
        "left": _left(),
        "places": places,
        "files": files,
        "calls": calls.rows(data["tree"], entries, {e["number"]: e["code"] for e in made}, plans),
        "check": checked,
        "beside": each_graph.rows(plans, {e["recording"]: e["inputs"] for e in entries}),
        "environment": _environment(),
        "caches": {"kernels": _magneto.kernel_cache_info(), "disk": disk},
        "texts": texts,
    }
    out["verdict"] = _verdict(out, data)
    out["warnings"] = _warnings(out)
    return out


# ---- entries ----


def _entry(e: Any) -> Facts:
    code, m = e["code"], e["measured"] or {}
    return {
        "number": e["number"],
        "file": code.co_filename,
        "function": code.co_qualname,
        "unit": e["unit"],
        "end": e["end"],
        "line": e["line"],
        "end_line": e["end_line"],
        "end_file": e["end_file"],
        "end_function": e["end_name"],
        "first_line": code.co_firstlineno,
        "lines": sources.lines_between(code, e["unit"], e["end"], e["returns"]),
        "break": e["break"],
        "reason": e["reason"],
        "nodes": e["nodes"],
        "hits": e["hits"],
        "guards": m.get("guards", []),
        "symbols": m.get("symbols", []),
        "recording": m.get("recording", 0),
        "record_ms": m.get("record_ms", 0.0),
        "compile_ms": m.get("compile_ms", 0.0),
        "guard_ns": m.get("guard_ns", 0.0),
        "run_ms": m.get("run_ms", 0.0),
        "objects": m.get("inputs", []),
    }


# ---- plans ----


def _plan(i: int, p: Facts, entries: dict[int, Facts], roof: Facts) -> Facts:
    runs = p["runs"] or {"n": 0, "ms": 0.0, "closely": 0, "closely_ms": 0.0, "begun": 0, "first_ms": 0.0}
    entry = entries.get(p["recording"])
    run_ms = runs["ms"] / runs["n"] if runs["n"] else runs["first_ms"]
    close_ms = runs["closely_ms"] / runs["closely"] if runs["closely"] else runs["first_ms"]
    out: Facts = {
        "id": f"p{i}",
        "number": p["number"],
        "what": p["what"],
        "label": p["label"].removeprefix("magneto::").removesuffix(" backward"),
        "entry": entry["number"] if entry else 0,
        "recording": p["recording"],
        "failed": p["failed"],
        "ms": p["ms"],
        "at_ms": p["at_ms"],
        "from_ms": runs.get("from_ms", 0.0),
        "to_ms": runs.get("to_ms", 0.0),
        "stages": {k: round(v, 4) for k, v in p["stages"].items() if v > 0},
        "llvm_ms": p["llvm_ms"],
        "emit_ms": p["emit_ms"],
        "load_ms": p["load_ms"],
        "compiled": p["compiled"],
        "language": p["language"],
        "runs": runs["begun"],
        "run_ms": run_ms,
        "first_ms": runs["first_ms"],
        "close_ms": close_ms,
        "total_ms": runs["ms"] + runs["first_ms"],
        "arena": p["arena"],
        "dynamic": p["dynamic"],
        "input_bytes": p["input_bytes"],
        "output_bytes": p["output_bytes"],
        "saved_bytes": p["saved_bytes"],
        "symbols": (p["symbols"] or "").splitlines(),
        "facts": (p["facts"] or "").splitlines(),
        "blocks": p["blocks"],
        "eager": _alive(p["eager"]),
        "saved": p["saved"],
        "graph": p["graph"]["nodes"],
        "recorded": [{k: n[k] for k in ("op", "file", "line", "backward")} for n in p["recorded"]["nodes"]],
    }
    for s in out["saved"]:
        s["name"] = _saved_name(s, entry)
    steps = [_step(out, k, s, roof) for k, s in enumerate(p["steps"])]
    out["steps"] = steps
    out["own_ms"] = max(0.0, close_ms - sum(s["run_ms"] for s in steps))
    scale = out["total_ms"] / close_ms if close_ms else 0.0
    for s in steps:
        s["total_ms"] = s["run_ms"] * scale
    out["own_total_ms"] = out["own_ms"] * scale
    modules.place(out["graph"], entry["inputs"] if entry and p["what"] != "backward" else [])
    return out


def _alive(blocks: list[Facts]) -> list[int]:
    """Bytes that are alive at each node, if each is freed after its last use."""
    change: dict[int, int] = {}
    for b in blocks:
        change[b["first"]] = change.get(b["first"], 0) + b["bytes"]
        change[b["last"] + 1] = change.get(b["last"] + 1, 0) - b["bytes"]
    out, alive = [], 0
    for at in range(max(change, default=0)):
        alive += change.get(at, 0)
        out.append(alive)
    return out


def _saved_name(s: Facts, entry: Facts | None) -> str:
    """The parameter or argument, the result, or the operation that made it."""
    if s["kind"] == "input" and entry and s["index"] < len(entry["inputs"]):
        return str(entry["inputs"][s["index"]])
    if s["kind"] == "result":
        return f"result {s['index']}: {s['op'] or ''}"
    return s["op"] or s["kind"]


def _step(plan: Facts, k: int, s: Facts, roof: Facts) -> Facts:
    ms = s["ms"] / s["n"] if s["n"] else 0.0
    nodes = {n["node"]: n for n in plan["graph"]}
    of = [nodes[n] for n in s["nodes"] if n in nodes]
    places = sorted({(n["file"], n["line"]) for n in of if n["file"] and n["line"]})
    return {
        "id": f"{plan['id']}k{k}",
        "plan": plan["id"],
        "label": s["label"].removeprefix("magneto::") if s["label"] else "?",
        "runs": s["runs"],
        "own": s["runs"] == "kernel" or s["runs"].startswith("magneto"),
        "nodes": s["nodes"],
        "places": [list(p) for p in places],
        "bytes": s["bytes"],
        "flops": s["flops"],
        "n": s["n"],
        "run_ms": ms,
        "least_ms": s["least_ms"],
        **_rates(s, ms, roof),
        "loops": s["loops"],
        "code": s["code"],
        "key": s["key"] if s["code"] else None,
        "language": plan["language"],
        "origin": s["origin"],
        "apart": s["apart"],
        "apart_from": f"{plan['id']}k{s['apart_from']}" if s["apart_from"] >= 0 else None,
    }


def _rates(s: Facts, ms: float, roof: Facts) -> Facts:
    """GB/s, GFLOP/s, and how much of the time the machine would need at its best."""
    if not ms or not roof["gbps"]:
        return {"gbps": 0.0, "gflops": 0.0, "roof": 0.0}
    best = max(s["bytes"] / roof["gbps"] * 1e-6, s["flops"] / roof["gflops"] * 1e-6)
    return {"gbps": s["bytes"] / ms * 1e-6, "gflops": s["flops"] / ms * 1e-6, "roof": best / ms}


def _texts(plans: list[Facts]) -> dict[str, dict[str, str]]:
    """Takes the long texts out of the steps: by key, the slowest kernels first, as long as there is room."""
    texts: dict[str, dict[str, str]] = {}
    room, assembled = _CODE_BYTES, 0
    for s in sorted((s for p in plans for s in p["steps"]), key=lambda s: -s["total_ms"]):
        code, loops = s.pop("code"), s.pop("loops")
        s["text"] = s["key"]
        if not s["key"] or s["key"] in texts:
            continue
        size = len(code) + len(loops or "")
        if size > room:
            s["text"] = None
            continue
        room -= size
        texts[s["key"]] = {"nests": loops or "", s["language"]: code}
        if s["language"] == "LLVM" and assembled < _ASSEMBLED:
            assembled += 1
            try:
                texts[s["key"]]["assembly"] = _magneto.assembly(code)
            except RuntimeError as e:
                texts[s["key"]]["assembly"] = f"not there: {e}"
    for p in plans:
        for s in p["steps"]:
            if s["key"] not in texts:
                s["text"] = None
    return texts


# ---- what was not compiled, and what was compiled again ----


def _place(p: Facts) -> Facts:
    code = p["code"]
    lines = sorted({line for *_, line in code.co_lines() if line})
    return {
        "kind": p["kind"],
        "file": code.co_filename,
        "function": code.co_qualname,
        "unit": p["unit"],
        "line": p["line"],
        "n": p["n"],
        "ms": p["ms"],
        "lines": lines,
    }


def _breaks(entries: list[Facts], places: list[Facts]) -> list[Facts]:
    """One a place and reason, the most expensive first."""
    found: dict[tuple[str, int, str, str], Facts] = {}
    cost = [p for p in places if p["kind"] == "break"]
    for e in entries:
        if not e["break"]:
            continue
        b = found.setdefault(
            (e["end_file"], e["end_line"], e["break"], e["reason"]),
            {
                "file": e["end_file"],
                "line": e["end_line"],
                "function": e["end_function"],
                "kind": e["break"],
                "reason": e["reason"],
                "hint": _magneto.break_hints[e["break"]],
                "hits": 0,
                "total_ms": 0.0,
            },
        )
        b["hits"] += e["hits"]
        for p in [
            p for p in cost if _breaks_at(e, p)
        ]:  # several entries may end there: the first has its time
            cost.remove(p)
            b["total_ms"] += p["ms"]
    for p in cost:
        found[(p["file"], p["line"], "", "")] = {
            **{k: p[k] for k in ("file", "line", "function")},
            "kind": "plain",
            "reason": "nothing is recorded here",
            "hint": "code without tensor operations: it costs little, unless it runs often",
            "hits": p["n"],
            "total_ms": p["ms"],
        }
    out = sorted(found.values(), key=lambda b: -b["total_ms"])
    for i, b in enumerate(out):
        b["id"] = f"b{i}"
        b["call_ms"] = b["total_ms"] / b["hits"] if b["hits"] else 0.0
    return out


def _breaks_at(e: Facts, p: Facts) -> bool:
    """is p executed after the entry's end?  That may be a little before the break."""
    here = (p["file"], p["function"])
    if here == (e["file"], e["function"]) and p["unit"] == e["end"]:
        return True
    return here == (e["end_file"], e["end_function"]) and p["line"] == e["end_line"]


def _recompiles(events: list[Facts], entries: list[Facts]) -> list[Facts]:
    out: dict[tuple[str, int, str], Facts] = {}
    again: dict[tuple[str, str, int], list[Facts]] = {}
    for e in entries:
        again.setdefault((e["file"], e["function"], e["line"]), []).append(e)
    for v in events:
        if v["kind"] != "recompile":
            continue
        told = advice.recompile(v["text"])
        key = (v["file"], v["line"], told["source"] + told["what"])
        r = out.setdefault(key, {**v, **told, "values": [], "n": 0})
        r["n"] += 1
        if len(r["values"]) < 8:
            r["values"].append([told["was"], told["now"]])
    for i, r in enumerate(out.values()):
        later = again.get((r["file"], r["function"], r["line"]), [])[1:]
        r["id"] = f"r{i}"
        r["entries"] = len(later) + 1
        r["total_ms"] = sum(e["record_ms"] + e["compile_ms"] for e in later)
    return sorted(out.values(), key=lambda r: -r["total_ms"])


def _events(events: list[Facts], kind: str) -> list[Facts]:
    """One a place and text."""
    out: dict[tuple[Any, ...], Facts] = {}
    for v in events:
        if v["kind"] == kind:
            out.setdefault((v["file"], v["line"], v["text"]), {**v, "n": 0})["n"] += 1
    return list(out.values())


def _left() -> list[Facts]:
    return [
        {
            "file": p["code"].co_filename,
            "function": p["code"].co_qualname,
            "line": p["code"].co_firstlineno,
            "compiled_ms": p["compiled_ms"],
            "eager_ms": p["eager_ms"],
        }
        for p in _magneto.left()
    ]


# ---- the verdict ----


def _verdict(f: Facts, data: Facts) -> Facts:
    stats = _magneto.stats()
    forward = [p for p in f["plans"] if p["steps"] or p["runs"]]
    plans_ms = sum(p["total_ms"] for p in forward if p["what"] != "backward")
    backward_ms = sum(p["total_ms"] for p in forward if p["what"] == "backward")
    making = stats["record_ms"] + stats["compile_ms"]
    running = max(data["calls_ms"] - making, 0.0)
    return {
        "calls": data["calls"],
        "calls_ms": data["calls_ms"],
        "record_ms": stats["record_ms"],
        "compile_ms": stats["compile_ms"],
        "running_ms": running,
        "plans_ms": plans_ms,
        "backward_ms": backward_ms,
        "share": min(1.0, plans_ms / running) if running else 0.0,
        "outside_ms": max(0.0, running - plans_ms),
        "graphs": stats["graphs"],
        "breaks": len([b for b in f["breaks"] if b["kind"] != "plain"]),
        "recompiles": stats["recompiles"],
        "fallbacks": stats["fallbacks"],
        "kernels": sum(len(p["steps"]) for p in f["plans"]),
        "arena": max((p["arena"] for p in f["plans"]), default=0),
        "saved": max((p["saved_bytes"] for p in f["plans"]), default=0),
        "peak_rss": _peak(),
        "speed": f["check"]["speed"] if f["check"] else None,
        "graphs_speed": each_graph.speed(f["beside"]),
    }


def _peak() -> int:
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _warnings(f: Facts) -> list[Facts]:
    """What costs time and can be changed, by the milliseconds of this run."""
    out: list[Facts] = []

    def add(ms: float, text: str, to: str) -> None:
        out.append({"ms": ms, "text": text, "to": to})

    for b in f["breaks"]:
        if b["kind"] != "plain" or b["total_ms"] > 1:
            add(b["total_ms"], f"{_short(b)}: graph break, {b['reason']}", b["id"])
    for same in _by_place(f["recompiles"]):  # each has the cost of all
        r, others = same[0], len(same) - 1
        what = f"{r['source']} {r['what']}"
        more = f"; and {others} other reason{'s' if others > 1 else ''}" if others else ""
        add(r["total_ms"], f"{_short(r)}: compiled {r['entries']} times, {what}{more}", r["id"])
    for v in f["fallbacks"]:
        add(0.0, f"{_short(v)}: runs op by op, {v['text']}", "fallbacks")
    for p in f["places"]:
        if p["kind"] == "eager" and p["ms"] > 1:
            add(p["ms"], f"{_short(p)}: the rest of the function is left to CPython", "source")
    for left in f["left"]:
        add(0.0, f"{_short(left)}: left to CPython, since recording it costs more than it brings", "source")
    for p in f["plans"]:
        if p["own_total_ms"] > 1 and p["own_ms"] > 0.2 * p["close_ms"]:
            add(
                p["own_total_ms"],
                f"{p['label']}: its {len(p['steps'])} steps are short; the time between them is a "
                f"{p['own_ms'] / p['close_ms']:.0%} of a run",
                p["id"],
            )
    return sorted(out, key=lambda w: -w["ms"])


def _by_place(rows: list[Facts]) -> list[list[Facts]]:
    places: dict[tuple[str, int, str], list[Facts]] = {}
    for r in rows:
        places.setdefault((r["file"], r["line"], r["function"]), []).append(r)
    return list(places.values())


def _short(place: Facts) -> str:
    if not place["file"]:
        return "a graph"
    return f"{numbers.file_name(place['file'])}:{place['line']}"


# ---- the machine ----


def _environment() -> Facts:
    findings = [{"name": x.name, "ok": x.ok, "text": x.text, "mend": x.mend} for x in doctor.examine()]
    return {
        "magneto": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "system": platform.platform(),
        "threads": torch.get_num_threads(),
        "rank": os.environ.get("RANK", ""),
        "world": os.environ.get("WORLD_SIZE", ""),
        "findings": findings,
        "switches": switches.rows(),
    }
