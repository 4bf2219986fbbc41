"""Graphs and operations that a custom backend is given: as many as torch.compile gives to torch's own counting backend."""

import pytest
import torch

import magneto
from support import counts


def count(f, *args, **options):
    from torch._dynamo.testing import (
        CompileCounter,
    )  # slow, and not needed by the other tests of this process

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


def set_grad_as_it_is(x):
    torch._C._set_grad_enabled(True)
    x = x + 1
    torch._C._set_grad_enabled(True)
    return x * 2


def no_grad_in_no_grad(x):
    with torch.no_grad(), torch.no_grad():
        x = x + 1
    torch.set_grad_enabled(torch.is_grad_enabled())
    return x


def inference_mode(x):
    with torch.inference_mode():
        y = x * 2
    return y + 1


def inference_in_no_grad(x):
    with torch.no_grad():
        with torch.inference_mode():
            y = x * 2
        x = x * 3
    return x + y.shape[0]


CASES = [
    (inference_mode, 1, 4),
    (inference_in_no_grad, 1, 7),
    (set_grad_as_it_is, 1, 4),
    (no_grad_in_no_grad, 1, 3),
    (dead_result, 1, 1),
    (only_asked, 1, 1),
    (loop_over_rows, 1, 6),
    (unpack, 1, 5),
    (some_rows, 1, 4),
    (explicit_iter, 1, 3),
]


@pytest.mark.parametrize("f, graphs, ops", CASES)
def test_counts(f, graphs, ops):
    x = torch.randn(3, 4)
    got, *counted = count(f, x, fullgraph=True)
    torch.testing.assert_close(got, f(x))
    assert counted == [graphs, ops]


def first_in_the_block(x):
    with torch.no_grad():
        torch._dynamo.graph_break()
        return x + 1


def inside_of_the_block(x):
    x = x * 2
    with torch.no_grad():
        y = x + 1
        torch._dynamo.graph_break()
        y = y + 2
        torch._dynamo.graph_break()
        z = y + 3
    return x * 3, y, z, (x * z).sum()


def last_in_the_block(x):
    with torch.no_grad():
        y = x + 1
        torch._dynamo.graph_break()
    return x * 3, y


def block_in_a_block(x):
    with torch.no_grad():
        with torch.enable_grad():
            y = x + 1
            torch._dynamo.graph_break()
            y = y + 2
        z = y * 2
    return y, z, y * z


def set_and_not_restored(x):
    torch.set_grad_enabled(False)
    y = x + 1
    torch._dynamo.graph_break()
    z = y + 2
    torch.set_grad_enabled(True)
    return y, z, x * z


@pytest.mark.parametrize(
    "f, ops",
    [
        (first_in_the_block, [3]),
        (inside_of_the_block, [4, 3, 6]),
        (last_in_the_block, [3, 1]),
        (block_in_a_block, [1, 5]),
        (set_and_not_restored, [2, 3]),
    ],
    ids=lambda p: getattr(p, "__name__", None),
)
@pytest.mark.parametrize("outside", [True, False])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_breaks_inside_of_no_grad(f, ops, outside, backend):
    """Each graph has the block's whole switch of the mode; results require grad as in eager mode, whichever mode the call finds."""
    seen = []
    inner = torch._dynamo.lookup_backend(backend)

    def counting(gm, example_inputs):
        seen.append(sum(n.op.startswith("call") for n in gm.graph.nodes))
        return inner(gm, example_inputs)

    g = magneto.compile(f, backend=counting)
    for mode in (outside, not outside, outside):
        x = torch.randn(3, requires_grad=True)
        for _ in range(2):
            results = []
            for fn in (g, f):
                with torch.set_grad_enabled(mode):
                    r = fn(x)
                    results.append((r if isinstance(r, tuple) else (r,), torch.is_grad_enabled()))
            (got, after), (want, expected) = results
            assert after == expected
            for a, b in zip(got, want, strict=True):
                torch.testing.assert_close(a, b)
                assert a.requires_grad == b.requires_grad
        if outside and len(seen) == len(ops):
            assert seen == ops


def test_nothing_to_compile():
    assert count(lambda x: x.shape[0] + 1, torch.randn(3)) == (4, 0, 0)


@pytest.mark.parametrize("mark", ["graph_break", "skip_frame", "step_unsupported"])
def test_marks_of_torchs_compiler_end_the_graph(mark):
    from torch._dynamo import decorators

    mark = getattr(decorators, mark)

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


# ---- what stands in the graph ----


OPERATORS = [
    lambda x, y: x**2 + x**y + 2**x,
    lambda x, y: (x // y, 5 // x, x % y, 5 % x, 2 - x, 2 / x),
    lambda x, y: (x.int() << 2, 2 << x.int(), x.int() >> 1),
    lambda x, y: x.clone().__ipow__(2),
    lambda x, y: (~(x > y), (x > y) & (y > 1) | (x > 1) ^ (y < 2)),
    lambda x, y: (x.to(float), x.to(bool), x.to(int), x.to(complex)),
    lambda x, y: (x.type(torch.DoubleTensor), x.type("torch.HalfTensor"), x.type(torch.float64)),
    lambda x, y: torch.zeros_like(x, dtype=int),
    lambda x, y: (abs(x), +x, -x, x @ y, [row for row in x][0]),
]


@pytest.mark.parametrize("f", OPERATORS)
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_operators_and_dtypes_are_written_down(f, backend):
    x, y = torch.rand(3, 3) + 1, torch.rand(3, 3) + 1
    torch.testing.assert_close(magneto.compile(f, backend=backend, fullgraph=True)(x, y), f(x, y))


def test_backward_inside_ends_the_graph_of_a_custom_backend():
    def f(a, b):
        out = (a * b).sum()
        out.backward()
        return torch.sigmoid(a.grad + b)

    def inputs():
        torch.manual_seed(0)
        return torch.randn(4, requires_grad=True), torch.randn(4)

    got, graphs, ops = count(f, *inputs())
    torch.testing.assert_close(got, f(*inputs()))
    assert (graphs, ops) == (2, 4)


def test_marks_inside_torchs_own_optimizers_are_not_for_us():
    w = torch.randn(3, requires_grad=True)
    opt = torch.optim.SGD([w], lr=0.1)

    def f():
        w.square().sum().backward()
        opt.step()

    magneto._magneto.reset()
    magneto.compile(f)()
    assert not counts().reasons
