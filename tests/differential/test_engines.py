"""Library engines against eager: matrix products, convolutions, attention, with all that is fused into them.

A function is recorded as a graph text, compiled by the harness, and must give eager's values, dtypes and strides.
`ops` names the mg:: nodes expected in the compiled graph, and ATen ops that must be gone.
"""

import os
import pathlib
import re
import subprocess
import sys
import threading
import time

import pytest
import torch
import torch.nn.functional as F

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import graphs
import magneto
from magneto import _magneto

T = torch.randn


@pytest.fixture(autouse=True)
def clean_compiler():
    torch.manual_seed(0)
    with torch.no_grad():
        yield


def compiled(fn, *args, **options):
    text, inputs = graphs.graph_text(fn, *args)
    return _magneto.Graph(text, dump=True, **options), inputs


def fired(graph):
    """Ops of the graph that was lowered."""
    return re.findall(r"= ([\w:.]+)\(", graph.dump("simplified"))


def close(got, want, tol=None):
    assert got.shape == want.shape and got.dtype == want.dtype and got.stride() == want.stride()
    tol = tol or {torch.bfloat16: 2e-2, torch.float16: 2e-3}.get(got.dtype, 2e-5)
    scale = max(1.0, float(want.float().abs().max())) if want.numel() else 1.0
    torch.testing.assert_close(got.float(), want.float(), rtol=tol, atol=tol * scale, equal_nan=True)


def check(fn, *args, has=(), gone=(), tol=None, **options):
    graph, inputs = compiled(fn, *args, **options)
    want = fn(*args)
    want = want if isinstance(want, (tuple, list)) else [want]
    for _ in range(2):
        for got, w in zip(graph.run(*inputs), want, strict=True):
            close(got, w, tol)
    names = fired(graph)
    for op in has:
        assert op in names, names
    for op in gone:
        assert op not in names, names
    return graph, inputs


# ---- matrix products ----

LINEAR = [(1, 1, 1), (1, 768, 64), (3, 5, 7), (4, 512, 100), (17, 33, 65), (128, 64, 256), (130, 1, 9)]


@pytest.mark.parametrize("m,k,n", LINEAR)
@pytest.mark.parametrize("act", [None, "relu", "gelu", "silu", "sigmoid", "tanh", "hardswish", "mish"])
def test_linear(m, k, n, act):
    w, b = T(n, k), T(n)
    f = getattr(F, act) if act else (lambda y: y)
    loops = 1 in (m, k, n)  # with one row or column it fuses like elementwise work
    check(
        lambda x: f(F.linear(x, w, b)),
        T(m, k),
        has=[] if loops else ["mg::matmul"],
        gone=["aten::addmm"] + (["mg::matmul"] if loops else [f"aten::{act}"]),
    )


