"""Products of one operand with several weights, which run as one on a GPU."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import magneto

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


class Attention(nn.Module):
    def __init__(self, width, heads, kv_heads, bias):
        super().__init__()
        self.heads, self.kv_heads, size = heads, kv_heads, width // heads
        self.q = nn.Linear(width, width, bias=bias)
        self.k = nn.Linear(width, kv_heads * size, bias=bias)
        self.v = nn.Linear(width, kv_heads * size, bias=bias)
        self.out = nn.Linear(width, width, bias=bias)

    def forward(self, x):
        b, n, w = x.shape
        q = self.q(x).view(b, n, self.heads, -1).transpose(1, 2)
        k, v = (f(x).view(b, n, self.kv_heads, -1).transpose(1, 2) for f in (self.k, self.v))
        k, v = (t.repeat_interleave(self.heads // self.kv_heads, 1) for t in (k, v))
        return self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, n, w))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("kv_heads", [8, 2])
def test_attention(dtype, bias, kv_heads):
    torch.manual_seed(0)
    net = Attention(512, 8, kv_heads, bias).cuda().to(dtype)
    exact = Attention(512, 8, kv_heads, bias).cuda().double()
    compiled = magneto.compile(net)
    for _ in range(4):
        with torch.no_grad():
            for p in net.parameters():  # a changed weight is in the next call
                p.add_(torch.randn_like(p) * 0.05)
        exact.load_state_dict(net.state_dict())
        x = torch.randn(4, 128, 512, device="cuda", dtype=dtype)
        with torch.no_grad():
            got, eager, want = compiled(x), net(x), exact(x.double())
        wrong, noise = ((t.double() - want).norm() / want.norm() for t in (got, eager))
        assert wrong <= 2 * noise + 1e-6
        assert got.stride() == eager.stride()


def test_training():
    torch.manual_seed(0)
    net = Attention(512, 8, 8, True).cuda()
    compiled = magneto.compile(net)
    for _ in range(4):
        x = torch.randn(4, 128, 512, device="cuda", requires_grad=True)
        grads = []
        for f in (compiled, net):
            net.zero_grad()
            x.grad = None
            f(x).square().sum().backward()
            grads.append([x.grad, *(p.grad.clone() for p in net.parameters())])
        torch.testing.assert_close(*grads, rtol=2e-3, atol=2e-2)


def test_gated():
    torch.manual_seed(0)
    up, gate = (nn.Linear(512, 1408, bias=False).cuda().bfloat16() for _ in range(2))

    def fn(x):
        return F.silu(gate(x)) * up(x)

    compiled = magneto.compile(fn)
    for _ in range(4):
        x = torch.randn(2, 256, 512, device="cuda", dtype=torch.bfloat16)
        with torch.no_grad():
            torch.testing.assert_close(compiled(x), fn(x), rtol=2e-2, atol=2e-2)


def test_parts_that_the_program_gets():
    """Results keep strides and memory of their own."""
    torch.manual_seed(0)
    a, b = (nn.Linear(512, 512).cuda().bfloat16() for _ in range(2))

    def fn(x):
        return a(x), b(x).relu(), b(x).view(2, 256, 8, 64).transpose(1, 2)

    compiled = magneto.compile(fn)
    x = torch.randn(2, 256, 512, device="cuda", dtype=torch.bfloat16)
    with torch.no_grad():
        for _ in range(4):
            for got, want in zip(compiled(x), fn(x), strict=True):
                torch.testing.assert_close(got, want, rtol=2e-2, atol=2e-2)
                assert (
                    got.stride() == want.stride()
                    and got.untyped_storage().nbytes() == want.untyped_storage().nbytes()
                )
