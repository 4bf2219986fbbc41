"""Tracers and profilers of Python see the program's own frames: nothing is compiled under them."""

import cProfile
import io
import pdb
import pstats
import sys
import trace

import pytest
import torch

import magneto
from tests.support.counts import counts


def helper(x):
    return x.relu() + 1


def step(x):
    y = helper(x)
    if y.sum() > 0:
        y = y * 2
    return y


FRAMES = {f.__code__ for f in (helper, step)}


def events_of(fn, x, setter, *, frames=FRAMES):
    seen = []

    def hook(frame, event, arg):
        if frame.f_code in frames:
            seen.append((frame.f_code.co_name, event, frame.f_lineno))
        return hook

    setter(hook)
    try:
        result = fn(x)
    finally:
        setter(None)
    return seen, result


@pytest.mark.parametrize("warm", [False, True], ids=["cold", "warm"])
@pytest.mark.parametrize("setter", [sys.settrace, sys.setprofile], ids=lambda s: s.__name__)
def test_hooks_see_what_they_see_in_eager(setter, warm):
    x = torch.randn(8)
    fast = magneto.compile(step)
    want, result = events_of(step, x, setter)
    if warm:
        fast(x)
    before = counts()
    got, compiled = events_of(fast, x, setter)
    assert got == want and any(event == "return" for _, event, _ in got)
    assert torch.equal(compiled, result)
    assert counts(before).attempts == 0
    fast(x)
    assert counts(before).misses + counts(before).hits > 0  # compiled calls go on when the hook is gone


def test_cprofile_counts_the_programs_functions():
    fast, x = magneto.compile(step), torch.randn(8)
    fast(x)
    with cProfile.Profile() as profile:
        for _ in range(3):
            fast(x)
    calls = {key[2]: value[0] for key, value in pstats.Stats(profile).stats.items() if key[0] == __file__}
    assert calls["helper"] == calls["step"] == 3


def test_lines_are_counted_as_in_eager():
    x = torch.randn(8)

    def lines(fn):
        tracer = trace.Trace(count=True, trace=False)
        tracer.runfunc(fn, x)
        return {line: n for (file, line), n in tracer.results().counts.items() if file == __file__}

    fast = magneto.compile(step)
    fast(x)
    assert lines(fast) == lines(step) != {}


def test_a_breakpoint_stops_in_a_compiled_function():
    said = io.StringIO()
    debugger = pdb.Pdb(
        stdin=io.StringIO("continue\np tuple(x.shape)\nup\np y_is_not_there\ncontinue\n"), stdout=said
    )
    debugger.rcLines = []
    fast, x = magneto.compile(step), torch.randn(8)
    fast(x)
    assert debugger.set_break(__file__, helper.__code__.co_firstlineno + 1) is None
    try:
        result = debugger.runcall(fast, x)
    finally:
        sys.settrace(None)
    assert "(8,)" in said.getvalue() and "helper" in said.getvalue() and "NameError" in said.getvalue()
    assert torch.equal(result, step(x))


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sys.monitoring is of CPython 3.12")
def test_monitoring_sees_what_it_sees_in_eager():
    m, x, seen = sys.monitoring, torch.randn(8), []
    fast = magneto.compile(step)
    fast(x)
    m.use_tool_id(m.DEBUGGER_ID, "test")
    m.register_callback(m.DEBUGGER_ID, m.events.LINE, lambda code, line: seen.append((code.co_name, line)))

    def lines(fn):
        seen.clear()
        m.set_events(m.DEBUGGER_ID, m.events.LINE)
        fn(x)
        m.set_events(m.DEBUGGER_ID, 0)
        return [s for s in seen if s[0] in ("helper", "step")]

    try:
        assert lines(fast) == lines(step) != []
    finally:
        m.free_tool_id(m.DEBUGGER_ID)
