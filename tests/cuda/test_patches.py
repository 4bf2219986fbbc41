"""Convolutions that cut their input into patches are products on a GPU; results and gradients as eager's."""

import itertools

import pytest
import torch

import magneto

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
CONVOLUTION = torch.nn.functional.conv2d


def operands(channels=3, filters=24, patch=(4, 8), image=(28, 32), batch=2, bias=True, dtype=torch.float32):
    torch.manual_seed(0)
    made = [torch.randn(batch, channels, *image), torch.randn(filters, channels, *patch)]
    made += [torch.randn(filters)] if bias else []
    return [t.to("cuda", dtype) for t in made]


def check(*inputs, stride, tolerance=2e-3, **options):
    def function(*inputs):
        return CONVOLUTION(*inputs, stride=stride, **options).flatten(2).transpose(1, 2) * 2

    compiled = magneto.compile(function)
    for _ in range(3):
        got = compiled(*inputs)
    wanted = function(*(t.double() for t in inputs))
    assert got.dtype == inputs[0].dtype
    scale = wanted.abs().max().item()
    assert (got.double() - wanted).abs().max().item() <= tolerance * scale


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("channels", [1, 3, 4, 5])
def test_channels(channels, bias):
    check(*operands(channels, bias=bias), stride=(4, 8))


def test_layouts():
    x, w, b = operands()
    last = torch.channels_last
    forms = (torch.Tensor.contiguous, lambda t: t.to(memory_format=last), lambda t: t.flip(0).transpose(2, 3))
    for fx, fw in itertools.product(forms[:2], forms[:2]):
        check(fx(x), fw(w), b, stride=(4, 8))
    check(torch.randn(2, 3, 64, 28, device="cuda").transpose(2, 3)[..., ::2], w, b, stride=(4, 8))
    check(x[:1].expand(3, -1, -1, -1), w, b, stride=(4, 8))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_halves(dtype):
    check(*operands(dtype=dtype), stride=(4, 8), tolerance=2e-2)


def test_others():
    """What is no cutting into patches stays a convolution."""
    check(*operands(), stride=(4, 7))
    check(*operands(image=(30, 33)), stride=(4, 8))
    check(*operands(), stride=(4, 8), padding=(4, 8))
    check(*operands(patch=(2, 4)), stride=(2, 4), dilation=(2, 2))
    x, w, b = operands(6)
    check(x, w[:, :3].contiguous(), b, stride=(4, 8), groups=2)


def test_gradients():
    inputs = [t.requires_grad_() for t in operands()]
    seed = torch.randn(2, 24, 7, 4, device="cuda")
    compiled = magneto.compile(lambda *i: CONVOLUTION(*i, stride=(4, 8)))
    wanted = torch.autograd.grad(CONVOLUTION(*inputs, stride=(4, 8)), inputs, seed)
    for _ in range(3):
        got = torch.autograd.grad(compiled(*inputs), inputs, seed)
    for g, w in zip(got, wanted):
        torch.testing.assert_close(g, w, rtol=1e-2, atol=2e-2)
