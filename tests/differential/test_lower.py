"""Every lowering against eager: one ATen call is one graph, compiled and run on the tensors that eager saw.

Three sources of calls: torch's operator database (forward, and backward for f32 and bf16), pointwise and reduction ops
over layouts and special values, and small programs in which ops are inlined into each other.  Results must have eager's
dtype, sizes, strides and values; an op with a lowering must not have become a call (KNOWN_EXTERN lists the forms
that are eager's by design).
"""

import collections

import pytest
import torch
import torch.nn.functional as F
from torch.utils._pytree import tree_flatten, tree_map

import cases
from graphtext import CallRecorder, Text, record
from support import assert_rounding, in_float64

native = pytest.importorskip("magneto._magneto")
if not hasattr(native, "Graph"):
    pytest.skip("no graph harness in this build", allow_module_level=True)

# Contents are anything, or random numbers.
UNDEFINED = (
    "aten::empty",
    "aten::new_empty",
    "aten::rand",
    "aten::normal",
    "aten::bernoulli",
    "aten::multinomial",
)
TOLERANCE = {
    torch.bfloat16: dict(rtol=2e-2, atol=2e-2),
    torch.float16: dict(rtol=4e-3, atol=4e-3),
    torch.float32: dict(rtol=1e-5, atol=1e-5),
    torch.float64: dict(rtol=1e-7, atol=1e-7),
}
# Quotients that eager rounds to 16 bits before it truncates them; sums that eager overflows in f16.
INEXACT_16 = (
    "aten::div.Tensor_mode",
    "aten::div.Scalar_mode",
    "aten::floor_divide",
    "aten::remainder",
    "aten::fmod",
    "aten::soft_margin_loss",
)


# Sums of products: of what is summed up, their arguments' absolute values tell the size.
PRODUCTS = (
    "aten::mm",
    "aten::bmm",
    "aten::mv",
    "aten::dot",
    "aten::addmm",
    "aten::baddbmm",
    "aten::addmv",
    "aten::convolution",
)


def same_layout(got, want, where):
    assert got.dtype == want.dtype and got.shape == want.shape, where
    assert want.numel() == 0 or got.stride() == want.stride(), (
        f"strides {got.stride()}, eager {want.stride()}\n{where}"
    )


def same_product(call, got):
    exact, size = call.again(in_float64), call.again(lambda a: tree_map(sizes, in_float64(a)))
    for g, w, x, s in zip(got, call.results, exact, size):
        same_layout(g, w, call.text)
        assert_rounding(g, w, x, s, call.text)


def sizes(value):
    return (
        value.abs() if isinstance(value, torch.Tensor) else abs(value) if isinstance(value, float) else value
    )


def same(got, want, where):
    same_layout(got, want, where)
    torch.testing.assert_close(
        got, want, equal_nan=True, **TOLERANCE.get(want.dtype, {}), msg=lambda m: f"{m}\n{where}"
    )


def check(call, lowered):
    """Compiles and runs one recorded call; appends it and its number of extern calls to lowered."""
    if call.full.startswith(UNDEFINED):
        return
    graph = native.Graph(call.text)
    got = graph.run(*call.inputs)
    lowered.append((call, graph.info()["externs"]))
    if call.full.split(".")[0] in PRODUCTS and call.results[0].dtype in (torch.float32, torch.float64):
        return same_product(call, got)
    for g, w in zip(got, call.results):
        if w.dtype not in (torch.bfloat16, torch.float16) or not call.full.startswith(INEXACT_16):
            same(g, w, call.text)


