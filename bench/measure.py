"""Measures one workload in a fresh process and prints one JSON line.

    python -m bench.measure cold <workload> eager|torch.compile|magneto
    python -m bench.measure steady <workload> [seconds] [--no-peer]

cold: milliseconds from wrapping to the end of the first call (record + compile + first run), nothing cached.
steady: the three interleaved in one process, milliseconds a call: minimum and median, and the largest difference
of the results from eager's."""
from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time

import torch

from bench.workloads import CPU


def _wrap(which: str, fn):
    if which == "eager":
        return fn
    if which == "torch.compile":
        return torch.compile(fn)
    import magneto

    return magneto.compile(fn)


def _tensors(value):
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        return [t for v in value.values() for t in _tensors(v)]
    if isinstance(value, (list, tuple)):
        return [t for v in value for t in _tensors(v)]
    return []


def cold(name: str, which: str) -> dict:
    if which == "torch.compile":  # nothing from an earlier run
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = tempfile.mkdtemp()
        os.environ["TORCHINDUCTOR_FORCE_DISABLE_CACHES"] = "1"
    if which == "magneto":
        os.environ["MAGNETO_CACHE"] = "0"
    fn, args = CPU[name].make()
    with torch.no_grad():
        fn(*args)  # libraries initialised, memory touched: the same for all three
        start = time.perf_counter()
        _wrap(which, fn)(*args)
        took = time.perf_counter() - start
    return {"name": name, "which": which, "cold_ms": took * 1e3}


def steady(name: str, seconds: float = 20.0, peer: bool = True) -> dict:
    fn, args = CPU[name].make()
    names = ["eager", "torch.compile", "magneto"] if peer else ["eager", "magneto"]
    with torch.no_grad():
        fns = {which: _wrap(which, fn) for which in names}
        results = {which: _tensors(f(*args)) for which, f in fns.items()}
        for f in fns.values():
            f(*args)
        start = time.perf_counter()
        fn(*args)
        inner = max(1, int(2e-3 / max(time.perf_counter() - start, 1e-7)))  # short calls are timed in batches
        times: dict[str, list[float]] = {which: [] for which in names}
        deadline = time.perf_counter() + seconds
        rounds = 0
        while rounds < 5 or (time.perf_counter() < deadline and rounds < 400):
            for which, f in fns.items():
                start = time.perf_counter()
                for _ in range(inner):
                    f(*args)
                times[which].append((time.perf_counter() - start) / inner * 1e3)
            rounds += 1
    error = max((float((a.double() - b.double()).abs().max() / b.double().abs().max().clamp_min(1e-30))
                 for a, b in zip(results["magneto"], results["eager"]) if b.numel()), default=0.0)
    return {"name": name, "rounds": rounds, "error": error,
            **{which: {"min": min(t), "median": statistics.median(t)} for which, t in times.items()}}


def main() -> None:
    torch.set_num_threads(int(os.environ.get("MAGNETO_BENCH_THREADS", "2")))
    if sys.argv[1] == "cold":
        result = cold(sys.argv[2], sys.argv[3])
    else:
        result = steady(sys.argv[2], float(sys.argv[3]) if len(sys.argv) > 3 else 20.0, "--no-peer" not in sys.argv)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
