"""Graphs and operations that a custom backend is given: as many as torch.compile gives to torch's own counting backend."""
import pytest
import torch
import magneto
from torch._dynamo.testing import CompileCounter


def count(f, *args, **options):
    counter = CompileCounter()
    got = magneto.compile(f, backend=counter, **options)(*args)
    return got, counter.frame_count, counter.op_count


def dead_result(x):
    return not [x + 1]


def only_asked(x):
    y = x + 1
    return torch.is_floating_point(y), y.dim()


def loop_over_rows(x):
    total = 0
    for row in x:
        total = total + row
    return total


def unpack(x):
    a, b, c = x
    return a + b + c


def some_rows(x):
    return list(x)[0] + tuple(x)[2], [a for a, b in zip(x, x)][1]


def explicit_iter(x):
    it = iter(x)
    return next(it) * next(it)


CASES = [(dead_result, 1, 1), (only_asked, 1, 1), (loop_over_rows, 1, 6), (unpack, 1, 5), (some_rows, 1, 4), (explicit_iter, 1, 3)]


@pytest.mark.parametrize("f, graphs, ops", CASES)
def test_counts(f, graphs, ops):
    x = torch.randn(3, 4)
    got, *counts = count(f, x, fullgraph=True)
    torch.testing.assert_close(got, f(x))
    assert counts == [graphs, ops]


def test_nothing_to_compile():
    assert count(lambda x: x.shape[0] + 1, torch.randn(3)) == (4, 0, 0)


@pytest.mark.parametrize("mark", ["graph_break", "skip_frame", "step_unsupported"])
def test_marks_of_torchs_compiler_end_the_graph(mark):
    mark = getattr(torch._dynamo, mark, None) or getattr(torch._dynamo.decorators, mark)

    def f(x):
        x = x + 1
        mark("here")
        return x * 2

    x = torch.randn(3)
    got, graphs, ops = count(f, x)
    torch.testing.assert_close(got, f(x))
    assert (graphs, ops) == (2, 2)
    with pytest.raises(RuntimeError, match="graph"):
        count(f, x, fullgraph=True)