THIN = {
    "row": (lambda x, w: x @ w.t(), (1, 70), (33, 70)),
    "row of a wide matrix": (lambda x, w: F.gelu(x @ w + 1), (1, 131), (131, 4111)),
    "column": (lambda x, w: x @ w, (37, 65), (65, 1)),
    "column of a transposed matrix": (lambda x, w: x.t() @ w, (129, 1030), (129, 1)),
    "one inside": (lambda x, w: x @ w, (37, 1), (1, 21)),
    "vector": (lambda x, w: x.t() @ w[:, 0], (129, 1030), (129, 1)),
    "scaled": (lambda x, w: torch.addmm(w[:1], x, w, beta=0.5, alpha=2), (1, 40), (40, 90)),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", THIN)
def test_thin_products_are_loops(name, dtype):
    fn, *sizes = THIN[name]
    check(
        fn,
        *[T(*size).to(dtype) for size in sizes],
        gone=["mg::matmul", "aten::mm", "aten::addmm", "aten::mv"],
    )


@pytest.mark.parametrize(
    "x",
    [
        T(12, 20).t(),
        T(20, 24)[:, ::2],
        T(40, 12)[5:25],
        T(2, 10, 12),
        T(3, 4, 12).transpose(0, 1),
        T(1, 12).expand(20, 12),
    ],
    ids=["t", "step", "offset", "3d", "3dt", "expand"],
)
def test_linear_strides(x):
    w, b = T(8, 12), T(8)
    check(lambda x: F.gelu(F.linear(x, w, b), approximate="tanh"), x)
    v = T(24, 8)[::2]
    check(lambda x: F.relu(x @ v + b), x)


def test_matmul_bias_and_residual():
    x, w = T(6, 12), T(12, 8)
    check(lambda x, b: torch.addmm(b, x, w), x, T(8), has=["mg::matmul"])
    check(lambda x, b: torch.addmm(b, x, w), x, T(6, 8), has=["mg::matmul"])
    check(lambda x, b: torch.addmm(b, x, w), x, T(6, 1), has=["mg::matmul"])
    check(lambda x, b: torch.addmm(b, x, w), x, T(1), has=["mg::matmul"])
    check(lambda x, b: torch.addmm(b, x, w, beta=2), x, T(8), has=["aten::addmm"])
    check(lambda x, b: F.relu(torch.mm(x, w) + b), x, T(8), has=["mg::matmul"], gone=["aten::relu"])


def test_bmm():
    check(torch.bmm, T(4, 5, 6), T(4, 6, 7), has=["mg::matmul"])
    check(lambda a, b: torch.relu(a @ b.transpose(-1, -2)), T(2, 3, 5, 6), T(2, 3, 7, 6), has=["mg::matmul"])
    check(lambda a, b: a @ b, T(8, 5, 6), T(6, 7))
    check(torch.bmm, T(5, 4, 6).transpose(0, 1), T(6, 4, 7).transpose(0, 1), has=["mg::matmul"])
    check(torch.bmm, T(4, 5, 6), T(1, 6, 7).expand(4, 6, 7), has=["mg::matmul"])
    check(lambda c, a, b: torch.baddbmm(c, a, b), T(4, 5, 7), T(4, 5, 6), T(4, 6, 7), has=["mg::matmul"])
    check(lambda c, a, b: torch.baddbmm(c, a, b), T(1, 1, 7), T(4, 5, 6), T(4, 6, 7), has=["mg::matmul"])


def test_matmul_left_alone():
    check(
        lambda a, b: a @ b,
        torch.ones(3, 4, dtype=torch.long),
        torch.ones(4, 5, dtype=torch.long),
        gone=["mg::matmul"],
    )
    check(lambda a, b: a @ b, T(3, 4).double(), T(4, 5).double(), gone=["mg::matmul"])
    check(lambda a, b: a @ b, T(0, 4), T(4, 5), gone=["mg::matmul"])
    check(lambda a, b: a @ b, T(3, 0), T(0, 5), gone=["mg::matmul"])


def test_matmul_bf16():
    w, b = T(48, 64).bfloat16(), T(48).bfloat16()
    check(lambda x: F.gelu(F.linear(x, w, b)), T(20, 64).bfloat16())


# ---- convolutions ----


def bn(c, affine=True):
    return (T(c), T(c)) if affine else (None, None), (T(c), torch.rand(c) + 0.5)


CONVS = {  # x, weight, convolution arguments
    "1x1": ((2, 16, 9, 7), (24, 16, 1, 1), {}),
    "3x3": ((2, 16, 9, 7), (32, 16, 3, 3), {"padding": 1}),
    "odd": ((3, 17, 13, 11), (33, 17, 3, 3), {"padding": 1}),
    "stem": ((2, 3, 32, 32), (64, 3, 7, 7), {"stride": 2, "padding": 3}),
    "one": ((1, 1, 5, 5), (1, 1, 3, 3), {}),
    "rect": ((2, 8, 11, 6), (12, 8, 5, 1), {"stride": (2, 1), "padding": (2, 0)}),
    "dilated": ((2, 8, 15, 15), (8, 8, 3, 3), {"dilation": 2, "padding": 2}),
    "groups": ((2, 16, 9, 9), (32, 4, 3, 3), {"groups": 4, "padding": 1}),
    "depthwise": ((2, 20, 9, 9), (20, 1, 3, 3), {"groups": 20, "padding": 1, "stride": 2}),
    "multiplier": ((2, 8, 9, 9), (16, 1, 3, 3), {"groups": 8}),
    "valid": ((2, 8, 3, 3), (16, 8, 3, 3), {}),
    "1d": ((2, 8, 30), (16, 8, 5), {"padding": 2}),
    "3d": ((2, 4, 6, 7, 8), (8, 4, 3, 3, 3), {"padding": 1}),
}
ACTS = [
    None,
    "relu",
    "relu6",
    "hardswish",
    "silu",
    "gelu",
    "leaky_relu",
    "sigmoid",
    "tanh",
    "hardsigmoid",
    "mish",
]


def conv(x, *args, **kw):
    return [F.conv1d, F.conv2d, F.conv3d][x.dim() - 3](x, *args, **kw)


@pytest.mark.parametrize("last", [False, True], ids=["nchw", "nhwc"])
@pytest.mark.parametrize("bias", [False, True], ids=["", "bias"])
@pytest.mark.parametrize("name", CONVS)
def test_conv(name, bias, last):
    xs, ws, kw = CONVS[name]
    if last and len(xs) != 4:
        pytest.skip("channels_last is for images")
    x, w, b = T(xs), T(ws), T(ws[0]) if bias else None
    if last:
        x = x.to(memory_format=torch.channels_last)
    check(lambda x: conv(x, w, b, **kw), x, has=["mg::conv"], gone=["aten::convolution"])
    affine, stats = bn(ws[0])

    def f(x):
        y = F.batch_norm(conv(x, w, b, **kw), *stats, *affine, eps=1e-3)
        return F.relu(y)

    check(f, x, has=["mg::conv"], gone=["aten::native_batch_norm", "aten::relu"])


@pytest.mark.parametrize("act", ACTS)
def test_conv_act(act):
    x, w = T(2, 8, 9, 7), T(16, 8, 3, 3)
    f = getattr(F, act) if act else (lambda y: y)
    check(lambda x: f(F.conv2d(x, w)), x, has=["mg::conv"], gone=[f"aten::{act}"])


@pytest.mark.parametrize("groups", [1, 2])
def test_conv_transposed(groups):
    w, b = T(16, 24 // groups, 4, 4), T(24)
    check(lambda x: F.conv_transpose2d(x, w, b, 2, 1, groups=groups), T(2, 16, 7, 6), has=["mg::conv"])
    check(lambda x: F.relu(F.conv_transpose2d(x, w, b, 3, 1, 2, groups)), T(2, 16, 7, 6), has=["mg::conv"])
    v = T(6, 4, 3)
    check(lambda x: F.conv_transpose1d(x, v, None, 2), T(2, 6, 9), has=["mg::conv"])


def test_conv_residual():
    x, w = T(2, 16, 9, 7), T(16, 16, 3, 3)
    affine, stats = bn(16, affine=False)

    def block(x, act, swap):
        y = F.batch_norm(F.conv2d(x, w, padding=1), *stats, *affine)
        y = x + y if swap else y + x
        return F.relu(y) if act else y

    for act in (False, True):
        for swap in (False, True):
            gone = ["aten::add.Tensor", "aten::relu", "aten::native_batch_norm"]
            check(lambda x: block(x, act, swap), x, has=["mg::conv"], gone=gone)
    check(lambda x: block(block(x, True, False), True, True), x, gone=["aten::add.Tensor"])
    # a residual of another shape or layout
    check(lambda x, r: F.conv2d(x, w, padding=1) + r, x, T(16, 1, 1))
    check(lambda x, r: F.conv2d(x, w, padding=1) + r, x, x.to(memory_format=torch.channels_last).clone())


def test_conv_values_used_twice():
    x, w = T(2, 16, 9, 7), T(16, 16, 3, 3)

    def f(x):
        y = F.conv2d(x, w, padding=1)
        z = F.relu(y)
        return F.conv2d(z, w) + F.conv2d(y * z, w), y.mean((2, 3))

    check(f, x, has=["mg::conv", "aten::relu"])


def test_conv_strided_weights():
    x = T(2, 8, 9, 7)
    for w in (
        T(16, 8, 3, 3).to(memory_format=torch.channels_last),
        T(16, 16, 3, 3)[:, ::2],
        T(8, 16, 3, 3).transpose(0, 1),
    ):
        affine, stats = bn(16)
        check(lambda x: F.batch_norm(F.conv2d(x, w), *stats, *affine), x, has=["mg::conv"])
    check(lambda x: F.conv2d(x, x.new_ones(16, 8, 3, 3)), x)  # computed weights


def test_conv_chain_and_views():
    """Values between convolutions that are also seen through views, pooled, concatenated, or returned."""
    x, w, v = T(2, 8, 12, 12), T(16, 8, 3, 3), T(8, 32, 1, 1)

    def f(x):
        y = F.relu(F.conv2d(x, w, padding=1))
        z = torch.cat([y, torch.tanh(y)], 1)
        p = F.max_pool2d(F.conv2d(z, v), 2)
        s = p * torch.sigmoid(p.mean((2, 3), keepdim=True))
        return s, s.flatten(1), y.permute(0, 2, 3, 1), F.avg_pool2d(y, 2, 1)

    check(f, x, has=["mg::conv"])
    m = T(16, 4)
    check(lambda x: F.conv2d(x, w).flatten(2).transpose(1, 2) @ m, x, has=["mg::conv"])


def test_conv_of_small_groups_avoids_the_reference_kernel():
    """The library has nothing better for channels-last data here, 50 times as slow as plain memory."""
    x, w, b = T(2, 999, 16).mT, T(16, 2, 64), T(16)

    def f(x):
        return F.gelu(F.conv1d(x, w, b, padding=32, groups=8))

    def best(call):
        times = []
        for _ in range(5):
            start = time.perf_counter()
            call(x)
            times.append(time.perf_counter() - start)
        return min(times)

    check(f, x, has=["mg::conv"])
    assert best(magneto.compile(f)) < 8 * best(f)


def test_conv_bf16():
    x, w, b = T(2, 16, 9, 7).bfloat16(), T(32, 16, 3, 3).bfloat16(), T(32).bfloat16()
    check(lambda x: F.relu(F.conv2d(x, w, b)), x)


# ---- attention ----


def heads(b, s, h, d):
    return T(b, s, h, d).transpose(1, 2)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    "b,h,q,k,d",
    [(1, 12, 128, 128, 64), (2, 3, 37, 53, 36), (2, 2, 64, 40, 8), (1, 2, 70, 70, 80), (1, 1, 6, 1, 1)],
)
def test_attention(b, h, q, k, d, causal):
    f = lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=causal)
    check(f, heads(b, q, h, d), heads(b, k, h, d), heads(b, k, h, d), has=["mg::sdpa"])
    check(f, T(b, h, q, d), T(b, h, k, d), T(b, h, k, d), has=["mg::sdpa"])


