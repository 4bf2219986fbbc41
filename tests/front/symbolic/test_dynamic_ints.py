"""Ints that differ from call to call become inputs of the graph after the first change; what needs the number itself is guarded."""

import math
import operator
import time

import numpy as np
import pytest
import torch
from torch._dynamo.testing import CompileCounter

import magneto
from magneto import _magneto
from support import assert_same, counts


class Counter(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return x * self.calls + 1


def inplace(x, n):
    y = x.clone()
    z = y
    y += n
    y *= n
    y -= 1
    return y, z is y


STEADY = [  # one recompile at most, whatever n is
    lambda x, n: x * n + n - x / (n + 1),
    lambda x, n: (x + n, n - x, n * x, x // (n + 7), x % (n + 7), n / (x + 5)),
    lambda x, n: (x > n, x <= n, n == x, x != n),
    lambda x, n: x + (n + 1) * 2 - (n - 3) // 2 + n % 5 + abs(-n) + n**2,
    lambda x, n: (x * (n / 4), x * (n * 0.5), x + 0.25 * n),
    lambda x, n: (n, n + 1, [n * 2, {"n": n - 1}], x),
    lambda x, n: x * n if n > -1 else x,
    lambda x, n: x.add(n).mul(n).sub(n) + torch.add(x, n),
    lambda x, n: (x.long() + n, x.int() * n, x.bool() + n, x.half() + n, x.double() * n),
    lambda x, n: (x.sum() + n, x.long().sum() + n, x.int().sum().int() * n, x.long().sum() / (n + 1)),
    lambda x, n: x + int(n) + max(n, -5) + operator.add(n, 1),
    lambda x, n: (isinstance(n, int), isinstance(n, (float, str)), type(n) is int, n is None, x + n),
    lambda x, n: torch.where(x > 0, x, n),
    lambda x, n: x * (n if n else 0),
    inplace,
]


def matched(x, n):
    match n:
        case 3:
            return x
        case int(k) if k > 3:
            return x - k
        case float(v):
            return x * v
    return n


PINNED = [  # the number decides: as many compilations as there are values, and the right result
    lambda x, n: x[n % 3],
    lambda x, n: x.expand(n + 1, 3, 4).sum(0),
    lambda x, n: torch.zeros(n + 1) + 1,
    lambda x, n: torch.zeros((n + 1, 2)).shape,
    lambda x, n: sum([x * i for i in range(n)]),
    lambda x, n: x[: n + 1, ..., : n + 2],
    lambda x, n: ([1, 2, 3, 4, 5, 6, 7] * n)[n] if n else x,
    lambda x, n: (f"{n:03d}", str(n), "%d" % n, hash(n), {n: x}[n], {1: 2, n: 3}),
    lambda x, n: x * math.sqrt(n) + math.factorial(n),
    lambda x, n: x.repeat(n + 1, 1),
    lambda x, n: x.reshape(-1, 4)[:, [n % 4, 0]],
    lambda x, n: (n << 2, n >> 1, n & 3, n | 8, ~n, divmod(n, 3), n.bit_length(), round(n), (1 << n) + 1, x),
    lambda x, n: x.sum(n % 2) + torch.full((2, 1), n) + x.pow(n)[:1, :1],
    lambda x, n: torch.arange(n + 1) * n,
    lambda x, n: x.clone().fill_(n) + torch.tensor(n),
    lambda x, n: x**n,
    matched,
    lambda x, n: "x" * n + ("even" if n % 2 == 0 else "odd"),
]


@pytest.fixture(autouse=True)
def fresh():
    _magneto.reset()


def run(f, values, **options):
    g = magneto.compile(f, **options)
    for n in values:
        x = torch.randn(3, 4)
        assert_same(want=f(x, n), got=g(x.clone(), n), what=f"{n!r}", rtol=1e-4, atol=1e-5)
    return counts()


@pytest.mark.parametrize("f", STEADY)
def test_arithmetic_compiles_once_more(f):
    s = run(f, [3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 100, 3])
    assert s.recompiles <= 1 and not s.breaks, s


@pytest.mark.parametrize("f", PINNED)
def test_where_the_number_decides(f):
    s = run(f, [2, 3, 4, 5, 3, 2])
    assert not s.breaks and s.recompiles <= 3, s


def test_negative_zero_and_branches():
    def f(x, n):
        if n < 0:
            return x - n
        return x * n

    s = run(f, [1, 2, 3, -1, -2, 0, 5, -7])
    assert s.recompiles == 2, s  # the input, the other branch


def test_large_ints_stay_exact():
    def f(x, n):
        return n * n * n + 1, n + 2**70, x + n

    run(f, [5, 6, 10**6, 2**31 - 1, 2**31, -(2**31) + 1, 2**40, 2**62])


def test_bools_are_no_ints():
    run(lambda x, n: x + n, [1, 2, True, 3, False])


@pytest.mark.parametrize("backend", ["magneto", "aten"])
def test_counter_of_a_module(backend):
    a, b = Counter(), Counter()
    g = magneto.compile(b, backend=backend)
    for _ in range(10):
        x = torch.randn(3)
        torch.testing.assert_close(g(x), a(x))
        assert type(b.calls) is int and b.calls == a.calls
    assert counts().recompiles <= 1


class Steps(torch.nn.Module):
    def __init__(self, step):
        super().__init__()
        self.calls, self.step = 0, step

    def forward(self, x):
        self.calls += self.step
        y = x
        for _ in range(25):
            y = y.sin() * x + 1
        return y + self.calls


def fastest(g, inputs):
    def once(x):
        start = time.perf_counter()
        g(x)
        return time.perf_counter() - start

    return min(once(x) for _ in range(60) for x in inputs)


@pytest.mark.parametrize("rows", [[2], [2, 3, 4]])
@pytest.mark.parametrize("grad", [False, True])
def test_a_counter_costs_no_more_than_a_constant(grad, rows):
    inputs = [torch.randn(k, 3, requires_grad=grad) for k in rows]
    assert fastest(magneto.compile(Steps(1)), inputs) < 4 * fastest(magneto.compile(Steps(0)), inputs)


def test_gradients():
    def f(x, n):
        return ((x * n + n).square() / n).sum()

    g = magneto.compile(f)
    for n in range(1, 8):
        x, y = torch.randn(4, requires_grad=True), None
        f(x, n).backward()
        y = x.detach().clone().requires_grad_()
        g(y, n).backward()
        torch.testing.assert_close(y.grad, x.grad)
    assert counts().recompiles <= 1


def test_loops_with_a_break_inside():
    def f(x, n):
        for i in range(n):
            x = x + i
            magneto.graph_break()
        return x

    g = magneto.compile(f)
    x = torch.randn(3)
    torch.testing.assert_close(g(x, 20), f(x, 20))
    assert counts().recompiles <= 3, counts()


@pytest.mark.parametrize("dynamic, recompiles", [(None, 1), (True, 0), (False, 5)])
def test_dynamic_says_when(dynamic, recompiles):
    s = run(lambda x, n: x * n, [3, 4, 5, 6, 7, 8], dynamic=dynamic)
    assert s.recompiles == recompiles and not s.breaks, s


@pytest.mark.parametrize(
    "f", [lambda x, n: x[n] * 2, lambda x, n: x[1:, n], lambda x, n: x[x.size(0) - n, n]]
)
def test_rows_are_taken_by_number_without_a_look_at_it(f):
    x = torch.randn(9, 9)
    g = magneto.compile(f, fullgraph=True)
    for n in (1, 2, 3, 4, 5, 6):
        torch.testing.assert_close(g(x, n), f(x, n))
    assert counts().recompiles <= 1
    for n in (-1, 12, 2, -12, 3):
        try:
            want = f(x, n)
        except IndexError as e:
            with pytest.raises(IndexError, match=str(e).replace("(", ".").replace(")", ".")):
                g(x, n)
        else:
            torch.testing.assert_close(g(x, n), want)


def test_many_sizes_are_compiled_each():
    g = magneto.compile(lambda x: (x * 2).sum(-1) + x.shape[0], backend="aten", dynamic=False)
    for _ in range(2):
        for n in range(1, 31):
            x = torch.randn(n, 3)
            torch.testing.assert_close(g(x), (x * 2).sum(-1) + n)
    s = counts()
    assert s.recompiles == 29 and not s.fallbacks, s


def test_ever_more_sizes_end_in_eager_execution():
    g = magneto.compile(lambda x: x + 1, backend="aten", dynamic=False)
    with pytest.warns(RuntimeWarning, match="runs eagerly"):
        for n in range(1, 60):
            assert g(torch.zeros(n)).shape == (n,)
    assert counts().recompiles == 31


def kept_graphs(f, calls, **options):
    graphs = []

    def backend(gm, inputs):
        graphs.append(gm)
        return gm

    c = magneto.compile(f, backend=backend, **options)
    for args in calls:
        torch.testing.assert_close(c(*args), f(*args))
    return len(graphs)


NUMBERS = {
    "clamp": lambda x, n: x.clamp(max=n) + x.clamp(0.25, n) + x.clip(-n, n),
    "power": lambda x, n: x**n + (n + 1) ** x,
    "filled": lambda x, n: (
        torch.full((3,), n) + x.masked_fill(x > 1, n) + torch.full_like(x, n) + x.new_full((3,), n)
    ),
    "tensor": lambda x, n: (
        torch.tensor(n),
        torch.tensor([n, 2]) * 2,
        torch.as_tensor(n) + x,
        torch.tensor([n + 1], dtype=torch.float64),
    ),
    "addcmul": lambda x, n: torch.addcmul(x, x, x, value=n) + torch.addcdiv(x, x, x, value=n),
    "negative": lambda x, n: x + (-n) + n,
}


@pytest.mark.parametrize("first", [2, 0.5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_that_are_given_to_ops(name, dtype, first):
    f = NUMBERS[name]
    calls = [((torch.arange(3, dtype=dtype) + 1) * 0.7, first + i) for i in range(5)]
    assert kept_graphs(f, calls) == 2
    g = magneto.compile(f)
    for args in calls:
        torch.testing.assert_close(g(*args), f(*args))
    assert counts().recompiles <= 2  # one of each


def test_integers_have_no_negative_powers():
    with pytest.raises(RuntimeError, match="negative integer powers"):
        magneto.compile(lambda x: x**-3)(torch.arange(3))


def test_numbers_among_arguments_are_inputs_with_dynamic_true():
    class Add(torch.nn.Module):
        def forward(self, x, n, more):
            return x + n + more["a"][0]

    calls = [(torch.ones(2), 4, {"a": [7]}), (torch.ones(2), 20, {"a": [9]})]
    assert kept_graphs(Add(), calls, dynamic=True) == 1


def test_an_int_where_a_tensor_was_is_an_input_at_once():
    x = torch.ones(3)
    assert kept_graphs(lambda x, y: x * y, [(x, x + 1), (x, 3), (x, 4), (x, x + 2)]) == 2


def test_shapes_of_parameters_change_when_torch_is_told_so():
    calls = [(torch.nn.Parameter(torch.randn(n, 3)),) for n in (10, 11, 15)]
    assert kept_graphs(lambda x: x * 2, calls) == 3
    with torch._dynamo.config.patch(force_parameter_static_shapes=False):
        assert kept_graphs(lambda x: x * 2, calls) == 2


def test_frozen_sets_of_objects_are_compared_by_their_elements():
    a, b, c = object(), object(), torch.ops.aten.mm.default

    def f(x, s):
        return x * len(s) + (1 if a in s else 2)

    sets = [frozenset(s) for s in ([a, b, c], [a, b, c], [b, c])]
    assert kept_graphs(f, [(torch.ones(2), s) for s in sets]) == 2


@pytest.mark.parametrize(
    "values",
    [
        (1.0, 2.5, 0.0, -3.0),
        (2, 3, 4),
        (np.float32(3), np.float32(4)),
        (np.int64(0), np.int64(1), np.int64(5)),
    ],
)
def test_numbers_that_are_inputs_at_once(values):
    counter = CompileCounter()
    dynamic = None if isinstance(values[0], np.generic) else True
    c = magneto.compile(lambda x, n: x * n + 1, backend=counter, dynamic=dynamic)
    for n in values:
        torch.testing.assert_close(c(torch.ones(3), n), torch.ones(3) * n + 1)
    assert counter.frame_count == 1


def test_floats_are_inputs_at_once_where_nothing_is_assumed_static():
    counter = CompileCounter()
    c = magneto.compile(lambda x, n: x * n, backend=counter)
    with torch._dynamo.config.patch(assume_static_by_default=False):
        for n in (1.5, 2.5):
            torch.testing.assert_close(c(torch.ones(3), n), torch.ones(3) * n)
    assert counter.frame_count == 1


LEAST = {
    "factor": lambda x: x * max(x.shape[0], 8),
    "shape": lambda x: torch.zeros(max(x.shape[0], 8), min(x.shape[1], 4)) + x.sum(),
    "torch": lambda x: torch.arange(torch.sym_max(x.shape[0], x.shape[1])) * 2.0,
    "slice": lambda x: x[: min(x.shape[0], 5)] * 2,
    "of a list": lambda x: x[: min([x.shape[0], 6, x.shape[1] + 2])].softmax(0),
    "of a shape": lambda x: x * max(x.shape) + min(x.size()),
    "of a tuple": lambda x: x.sum() + max((x.shape[0] * 2, 9, 3)),
    "cat": lambda x: torch.cat([x, x.new_ones(max(x.size(0), 6), x.shape[1])]),
    "slice of torch": lambda x: torch.empty(x[:5].shape).copy_(x[:5]),
    "negative": lambda x: x + -x.shape[0],
}


@pytest.mark.parametrize("own", (True, False))
@pytest.mark.parametrize("case", LEAST)
def test_least_and_greatest_sizes(case, own):
    """min() and max() of sizes are computed by each run: one graph, on whichever side of the bound a size is."""
    magneto.reset()
    graphs, f = [], LEAST[case]
    g = (
        magneto.compile(f, dynamic=True)
        if own
        else magneto.compile(f, dynamic=True, backend=lambda gm, example: graphs.append(gm) or gm)
    )
    for rows, columns in ((3, 7), (9, 5), (4, 3), (12, 13), (7, 6)):
        x = torch.randn(rows, columns)
        torch.testing.assert_close(g(x), f(x))
    assert counts().entries == 1 and all("aten" not in gm.code for gm in graphs)


def test_least_of_other_numbers():
    """Among them a float or bool, or with a key or default: Python's own answer."""

    def f(x, n):
        s = x.shape[0]
        return (
            x + 1,
            max(s, 2.5),
            max(s, True),
            min((s, 4), key=lambda v: -v),
            max(s, s),
            min([s]),
            max(n, s, 7),
            max((), default=s),
        )

    magneto.reset()
    g = magneto.compile(f, dynamic=True)
    for rows, n in ((3, 5), (9, 6), (2, 12), (7, 7)):
        x = torch.randn(rows)
        assert repr(g(x, n)[1:]) == repr(f(x, n)[1:])


CALLED = {
    "sqrt": (lambda x: x / math.sqrt(x.shape[0]), ["_sym_sqrt", "truediv"]),
    "log": (lambda x: x * math.log(x.shape[0]), ["log", "mul"]),
    "float": (lambda x: x * float(x.shape[0]), ["sym_float", "mul"]),
    "int": (lambda x: x[: int(x.shape[0] * 0.75)], ["mul", "sym_int", "getitem"]),
    "floor": (lambda x: x[: math.floor(x.shape[0] * 0.75)], ["mul", "floor", "getitem"]),
    "ceil": (lambda x: x.new_zeros(math.ceil(x.shape[0] / 2)), ["truediv", "ceil", "new_zeros"]),
    "round": (lambda x: x[: round(x.shape[0] * 0.75)], ["mul", "round", "getitem"]),
    "abs": (lambda x: x.new_ones(abs(1 - x.shape[0])), ["sub", "abs", "new_ones"]),
    "shifts": (
        lambda x: x[: x.shape[0] >> 1].new_zeros(x.shape[0] << 2),
        ["floordiv", "getitem", "mul", "new_zeros"],
    ),
    "divmod": (lambda x: x.new_ones(divmod(x.shape[0], 3)[0]), ["floordiv", "new_ones"]),
    "neg": (lambda x: x.new_ones(-x.shape[0] + 30), ["neg", "add", "new_ones"]),
}


@pytest.mark.parametrize("backend", [None, "aot_eager"])
@pytest.mark.parametrize("case", CALLED)
def test_functions_of_sizes_in_graphs_for_backends(case, backend):
    """They are nodes, so that one graph serves all sizes."""
    f, names = CALLED[case]
    graphs = []
    magneto.reset()
    g = magneto.compile(
        f, dynamic=True, fullgraph=True, backend=backend or (lambda gm, example: graphs.append(gm) or gm)
    )
    for rows in (4, 6, 9, 13):
        x = torch.randn(rows)
        torch.testing.assert_close(g(x), f(x))
    assert counts().entries == 1
    if graphs:
        nodes = [n for n in graphs[0].graph.nodes if n.op.startswith("call")]
        assert [getattr(n.target, "__name__", n.target) for n in nodes] == names
