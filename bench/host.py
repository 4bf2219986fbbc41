"""What calls of compiled code cost on the host, beside their kernels, and how fast frames are recorded.

One thread.  Guards are timed by themselves (best of rounds).
Calls are timed as whole calls, on tensors so small that kernels hardly count.
"""

from __future__ import annotations

import sys
import time
import types
from collections.abc import Callable

import torch

import bench.workloads  # noqa: F401  (torchvision's operators)
import magneto
from magneto import _magneto


def _microseconds(call: Callable[[], object], seconds: float = 0.5) -> float:
    """Of one call: the best of many rounds."""
    best, deadline = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < deadline:
        start = time.perf_counter()
        for _ in range(50):
            call()
        best = min(best, (time.perf_counter() - start) / 50)
    return best * 1e6


def _hit(model: torch.nn.Module, *args: torch.Tensor) -> tuple[float, float]:
    """Microseconds that a hit of the compiled model spends in guards, and beside its graph in all."""
    magneto.reset()
    compiled = magneto.compile(model)
    call = guards = graph = float("inf")
    with torch.no_grad():
        for _ in range(10):
            call = min(call, _microseconds(lambda: compiled(*args), 0.2))
            entries = _magneto.guard_time(torch.nn.Module._wrapped_call_impl, (model, args, {}), 50, 50)
            entry = next(e for e in entries if e["holds"])
            guards, graph = min(guards, entry["ns"] / 1e3), min(graph, entry["graph_ns"] / 1e3)
    return guards, call - graph


def _bytecodes(model: torch.nn.Module, *args: torch.Tensor) -> int:
    """How many bytecodes CPython runs for one eager call."""
    count = 0

    def trace(frame: types.FrameType, event: str, _: object) -> types.FunctionType:
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return trace

    with torch.no_grad():
        model(*args)
        old = sys.gettrace()
        sys.settrace(trace)
        try:
            model(*args)
        finally:
            sys.settrace(old)
    return count


def _recording(model: torch.nn.Module, *args: torch.Tensor) -> tuple[float, float]:
    """Million bytecodes a second, the best of several recordings.

    The first number counts those of the program, the second those that the recorder steps through.
    The second lacks torch.nn.Module's ``__call__`` without hooks and its ``__getattr__``: each is one step.
    """
    program, best = _bytecodes(model, *args), (0.0, 0.0)
    for _ in range(5):
        magneto.reset()
        with torch.no_grad():
            magneto.compile(model)(*args)
        stats = _magneto.stats()
        best = max(best, tuple(n / stats["record_ms"] / 1e3 for n in (program, stats["bytecodes"])))
    return best


def _recordings(name: str, *model: object) -> list[tuple]:
    program, stepped = _recording(*model)
    return [
        (f"{name}: recording, the program's bytecodes", "M/s", program, None),
        (f"{name}: recording, bytecodes stepped through", "M/s", stepped, None),
    ]


def _densenet() -> tuple:
    import torchvision

    return torchvision.models.densenet121().eval(), torch.randn(1, 3, 32, 32)


def _gpt2(**sizes: int) -> tuple:
    import transformers

    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes)).eval(), torch.zeros(
        1, 8, dtype=torch.long
    )


def _call(wrap: Callable) -> float:
    fn = wrap(lambda x, y: torch.sin(x) + torch.cos(y))
    x, y = torch.randn(10, 10), torch.randn(10, 10)
    fn(x, y)
    return _microseconds(lambda: fn(x, y))


def _breaks(wrap: Callable, stop: Callable[[], None]) -> float:
    def fn(x):
        x = x + 1
        stop()
        x = x * 2
        stop()
        x = x - 3
        stop()
        return x * x

    compiled, x = wrap(fn), torch.randn(10, 10)
    for _ in range(3):
        compiled(x)
    return _microseconds(lambda: compiled(x))


def rows(peer: bool) -> list[tuple[str, str, float, float | None]]:
    """(what, unit, magneto, torch.compile or None)."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.no_grad():
            both = [magneto.compile] + ([torch.compile] if peer else [])
            call = [_call(wrap) for wrap in both] + [None]
            densenet, gpt2 = (
                _hit(*_densenet()),
                _hit(*_gpt2(n_embd=24, n_positions=16, vocab_size=16)),
            )  # narrow: the graph's time varies less
            breaks = [
                _breaks(wrap, stop)
                for wrap, stop in zip(both, (magneto.graph_break, torch._dynamo.graph_break), strict=False)
            ] + [None]
        return [
            ("sin(x)+cos(y), 10x10: one call", "us", call[0], call[1]),
            ("three breaks, four graphs: one call", "us", breaks[0], breaks[1]),
            ("densenet121: guards of a hit", "us", densenet[0], None),
            ("GPT-2, 12 layers: guards of a hit", "us", gpt2[0], None),
            ("GPT-2, 12 layers: a hit beside its graph", "us", gpt2[1], None),
            *_recordings("densenet121", *_densenet()),
            *_recordings("GPT-2, 12 layers", *_gpt2()),
        ]
    finally:
        torch.set_num_threads(threads)
