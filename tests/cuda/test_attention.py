"""Attention of float32 tensors on a GPU: a kernel of our own where the program allows TF32."""

import itertools
import random

import pytest
import torch

import magneto

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
ATTENTION = torch.nn.functional.scaled_dot_product_attention
TF32 = 2e-3  # of the values' size: products of operands with 11 bits, in several steps


@pytest.fixture
def tf32():
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    yield
    torch.backends.cuda.matmul.allow_tf32 = before


def operand(batch, heads, rows, dim, layout, grad=False):
    """[batch, heads, rows, dim], with the memory of one of several layouts."""
    if layout == "heads last":
        t = torch.randn(batch, rows, heads, dim, device="cuda").transpose(1, 2)
    elif layout == "part of a row":
        t = torch.randn(batch, rows, heads, 3 * dim, device="cuda")[..., dim : 2 * dim].transpose(1, 2)
    elif layout == "one batch":
        t = torch.randn(1, heads, rows, dim, device="cuda").expand(batch, -1, -1, -1)
    else:
        t = torch.randn(batch, heads, rows, dim, device="cuda")
    return t.detach().requires_grad_(grad)


def exact(q, k, v, **options):
    return ATTENTION(q.double(), k.double(), v.double(), **options)


def kernels(function, *inputs):
    """Names of the kernels that a call runs."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as p:
        function(*inputs)
        torch.cuda.synchronize()
    return [e.name for e in p.events() if e.device_type == torch.autograd.DeviceType.CUDA]


def close(got, wanted, tolerance=TF32):
    assert got.shape == wanted.shape
    scale = wanted.abs().max().clamp(min=1).item()
    assert (got.double() - wanted).abs().max().item() <= tolerance * scale


def check(shape, layout="heads last", **options):
    batch, heads, queries, keys, dim = shape
    torch.manual_seed(0)
    q = operand(batch, heads, queries, dim, layout)
    k, v = (operand(batch, heads, keys, dim, layout) for _ in range(2))
    function = magneto.compile(lambda q, k, v: ATTENTION(q, k, v, **options))
    for _ in range(3):  # step by step, captured, replayed
        got = function(q, k, v)
    close(got, exact(q, k, v, **options))
    assert got.stride() == ATTENTION(q, k, v, **options).stride()
    return function, (q, k, v)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dim", [16, 32, 64, 128])
@pytest.mark.parametrize("rows", [(197, 197), (64, 64), (1, 1), (65, 33), (33, 65), (128, 1), (3, 200)])
def test_sizes(tf32, dim, rows, causal):
    check((2, 3, *rows, dim), is_causal=causal)


def test_ours_runs(tf32):
    function, inputs = check((2, 12, 197, 197, 64))
    assert any("mg_attention" in name for name in kernels(function, *inputs))


def test_not_where_tf32_is_not_allowed():
    function, inputs = check((2, 12, 197, 197, 64))
    assert not any("mg_attention" in name for name in kernels(function, *inputs))
    close(function(*inputs), exact(*inputs), 2e-5)


def test_setting_changes(tf32):
    function, inputs = check((1, 2, 64, 64, 64))
    torch.backends.cuda.matmul.allow_tf32 = False
    close(function(*inputs), exact(*inputs), 2e-5)
    torch.backends.cuda.matmul.allow_tf32 = True
    close(function(*inputs), exact(*inputs))


@pytest.mark.parametrize("layout", ["contiguous", "heads last", "part of a row", "one batch"])
def test_layouts(tf32, layout):
    check((3, 4, 100, 70, 64), layout)


@pytest.mark.parametrize(
    "options", [{"scale": 0.3}, {"scale": 0.0}, {"scale": -1.5}, {"is_causal": True, "scale": 0.5}]
)
def test_scale(tf32, options):
    check((2, 2, 70, 70, 32), **options)


def test_other_heads(tf32):
    for dim in (8, 24, 40, 80, 96, 256):
        check((1, 2, 50, 50, dim))


@pytest.mark.parametrize("seed", range(6))
def test_random_sizes(tf32, seed):
    rng = random.Random(seed)
    layouts = ["contiguous", "heads last", "part of a row"]
    for _ in range(6):
        shape = (rng.randint(1, 4), rng.randint(1, 5), rng.randint(1, 300), rng.randint(1, 300))
        check((*shape, rng.choice([16, 32, 64, 128])), rng.choice(layouts), is_causal=rng.random() < 0.5)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("shape", [(2, 3, 197, 64), (1, 2, 64, 32), (2, 2, 33, 128), (1, 1, 5, 16)])
def test_gradients(tf32, shape, causal):
    torch.manual_seed(0)
    inputs = [operand(*shape, "heads last", True) for _ in range(3)]
    seed = torch.randn(shape, device="cuda")
    function = magneto.compile(lambda q, k, v: ATTENTION(q, k, v, is_causal=causal))
    doubled = [t.detach().double().requires_grad_() for t in inputs]
    wanted = torch.autograd.grad(ATTENTION(*doubled, is_causal=causal), doubled, seed.double())
    for _ in range(3):
        got = torch.autograd.grad(function(*inputs), inputs, seed)
    for g, w in zip(got, wanted):
        close(g, w, 5e-3)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("which", range(3))
def test_not_finite(tf32, which, value):
    inputs = [operand(1, 2, 40, 64, "contiguous") for _ in range(3)]
    inputs[which][0, 1, 3, 5] = value
    function = magneto.compile(lambda q, k, v: ATTENTION(q, k, v))
    got, wanted = function(*inputs), exact(*inputs)
    assert torch.equal(got.isfinite(), wanted.isfinite())


def test_large_scores(tf32):
    for scale, causal in itertools.product((1e-20, 30.0, 1e4), (False, True)):
        torch.manual_seed(0)
        q, k, v = (operand(1, 2, 100, 64, "contiguous") for _ in range(3))
        k = (k > 0) * 2.0 - 1  # exact in TF32, as the queries are
        q = (q * 4).round() * scale
        got = magneto.compile(lambda q, k, v: ATTENTION(q, k, v, is_causal=causal))(q, k, v)
        wanted = ATTENTION(q, k, v, is_causal=causal)
        assert torch.equal(got.isfinite(), wanted.isfinite())
