"""Graph texts through the whole back end (Graph), compared with torch's own ops.

Every case is a function that graph_text writes down; the compiled text must give the same values, dtypes, sizes and
strides, write the same inputs, and alias what eager aliases.
"""

import sys
import threading
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import graphs
from magneto._magneto import Graph


def storage(t):
    return t.untyped_storage().data_ptr()


def check(fn, *args, tol=None, graph=None):
    """Compiles what fn(*args) does and compares one run of it; returns the Graph."""
    with torch.no_grad():
        text, inputs = graphs.graph_text(fn, *[a.clone() if isinstance(a, torch.Tensor) else a for a in args])
        want_in, got_in = [t.clone() for t in inputs], [t.clone() for t in inputs]
        want = graphs.run_text(text, want_in)
    g = graph or Graph(text)
    got = g.run(*got_in)
    compare(want, want_in, got, got_in, tol or {})
    return g


def compare(want, want_in, got, got_in, tol):
    assert len(want) == len(got)
    for a, b in zip([*want, *want_in], [*got, *got_in]):
        assert a.dtype == b.dtype and a.shape == b.shape
        assert a.numel() == 0 or all(s == t for s, t, n in zip(a.stride(), b.stride(), a.shape) if n > 1)
        torch.testing.assert_close(b, a, equal_nan=True, **tol)
    for i, a in enumerate(want):  # who shares memory with whom
        for k, c in enumerate([*want_in, *want[:i]]):
            other = [*got_in, *got[:i]][k]
            if a.numel() and c.numel():
                assert (storage(a) == storage(c)) == (storage(got[i]) == storage(other)), (i, k)
            assert (a is c) == (got[i] is other)


x = torch.linspace(-3, 3, 24).reshape(4, 6)
y = torch.linspace(0.1, 2, 24).reshape(4, 6)
big = torch.randn(64, 256)
ids = torch.tensor([3, 0, 2, 2])

