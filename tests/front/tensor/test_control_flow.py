"""torch.cond, while_loop, scan, map and flex_attention in one graph, whatever the tensors say."""

import random
import sys

import pytest
import torch
from torch._higher_order_ops.map import map as map_rows
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.nn.attention.flex_attention import flex_attention

import magneto
from support import counts

W = torch.linspace(-1, 1, 4).requires_grad_()


def two_operands(x, y):
    return torch.cond(x.sum() > 0, lambda a, b: (a * b).sin(), lambda a, b: a.exp() + b, (x, y)) * x


def no_operands(x, y):
    h = x * 2
    r = torch.cond(
        pred=y.max() > x.max(),
        true_fn=lambda: {"r": h.sin(), "s": (y * W,)},
        false_fn=lambda: {"r": W + x, "s": (h + 1,)},
        operands=(),
    )
    return r["r"] * r["s"][0]


def one_branch_ignores_an_operand(x, y):
    return torch.cond(x.sum() > 0, lambda a, b: a.cos(), lambda a, b: (b * 3).relu(), (x, y)).sum() + y.sum()


def nested(x, y):
    def inner(a):
        return torch.cond(a.max() > 0.5, lambda b: b.sinh() * y, lambda b: b.tanh(), (a,))

    return torch.cond(x.sum() > 0, inner, lambda a: inner(a.abs()) * 2, (x,))


def undefined_gradient(x, y):
    """The branch that is not taken would give NaN."""
    return torch.cond(x.sum() > 0, lambda a: a.abs().log(), lambda a: (a - a).sqrt() * 0 + y, (x,))


def constant(x, y):
    return torch.cond(x.dim() > 0, lambda a: a + y, lambda a: a - y, (x,))


def loop_in_a_loop(x, y):
    def body(i, a):
        return i + 1, while_loop(lambda j, b: j < 2, lambda j, b: (j + 1, b * 1.1 + y), (torch.tensor(0), a))[
            1
        ]

    return while_loop(lambda i, a: (i < 3) & (a.sum() < 100), body, (torch.tensor(0), x.abs()))[1]


def numbers(x, y):
    i, z = while_loop(
        lambda i, a: (i < 5) & (a.sum() < 30), lambda i, a: (i + 1, a.abs() * 1.5 + y), (torch.tensor(0), x)
    )
    return i + z


def no_turn(x, y):
    return while_loop(lambda a: a.sum() > 1e6, lambda a: (a + 1,), (x * 2,))[0] + y


def rows(x, y):
    carry, out = scan(
        lambda c, a: ({"sum": c["sum"] + a * y[0]}, [c["sum"] * a, a.sin()]),
        {"sum": torch.zeros(())},
        x.abs(),
    )
    return out[0] + out[1] * carry["sum"]


def backwards(x, y):
    carry, out = scan(lambda c, a: (c * a + 1, (c + a)), y.sum(), x, reverse=True)
    return out * carry


def mapped(x, y):
    return map_rows(lambda a, b: (a * b).exp(), x, y).sum(0)


def trained_loop(x, y):
    i, z, w = while_loop(
        lambda i, a, b: i < 4,
        lambda i, a, b: (i + 1, (a * W + y).tanh(), a + b * 0.5),
        (torch.tensor(0), x, y),
    )
    return i + z * w


def many_rows(x, y):
    """Too many to be unrolled."""
    carry, out = scan(lambda c, a: (c * 0.9 + a * W.sum(), (c * y).sin()), y.sum() * 0, x.repeat(30))
    return out.sum(0) * carry


def many_mapped(x, y):
    return map_rows(lambda rows, c: (rows[0] @ rows[1] * c).sin(), [x.repeat(60, 2), y.repeat(60, 2)], y).sum(
        0
    )


def nested_rows(x, y):
    inner = lambda c, a: map_rows(lambda b: b * c + W[0], a.expand(70)).sum()
    return scan(lambda c, a: (c + inner(c, a) * 0.01, c * y), y.sum(), x)[1]


def drawn_rows(x, y):
    """No part of a graph: unrolled."""
    return map_rows(lambda a: a * y + torch.rand(4) * 0, x.repeat(40)).sum(0)


