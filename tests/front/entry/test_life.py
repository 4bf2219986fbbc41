"""The driver around the recorder: threads, recursion, exceptions, debuggers, limits, freeing."""

import gc
import os
import signal
import sys
import threading
import traceback
import warnings
import weakref

import pytest
import torch

import magneto
from harness import check, forced_breaks
from magneto import _magneto
from support import assert_counts, counts


def entries(f=None):
    return [e for e in _magneto.entries() if f is None or e["code"] is f.__code__]


def sin_cos(x, y):
    return torch.sin(x) + torch.cos(y)


# ---- binding of arguments on the hot path ----


def many_kinds(a, /, b, *rest, c=3, d, **kw):
    return a * b + sum(rest) + c * d + sum(kw.values())


@pytest.mark.parametrize(
    "args, kwargs",
    [
        ((1, 2), dict(d=3)),
        ((1,), dict(b=2, d=3)),
        ((1, 2, 3, 4), dict(d=5, c=6, e=7)),
        ((1,), dict(d=3)),  # missing
        ((1, 2), dict(d=3, b=4)),  # twice
        ((), dict(a=1, b=2, d=3)),  # positional only
        ((1, 2), {}),
    ],
)
def test_binding(args, kwargs):
    x = torch.ones(2)
    args = tuple(x * a for a in args)
    kwargs = {k: x * v for k, v in kwargs.items()}
    c = _magneto.Callable(many_kinds)

    def call(f):
        try:
            return f(*args, **kwargs).tolist()
        except TypeError as e:
            return str(e)

    for _ in range(3):
        assert call(c) == call(many_kinds)


def test_hit_compiles_nothing():
    c = _magneto.Callable(sin_cos)
    x = torch.ones(2)
    c(x, x)
    before = counts()
    c(x, x)
    after = counts()
    assert after.hits == before.hits + 1
    assert after.attempts == before.attempts and after.misses == before.misses


def test_methods_and_callables():
    class Net:
        def __init__(self, k):
            self.k = k

        @_magneto.Callable
        def run(self, x):
            return x * self.k

        def __call__(self, x, y=1):
            return self.run(x) + y

    a, b = Net(2), Net(3)
    x = torch.ones(2)
    for _ in range(2):
        assert a.run(x).tolist() == [2, 2] and b.run(x).tolist() == [3, 3]
        assert _magneto.Callable(a)(x).tolist() == [3, 3]
        assert _magneto.Callable(b)(x, y=2).tolist() == [5, 5]


# ---- several segments ----


def test_toy_has_three_graphs():
    def toy(a, b):
        x = a / (torch.abs(a) + 1)
        if b.sum() < 0:
            b = b * -1
        return x * b

    c = _magneto.Callable(toy)
    for sign in (1, -1, 1, -1):
        a, b = torch.randn(10), torch.rand(10) * sign
        assert torch.equal(c(a, b), toy(a, b))
    assert_counts(graphs=3, breaks=1)


def test_traceback_names_the_users_lines():
    def inner(x):
        raise KeyError("inner")

    def f(x):
        y = x * 2
        print(end="")
        return inner(y)

    c = _magneto.Callable(f)
    for _ in range(2):
        with pytest.raises(KeyError) as info:
            c(torch.ones(2))
        names = [t.name for t in traceback.extract_tb(info.tb)]
        lines = [t.line for t in traceback.extract_tb(info.tb)]
        assert names[-2:] == ["f", "inner"]
        assert lines[-2:] == ["return inner(y)", 'raise KeyError("inner")']


def test_exception_context_is_kept():
    def f(x):
        try:
            raise ValueError("a")
        except ValueError:
            y = x + 1  # noqa: F841  the graph that the break ends
            print(end="")
            raise KeyError("b")

    with pytest.raises(KeyError) as info:
        _magneto.Callable(f)(torch.ones(2))
    assert isinstance(info.value.__context__, ValueError)


def test_recompile_limit_warns_once():
    def f(x, n):
        return x + n

    c = _magneto.Callable(f, recompile_limit=3, dynamic=0)
    x = torch.zeros(2)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for n in range(10):
            assert c(x, n).tolist() == [n, n]
    assert len([w for w in seen if "runs eagerly" in str(w.message)]) <= 1
    assert len(entries(f)) <= 3


