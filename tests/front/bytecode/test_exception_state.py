"""What exceptions carry when a segment ends while they are about: tracebacks, contexts; names without a value; state that is
set late."""

import sys
import traceback

import pytest
import torch

import magneto
from harness import forced_breaks

X = torch.ones(3)


def refused(x):
    try:
        x.view(100)
    except RuntimeError as e:
        tb, names = e.__traceback__, []
        while tb is not None:
            names.append(tb.tb_frame.f_code.co_name)
            tb = tb.tb_next
        return x + 1, names


def test_refused_operators_have_the_frames_of_eager():
    assert magneto.compile(refused, fullgraph=True)(X)[1] == refused(X)[1] == ["refused"]


async def doubled(x):
    return x * 2


async def awaited(x):
    return await doubled(x) + 1


def driven(x):
    c = awaited(x + 1)
    try:
        c.send(None)
    except StopIteration as e:
        return e.value


@pytest.mark.filterwarnings("error")
def test_no_coroutine_is_made_that_nobody_awaits(recwarn):
    assert torch.equal(magneto.compile(driven)(X), driven(X))
    assert not [w for w in recwarn if "never awaited" in str(w.message)]


class Swallow:
    def __init__(self, yes):
        self.yes = yes

    def __enter__(self):
        return self

    def __exit__(self, *e):
        return self.yes


def inner(v):
    raise ValueError(v)


def leaves_with(x, m):
    with m:
        raise KeyError("a")
    return x


def leaves_finally(x, m):
    y = x + 1
    try:
        inner(2)
    finally:
        m.yes = y.shape[0]


def leaves_handler(x, m):
    try:
        raise KeyError("a")
    except KeyError as e:
        raise ValueError("b") from e


def leaves_comprehension(x, m):
    with m:
        return [inner(i) if i else x for i in range(2)]


def outcome(f, *args):
    """Names and lines of the traceback below this function, for each exception of the chain."""
    try:
        f(*args)
    except Exception as e:
        chain = []
        while e is not None:
            frames = [(t.name, t.lineno) for t in traceback.extract_tb(e.__traceback__)]
            chain.append((type(e), str(e), [t for t in frames if t[0] != "outcome"]))
            e = e.__context__
        return chain


@pytest.mark.parametrize("k", [0, 1, 2, 3])
@pytest.mark.parametrize("f", [leaves_with, leaves_finally, leaves_handler, leaves_comprehension])
def test_tracebacks(f, k):
    want = outcome(f, X, Swallow(False))
    assert want and want[0][2]
    magneto.reset()
    compiled = magneto.compile(f)
    with forced_breaks(k):
        for _ in range(2):
            assert outcome(compiled, X, Swallow(False)) == want


def raises(x):
    try:
        inner(1)
    except ValueError as e:
        return e, x + 1


def test_context_is_what_a_run_handles():
    compiled = magneto.compile(raises)
    assert compiled(X)[0].__context__ is None
    try:
        raise KeyError("outer")
    except KeyError as outer:
        assert compiled(X)[0].__context__ is outer
    assert compiled(X)[0].__context__ is None


@pytest.mark.parametrize("k", [0, 1, 2, 3])
def test_context_is_the_exception_itself(k):
    def f(x):
        try:
            raise KeyError("a")
        except Exception as e:
            try:
                raise ValueError
            except Exception as e2:
                return e2.__context__ is e

    magneto.reset()
    with forced_breaks(k):
        assert magneto.compile(f)(X)


@pytest.mark.parametrize("k", range(8))
def test_iterators_over_lists_that_are_written(k):
    def f(x, l, n):
        r = reversed([*l, n])
        i = iter(l)
        next(i)
        l.append(n)
        next(i)
        return x + n, r, i

    magneto.reset()
    compiled = magneto.compile(f)
    with forced_breaks(k):
        for n in (1, 2, 1, 3):
            _, r, i = compiled(X, [3, 1, 2], n)
            assert (list(r), list(i)) == ([n, 2, 1, 3], [2, n])


def divides(x, n):
    try:
        return x + 6 // (n % 2)
    except ZeroDivisionError as e:
        return str(e)


def divides_floats(x, n):
    try:
        return x * (1.5 / (n - 2))
    except ZeroDivisionError as e:
        return str(e)


@pytest.mark.parametrize("f", [divides, divides_floats])
def test_numbers_that_raise(f):
    magneto.reset()
    compiled = magneto.compile(f)
    for n in (1, 2, 3, 4, 5, 2):
        want, got = f(X, n), compiled(X, n)
        assert type(want) is type(got) and (want == got if isinstance(want, str) else torch.equal(want, got))


@pytest.mark.parametrize("k", [0, 1, 2])
def test_cached_functions_get_numbers_themselves(k):
    import functools

    def f(x, n):
        @functools.lru_cache
        def twice(a):
            return a * 2

        return x + twice(n) + twice(n), twice

    magneto.reset()
    compiled = magneto.compile(f)
    with forced_breaks(k):
        for n in (1, 2, 3):
            y, twice = compiled(X, n)
            assert torch.equal(y, X + 4 * n) and twice(n) == 2 * n


def test_errors_name_the_class_of_tensors():
    def f(x):
        try:
            return x + x.dtype
        except TypeError as e:
            return str(e)

    assert magneto.compile(f)(X) == f(X)


def sometimes_bound(x, bound):
    if bound:
        v = x * 2
    magneto.graph_break()
    x = x + 1
    magneto.graph_break()
    return x + v


def caught_unbound(x, bound):
    if bound:
        v = 3
    magneto.graph_break()
    try:
        return x + v
    except UnboundLocalError as e:
        return str(e)


