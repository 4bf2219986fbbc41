"""Operators of the program: one node of one graph, whatever they return, write to or derive."""

import pytest
import torch
from torch.library import Library, custom_op
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import magneto
from support import assert_counts, assert_same

X = torch.linspace(-2, 2, 20).reshape(4, 5)
library = Library("magneto_citizens", "DEF")


@custom_op("magneto_citizens::scaled_sin", mutates_args=())
def scaled_sin(x: torch.Tensor, k: float = 2.0) -> torch.Tensor:
    return x.sin() * k


scaled_sin.register_fake(lambda x, k=2.0: torch.empty_like(x))


def keep(ctx, inputs, output):
    ctx.x, ctx.k = inputs


scaled_sin.register_autograd(lambda ctx, g: (g * ctx.x.cos() * ctx.k, None), setup_context=keep)


@custom_op("magneto_citizens::multiples", mutates_args=())
def multiples(
    x: torch.Tensor, by: list[int], name: str, more: torch.Tensor | None = None
) -> list[torch.Tensor]:
    return [x * k for k in by] + ([] if more is None else [more.clone()])


@multiples.register_fake
def _(x, by, name, more=None):
    return [torch.empty_like(x) for _ in by] + ([] if more is None else [torch.empty_like(more)])


@custom_op("magneto_citizens::with_number", mutates_args=())
def with_number(x: torch.Tensor) -> tuple[torch.Tensor, int]:
    return x * 2, x.shape[0]


with_number.register_fake(lambda x: (torch.empty_like(x), x.shape[0]))


@custom_op("magneto_citizens::positive", mutates_args=())
def positive(x: torch.Tensor) -> torch.Tensor:
    return x[x > 0].clone()


@positive.register_fake
def _(x):
    return x.new_empty(torch.library.get_ctx().new_dynamic_size())


@custom_op("magneto_citizens::add_to", mutates_args={"y"})
def add_to(x: torch.Tensor, y: torch.Tensor) -> None:
    y.add_(x)


def define(schema, function, *keys):
    library.define(schema)
    for key in keys:
        library.impl(schema.split("(")[0], function, key)


class Cubed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        with torch._C._AutoDispatchBelowAutograd():
            return torch.ops.magneto_citizens.cubed(x)

    @staticmethod
    def backward(ctx, g):
        return g * 3 * ctx.saved_tensors[0] ** 2


define("halved(Tensor x) -> Tensor", lambda x: x / 2, "CompositeExplicitAutograd")
define("composed(Tensor x) -> Tensor", lambda x: x.cos() * 2, "CompositeImplicitAutograd")
define("flat(Tensor(a) x) -> Tensor(a)", lambda x: x.view(-1), "CPU", "Meta")
define("plus_(Tensor(a!) x, Tensor y) -> Tensor(a!)", lambda x, y: x.add_(y), "CPU", "Meta")
define("cubed(Tensor x) -> Tensor", lambda x: x**3, "CPU", "Meta")
library.impl("cubed", Cubed.apply, "Autograd")
define("no_shape(Tensor x) -> Tensor", lambda x: x.tan(), "CPU")
ops = torch.ops.magneto_citizens


def writes_to_a_view(x):
    y = x * 2
    add_to(x[0], y[1])
    return y + 1


def writes_to_an_argument(x):
    add_to(x * 2, x)
    return x * 2


def views(x):
    y = x * 2
    ops.flat(y).add_(1)
    return y + 1


CASES = {
    "result": lambda x: scaled_sin(x * 2) + 1,
    "numbers": lambda x: scaled_sin(x * 2, 3.0) + 1,
    "lists": lambda x: [t + 1 for t in multiples(x, [2, 3], "name", x)],
    "a number": lambda x: with_number(x)[0] * with_number(x)[1],
    "rows": lambda x: positive(x * 2).sin() + 1,
    "writes to a view": writes_to_a_view,
    "writes to an argument": writes_to_an_argument,
    "explicit": lambda x: ops.halved(x * 2) + 1,
    "composed": lambda x: ops.composed(x * 2) + 1,
    "views": views,
    "in place": lambda x: ops.plus_(x.clone(), x) * 2,
    "written": lambda x: ops.plus_(x, x * 3) * 2 + x,
}


