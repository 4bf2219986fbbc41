"""GPU rows: eager, magneto and, when asked, torch.compile's modes, interleaved in one process.

A row states three times in microseconds a call, each a median:
  latency     one synchronised call, the host included;
  throughput  calls back to back, waited for once;
  GPU         the same while the device is kept busy, so that the host does not count.
Cold is from wrapping to the end of the first call, with an empty cache folder; warm the same with the folder
filled.  Peak memory is PyTorch's allocator's above what the model and its inputs take.
TF32 is allowed for products and convolutions."""

from __future__ import annotations

import copy
import dataclasses
import gc
import os
import statistics
import tempfile
import time
from collections.abc import Callable

import torch

from bench import networks
from bench.networks import Classifier, adamw, sgd

KINDS = ("eager", "torch.compile", "reduce-overhead", "magneto")


@dataclasses.dataclass(frozen=True)
class Row:
    """make() returns (module or function, arguments); a row with an optimizer is a training step, and its
    module returns the loss.  whole: forward, backward and step are one compiled function for magneto."""

    make: Callable[[], tuple]
    optimizer: Callable | None = None
    whole: bool = False


def _vision(name: str, train: bool = False):
    def make():
        net = networks.vision(name)
        x = torch.randn(16, 3, 128, 128, device="cuda")
        if not train:
            return net.cuda(), (x,)
        return Classifier(net.train()).cuda(), (x, torch.randint(0, 1000, (16,), device="cuda"))

    return make


def _bert(train: bool = False, dropout: float = 0):
    def make():
        ids = torch.randint(0, 30000, (8, 128), device="cuda")
        if not train:
            return networks.bert().cuda().bfloat16(), (ids,)
        return networks.bert_with_loss(dropout).cuda(), (ids,)

    return make


def _gpt2(train: bool = False, dropout: float = 0):
    def make():
        ids = torch.randint(0, 50000, (4, 256), device="cuda")
        net = networks.gpt2_with_loss(dropout) if train else networks.gpt2()
        return net.cuda(), (ids,)

    return make


def _vit():
    return networks.vit().cuda(), (torch.randn(16, 3, 224, 224, device="cuda"),)


def _llama():
    return networks.llama().cuda().bfloat16(), (torch.randint(0, 32000, (4, 256), device="cuda"),)


def _tiny():
    return networks.tiny, (torch.randn(10, 10, device="cuda"), torch.randn(10, 10, device="cuda"))


def _pointwise():
    return networks.pointwise, (
        torch.randn(4096, 4096, device="cuda"),
        torch.randn(4096, 4096, device="cuda"),
    )


def _mlp(train: bool = False):
    def make():
        net = torch.nn.Sequential(
            torch.nn.Linear(256, 256),
            torch.nn.ReLU(),
            torch.nn.Linear(256, 256),
            torch.nn.ReLU(),
            torch.nn.Linear(256, 10),
        ).cuda()
        x = torch.randn(64, 256, device="cuda")
        return (Classifier(net), (x, torch.randint(0, 10, (64,), device="cuda"))) if train else (net, (x,))

    return make


class NoStep:
    """Stands for an optimizer in rows of gradients alone: it only forgets them."""

    def __init__(self, parameters) -> None:
        self.parameters = list(parameters)

    def step(self) -> None:
        pass

    def zero_grad(self) -> None:
        for p in self.parameters:
            p.grad = None


ROWS = {
    "sin+cos 10x10": Row(_tiny),
    "gelu.sin.sum 4096x4096": Row(_pointwise),
    "MLP b64": Row(_mlp()),
    "densenet121 b16x128": Row(_vision("densenet121")),
    "resnet50 b16x128": Row(_vision("resnet50")),
    "bert-base 8x128 bfloat16": Row(_bert()),
    "gpt2 4x256": Row(_gpt2()),
    "vit-base b16x224": Row(_vit),
    "llama 100M 4x256 bfloat16": Row(_llama),
    "MLP b64, gradients": Row(_mlp(True), NoStep),
    "densenet121 b16x128, gradients": Row(_vision("densenet121", True), NoStep),
    "resnet50 b16x128, gradients": Row(_vision("resnet50", True), NoStep),
    "bert-base 8x128, gradients": Row(_bert(True), NoStep),
    "gpt2 4x256, gradients": Row(_gpt2(True), NoStep),
    "MLP b64, step": Row(_mlp(True), sgd),
    "densenet121 b16x128, step": Row(_vision("densenet121", True), sgd),
    "resnet50 b16x128, step": Row(_vision("resnet50", True), sgd),
    "bert-base 8x128, step": Row(_bert(True), adamw),
    "gpt2 4x256, step": Row(_gpt2(True), adamw),
    "bert-base 8x128 dropout, step": Row(_bert(True, 0.1), adamw),
    "gpt2 4x256 dropout, step": Row(_gpt2(True, 0.1), adamw),
    "MLP b64, whole step": Row(_mlp(True), sgd, whole=True),
    "resnet50 b16x128, whole step": Row(_vision("resnet50", True), sgd, whole=True),
    "gpt2 4x256, whole step": Row(_gpt2(True), adamw, whole=True),
    "densenet121 b16x128, whole step": Row(_vision("densenet121", True), sgd, whole=True),
    "bert-base 8x128, whole step": Row(_bert(True), adamw, whole=True),
}