def test_recompile_limit_warns_once_for_all_instances():
    class Net(torch.nn.Module):
        def forward(self, x, n):
            return x + n

    nets = [Net() for _ in range(3)]
    c = _magneto.Callable(Net.forward, recompile_limit=3, dynamic=0)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for net in nets:
            for n in range(6):
                assert c(net, torch.zeros(2), n).tolist() == [n, n]
    assert len([w for w in seen if "runs eagerly" in str(w.message)]) == 1


def test_recompile_limit_that_the_program_sets():
    def f(x, n):
        return x.reshape(n) + 1

    def graphs(**kwargs):
        magneto.reset()
        seen = []

        def backend(gm, inputs):
            seen.append(gm)
            return gm

        c = magneto.compile(f, backend=backend, dynamic=False, **kwargs)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for n in range(1, 13):
                assert c(torch.zeros(n), n).tolist() == [1] * n
        return len(seen)

    import torch._dynamo.config as config

    assert graphs() == 12 and graphs(recompile_limit=3) == 3
    with config.patch(recompile_limit=2):
        assert graphs() == 2 and graphs(recompile_limit=5) == 5
    for wrong in (0, -1, True, "2"):
        with pytest.raises((TypeError, ValueError), match="recompile_limit"):
            magneto.compile(f, recompile_limit=wrong)


def test_fullgraph_explains():
    def f(x):
        y = x * 2
        print("no")
        return y

    c = _magneto.Callable(f, fullgraph=True)
    with pytest.raises(RuntimeError, match="fullgraph.*print") as info:
        c(torch.ones(2))
    assert __file__ in str(info.value) and "hint" in str(info.value)
    from torch._dynamo.exc import Unsupported

    with pytest.raises(Unsupported, match="fullgraph.*print"):
        c(torch.ones(2))
    assert _magneto.Callable(sin_cos, fullgraph=True)(torch.ones(2), torch.ones(2)).shape == (2,)


def test_errors_are_those_that_torch_names():
    """Programs written for torch.compile catch the classes of torch._dynamo.exc."""
    from torch._dynamo import config, exc

    def f(x, n):
        return x.reshape(n) + 1 if isinstance(n, int) else print(n)

    with pytest.raises(exc.Unsupported, match="fullgraph=True.*print"):
        magneto.compile(f, fullgraph=True)(torch.ones(2), "a")
    c = magneto.compile(f, fullgraph=True, dynamic=False, recompile_limit=2)
    assert [c(torch.zeros(n), n).tolist() for n in (1, 2)] == [[1], [1, 1]]
    with pytest.raises(exc.FailOnRecompileLimitHit, match="compiled 2 times.*fullgraph=True"):
        c(torch.zeros(3), 3)
    assert c(torch.zeros(1), 1).tolist() == [1]
    c = magneto.compile(f, dynamic=False, recompile_limit=1)
    c(torch.zeros(1), 1)
    with config.patch(fail_on_recompile_limit_hit=True), pytest.raises(exc.FailOnRecompileLimitHit):
        c(torch.zeros(2), 2)


# ---- reentrancy ----


def test_recursion():
    def fact(x, n):
        return x if n == 0 else fact(x * n, n - 1)

    c = _magneto.Callable(fact)
    assert c(torch.ones(1), 6).item() == 720

    def through(x, n):
        if n == 0:
            return x
        print(end="")
        return compiled(x + 1, n - 1)

    compiled = _magneto.Callable(through)
    for _ in range(2):
        assert compiled(torch.zeros(1), 5).item() == 5


def test_infinite_recursion_is_the_users_error():
    def f(x):
        return f(x + 1)

    with pytest.raises(RecursionError):
        _magneto.Callable(f)(torch.ones(1))
    assert _magneto.Callable(sin_cos)(torch.ones(2), torch.ones(2)).shape == (2,)


def test_compiled_inside_compiled():
    inner = _magneto.Callable(sin_cos)

    def f(x):
        return inner(x, x) * 2

    def g(x):
        y = inner(x, x)
        print(end="")
        return inner(y, y)

    x = torch.randn(3)
    for _ in range(2):
        assert torch.allclose(_magneto.Callable(f)(x), sin_cos(x, x) * 2)
        y = sin_cos(x, x)
        assert torch.allclose(_magneto.Callable(g)(x), sin_cos(y, y))


