"""python -m bench dashboard [--quick] [--cuda] [--models REGEX] [--kinds REGEX] [--peers NAMES]
                          [--minutes M] [--resume] [--threads N] [--seconds S] [--out FOLDER] [--page]

Runs the 71 models of bench/models.py beside eager: inference and training; float32, bfloat16 and autocast.
Each cell has a process of its own and a time limit, so that one failure does not end the run.
What ran is a file of the history in the folder of --out, whose index.html shows the history.
The file is written after each cell: a run that is killed loses one.
--quick: fewer rounds, five sizes in inference only, at most 20 minutes; cells that are not reached say so.
--resume: goes on with the cells that the last run of this commit, on this machine, did not reach.
--page: only writes the page again.
"""

from __future__ import annotations

import argparse
import datetime
import json
import multiprocessing
import os
import pathlib
import re
import statistics
import time
from typing import Any

from bench import where

# Whole kinds come one after the other: if time ends, the same kinds are there for all models.
KINDS = (
    ("infer", "float32"),
    ("train", "float32"),
    ("infer", "bf16"),
    ("train", "amp"),
    ("infer", "amp"),
    ("train", "bf16"),
)
SLOW = 0.95  # of eager's speed: less is a failure if the noise interval lies below
UNMEASURED = ("late", "absent", "refused")
LIBRARIES = ("torch", "torchvision", "timm", "transformers", "openvino", "onnxruntime")


def options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench dashboard", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--cuda", action="store_true")
    parser.add_argument("--models", default="", metavar="REGEX")
    parser.add_argument(
        "--kinds", default="", metavar="REGEX", help='of "infer float32", "train amp" and so on'
    )
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--commit", help="its name, where there is no git")
    parser.add_argument(
        "--peers", default="", help="torch.compile,openvino,onnxruntime: the installed ones run"
    )
    parser.add_argument(
        "--minutes", type=float, help="of the whole run (default: 20 if quick, else no limit)"
    )
    parser.add_argument("--threads", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument(
        "--seconds", type=float, help="steady-state seconds a cell (default: 0.3 if quick, else 3)"
    )
    parser.add_argument("--limit", type=float, help="seconds of one cell (default: 60 if quick, else 600)")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("docs/dashboard"))
    parser.add_argument("--page", action="store_true")
    o = parser.parse_args(arguments)
    if o.minutes is None and o.quick:
        o.minutes = 20.0
    o.seconds = o.seconds or (0.3 if o.quick else 3.0)
    o.limit = o.limit or (60.0 if o.quick else 600.0)
    o.peers = [name for name in o.peers.split(",") if name]
    unknown = set(o.peers) - {"torch.compile", "openvino", "onnxruntime"}
    if unknown:
        parser.error(
            f"--peers: unknown {', '.join(sorted(unknown))}; valid: torch.compile, openvino, onnxruntime"
        )
    return o


def one(
    context: Any, name: str, mode: str, numbers: str, given: dict[str, Any], limit: float
) -> dict[str, Any]:
    """A cell's figures, or {"failed": why}."""
    from bench import cell

    out, into = context.Pipe(duplex=False)
    process = context.Process(target=cell.run, args=(into, name, mode, numbers, given))
    process.start()
    into.close()
    try:
        result = out.recv() if out.poll(limit) else {"failed": f"more than {limit:.0f} s"}
    except EOFError:
        process.join()
        result = {"failed": f"the process ended with code {process.exitcode}"}
    if process.is_alive() and result.get("failed", "").startswith("more than"):
        process.kill()
    process.join()
    return result


def verdict(cell: dict[str, Any]) -> str:
    """pass, slow, wrong, fallback, failed; late, absent or refused, which were not measured."""
    for word in UNMEASURED:
        if word in cell:
            return word
    if "failed" in cell:
        return "failed"
    if not cell["right"]:
        return "wrong"
    if cell["fallbacks"] or "sizes_failed" in cell:
        wrong = cell.get("sizes_failed", "").startswith("ArithmeticError")
        return "fallback" if cell["fallbacks"] else "wrong" if wrong else "failed"
    return "slow" if cell["times"]["magneto"]["most"] < SLOW else "pass"


