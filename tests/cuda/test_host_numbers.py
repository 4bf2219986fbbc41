"""Numbers of the CPU in graphs of a GPU: the host computes them, and optimizers' step counts are eager's."""

import copy

import pytest
import torch
from torch import nn

import magneto

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
DTYPES = [torch.float32, torch.float64, torch.int64, torch.int32, torch.float16, torch.bfloat16]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_arithmetic(dtype):
    def f(x, n):
        return x * (n + 1) - n * 3, x + 0.9 ** (n.double() + 2), torch.where(n > 2, n, n - 2) + x

    x = torch.randn(5, 3, device="cuda")
    compiled = magneto.compile(f)
    for value in (1, 0, 5, 3, 7):
        n = torch.tensor(value).to(dtype)
        torch.testing.assert_close(compiled(x, n), f(x, n))


def test_bools():
    def f(x, n):
        return torch.where(n, x, -x) * n.logical_not().add(1)

    x = torch.randn(5, 3, device="cuda")
    compiled = magneto.compile(f)
    for value in (True, False, True):
        torch.testing.assert_close(compiled(x, torch.tensor(value)), f(x, torch.tensor(value)))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_copies_between_devices(dtype):
    def f(x, there, here, n):
        there.copy_(n * 2)
        x[1].copy_(n)
        here.copy_(x.sum())
        return x + there

    compiled = magneto.compile(f)

    def inputs(value):
        return torch.ones(3, 4, device="cuda"), torch.zeros((), device="cuda"), torch.zeros(()), value

    for value in (3, 5, -1, 2):
        a, b = inputs(torch.tensor(value).to(dtype)), inputs(torch.tensor(value).to(dtype))
        torch.testing.assert_close(compiled(*a), f(*b))
        torch.testing.assert_close(a, b)


def test_written_numbers():
    """What is written to a number of the CPU is seen at the next call, and its version rises."""

    def f(x, n, m):
        n.add_(1)
        m.mul_(2).sub_(n.double())
        return x * n + m

    x = torch.ones(4, device="cuda")
    compiled = magneto.compile(f)
    n, m, n2, m2 = (
        torch.tensor(0.0),
        torch.tensor(3.0).double(),
        torch.tensor(0.0),
        torch.tensor(3.0).double(),
    )
    for _ in range(6):
        before = n._version
        torch.testing.assert_close(compiled(x, n, m), f(x, n2, m2))
        assert n._version > before
    torch.testing.assert_close((n, m), (n2, m2))


def test_a_number_that_is_returned():
    def f(x, n):
        k = n * 2 + 1
        return x * k, k, x + k.sqrt()

    x = torch.ones(4, device="cuda")
    compiled = magneto.compile(f)
    for value in (1.0, 2.0, 5.0):
        torch.testing.assert_close(compiled(x, torch.tensor(value)), f(x, torch.tensor(value)))


def test_nan_and_infinity():
    def f(x, n):
        return x * n.exp(), x + n.log(), x * (n / n)

    x = torch.ones(4, device="cuda")
    compiled = magneto.compile(f)
    for value in (1000.0, -1.0, 0.0, float("nan"), float("inf"), -0.0):
        n = torch.tensor(value)
        torch.testing.assert_close(compiled(x, n), f(x, n), equal_nan=True)


@pytest.mark.parametrize("kind", ["Adam", "AdamW", "NAdam", "RAdam", "Adamax", "ASGD", "Adagrad", "Adadelta"])
@pytest.mark.parametrize("foreach", [False, True])
def test_optimizers(kind, foreach):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)).cuda()
    other = copy.deepcopy(model)
    make = getattr(torch.optim, kind)
    opts = [make(m.parameters(), lr=1e-2, foreach=foreach) for m in (model, other)]

    def step(m, opt, x):
        loss = m(x).square().mean()
        loss.backward()
        opt.step()
        opt.zero_grad()
        return loss.detach()

    compiled = magneto.compile(lambda x: step(other, opts[1], x))
    for _ in range(8):
        x = torch.randn(8, 16, device="cuda")
        torch.testing.assert_close(compiled(x), step(model, opts[0], x), rtol=1e-4, atol=1e-6)
    for p, q in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(q, p, rtol=1e-3, atol=1e-5)
    for a, b in zip(opts[0].state.values(), opts[1].state.values(), strict=True):
        for key in a:
            torch.testing.assert_close(b[key], a[key], rtol=1e-3, atol=1e-5)
