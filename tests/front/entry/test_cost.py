"""Frames whose compiling costs more than it brings are left to CPython, and tried again (entry/run/frame_cost)."""

import pytest
import torch
from torch import nn

import magneto
from magneto import _magneto
from support import counts, trials_take


class Holder:
    """What a program reaches its module by: one object, ever new modules."""

    def __init__(self, module):
        self.module = module


def linear(seed=0):
    m = nn.Linear(4, 4)
    with torch.no_grad():
        m.weight.fill_(0.1 + 0.01 * seed)
    return m


def compiled():
    """A function whose entries die with the module in the holder."""

    def f(holder, x):
        return holder.module(x).sin() + 1

    return f, magneto.compile(f)


def never_settled(g):
    """A holder whose module was a new one in each of so many calls that the place was left."""
    holder = Holder(linear())
    for i in range(24):
        holder.module = linear(i)
        g(holder, X)
    return holder


def grown(fn):
    before = counts().attempts
    fn()
    return counts().attempts - before


X = torch.randn(2, 4)


@pytest.fixture(autouse=True)
def times():
    """Recording costs twenty calls of CPython, and a compiled call half of one."""
    with trials_take(recorded=2, compiled=0.05, eager=0.1):
        yield


@pytest.mark.parametrize(
    "recorded, eager, cpu, left",
    [
        (4.8, 4.9, (0.37, 0.28), 1),  # a busy machine: the clock shows no difference
        (4.8, 4.4, (0.2, 0.28), 0),
        (4.8, 2.8, (0.2, 0.28), 1),  # a clear one
        (2.8, 4.8, (0.37, 0.28), 0),
    ],
)
def test_where_the_clock_is_unclear_the_processors_time_counts(recorded, eager, cpu, left):
    _, g = compiled()
    with trials_take(recorded=recorded, compiled=0.05, eager=eager, cpu=cpu):
        never_settled(g)
    assert counts().left == left


def test_a_program_that_never_settles_is_left_to_cpython():
    f, g = compiled()
    holder = Holder(linear())

    def calls(n):
        for i in range(n):
            holder.module = linear(i)
            torch.testing.assert_close(g(holder, X), f(holder, X))

    calls(20)
    assert counts().left == 1
    assert grown(lambda: calls(20)) == 0
    (place,) = _magneto.left()
    assert place["code"] is f.__code__ and place["wait"] > 0 and place["eager_ms"] < place["compiled_ms"]
    told = magneto.explain(g)(holder, X)
    assert len(told.left) == 1 and f.__qualname__ in told.left[0] and told.left[0] in str(told)


def test_modules_that_are_arguments_and_come_and_go_are_one_account():
    def f(m, x):
        return m(x).cos() * 2

    g = magneto.compile(f)
    for i in range(30):
        m = linear(i)
        torch.testing.assert_close(g(m, X), f(m, X))
    assert counts().left == 1
    assert grown(lambda: [g(linear(i), X) for i in range(10)]) == 0
    m = linear()
    torch.testing.assert_close(g(m, X), f(m, X))


def test_a_frame_inside_is_left_and_the_one_around_it_stays_compiled():
    holder = Holder(linear())

    def inner(x):
        if x.sum() > 1e9:  # a break
            return x
        return holder.module(x)

    def f(x):
        y = (x + 1).sin() * 3
        y = next(map(inner, (y,)))  # what C code calls is a frame of its own
        return y.cos()

    g = magneto.compile(f)
    for i in range(60):
        holder.module = linear(i)
        torch.testing.assert_close(g(X), f(X))
    assert [p["code"] for p in _magneto.left()] == [inner.__code__]
    assert f.__code__ in [e["code"] for e in _magneto.entries()]


def test_a_program_that_settles_after_a_dozen_calls_ends_compiled():
    f, g = compiled()
    holder = Holder(linear())
    for i in range(12):
        holder.module = linear(i)
        g(holder, X)
    for _ in range(3):
        g(holder, X)
    hits = counts().hits
    assert grown(lambda: [g(holder, X) for _ in range(10)]) == 0
    assert counts().hits == hits + 10 and not counts().left


def test_what_is_compiled_still_runs_where_a_place_is_left():
    f, g = compiled()
    steady = Holder(linear())
    g(steady, X)
    never_settled(g)
    assert counts().left == 1
    hits = counts().hits
    for _ in range(40):  # one look in so many may be spared at first
        torch.testing.assert_close(g(steady, X), f(steady, X))
    assert counts().hits > hits + 20


def test_a_place_is_tried_again_once_the_program_has_settled():
    f, g = compiled()
    holder = never_settled(g)
    (place,) = _magneto.left()
    for _ in range(place["wait"]):
        g(holder, X)
    assert _magneto.left()[0]["wait"] == 0
    assert grown(lambda: g(holder, X)) > 0
    torch.testing.assert_close(g(holder, X), f(holder, X))
    hits = counts().hits
    assert grown(lambda: [g(holder, X) for _ in range(10)]) == 0
    assert counts().hits == hits + 10