# Ops whose every form in the database becomes loops.
LOWERED = set(
    """abs neg floor ceil round trunc frac sign sgn square exp exp2 expm1 log log2 log10 log1p sqrt rsqrt sin cos tan asin
    acos atan sinh cosh tanh asinh acosh atanh erf erfc lgamma reciprocal sinc logit deg2rad rad2deg nan_to_num sigmoid relu
    relu6 hardtanh hardswish hardsigmoid silu gelu mish elu celu selu leaky_relu softplus softshrink hardshrink threshold
    log_sigmoid_forward glu add sub rsub mul div floor_divide remainder fmod maximum minimum fmax fmin pow bitwise_and
    bitwise_or bitwise_xor bitwise_not bitwise_left_shift bitwise_right_shift nextafter atan2 copysign hypot heaviside
    logaddexp logaddexp2 xlogy eq ne lt le gt ge logical_and logical_or logical_xor logical_not isnan isinf isfinite
    isposinf isneginf signbit where masked_fill clamp clamp_min clamp_max addcmul addcdiv lerp clone _to_copy fill full
    zeros ones full_like zeros_like ones_like eye tril triu view _unsafe_view expand permute transpose t slice select
    squeeze unsqueeze unfold diagonal as_strided split split_with_sizes unbind alias detach cat stack constant_pad_nd
    reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d replication_pad3d flip roll
    repeat diag_embed slice_scatter select_scatter diagonal_scatter as_strided_scatter sum mean prod amax amin max min
    argmax argmin any all var std var_mean std_mean logsumexp linalg_vector_norm nansum count_nonzero cumsum cumprod
    _softmax _log_softmax native_layer_norm native_group_norm _native_batch_norm_legit_no_training embedding gather
    index_select take scatter scatter_add scatter_reduce max_pool2d_with_indices max_pool3d_with_indices
    _adaptive_avg_pool2d _adaptive_avg_pool3d upsample_nearest1d upsample_nearest2d upsample_nearest3d
    upsample_linear1d upsample_bilinear2d upsample_trilinear3d upsample_bicubic2d mse_loss smooth_l1_loss huber_loss
    nll_loss_forward nll_loss_backward threshold_backward sigmoid_backward tanh_backward silu_backward gelu_backward
    _softmax_backward_data _log_softmax_backward_data native_layer_norm_backward embedding_dense_backward
    max_pool2d_with_indices_backward avg_pool2d_backward""".split()
)


def must_lower(call):
    """Whether this call has to become loops: forms that are eager's by design are left out."""
    name = call.full.removeprefix("aten::").split(".")[0]
    tensors = call.inputs + call.results
    if name not in LOWERED or any(t.is_complex() or t.dtype not in cases.ALL for t in tensors):
        return False
    if name.startswith("upsample") and tensors[0].dtype is torch.uint8:
        return False  # ATen's fixed-point kernels
    if name == "nextafter" and tensors[0].element_size() < 4:
        return False  # the next number of 16 bits
    if name in ("gather", "scatter", "scatter_add", "scatter_reduce"):
        return len({t.dim() for t in tensors}) == 1 and call.results[0].dtype is not torch.bool
    if "adaptive" in name or "pool" in name:
        return all(t.numel() for t in tensors) and tensors[0].is_floating_point()
    return True


def recorded(op, dtype, grad):
    """The ATen calls of two samples of an operator, forward or with backward."""
    for s in cases.samples(op, dtype, 2, grad):
        calls = CallRecorder()
        try:
            with torch.set_grad_enabled(grad), calls:
                out = op(s.input, *s.args, **s.kwargs)
                terms = [
                    t.sum() for t in tree_flatten(out)[0] if isinstance(t, torch.Tensor) and t.requires_grad
                ]
                if terms:
                    sum(terms).backward()
        except Exception:  # a sample that eager itself refuses
            continue
        yield from calls.calls


seen = collections.Counter()  # calls checked so far, of all operators together: add and sum are everywhere


def worth_checking(call):
    tensors = call.inputs + call.results
    if not call.results or any(t.dtype not in cases.ALL for t in tensors):
        return False
    lowered = call.full.removeprefix("aten::").split(".")[0] in LOWERED
    key = (call.full, *(t.dtype for t in tensors)) if lowered else call.full
    seen[key] += 1
    return seen[key] <= 2


@pytest.mark.parametrize("name", sorted(cases.OPS), ids="-".join)
def test_database(name):
    if why := cases.left_out(name[0]):
        pytest.skip(why)
    op, lowered = cases.OPS[name], []
    for grad, dtypes in (False, cases.DTYPES), (True, [torch.float32, torch.bfloat16]):
        for dtype in dtypes:
            if op.supports_dtype(dtype, "cpu"):
                for call in recorded(op, dtype, grad):
                    if worth_checking(call):
                        check(call, lowered)
    missed = {c.text for c, externs in lowered if externs and must_lower(c)}
    assert not missed, "became calls:\n" + "\n".join(missed)