def deleted(x, bound):
    if bound:
        v = 3
    magneto.graph_break()
    try:
        del v
    except UnboundLocalError as e:
        return x + 1, str(e)
    return x + 2, [v for v in range(2)]


@pytest.mark.parametrize("order", [(False, True), (True, False)])
@pytest.mark.parametrize("k", [0, 2])
@pytest.mark.parametrize("f", [sometimes_bound, caught_unbound, deleted])
def test_names_that_are_bound_in_some_calls(f, k, order):
    def outcome(fn, bound):
        try:
            return fn(X, bound)
        except UnboundLocalError as e:
            return str(e)

    magneto.reset()
    compiled = magneto.compile(f)
    with forced_breaks(k):
        for bound in order * 2:
            want, got = outcome(f, bound), outcome(compiled, bound)
            assert str(want) == str(got)


class Slotted(SyntaxError):
    __slots__ = ("own",)
    filename = property(lambda self: "of the class")


def with_members(e, **members):
    for name, value in members.items():
        setattr(e, name, value)
    return e


def raised(f):
    try:
        f()
    except Exception as e:
        return e


@pytest.mark.parametrize(
    "make, names",
    [
        (
            lambda: with_members(SyntaxError("x"), filename="a.py", lineno=3, text="t", offset=7),
            "msg filename lineno text offset end_lineno args",
        ),
        (lambda: with_members(Slotted("x"), own=3, lineno=4), "own filename lineno"),
        (lambda: with_members(OSError("q"), errno=5, strerror="k"), "errno strerror filename args"),
        (
            lambda: with_members(OSError(2, "no", "name"), filename=None, filename2="g"),
            "errno filename filename2",
        ),
        (
            lambda: with_members(
                UnicodeDecodeError("utf8", b"abc", 0, 1, "r"), start=2, end=3, reason="z", object=b"abcd"
            ),
            "start end reason object args",
        ),
        (lambda: with_members(ImportError("m"), name="n", path="p", msg="q"), "name path msg args"),
        (lambda: with_members(StopIteration(1), value=4), "value args"),
        (lambda: with_members(SystemExit(1), code=4), "code args"),
        (lambda: raised(lambda: no_such_name), "name args"),  # noqa: F821
        (lambda: raised(lambda: [].nothing), "name obj args"),
        (
            lambda: with_members(ValueError(1), __cause__=None, __suppress_context__=False),
            "__cause__ __suppress_context__",
        ),
    ],
    ids=lambda v: v.replace(" ", "-") if isinstance(v, str) else "",
)
def test_members_of_exceptions_after_a_break(make, names):
    def f(x):
        y = x + 1
        e = make()
        print(end="")
        return y, str(e), [getattr(e, name) for name in names.split()]

    _, text, values = f(X)
    assert magneto.compile(f)(X)[1:] == (text, values)


def test_locals_of_a_frame_that_ended_with_variables_from_around():
    def f(x):
        k = x.sin()

        def inner():
            raise ValueError(k.shape)

        try:
            inner()
        except ValueError as e:
            kept = e
        return kept, k + 1

    error, _ = magneto.compile(f)(torch.ones(3))
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    assert [frame.f_code.co_name for frame in frames] == ["f", "inner"]
    # From 3.13 on f_locals is no dict.
    assert all(set(dict(frame.f_locals)) <= {"x", "k", "inner", "kept", "e"} for frame in frames)


def set_low_limit():
    for n in range(20, 2000, 10):
        try:
            return sys.setrecursionlimit(n)
        except RecursionError:
            pass


def test_nothing_is_compiled_next_to_the_recursion_limit():
    def f(x):
        old = sys.getrecursionlimit()
        x = x + 1
        try:
            set_low_limit()
            y = x.sum(0, keepdim=True) * 2
            sys.setrecursionlimit(old)
            assert y.item() == 8
            return torch.sin(y + x)
        finally:
            sys.setrecursionlimit(old)

    x = torch.ones(2)
    for _ in range(2):
        assert torch.allclose(magneto.compile(f, backend="eager")(x), f(x))


def reraised_after_a_break(x, n):
    try:
        1 // (n % 2)
    except ZeroDivisionError:
        magneto.graph_break()
        raise


def reraised_in_a_call(x, n):
    def again():
        raise

    try:
        1 // (n % 2)
    except ZeroDivisionError:
        magneto.graph_break()
        try:
            again()
        finally:
            x.add_(1)


@pytest.mark.parametrize("f", [reraised_after_a_break, reraised_in_a_call])
def test_what_is_raised_again_after_a_break_is_the_same_exception(f):
    c = magneto.compile(f)
    for _ in range(3):
        x = torch.zeros(2)
        with pytest.raises(ZeroDivisionError) as e:
            c(x, 2)
        assert e.value.__context__ is None and e.value.__cause__ is None
        assert x[0] == (f is reraised_in_a_call)


def causes(x, e, cause):
    e.__cause__ = cause
    return x + 1, e.__cause__, e.__suppress_context__


def test_the_cause_of_an_exception_from_outside_can_be_set():
    e, first, second = TypeError("e"), ValueError("first"), KeyError("second")
    c = magneto.compile(causes, fullgraph=True)
    for cause in (first, second, None):
        assert c(X, e, cause)[1:] == (cause, True) and e.__cause__ is cause and e.__suppress_context__
    with pytest.raises(TypeError, match="exception cause must be"):
        c(X, e, 2)
    with pytest.raises(TypeError, match="may not be deleted"):
        magneto.compile(lambda x, e: delattr(e, "__cause__") or x + 1)(X, e)
