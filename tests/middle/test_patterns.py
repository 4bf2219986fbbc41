"""Library patterns, layouts and simplification: what fires, and that graph texts keep their meaning.

Each case is recorded from eager execution, rewritten by mgopt, and run again with torch's ops; the mg:: ops are those of
mg_reference.py.
"""

import pathlib
import re
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
import graphs  # noqa: E402
import mg_reference  # noqa: E402

MGOPT = ROOT / "build" / "mgopt"
T = torch.randn


@pytest.fixture(scope="module", autouse=True)
def library():
    yield mg_reference.library()


def opt(text, *passes):
    run = subprocess.run([MGOPT, *passes, "-verify"], input=text, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return run.stdout


def ops(text):
    return re.findall(r"= ([\w:.]+)\(", text)


def rewritten(fn, *args, passes=("-simplify", "-patterns", "-simplify", "-layout")):
    """The graph of fn(*args) after the passes; checked to compute the same, with the same output metadata."""
    with torch.no_grad():
        text, inputs = graphs.graph_text(fn, *args)
        before = graphs.run_text(text, [t.clone() for t in inputs])
        after_text = opt(text, *passes)
        after = graphs.run_text(after_text, [t.clone() for t in inputs])
    for a, b in zip(before, after, strict=True):
        torch.testing.assert_close(a, b, rtol=2e-5, atol=2e-5, equal_nan=True)
    ret = re.search(r"return (.*)", after_text)[1].split(", ")
    for name, t in zip(ret, before, strict=True):  # the user's strides stay as eager's
        assert re.search(rf"{name}\b.* [:=].*{re.escape(graphs.type_text(t))}", after_text), (
            name,
            graphs.type_text(t),
        )
    return after_text


def bn(c):
    return T(c), T(c), torch.rand(c) + 0.5, T(c)


def test_linear():
    x, w, b = T(2, 5, 8), T(16, 8), T(16)
    text = rewritten(lambda x: F.gelu(F.linear(x, w, b)), x)
    assert ops(text).count("mg::matmul") == 1 and "aten::gelu" not in ops(text) and '"gelu"' in text
    text = rewritten(lambda x: F.silu(x @ w.t() + b), x)
    assert "aten::silu" not in ops(text)
    text = rewritten(lambda x: F.relu(torch.mm(x, w.t()) + b), T(5, 8))
    assert ops(text) == ["aten::t", "mg::matmul"]


def test_linear_used_twice():
    """An intermediate value with another reader is not folded away."""
    x, w, b = T(5, 8), T(16, 8), T(16)

    def f(x):
        y = F.linear(x, w, b)
        return F.relu(y), y

    assert "aten::relu" in ops(rewritten(f, x))


def test_gelu_spelled_out():
    x, w, b = T(2, 5, 8), T(16, 8), T(16)

    def f(x):
        y = F.linear(x, w, b)
        return 0.5 * y * (1.0 + torch.tanh(0.7978845608028654 * (y + 0.044715 * torch.pow(y, 3.0))))

    text = rewritten(f, x)
    assert '"gelu_tanh"' in text and "aten::tanh" not in ops(text)


@pytest.mark.parametrize("act", ["relu", "relu6", "hardswish", "silu", "leaky_relu", None])
def test_conv_bn_act(act):
    x, w, p = T(2, 8, 9, 7), T(16, 8, 3, 3), bn(16)

    def f(x):
        y = F.batch_norm(F.conv2d(x, w, None, 2, 1), p[3], p[2], p[0], p[1])
        y = getattr(F, act)(y) if act else y
        return F.conv2d(y, w.transpose(0, 1).contiguous())

    text = rewritten(f, x)
    assert ops(text).count("mg::conv") == 2 and "aten::native_batch_norm" not in ops(text)
    if act and act != "relu6":
        assert f"aten::{act}" not in ops(text)


def test_residual():
    x, w, p = T(2, 8, 9, 7), T(8, 8, 3, 3), bn(8)

    def f(x):
        y = F.batch_norm(F.conv2d(x, w, None, 1, 1), p[3], p[2], p[0], p[1])
        return F.relu(y + x) * 2

    text = rewritten(f, x)
    assert "aten::add.Tensor" not in ops(text) and "aten::relu" not in ops(text)


def test_training_batch_norm_stays():
    x, w, p = T(2, 8, 9, 7), T(8, 8, 3, 3), bn(8)
    text = rewritten(lambda x: F.batch_norm(F.conv2d(x, w), p[3].clone(), p[2].clone(), p[0], p[1], True), x)
    assert "aten::native_batch_norm" in ops(text)


def test_layout_keeps_outputs():
    x, w, v = T(2, 8, 9, 7), T(16, 8, 3, 3), T(8, 16, 1, 1)

    def f(x):
        y = F.conv2d(x, w, padding=1)
        z = torch.tanh(y) * torch.sigmoid(y)
        return F.conv2d(z, v), y

    text = rewritten(f, x)
    inner = [line for line in text.splitlines() if "aten::mul" in line][0]
    assert "{1008,1,112,16}" in inner


def test_layout_reaches_through_parts():
    x, w, v = T(2, 8, 9, 7), T(16, 8, 3, 3), T(8, 8, 1, 1)

    def f(x):
        z = torch.cos(F.conv2d(x, w, padding=1))
        a = z[:, 3:-5].sin() + z.narrow(1, 8, 8) + z[:, ::2] + z[:, -1:]
        return F.conv2d(a, v) + z[:, 0].unsqueeze(1)

    text = rewritten(f, x)
    assert "{1008,1,112,16}" in [line for line in text.splitlines() if "aten::cos" in line][0]
    assert "{504,1,56,8}" in [line for line in text.splitlines() if "aten::sin" in line][0]


def test_attention():
    q, k, v = (T(2, 9, 4, 8).transpose(1, 2) for _ in range(3))
    text = rewritten(lambda q, k, v: F.scaled_dot_product_attention(q, k, v), q, k, v)
    assert "mg::sdpa" in ops(text)
    mask = T(2, 1, 9, 9)
    text = rewritten(lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m), q, k, v, mask)
    assert "mg::sdpa" in ops(text)
    text = rewritten(
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.3), q, k, v
    )
    assert "mg::sdpa" in ops(text)
    text = rewritten(lambda q, k, v: F.scaled_dot_product_attention(q, k, v), q[:, :, :1], k, v)
    assert "mg::sdpa" in ops(text)