aten = torch.ops.aten
POINTWISE = [
    f.default
    for f in (
        aten.abs,
        aten.neg,
        aten.relu,
        aten.sign,
        aten.sigmoid,
        aten.exp,
        aten.sqrt,
        aten.isnan,
        aten.logical_not,
        aten.clone,
    )
]
BINARY = [aten.add.Tensor, aten.mul.Tensor, aten.lt.Tensor, aten.eq.Tensor, aten.maximum.default]
REDUCTIONS = [
    (aten.sum.dim_IntList, [1]),
    (aten.sum.dim_IntList, [0, 2, 3], True),
    (aten.amax.default, [2]),
    (aten.any.dim, 3),
    (aten.argmax.default, 1),
    (aten.prod.dim_int, 3),
    (aten.cumsum.default, 2),
    (aten.sum.default,),
]


@pytest.mark.parametrize("dtype", cases.ALL, ids=str)
@pytest.mark.parametrize("layout", [name for name, _ in cases.layouts(torch.float32)])
def test_layouts(layout, dtype):
    """Every layout through every kind of nest, all calls in one graph; eager decides which of them exist."""
    x, text, results = dict(cases.layouts(dtype))[layout], Text(), []
    calls = [(f, x) for f in POINTWISE] + [(f, x, *args) for f, *args in REDUCTIONS]
    calls += [(f, x, z) for f in BINARY for _, z in cases.layouts(dtype)]
    for func, *args in calls:
        try:
            results += text.call(func, args, {}, func(*args))
        except (RuntimeError, IndexError):
            continue
    graph = native.Graph(text.finish(results))
    assert graph.info()["externs"] == 0
    for got, want in zip(graph.run(*text.inputs), results):
        same(got, want, text.line_of(want))


PROGRAMS = {}


def program(make):
    PROGRAMS[make.__name__] = make
    return make


@program
def reuse():
    def f(x, y):
        a = (x * y + 1).sin()
        b = a.sum(-1, keepdim=True)
        return (a / b).transpose(0, 1), b.squeeze(-1), a

    return f, torch.randn(4, 6), torch.randn(4, 6)


@program
def attention_like():
    def f(x):
        q, k, v = x.view(2, 3, 3, 4).unbind(2)
        return (
            torch.softmax(q.transpose(1, 2).reshape(2, -1) * 0.5, -1),
            torch.cat([k.exp(), v.neg()], 1),
            F.gelu(v).permute(2, 0, 1),
        )

    return f, torch.randn(2, 3, 12)


@program
def moves():
    def f(x):
        return (
            F.pad(F.relu(x * 2), (1, 2, 0, 1)).flip(1),
            torch.roll(x.cos(), 1, 0).t(),
            x.unfold(0, 2, 1).exp().sum(-1),
        )

    return f, torch.randn(4, 5)


@program
def statistics():
    def f(x):
        m, v = x.mean((0, 2), keepdim=True), x.var((0, 2), keepdim=True, unbiased=False)
        y = (x - m) * torch.rsqrt(v + 1e-5)
        return y, y[:, ::2].contiguous().view(-1), F.max_pool1d(y, 2)

    return f, torch.randn(3, 4, 6)


@program
def aliases():
    def f(x):
        y = x.exp()
        return y.expand(3, *y.shape), y[1:] * 2, y.t() + 1

    return f, torch.randn(4, 6)


@program
def resize():
    def f(x):
        return F.interpolate(x.sigmoid()[None], scale_factor=2).squeeze(0), F.avg_pool1d(x * 2, 3, padding=1)

    return f, torch.randn(2, 3, 5)


@program
def lookup():
    def f(i, w):
        e = F.embedding(i, w)
        return (
            (e * 2).mean(1),
            e.double().cumsum(1),
            torch.where(i[..., None] > 1, e, 0.0),
            w[i.flatten(), None, 1:],
        )

    return f, torch.randint(0, 5, (2, 3)), torch.randn(5, 4)


@program
def matmul_between():
    def f(x, w, b):
        h = F.layer_norm(F.gelu(x @ w) + x, (8,), b, b)
        return h, (h.view(2, 3, 2, 4).transpose(1, 2) * 2) @ w[:4, :4]

    return f, torch.randn(2, 3, 8), torch.randn(8, 8), torch.randn(8)


@program
def bool_and_int():
    def f(i):
        m = (i % 3 == 0) | (i > 5)
        return (
            i.masked_fill(m, -1).cumsum(0),
            m.any(1),
            (~m).sum(),
            i.float().mean(),
            i // 3,
            i >> 1,
            i.clamp(2, 6) ** 2,
        )

    return f, torch.arange(12).view(3, 4)


