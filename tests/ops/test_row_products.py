"""Sums over long rows, of which several are read side by side: one row times a matrix, with what follows it."""

import itertools

import pytest
import torch
import torch.nn.functional as F

import magneto
from tests.ops import sweep

FORMS = {
    "product": lambda x, w, b: x @ w.t(),
    "bias and residual": lambda x, w, b: F.gelu(F.linear(x, w, b)) + b,
    "sum": lambda x, w, b: (w.sum(-1), (w * x).sum(-1) + b),
    "sum into int": lambda x, w, b: w.sum(-1) > b,
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("rows, points", itertools.product([1, 3, 4, 5, 34], [3072, 3073, 4099, 5000]))
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_rows_side_by_side(form, rows, points, dtype):
    torch.manual_seed(rows * points)
    x, w, b = torch.randn(1, points), torch.randn(rows, points), torch.randn(rows)
    f = FORMS[form]
    given = [t.to(dtype) for t in (x, w, b)]
    want, got = f(*(t.double() for t in given)), magneto.compile(f)(*given)
    for a, e in zip(*((v if isinstance(v, tuple) else (v,)) for v in (got, want)), strict=True):
        if a.dtype == torch.bool:
            assert (a != e).float().mean() < 0.1
        else:
            torch.testing.assert_close(
                a.double(), e, rtol=torch.finfo(dtype).eps * 8, atol=2e-3 if dtype == torch.float32 else 0.6
            )


def test_special_numbers_stay_in_their_row():
    w = torch.ones(9, 4096)
    w[2, 17], w[5, -1], w[7, 0] = float("nan"), float("inf"), -float("inf")
    sweep.check(lambda x, w: (w.sum(-1), F.linear(x, w)), (torch.ones(1, 4096), w))


def test_parts_of_rows_for_several_threads():
    x, w = torch.randn(1, 4096), torch.randn(1001, 4096)
    want = (x.double() @ w.double().t()).float()
    torch.testing.assert_close(magneto.compile(lambda x, w: x @ w.t())(x, w), want, rtol=1e-5, atol=1e-3)
