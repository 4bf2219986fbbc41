"""Bodies of higher-order operators in a custom backend's graph: one node with a GraphModule, eager's results and gradients."""

import pytest
import torch
from torch._higher_order_ops.base_hop import BaseHOP
from torch._higher_order_ops.hints_wrap import hints_wrapper
from torch.utils.checkpoint import checkpoint

import magneto

wrap = torch.ops.higher_order.wrap
W = torch.linspace(-1, 1, 4).requires_grad_()


class Scaled(BaseHOP):
    def __init__(self):
        super().__init__("scaled")


scaled = Scaled()


@torch.compiler.nested_compile_region
def nested_region(a, b):
    return (a * b).sin()


class Keep:
    """A back end that keeps its graphs."""

    def __init__(self):
        self.graphs = []

    def __call__(self, gm, example_inputs):
        self.graphs.append(gm)
        return gm.forward

    def calls(self, gm=None):
        return [str(n.target) for n in (gm or self.graphs[0]).graph.nodes if n.op.startswith("call_")]


def closure(x, y):
    return wrap(lambda a: (a.sin() + y) * W, x) + 1


def nested_containers(x, y):
    def inner(a, b, *, k=1):
        return {"s": a + b * k, "t": (a, 3.0)}

    r = wrap(inner, x, y, k=2)
    return r["s"] * r["t"][0] * r["t"][1]


def twice(x, y):
    return wrap(lambda a: wrap(lambda b: b.cos() + W, a * 2) - y, x)


def without_gradients(x, y):
    with torch.no_grad():
        z = wrap(lambda a: a * 2, x)
    return wrap(lambda a: a + z, x * W)


def block(x, y):
    return checkpoint(lambda a, b: (a * b).sin() * W, x, y, use_reentrant=False).sum()


def base(x, y):
    return scaled(lambda a: (a.sin(), a * y), x, by=3)[1] + 1


SHOWN = {
    closure: ("wrap", 4),
    nested_containers: ("wrap", 3),
    twice: ("wrap", 4),
    without_gradients: ("wrap", 2),
    block: ("tag_activation_checkpoint", 4),
    base: ("scaled", 3),
}


@pytest.mark.parametrize("f", SHOWN)
@pytest.mark.parametrize("tracked", [False, True])
def test_one_node_with_a_body(f, tracked):
    x, y = torch.randn(4).requires_grad_(tracked), torch.randn(4)
    keep = Keep()
    g = magneto.compile(f, backend=keep, fullgraph=True)
    if f is base:  # outside of a compiler the operator only takes functions without free variables

        def want(x, y):
            return x * y + 1
    else:
        want = f
    for _ in range(2):
        r, e = g(x, y), want(x, y)
        torch.testing.assert_close(r, e)
        assert r.requires_grad == e.requires_grad
        if e.requires_grad:
            leaves = [t for t in (x, W) if t.requires_grad]
            for a, b in zip(
                torch.autograd.grad(r.sum(), leaves, allow_unused=True),
                torch.autograd.grad(e.sum(), leaves, allow_unused=True),
            ):
                assert (a is None) == (b is None)
                if a is not None:
                    torch.testing.assert_close(a, b)
    name, nargs = SHOWN[f]
    assert len(keep.graphs) == 1
    nodes = [
        n
        for n in keep.graphs[0].graph.nodes
        if n.op == "call_function" and getattr(n.target, "_name", None) == name
    ]
    assert nodes and len(nodes[0].args) == nargs
    body = getattr(keep.graphs[0], nodes[0].args[0].target)
    assert keep.calls(body)
    assert not any("aten" in c for c in keep.calls() + keep.calls(body))
    torch.testing.assert_close(magneto.compile(f)(x, y), want(x, y))


def test_regions_of_torch_compiler():
    def f(x, y):
        return nested_region(x, y) + nested_region(y, x * 2)

    x, y = torch.randn(4), torch.randn(4)
    keep = Keep()
    torch.testing.assert_close(magneto.compile(f, backend=keep, fullgraph=True)(x, y), f(x, y))
    assert keep.calls().count("invoke_subgraph") == 2
    x.requires_grad_()
    r = magneto.compile(f, backend=Keep(), fullgraph=True)(x, y)
    torch.testing.assert_close(torch.autograd.grad(r.sum(), x), torch.autograd.grad(f(x, y).sum(), x))


def test_strict_mode():
    from torch._higher_order_ops.strict_mode import strict_mode

    def f(x, y):
        return strict_mode(lambda a, b: (a.sin() * y, b.cos()), (x, y))

    x, y = torch.randn(4), torch.randn(4)
    keep = Keep()
    want = x.sin() * y, y.cos()
    torch.testing.assert_close(magneto.compile(f, backend=keep, fullgraph=True)(x, y), want)
    assert keep.calls()[0] == "strict_mode" and len(keep.calls()) == 3
    torch.testing.assert_close(magneto.compile(f, fullgraph=True)(x, y), want)


def test_hints():
    def f(x, y):
        return hints_wrapper(lambda a, b: (a + b).relu(), (x, y), {}, hints={"first": True})

    x, y = torch.randn(4), torch.randn(4)
    keep = Keep()
    torch.testing.assert_close(magneto.compile(f, backend=keep, fullgraph=True)(x, y), (x + y).relu())
    (node,) = [n for n in keep.graphs[0].graph.nodes if n.name == "hints_wrapper"]
    assert node.kwargs == {"hints": {"first": True}}


def test_side_effects_and_random_numbers_stay_outside_of_bodies():
    seen = {}

    def effect(x):
        def body(a):
            seen["n"] = seen.get("n", 0) + 1
            return a.sin() * seen["n"]

        return wrap(body, x) + 1

    x = torch.randn(4)
    keep = Keep()
    g = magneto.compile(effect, backend=keep, fullgraph=True)
    for i in range(1, 3):
        torch.testing.assert_close(g(x), x.sin() * i + 1)
        assert seen["n"] == i
    assert "wrap" not in keep.calls()

    def drops(x):
        return checkpoint(lambda a: torch.nn.functional.dropout(a * W, 0.5), x, use_reentrant=False).sum()

    keep = Keep()
    g = magneto.compile(drops, backend=keep, fullgraph=True)
    torch.manual_seed(1)
    got = torch.autograd.grad(g(x), W)
    torch.manual_seed(1)
    torch.testing.assert_close(got, torch.autograd.grad(drops(x), W))
    assert len(keep.graphs) == 1 and not any("checkpoint" in c for c in keep.calls())


def test_values_that_leave_a_body_otherwise():
    def f(x):
        kept = []
        r = wrap(lambda a: (kept.append(a * 2), a + 1)[1], x)
        return r + kept[0]

    x = torch.randn(4)
    torch.testing.assert_close(magneto.compile(f, backend=Keep(), fullgraph=True)(x), x * 3 + 1)


def test_a_break_in_a_body():
    def f(x, y):
        def body(a):
            magneto.graph_break()
            return a * y

        return wrap(body, x + y) + 1

    x, y = torch.randn(4), torch.randn(4)
    for backend in ("magneto", Keep()):
        torch.testing.assert_close(magneto.compile(f, backend=backend)(x, y), f(x, y))
