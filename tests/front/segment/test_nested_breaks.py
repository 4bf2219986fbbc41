"""Breaks inside of calls: what was recorded before them, in any frame, is one graph, and the frames go on in place."""

import copy
import sys
import traceback

import pytest
import torch

import magneto
from harness import check, forced_breaks
from magneto import _magneto
from support import assert_counts, counts


def stop(*args):
    print(*args)


def callee(a, k=1, *, scale=2):
    b = a * scale + k
    stop("in", b.shape)
    return b + 1


def plain(x):
    y = x + 1
    return callee(y, scale=3) - y


def three_deep(x):
    def one(a):
        return two(a + 1) * 2

    def two(a):
        b = a * 3
        stop("two")
        return b - 1

    return one(x * 2) + 5


def recursive(x, n):
    y = x + n
    if n:
        return recursive(y * 2, n - 1) + y
    stop("bottom")
    return y.cos()


def closure(x):
    total = 0

    def add(q):
        nonlocal x, total
        x = x + q
        total += 1
        stop(total)
        x = x * 2
        return total

    return add(x) + add(x * 3), x, total


def caught(x):
    def fail(a):
        b = a * 2
        stop("fail")
        raise ValueError(b.shape[0])

    try:
        fail(x + 1)
    except ValueError as e:
        return x * e.args[0]


def passes_through_finally(x):
    seen = []

    def middle(a):
        try:
            return inner(a * 2)
        finally:
            seen.append("middle")

    def inner(a):
        b = a + 1
        stop("inner")
        return b

    return middle(x), seen


def grad_mode(x):
    def inner(a):
        with torch.no_grad():
            b = a * 2
            stop(torch.is_grad_enabled())
            c = b + 1
        return c, torch.is_grad_enabled()

    return inner(x + 1)


def stack_below(x):
    return [x + 1, callee(x * 2), *(i * x for i in range(2))], (x.sin(), callee(a=x))


def star_arguments(x):
    def inner(a, *rest, k, **kw):
        b = a + len(rest) + k
        stop(sorted(kw))
        return b * kw["z"], rest

    args, kw = (x + 1, 2, 3), {"k": 4, "z": x}
    return inner(*args, **kw)


class Counter:
    def __init__(self):
        self.n, self.items = 0, []

    def step(self, a):
        self.n += 1
        self.items.append(a * 2)
        stop(self.n)
        self.items.append(self.n)
        return a + self.n

    @property
    def value(self):
        stop("property")
        return self.n


def method(x, c):
    return c.step(x * 2) + c.step(x) + c.value


def through_c(x):
    def key(a):
        t = x * a
        stop(a)
        return float(t.sum())

    return sorted([3, 1, 2], key=key), list(map(lambda i: callee(x + i), [1, 2]))


def generator(x):
    def values(a):
        for i in range(3):
            b = a + i
            stop(i)
            yield b

    return sum(values(x * 2))


def same_object(x):
    items = [x + 1]

    def inner(got, t):
        u = t * 2
        stop(len(got))
        got.append(u)
        return got is items, t is items[0]

    return inner(items, items[0]), items


def raise_from_inner(x):
    def inner(a):
        b = a + 1
        stop("raise")
        raise KeyError("no") from ValueError(str(tuple(b.shape)))

    inner(x * 2)


def breaks_in_every_frame(x):
    def one(a):
        b = a + 1
        stop("one")
        return b * 2

    def two(a):
        b = one(a * 3) - a
        stop("two")
        return b + one(b)

    y = two(x)
    stop("three")
    return y.sin() + y


def tail_raises(x):
    def low(a):
        b = a + 1
        stop("low")
        return b, {}

    def middle(a):
        b, d = low(a * 2)
        c = b - 1
        try:
            return d["missing"]
        finally:
            a += c

    try:
        return middle(x)
    except KeyError as e:
        return x * 2, str(e)


def tail_under_managers(x):
    def low(a):
        b = a * 2
        stop("low")
        return b + 1

    with torch.no_grad():
        y = low(x) * 3
        mode = torch.is_grad_enabled()
    z = y * 2
    return z, mode, torch.is_grad_enabled()


def tail_with_state(x, items, n):
    def low(a):
        nonlocal n
        b = a * n
        stop("low")
        n += 1
        items.append(b)
        return lambda c: b + c * n

    def middle(a):
        got = list(range(2))
        f = low(a + 1)
        got.append(f(a))
        items.append(len(got))
        return f, got, iter(got)

    f, got, it = middle(x)
    return f(x) + n, got, items, list(it), n


