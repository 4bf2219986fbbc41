"""Running sums and products of float32 on a CPU: kept in float64, as eager's kernels keep them."""

import pytest
import torch

import magneto
from tests.support.same import assert_same

INF = float("inf")


def rows(n, at):
    torch.manual_seed(0)
    x = torch.randn(n, 37) * 0.5
    x[at] = INF
    return x


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("n", [1, 7, 100])
@pytest.mark.parametrize("scan", [torch.cumsum, torch.cumprod])
def test_running_values_have_eagers_bits(scan, n, dim):
    x = rows(n, n // 3)
    assert_same(magneto.compile(lambda x: scan(x, dim))(x), scan(x, dim), rtol=0, atol=0)


def test_an_infinity_behind_a_small_product_is_no_nan():
    """The product of 300 factors is 0 in float32, and 1e-130 in float64."""
    x = rows(1000, 333)
    expected = x.cumprod(0)
    assert expected[-1].isinf().any() and not expected.isnan().any()
    assert_same(magneto.compile(lambda x: x.cumprod(0))(x), expected, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.int32])
def test_other_dtypes_have_eagers_bits(dtype):
    x = rows(33, 5).nan_to_num(posinf=3).to(dtype)
    assert_same(
        magneto.compile(lambda x: (x.cumsum(0), x.cumprod(1)))(x), (x.cumsum(0), x.cumprod(1)), rtol=0, atol=0
    )