@pytest.mark.parametrize("case", CASES)
def test_one_graph(case):
    f = CASES[case]
    compiled = magneto.compile(f, fullgraph=True)
    for _ in range(2):
        x, y = X.clone(), X.clone()
        torch.testing.assert_close(compiled(x), f(y))
        torch.testing.assert_close(x, y)
    assert_counts(graphs=1, breaks=0)


@pytest.mark.parametrize("op", [scaled_sin, ops.composed, ops.cubed], ids=["registered", "composed", "key"])
def test_gradients(op):
    f = lambda x: op(x * 2).sin().sum()
    compiled = magneto.compile(f, fullgraph=True)
    for _ in range(2):
        x, y = X.clone().requires_grad_(), X.clone().requires_grad_()
        got, want = compiled(x), f(y)
        torch.testing.assert_close(got, want)
        torch.testing.assert_close(torch.autograd.grad(got, x), torch.autograd.grad(want, y))
    assert_counts(joint_graphs=1, breaks=0, graphs=None)


def test_an_operator_without_shapes_breaks_the_graph():
    f = lambda x: ops.no_shape(x * 2) + 1
    compiled = magneto.compile(f)
    for _ in range(2):
        torch.testing.assert_close(compiled(X), f(X))
    assert_counts(graphs=2, breaks=1)


MASKS = {
    "causal": lambda b, h, q, k: q >= k,
    "window": lambda b, h, q, k: (q >= k) & (q - k < 32),
}
SCORES = {
    "none": None,
    "distance": lambda s, b, h, i, j: s + (i - j) * 0.1,
    "softcap": lambda s, b, h, i, j: torch.tanh(s / 5) * 5,
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("where", ["outside", "inside"])
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("score", SCORES)
def test_flex_attention_with_block_masks(score, mask, where):
    torch.manual_seed(0)
    given = create_block_mask(MASKS[mask], None, None, 128, 128, device="cpu")

    def f(q, k, v, given):
        if where == "inside":
            given = create_block_mask(MASKS[mask], None, None, 128, 128, device="cpu")
        return flex_attention(q * 2, k, v, score_mod=SCORES[score], block_mask=given, enable_gqa=True) + 1

    compiled = magneto.compile(f, fullgraph=True)
    for _ in range(2):
        q, k, v = torch.randn(2, 4, 128, 16), torch.randn(2, 2, 128, 16), torch.randn(2, 2, 128, 16)
        torch.testing.assert_close(compiled(q, k, v, given), f(q, k, v, given))
    assert_counts(graphs=1, breaks=0)


@pytest.mark.filterwarnings("ignore")
def test_flex_attention_refuses_gradients_on_the_cpu_as_eager_does():
    q = torch.randn(1, 2, 128, 8, requires_grad=True)
    f = lambda q: flex_attention(q, q, q)
    for g in (f, magneto.compile(f)):
        with pytest.raises(NotImplementedError, match="does not support backward on CPU"):
            g(q)


@custom_op("magneto_citizens::of_rows", mutates_args=())
def of_rows(x: torch.Tensor) -> torch.Tensor:
    if x.dim() != 2:
        raise ValueError("rows wanted")
    return x * 2


@of_rows.register_fake
def _(x):
    if x.shape[0] == 4:
        raise RuntimeError("not written yet")
    if x.dim() != 2:
        raise ValueError("rows wanted")
    return torch.empty_like(x)


def test_a_fake_implementation_that_raises_breaks_the_graph_and_is_named():
    def f(x):
        try:
            return of_rows(x + 1) + 1
        except ValueError as e:
            return x, str(e)

    compiled = magneto.compile(f)
    for x in (X, X[0], X[:3], X):
        assert_same(compiled(x), f(x))
    reasons = magneto.explain(f)(X).break_reasons
    text = "the fake implementation of magneto_citizens::of_rows raises RuntimeError: not written yet"
    assert [(b.kind, b.reason) for b in reasons] == [("fake_result", text)]
    with pytest.raises(RuntimeError, match=text):
        magneto.compile(lambda x: of_rows(x + 1), fullgraph=True)(X)
