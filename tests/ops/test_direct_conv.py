"""Convolutions of few channels a group, and their gradients, by loops of our own: random shapes and strides against float64.

The choice between these loops and a library is by shape, so that both kinds are in the cases.  A window over an
infinity or NaN gives what eager gives, and no result beside it does.
"""

import os
import pathlib
import random
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import graphs
from magneto import _magneto

CPU = pathlib.Path("/proc/cpuinfo").read_text()
WIDEST = "avx512vl" in CPU and os.environ.get("MAGNETO_CPU", "v4") == "v4"  # libraries compute these there
ACTS = {
    "": lambda y: y,
    "relu": F.relu,
    "leaky": lambda y: F.leaky_relu(y, 0.1),
    "relu6": F.relu6,
    "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid,
    "gelu": F.gelu,
}


class Case:
    """One convolution: sizes, layouts and arguments by the seed."""

    def __init__(self, seed, dense=False):
        r = self.random = random.Random(seed)
        torch.manual_seed(seed)
        self.dims = r.choice([1, 2, 2])
        inner = r.choice([1, 1, 1, 2, 3, 4, 8, 11])
        self.groups = r.choice([2, 3, 5, 8, 17] if inner < 4 else [2, 3])
        outer = inner if inner > 1 else r.choice([1, 1, 2, 3])
        self.window = [r.choice([1, 2, 3, 3, 5, 7, 9]) for _ in range(self.dims)]
        if self.dims == 1 or r.random() < 0.7:
            self.window = self.window[:1] * self.dims
        self.stride = [r.choice([1, 1, 2, 3]) for _ in range(self.dims)]
        self.dilation = [r.choice([1, 1, 1, 2]) for _ in range(self.dims)]
        reach = [(k - 1) * d for k, d in zip(self.window, self.dilation, strict=True)]
        self.padding = [r.choice([0, n // 2, n]) for n in reach]
        sizes = [1, 4, 7, 8, 9, 14, 17, 28, 35]
        self.size = [max(r.choice(sizes), n + 1 - 2 * p) for n, p in zip(reach, self.padding, strict=True)]
        self.last = r.random() < 0.4
        self.x = self.laid(torch.randn(r.choice([1, 1, 2, 3]), self.groups * inner, *self.size), dense)
        self.w = self.laid(torch.randn(self.groups * outer, inner, *self.window), dense)
        self.b = torch.randn(self.groups * outer) if r.random() < 0.6 else None

    def laid(self, t, dense):
        """The tensor channels-last, as a part of a larger one, or as it is."""
        if self.last and t.dim() == 4:
            t = t.contiguous(memory_format=torch.channels_last)
        if not dense and self.random.random() < 0.2:
            wide = torch.full((*t.shape[:-1], t.shape[-1] + 3), float("nan"))
            wide[..., 1:-2] = t
            t = wide[..., 1:-2]
        return t

    def conv(self, x, w, b=None):
        f = F.conv1d if self.dims == 1 else F.conv2d
        return f(x, w, b, self.stride, self.padding, self.dilation, self.groups)

    def gradients(self, g, x, w, mask):
        n = self.dims
        return torch.ops.aten.convolution_backward(
            g, x, w, [w.shape[0]], self.stride, self.padding, self.dilation, False, [0] * n, self.groups, mask
        )

    def __repr__(self):
        return f"x {tuple(self.x.shape)} {self.x.stride()} w {tuple(self.w.shape)} {self.stride} {self.padding} {self.dilation}"


def run(fn, *args):
    text, inputs = graphs.graph_text(fn, *args)
    graph = _magneto.Graph(text, dump=True)
    for _ in range(2):  # scratch memory has what the first run left
        got = graph.run(*inputs)
    return got


def close(got, want, exact, case):
    """want: eager's, for strides and special values; exact: the same in float64."""
    assert got.shape == want.shape and got.stride() == want.stride() and got.dtype == want.dtype, case
    scale = max(1.0, float(exact.nan_to_num(0, 0, 0).abs().max())) if exact.numel() else 1.0
    exact = exact.where(
        ~(got.isnan() & want.isnan()), exact.new_tensor(float("nan"))
    )  # as gelu(inf) of AVX-512
    torch.testing.assert_close(
        got.double(), exact, rtol=1e-5, atol=1e-5 * scale, equal_nan=True, msg=lambda m: f"{case}\n{m}"
    )


def wide(t):
    return None if t is None else t.double()


@pytest.mark.parametrize("seed", range(60))
def test_forward(seed):
    c = Case(seed)
    act = ACTS[c.random.choice(list(ACTS))]
    affine = [torch.randn(c.w.shape[0]) for _ in range(3)] + [torch.rand(c.w.shape[0]) + 0.5]
    with_norm, with_residual = c.random.random() < 0.3, c.random.random() < 0.3
    with torch.no_grad():
        residual = c.laid(torch.randn_like(c.conv(c.x, c.w)), False)

        def f(x, w, b, residual, scale, shift, mean, var):
            y = c.conv(x, w, b)
            if with_norm:
                y = F.batch_norm(y, mean, var, scale, shift, eps=1e-3)
            return act(y + residual if with_residual else y)

        args = (c.x, c.w, c.b, residual, *affine)
        close(run(f, *args)[0], f(*args), f(*map(wide, args)), c)


@pytest.mark.parametrize("seed", range(60))
def test_gradients(seed):
    c = Case(1000 + seed)
    mask = [c.random.random() < 0.7, c.random.random() < 0.7, False]
    mask[2] = mask[1] and c.random.random() < 0.5
    if not any(mask):
        mask[0] = True
    g = c.laid(torch.randn_like(c.conv(c.x, c.w)), False)

    def f(g, x, w):
        return [t for t in c.gradients(g, x, w, mask) if t is not None]

    args = (g, c.x, c.w)
    for got, want, exact in zip(run(f, *args), f(*args), f(*map(wide, args)), strict=True):
        close(got, want, exact, c)


@pytest.mark.parametrize("seed", range(30))
def test_infinities_and_nan(seed):
    """Zeros around the input count as factors in some of ATen's kernels, and are left out in others."""
    c = Case(2000 + seed, dense=True)
    g = torch.randn_like(c.conv(c.x, c.w))
    for t in (c.x, g):
        for value in (float("inf"), float("-inf"), float("nan")):
            t[tuple(c.random.randrange(n) for n in t.shape)] = value
    close(run(c.conv, c.x, c.w)[0], c.conv(c.x, c.w), c.conv(c.x.double(), c.w.double()), c)

    def f(g, x, w):
        return c.gradients(g, x, w, [True, True, True])

    args = (g, c.x, c.w)
    for got, want, exact in zip(run(f, *args), f(*args), f(*map(wide, args)), strict=True):
        nan = got.isnan()
        assert not (nan & ~want.isnan() & ~exact.isnan()).any(), c
        if not WIDEST:  # there they leave out products with zeros that eager has
            assert not (~nan & want.isnan() & exact.isnan()).any(), c
        both = ~nan & ~exact.isnan()
        torch.testing.assert_close(got.double()[both], exact[both], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("act", ACTS)
def test_activations_keep_nan(act):
    x = torch.randn(1, 8, 9, 9)
    x[0, 3, 4, 4] = float("nan")
    x[0, 5, 0, 0] = float("inf")
    w = torch.randn(8, 1, 3, 3)
    f = lambda x, w: ACTS[act](F.conv2d(x, w, padding=1, groups=8))
    close(run(f, x, w)[0], f(x, w), f(x.double(), w.double()), act)


def test_an_empty_batch():
    x, w = torch.randn(0, 8, 9, 9), torch.randn(8, 1, 3, 3)
    assert run(lambda x, w: F.conv2d(x, w, padding=1, groups=8), x, w)[0].shape == (0, 8, 9, 9)


def test_gradients_that_are_expanded():
    x, w, g = torch.randn(2, 6, 9, 9), torch.randn(6, 1, 3, 3), torch.ones(()).expand(2, 6, 9, 9)
    f = lambda g, x, w: list(
        torch.ops.aten.convolution_backward(
            g, x, w, [6], [1, 1], [1, 1], [1, 1], False, [0, 0], 6, [True] * 3
        )
    )
    for got, want, exact in zip(
        run(f, g, x, w), f(g, x, w), f(g.double(), x.double(), w.double()), strict=True
    ):
        close(got, want, exact, "expanded")


def test_weights_that_change_between_calls():
    x, w = torch.randn(1, 8, 12, 12), torch.randn(8, 1, 3, 3)
    text, inputs = graphs.graph_text(lambda x, w: F.conv2d(x, w, groups=8), x, w)
    graph = _magneto.Graph(text)
    for _ in range(3):
        inputs[1].normal_()
        want = F.conv2d(inputs[0], inputs[1], groups=8)
        torch.testing.assert_close(graph.run(*inputs)[0], want, rtol=1e-5, atol=1e-5)


PROGRAM = """
import torch, magneto
import torch.nn.functional as F
torch.manual_seed(0)
def f(x, w, b): return F.relu(F.conv2d(x, w, b, 1, 1, 1, 40))
def l(x, w): return F.conv1d(x, w, None, 2, 3, 1, 40)
def check(f, *args):
    grads = []
    for g in (f, magneto.compile(f)):
        for a in args: a.grad = None
        y = g(*args)
        y.square().sum().backward()
        grads.append([y.detach(), *(a.grad.clone() for a in args)])
    for a, b in zip(*grads): torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-3)
check(f, *(torch.randn(s, requires_grad=True) for s in ((3, 40, 37, 41), (40, 1, 3, 3), (40,))))
check(f, *(torch.randn(s, requires_grad=True) for s in ((1, 40, 200, 30), (80, 1, 3, 3), (80,))))
check(l, *(torch.randn(s, requires_grad=True) for s in ((2, 40, 700), (40, 1, 7))))
"""


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("level", ["v2", "v3"])
def test_they_run_at_each_level(level: str, threads: int) -> None:
    env = {**os.environ, "OMP_NUM_THREADS": str(threads), "MAGNETO_CPU": level, "MAGNETO_LOGS": "plan"}
    env |= {"MAGNETO_TRIALS": "0", "MAGNETO_CACHE": "0"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stderr.count(" direct.conv ") == 3 and done.stderr.count(" direct.conv_backward") == 3, (
        done.stderr
    )


CHOSEN = """
import torch, magneto
import torch.nn.functional as F
torch.manual_seed(0)
for shape, groups, stride in {shapes}:
    for form in (torch.contiguous_format, torch.channels_last):
        x = torch.randn(2, *shape).to(memory_format=form)
        w, b = torch.randn(shape[0], shape[0] // groups, 3, 3), torch.randn(shape[0])
        f = lambda x, w, b: F.conv2d(x, w, b, stride, 1, 1, groups).relu()
        magneto.reset()
        compiled = magneto.compile(f)
        torch.testing.assert_close(compiled(x, w, b), f(x, w, b), rtol=1e-4, atol=1e-4)
        leaves = [t.requires_grad_() for t in (x, w, b)]
        got, want = (torch.autograd.grad(g(*leaves).square().mean(), leaves) for g in (compiled, f))
        for a, e in zip(got, want):
            torch.testing.assert_close(a, e, rtol=1e-4, atol=1e-4)
"""


@pytest.mark.skipif("avx512vl" not in CPU, reason="needs AVX-512")
@pytest.mark.parametrize(
    "shapes",
    ["[((64, 28, 28), 32, 1), ((64, 14, 14), 16, 1)]", "[((64, 28, 28), 8, 1), ((64, 28, 28), 32, 2)]"],
)
def test_with_avx512_they_run_groups_of_two_to_four_channels_without_strides(shapes: str) -> None:
    env = {
        **os.environ,
        "MAGNETO_CPU": "v4",
        "MAGNETO_LOGS": "plan",
        "MAGNETO_TRIALS": "0",
        "MAGNETO_CACHE": "0",
    }
    done = subprocess.run(
        [sys.executable, "-c", CHOSEN.format(shapes=shapes)],
        env=env,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = [done.stderr.count(f" direct.conv{name}") for name in (" ", "_backward")]
    assert found == [0, 0] if ", 2)" in shapes else found[0] >= 4 and found[1] >= 2, done.stderr
