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


def run_by_tiles(program: str, level: str, threads: int) -> None:
    """Runs it in a process of its own, where our tiles have to take part."""
    env = {**os.environ, "MAGNETO_GEMM": "1", "OMP_NUM_THREADS": str(threads), "MAGNETO_LOGS": "plan"}
    env["MAGNETO_CPU"] = level
    done = subprocess.run(
        [sys.executable, "-c", program], env=env, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "tiled.matmul" in done.stderr


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
    run_by_tiles(FROZEN, level, threads)


SHORT = """
import torch, magneto
torch.manual_seed(0)
gelu = torch.nn.functional.gelu
for dtype in (torch.float16, torch.bfloat16):
    def check(f, *args):
        # as near to float64 as eager is
        args = [a.to(dtype) for a in args]
        exact, got, eager = f(*[a.double() for a in args]), magneto.compile(f)(*args), f(*args)
        assert got.dtype == dtype and got.shape == eager.shape and got.stride() == eager.stride()
        ours, theirs = ((t.double() - exact).abs().max() for t in (got, eager))
        assert ours <= 1.2 * theirs + torch.finfo(dtype).eps / 8, (dtype, ours, theirs)
    for m, k, n in ((5, 40, 24), (130, 1700, 70), (33, 63, 100), (12, 8, 9), (200, 129, 64)):
        x, w, b = torch.randn(m, k), torch.randn(k, n) / k**0.5, torch.randn(n)
        for left in (x, x.t().contiguous().t(), torch.randn(m, 2 * k)[:, :k]):
            for right in (w, w.t().contiguous().t(), (torch.randn(k, 2 * n) / k**0.5)[:, ::2]):
                check(torch.mm, left, right)
        check(torch.addmm, b, x, w)
        check(lambda x, w, b, r: gelu(torch.addmm(b, x, w)) + r, x, w, b, torch.randn(m, n))
        check(lambda x, w: (x @ w).t().contiguous(), x, w)
        check(torch.matmul, torch.randn(3, m, k), torch.randn(3, k, n) / k**0.5)
        check(torch.matmul, torch.randn(3, m, k), w)
    for m, k, n in ((1, 40, 24), (3, 64, 2), (8, 1, 8), (2, 3, 4)):  # some are too thin for tiles
        check(torch.mm, torch.randn(m, k), torch.randn(k, n))
        check(torch.addmm, torch.randn(m, 1), torch.randn(m, k), torch.randn(k, n))
        check(torch.addmm, torch.randn(n, m).t(), torch.randn(m, k), torch.randn(k, n))
    x = torch.full((8, 16), float("nan"), dtype=dtype)
    x[4:] = float("inf")
    got = magneto.compile(torch.mm)(x, torch.ones(16, 8, dtype=dtype))
    assert got[:4].isnan().all() and (got[4:] == float("inf")).all()
    layer = torch.nn.Sequential(torch.nn.Linear(40, 24), torch.nn.ReLU()).to(dtype)
    frozen = magneto.compile(layer, options={"freeze": True})
    x = torch.randn(9, 40, dtype=dtype)
    with torch.no_grad():
        assert torch.equal(frozen(x), magneto.compile(layer)(x)) and torch.equal(frozen(x), frozen(x))
"""


@pytest.mark.parametrize("level", ["x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("threads", [1, 2])
def test_16_bit_products_are_widened_where_the_processor_has_none(level: str, threads: int) -> None:
    run_by_tiles(SHORT, level, threads)