@program
def training():
    def f(x, w, v, b, y):
        with torch.enable_grad():
            params = [t.detach().requires_grad_() for t in (w, v, b)]
            w, v, b = params
            h = F.max_pool2d(
                F.relu(F.batch_norm(F.conv2d(x, w, padding=1), None, None, b, b, training=True)), 2
            )
            h = F.layer_norm(F.gelu(F.group_norm(h, 2, b, b)).flatten(2).mean(2), (4,), b, b)
            loss = F.cross_entropy(F.linear(F.silu(h), v) * b.exp().sum(), y)
            return [loss.detach(), *torch.autograd.grad(loss, params)]

    return (
        f,
        torch.randn(2, 3, 6, 6),
        torch.randn(4, 3, 3, 3) * 0.2,
        torch.randn(5, 4),
        torch.rand(4),
        torch.tensor([1, 4]),
    )


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_program(name):
    f, *args = PROGRAMS[name]()
    text, inputs, want = record(f, *args)
    got = native.Graph(text).run(*inputs)
    for g, w in zip(got, want):
        if name == "training":  # gradients of sums: as eager up to the order of additions
            torch.testing.assert_close(g, w, rtol=1e-4, atol=1e-5)
        else:
            same(g, w, text)


WRITEBACKS = {
    "in place": (
        "%1 = input f32[4]\n%2 = aten::add_.Scalar(%1, 1.0) : f32[4]\nreturn %2\n",
        lambda a, b: (a + 1, b),
    ),
    "swap": (
        "%1 = input f32[4]\n%2 = input f32[4]\n%3 = aten::clone(%1) : f32[4]\n%4 = aten::copy_(%1, %2) : f32[4]\n"
        "%5 = aten::copy_(%2, %3) : f32[4]\nreturn %5\n",
        lambda a, b: (b, a),
    ),
    "reversed": (
        "%1 = input f32[4]\n%2 = aten::flip(%1, [0]) : f32[4]\n%3 = aten::copy_(%1, %2) : f32[4]\nreturn %2\n",
        lambda a, b: (a.flip(0), b),
    ),
    "part": (
        "%1 = input f32[4]\n%2 = aten::slice.Tensor(%1, 0, 1, 3) : f32[2]{1}+1\n%3 = aten::mul_.Scalar(%2, 2.0) : f32[2]{1}+1\n"
        "%4 = aten::sum(%1) : f32[]\nreturn %4\n",
        lambda a, b: (a * torch.tensor([1.0, 2, 2, 1]), b),
    ),
    "momentum": (
        "%1 = input f32[4]\n%2 = input f32[4]\n%3 = aten::mul_.Scalar(%2, 0.9) : f32[4]\n"
        "%4 = aten::add_.Scalar(%3, 0.5) : f32[4]\n%5 = aten::sin(%4) : f32[4]\n"
        "%6 = aten::sub_.Tensor(%1, %5) : f32[4]\nreturn %6\n",
        lambda a, b: (a - (b * 0.9 + 0.5).sin(), b * 0.9 + 0.5),
    ),
}


@pytest.mark.parametrize("name", sorted(WRITEBACKS))
def test_writeback(name):
    text, want = WRITEBACKS[name]
    a, b = torch.randn(4), torch.randn(4)
    expect = want(a.clone(), b.clone())
    native.Graph(text).run(*[a, b][: text.count("input f32")])
    torch.testing.assert_close((a, b), expect)


@pytest.mark.parametrize("index", [5, -1, 1 << 40])
def test_bounds(index):
    """An index out of range raises what eager raises, and touches no memory."""
    w, i = torch.randn(5, 4), torch.tensor([0, index])
    graph = native.Graph(
        "%1 = input f32[5,4]\n%2 = input i64[2]\n%3 = aten::embedding(%1, %2) : f32[2,4]\nreturn %3\n"
    )
    with pytest.raises(IndexError):
        graph.run(w, i)
    i[1] = 4
    torch.testing.assert_close(graph.run(w, i)[0], w[i])


def test_integer_division_by_zero():
    graph = native.Graph(
        "%1 = input i64[3]\n%2 = input i64[3]\n"
        '%3 = aten::div.Tensor_mode(%1, %2, rounding_mode="floor") : i64[3]\nreturn %3\n'
    )
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        graph.run(torch.tensor([1, 2, 3]), torch.tensor([1, 0, 1]))
