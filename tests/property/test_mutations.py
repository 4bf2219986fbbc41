"""Whatever a recording read may change: the next call gives what eager gives.  Changes are made in random order."""

import builtins
import contextlib
import os
import subprocess
import sys
import warnings

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import magneto
import mutations


@contextlib.contextmanager
def torch_state():
    """What a program changes of torch lasts no longer than the program, in each example."""
    threads, patched = torch.get_num_threads(), dict(vars(torch.Tensor))
    names = [
        (torch, "sin"),
        (torch.nn.functional, "relu"),
        (mutations.math, "sqrt"),
        (builtins, "max"),
        (torch.nn.Linear, "forward"),
        (torch.nn.Module, "__call__"),
    ]
    saved = [(o, n, vars(o)[n]) for o, n in names]
    try:
        yield
    finally:
        torch_state_back(threads, patched, saved)


def torch_state_back(threads, patched, saved):
    torch.set_default_device(None)
    torch.set_default_dtype(torch.float32)
    torch.use_deterministic_algorithms(False)
    torch.set_num_threads(threads)
    torch.set_grad_enabled(True)
    torch.set_autocast_enabled("cpu", False)
    torch.set_autocast_dtype("cpu", torch.bfloat16)
    torch.set_autocast_cache_enabled(True)
    torch.nn.modules.module._global_forward_hooks.clear()
    for o, n, v in saved:
        setattr(o, n, v)
    for n in set(vars(torch.Tensor)) - set(patched):
        delattr(torch.Tensor, n)
    for n, v in patched.items():
        if vars(torch.Tensor)[n] is not v:
            setattr(torch.Tensor, n, v)


def plain(v):
    """A value that compares with ==, tensors by all that user code can see of them."""
    if isinstance(v, torch.Tensor):
        values = None if v.device.type == "meta" else v.detach().tolist()
        return type(v), v.dtype, tuple(v.shape), v.requires_grad, v.device.type, values
    return [plain(i) for i in v] if isinstance(v, (tuple, list)) else v


def run(f, x):
    try:
        return plain(f(x.clone()))
    except Exception as e:
        return f"{type(e).__name__}: {e}"


def close(a, b):
    if type(a) is not type(b):
        return False
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(close, a, b))
    if isinstance(a, float):
        return a == b or abs(a - b) <= 1e-4 * max(1, abs(a), abs(b)) or (a != a and b != b)
    return a == b


def check(name, order):
    f, changes = mutations.CASES[name]()
    magneto.reset()
    compiled = magneto.compile(f, options={"recompile_limit": 100})
    x = torch.arange(9.0).reshape(3, 3).sub(4.1)
    if not any(k in name for k in ("net", "patch", "module", "parametrize")):
        x = x[1].clone()
    done = []
    with torch_state(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for i in [None, *order]:
            if i is not None:
                try:
                    changes[i % len(changes)]()
                except (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError):
                    continue  # not possible in this order
                done.append(i % len(changes))
            for _ in range(2):
                want, got = run(f, x), run(compiled, x)
                assert close(want, got), f"{name}, after changes {done}: eager {want}, compiled {got}"


# What cannot be taken back: a type that once had a __getitem__ of Python's own is a sequence ever after for C code,
# and torch.tensor([t[0]]) asks a tensor without dimensions for its length.
LASTING = ["patch Tensor.__getitem__"]


def check_in_order(name):
    check(name, range(len(mutations.CASES[name]()[1])))


@pytest.mark.parametrize("name", [n for n in mutations.CASES if n not in LASTING])
def test_in_order(name):
    check_in_order(name)
    assert torch.tensor([torch.ones(2)[0]]).item() == 1, "see LASTING"


@pytest.mark.parametrize("name", LASTING)
def test_in_order_in_a_process_of_its_own(name):
    subprocess.run(
        [sys.executable, "-c", f"import test_mutations; test_mutations.check_in_order({name!r})"],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        check=True,
    )


FEW = [n for n in mutations.CASES if len(mutations.CASES[n]()[1]) > 1 and n not in LASTING]


@settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(name=st.sampled_from(FEW), order=st.lists(st.integers(0, 11), min_size=1, max_size=6))
def test_in_any_order(name, order):
    check(name, order)