def test_unsupported_stay():
    x = T(0, 8)
    assert "mg::matmul" not in ops(rewritten(lambda x: F.linear(x, torch.ones(4, 8)), x))
    assert "mg::matmul" not in ops(rewritten(lambda a, b: a.long() @ b.long(), T(3, 4), T(4, 5)))
    assert "mg::matmul" not in ops(
        rewritten(lambda b, a, c: torch.addmm(b, a, c, beta=2.0), T(5), T(3, 4), T(4, 5))
    )
    wide = T(1, 4).expand(6, 4)
    assert "mg::matmul" not in ops(rewritten(lambda a, b: a.t() @ b, wide, T(6, 5)))
    batch = lambda a, b: a.expand(2, 3, 4) @ b.expand(2, 4, 5)
    assert "mg::matmul" not in ops(rewritten(batch, T(1, 3, 4), T(1, 4, 5)))


def test_simplify():
    passes = ("-simplify",)
    x = T(3, 4)
    text = rewritten(lambda x: torch.sin(x) * torch.sin(x), x, passes=passes)
    assert ops(text).count("aten::sin") == 1
    text = rewritten(lambda x: (torch.sin(x), torch.sin(x)), x, passes=passes)
    assert ops(text).count("aten::sin") == 2  # two tensors in eager
    text = rewritten(lambda x: x.clone() + x.view(3, 4).exp(), x, passes=passes)
    assert ops(text) == ["aten::exp", "aten::add.Tensor"]
    text = rewritten(lambda x: x.clone(), x, passes=passes)
    assert ops(text) == ["aten::clone"]
    text, _ = graphs.graph_text(lambda: torch.rand(3) + torch.rand(3))
    assert ops(opt(text, "-simplify")).count("aten::rand") == 2
    square = T(4, 4)
    text = rewritten(lambda x: x.permute(1, 0).contiguous() @ x, square, passes=passes)
    assert "aten::permute" in ops(text)


@pytest.mark.parametrize("name", ["mlp", "vit", "bert", "gpt2", "mobilenet_v2"])
def test_models(name):
    torch.manual_seed(0)
    fn, args = graphs.MODELS[name]()
    rewritten(fn, *args)
