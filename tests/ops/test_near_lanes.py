"""Vectors whose lanes are not contiguous but lie near each other: padding, pooling, resizing, windows, strides.

Each is compared with eager at sizes around a vector's, forward and backward, with infinities and NaN.
No element outside of a tensor is read, not even one that is thrown away.
"""

import ctypes
import mmap

import pytest
import torch
import torch.nn.functional as F

import magneto

SHAPES = [(1, 1, 1, 1), (0, 2, 5, 5), (2, 1, 3, 7), (1, 2, 9, 8), (2, 2, 5, 17), (1, 2, 33, 40)]
PADS = {
    f"pad {mode} {pad}": lambda x, mode=mode, pad=pad: F.pad(x, pad, mode)
    for mode in ("constant", "reflect", "replicate", "circular")
    for pad in ((2, 1, 1, 2), (0, 3, 1, 0), (5, 4, 0, 0))
}
RESIZES = {
    f"{mode} {scale}": lambda x, mode=mode, scale=scale: F.interpolate(x, scale_factor=scale, mode=mode)
    for mode in ("nearest", "nearest-exact", "bilinear", "bicubic")
    for scale in (3.1, 2.0, 1.5, 1.01, 0.6, 0.35)
}
OTHERS = {
    "bilinear corners": lambda x: F.interpolate(x, (13, 21), mode="bilinear", align_corners=True),
    "max_pool 2": lambda x: F.max_pool2d(x, 2),
    "max_pool 3/2": lambda x: F.max_pool2d(x, 3, 2, 1),
    "max_pool 3/3 dilated": lambda x: F.max_pool2d(x, 2, 3, 1, 2),
    "max_pool indices": lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True),
    "avg_pool 3/1": lambda x: F.avg_pool2d(x, 3, 1, 1, count_include_pad=False),
    "avg_pool 4": lambda x: F.avg_pool2d(x, 4),
    "adaptive": lambda x: F.adaptive_avg_pool2d(x, 3),
    "unfold": lambda x: F.unfold(x, 3, padding=1),
    "roll": lambda x: x.roll((1, 2), (2, 3)),
    "flip": lambda x: x.flip(3) + 1,
    "every second": lambda x: x[..., ::2] * 2,
    "every third": lambda x: x[..., 1::3] * 2 + 1,
    "every fourth": lambda x: x[..., ::4].relu(),
    "halves": lambda x: x[..., torch.arange(x.shape[3]) // 2] * 2,
}
CASES = {**PADS, **RESIZES, **OTHERS}


def outcome(f, x, dtype):
    """Results and the gradient; None where eager refuses the case."""
    x = x.detach().requires_grad_(dtype.is_floating_point)
    try:
        out = f(x)
    except (RuntimeError, ValueError, NotImplementedError, AssertionError):
        return None
    first = out[0] if isinstance(out, tuple) else out
    if not first.requires_grad or dtype == torch.bfloat16:  # eager adds up gradients in 16 bits
        return out, None
    weights = torch.linspace(-1, 1, first.numel()).reshape(first.shape).to(first)
    return out, torch.autograd.grad(first, x, weights)[0]


def compare(f, x, dtype):
    want = outcome(f, x, dtype)
    if want is None:
        return
    magneto.reset()
    got = outcome(magneto.compile(f), x, dtype)
    near = 2e-2 if dtype == torch.bfloat16 else 2e-5
    torch.testing.assert_close(got, want, equal_nan=True, rtol=near, atol=near)


@pytest.fixture(autouse=True)
def stay_compiled(monkeypatch):
    monkeypatch.setenv("MAGNETO_TRIALS", "0")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.uint8, torch.int64])
@pytest.mark.parametrize("name", CASES)
def test_like_eager(name, dtype):
    torch.manual_seed(1)
    for shape in SHAPES:
        x = torch.randn(shape, dtype=torch.float64)
        compare(CASES[name], (x.abs() * 50 if not dtype.is_floating_point else x).to(dtype), dtype)


@pytest.mark.parametrize("name", CASES)
def test_strided(name):
    torch.manual_seed(2)
    for x in (torch.randn(2, 20, 17, 2).permute(0, 3, 2, 1), torch.randn(2, 2, 9, 40)[..., 1:30:2]):
        compare(CASES[name], x, torch.float32)


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan")])
@pytest.mark.parametrize("name", [n for n in CASES if not n.startswith("bicubic")])
def test_not_finite(name, value):
    torch.manual_seed(3)
    x = torch.randn(1, 2, 9, 19)
    x[0, 0, 4, 8:11] = value
    x[0, 1, 8, 18] = x[0, 1, 0, 0] = value
    compare(CASES[name], x, torch.float32)


def fenced(numel, dtype):
    """Two tensors: one begins where memory begins to be readable, the other ends where it ends."""
    page = mmap.PAGESIZE
    inside = -(-numel * dtype.itemsize // page) * page
    memory = mmap.mmap(-1, inside + 2 * page)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    libc = ctypes.CDLL(None, use_errno=True)
    for at in (0, page + inside):
        assert libc.mprotect(ctypes.c_void_p(start + at), ctypes.c_size_t(page), 0) == 0
    ends = [page, page + inside - numel * dtype.itemsize]
    return [torch.frombuffer(memory, dtype=dtype, count=numel, offset=at) for at in ends]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.uint8])
def test_nothing_outside_is_read(dtype):
    for shape in [(1, 1, 3, 8), (1, 2, 9, 17), (2, 2, 16, 64)]:
        numel = torch.Size(shape).numel()
        for memory in fenced(numel, dtype):
            x = memory.view(shape)
            x.copy_(torch.arange(numel).reshape(shape) % 3)
            for f in CASES.values():
                compare(f, x, dtype)


@pytest.mark.parametrize("size", [(5, 9), (9, 5), (23, 31), (1, 40)])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("corners", [False, True])
def test_gradients_of_resizing_that_are_not_finite(mode, corners, size):
    """A gradient of infinity reaches the sources that the result was made of, and no other.

    Whether it is infinity or NaN there is not checked: eager adds up twice at an edge, once with a weight of 0.
    """
    x = torch.randn(1, 2, 9, 17, requires_grad=True)

    def f(x):
        return F.interpolate(x, size, mode=mode, align_corners=corners)

    weights = torch.randn(f(x).shape)
    weights[0, 0, -1, size[1] // 2] = float("inf")
    weights[0, 1, size[0] // 2, size[1] // 3] = float("nan")
    magneto.reset()
    got, want = (torch.autograd.grad(g(x), x, weights)[0] for g in (magneto.compile(f), f))
    finite = want.isfinite()
    assert torch.equal(got.isfinite(), finite)
    torch.testing.assert_close(got[finite], want[finite], rtol=2e-5, atol=2e-5)
