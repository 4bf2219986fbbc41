"""One cell of the dashboard: a model, inference or training, and a kind of numbers, in a process of its own.

A training step here is forward and backward: the optimizer would be the same for all.  Dropout is off.
Accuracy: both eager and magneto are compared with the same model in float64, over all results and gradients.
A cell is right if magneto's error is at most three times eager's and one unit of rounding.
If not, eager runs again with each rounded number changed by a unit in its last place; that error counts, too.
Speed: rounds of all kinds, one after the other.  The interval holds the median ratio with 95 %.
"""

from __future__ import annotations

import contextlib
import copy
import ctypes
import gc
import math
import os
import statistics
import tempfile
import time
import traceback
from collections.abc import Callable

import numpy
import torch

from magneto._trust import judge

DTYPES = {"float32": torch.float32, "bf16": torch.bfloat16, "amp": torch.bfloat16}
SIZES_DIFFER = 1e-2  # of results over five sizes: more is looked at in float64


def tensors(value) -> list[torch.Tensor]:
    """The tensors of a result, in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        return [t for v in value.values() for t in tensors(v)]
    if isinstance(value, (list, tuple)):
        return [t for v in value for t in tensors(v)]
    return []


def without_dropout(model: torch.nn.Module) -> None:
    """Sets each probability of dropping something to 0."""
    for module in model.modules():
        for owner in (module, getattr(module, "config", None)):
            for name, value in list(vars(owner).items()) if owner is not None else []:
                if isinstance(value, float) and "drop" in name:
                    setattr(owner, name, 0.0)
        if isinstance(module, torch.nn.modules.dropout._DropoutNd):
            module.p = 0.0


def _cast(value, dtype: torch.dtype):
    return value.to(dtype) if isinstance(value, torch.Tensor) and value.is_floating_point() else value


class Runs:
    """A model's calls, as `mode` and `numbers` want them."""

    def __init__(self, model, args: tuple, kwargs: dict, mode: str, numbers: str, device: str = "cpu"):
        self.training, self.numbers, self.device = mode == "train", numbers, device
        self.model = model.train(self.training)
        without_dropout(model)
        # The judge's weights and inputs are those that the others round: bfloat16's, exactly.
        self.dtype = torch.bfloat16 if numbers == "bf16" else torch.float32
        self.model.to(device, self.dtype)
        move = lambda v: v.to(device) if isinstance(v, torch.Tensor) else v  # noqa: E731
        self.args = tuple(_cast(move(a), self.dtype) for a in args)
        self.kwargs = {k: _cast(move(v), self.dtype) for k, v in kwargs.items()}

    def scope(self):
        scope = contextlib.ExitStack()
        scope.enter_context(torch.set_grad_enabled(self.training))
        if self.numbers == "amp":
            scope.enter_context(torch.autocast(self.device, torch.bfloat16))
        return scope

    def call(self, fn, model) -> Callable[[], list[torch.Tensor]]:
        """One call of fn, which is `model` or its compiled form: results, and after training gradients."""

        def step():
            with self.scope():
                out = fn(*self.args, **self.kwargs)
            if not self.training:
                return tensors(out)
            parameters = list(model.parameters())
            for p in parameters:
                p.grad = None
            torch.stack([t.double().pow(2).mean() for t in tensors(out) if t.requires_grad]).sum().backward()
            return [t.detach() for t in tensors(out)] + [p.grad for p in parameters if p.grad is not None]

        return step

    def judge(self) -> list[torch.Tensor] | None:
        """Eager in float64; None if the model cannot run in it."""
        model = copy.deepcopy(self.model).double()
        wide = copy.copy(self)
        wide.numbers = "float32"
        wide.args = tuple(_cast(a, torch.float64) for a in self.args)
        wide.kwargs = {k: _cast(v, torch.float64) for k, v in self.kwargs.items()}
        try:
            return wide.call(model, model)()
        except (RuntimeError, TypeError, ValueError):  # the model's own: a dtype that it names itself
            return None