CONDS = [two_operands, no_operands, one_branch_ignores_an_operand, nested, undefined_gradient, constant]
LOOPS = [numbers, no_turn, loop_in_a_loop]
UNROLLED = [rows, backwards, mapped, drawn_rows]
MANY = [many_rows, many_mapped, nested_rows]


def values(sign):
    a = (torch.arange(4) + 0.25) * 0.3 * sign
    return a, torch.tensor([0.5, -0.25, 1.0, 0.75])


def results(f, xs):
    out = f(*xs)
    grads = (
        torch.autograd.grad(out.sum(), [x for x in xs if x.requires_grad], allow_unused=True)
        if out.requires_grad
        else ()
    )
    return out.detach(), grads


@pytest.mark.parametrize("backend", ["magneto", "eager"])
@pytest.mark.parametrize("f", CONDS + UNROLLED + [trained_loop] + MANY)
def test_one_graph_with_gradients(f, backend):
    if f in (rows, many_rows, nested_rows) and torch.__version__ < "2.13":
        pytest.skip("eager's own scan gives other gradients there")
    if f is trained_loop and backend == "eager" and torch.__version__ < "2.12":
        pytest.skip("that while_loop asks the bodies of FX graphs for example values")
    g = magneto.compile(f, backend=backend, fullgraph=True)
    for sign in (1, -1, 1):
        want, got = ([x.clone().requires_grad_() for x in values(sign)] for _ in range(2))
        want = results(f, want)  # first: eager's own scan registers things that a recording reads
        torch.testing.assert_close(results(g, got), want, equal_nan=True)
    if f in UNROLLED or backend == "eager":  # parts are compiled by themselves
        assert counts().graphs == 1


@pytest.mark.parametrize("f, backend", [(f, "magneto") for f in CONDS + MANY] + [(nested, "aot_eager")])
def test_conditions_without_gradients(f, backend):
    g = magneto.compile(f, backend=backend, fullgraph=True)
    with torch.no_grad():
        for sign in (1, -1):
            torch.testing.assert_close(g(*values(sign)), f(*values(sign)))


@pytest.mark.parametrize("backend", ["magneto", "eager", "aot_eager"])
@pytest.mark.parametrize("f", LOOPS)
def test_loops(f, backend):
    g = magneto.compile(f, backend=backend, fullgraph=True)
    for sign in (1, -1):
        torch.testing.assert_close(g(*values(sign)), f(*values(sign)))


def test_both_branches_are_in_a_custom_backends_graph():
    seen = []

    def backend(gm, inputs):
        seen.append(gm)
        return gm.forward

    magneto.compile(two_operands, backend=backend, fullgraph=True)(*values(1))
    (gm,) = seen
    (node,) = [n for n in gm.graph.nodes if n.target is torch.ops.higher_order.cond]
    assert [type(getattr(gm, a.target)).__mro__[1].__name__ for a in node.args[1:3]] == [
        "GraphModule",
        "GraphModule",
    ]


def nested_bodies(x, y):
    def turn(i, a):
        inner = while_loop(
            lambda j, b: j < 2, lambda j, b: (j + 1, (b * 1.1 + a).sin()), (torch.tensor(0), a)
        )[1]
        return i + 1, torch.cond(i > 1, lambda: inner + y, lambda: inner * a)

    return while_loop(lambda i, a: i < 3, turn, (torch.tensor(0), x))[1]


@pytest.mark.parametrize(
    "f", [two_operands, no_operands, many_rows, mapped, nested_bodies], ids=lambda f: f.__name__
)
def test_bodies_in_a_custom_backends_graph_are_calls_of_torch_with_example_values(f):
    graphs = []

    def backend(gm, inputs):
        graphs.extend(m for m in gm.modules() if isinstance(m, torch.fx.GraphModule))
        return gm.forward

    x, y = values(1)
    torch.testing.assert_close(magneto.compile(f, backend=backend, fullgraph=True)(x, y), f(x, y))
    assert len(graphs) > 1
    for n in (n for gm in graphs[1:] for n in gm.graph.nodes):
        operator = isinstance(n.target, torch._ops.HigherOrderOperator)
        assert not isinstance(n.target, torch._ops.OpOverload)
        assert (
            operator
            or n.op not in ("placeholder", "call_function", "call_method")
            or isinstance(n.meta["example_value"], torch.Tensor)
        )