def tail_in_a_loop(x):
    def low(a, i):
        b = a + i
        stop(i)
        return b * 2

    def middle(a, n):
        for i in range(n):
            a = low(a, i) - 1
        for i in range(n):
            if i == 1:
                return low(a, i).cos()

    return middle(x, 3) + middle(x + 1, 2)


def tail_of_a_library(x):
    net = torch.nn.Sequential(torch.nn.Identity(), Low(), torch.nn.Identity())
    return net(x + 1) * 2, net(x).sum()


def first_thing(x):
    def low(a):
        stop("low")
        return a + 1

    def middle(a):
        return low(a * 2) * 4

    with torch.no_grad():
        y = middle(x + 8) - 16
    return y, low(y)


class Low(torch.nn.Module):
    def forward(self, x):
        y = x * 2
        stop("low")
        return y + 1


CASES = {
    f.__name__: (f, make, graphs)
    for f, make, graphs in [
        (plain, lambda: (torch.randn(3),), 2),
        (three_deep, lambda: (torch.randn(3),), 2),
        (recursive, lambda: (torch.randn(3), 3), 2),
        (breaks_in_every_frame, lambda: (torch.randn(3),), 5),
        (tail_raises, lambda: (torch.randn(3),), 3),
        (tail_under_managers, lambda: (torch.randn(3, requires_grad=True),), 2),
        (first_thing, lambda: (torch.randn(3, requires_grad=True),), 3),
        (tail_with_state, lambda: (torch.randn(3), [], 2), 2),
        (tail_in_a_loop, lambda: (torch.randn(3),), None),
        (tail_of_a_library, lambda: (torch.randn(3),), None),
        (closure, lambda: (torch.randn(3),), None),
        (caught, lambda: (torch.randn(3),), 2),
        (passes_through_finally, lambda: (torch.randn(3),), 1),
        (grad_mode, lambda: (torch.randn(3),), 2),
        (stack_below, lambda: (torch.randn(3),), None),
        (star_arguments, lambda: (torch.randn(3),), 2),
        (method, lambda: (torch.randn(3), Counter()), None),
        (through_c, lambda: (torch.randn(3),), None),
        (generator, lambda: (torch.randn(3),), None),
        (same_object, lambda: (torch.randn(3),), 1),
        (raise_from_inner, lambda: (torch.randn(3),), 1),
    ]
}


@pytest.mark.parametrize("name", CASES)
def test_nested_break(name):
    f, make, graphs = CASES[name]
    check(f, make)
    if graphs is None:  # called with numbers that change
        assert_counts()
    else:
        assert_counts(graphs=graphs, recompiles=0)


@pytest.mark.parametrize("name", CASES)
def test_break_at_every_instruction(name):
    f, make, _ = CASES[name]
    for k in range(1, 60):
        with forced_breaks(k, inner=True):
            check(f, make, calls=2, eager_backend=True)


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)

    def forward(self, x):
        h = self.linear(x)
        stop("block")
        return torch.relu(h) + x


class Net(torch.nn.Module):
    def __init__(self, n):
        super().__init__()
        self.blocks = torch.nn.ModuleList(Block() for _ in range(n))

    def forward(self, x):
        x = x * 2
        for block in self.blocks:
            x = block(x)
        return x + 1


def test_a_loop_over_modules_that_break_compiles_once():
    net = Net(12)
    x = torch.randn(2, 3)
    with torch.no_grad():
        compiled = magneto.compile(net, backend="aten")
        for _ in range(3):
            torch.testing.assert_close(compiled(x), net(x))
    stats = counts()
    assert stats.recompiles == 0 and stats.fallbacks == 0 and stats.graphs == 25


def test_reason_and_line_are_those_of_the_inner_frame():
    magneto.compile(plain, backend="aten")(torch.randn(3))
    (entry,) = (e for e in _magneto.entries() if e["break"] == "c_function")
    assert entry["code"] is plain.__code__
    assert entry["end_line"] == stop.__code__.co_firstlineno + 1 and entry["end_name"] == "stop"
    assert entry["end_file"] == stop.__code__.co_filename


def test_traceback_shows_every_frame():
    try:
        magneto.compile(raise_from_inner, backend="aten")(torch.randn(3))
    except KeyError as e:
        names = [f.name for f in traceback.extract_tb(e.__traceback__)]
        lines = [f.line for f in traceback.extract_tb(e.__traceback__)]
    assert (
        names[-2:] == ["raise_from_inner", "inner"]
        and lines[-2] == "inner(x * 2)"
        and lines[-1].startswith("raise KeyError")
    )