@pytest.mark.parametrize("q", [1, 2, 5])
@pytest.mark.parametrize(
    "h,k,d", [(12, 128, 64), (3, 53, 36), (2, 16, 8), (1, 70, 80), (2, 1, 1), (2, 17, 33), (1, 9, 160)]
)
def test_attention_of_a_few_queries(q, h, k, d):
    """Decoding with a cache: keys and values are read where they lie."""
    args = heads(2, q, h, d), T(2, h, k, d), heads(2, k, h, d)
    f = F.scaled_dot_product_attention
    check(lambda q, k, v: f(q, k, v), *args, has=["mg::sdpa"])
    check(lambda q, k, v: f(q, k, v, is_causal=True, scale=0.3), *args, has=["mg::sdpa"])
    for mask in (T(2, 1, q, k), torch.rand(1, h, 1, k) > 0.4, torch.full((q, k), float("-inf"))):
        check(lambda q, k, v, m: f(q, k, v, m), *args, mask, has=["mg::sdpa"])


def test_attention_mask():
    q, k, v = heads(2, 37, 3, 16), heads(2, 53, 3, 16), heads(2, 53, 3, 16)
    f = lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m, scale=0.3)
    for shape in ((2, 3, 37, 53), (2, 1, 37, 53), (1, 1, 1, 53), (37, 53)):
        check(f, q, k, v, T(shape), has=["mg::sdpa"])
        check(f, q, k, v, torch.rand(shape) > 0.4, has=["mg::sdpa"])
    hidden = torch.zeros(37, 53)
    hidden[3] = float("-inf")
    check(f, q, k, v, hidden, has=["mg::sdpa"])
    check(f, q, k, v, T(2, 1, 37, 1).expand(2, 3, 37, 53), has=["mg::sdpa"])


