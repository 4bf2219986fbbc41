"""Numbers that depend on values of tensors: they stay in the graph until the program asks what they are.  And calls whose effect
comes at the end of a graph: assertions, counters from outside, printing that torch's compiler was told to put off."""

from __future__ import annotations

import itertools
import logging
import operator
import warnings

import pytest
import torch
import torch._dynamo.config as dynamo

import magneto
from support import assert_same, counts

I = torch.tensor([3, 1, 2])
X = torch.tensor([0.5, -1.25, 2.0])


def row(t):
    a, b, c = t.tolist()
    return a + b * c, [c, b, a], t * b + a


def added(t):
    total = 0
    for n in t.tolist():
        total += n
    return total


ONE_GRAPH = [
    (lambda i, x: i.sum().item(), "int"),
    (lambda i, x: (i.max().item() * 5) // 2 % 7, "floor and remainder"),
    (
        lambda i, x: (lambda n: (n + 1, 2 - n, n * 2.5, n / 4, -n, abs(n), n > 2, 3 == n, n & 6, True + n))(
            i.max().item()
        ),
        "arithmetic",
    ),
    (
        lambda i, x: (lambda n: (x + n, n - x, x * n, x / n, i + n, x.add(i, alpha=n)))(i[0].item()),
        "in tensors",
    ),
    (
        lambda i, x: (
            x.half() * i[0].item(),
            i.int() + i[1].item(),
            i.sum() * i[0].item(),
            (x > 0) * i[0].item(),
        ),
        "promotion",
    ),
    (
        lambda i, x: (
            int(i.sum()),
            float(i.sum()),
            bool(i.sum()),
            int(i[0] > 2),
            float(x.mean()),
            bool(x[0]),
        ),
        "conversions",
    ),
    (lambda i, x: (min(i[0].item(), 2), max(2, i[1].item()), max(x[0].item(), 0.75)), "min and max"),
    (
        lambda i, x: (
            (i[0] > 2).item() & (i[1] > 2).item(),
            (i[0] > 2).item() | (i[1] > 2).item(),
            (i[1] > 2).item(),
        ),
        "truth values",
    ),
    (lambda i, x: row(i), "tolist of ints"),
    (lambda i, x: row(x), "tolist of floats"),
    (
        lambda i, x: (
            i.view(3, 1).tolist(),
            i[0].tolist(),
            (i > 1).tolist(),
            i[:0].tolist(),
            i.flip(0).tolist(),
            x.view(1, 3).t().tolist(),
        ),
        "shapes",
    ),
    (lambda i, x: added(i), "loop over a list"),
    (
        lambda i, x: (
            torch.tensor(i[0].item()),
            torch.tensor([i[0].item(), 2]),
            torch.tensor([x[0].item(), 1], dtype=torch.float64),
        ),
        "torch.tensor",
    ),
    (
        lambda i, x: (
            torch.tensor([[i[0].item(), 2], [3, i[1].item()]]),
            torch.tensor((x[0].item(), 1)),
            torch.tensor([[x[0].item()], [2.0]]),
        ),
        "nested lists",
    ),
    (
        lambda i, x: (
            torch.tensor([x[0], x[1]]),
            torch.tensor([i[0]], dtype=torch.float64),
            torch.tensor([i[0], i[1]]),
        ),
        "torch.tensor of tensors",
    ),
    (
        lambda i, x: (
            (i.numpy() + 1).tolist(),
            x.numpy()[:2].tolist(),
            (i.numpy() > 1).tolist(),
            i.numpy()[0].tolist(),
        ),
        "tolist of arrays",
    ),
    (
        lambda i, x: (
            torch.full((2,), i[0].item()),
            torch.full((2,), i[0].item(), dtype=torch.int32),
            torch.full((), 0.5 * i[0].item()),
        ),
        "full",
    ),
    (lambda i, x: (x.masked_fill(x > 0, i[0].item()), x.clone().fill_(i[0].item())), "fill"),
    (
        lambda i, x: torch._foreach_addcmul([x], [x], [x], value=1 - x[0].double()),
        "foreach with a number that is a tensor",
    ),
    (lambda i, x: (i[0] * 2**61).item() * 8, "beyond int64"),
]


@pytest.mark.parametrize("f", [f for f, _ in ONE_GRAPH], ids=[name for _, name in ONE_GRAPH])
def test_numbers_out_of_tensors_stay_in_one_graph(f):
    c = magneto.compile(f, fullgraph=True)
    for i, x in ((I, X), (I + 4, X * 3), (I, X)):
        assert_same(c(i, x), f(i, x))
    assert not counts().recompiles


@pytest.mark.parametrize(
    "f",
    [
        lambda i, x: x + 1 if i[0].item() > 2 else x - 1,
        lambda i, x: (x[: i[0].item() % 3], torch.arange(i[0].item()), [0] * i[0].item()),
        lambda i, x: f"{i[0].item()} {(i[0] > 2).item()}",
        lambda i, x: ((i[0] > 2).item() is True, (i[0] > 2).item() is False, not (i[0] > 2).item()),
        lambda i, x: {i[0].item(): i[1].item()}[int(i[0])],
        lambda i, x: int(x.sum()) ** i[0].item(),
        lambda i, x: x ** i[0].item(),
        lambda i, x: round(x[0].item(), 1),
        lambda i, x: [n for n in range(i[0].item()) if n in i.tolist()],
        lambda i, x: i[0].item() // i[1].item() + i[0].item() % i[1].item(),
    ],
)
def test_what_needs_the_number_gets_it(f):
    c = magneto.compile(f)
    for i, x in ((I, X), (I + 4, X * 3), (I, X)):
        assert_same(c(i, x), f(i, x))


def test_a_list_that_is_long_ends_the_graph():
    f = lambda t: sum((t * 2).tolist())
    c = magneto.compile(f)
    for n in (65, 300):
        assert c(torch.arange(n)) == f(torch.arange(n))


def test_custom_backends_get_numbers_when_the_program_says_so():
    def f(x):
        n = x.sum().item()
        return x * n, n + 1

    count = [0]

    def backend(gm, inputs):
        count[0] += 1
        return gm

    for on, graphs in ((False, 2), (True, 1)):
        magneto.reset()
        count[0] = 0
        with dynamo.patch(capture_scalar_outputs=on):
            c = magneto.compile(f, backend=backend)
            for x in (I, I + 1):
                assert_same(c(x), f(x))
        assert count[0] == graphs or not on


def test_a_number_that_nothing_reads_is_no_call_of_the_graph():
    from torch._dynamo.testing import CompileCounter

    def f(x):
        y = x.sum()
        y.item()
        return y / x

    counter = CompileCounter()
    with dynamo.patch(capture_scalar_outputs=True):
        assert_same(magneto.compile(f, backend=counter, fullgraph=True)(I + 1), f(I + 1))
    assert counter.op_count == 2


def test_gradients_beside_a_number():
    def f(w):
        loss = (w * w).sum()
        return loss, {"loss": loss.item(), "positive": int((w > 0).sum())}

    c = magneto.compile(f, fullgraph=True)
    for k in (1.0, 2.0):
        w, v = ((X * k).requires_grad_() for _ in range(2))
        (a, m), (b, n) = c(w), f(v)
        a.backward()
        b.backward()
        torch.testing.assert_close(w.grad, v.grad)
        assert m == n


def test_assertions_about_numbers_are_made_in_every_run():
    def f(i):
        n = i[0].item()
        torch._check(n > 1, lambda: f"{n} is too small")
        torch._check_value(n < 100)
        return i + n

    c = magneto.compile(f, fullgraph=True)
    assert_same(c(I), f(I))
    with pytest.raises(RuntimeError, match="0 is too small"):
        c(I - 3)
    with pytest.raises(ValueError, match="Expected cond to be True"):
        c(I + 100)
    assert_same(c(I), f(I))


def test_counters_from_outside_advance_in_every_run():
    counter = itertools.count(2)
    f = magneto.compile(lambda x: x * (next(counter) + 1), fullgraph=True)
    assert [f(torch.ones(1)).item() for _ in range(4)] == [3, 4, 5, 6] and next(counter) == 6
    g = magneto.compile(lambda x, it: (x * next(it), next(it)), fullgraph=True)
    a, b = itertools.count(5), itertools.count(0.5, 0.25)
    got = [g(torch.ones(1), it) for it in (a, a, b, b)]
    assert [(t.item(), n) for t, n in got] == [(5, 6), (7, 8), (0.5, 0.75), (1.0, 1.25)]
    assert next(a) == 9 and next(b) == 1.5


def test_printing_is_put_off_or_left_out_where_the_program_says_so(capsys):
    log = logging.getLogger("test_values")

    def f(x):
        y = x + 1
        print("sum", y.sum())
        warnings.warn("here")
        log.error("not said")
        print(y, end="!\n")
        return y * 2

    with dynamo.patch(
        reorderable_logging_functions={print, warnings.warn}, ignore_logging_functions={logging.Logger.error}
    ):
        c = magneto.compile(f, fullgraph=True)
        for k in (1.0, 2.0):
            with warnings.catch_warnings(record=True) as seen:
                warnings.simplefilter("always")
                torch.testing.assert_close(c(torch.ones(2) * k), torch.ones(2) * (k + 1) * 2)
            assert [str(w.message) for w in seen] == ["here"]
    out, err = capsys.readouterr()
    assert (
        out == "sum tensor(4.)\ntensor([2., 2.])!\nsum tensor(6.)\ntensor([3., 3.])!\n"
        and "not said" not in err
    )


def test_methods_of_one_object_are_left_out(caplog):
    mine, other = logging.getLogger("test_values.mine"), logging.getLogger("test_values.other")

    def f(x):
        if mine.isEnabledFor(logging.ERROR):
            mine.error("not said")
        other.error("said")
        return x + 1

    with dynamo.patch(ignore_logging_functions={mine.error, mine.isEnabledFor}):
        torch.testing.assert_close(magneto.compile(f)(torch.ones(2)), torch.full((2,), 2.0))
    with dynamo.patch(ignore_logging_functions={mine.error}):
        torch.testing.assert_close(magneto.compile(f)(torch.ones(3)), torch.full((3,), 2.0))
    assert [r.getMessage() for r in caplog.records] == ["said"] * 2


@pytest.mark.parametrize("backend", ["magneto", "eager"])
def test_an_operator_without_results_is_run(backend):
    seen = []
    lib = torch.library.Library("magneto_test_values", "FRAGMENT")
    try:
        lib.define(f"say_{backend}(Tensor x) -> ()")
        torch.library.impl(lib, f"say_{backend}", "CPU")(lambda x: seen.append(x.sum().item()))
        say = getattr(torch.ops.magneto_test_values, f"say_{backend}")

        def f(x):
            say(x * 2)
            return x + 1

        c = magneto.compile(f, fullgraph=True, backend=backend)
        for k in (1.0, 2.0):
            torch.testing.assert_close(c(torch.ones(2) * k), torch.ones(2) * k + 1)
        assert seen == [4.0, 8.0]
    finally:
        lib._destroy()


def test_a_gradient_that_was_assigned_to_a_result():
    def f(x):
        y = x + 10
        y.grad, y.name_of_mine = x * 2, 42
        return y

    c = magneto.compile(f, fullgraph=True)
    for x in (X, X + 1):
        y = c(x)
        torch.testing.assert_close(y.grad, x * 2)
        assert y.name_of_mine == 42 and y.is_leaf


def test_recompiling_is_an_error_where_the_program_says_so():
    from torch._dynamo.exc import RecompileError

    with dynamo.patch(error_on_recompile=True):
        c = magneto.compile(lambda x, y: x + y)
        torch.testing.assert_close(c(X, X), X + X)
        with pytest.raises(RecompileError, match="compiled again"):
            c(X, X.double())
        torch.testing.assert_close(c(X, X), X + X)


def test_max_and_min_of_tensors_in_one_graph():
    def f(x, y):
        a, b = x.sum(), y.sum()
        return min(max(a, 0), 1), max([2, 3.5, b]), max(map(torch.mean, [x, y])), min(3, 2) + min(a, b)

    y = X - 3
    for backend in (None, "eager"):
        got = magneto.compile(f, fullgraph=True, **({"backend": backend} if backend else {}))(X, y)
        torch.testing.assert_close([float(v) for v in got], [float(v) for v in f(X, y)])
    with pytest.raises(RuntimeError):
        magneto.compile(lambda x, y: max(x, y), fullgraph=True)(torch.ones(2), torch.ones(2))


@pytest.mark.parametrize("fullgraph", [True, False])
def test_int_of_a_tensor_with_a_float(fullgraph):
    def f(x, k):
        return x + int(x.sum()), int(k), k.__int__(), k.__float__(), torch.zeros(int(k * 2))

    c, broken = magneto.compile(f, fullgraph=fullgraph), counts().breaks
    for k in (3.7, 2.2, 1.0):
        got, want = c(X, torch.tensor(k)), f(X, torch.tensor(k))
        torch.testing.assert_close([got[0], got[4]], [want[0], want[4]])
        assert got[1:4] == want[1:4] and type(got[1]) is int and counts().breaks == broken
    whole = magneto.compile(lambda x: int(x) + 1, fullgraph=fullgraph)
    assert whole(torch.tensor(-2.5)) == -1 and whole(torch.tensor(1e30)) == int(torch.tensor(1e30)) + 1
    with pytest.raises(OverflowError):
        whole(torch.tensor(float("inf")))
    with pytest.raises(ValueError):
        whole(torch.tensor(float("nan")))
    assert magneto.compile(operator.index, fullgraph=fullgraph)(torch.tensor(5)) == 5


def test_tensors_of_numbers_are_traced_by_other_back_ends():
    fns = [
        lambda v: torch.tensor([v.item()]),
        lambda v: torch.tensor([[v.item()], [2.0]]),
        lambda v: torch.tensor(v.item()),
    ]
    with dynamo.patch(capture_scalar_outputs=True):
        for f in fns:
            torch.testing.assert_close(
                magneto.compile(f, backend="aot_eager", fullgraph=True)(X[:1]), f(X[:1])
            )