def error(got: list[torch.Tensor], want: list[torch.Tensor]) -> float:
    """The largest relative difference of a result, by norms; inf if shapes or places of NaN differ."""
    if len(got) != len(want):
        return math.inf
    worst = 0.0
    scale = max((float(t.double().norm()) / max(1, t.numel()) ** 0.5 for t in want), default=0.0)
    for a, b in zip(got, want, strict=True):
        a, b = a.double(), b.double()
        if a.shape != b.shape or not torch.equal(a.isfinite(), b.isfinite()):
            return math.inf
        a, b = a.nan_to_num(0, 0, 0), b.nan_to_num(0, 0, 0)
        # Gradients that are 0 but for rounding are held against the largest result.
        least = 1e-3 * scale * max(1, b.numel()) ** 0.5
        worst = max(worst, float((a - b).norm()) / max(float(b.norm()), least, 1e-30))
    return worst


def noisy_error(eager, exact: list[torch.Tensor]) -> float:
    """Eager's largest error if each rounded number changes by up to a unit in its last place.

    A maximum or a ReLU that goes the other way, and batch norms of few rows, make much of such a change.
    """
    worst = 0.0
    for seed in range(1, 1 + judge.NOISY_RUNS):
        torch.manual_seed(1)
        with judge.Noise(seed):
            worst = max(worst, error(eager(), exact))
    return worst


def accuracy(runs: Runs, eager, ours) -> dict:
    torch.manual_seed(1)
    want = eager()
    torch.manual_seed(1)
    got = ours()
    exact = runs.judge()
    eps = torch.finfo(DTYPES[runs.numbers]).eps
    result = {"difference": error(got, want), "judge": exact is not None}
    if exact is None:
        return result | {"right": result["difference"] <= 16 * eps}
    result |= {"error": error(got, exact), "eager_error": error(want, exact)}
    result["right"] = not result["error"] > 3 * result["eager_error"] + eps
    if not result["right"]:
        result["noisy_error"] = noisy_error(eager, exact)
        result["right"] = not result["error"] > 3 * result["noisy_error"] + eps
    if math.isinf(result["eager_error"]):  # eager overflows or is NaN: the same is wanted
        result["right"] = result["difference"] <= 16 * eps
    return {k: v if not isinstance(v, float) or math.isfinite(v) else None for k, v in result.items()} | {
        "right": bool(result["right"])
    }


def interval(values: list[float]) -> tuple[float, float, float]:
    """The median, and two of the values between which the true median lies with 95 %."""
    values = sorted(values)
    n = len(values)
    reach = 0.98 * math.sqrt(n)
    low, high = max(0, math.floor(n / 2 - reach)), min(n - 1, math.ceil(n / 2 + reach) - 1)
    return statistics.median(values), values[low], values[high]


def speed(calls: dict[str, Callable], seconds: float, wait: Callable[[], None]) -> dict:
    """Per kind the median milliseconds; per kind but eager the ratio of eager's time to its own."""

    def once(fn, n: int) -> float:
        start = time.perf_counter()
        for _ in range(n):
            fn()
        wait()
        return (time.perf_counter() - start) / n

    inner = max(1, int(2e-3 / max(once(calls["eager"], 1), 1e-7)))
    times: dict[str, list[float]] = {kind: [] for kind in calls}
    deadline = time.perf_counter() + seconds
    while len(times["eager"]) < 5 or (time.perf_counter() < deadline and len(times["eager"]) < 400):
        for kind, fn in calls.items():
            times[kind].append(once(fn, inner))
    result = {}
    for kind, list_ in times.items():
        result[kind] = {"ms": statistics.median(list_) * 1e3}
        if kind != "eager":
            ratios = [e / t for e, t in zip(times["eager"], list_, strict=True)]
            result[kind] |= dict(zip(("speed", "least", "most"), interval(ratios), strict=True))
    result["rounds"] = len(times["eager"])
    return result


def peak_mib(fn, device: str) -> float:
    """How far the memory in use rises during one call."""
    gc.collect()
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        fn()
        return (torch.cuda.max_memory_allocated() - before) / 2**20

    def field(key: str) -> float:
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith(key)) / 1024

    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/clear_refs", "w") as peak:  # the peak starts again at what is resident now
        peak.write("5")
    before = field("VmRSS")
    fn()
    return max(0.0, field("VmHWM") - before)


