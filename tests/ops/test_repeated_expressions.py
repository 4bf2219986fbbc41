"""Expressions that a kernel repeats are functions of its module: LLVM's work for a long chain, and the numbers."""

import pytest
import torch
import torch.nn.functional as F

import magneto
from magneto import _magneto
from tests.support.same import assert_same

LINKS = {
    "gelu": lambda x, i: F.gelu(x) + 0.1,
    "softplus": lambda x, i: F.softplus(x) - 0.5,
    "pow": lambda x, i: (x.abs() + 0.5) ** (0.9 + i % 3 * 0.1),
    "two values": lambda x, i: torch.tanh(x) * torch.sigmoid(x * 0.5) + x,
    "masked": lambda x, i: torch.where(x > 0.2, torch.exp(-x), torch.tanh(x)),
    "silu": lambda x, i: F.silu(x) * 1.5,
}


def chain(link, n):
    def fn(x):
        for i in range(n):
            x = link(x, i)
        return x

    return fn


@pytest.mark.parametrize("points", [1, 7, 8, 31, 32, 33, 63, 95, 100, 4100])
@pytest.mark.parametrize("name", LINKS)
def test_numbers_at_every_rest(name, points):
    """The rest behind the widest vectors is none, part of a vector, or several vectors."""
    fn = chain(LINKS[name], 12)
    x = torch.linspace(-1.5, 1.5, points, requires_grad=True)
    y = x.detach().clone().requires_grad_()
    got, want = magneto.compile(fn)(x), fn(y)
    got.sum().backward()
    want.sum().backward()
    assert_same(got, want, rtol=2e-5, atol=2e-5)
    assert_same(x.grad, y.grad, rtol=2e-4, atol=2e-5)


def test_values_that_are_read_inside_and_outside():
    """What a cone would hide is still stored, and read by a second output."""

    def fn(x):
        kept = []
        for _ in range(9):
            half = torch.erf(x * 0.7) + 1
            kept.append(half)
            x = x * half * 0.5
        return x, kept

    x = torch.linspace(-2, 2, 133)
    got, want = magneto.compile(fn)(x), fn(x)
    assert_same(got[0], want[0], rtol=1e-5, atol=1e-6)
    for a, b in zip(got[1], want[1], strict=True):
        assert_same(a, b, rtol=1e-5, atol=1e-6)


def test_rows_with_sums():
    def fn(x):
        for _ in range(6):
            x = F.gelu(x - x.mean(-1, keepdim=True))
        return x

    for rows, columns in ((3, 50), (64, 33), (1, 200)):
        x = torch.randn(rows, columns, generator=torch.Generator().manual_seed(rows))
        assert_same(magneto.compile(fn)(x), fn(x), rtol=1e-4, atol=1e-5)


def code_of(fn, x, capfd, backward=True):
    _magneto.set_logs("output_code")
    try:
        capfd.readouterr()
        magneto.reset()
        _magneto.kernel_cache_clear()
        y = magneto.compile(fn)(x)
        if backward:
            y.sum().backward()
        return capfd.readouterr().err
    finally:
        _magneto.set_logs("")


@pytest.mark.parametrize("name, most", [("gelu", 45), ("softplus", 48), ("silu", 56)])
def test_text_grows_by_little_for_each_link(name, most, capfd):
    """In forward and backward, with the loops of each kernel: 74, 54 and 64 lines if each link is written out."""
    x = torch.linspace(-1, 1, 4099, requires_grad=True)
    short, long = (code_of(chain(LINKS[name], n), x, capfd).count("\n") for n in (40, 80))
    assert (long - short) / 40 < most


def widest_store(fn, x, capfd):
    text = code_of(fn, x, capfd, backward=False)
    return max(int(line.split("store <")[1].split()[0]) for line in text.splitlines() if "store <" in line)


@pytest.mark.parametrize("name, vectors", [("softplus", 4), ("gelu", 4)])
def test_a_forward_that_stores_every_link_takes_several_vectors(name, vectors, capfd):
    """They do not wait for one another: half the time.."""
    x = torch.linspace(-1, 1, 4099, requires_grad=True)
    one = widest_store(lambda x: x * 2 + 1, x, capfd)
    assert widest_store(chain(LINKS[name], 40), x, capfd) == vectors * one