def test_a_backend_of_aot_autograd_traces_loops():
    from torch._dynamo.backends.common import aot_autograd

    def f(x, y):
        return while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, (a * y).sin()), (torch.tensor(0), x))[1]

    x, y = values(1)
    g = magneto.compile(f, backend=aot_autograd(fw_compiler=lambda gm, inputs: gm.forward), fullgraph=True)
    torch.testing.assert_close(g(x, y), f(x, y))


@pytest.mark.parametrize("backend", ["magneto", "eager"])
def test_branches_may_give_the_same_ints(backend):
    def f(x, y):
        return torch.cond(
            x.sum() > 0,
            lambda: {"n": x.shape[0], "r": (x.sin(), 7)},
            lambda: {"n": len(x), "r": (y.cos(), 7)},
        )

    g = magneto.compile(f, backend=backend, fullgraph=True)
    for sign in (1, -1):
        torch.testing.assert_close(g(*values(sign)), f(*values(sign)))
    assert g(*values(1))["r"][1] == 7 and type(g(*values(1))["n"]) is int


def test_trained_branches():
    class M(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

        def forward(self, x):
            return torch.cond(x.sum() > 0, self.a, lambda t: self.b(t).tanh(), (x,)).pow(2).sum()

    torch.manual_seed(0)
    m, n = M(), M()
    n.load_state_dict(m.state_dict())
    for model, call in ((m, m), (n, magneto.compile(n, fullgraph=True))):
        opt = torch.optim.SGD(model.parameters(), lr=0.1)
        for sign in (1, -1, 1):
            opt.zero_grad()
            call(values(sign)[0]).backward()
            opt.step()
    torch.testing.assert_close(n.state_dict(), m.state_dict())
    assert counts().joint_graphs == 3  # and one of each branch


STATE = []


@pytest.mark.parametrize(
    "f",
    [
        lambda x: torch.cond(x.sum() > 0, lambda a: STATE.append(1) or a + 1, lambda a: a - 1, (x,)),
        lambda x: torch.cond(x.sum() > 0, lambda a: torch.rand(4) + a, lambda a: a - 1, (x,)),
        lambda x: torch.cond(x.sum() > 0, lambda a: random.random() + a, lambda a: a - 1, (x,)),
        lambda x: torch.cond(x.sum() > 0, lambda a: a[:2] + 1, lambda a: a - 1, (x,)),
        lambda x: torch.cond(x.sum() > 0, lambda a: print(end="") or a + 1, lambda a: a - 1, (x,)),
    ],
)
def test_what_does_not_fit_ends_the_graph(f):
    with pytest.raises(RuntimeError, match="fullgraph=True, but the graph breaks"):
        magneto.compile(f, fullgraph=True)(values(1)[0])


def test_a_break_in_a_branch_leaves_the_call_to_eager():
    def f(x):
        return torch.cond(
            x.sum() > 0, lambda p: p["a"][0] + torch.rand(4) * 0, lambda p: p["b"] - 1, ({"a": [x], "b": x},)
        )

    x = values(1)[0]
    torch.testing.assert_close(magneto.compile(f)(x), x)


def test_a_loop_without_a_turn_passes_gradients_on():
    """Eager's own differentiates a turn that never was."""
    x, y = (t.requires_grad_() for t in values(1))
    f = magneto.compile(
        lambda x, y: while_loop(lambda a: a.sum() > 1e6, lambda a: (a * y,), (x * 2,))[0] + y, fullgraph=True
    )
    gx, gy = torch.autograd.grad(f(x, y).sum(), (x, y))
    assert gx.tolist() == [2] * 4 and gy.tolist() == [1] * 4


def test_turns_of_a_loop_are_no_recompiles():
    import torch._dynamo.config as config

    x, y = (t.requires_grad_() for t in values(1))
    f = magneto.compile(many_rows, fullgraph=True)
    with config.patch(error_on_recompile=True):
        f(x, y).sum().backward()
        with pytest.raises(Exception, match="error_on_recompile"):
            f(x[:2].detach(), y[:2])


@pytest.mark.parametrize("f, ops", [(many_rows, 8), (mapped, 3), (trained_loop, None)])
def test_a_loop_is_one_operation_of_a_custom_backends_graph(f, ops):
    from torch._dynamo.testing import CompileCounter

    if f is trained_loop and torch.__version__ < "2.12":
        pytest.skip("that while_loop asks the bodies of FX graphs for example values")
    counter = CompileCounter()
    magneto.compile(f, backend=counter, fullgraph=True)(*values(1))
    assert counter.frame_count == 1 and ops in (None, counter.op_count)


@pytest.mark.parametrize("backend", ["magneto", "eager"])
def test_cond_of_a_batched_predicate(backend):
    def f(x):
        return torch.vmap(
            lambda a: torch.cond(a.sum() > 0, lambda b: {"r": b.sin()}, lambda b: {"r": b * 2}, (a,))
        )(x)["r"]

    x, y = (torch.tensor([[1.0, 2], [-1, -2], [3, -1]], requires_grad=True) for _ in range(2))
    got = magneto.compile(f, backend=backend, fullgraph=True)(y)
    torch.testing.assert_close(got, f(x))
    torch.testing.assert_close(torch.autograd.grad(got.sum(), y), torch.autograd.grad(f(x).sum(), x))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("layout", [(0, 1, 2, 3), (0, 2, 1, 3), (1, 3, 0, 2)])
def test_flex_attention_in_the_layout_of_the_query(layout, monkeypatch):
    q = torch.randn(2, 3, 4, 8).permute(layout)
    f = lambda q: flex_attention(q, q * 2, q, score_mod=lambda s, b, h, i, j: s + (i - j) * 0.5)
    want = f(q)
    monkeypatch.setitem(sys.modules, "torch._inductor.ir", None)  # not imported in a fresh process
    got = magneto.compile(f, fullgraph=True)(q)
    assert got.stride() == want.stride()
    torch.testing.assert_close(got, want)


@pytest.mark.filterwarnings("ignore")
def test_flex_attention():
    q = torch.randn(1, 2, 16, 8)
    f = lambda q: flex_attention(
        q, q * 2, q, score_mod=lambda s, b, h, i, j: torch.where(i >= j, s * 2, s - j)
    )
    torch.testing.assert_close(magneto.compile(f, fullgraph=True)(q), f(q))


def sized_branches(x, cond=torch.cond):
    n = x.shape[0]
    return cond(
        x.sum() > 0,
        lambda a: a.sin().view(2 * n) * n,
        lambda a: a.flatten().cos() + torch.arange(n * 2),
        (x,),
    )


def sized_branches_in_branches(x, cond=torch.cond):
    def yes(a):
        return cond(
            a.max() > 1, lambda b: b.view(-1) * b.shape[0], lambda b: b.reshape(x.shape[0] * 2) + 1, (a,)
        )

    return cond(x.sum() > 0, yes, lambda a: a.flatten() * 2, (x,))


def sized_loop(x):
    return while_loop(
        lambda i, a: i < x.shape[0],
        lambda i, a: (i + 1, a.sin() + torch.ones(x.shape[0], 2)),
        (torch.tensor(0), x),
    )[1]


def sized_rows(x):
    last, each = scan(lambda c, a: (c + a, c * a), torch.zeros(2), x)
    return each + map_rows(lambda a: a.sin() * a.shape[0], x) + last


def plain(f, x):
    """The same without torch's operators, which compile their bodies in eager mode."""
    if f is sized_loop:
        for _ in range(len(x)):
            x = x.sin() + 1
        return x
    if f is sized_rows:
        return (x.cumsum(0) - x) * x + x.sin() * 2 + x.sum(0)
    return f(x, lambda p, yes, no, xs: (yes if p else no)(*xs))


@pytest.mark.parametrize("backend", ["magneto", "eager"])
@pytest.mark.parametrize("f", [sized_branches, sized_branches_in_branches, sized_loop, sized_rows])
def test_any_size_needs_two_recordings(f, backend):
    if torch.__version__ < "2.12" and backend == "eager" and f in (sized_loop, sized_rows):
        pytest.skip("loops ask the bodies of FX graphs for example values there")
    g = magneto.compile(f, backend=backend, fullgraph=True)
    for n, sign in ((3, 1), (4, 1), (6, -1), (6, 1)):
        want, got = (((torch.arange(n * 2.0).view(n, 2) + 1) * 0.3 * sign).requires_grad_() for _ in range(2))
        torch.testing.assert_close(results(g, (got,)), results(lambda x: plain(f, x), (want,)))
    assert sum(e["code"] is f.__code__ for e in magneto._magneto.entries()) == 2


def test_out_dtype_is_part_of_the_graph():
    from torch._higher_order_ops.out_dtype import out_dtype

    x, y = torch.randint(-9, 9, (2, 3), dtype=torch.int8), torch.randint(-9, 9, (3, 2), dtype=torch.int8)
    f = magneto.compile(
        lambda x, y: out_dtype(torch.ops.aten.mm.default, torch.int32, x, y) + 1, fullgraph=True
    )
    assert torch.equal(f(x, y), x.int() @ y.int() + 1)
    with pytest.raises(ValueError, match="only allows"):
        magneto.compile(lambda x, y: out_dtype(torch.ops.aten.add.Tensor, torch.int32, x, y))(x, x)


def test_other_higher_order_operators_end_the_graph():
    from torch._C import DispatchKey

    class Twice(torch._ops.HigherOrderOperator):
        def __init__(self):
            super().__init__("twice_for_a_test")
            self.py_impl(DispatchKey.CompositeExplicitAutograd)(lambda x: x * 2)
            self.py_impl(DispatchKey.AutogradCPU)(lambda x: self.below(x))

        def below(self, x):
            with torch._C._AutoDispatchBelowAutograd():
                return self(x)

        def __call__(self, x):
            return super().__call__(x)

    twice = Twice()

    def f(x):
        try:
            return twice(x + 1) + 1
        except AttributeError:
            return x

    assert magneto.compile(f)(torch.ones(2)).tolist() == [5, 5]
    with pytest.raises(RuntimeError, match="higher_order.twice_for_a_test"):
        magneto.compile(f, fullgraph=True)(torch.ones(2))


def test_sizes_that_only_one_branch_settles():
    linear = torch.nn.Linear(3, 3)

    def fn(pred, x):
        return torch.cond(pred, lambda a: linear(a) * a, lambda a: a - 2, (x,))

    c = magneto.compile(fn, dynamic=True, fullgraph=True)
    for rows in (4, 5):
        for pred in (torch.tensor(True), torch.tensor(False)):
            x = torch.randn(rows, 3)
            torch.testing.assert_close(c(pred, x), fn(pred, x))


@pytest.mark.parametrize("rows", [1, 2, 3, 12])
def test_associative_scan_of_single_rows(rows):
    """What combine_mode="pointwise" calls on a GPU: a function of single rows."""
    from torch._higher_order_ops.associative_scan import associative_scan_op

    def combine(a, b, c, d):
        return a * c, c * b + d

    def fn(decay, x):
        return associative_scan_op(combine, (torch.exp(-decay * x.abs()), x), ())[1]

    def want(decay, x):
        factor, state, states = torch.exp(-decay * x.abs()), torch.zeros_like(x[0]), []
        for f, row in zip(factor, x, strict=True):
            state = f * state + row
            states.append(state)
        return torch.stack(states)

    decay, x = torch.rand(4, requires_grad=True), torch.randn(rows, 4, requires_grad=True)
    got, ref = magneto.compile(fn, fullgraph=True)(decay, x), want(decay, x)
    torch.testing.assert_close(got, ref)
    if rows > 1:
        grads = [torch.autograd.grad(r.square().sum(), (decay, x)) for r in (got, ref)]
        torch.testing.assert_close(*grads, rtol=1e-4, atol=1e-5)