def _host_us(runs: Runs) -> float | None:
    """Microseconds of the guards of a call; None if more than one graph or none takes part."""
    from magneto import _magneto

    with runs.scope():
        found = _magneto.guard_time(
            torch.nn.Module._wrapped_call_impl, (runs.model, runs.args, runs.kwargs), 20
        )
    held = [e["ns"] for e in found if e["holds"]]
    return held[0] / 1e3 if len(held) == 1 else None


def _seeded(fn):
    """The same random numbers at each call, of torch and of NumPy, which some models draw masks from."""
    torch.manual_seed(1)
    numpy.random.seed(1)
    return fn()


def repeated(results: list[torch.Tensor], rows: int, batch: int) -> list[torch.Tensor] | None:
    """Results of `batch` rows that repeat `rows` ones, each row for itself; None if it is not so simple."""
    if not all(t.dim() and t.shape[0] == rows for t in results):
        return None
    return [t[torch.arange(batch, device=t.device) % rows] for t in results]


def _beyond_rounding(runs: Runs, compiled, other, likely: list[torch.Tensor] | None = None) -> float:
    """How far the compiled model's results are from eager's; 0 if float64 says that it is rounding.

    likely: eager's results if rows do not depend on one another.  Eager runs if the compiled ones are others.
    """
    got = _seeded(runs.call(compiled, runs.model))
    if likely is not None and (differ := error(got, likely)) <= SIZES_DIFFER:
        return differ
    want = _seeded(runs.call(other, other))
    differ = error(got, want)
    exact = _seeded(runs.judge) if differ > SIZES_DIFFER else None
    if exact is None:
        return differ
    eps = torch.finfo(DTYPES[runs.numbers]).eps
    ours, theirs = error(got, exact), error(want, exact)
    if ours > 3 * theirs + eps:
        theirs = noisy_error(lambda: _seeded(runs.call(other, other)), exact)
    return 0.0 if ours <= 3 * theirs + eps else differ


def _sizes(model, mode: str, numbers: str, device: str, made: tuple) -> dict:
    """Graphs, breaks and recompiles of one compiled function over five sizes; results have to be eager's."""
    import magneto
    from bench.models import resized
    from tests.support import counts

    magneto.reset()
    before = counts()
    runs = Runs(*copy.deepcopy(made), mode, numbers, device)
    other = copy.deepcopy(runs.model)
    compiled = magneto.compile(runs.model)
    whole = runs.args, runs.kwargs
    rows = next((t.shape[0] for t in tensors([*whole[0], whole[1]]) if t.dim()), 0)
    once = None if runs.training else _seeded(runs.call(other, other))
    worst = 0.0
    for batch in model.sizes:
        runs.args, runs.kwargs = resized(model, *whole, batch)
        likely = repeated(once, rows, batch) if once else None
        worst = max(worst, _beyond_rounding(runs, compiled, other, likely))
    if worst > SIZES_DIFFER:
        raise ArithmeticError(f"results differ from eager's by {worst:.1e}")
    now = counts(before)
    return {"graphs": now.graphs, "breaks": now.breaks, "recompiles": now.recompiles, "reasons": now.reasons}


def _peer(name: str, runs: Runs, model) -> Callable:
    """The model as another compiler runs it."""
    if name == "torch.compile":
        return runs.call(torch.compile(model), model)
    if runs.training or runs.numbers != "float32":
        raise ValueError(f"{name} runs inference in float32 only")
    if name == "openvino":
        import openvino

        example = runs.kwargs or runs.args
        request = openvino.compile_model(
            openvino.convert_model(model, example_input=example),
            "CPU",
            {"INFERENCE_NUM_THREADS": torch.get_num_threads()},
        )
        inputs = [a.numpy() for a in (runs.kwargs.values() if runs.kwargs else runs.args)]
        return lambda: request(inputs)
    import onnxruntime

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.onnx")
        torch.onnx.export(model, runs.args, path, kwargs=runs.kwargs, dynamo=True, verbose=False)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    values = [*runs.args, *runs.kwargs.values()]
    feed = {i.name: v.numpy() for i, v in zip(session.get_inputs(), values, strict=True)}
    return lambda: session.run(None, feed)