def test_attention_written_out():
    q, k, v = T(2, 3, 37, 16), heads(2, 53, 3, 16), heads(2, 53, 3, 24)
    bias = T(3, 37, 53)
    gone = ["aten::_softmax", "mg::matmul"]
    forms = [
        lambda q, k, v: torch.softmax(q @ k.transpose(-2, -1) * 0.25, -1) @ v,
        lambda q, k, v: torch.softmax(q @ k.transpose(2, 3) / 4 + bias, -1) @ v,
        lambda q, k, v: F.softmax((q * 0.25) @ k.transpose(-1, -2), dim=3) @ v,
    ]
    for f in forms:
        check(f, q, k, v, has=["mg::sdpa"], gone=gone)
    # another reader of the weights, another dimension, no transposition
    check(
        lambda q, k, v: (lambda p: (p @ v, p.sum()))(torch.softmax(q @ k.transpose(2, 3), -1)),
        q,
        k,
        v,
        gone=["mg::sdpa"],
    )
    check(lambda q, k, v: torch.softmax(q @ k.transpose(2, 3), -2) @ v, q, k, v, gone=["mg::sdpa"])
    check(lambda q, k, v: torch.softmax(q @ k, -1) @ v, q, T(2, 3, 16, 53), v, gone=["mg::sdpa"])


