"""make demo: a real model, eager against magneto, with the same results."""

from __future__ import annotations

import statistics
import time

import torch
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

import magneto
from bench.workloads import CPU


def _time(fns, args, rounds, progress, task):
    times = {name: [] for name in fns}
    for _ in range(rounds):
        for name, fn in fns.items():
            start = time.perf_counter()
            fn(*args)
            times[name].append((time.perf_counter() - start) * 1e3)
        progress.advance(task)
    return {name: statistics.median(t) for name, t in times.items()}


def main() -> None:
    console = Console()
    torch.set_num_threads(2)
    names = ["mobilenet_v2 b4x3x128x128", "resnet18 b4x3x128x128", "densenet121 b4x3x128x128"]
    table = Table(title="inference on the CPU, milliseconds a call (median)")
    for column in [
        "model",
        "eager",
        "magneto",
        "speed-up",
        "first call (record + compile + run)",
        "graphs",
        "max. difference",
    ]:
        table.add_column(column, justify="left" if column == "model" else "right")
    rounds = 20
    with Progress(console=console) as progress, torch.no_grad():
        task = progress.add_task("models", total=len(names) * rounds)
        for name in names:
            progress.update(task, description=name)
            model, args = CPU[name].make()
            expected = model(*args)
            compiled = magneto.compile(model)
            start = time.perf_counter()
            got = compiled(*args)
            first = (time.perf_counter() - start) * 1e3
            times = _time({"eager": model, "magneto": compiled}, args, rounds, progress, task)
            graphs = magneto.explain(model)(*args).graph_count
            table.add_row(
                name,
                f"{times['eager']:.1f}",
                f"{times['magneto']:.1f}",
                f"{times['eager'] / times['magneto']:.2f}x",
                f"{first:.0f} ms",
                str(graphs),
                f"{float((got - expected).abs().max()):.1e}",
            )
    console.print(table)


if __name__ == "__main__":
    main()