def _first(fn) -> float:
    start = time.perf_counter()
    fn()
    return (time.perf_counter() - start) * 1e3


def measure(
    name: str, mode: str, numbers: str, device: str, seconds: float, peers: list[str], quick: bool = False
) -> dict:
    """All figures of a cell; {"absent": name} if the library of its model is missing.

    {"refused": error} if the model itself cannot run in eager, as with numbers that it does not take.

    quick: five sizes are tried in inference only; in training they take half of a cell's time.
    """
    import magneto
    from bench.models import MODELS
    from tests.support import counts

    torch.manual_seed(0)
    model = MODELS[name]
    try:
        made = model.make()
    except ModuleNotFoundError as e:  # the model's library is not installed
        return {"absent": e.name or str(e)}
    runs = Runs(*copy.deepcopy(made), mode, numbers, device)
    wait = torch.cuda.synchronize if device == "cuda" else (lambda: None)
    eager_model = copy.deepcopy(runs.model)
    eager = runs.call(eager_model, eager_model)
    try:
        eager()
    except Exception as e:  # the model's own: there is nothing to compare with
        return {"refused": f"{type(e).__name__}: {e}".splitlines()[0][:200]}
    before = counts()
    ours = runs.call(magneto.compile(runs.model), runs.model)
    start = {"cold_ms": _first(lambda: (ours(), wait()))}
    magneto.reset()
    ours = runs.call(magneto.compile(runs.model), runs.model)
    start["warm_ms"] = _first(lambda: (ours(), wait()))
    # Both models have run, and so changed their statistics, a different number of times.
    state = {k: v.clone() for k, v in eager_model.state_dict().items()}
    runs.model.load_state_dict(state)
    cell = {**start, **accuracy(runs, eager, ours)}
    calls = {"eager": eager, "magneto": ours}
    trouble = {}
    for peer in peers:
        try:
            other = copy.deepcopy(eager_model)
            with contextlib.nullcontext() if runs.training else torch.no_grad():
                fn = _peer(peer, runs, other)
            fn()
            calls[peer] = fn
        except Exception as e:  # a compiler that cannot take the model is no failure of this cell
            trouble[peer] = f"{type(e).__name__}: {e}".splitlines()[0][:200]
    cell["times"] = speed(calls, seconds, wait)
    cell["host_us"] = _host_us(runs) if mode == "infer" and numbers != "amp" else None
    cell["peak_mib"] = {kind: peak_mib(calls[kind], device) for kind in ("eager", "magneto")}
    cell["fallbacks"] = counts(before).fallbacks
    cell["peers_failed"] = trouble
    if numbers == "float32" and not (quick and mode == "train"):
        try:
            cell["sizes"] = _sizes(model, mode, numbers, device, made)
        except Exception as e:
            cell["sizes_failed"] = f"{type(e).__name__}: {e}"[:300]
    cell["cpu_s"] = time.process_time()  # of the whole cell, on all cores
    return cell


def run(into, name: str, mode: str, numbers: str, options: dict) -> None:
    """Entry point of the process of a cell: sends the figures, or what failed, through `into`."""
    os.environ["MAGNETO_STRICT"] = "0"
    with tempfile.TemporaryDirectory() as folder:
        os.environ["MAGNETO_CACHE_DIR"] = os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
        torch.set_num_threads(options["threads"])
        try:
            given = {key: options[key] for key in ("device", "seconds", "peers", "quick")}
            into.send(measure(name, mode, numbers, **given))
        except BaseException as e:
            place = traceback.extract_tb(e.__traceback__)[-1]
            into.send(
                {
                    "failed": f"{type(e).__name__}: {e} ({os.path.basename(place.filename)}:{place.lineno})"[
                        :600
                    ]
                }
            )
