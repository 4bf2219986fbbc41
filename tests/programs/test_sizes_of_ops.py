"""Operators without a shape rule of ours, at sizes that differ from call to call: two recordings, with any back end."""

import pytest
import torch
import torch.nn.functional as F
from torch._dynamo.testing import CompileCounter

import magneto
from support import assert_same, counts

SIZES = ((3, 5), (5, 8), (7, 11), (9, 14), (4, 6))
MATRICES = [(torch.randn(p, q),) for p, q in SIZES]
SQUARE = [(torch.randn(p, p) + 5 * torch.eye(p),) for p, _ in SIZES]
IMAGES = [(torch.randn(2, 4, 2 * p, 2 * q),) for p, q in SIZES]
VECTORS = [(torch.randn(p),) for p, _ in SIZES]
PAIRS = [(torch.randn(p, 8), torch.randn(q, 8)) for p, q in SIZES]
GRIDS = [(torch.rand(1, p, q, 2) * 2 - 1,) for p, q in SIZES]
PICTURE, VOLUME = torch.randn(1, 2, 9, 9), torch.randn(1, 1, 4, 4, 4)
ATTENTION, OUT = torch.randn(24, 8), torch.randn(8, 8)

CASES = {
    "grid_sample": (lambda g: F.grid_sample(PICTURE, g, align_corners=False), GRIDS),
    "grid_sample_3d": (
        lambda g: F.grid_sample(VOLUME, torch.cat([g, g[..., :1]], -1)[:, None], align_corners=False),
        GRIDS,
    ),
    "unfold": (lambda a: F.unfold(a, 2), IMAGES),
    "fold": (lambda a: F.fold(a, (4, 5), 2), [(torch.randn(p, 8, 12),) for p, _ in SIZES]),
    "cdist": (lambda a, b: torch.cdist(a, b), PAIRS),
    "pdist": (lambda a: F.pdist(a), MATRICES),
    "glu": (lambda a: F.glu(a), [(torch.randn(2 * p, 2 * q),) for p, q in SIZES]),
    "rfft": (lambda a: torch.fft.rfft(a).abs(), MATRICES),
    "fft2": (lambda a: torch.fft.fft2(a).real, IMAGES),
    "irfft": (lambda a: torch.fft.irfft(a), IMAGES),
    "qr": (lambda a: torch.linalg.qr(a)[1].abs(), MATRICES),
    "pinv": (lambda a: torch.linalg.pinv(a), SQUARE),
    "det": (lambda a: torch.det(a), SQUARE),
    "solve": (lambda a: torch.linalg.solve(a, a[:, 0]), SQUARE),
    "svdvals": (lambda a: torch.linalg.svdvals(a), MATRICES),
    "diag": (lambda a: torch.diag(a), SQUARE),
    "rot90": (lambda a: torch.rot90(a), MATRICES),
    "kthvalue": (lambda a: torch.kthvalue(a, 2)[0], MATRICES),
    "histc": (lambda a: torch.histc(a), MATRICES),
    "area": (lambda a: F.interpolate(a, scale_factor=0.5, mode="area"), IMAGES),
    "bicubic": (lambda a: F.interpolate(a, scale_factor=0.5, mode="bicubic"), IMAGES),
    "bucketize": (lambda a: torch.bucketize(a, torch.arange(3.0)), VECTORS),
    "searchsorted": (lambda a: torch.searchsorted(torch.sort(a)[0], a), VECTORS),
    "multinomial": (lambda a: torch.multinomial(a.abs() + 0.1, 2).shape, VECTORS),
    "isin": (lambda a: torch.isin(a.round(), torch.tensor([0.0, 1.0])), VECTORS),
    "block_diag": (lambda a: torch.block_diag(a, a), VECTORS),
    "attention": (
        lambda a: F.multi_head_attention_forward(
            a, a, a, 8, 2, ATTENTION, None, None, None, False, 0.0, OUT, None
        )[0],
        [(torch.randn(p, q, 8),) for p, q in SIZES],
    ),
    "more_ops": (lambda a: F.unfold(a, 2).softmax(1).reshape(a.shape[0], -1).sum(1), IMAGES),
}


@pytest.fixture(autouse=True)
def fresh():
    magneto.reset()
    torch.manual_seed(0)


def check(f, g, args):
    want, got = f(*args), g(*args)
    assert_same(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", CASES)
def test_back_end_gets_symbolic_sizes(name):
    f, calls = CASES[name]
    for dynamic, graphs in ((None, 2), (True, 1)):
        magneto.reset()
        backend = CompileCounter()
        g = magneto.compile(f, backend=backend, dynamic=dynamic)
        for args in calls:
            check(f, g, args)
        assert backend.frame_count == graphs


@pytest.mark.parametrize("name", CASES)
def test_own_graphs_are_symbolic(name):
    f, calls = CASES[name]
    g = magneto.compile(f, fullgraph=True)
    for args in calls:
        check(f, g, args)
    assert counts().entries == 2


@pytest.mark.parametrize("name", ["unfold", "cdist", "rfft", "glu", "grid_sample", "area"])
def test_gradients(name):
    f, calls = CASES[name]
    g = magneto.compile(f, fullgraph=True)
    for args in calls:
        pair = [[a.detach().clone().requires_grad_() for a in args] for _ in range(2)]
        for h, own in zip((f, g), pair):
            (h(*own) ** 2).sum().backward()
        for a, b in zip(*pair):
            torch.testing.assert_close(b.grad, a.grad, rtol=1e-3, atol=1e-4)
    assert counts().entries == 2


def graphs_for(f, inputs):
    """How many graphs a custom back end gets; all results are eager's."""
    backend = CompileCounter()
    g = magneto.compile(f, backend=backend)
    for args in inputs:
        for want, got in zip(f(*args), g(*args)):
            torch.testing.assert_close(got, want)
    return backend.frame_count


def test_views_of_such_results():
    """What follows uses sizes that the kernel computed."""

    def f(a):
        w = F.unfold(a, 2)
        n = w.shape[-1]
        return w.view(a.shape[0], -1, n).transpose(1, 2).reshape(-1, w.shape[1]) + n, torch.arange(n)

    assert graphs_for(f, IMAGES) == 2


def test_back_end_computes_rounded_sizes():
    """floor and ceil of a size are computed by the graph."""
    import math

    def f(a):
        return a.new_zeros(math.floor(a.shape[0] * 0.5), math.ceil(a.shape[1] / 3)), int(a.shape[0] * 1.5) + a

    assert graphs_for(f, MATRICES) == 2


def test_program_own_operator():
    """The kernel that a program registered for shapes computes with symbols."""

    @torch.library.custom_op("magneto_tests::pairs_of_rows", mutates_args=())
    def pairs(x: torch.Tensor) -> torch.Tensor:
        n = x.shape[0]
        return x.new_ones(n * (n - 1) // 2, 2 * x.shape[1])

    @pairs.register_fake
    def _(x):
        n = x.shape[0]
        return x.new_empty(n * (n - 1) // 2, 2 * x.shape[1])

    def f(x):
        return pairs(x).cumsum(0) + 1

    for options in ({}, {"backend": "eager"}):
        magneto.reset()
        g = magneto.compile(f, **options)
        for args in MATRICES:
            check(f, g, args)
        assert counts().entries == 2