def test_attention_of_projections():
    """Views of one projection go in, heads go out into the next product, without copies."""
    w, b, o = T(96, 32), T(96), T(32, 32)

    def f(x):
        q, k, v = F.linear(x, w, b).view(2, 20, 3, 4, 8).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v)
        return F.linear(y.transpose(1, 2).reshape(2, 20, 32), o)

    check(f, T(2, 20, 32), has=["mg::sdpa", "mg::matmul"])


# ---- running ----


def test_changed_weights_are_seen():
    x, w, m = T(2, 8, 9, 7), T(16, 8, 3, 3), T(16, 10)
    affine, stats = bn(16)

    def f(x, w, m, mean):
        y = F.relu(F.batch_norm(F.conv2d(x, w), mean, stats[1], *affine))
        return y.mean((2, 3)) @ m

    args = [x, w, m, stats[0]]
    graph, inputs = compiled(f, *args)
    for _ in range(3):
        close(graph.run(*inputs)[0], f(*inputs[:4]))
        inputs[1].data.mul_(1.5)
        inputs[2].data.add_(0.25)
        inputs[3].data.sub_(0.5)


def test_threads():
    """Several Python threads in one plan."""
    w, v, b = T(32, 8, 3, 3), T(64, 32), T(64)
    affine, stats = bn(32)

    def f(x):
        y = F.relu(F.batch_norm(F.conv2d(x, w), *stats, *affine)).mean((2, 3))
        return F.gelu(F.linear(y, v.t().contiguous().t(), b))

    graph, inputs = compiled(f, T(2, 8, 9, 7))
    given = [T(2, 8, 9, 7) for _ in range(4)]
    want = [f(x) for x in given]
    failures = []

    def work(i):
        try:
            for _ in range(20):
                close(graph.run(given[i], *inputs[1:])[0], want[i])
        except AssertionError as e:
            failures.append(e)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures, failures[0]


