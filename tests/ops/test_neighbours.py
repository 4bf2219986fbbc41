"""A kernel writes its own elements and nothing behind them.

Rows of one element more than whole vectors: what is left over is a store of one element."""

import pytest
import torch

import magneto

DTYPES = [
    torch.bfloat16,
    torch.float16,
    torch.float32,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.bool,
]


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: str(d)[6:])
@pytest.mark.parametrize("n", [1, 7, 9, 16, 17, 18, 33, 65])
def test_memory_behind_a_result(dtype, n):
    wide = dtype if dtype.is_floating_point else torch.int64 if dtype is torch.int32 else torch.int32
    x, y = (torch.arange(n) % 7).to(wide), (torch.arange(5) % 3).to(wide)

    def sums(x, y, out):
        s = x[None] + y[:, None]
        return out.copy_(s > 3 if dtype is torch.bool else s)

    got, want = (torch.full((5 * n + 64,), 77).to(dtype) for _ in range(2))
    magneto.compile(sums, dynamic=False)(x, y, got[: 5 * n].view(5, n))
    sums(x, y, want[: 5 * n].view(5, n))
    assert torch.equal(got, want), (got != want).nonzero().flatten().tolist()


@pytest.mark.parametrize("n", [1, 16, 17, 33])
def test_memory_behind_a_gradient(n):
    x = torch.randn(3, 4, n).bfloat16()
    fast = magneto.compile(lambda x: (x.sin(), x.amax(1)), dynamic=False)
    for _ in range(50):  # one byte too many damages the allocator's own
        a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
        for t in fast(a):
            t.sum().backward(retain_graph=True)
        for t in (b.sin(), b.amax(1)):
            t.sum().backward()
        torch.testing.assert_close(a.grad, b.grad)


@pytest.mark.parametrize("n", [4, 16])
def test_scattered_rows(n):
    def add(x, index, rows):
        return x.index_add(0, index, rows), x.clone().scatter_add_(1, torch.arange(n).expand(3, n), rows)

    x, rows = torch.randint(0, 9, (3, n), dtype=torch.int8), torch.randint(0, 9, (3, n), dtype=torch.int8)
    index = torch.tensor([2, 0, 2])
    for got, want in zip(magneto.compile(add, dynamic=False)(x, index, rows), add(x, index, rows)):
        assert torch.equal(got, want)
