"""Measures one workload in a fresh process and prints one JSON line.

    python -m bench.measure first <workload> eager|torch.compile|magneto <cache folder>
    python -m bench.measure steady <workload> [seconds] [--no-peer] [--freeze]
    python -m bench.measure memory <training workload> eager|torch.compile|magneto

first: milliseconds from wrapping to the end of the first call (record + compile + first run).
The folder is the only cache: a cold start when it is empty, a warm one when an earlier run has filled it.
steady: the three interleaved in one process, milliseconds a call: minimum and median.
Also the largest difference of the results from eager's.
--freeze times magneto with options={"freeze": True} beside them.
A training workload is timed as a whole step (forward, backward, optimizer step), each on a copy of the model.
memory: how far the resident memory of the process rises during one training step, in MiB.
"""

from __future__ import annotations

import copy
import ctypes
import gc
import json
import os
import statistics
import sys
import time

import torch

from bench.workloads import CPU, TRAIN


def _wrap(which: str, fn):
    if which == "eager":
        return fn
    if which == "torch.compile":
        return torch.compile(fn)
    import magneto

    return magneto.compile(fn, options={"freeze": which == "magneto freeze"})


def _tensors(value):
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        return [t for v in value.values() for t in _tensors(v)]
    if isinstance(value, (list, tuple)):
        return [t for v in value for t in _tensors(v)]
    return []


def first(name: str, which: str, cache: str) -> dict:
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.environ["MAGNETO_CACHE_DIR"] = cache
    if name in TRAIN:
        return _first_steps(name, which)
    fn, args = CPU[name].make()
    with torch.no_grad():
        fn(*args)  # libraries initialised, memory touched: the same for all three
        start = time.perf_counter()
        _wrap(which, fn)(*args)
        took = time.perf_counter() - start
    return {"name": name, "which": which, "ms": took * 1e3}


def _step(name: str, which: str, model, optimizer):
    """A training step as users of `which` write it: (args) -> detached loss."""
    training = TRAIN[name]
    compiled = model if which == "magneto" and training.whole else _wrap(which, model)

    def step(*args):
        optimizer.zero_grad()
        loss = compiled(*args)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return _wrap(which, step) if which == "magneto" and training.whole else step


def _first_steps(name: str, which: str) -> dict:
    model, args, optimizer = TRAIN[name].make()
    other = copy.deepcopy(model)
    _step(name, "eager", other, optimizer(other.parameters()))(*args)
    step = _step(name, which, model, optimizer(model.parameters()))
    start = time.perf_counter()
    step(*args)
    step(*args)  # an optimizer makes its state in the first step
    return {"name": name, "which": which, "ms": (time.perf_counter() - start) * 1e3}


def memory(name: str, which: str) -> dict:
    model, args, optimizer = TRAIN[name].make()
    step = _step(name, which, model, optimizer(model.parameters()))
    for _ in range(3):
        step(*args)

    def field(key: str) -> float:
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith(key)) / 1024

    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/clear_refs", "w") as peak:  # the peak starts again at what is resident now
        peak.write("5")
    before = field("VmRSS")
    step(*args)
    return {"name": name, "which": which, "peak_mib": field("VmHWM") - before}


def _steady_training(name: str, names: list[str]):
    """The functions to time, and after it the largest relative difference of the loss from eager's."""
    model, args, optimizer = TRAIN[name].make()
    models = {which: copy.deepcopy(model) for which in names}
    fns = {which: _step(name, which, m, optimizer(m.parameters())) for which, m in models.items()}
    results = {which: [f(*args) for _ in range(4)] for which, f in fns.items()}
    return fns, args, results


def steady(name: str, seconds: float = 20.0, peer: bool = True, freeze: bool = False) -> dict:
    names = ["eager", *["torch.compile"] * peer, "magneto", *["magneto freeze"] * freeze]
    with torch.set_grad_enabled(name in TRAIN):
        if name in TRAIN:
            fns, args, results = _steady_training(name, names)
        else:
            fn, args = CPU[name].make()
            fns = {which: _wrap(which, fn) for which in names}
            results = {which: _tensors(f(*args)) for which, f in fns.items()}
        for f in fns.values():
            f(*args)
        start = time.perf_counter()
        fns["eager"](*args)
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
    error = max(
        (
            float((a.double() - b.double()).abs().max() / b.double().abs().max().clamp_min(1e-30))
            for a, b in zip(results["magneto"], results["eager"], strict=True)
            if b.numel()
        ),
        default=0.0,
    )
    return {
        "name": name,
        "rounds": rounds,
        "error": error,
        **{which: {"min": min(t), "median": statistics.median(t)} for which, t in times.items()},
    }


def main() -> None:
    torch.set_num_threads(int(os.environ.get("MAGNETO_BENCH_THREADS", "2")))
    if sys.argv[1] == "first":
        result = first(*sys.argv[2:5])
    elif sys.argv[1] == "memory":
        result = memory(sys.argv[2], sys.argv[3])
    else:
        result = steady(
            sys.argv[2],
            float(sys.argv[3]) if len(sys.argv) > 3 else 20.0,
            "--no-peer" not in sys.argv,
            "--freeze" in sys.argv,
        )
    print(json.dumps(result))


if __name__ == "__main__":
    main()
