"""Matrix products by engines that are forced where oneDNN would be taken: every order of the operands,
biases, gradients, sizes that change."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import torch, magneto
torch.manual_seed(0)
def check(f, *args):
    got, want = magneto.compile(f)(*args), f(*args)
    for a, b in zip(got if isinstance(got, tuple) else (got,), want if isinstance(want, tuple) else (want,)):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)
        assert a.stride() == b.stride()
for dtype in (torch.float32, torch.float64):
    x, w, b = torch.randn(6, 40, dtype=dtype), torch.randn(40, 24, dtype=dtype), torch.randn(24, dtype=dtype)
    wide = torch.randn(40, 64, dtype=dtype)
    for left in (x, torch.randn(40, 6, dtype=dtype).t(), torch.randn(6, 80, dtype=dtype)[:, :40], torch.randn(6, 80, dtype=dtype)[:, ::2]):
        for right in (w, torch.randn(24, 40, dtype=dtype).t(), wide[:, 8:32], wide[:, ::2][:, :24]):
            check(torch.mm, left, right)
            check(torch.addmm, b, left, right)
            check(lambda b, left, right: torch.relu(torch.addmm(b, left, right, alpha=0.5, beta=2)), b, left, right)
    check(torch.matmul, torch.randn(3, 6, 40, dtype=dtype), w)
    check(torch.matmul, torch.randn(3, 6, 40, dtype=dtype), torch.randn(3, 40, 24, dtype=dtype))
    check(torch.matmul, torch.randn(6, 3, 40, dtype=dtype).transpose(0, 1), w)
    check(torch.mm, x[:1], w)
    check(torch.mm, x[:0], w)
    check(torch.mm, x[:, :0], w[:0])
import os
for f in (lambda x, w: x @ w, lambda x, w: x.t().contiguous().t() @ w, lambda x, w: torch.addmm(x[0, 0] + w[0], x, w), lambda x, w: x @ w.t().contiguous().t(), lambda x, w: x.double() @ w.double()):
    x, w = torch.randn(5, 40), torch.randn(40, 24)
    want, compiled = f(x, w), magneto.compile(f)
    compiled(x, w)
    child = os.fork()
    if not child:
        os._exit(0 if torch.allclose(compiled(x, w), want, atol=1e-4) else 1)
    assert os.waitpid(child, 0)[1] == 0
layer = torch.nn.Sequential(torch.nn.Linear(40, 24), torch.nn.GELU(), torch.nn.Linear(24, 5))
compiled = magneto.compile(layer)
for rows in (6, 9, 9, 17, 4, 2):
    x = torch.randn(rows, 40, requires_grad=True)
    grads = []
    for f in (layer, compiled):
        layer.zero_grad()
        x.grad = None
        f(x).square().sum().backward()
        grads.append([x.grad.clone(), *(p.grad.clone() for p in layer.parameters())])
    for a, b in zip(*grads):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)
"""


ENGINES = {
    "blas.gemm": {"MAGNETO_BLAS": "1"},
    "tiled.matmul": {"MAGNETO_GEMM": "1", "MAGNETO_ONEDNN": "0"},
}


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("engine", ENGINES)
def test_products(engine: str, threads: int) -> None:
    env = {**os.environ, **ENGINES[engine], "OMP_NUM_THREADS": str(threads), "MAGNETO_LOGS": "plan"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert engine in done.stderr


FROZEN = """
import torch, magneto
torch.manual_seed(0)
for rows, depth, columns in ((6, 40, 24), (130, 1700, 70), (33, 768, 100), (200, 1600, 64)):
    for bias in (False, True):
        layer = torch.nn.Sequential(torch.nn.Linear(depth, columns, bias), torch.nn.ReLU())
        fast, frozen = magneto.compile(layer), magneto.compile(layer, options={"freeze": True})
        x = torch.randn(2, rows, depth)
        with torch.no_grad():
            want = fast(x)
            torch.testing.assert_close(want, layer(x), rtol=1e-4, atol=1e-4)
            assert torch.equal(frozen(x), want)
            layer[0].weight.data.mul_(2)
            assert torch.equal(frozen(x), want)  # packed by the first call
            assert not torch.equal(fast(x), want)
"""


@pytest.mark.parametrize("level", ["x86-64-v2", "x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("threads", [1, 2])
def test_frozen_weights_are_packed_once_into_the_same_panels(level: str, threads: int) -> None:
    env = {**os.environ, "MAGNETO_GEMM": "1", "OMP_NUM_THREADS": str(threads), "MAGNETO_LOGS": "plan"}
    env["MAGNETO_CPU"] = level
    done = subprocess.run(
        [sys.executable, "-c", FROZEN], env=env, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "tiled.matmul" in done.stderr
