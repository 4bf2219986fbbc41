"""Writes into parts of a tensor that the program passes, or fills: values as in eager, and nothing but the part is stored."""

import re

import pytest
import torch

import magneto
from magneto import _magneto
from tests.ops.sweep import check

N = 30
I = torch.tensor([3, 1, 7])


def rows(x, y):
    x[3] = y[0]
    x[7] += y[1]


def overlapping(x, y):
    x[0:5] += 1
    x[3:8] *= 2
    x[4, 2:9] = x[5, 3:10]


def columns(x, y):
    x[:, 2:20:3].copy_(y[:, :6])
    x.t()[4].zero_()


def nested(x, y):
    x[3:9][1:3, 5:8] = y[0, :3]


def diagonals(x, y):
    x.diagonal().mul_(y[0])
    x.t().diagonal(2).fill_(3.0)


def from_itself(x, y):
    x[0] = x[1] * 2
    x[1:4] = x[0:3].clone()


def each_from_the_other(x, y):
    x[0], y[0] = y[0] + 1, x[0] * 2


def read_between(x, y):
    x[0] = y[0]
    s = x.sum()
    x[1] = s
    return s, x[:2].clone(), x[2]


def scattered(x, y):
    x[I] = y[:3]
    y.index_add_(1, I, x[:, :3])
    x.index_fill_(0, I[:1], 2.0)


def scattered_from_itself(x, y):
    x[I] = x[:3] * 2
    x.index_add_(0, I, x[4:7])


PROGRAMS = (
    rows,
    overlapping,
    columns,
    nested,
    diagonals,
    from_itself,
    each_from_the_other,
    read_between,
    scattered,
    scattered_from_itself,
)


@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex128])
def test_parts(fn, dtype):
    x, y = torch.randn(N, N, dtype=torch.float64).to(dtype), torch.randn(N, N).to(dtype)
    check(fn, (x, y))
    check(fn, (x, x.clone().t()))
    check(fn, (torch.randn(N, 2 * N).to(dtype)[:, ::2], y))


def test_two_inputs_of_one_memory():
    x = torch.randn(N, N)
    for fn in PROGRAMS[:-2]:
        check(fn, (x, x.view(N, N)))


def cached(cache, new):
    cache[:, :, 5:6] = new


def row(x, y):
    x[3] += y


def copied(x, y):
    x.index_copy_(0, I[:2], y.expand(2, 64))


def diagonal(x, y):
    x.diagonal().mul_(2)


def stores(fn, args, capfd):
    """The shapes of the loops that store, sorted."""
    _magneto.set_logs("fusion")
    try:
        magneto.compile(fn, dynamic=False)(*args)
    finally:
        _magneto.set_logs("")
    return sorted(re.findall(r"(?:point|scatter) (\S+)", capfd.readouterr().err))


@pytest.mark.parametrize(
    "fn, stored",
    [(cached, ["[8,64]"]), (row, ["[64]", "[64]"]), (copied, ["[2,64]"]), (diagonal, ["[64]"])],
    ids=lambda p: getattr(p, "__name__", ""),
)
def test_only_the_part_is_stored(fn, stored, capfd):
    args = (
        (torch.zeros(2, 4, 512, 64), torch.ones(2, 4, 1, 64))
        if fn is cached
        else (torch.zeros(64, 64), torch.ones(64))
    )
    assert stores(fn, args, capfd) == stored


def filled(x, y):
    t = torch.empty(4, 64)
    for i in range(4):
        t[i] = y * i
    return t


def recurrent(x, y):
    t = torch.empty(3, 64)
    t[0] = y
    for i in (1, 2):
        t[i] = t[i - 1] * 0.5 + x[i]
    return t


def wrapped(x, y):
    return torch.nn.functional.pad(x[None], (1, 2), mode="circular")


def shifted(x, y):
    t = x + 1
    t[:, 8:12] = y[:4]
    t[2:10] = t[1:9].clone()  # reads what it overwrites
    t[:, 3] = 0
    return t


def kept(x, y):
    t = torch.zeros(4, 64)
    t[0] = y
    before = t * 2
    t[1] = y
    return t, before


FILLED = [
    (filled, ["[64]"] * 4),
    (recurrent, ["[64]"] * 3),
    (wrapped, ["[64]", "[64,2]", "[64,64]"]),
    (shifted, ["[4096]", "[512]", "[512]", "[64,4]", "[64]"]),
    (kept, None),
]


@pytest.mark.parametrize("fn, stored", FILLED, ids=lambda p: getattr(p, "__name__", ""))
def test_tensors_filled_part_by_part(fn, stored, capfd):
    args = (torch.randn(64, 64), torch.randn(64))
    check(fn, args)
    got = stores(fn, args, capfd)
    assert stored is None or got == sorted(stored)
