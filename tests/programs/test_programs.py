"""Programs that users of torch.compile know, run with the product's own backend (results, effects, output) and with a
counting backend (number of graphs)."""

import contextlib
import io

import pytest
import scipy.fft
import torch

import magneto


class Counter:
    """A backend that runs the FX graph as it is and counts."""

    def __init__(self):
        self.graphs = 0
        self.ops = 0

    def __call__(self, gm, example_inputs):
        assert isinstance(gm, torch.fx.GraphModule)
        self.graphs += 1
        self.ops += sum(n.op in ("call_function", "call_method", "call_module") for n in gm.graph.nodes)
        assert len([n for n in gm.graph.nodes if n.op == "placeholder"]) == len(example_inputs)
        return gm.forward


def run(fn, args):
    """The result (or exception) of a call and what it printed."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        try:
            result = fn(*args)
        except Exception as e:
            result = (type(e), str(e))
    return result, out.getvalue()


def check(make, calls, graphs=None):
    """make() gives a fresh function; calls is a list of argument-makers. Eager, default backend and counting backend
    agree on each call, twice in a row; graphs is the number of graphs over all of them."""
    counter = Counter()
    eager, ours, counted = make(), magneto.compile(make()), magneto.compile(make(), backend=counter)
    for _ in range(2):
        for args in calls:
            want = run(eager, args())
            for fn in (ours, counted):
                got = run(fn, args())
                torch.testing.assert_close(got[0], want[0])
                assert got[1] == want[1]
    if graphs is not None:
        assert counter.graphs == graphs
    return counter


X = lambda *s: lambda: tuple(torch.full(t, 0.5) + torch.arange(torch.Size(t).numel()).reshape(t) for t in s)


def sin_cos(x, y):
    return torch.sin(x) + torch.cos(y)


def test_function():
    assert check(lambda: sin_cos, [X((10, 10), (10, 10))], graphs=1).ops == 3


def test_decorator():
    @magneto.compile
    def f(x, y):
        return sin_cos(x, y)

    @magneto.compile(fullgraph=True)
    def g(x, y):
        return sin_cos(x, y)

    x, y = torch.randn(10, 10), torch.randn(10, 10)
    for fn in (f, g):
        for _ in range(2):
            torch.testing.assert_close(fn(x, y), sin_cos(x, y))


def test_module():
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = torch.nn.Linear(100, 10)

        def forward(self, x):
            return torch.nn.functional.relu(self.lin(x)) + torch.cos(x[:, :10])

    torch.manual_seed(0)
    net = Net()
    check(lambda: net, [X((10, 100))], graphs=1)


def f1(x, y):
    if x.sum() < 0:
        return -y
    return y


@pytest.mark.parametrize("sign", [1, -1])
def test_data_dependent_branch(sign):
    check(lambda: f1, [lambda: (torch.full((3,), float(sign)), torch.arange(3.0))])


def test_data_dependent_branch_both():
    check(
        lambda: f1, [lambda: (torch.ones(3), torch.arange(3.0)), lambda: (-torch.ones(3), torch.arange(3.0))]
    )


def f2(x, y: int):
    if y > 10:
        return x * y
    return x + y


def test_int_argument():
    check(lambda: f2, [lambda: (torch.ones(3), 3), lambda: (torch.ones(3), 13)], graphs=2)


def f3(x):
    x = x * 2
    z = scipy.fft.dct(x.numpy())
    return torch.from_numpy(z) * x + 1


def test_foreign_call():
    check(lambda: f3, [X((2, 8))], graphs=2)


GLOBAL = 1.0


class Holder:
    scale = 2.0


def test_global_and_attribute():
    global GLOBAL
    holder = Holder()

    def f(x):
        return x * GLOBAL + holder.scale

    compiled = magneto.compile(f)
    x = torch.ones(3)
    for GLOBAL in (1.0, 3.0, 1.0):
        for holder.scale in (2.0, 5.0):
            torch.testing.assert_close(compiled(x), f(x))
    GLOBAL = 1.0


def toy(a, b):
    x = a / (torch.abs(a) + 1)
    if b.sum() < 0:
        b = b * -1
    return x * b


def test_toy_three_graphs():
    calls = [lambda: (torch.arange(10.0), torch.ones(10)), lambda: (torch.arange(10.0), -torch.ones(10))]
    check(lambda: toy, calls, graphs=3)


def printing(x):
    y = torch.sin(x)
    print("between", tuple(y.shape))
    return torch.cos(y) + 1


def test_print_between():
    check(lambda: printing, [X((4,))], graphs=2)


def in_with(x):
    with torch.no_grad():
        y = x * 2
        print("in with", torch.is_grad_enabled())
        z = y + 1
    return z * x, torch.is_grad_enabled()


def in_try(x, fail):
    try:
        y = x * 2
        print("in try")
        if fail:
            raise ValueError("boom")
        y = y + 5
    except ValueError as e:
        print("caught", e)
        y = x - 1
    finally:
        print("finally")
    return y * 3


def in_for(x):
    for i in range(3):
        x = x + i
        print("turn", i)
    return x * 2


def helper(x):
    y = x * 2
    print("in helper")
    return y + 1


def in_helper(x):
    return helper(x) * helper(x + 1)


def test_break_in_with():
    check(lambda: in_with, [X((4,))], graphs=2)


@pytest.mark.parametrize("fail", [False, True])
def test_break_in_try(fail):
    check(lambda: in_try, [lambda: (torch.arange(4.0), fail)])


def test_break_in_try_both():
    check(lambda: in_try, [lambda: (torch.arange(4.0), True), lambda: (torch.arange(4.0), False)])


def test_break_in_for():
    check(lambda: in_for, [X((4,))])


def test_break_in_helper():
    check(lambda: in_helper, [X((4,))])


def test_custom_backend_is_what_runs(capsys):
    seen = []

    def custom_backend(gm, example_inputs):
        gm.graph.print_tabular()
        seen.append((gm, example_inputs))

        def run(*args):
            seen.append("ran")
            return gm.forward(*args)

        return run

    f = magneto.compile(toy, backend=custom_backend)
    a, b = torch.arange(10.0), torch.ones(10)
    torch.testing.assert_close(f(a, b), toy(a, b))
    assert "call_function" in capsys.readouterr().out
    gm, example_inputs = seen[0]
    assert isinstance(gm, torch.fx.GraphModule)
    assert all(isinstance(t, torch.Tensor) for t in example_inputs)
    targets = [n.target for n in gm.graph.nodes if n.op == "call_function"]
    assert torch.abs in targets
    assert "ran" in seen


def test_torch_compile_backend():
    f = torch.compile(sin_cos, backend="magneto")
    x, y = torch.randn(10, 10), torch.randn(10, 10)
    for _ in range(2):
        torch.testing.assert_close(f(x, y), sin_cos(x, y))


def test_fullgraph_names_the_reason():
    f = magneto.compile(printing, fullgraph=True)
    with pytest.raises(Exception, match="print"):
        f(torch.ones(3))


def test_user_exception_has_the_users_line():
    def bad(x):
        y = x + 1  # noqa: F841  something to compile
        raise KeyError("mine")

    import traceback

    with pytest.raises(KeyError) as info:
        magneto.compile(bad)(torch.ones(3))
    frames = traceback.extract_tb(info.value.__traceback__)
    assert frames[-1].name == "bad" and "raise KeyError" in frames[-1].line
