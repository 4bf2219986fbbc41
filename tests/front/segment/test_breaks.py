"""Breaking programs give what eager gives, wherever the break is."""

import io
import sys

import pytest
import torch
import torch._dynamo.utils

import break_programs
import magneto
from harness import check, forced_breaks
from support import counts

CASES = [pytest.param(f, make, id=f.__name__) for f, make in break_programs.CASES]


@pytest.mark.parametrize("f, make", CASES)
def test_breaks(f, make):
    check(f, make)


@pytest.mark.parametrize("k", [1, 2, 3, 5, 7])
@pytest.mark.parametrize("f, make", CASES)
def test_forced_breaks(f, make, k):
    with forced_breaks(k):
        check(f, make)


@pytest.mark.parametrize("k", [6, 11, 17, 25, 40])
@pytest.mark.parametrize("f, make", CASES)
def test_forced_breaks_in_calls(f, make, k):
    with forced_breaks(k, inner=True):
        check(f, make)


def test_a_program_that_raises_because_a_compiler_is_at_work_is_recorded_as_eager():
    """Libraries skip work under a compiler and then fail over what is missing; eager never would."""

    def f(x, mask=None):
        if mask is None and not torch.compiler.is_compiling():
            mask = torch.ones_like(x)
        return x * mask.cos()

    x = torch.randn(4)
    torch.testing.assert_close(magneto.compile(f, fullgraph=True)(x), f(x))
    told = magneto.compile(lambda: torch.compiler.is_compiling(), fullgraph=True)
    assert told() is True


def test_frames_that_breaks_make_slower_are_left_to_cpython():
    """A late op after many breaks: its frames are measured, and all but one in so many run as written."""
    out = io.StringIO()

    def f(x, n):
        for i in range(n):
            out.write("a")
        return x + n

    opt, x = magneto.compile(f), torch.ones(3)
    for _ in range(80):
        torch.testing.assert_close(opt(x, 100), f(x, 100))
    before = counts().hits
    for _ in range(40):
        torch.testing.assert_close(opt(x, 100), f(x, 100))
    assert counts().hits - before < 10 * 100
    assert out.tell() == 2 * 120 * 100

    magneto.reset()
    loop = magneto.compile(f)  # a loop that goes on without an op is CPython's long before its end
    before = counts().hits
    loop(x, 20000)
    assert counts().hits - before < 2000

    m = torch.nn.Linear(3, 3)
    opt = magneto.compile(m)  # one graph: nothing to measure
    for _ in range(60):
        opt(x)
    assert counts().hits >= 59


def test_counters_that_torch_compile_has():
    counters = torch._dynamo.utils.counters
    counters.clear()

    def f(x):
        y = x.sin() + 1
        print(end="")
        return y * 2

    magneto.compile(f)(torch.randn(3))
    magneto.compile(f)(torch.randn(3))
    assert counters["frames"] == {"total": 2, "ok": 2} and counters["stats"] == {
        "calls_captured": 3,
        "unique_graphs": 2,
    }
    ((reason, n),) = counters["graph_break"].items()
    assert "print" in reason and n == 1
    counters.clear()


@pytest.mark.parametrize("how", ["del", "break", "close"])
def test_a_break_in_the_end_of_a_generator_is_not_reported(how, monkeypatch):
    """Nobody catches what a generator raises that goes out of use; CPython gives it to sys.unraisablehook."""
    told, seen = [], []
    monkeypatch.setattr(sys, "unraisablehook", told.append)

    def f(x):
        def g():
            try:
                yield 1
            finally:
                magneto.graph_break()
                seen.append("end")

        if how == "break":
            for _ in g():
                break
        else:
            i = g()
            next(i)
            if how == "close":
                i.close()
            del i
        seen.append("after")
        return x + 1

    c = magneto.compile(f)
    for i in range(2):
        assert torch.equal(c(torch.ones(2)), torch.full((2,), 2.0))
    assert seen == ["end", "after"] * 2 and not told


def test_a_frame_object_in_a_local_is_no_recompile():
    """It is another object in each call."""

    def f(x):
        x = x + 1
        frame = sys._getframe()
        name = frame.f_code.co_name
        x = x * len(name)
        return x.cos(), name, frame.f_lineno > 0

    c, x = magneto.compile(f), torch.rand(4)
    for _ in range(12):
        got, want = c(x), f(x)
        torch.testing.assert_close(got[0], want[0])
        assert got[1:] == want[1:]
    stats = counts()
    assert stats.graphs <= 2 and stats.recompiles == 0 and stats.fallbacks == 0
