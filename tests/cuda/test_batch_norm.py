"""Batch norm in training on a GPU: statistics, results and gradients as cuDNN's."""

import copy

import pytest
import torch
from torch import nn

import magneto

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

SHAPES = {
    "few channels": (8, 3, 5, 7),
    "one image": (1, 16, 9, 9),
    "one place": (6, 40, 1, 1),
    "many places": (16, 64, 32, 32),
    "many channels": (4, 1024, 4, 4),
    "odd": (3, 33, 11, 13),
    "a signal": (4, 12, 50),
    "a volume": (2, 6, 4, 5, 3),
    "rows": (64, 24),
}


def norm_of(shape):
    kinds = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}
    return kinds[len(shape)]


def trained(net, x, calls, exact):
    """Results, gradients and buffers after some calls, beside those of float64."""
    net, x = net.to(x.device), x.detach()
    out = []
    run = magneto.compile(net) if exact is None else net
    for k in range(calls):
        net.zero_grad()
        a = (x + k).requires_grad_()
        y = run(a)
        (
            y.relu() * torch.linspace(-1, 2, y.numel(), device=y.device, dtype=y.dtype).view_as(y)
        ).sum().backward()
        out += [y.detach(), a.grad, *(p.grad.clone() for p in net.parameters())]
    return out + [b.clone() for b in net.buffers()]


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_as_float64(shape, channels_last):
    if channels_last and len(shape) != 4:
        pytest.skip("four dimensions only")
    torch.manual_seed(0)
    net = norm_of(shape)(shape[1], momentum=0.3)
    nn.init.normal_(net.weight)
    nn.init.normal_(net.bias)
    x = torch.randn(shape) * torch.rand(shape[1]).view(1, -1, *[1] * (len(shape) - 2)) * 9 + 40
    x = x.cuda()
    if channels_last:
        x = x.to(memory_format=torch.channels_last)
    ours = trained(copy.deepcopy(net), x, 3, None)
    eager = trained(copy.deepcopy(net), x, 3, True)
    exact = trained(copy.deepcopy(net).double(), x.double(), 3, True)
    for k, (a, b, c) in enumerate(zip(ours, eager, exact, strict=True)):
        scale = c.double().abs().max().clamp(min=1e-6)
        wrong, noise = ((t.double() - c.double()).abs().max() / scale for t in (a, b))
        assert wrong <= 3 * noise + 2e-6, (k, wrong, noise)
        assert a.dtype == b.dtype and a.stride() == b.stride()


@pytest.mark.parametrize(
    "options",
    [{"affine": False}, {"momentum": None}, {"track_running_stats": False}],
    ids=lambda o: next(iter(o)),
)
def test_options(options):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8, **options), nn.ReLU()).cuda()
    ours, theirs = copy.deepcopy(net), copy.deepcopy(net)
    compiled = magneto.compile(ours)
    for _ in range(4):
        x = torch.randn(4, 3, 12, 12, device="cuda")
        a, b = compiled(x), theirs(x)
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)
        a.square().sum().backward()
        b.square().sum().backward()
    for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(p.grad, q.grad, rtol=2e-3, atol=2e-2)
    for p, q in zip(ours.buffers(), theirs.buffers(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-3, atol=1e-4)


def test_statistics_are_read_beside_being_written():
    net = nn.BatchNorm2d(6).cuda()
    theirs = copy.deepcopy(net)

    def fn(m, x):
        before = m.running_mean.clone()
        y = m(x)
        return y + m.running_mean.view(1, -1, 1, 1) - before.view(1, -1, 1, 1), m.running_var * 2

    compiled = magneto.compile(fn)
    for _ in range(4):
        x = torch.randn(3, 6, 5, 5, device="cuda") + 3
        torch.testing.assert_close(compiled(net, x), fn(theirs, x), rtol=1e-4, atol=1e-5)


def test_autocast_and_half():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 1)).cuda()
    ours, theirs = copy.deepcopy(net), copy.deepcopy(net)
    compiled = magneto.compile(ours)
    for dtype in (torch.float16, torch.bfloat16):
        for _ in range(3):
            x = torch.randn(4, 3, 12, 12, device="cuda")
            with torch.autocast("cuda", dtype):
                a, b = compiled(x), theirs(x)
            torch.testing.assert_close(a, b, rtol=3e-2, atol=3e-2)
            for y in (a, b):
                y.float().square().mean().backward()
    for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(p.grad, q.grad, rtol=5e-2, atol=5e-2)


def test_numbers_that_are_far_from_zero():
    """The difference of squares is taken in float64."""
    net = nn.BatchNorm2d(4).cuda()
    x = torch.randn(8, 4, 16, 16, device="cuda") * 1e-2 + 1e3
    y = magneto.compile(copy.deepcopy(net))(x)
    want = copy.deepcopy(net).double()(x.double())
    assert (y - want).abs().max() < 1e-2  # of a mean that float32 rounds to 6e-5, 6e-3 deviations
    same = torch.full_like(x, 7.25)
    assert not magneto.compile(copy.deepcopy(net))(same).any()


def test_infinities():
    net = nn.BatchNorm2d(3).cuda()
    x = torch.randn(2, 3, 4, 4, device="cuda")
    x[0, 0, 0, 0], x[0, 1, 0, 0] = float("inf"), float("nan")
    torch.testing.assert_close(
        magneto.compile(copy.deepcopy(net))(x), net(x), equal_nan=True, rtol=1e-4, atol=1e-5
    )