def test_a_try_that_fails_doubles_the_wait():
    f, g = compiled()
    holder = Holder(linear())
    for i in range(24):
        holder.module = linear(i)
        g(holder, X)
    first = _magneto.left()[0]["wait"]
    for _ in range(first):
        g(holder, X)

    def tries(n):
        for i in range(n):
            holder.module = linear(i)
            g(holder, X)

    assert grown(lambda: tries(2)) > 0
    assert counts().left == 2 and _magneto.left()[0]["wait"] > 1.9 * first
    assert grown(lambda: tries(10)) == 0


def test_recordings_that_pay_go_on():
    """One call in a thousand records; the others save more than that costs."""

    def f(holder, x):
        y = holder.module(x)
        for _ in range(40):
            y = (y.sin() + 1) * 0.5
        return y

    g = magneto.compile(f)
    holder = Holder(linear())
    with torch.no_grad():
        for i in range(20):
            holder.module = linear(i)
            for _ in range(2000):
                g(holder, X)
    assert counts().left == 0
    assert counts().graphs > 16


def with_a_break(x):
    y = (x + 1).sin()
    if y.sum() > 1e9:
        return y
    return y.cos() * 2


def hits_of(g, calls):
    before = counts().hits
    for _ in range(calls):
        torch.testing.assert_close(g(X), with_a_break(X))
    return counts().hits - before


@pytest.mark.parametrize("eager, left", [(0.9, True), (0.96, False)])
def test_a_frame_with_breaks_is_left_where_cpython_is_faster(eager, left):
    g = magneto.compile(with_a_break)
    with trials_take(compiled=1, eager=eager):
        hits_of(g, 1 + 16 + 8 + 4)  # recorded, counted, driven, run by CPython
        few = hits_of(g, 16)
    assert (few < 4) if left else (few >= 16)


def test_a_frame_that_is_left_is_driven_again_when_that_became_faster():
    g = magneto.compile(with_a_break)
    with trials_take(compiled=1, eager=0.5):
        hits_of(g, 60)
        assert hits_of(g, 100) < 20
    with trials_take(compiled=0.1, eager=0.5):
        hits_of(g, 200)
        assert hits_of(g, 20) >= 20


def test_fullgraph_and_custom_backends_are_never_left():
    f, _ = compiled()
    for options in ({"fullgraph": True}, {"backend": lambda gm, inputs: gm.forward}):
        g = magneto.compile(f, **options)
        holder = Holder(linear())
        for i in range(24):
            holder.module = linear(i)
            assert grown(lambda: torch.testing.assert_close(g(holder, X), f(holder, X))) > 0
    assert counts().left == 0


def test_reset_forgets_what_was_left():
    f, g = compiled()
    holder = Holder(linear())
    for i in range(24):
        holder.module = linear(i)
        g(holder, X)
    assert _magneto.left()
    _magneto.reset()
    assert not _magneto.left()
    assert grown(lambda: g(holder, X)) > 0


def test_a_raised_recompile_limit_is_kept():
    def f(x, mode):
        return x * len(mode) if mode != "none" else x

    g = magneto.compile(f, recompile_limit=64)
    for i in range(40):
        g(X, "m" * i)
    assert counts().left == 0 and counts().graphs == 40


def test_exceptions_of_the_program_pass_through_a_place_that_is_left():
    def f(holder, x):
        y = holder.module(x)
        if y.sum() < 1e9:
            raise KeyError("of the program")
        return y

    g = magneto.compile(f)
    holder = Holder(linear())
    for i in range(40):
        holder.module = linear(i)
        with pytest.raises(KeyError, match="of the program"):
            g(holder, X)


@pytest.mark.filterwarnings("ignore:magneto")
def test_frames_at_a_recompile_limit_are_left_where_that_is_slower():
    """Ids of hooks are put into a set, whose keys are guarded: each call records, until every place is at its limit and
    the rest costs more than CPython."""
    m = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))

    def f(x):
        cache, handles = {}, []

        def save(module, _, out):
            cache[module] = out
            return out

        for layer in m:
            handles.append(layer.register_forward_hook(save))
        x = x + len({h.id for h in handles})
        for _ in range(3):
            x = m(x)
            if x.sum() > 1e9:
                x = x + 1
        for h in handles:
            h.remove()
        return x

    g = magneto.compile(f)
    for _ in range(60):
        torch.testing.assert_close(g(X), f(X))
    assert f.__code__ in [p["code"] for p in _magneto.left()]
    assert grown(lambda: [g(X) for _ in range(10)]) == 0