def summary(cells: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Counts of verdicts, the geometric mean of the speeds, and the slowest cell."""
    counts: dict[str, int] = {}
    for c in cells.values():
        counts[verdict(c)] = counts.get(verdict(c), 0) + 1
    speeds = {k: c["times"]["magneto"]["speed"] for k, c in cells.items() if "times" in c}
    worst = min(speeds, key=lambda k: speeds[k], default="")
    return {
        "verdicts": counts,
        "mean": statistics.geometric_mean(speeds.values()) if speeds else None,
        "worst": worst,
        "worst_speed": speeds.get(worst),
    }


def movers(old: dict[str, Any], new: dict[str, Any]) -> list[dict[str, Any]]:
    """Cells whose noise intervals do not meet any more, or whose verdict changed; the worst first."""
    found = []
    for key, b in new["cells"].items():
        a = old["cells"].get(key)
        if a is None or any(k in c for k in UNMEASURED for c in (a, b)):
            continue
        row = {"cell": key, "from": verdict(a), "to": verdict(b), "times": None}
        if "times" in a and "times" in b:
            x, y = a["times"]["magneto"], b["times"]["magneto"]
            row |= {"old": x, "new": y}
            if x["most"] < y["least"] or y["most"] < x["least"]:
                row["times"] = y["speed"] / x["speed"]
        if row["times"] or row["from"] != row["to"]:
            found.append(row)
    return sorted(found, key=lambda r: (r["from"] == r["to"], r["times"] or 1.0))


def history(folder: pathlib.Path) -> list[dict[str, Any]]:
    """The runs of a folder, the oldest first."""
    runs = [json.loads(p.read_text()) for p in folder.glob("*.json")]
    return sorted(runs, key=lambda r: r["date"])


def joined(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """The last run; cells that it did not reach are those of earlier runs of its commit on its machine."""
    last = runs[-1]
    alike = [r for r in runs if all(r[k] == last[k] for k in ("commit", "machine", "device", "threads"))]
    cells: dict[str, Any] = {}
    for r in alike:
        cells |= {key: c for key, c in r["cells"].items() if key not in cells or "late" not in c}
    return last | {"cells": cells}


def write_page(folder: pathlib.Path) -> pathlib.Path:
    """index.html of the runs in the folder: one file, with nothing of the network."""
    import jinja2
    import markupsafe

    import magneto

    look = pathlib.Path(magneto.__file__).parent / "_report"
    runs = history(folder)
    if not runs:
        raise SystemExit(f"dashboard: no run in {folder}")
    run = joined(runs)
    before = [r for r in runs if r["commit"] != run["commit"] and r["machine"] == run["machine"]]
    before = [r for r in before if r["device"] == run["device"]]
    env = jinja2.Environment(
        loader=jinja2.FileSystemLoader(pathlib.Path(__file__).parent),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    env.filters["verdict"] = verdict
    env.globals["unmeasured"] = {"late": "not reached", "absent": "not installed", "refused": "eager refuses"}
    text = env.get_template("dashboard.html").render(
        run=run,
        runs=[(r, summary(r["cells"])) for r in reversed(runs)],
        summary=summary(run["cells"]),
        movers=movers(joined(before), run) if before else [],
        before=before[-1] if before else None,
        series=series(runs),
        style=markupsafe.Markup((look / "page.css").read_text()),
        script=markupsafe.Markup((look / "page.js").read_text()),
    )
    path = folder / "index.html"
    path.write_text(text)
    return path


def series(runs: list[dict[str, Any]]) -> dict[str, list[tuple[float, float]]]:
    """Per cell the points of its line: the speed in the last twenty runs, as x and y of a box of 80 by 16."""
    points: dict[str, list[tuple[float, float]]] = {}
    runs = runs[-20:]
    for i, r in enumerate(runs):
        for key, c in r["cells"].items():
            if "times" in c:
                speed = min(4.0, c["times"]["magneto"]["speed"])
                points.setdefault(key, []).append((80 * (i + 0.5) / len(runs), 15 - 14 * speed / 4))
    return points


def _versions() -> dict[str, str]:
    from importlib import metadata

    found = {}
    for name in LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _path(folder: pathlib.Path, date: str, device: str) -> pathlib.Path:
    return folder / f"{date.replace(':', '').replace('-', '')}-{device}.json"


def _date(folder: pathlib.Path, device: str) -> str:
    """Now, or a little later: no run of the folder has that date."""
    now = datetime.datetime.now(datetime.UTC)
    while _path(folder, date := now.strftime("%Y-%m-%dT%H:%M:%SZ"), device).exists():
        now += datetime.timedelta(seconds=1)
    return date


def _about(o: argparse.Namespace) -> dict[str, Any]:
    """What a run states, and {} of cells."""
    machine = "{}, level {}".format(*where.processor())
    if o.cuda:
        import torch

        machine = torch.cuda.get_device_name()
    return {
        "date": _date(o.out, "cuda" if o.cuda else "cpu"),
        "commit": o.commit or where.commit(),
        "machine": machine,
        "device": "cuda" if o.cuda else "cpu",
        "threads": o.threads,
        "quick": o.quick,
        "load": os.getloadavg()[0],
        "versions": _versions(),
        "minutes": 0.0,
        "cells": {},
    }


def resumed(folder: pathlib.Path, run: dict[str, Any]) -> dict[str, Any]:
    """The last run of the folder that states the same as `run`, or `run`."""
    same = ("commit", "machine", "device", "threads", "quick", "versions")
    alike = [r for r in history(folder) if all(r[k] == run[k] for k in same)]
    return alike[-1] if alike else run


def _write(folder: pathlib.Path, run: dict[str, Any]) -> pathlib.Path:
    """The run's file, whole at each moment."""
    folder.mkdir(parents=True, exist_ok=True)
    path = _path(folder, run["date"], run["device"])
    part = path.with_suffix(".part")
    part.write_text(json.dumps(rounded(run), separators=(",", ":")).replace('},"', '},\n"') + "\n")
    part.replace(path)
    return path


def _measure(o: argparse.Namespace, run: dict[str, Any], wanted: list[tuple[str, str, str]]) -> None:
    """Fills the run's cells that are wanted and not there, as long as there is time."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["bench.warm"])
    os.environ["BENCH_MODELS"] = "\n".join(sorted({name for name, _, _ in wanted}))
    given = {
        "threads": o.threads,
        "device": run["device"],
        "seconds": o.seconds,
        "peers": o.peers,
        "quick": o.quick,
    }
    begun, before = time.monotonic(), run["minutes"]
    for name, mode, numbers in wanted:
        key = f"{name} {mode} {numbers}"
        if "late" not in run["cells"].get(key, {"late": True}):
            continue
        left = o.minutes * 60 - (time.monotonic() - begun) if o.minutes else float("inf")
        if left < 5:
            run["cells"][key] = {"late": True}
            continue
        cell = run["cells"][key] = one(context, name, mode, numbers, given, min(o.limit, left))
        if cell.get("failed", "").startswith("more than") and left < o.limit:
            run["cells"][key] = cell = {"late": True}
        run["minutes"] = before + (time.monotonic() - begun) / 60
        _write(o.out, run)
        speed = cell.get("times", {}).get("magneto", {}).get("speed")
        told = cell.get("failed") or cell.get("sizes_failed") or cell.get("absent") or cell.get("refused")
        print(f"{verdict(cell):8s} {key:60s} {told or (f'{speed:.2f}' if speed else '')}", flush=True)


def main(arguments: list[str]) -> None:
    o = options(arguments)
    if o.page:
        print(f"dashboard: wrote {write_page(o.out)}")
        return
    from bench.models import MODELS

    names = [name for name in MODELS if re.search(o.models, name)]
    if not names:
        raise SystemExit(f"--models: no model matches {o.models!r}")
    kinds = [kind for kind in KINDS if re.search(o.kinds, " ".join(kind))]
    if not kinds:
        raise SystemExit(f"--kinds: none of {', '.join(map(' '.join, KINDS))} matches {o.kinds!r}")
    run = _about(o)
    if o.resume:
        run = resumed(o.out, run)
    _measure(o, run, [(name, *kind) for kind in kinds for name in names])
    path = _write(o.out, run)
    print(json.dumps(summary(run["cells"])))
    print(f"dashboard: wrote {path} and {write_page(o.out)}")


def rounded(x: Any) -> Any:
    """The same with numbers of four digits."""
    if isinstance(x, float):
        return float(f"{x:.4g}")
    if isinstance(x, dict):
        return {k: rounded(v) for k, v in x.items()}
    return [rounded(v) for v in x] if isinstance(x, (list, tuple)) else x