def test_frames_below_are_there_while_the_inner_one_runs():
    seen = []

    def inner(a):
        b = a + 1
        seen.append([sys._getframe(i).f_code.co_name for i in range(2)] + [sys._getframe(1).f_lineno])
        return b

    def outer(x):
        y = x * 2
        return inner(y)

    compiled = magneto.compile(outer, backend="aten")
    for _ in range(3):
        compiled(torch.randn(2))
    outer(torch.randn(2))
    assert seen[0] == seen[1] == seen[2] == seen[3]


def test_recursion_limit_while_frames_are_made_anew():
    def down(x, n):
        y = x + 1
        if n:
            return down(y, n - 1)
        stop("end")
        return y

    compiled = magneto.compile(down, backend="aten")
    assert torch.equal(compiled(torch.zeros(2), 5), torch.full((2,), 6.0))
    limit = sys.getrecursionlimit()
    depth = len(traceback.extract_stack())
    raised = False
    sys.setrecursionlimit(depth + 12)  # pytest.raises needs frames of its own
    try:
        compiled(torch.zeros(2), 400)
    except RecursionError:
        raised = True
    finally:
        sys.setrecursionlimit(limit)
    assert raised
    assert torch.equal(compiled(torch.zeros(2), 5), torch.full((2,), 6.0))


def test_graphs_and_breaks_of_a_module_in_a_module():
    class Outer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.block = Block()

        def forward(self, x):
            return self.block(x + 1) * 2

    net = Outer()
    compiled = magneto.compile(net, backend="aten")
    x = torch.randn(2, 3)
    torch.testing.assert_close(compiled(x), net(x))
    assert_counts(graphs=2, breaks=1)


def test_what_a_tail_reads_of_the_frames_above_is_guarded():
    def low(a):
        b = a + 1
        stop("low")
        return b

    def top(x, k, flag):
        y = low(x * 2)
        return y * k if flag == "mul" else y - k

    def another(x, k, flag):
        y = low(x * 2)
        return y / k

    f, g = (magneto.compile(fn, backend="aten") for fn in (top, another))
    x = torch.randn(3)
    for k, flag in [
        (2.0, "mul"),
        (2.0, "sub"),
        (3.0, "mul"),
        (2.0, "mul"),
        (torch.ones(3), "sub"),
        (torch.ones(1), "sub"),
    ]:
        assert torch.equal(f(x, k, flag), top(x, k, flag)) and torch.equal(g(x, k, flag), another(x, k, flag))
    assert counts().fallbacks == 0


@pytest.mark.filterwarnings("ignore:magneto")
def test_tails_that_differ_at_every_call_go_on_alone():
    def low(a):
        b = a + 1
        stop("low")
        return b * 2

    def top(x, s):
        return low(x) * len(s)

    f = magneto.compile(top, backend="aten", recompile_limit=2)
    x = torch.randn(3)
    for i in range(6):
        assert torch.equal(f(x, "a" * i), top(x, "a" * i))
    assert any(
        e["code"] is low.__code__ and e["end_name"].endswith("low") and e["returns"]
        for e in _magneto.entries()
    )


def test_variables_of_inner_functions_that_have_no_value_yet():
    """Their cells are made at every call: that they are empty is guarded, not which they are."""

    def top(x, late):
        stop("top")
        y = x + 1
        scale = y * 2
        kept = [t * scale for t in (x, y)]
        if late:
            del scale
        return kept, lambda: scale

    f = magneto.compile(top, backend="aten")
    for i in range(4):
        x = torch.randn(3)
        got, want = f(x, False), top(x, False)
        assert all(torch.equal(a, b) for a, b in zip(got[0], want[0])) and torch.equal(got[1](), want[1]())
    assert counts().recompiles == 0 and counts().fallbacks == 0
    with pytest.raises(NameError):
        f(torch.randn(3), True)[1]()


def test_a_copy_with_a_break_in_it_knows_what_was_copied():
    class Asks:
        def __deepcopy__(self, memo):
            stop("copying")
            kept = memo[id(memo)]
            return all(id(o) in memo for o in kept)

    def f(x):
        inner = [x + 1]
        c = copy.deepcopy([inner, (inner, 2), Asks(), inner])
        return c[2], c[0] is c[3], c[0][0] * 2

    x = torch.ones(3)
    g = magneto.compile(f)
    for _ in range(3):
        assert g(x)[:2] == f(x)[:2] == (True, True)
        assert torch.equal(g(x)[2], f(x)[2])
