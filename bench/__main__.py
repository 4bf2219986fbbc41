"""python -m bench cpu [--train] [--level v3] [--only TEXT] [--seconds S] [--no-cold] [--no-peer] [--freeze]
                    [--json FILE]
python -m bench ops [--only TEXT] [--below RATIO] [--seconds S] [--peer]
python -m bench host [--no-peer]
python -m bench cuda [--only TEXT] [--seconds S] [--no-peer] [--default]
python -m bench doors
python -m bench dashboard [--quick] [--cuda] [--models REGEX]

cpu: runs every workload of bench/workloads.py in fresh processes.
The first call of torch.compile and of magneto has an empty cache folder (cold), then the same folder (warm).
The steady state has eager, torch.compile and magneto interleaved in one process.
With --train these are whole training steps, with their peak memory.  Prints a table and writes JSON.
--level v3 caps the vector instructions of magneto and of the libraries that it is compared with at AVX2.
ops: single operations beside eager (bench/single.py); prints the rows below a ratio.
doors: first calls of programs of PyTorch's libraries (bench/doors.py).
host: what calls cost beside their kernels, and how fast frames are recorded (bench/host.py).
dashboard: 71 models, and a page of their history (bench/dashboard.py).
cuda: rows of a GPU beside eager and torch.compile's reduce-overhead (bench/cuda.py).
--default adds torch.compile's default mode."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import pathlib
import subprocess
import sys
import tempfile

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from bench import doors
from bench.where import commit, processor
from bench.workloads import CPU, TRAIN

# What caps the vector instructions: of magneto, of ATen and torch.compile's kernels, of MKL, of oneDNN.
LEVELS = {
    "v3": {
        "MAGNETO_CPU": "v3",
        "ATEN_CPU_CAPABILITY": "avx2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
    },
    "v4": {},
}


def _run(*args: str) -> dict:
    done = subprocess.run([sys.executable, "-m", "bench.measure", *args], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"bench {' '.join(args)} failed:\n{done.stderr[-3000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def _where(machine: str) -> str:
    """Machine, torch, date and commit: what a table has to state."""
    import torch

    return f"{machine}, torch {torch.__version__}, {datetime.date.today()}, commit {commit()}"


def _where_cpu(level: str) -> str:
    return _where(f"{processor()[0]}, level {level}")


def _host(peer: bool) -> None:
    from bench.host import rows

    table = Table(title="one thread; best of many rounds")
    for column in ["what", "unit", "magneto", "torch.compile"]:
        table.add_column(column, justify="left" if column in ("what", "unit") else "right")
    for what, unit, ours, other in rows(peer):
        table.add_row(what, unit, f"{ours:.2f}", "" if other is None else f"{other:.2f}")
    Console(width=120).print(table)


def _ops(options: argparse.Namespace) -> None:
    """Each line is a row that is printed as soon as it is known: name, eager's and magneto's microseconds."""
    import re
    import statistics

    import torch

    import magneto
    from bench.single import ops, time_op

    torch.set_num_threads(int(os.environ.get("MAGNETO_BENCH_THREADS", "2")))
    ratios = []
    for op in ops():
        if not re.search(options.only, op.name):
            continue
        times = time_op(op, options.peer, min(options.seconds, 0.1))
        magneto.reset()
        ratios.append(times["eager"] / times["magneto"])
        if ratios[-1] < options.below:
            others = "".join(f"  {kind} {us:.1f}" for kind, us in times.items())
            print(f"{ratios[-1]:.2f}  {op.name}{others}", flush=True)
    below = sum(r < 1 for r in ratios)
    mean = statistics.geometric_mean(ratios)
    print(f"{len(ratios)} rows, {below} below eager, geometric mean {mean:.2f}; {_where_cpu(processor()[1])}")


def _cuda(options: argparse.Namespace) -> None:
    """Each row is printed as soon as it is known."""
    import re

    import torch

    from bench.cuda import KINDS, ROWS, measure

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    left_out = set() if options.default else {"torch.compile"}
    if options.no_peer:
        left_out = {"torch.compile", "reduce-overhead"}
    kinds = [kind for kind in KINDS if kind not in left_out]
    print("microseconds a call: latency, throughput, GPU; cold and warm milliseconds; peak MiB")
    for name in ROWS:
        if not re.search(options.only, name):
            continue
        row = measure(name, kinds, min(options.seconds, 0.5))
        for kind in kinds:
            r = row[kind]
            times = "".join(f" {r[what]:9.0f}" for what in ("latency", "throughput", "gpu", "cold_ms"))
            print(f"{name:30s} {kind:16s}{times} {r.get('warm_ms', 0):6.0f} {r['peak_mib']:7.0f}", flush=True)
        torch.cuda.empty_cache()
    print(_where(torch.cuda.get_device_name()))


def main() -> None:
    if sys.argv[1:2] == ["dashboard"]:
        from bench import dashboard

        dashboard.main(sys.argv[2:])
        return
    parser = argparse.ArgumentParser(prog="python -m bench")
    parser.add_argument("what", choices=["cpu", "ops", "host", "cuda", "doors", "dashboard"])
    parser.add_argument("--train", action="store_true", help="training steps instead of inference")
    parser.add_argument("--only", default="", help="workloads whose name contains this text")
    parser.add_argument("--seconds", type=float, default=20.0, help="steady-state seconds a workload")
    parser.add_argument("--no-cold", action="store_true", help="leave out the cold and warm starts")
    parser.add_argument(
        "--level", choices=sorted(LEVELS), help="cap of the vector instructions; default: the machine's"
    )
    parser.add_argument("--freeze", action="store_true", help="also magneto with weights that never change")
    parser.add_argument("--no-peer", action="store_true", help="leave out torch.compile")
    parser.add_argument("--peer", action="store_true", help="ops: also torch.compile")
    parser.add_argument(
        "--below", type=float, default=1.0, help="ops: print rows slower than this share of eager"
    )
    parser.add_argument("--default", action="store_true", help="cuda: also torch.compile's default mode")
    parser.add_argument("--json", type=pathlib.Path, help="default: bench/results/cpu[-train].json")
    options = parser.parse_args()
    if options.what == "host":
        _host(peer=not options.no_peer)
        return
    if options.what == "doors":
        doors.main()
        return
    if options.what == "cuda":
        _cuda(options)
        return
    if options.what == "ops":
        _ops(options)
        return
    level = options.level or processor()[1]
    if options.level == "v4" and processor()[1] != "v4":
        raise SystemExit("--level v4: this processor has no AVX-512")
    os.environ.update(LEVELS.get(options.level, {}))
    workloads = TRAIN if options.train else CPU
    names = [name for name in workloads if options.only in name]
    path = options.json or pathlib.Path(
        "bench/results/cpu-train.json" if options.train else "bench/results/cpu.json"
    )
    rows = []
    with Progress(console=Console(stderr=True)) as progress:
        task = progress.add_task("bench", total=len(names))
        for name in names:
            progress.update(task, description=name)
            extra = ["--no-peer"] * options.no_peer + ["--freeze"] * (options.freeze and not options.train)
            row = _run("steady", name, str(options.seconds), *extra)
            if not options.no_cold:
                for which in ["magneto"] + ([] if options.no_peer else ["torch.compile"]):
                    with tempfile.TemporaryDirectory() as cache:
                        row[which] |= {
                            start: _run("first", name, which, cache)["ms"] for start in ("cold_ms", "warm_ms")
                        }
            if options.train:
                for which in row.keys() & {"eager", "torch.compile", "magneto"}:
                    row[which]["peak_mib"] = _run("memory", name, which)["peak_mib"]
            rows.append(row)
            progress.advance(task)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(rows, indent=1))
    table = Table(
        title="milliseconds a call (median; 2 threads); milliseconds of the first call, cold and warm\n"
        + _where_cpu(level)
    )
    for column in (
        [
            "workload",
            "eager",
            "torch.compile",
            "magneto",
            "vs eager",
            "vs torch.compile",
            "goal",
            "cold torch.compile",
            "cold magneto",
            "cold ratio",
            "warm torch.compile",
            "warm magneto",
            "max rel. error",
        ]
        + (["freeze"] if options.freeze and not options.train else [])
        + (["peak MiB eager", "torch.compile", "magneto"] if options.train else [])
    ):
        table.add_column(column, justify="left" if column == "workload" else "right")
    for row in rows:
        eager, ours, peer = row["eager"], row["magneto"], row.get("torch.compile")
        goal = workloads[row["name"]].goal
        table.add_row(
            row["name"],
            f"{eager['median']:.4g}",
            f"{peer['median']:.4g}" if peer else "",
            f"{ours['median']:.4g}",
            f"{eager['median'] / ours['median']:.2f}x",
            f"{peer['median'] / ours['median']:.2f}x" if peer else "",
            f"{goal:.2f}x" if goal else "",
            f"{peer['cold_ms']:.0f}" if peer and "cold_ms" in peer else "",
            f"{ours['cold_ms']:.0f}" if "cold_ms" in ours else "",
            f"1/{peer['cold_ms'] / ours['cold_ms']:.0f}"
            if peer and "cold_ms" in peer and "cold_ms" in ours
            else "",
            f"{peer['warm_ms']:.0f}" if peer and "warm_ms" in peer else "",
            f"{ours['warm_ms']:.0f}" if "warm_ms" in ours else "",
            f"{row['error']:.1e}",
            *([f"{row['magneto freeze']['median']:.4g}"] if "magneto freeze" in row else []),
            *(
                [
                    f"{row[w]['peak_mib']:.0f}" if w in row else ""
                    for w in ("eager", "torch.compile", "magneto")
                ]
                if options.train
                else []
            ),
        )
    Console(width=220).print(table)


if __name__ == "__main__":
    main()