CASES = {
    "pointwise": (lambda a, b: torch.sin(a) + torch.cos(b), x, y),
    "broadcast": (lambda a, b: a * b[:, :1] - b[0], x, y),
    "reduce": (lambda a: (a.sum(-1), a.amax(0), a.mean()), big),
    "softmax": (lambda a: torch.softmax(a, -1), big),
    "columns": (lambda a: (a.sum(0), a.amax(0), (a * a).mean(0) + 1), torch.randn(67, 4099)),
    "columns of bfloat16": (lambda a: a.sum(0), torch.randn(131, 513).bfloat16()),
    "columns of int32": (
        lambda a: (a.amin(0), (a > 0).any(0)),
        torch.randint(-9, 9, (129, 520), dtype=torch.int32),
    ),
    "columns in a row": (
        lambda a, b: b + a.sum(0, keepdim=True) * a[:1],
        torch.randn(128, 600),
        torch.randn(1, 600),
    ),
    "layer_norm": (lambda a: torch.nn.functional.layer_norm(a, (256,)), big),
    "several": (lambda a, b: (a + b, a - b, (a + b) * 2), x, y),
    "transposed_output": (lambda a: (a * 2).t(), x),
    "view_of_input": (lambda a: a.t(), x),
    "input_itself": (lambda a, b: (a, b + 1), x, y),
    "same_twice": (lambda a: [a + 1] * 2, x),
    "views_of_output": (lambda a: (lambda b: (b, b[1], b.t()))(a * 2), x),
    "only_views": (lambda a: (lambda b: (b[1:3], b[:, 2]))(a * 2), x),
    "in_place_input": (lambda a: a.mul_(2), x),
    "in_place_part": (lambda a, b: (a[1:3].add_(b[:2]), a.sum())[1], x, y),
    "swap_inputs": (lambda a, b: (lambda c: (a.copy_(b), b.copy_(c))[0] + 1)(a.clone()), x, y),
    "host_op": (lambda a: torch.sort(a * 2, dim=1), x),
    "host_chain": (lambda a: torch.sort(torch.sort(a + 1, 0)[0] * 2, 1)[0] + 1, x),
    "host_view": (lambda a: torch.sort(a * 2, dim=1)[0].t(), x),
    "matmul": (lambda a, b: torch.mm(a, b.t()) + 1, x, y),
    "addmm": (lambda a, b: torch.relu(torch.addmm(b[:, 0], a, b.t())), x, y),
    "bmm": (lambda a, b: torch.bmm(a.reshape(2, 2, 6), b.reshape(2, 6, 2)), x, y),
    "gather": (lambda a, i: a[i], x, ids),
    "embedding": (lambda a, i: torch.nn.functional.embedding(i, a), x, ids),
    "index_put": (lambda a, i: a.index_put_((i,), torch.ones(()), accumulate=True), x, ids),
    "cat": (lambda a, b: torch.cat([a, b * 2, a[:, :1]], 1), x, y),
    "empty": (lambda a: (a[:0] + 1, a[:, :0].sum()), x),
    "scalar": (lambda a: a.sum() * 2 + 1, x),
    "integers": (lambda a: (a.long() // 2, (a > 0).sum(), a.to(torch.int8) + 1), x),
    "halves": (lambda a: (a.half() * 2, a.bfloat16().float() + a.half()), x),
    "doubles": (lambda a: a.double().exp().log1p(), x),
    "bools": (lambda a, b: ((a > 0) & ~(b > 1), torch.where(a > b, a, b)), x, y),
    "where_inf": (lambda a: a.masked_fill(a > 0, float("-inf")).softmax(-1), x),
    "strided_input": (lambda a: a + 1, x.t()),
    "expanded_input": (lambda a: a * 2, x[:1].expand(4, 6)),
    "factory": (lambda a: a + torch.arange(6) + torch.ones(4, 1), x),
    "argmax": (lambda a: (a.argmax(1), a.max(0)), x),
    "cumsum": (lambda a: a.cumsum(1), x),
    "conv": (
        lambda a: torch.nn.functional.conv2d(a, torch.ones(8, 4, 3, 3), padding=1).relu(),
        torch.randn(2, 4, 8, 8),
    ),
    "pool": (lambda a: torch.nn.functional.max_pool2d(a, 2), torch.randn(2, 4, 8, 8)),
    "batch_norm": (
        lambda a, m, v: torch.nn.functional.batch_norm(a, m, v, training=True),
        torch.randn(4, 3, 5, 5),
        torch.zeros(3),
        torch.ones(3),
    ),  # fmt: skip
    "attention": (
        lambda a: torch.nn.functional.scaled_dot_product_attention(a, a, a),
        torch.randn(2, 3, 8, 16),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_same_as_eager(name):
    fn, *args = CASES[name]
    check(fn, *args)


def test_runs_again_on_other_tensors():
    fn, *args = CASES["several"]
    g = check(fn, *args)
    for _ in range(3):
        check(fn, torch.randn(4, 6), torch.randn(4, 6), graph=g)


@pytest.mark.parametrize("index", [4, -5, 100])
def test_index_error(index):
    fn = CASES["gather"][0]
    g = check(fn, x, ids)
    with pytest.raises(IndexError, match="out of"):
        g.run(x, torch.tensor([0, 1, index, 2]))
    check(fn, x, ids, graph=g)  # the plan is as good as before


def test_written_inputs_bump_their_version():
    a = x.clone()
    g = check(*CASES["in_place_input"])
    before = a._version
    g.run(a)
    assert a._version > before


def test_errors_of_host_calls_pass_through():
    def fn(a, i):
        return torch.sort(a.index_select(0, i) * 2)[0]

    check(fn, x, ids)


SYMBOLIC = """symbol s0 = 12 in [0, 1000000]
%1 = input f32[s0,10]
%2 = input f32[10]
%3 = aten::sin(%1) : f32[s0,10]
%4 = aten::add.Tensor(%3, %2) : f32[s0,10]
%5 = aten::_softmax(%4, 1, False) : f32[s0,10]
%6 = aten::cumsum(%5, 0) : f32[s0,10]
%7, %8 = aten::sort(%6, 1, False) : f32[s0,10], i64[s0,10]
%9 = aten::add.Tensor(%7, %8) : f32[s0,10]
%10 = aten::cumsum(%9, 1) : f32[s0,10]
%11 = aten::mul.Tensor(%10, %5) : f32[s0,10]
return %5, %6, %11
"""


def test_symbolic_sizes():
    """One plan for every size: intermediates are placed anew when the size changes."""
    g = Graph(SYMBOLIC)
    for n in (12, 3, 100, 1, 12, 0, 1000):
        a, b = torch.randn(n, 10), torch.randn(10)
        soft = torch.softmax(a.sin() + b, 1)
        total = soft.cumsum(0)
        values, index = total.sort(1)
        want = [soft, total, (values + index).cumsum(1) * soft]
        for p, q in zip(want, g.run(a, b)):
            torch.testing.assert_close(q, p, rtol=1e-4, atol=1e-4)


def test_32_threads():
    graph = {n: check(*CASES[n]) for n in ("several", "host_chain", "softmax")}
    failed = []

    def work(seed):
        gen = torch.Generator().manual_seed(seed)
        for _ in range(20):
            for n, g in graph.items():
                args = [torch.randn(a.shape, generator=gen) for a in CASES[n][1:]]
                want = CASES[n][0](*args)
                want = want if isinstance(want, tuple) else (want,)
                if not all(torch.allclose(p, q, atol=1e-5) for p, q in zip(want, g.run(*args))):
                    failed.append((seed, n))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(32)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failed


@pytest.mark.model
@pytest.mark.parametrize("train", [False, True], ids=["infer", "train"])
@pytest.mark.parametrize("name", graphs.MODELS)
def test_models(name, train):
    text, inputs = graphs.model_text(name, train=train)
    if train:
        check_training(text, inputs)
        return
    with torch.no_grad():
        want_in, got_in = [t.clone() for t in inputs], [t.clone() for t in inputs]
        want = graphs.run_text(text, want_in)
    compare(want, want_in, Graph(text).run(*got_in), got_in, {"rtol": 1e-3, "atol": 1e-4})


def check_training(text, inputs):
    """Formulas are checked in double precision.  In single precision an activation within rounding of a kink (relu6 at
    0 or 6) takes one side or the other, which moves single gradients by far more than rounding: norms are compared."""
    with torch.no_grad():
        double = [t.double() if t.dtype is torch.float32 else t.clone() for t in inputs]
        want_in, got_in = [t.clone() for t in double], [t.clone() for t in double]
        exact = text.replace("f32", "f64")
        torch.manual_seed(0)  # dropout draws the same numbers in every run
        want = graphs.run_text(exact, want_in)
        torch.manual_seed(0)
        got = Graph(exact).run(*got_in)
        compare(want, want_in, got, got_in, {"rtol": 1e-6, "atol": 1e-9})
        torch.manual_seed(0)
        single = Graph(text).run(*[t.clone() for t in inputs])
        size = max(float(a.norm()) for a in want)
        for i, (a, b) in enumerate(zip(want, single, strict=True)):
            assert b.dtype is not torch.float64 and b.stride() == a.stride(), i
            assert float((a - b).norm()) <= 0.05 * float(a.norm()) + 1e-4 * size, i