def test_growing_concatenation():
    """A dense block: every concatenation continues the one before it in the same memory."""
    ws = [T(8, 16 + 8 * i, 3, 3) * 0.1 for i in range(4)]
    ps = [bn(16 + 8 * i) for i in range(4)]

    def f(x, branch):
        parts = [torch.tanh(F.conv2d(x, ws[0][:, :16].transpose(0, 1).contiguous()[:, :8], padding=1))]
        for w, (affine, stats) in zip(ws, ps, strict=True):
            y = F.relu(F.batch_norm(torch.cat(parts, 1), *stats, *affine))
            if branch:  # two concatenations begin with the same parts
                y = y + F.relu(torch.cat([*parts, torch.sin(parts[0])], 1))[:, : y.shape[1]]
            parts.append(F.conv2d(y, w, padding=1))
        return torch.sigmoid(torch.cat(parts, 1)), torch.cat(parts[:3], 1).mean((2, 3))

    for branch in (False, True):
        graph, _ = check(lambda x: f(x, branch), T(2, 8, 9, 7), has=["mg::conv"])
    again = [line for line in graph.dump("loops").splitlines() if "aten::cat" in line]
    assert len(again) < 4 * 5  # not every part is stored again each time


def test_without_onednn():
    """Without engines the same graphs run through ATen."""
    code = """
import sys
sys.path.insert(0, sys.argv[1])
import test_engines as t
import torch, torch.nn.functional as F
torch.set_grad_enabled(False)
w, v, b = t.T(16, 8, 3, 3), t.T(20, 16), t.T(20)
q = t.heads(2, 20, 3, 8)
f = lambda x: F.gelu(F.linear(F.relu(F.conv2d(x, w)).mean((2, 3)), v, b))
t.check(f, t.T(2, 8, 9, 7), has=["aten::convolution", "aten::addmm"], gone=["mg::conv", "mg::matmul"])
t.check(lambda q: F.scaled_dot_product_attention(q, q, q), q, has=["mg::sdpa"])
"""
    here = pathlib.Path(__file__).resolve().parent
    run = subprocess.run(
        [sys.executable, "-c", code, str(here)],
        env={**os.environ, "MAGNETO_ONEDNN": "0", "MAGNETO_GEMM": "0"},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr


# ---- kept weights: a change is seen, however it was made and however often ----


def conv_bn(x, w, mean, var):
    return F.relu(F.batch_norm(F.conv2d(x, w, padding=1), mean, var))


def conv_args(dtype=torch.float32):
    return [
        T(2, 16, 9, 9, dtype=dtype).contiguous(memory_format=torch.channels_last),
        T(32, 16, 3, 3, dtype=dtype),
        T(32, dtype=dtype),
        torch.rand(32, dtype=dtype) + 0.5,
    ]


def test_weights_that_change_call_after_call_are_seen():
    args = conv_args()
    g, _ = compiled(conv_bn, *args)
    for i in range(300):
        how = i % 7
        if how == 1:
            args[1].data[i % 32, i % 16, i % 3, 1] += 1
        elif how == 2:
            args[1].numpy()[:] *= -0.99
        elif how == 3:
            args[3].data[i % 32] += 0.5
        elif how == 4:
            args[2].mul_(0.9)
        close(g.run(*args)[0], conv_bn(*args))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_weights_taken_in_turns(dtype):
    def conv(x, w, b):
        return F.conv2d(x, w, b, padding=1)

    args = conv_args(dtype)[:3]
    g, inputs = compiled(conv, *args)
    sets = [inputs[:1] + [T(32, 16, 3, 3, dtype=dtype), T(32, dtype=dtype)] for _ in range(3)]
    for i in [0, 0, 0, 1, 1, 0, 2, 1, 0, 2, 2, 2, 2] + list(range(150)) + [1] * 80:
        close(g.run(*sets[i % 3])[0], conv(*sets[i % 3]))


def test_threads_with_weights_of_their_own():
    args = conv_args()
    g, inputs = compiled(conv_bn, *args)
    bad = []

    def work(seed):
        with torch.no_grad():
            mine = [inputs[0], T(32, 16, 3, 3, generator=torch.Generator().manual_seed(seed)), *inputs[2:]]
            want = conv_bn(*mine)
            bad.extend(1 for _ in range(50) if not torch.allclose(g.run(*mine)[0], want, atol=1e-4))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not bad


def test_parts_of_channels_last_values():
    w, v = T(16, 8, 3, 3), T(8, 8, 1, 1)

    def f(x):
        z = torch.cos(F.conv2d(x, w, padding=1))
        a = z[:, 3:-5].sin() + z.narrow(1, 8, 8) + z[:, ::2] + z[:, -1:]
        return F.conv2d(a[:, :, 1:, ::2], v) + z[:, 0, 1:, ::2].unsqueeze(1), z[1:].exp()

    check(f, T(2, 8, 9, 7), has=["mg::conv"])
    y = T(2, 16, 9, 7)
    for x in (y[:, ::2], y[:, :8, :, ::2], y.to(memory_format=torch.channels_last)[:, 8:, 1:, ::2]):
        check(lambda x: F.conv2d(x, v), x, has=["mg::conv"])
        check(lambda x: x @ v[: x.shape[-1], :, 0, 0], x, has=["mg::matmul"])


def test_group_norm_of_pixels_of_channels_last_values():
    w = T(8, 8, 3, 3)

    def attend(x):  # as diffusion models do between convolutions
        y = F.conv2d(x, w, padding=1).flatten(2)
        y = F.group_norm(y.transpose(1, 2).transpose(1, 2), 4).relu() + y
        return F.conv2d(y.view(x.shape), w, padding=1)

    check(attend, T(2, 8, 6, 6), has=["mg::conv", "aten::native_group_norm"])


def test_scatters_write_over_what_nobody_reads_later():
    ids, i = torch.randint(0, 50, (2, 7)), torch.randint(0, 9, (7,))

    def rows(g, ids, a, b):  # the gradient of an embedding that is a product's weight, too
        return a @ b + torch.ops.aten.embedding_dense_backward(g, ids, 50, -1, False)

    graph, _ = check(rows, T(2, 7, 16), ids, T(50, 9), T(9, 16), gone=["aten::embedding_dense_backward"])
    assert "point" not in graph.dump("fusion")

    def chain(x, i):
        return x.mm(x.t()).scatter(0, i[None], 3.0).scatter_add(1, i[None], x[:1])

    graph, _ = check(chain, T(9, 9), i)
    assert "point" not in graph.dump("fusion")

    def read_while_written(x, i):
        y = x.mm(x.t())
        return y.index_add(0, i, y[:7] * 2)

    def read_later(x, i):
        y = x.mm(x.t())
        return y.index_add(0, i, x[:7]) + y.sum(0)

    def view_given_away(x, i):
        y = x.mm(x.t())
        z = y[1:]
        return y.index_add(0, i, x[:7]), z

    def itself(x, i):
        y = x.mm(x.t())
        return y.index_put([i], y[:7], True), i

    def input_stays(x, i):
        return x.index_add(0, i, x[:7])

    for f in (read_while_written, read_later, view_given_away, itself, input_stays):
        check(f, T(9, 9), i)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_threads_share_scatters(dtype):
    """Rows that collide keep their order; columns, or the images of a batch, go to different threads."""
    i, x = torch.randint(0, 40, (900,)), (T(900, 256) * 9).to(dtype)
    graph, _ = check(lambda i, x: torch.zeros(40, 256, dtype=dtype).index_add(0, i, x), i, x)
    assert "scatter [4,900,64]" in graph.dump("fusion")
    graph, inputs = compiled(lambda i, x: torch.zeros(40, 256, dtype=dtype).index_put([i], x), i, x)
    want = torch.zeros(40, 256, dtype=dtype)
    for k in range(900):  # the last one stays; in eager any of them
        want[i[k]] = x[k]
    close(graph.run(*inputs)[0], want)
    j = torch.randint(0, 30, (32, 500))
    graph, _ = check(
        lambda j, y: torch.zeros(32, 30, dtype=dtype).scatter_add(1, j, y), j, (T(32, 500) * 9).to(dtype)
    )
    assert "scatter [32,500]" in graph.dump("fusion")
    if dtype == torch.float32:
        for last in (False, True):
            z = T(4, 64, 32, 32)
            z = z.to(memory_format=torch.channels_last) if last else z
            out, at = F.max_pool2d(z, 3, 2, 1, return_indices=True)
            check(
                lambda g, z, at: torch.ops.aten.max_pool2d_with_indices_backward(
                    g, z, [3, 3], [2, 2], [1, 1], [1, 1], False, at
                ),
                torch.randn_like(out),
                z,
                at,
            )


@pytest.mark.parametrize(
    "wanted", [(True, True, True), (True, False, True), (False, True, True), (True, False, False)]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_batch_norm_backward_sums_once(wanted, dtype):
    x, g, p = T(4, 6, 5, 3).to(dtype), T(4, 6, 5, 3).to(dtype), [T(6), T(6), T(6), T(6).abs()]
    _, mean, rstd = torch.native_batch_norm(x, p[0], p[1], p[2].clone(), p[3].clone(), True, 0.1, 1e-5)

    def f(g, x, mean, rstd):
        out = torch.ops.aten.native_batch_norm_backward(
            g.sin(), x, p[0], p[2], p[3], mean, rstd, True, 1e-5, wanted
        )
        return [t for t in out if t is not None and t.numel()]

    graph, _ = check(f, g, x, mean, rstd)
    assert graph.dump("loops").count("reduce sum") == (2 if wanted[0] else sum(wanted[1:]))


@pytest.mark.parametrize("freeze", [False, True])
@pytest.mark.parametrize("act", ["relu", "relu6", "hardtanh", "hardsigmoid", "leaky_relu", "silu", "tanh"])
def test_fused_activations_keep_nan(act, freeze):
    """The library's minimum and maximum instructions lose NaN; whatever thread meets one, the result is eager's."""
    f = getattr(F, act)
    w, b, v = T(32, 16, 3, 3), T(32), T(70, 48)
    options = {"freeze": True} if freeze else {}
    for bad in (float("nan"), float("inf"), -float("inf")):
        for at in (3, 2 * 16 * 24 * 24 - 5):  # in the first and in the last thread's part
            x, y = T(2, 16, 24, 24), T(384, 48)
            x.view(-1)[at] = y.view(-1)[at] = bad
            check(
                lambda x, r: f(F.conv2d(x, w, b, padding=1) + r),
                x,
                T(2, 32, 24, 24),
                has=["mg::conv"],
                gone=[f"aten::{act}"],
                **options,
            )
            check(lambda y: f(F.linear(y, v)), y, has=["mg::matmul"], gone=[f"aten::{act}"], **options)


def test_a_nan_of_an_earlier_step_costs_nothing_but_time():
    w = T(64, 64)

    def f(x):
        return F.relu(F.relu(F.relu(x @ w) @ w).sqrt().log() @ w)

    g, inputs = compiled(f, T(40, 64))
    for x in (T(40, 64), torch.full((40, 64), float("nan")), -T(40, 64).abs(), T(40, 64)):
        close(g.run(x, *inputs[1:])[0], f(x))
