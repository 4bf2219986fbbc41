"""Interpolation of tensors whose sizes are symbols calls the operators that eager calls."""

import pytest
import torch
import torch.nn.functional as F

import magneto
from support import assert_counts, counts

MODES = [
    ("nearest", 1),
    ("nearest-exact", 2),
    ("nearest", 3),
    ("linear", 1),
    ("bilinear", 2),
    ("trilinear", 3),
    ("bicubic", 2),
]
HOW = [
    dict(scale_factor=2.0),
    dict(scale_factor=1.7),
    dict(scale_factor=0.6, recompute_scale_factor=True),
    None,
]


def made(shape, permuted):
    g = torch.Generator().manual_seed(sum(shape))
    x = torch.randn(shape, generator=g)
    x.view(-1)[1] = float("inf")
    if permuted:
        x = x.permute(*reversed(range(x.dim()))).contiguous().permute(*reversed(range(x.dim())))
    return x.requires_grad_()


@pytest.mark.parametrize("permuted", [False, True])
@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("mode, n", MODES)
def test_interpolation_of_changing_sizes(mode, n, how, permuted):
    def f(x):
        keys = how or {"size": tuple(2 * s for s in x.shape[2:])}
        return F.interpolate(x, mode=mode, **keys)

    magneto.reset()
    compiled = magneto.compile(f)
    for k in range(4):
        shape = (2, 3, *(5 + k + i for i in range(n)))
        x, y = made(shape, permuted), made(shape, permuted)
        want, got = f(x), compiled(y)
        assert got.stride() == want.stride()
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5, equal_nan=True)
        want.nan_to_num(0, 0, 0).sum().backward()
        got.nan_to_num(0, 0, 0).sum().backward()
        torch.testing.assert_close(y.grad, x.grad, rtol=1e-3, atol=1e-4, equal_nan=True)
    assert_counts(graphs=2, breaks=0)


def test_a_changing_number_of_channels():
    def f(x, y):
        return F.interpolate((x * y).reshape(1, -1, 1, 1), scale_factor=2.0, mode="bilinear")

    magneto.reset()
    compiled, before = magneto.compile(f), counts()
    for n in (2, 4, 8, 3):
        x = torch.full((n,), float("inf"))
        torch.testing.assert_close(compiled(x, torch.ones(n)), f(x, torch.ones(n)), equal_nan=True)
    assert_counts(before, graphs=2)