def test_threads():
    def f(x, n):
        y = x * 2
        if n % 2:
            print(end="")
        return torch.sin(y) + n

    c = _magneto.Callable(f)
    errors = []

    def work(i):
        try:
            x = torch.full((4,), float(i))
            for k in range(20):
                r = c(x, (i + k) % 4)
                assert torch.allclose(r, torch.sin(x * 2) + (i + k) % 4)
        except BaseException as e:
            errors.append(e)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(32)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors, errors[0]


def test_attributes_of_a_local_are_those_of_the_thread():
    local, out = threading.local(), []
    c = _magneto.Callable(lambda x: x * local.v, fullgraph=True)
    local.v = 2

    def work():
        for local.v in (5, 2, 6):
            out.append(c(torch.ones(1)).item())
        del local.v
        with pytest.raises(AttributeError):
            c(torch.ones(1))
        out.append(0)

    assert c(torch.ones(1)).item() == 2
    t = threading.Thread(target=work)
    t.start()
    t.join()
    assert out == [5, 2, 6, 0] and c(torch.ones(1)).item() == 2


def test_reset_while_running():
    def f(x):
        y = x + 1
        _magneto.reset()
        return y * 2

    c = _magneto.Callable(f)
    for _ in range(3):
        assert c(torch.ones(2)).tolist() == [4, 4]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_fork():
    c = _magneto.Callable(sin_cos)
    x = torch.ones(2)
    c(x, x)
    pid = os.fork()
    if pid == 0:
        signal.alarm(20)  # a hanging child must not outlive the test
        ok = torch.allclose(c(x, x), sin_cos(x, x)) and torch.allclose(
            _magneto.Callable(lambda x: x * 2 + 1)(x), x * 2 + 1
        )
        os._exit(0 if ok else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


# ---- interrupts, debuggers ----


def test_keyboard_interrupt_while_recording():
    calls = []

    def helper(x):
        calls.append(1)
        return x + 1

    def f(x):
        for _ in range(3):
            x = helper(x)
        return x

    def bomb(x):
        signal.raise_signal(signal.SIGINT)
        for _ in range(100):
            x = x + 1
        return x

    handler = signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # test runners ignore it in their workers
    try:
        with pytest.raises(KeyboardInterrupt):
            _magneto.Callable(bomb)(torch.ones(2))
    finally:
        signal.signal(signal.SIGINT, handler)
    assert _magneto.Callable(f)(torch.ones(2)).tolist() == [4, 4]


def test_debugger_sees_the_frame():
    c = _magneto.Callable(sin_cos)
    x = torch.ones(2)
    c(x, x)
    lines = []

    def tracer(frame, event, arg):
        if frame.f_code is sin_cos.__code__:
            lines.append(event)
        return tracer

    sys.settrace(tracer)
    try:
        c(x, x)
    finally:
        sys.settrace(None)
    assert "line" in lines and "return" in lines


# ---- memory ----


def test_entries_die_with_their_code():
    def make(**options):
        space = {}
        exec("def f(x):\n    return x * 2\n", space)
        f = space["f"]
        c = _magneto.Callable(f, **options)
        c(torch.ones(2))
        return weakref.ref(f), weakref.ref(c)

    for options in ({}, {"backend": lambda gm, example: gm.forward}):
        f, c = make(**options)
        gc.collect()
        assert f() is None and c() is None
        assert not [e for e in _magneto.entries() if e["code"].co_filename == "<string>"]


def test_entries_of_a_custom_backend_die_with_their_callable():
    c = _magneto.Callable(sin_cos, backend=lambda gm, example: gm.forward)
    c(torch.ones(2), torch.ones(2))
    assert entries(sin_cos)
    del c
    assert not entries(sin_cos)


@pytest.mark.parametrize("backend", ["magneto", "eager"])
def test_classes_die_with_what_they_hold(backend):
    def run():
        inner = torch.nn.Linear(3, 3)

        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = inner

            def forward(self, x):
                return self.inner(x), Holder(x)

        class Holder:
            def __init__(self, x):
                self.x = x

        net = Net()
        compiled = magneto.compile(net, backend=backend)
        y, h = compiled(torch.ones(2, 3))
        torch.testing.assert_close(y, inner(torch.ones(2, 3)))
        assert type(h) is Holder
        return [weakref.ref(o) for o in (inner, inner.weight, net, Net, Holder)]

    for _ in range(2):
        refs = run()
        gc.collect()
        assert [r() for r in refs] == [None] * 5


class Watched:
    def __del__(self):
        Watched.dead.append(1)


class WatchedDict(dict):
    __del__ = Watched.__del__


class Holds:
    pass


@pytest.mark.parametrize(
    "make, use",
    [
        (Watched, lambda x, o, h: (x + 1, h.ref() is o)),
        (Watched, lambda x, o, h: (h.ref().__class__ is Watched, x + 1)),
        (WatchedDict, lambda x, o, h: (x + 1, [*o.keys()], print(end=""), len(o))),
    ],
)
def test_entries_do_not_keep_what_a_program_sees_die(make, use):
    Watched.dead = []
    o, h = make(), Holds()
    h.ref = weakref.ref(o)
    compiled = _magneto.Callable(use)
    x = torch.ones(2)
    torch.testing.assert_close(compiled(x, o, h), use(x, o, h))
    del o
    assert Watched.dead == [1] and h.ref() is None
    o = make()
    h.ref = weakref.ref(o)
    torch.testing.assert_close(compiled(x, o, h), use(x, o, h))


@pytest.mark.parametrize("value, other, plain", [(5, 6, int), (2.5, 3.5, float), ("a", "b", str)])
def test_entries_do_not_keep_values_of_classes_with_finalizers(value, other, plain):
    dead = []
    own = type("Own", (plain,), {"__del__": lambda self: dead.append(plain(self))})
    compiled = _magneto.Callable(lambda x, v: (x + 1, v == value))
    x, v = torch.ones(2), own(value)
    assert compiled(x, v)[1] is True
    del v
    assert dead == [value]
    assert (
        compiled(x, own(value))[1] is True
        and compiled(x, own(other))[1] is False
        and compiled(x, value)[1] is True
    )
    assert dead == [value, value, other]


def test_cycles_are_collected():
    class Net:
        def __init__(self):
            self.run = _magneto.Callable(self.step)

        def step(self, x):
            return x + 1

    net = Net()
    net.run(torch.ones(2))
    ref = weakref.ref(net)
    _magneto.reset()
    del net
    gc.collect()
    assert ref() is None


@pytest.mark.parametrize("f", [sin_cos, lambda x, y: (print(end=""), x + y)[1]], ids=["hit", "break"])
def test_calls_do_not_leak(f):
    c = _magneto.Callable(f)
    x = torch.ones(2)

    def use():
        for _ in range(50):
            c(x, x)
        gc.collect()
        return len(gc.get_objects()), sys.getrefcount(x)

    use()
    objects, refs = use()
    objects2, refs2 = use()
    assert refs2 == refs and abs(objects2 - objects) <= 2


def test_recordings_do_not_leak():
    x = torch.ones(2)

    def f(x):
        y = [x * 2, {"a": x}]
        print(end="")
        return y[0] + y[1]["a"]

    def use():
        for _ in range(20):
            _magneto.Callable(f)(x)
            _magneto.reset()
        gc.collect()
        return len(gc.get_objects()), sys.getrefcount(x)

    use()
    objects, refs = use()
    objects2, refs2 = use()
    assert refs2 == refs and abs(objects2 - objects) <= 5


# ---- loops ----


def test_break_in_a_loop_compiles_once():
    def f(x):
        for i in range(20):
            x = torch.sin(x) * 2
            print(end="")
        return x

    check(f, lambda: (torch.randn(3),))
    assert counts().entries <= 6


def test_break_in_a_loop_with_its_counter():
    """The counter is a guard of each iteration's segment; the limit ends that, and the results stay right."""

    def f(x):
        for i in range(20):
            x = x + i
            print(i, end="")
        return x

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(f, lambda: (torch.randn(3),))
    assert counts().fallbacks <= 2


def test_forced_breaks_in_nested_loops():
    def f(x):
        total = 0
        for i in range(3):
            for j in (1, 2):
                x = x * j + i
            total += i
        return x, total

    for k in (1, 2, 4):
        with forced_breaks(k):
            check(f, lambda: (torch.randn(3),))