def wrap(kind: str, fn):
    if kind == "eager":
        return fn
    if kind == "magneto":
        import magneto

        return magneto.compile(fn)
    return torch.compile(fn, mode=None if kind == "torch.compile" else kind)


def call(row: Row, kind: str, model, args) -> Callable[[], torch.Tensor]:
    """One call of the row, as users of `kind` write it."""
    if not row.optimizer:
        fn = wrap(kind, model)
        return lambda: fn(*args)
    optimizer = row.optimizer(model.parameters())
    whole = row.whole and kind == "magneto"
    compiled = model if whole else wrap(kind, model)

    def step():
        loss = compiled(*args)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return wrap(kind, step) if whole else step


def _latency(fn) -> float:
    start = time.perf_counter()
    fn()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) * 1e6


def _back_to_back(fn, n: int, hidden: bool) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    if hidden:
        torch.cuda._sleep(int(4e7))  # about 20 ms, in which the host queues the calls
    start.record()
    for _ in range(n):
        fn()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) * 1e3 / n


def _first(row: Row, kind: str, model, args) -> tuple[float, Callable]:
    torch.cuda.synchronize()
    start = time.perf_counter()
    fn = call(row, kind, model, args)
    fn()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) * 1e3, fn


def _peak(fn) -> float:
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    fn()
    torch.cuda.synchronize()
    return (torch.cuda.max_memory_allocated() - before) / 2**20


def measure(name: str, kinds: list[str], seconds: float) -> dict:
    """One row: per kind its times, peak MiB and, but for eager, cold and warm milliseconds."""
    row = ROWS[name]
    torch.manual_seed(0)
    model, args = row.make()
    result: dict = {"name": name}
    fns = {}
    with torch.set_grad_enabled(row.optimizer is not None), tempfile.TemporaryDirectory() as folder:
        call(row, "eager", copy.deepcopy(model), args)()
        os.environ["MAGNETO_CACHE_DIR"] = folder
        for kind in kinds:
            cold, fns[kind] = _first(row, kind, copy.deepcopy(model), args)
            result[kind] = {"cold_ms": cold}
            if kind == "magneto":
                import magneto

                magneto.reset()
                result[kind]["warm_ms"], fns[kind] = _first(row, kind, copy.deepcopy(model), args)
        losses = {kind: [fn() for _ in range(4)][-1] for kind, fn in fns.items()}
        result["difference"] = _difference(losses["eager"], losses["magneto"]) if "magneto" in fns else None
        del losses
        for kind, fn in fns.items():
            result[kind]["peak_mib"] = _peak(fn)
        _steady(fns, result, seconds)
    return result


def _difference(a, b) -> float:
    a, b = (next(iter(v.values())) if isinstance(v, dict) else v for v in (a, b))
    return float((a.double() - b.double()).norm() / b.double().norm().clamp_min(1e-30))


def _steady(fns: dict, result: dict, seconds: float) -> None:
    times: dict = {kind: {"latency": [], "throughput": [], "gpu": []} for kind in fns}
    n = max(2, min(50, int(8e3 / max(_latency(fns["eager"]), 1))))
    deadline = time.perf_counter() + seconds * len(fns)
    while len(times["eager"]["latency"]) < 3 or time.perf_counter() < deadline:
        for kind, fn in fns.items():
            times[kind]["latency"] += [_latency(fn) for _ in range(max(3, n // 4))]
            times[kind]["throughput"].append(_back_to_back(fn, n, False))
            times[kind]["gpu"].append(_back_to_back(fn, max(2, n // 4), True))
    for kind, lists in times.items():
        result[kind] |= {what: statistics.median(list_) for what, list_ in lists.items()}
