"""magneto.explain tells what compile() does: with its back end, its options, its breaks."""

import functools
import math

import pytest
import torch
from torch._dynamo.testing import CompileCounter

import magneto

X = torch.linspace(-1, 1, 12).reshape(3, 4)


def masked(x):
    return x[x > 0].sum()


def checked(x):
    if (x > 5).any():
        raise ValueError("too large")
    return x + 1


def finite(x):
    return x * 2 if torch.isfinite(x).all() else x


def item(x):
    return x * x.sum().item()


@pytest.mark.parametrize("f", [masked, checked, item])
def test_what_only_other_back_ends_break_at_is_no_break(f):
    c = magneto.compile(f)
    torch.testing.assert_close(c(X), f(X))
    stats = magneto._magneto.stats()
    assert sum(stats["breaks"].values()) == 0
    e = magneto.explain(f)(X)
    assert (e.graph_count, e.graph_break_count) == (stats["graphs"], 0)
    assert magneto.explain(f, backend="eager")(X).graph_break_count == 1
    torch.testing.assert_close(e.result, f(X))


@pytest.mark.parametrize("f", [masked, checked, finite, item, torch.nn.Linear(4, 4), torch.nn.GRU(4, 4)])
@pytest.mark.parametrize("backend", ["magneto", "aten", "eager"])
def test_the_counts_are_those_of_compile(f, backend):
    magneto.compile(f, backend=backend)(X)
    stats = magneto._magneto.stats()
    for e in magneto.explain(f, backend=backend)(X), magneto.explain(magneto.compile(f, backend=backend))(X):
        assert (e.graph_count, e.graph_break_count) == (stats["graphs"], sum(stats["breaks"].values()))


def test_operations_are_those_that_are_compiled():
    e = magneto.explain(masked)(X)
    aten = torch.ops.aten
    assert e.ops_per_graph == [[aten.gt.Scalar, aten.index.Tensor, aten.sum.default]] and e.op_count == 3
    (graph,) = e.graphs
    torch.testing.assert_close(graph(X)[0], masked(X))
    assert torch.sum not in e.ops_per_graph[0] and "aten.index" in str(e)


def test_graphs_of_training_are_those_of_the_forward_pass():
    lin = torch.nn.Linear(4, 4)
    e = magneto.explain(lin)(X)
    assert torch.ops.aten.addmm.default in e.ops_per_graph[0]
    assert e.result.grad_fn is not None
    e.result.sum().backward()
    assert lin.weight.grad is not None


def test_graphs_with_symbolic_sizes():
    x = torch.ones(3, 4)
    magneto.mark_dynamic(x, 0)
    (graph,) = magneto.explain(lambda x: x.view(x.shape[0] * 4))(x).graphs
    assert [n.name for n in graph.graph.nodes if n.op == "placeholder"] == ["l_x_", "s0"]
    assert graph(torch.ones(5, 4), 5)[0].shape == (20,)


def test_branches_are_shown():
    def f(x):
        return torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))

    (graph,) = magneto.explain(f)(X).graphs
    assert torch.ops.aten.cos.default in [n.target for n in graph.cond_false_0.graph.nodes]
    torch.testing.assert_close(graph(X)[0], f(X))


def test_a_graph_that_cannot_be_shown_is_compiled_all_the_same():
    def f(x):
        return torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))

    x = torch.ones(3)
    magneto.mark_dynamic(x, 0)
    e = magneto.explain(f)(x)
    assert "no graph can be shown" in e.graphs[0] and e.graphs[0] in str(e)
    assert e.graph_count == 1 and e.op_count > 0 and e.ops_per_graph == [[]]
    magneto.compile(f)(x)
    (entry,) = [t for t in magneto._magneto.entries() if t["code"] is f.__code__]  # the explained one is gone
    assert entry["guards"] == e.guards[0]  # both have a symbol


def test_options_of_what_is_compiled_are_used():
    def f(x):
        magneto.graph_break()
        return x + 1

    counter = CompileCounter()
    assert magneto.explain(magneto.compile(f, backend=counter))(X).ops_per_graph != [
        [torch.ops.aten.add.Tensor]
    ]
    assert counter.frame_count == 1
    module = magneto.compile(torch.nn.ReLU(), backend=counter)
    magneto.explain(module)(X)
    assert counter.frame_count == 2
    with pytest.raises(RuntimeError, match="graph_break"):
        magneto.explain(magneto.compile(f, fullgraph=True))(X)
    with pytest.raises(RuntimeError, match="graph_break"):
        magneto.explain(f, fullgraph=True)(X)
    with pytest.raises(ValueError, match="mode"):
        magneto.explain(f, mode="fast")


def test_nothing_stays_of_an_explanation():
    c = magneto.compile(masked)
    c(X)
    before = magneto._magneto.entries()
    for _ in range(3):
        assert magneto.explain(c)(X).graph_count == 1
    assert len(magneto._magneto.entries()) == len(before)
    hits = magneto._magneto.stats()["hits"]
    c(X)
    assert magneto._magneto.stats()["hits"] == hits + 1


def test_graphs_come_in_the_order_of_the_run():
    def second(x):
        magneto.graph_break()
        return x.cos()

    def first(x):
        y = second(x.sin())
        print(end="")
        return y.exp()

    ops = [op for graph in magneto.explain(first)(X).ops_per_graph for op in graph]
    aten = torch.ops.aten
    assert ops == [aten.sin.default, aten.cos.default, aten.exp.default]


def test_breaks_with_nothing_before_them_are_not_counted():
    def g(x):
        print(end="")
        y = x + 1
        print(end="")
        print(end="")
        return y * 2

    e = magneto.explain(g)(X)
    assert (e.graph_count, e.graph_break_count, e.op_count) == (2, 1, 2)
    magneto.compile(g)(X)
    assert sum(magneto._magneto.stats()["breaks"].values()) == 2  # of both


def test_a_wrapper_of_the_program_is_explained_itself():
    @functools.wraps(masked)
    def wrapper(x):
        return masked(x) * math.pi

    assert torch.ops.aten.mul.Tensor in magneto.explain(wrapper)(X).ops_per_graph[0]


def test_functions_without_a_frame_are_explained():
    assert magneto.explain(torch.sin)(X).ops_per_graph == [[torch.ops.aten.sin.default]]
