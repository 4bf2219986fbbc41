"""What surrounds a compiled function in its process: signals, other threads, forks, tracing functions."""

import gc
import os
import signal
import sys
import threading
import time
import weakref

import pytest
import torch

import magneto
from harness import is_clean
from magneto import _magneto
from support import counts

X = torch.ones(3)


class Late(Exception):
    pass


def late(signum, frame):
    raise Late


def step(x):
    return x + 1


def make(source):
    """A function that nobody has compiled yet."""
    space = {"step": step, "magneto": magneto}
    exec(source, space)
    return space["f"]


PLAIN = "def f(x):\n    for i in range(200):\n        x = step(step(x))\n    return x\n"
CATCHING = (
    "def f(x):\n    try:\n        for i in range(200):\n            x = step(step(x))\n"
    "    except BaseException:\n        return x * 0 - 1\n    return x\n"
)
BREAKING = "def f(x):\n    for i in range(200):\n        x = step(step(x))\n        if i % 20 == 0:\n            magneto.graph_break()\n    return x\n"


@pytest.fixture
def alarm():
    """alarm(handler, seconds): the timer of this test, in which no finalizer of another one's garbage gets what the handler raises."""
    before, callbacks = signal.getsignal(signal.SIGALRM), gc.callbacks[:]
    gc.callbacks.clear()
    gc.collect()
    gc.freeze()

    def set_alarm(handler, seconds, again=0):
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, seconds, again)

    yield set_alarm
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)
    gc.unfreeze()
    gc.callbacks[:] = callbacks


@pytest.mark.parametrize("source", [PLAIN, CATCHING, BREAKING], ids=["plain", "catching", "breaking"])
@pytest.mark.parametrize(
    "handler, error",
    [(late, Late), (signal.default_int_handler, KeyboardInterrupt)],
    ids=["raises", "ctrl_c"],
)
def test_a_signal_is_neither_lost_nor_recorded(alarm, source, handler, error):
    for k in range(6):
        c = magneto.compile(make(source), backend="eager")
        raised = caught = False
        try:
            alarm(handler, 0.002 + 0.004 * k)
            caught = bool(c(X)[0] == -1)  # the program's own handler may have got it, outside of a recording
            end = time.monotonic() + 20
            while not caught and time.monotonic() < end:
                pass
        except error:
            raised = True
        assert raised or caught
        assert is_clean()
        for _ in range(2):
            assert c(X).tolist() == [401] * 3


def test_a_handler_is_no_part_of_the_program(alarm):
    calls = []
    c = magneto.compile(make(PLAIN), backend="eager")
    alarm(lambda signum, frame: calls.append(signum), 0.001, 0.001)
    c(X)
    signal.setitimer(signal.ITIMER_REAL, 0)
    n = len(calls)
    assert n and c(X).tolist() == c(X).tolist() == [401] * 3
    assert len(calls) == n


@pytest.fixture
def handler_raises():
    before = signal.signal(signal.SIGALRM, late)
    yield
    signal.signal(signal.SIGALRM, before)


def test_a_signal_while_a_setting_is_looked_up(monkeypatch, handler_raises):
    import torch._dynamo

    kind = type(torch._dynamo.config)
    ask, asked = kind.__getattr__, []

    def answer(self, name):
        if name == "recompile_limit" and not asked:
            asked.append(name)
            signal.raise_signal(signal.SIGALRM)
        return ask(self, name)

    monkeypatch.setattr(kind, "__getattr__", answer)
    c = magneto.compile(lambda x, n: step(x) * n)
    c(X, 2)
    with pytest.raises(Late):
        for n in range(3, 9):
            c(X, n * 1.5)
    assert asked and is_clean()


def test_a_signal_while_a_graph_runs(handler_raises):
    runs = []

    @torch.library.custom_op("magneto_tests::signals", mutates_args=())
    def signals(x: torch.Tensor) -> torch.Tensor:
        runs.append(len(runs))
        signal.raise_signal(signal.SIGALRM)
        return x.clone()

    signals.register_fake(torch.empty_like)
    c = magneto.compile(lambda x: signals(x) + 1)
    for n in (1, 2):
        with pytest.raises(Late):
            c(X)
        assert runs == list(range(n))


def test_a_signal_in_a_back_end(handler_raises):
    def backend(gm, example_inputs):
        signal.raise_signal(signal.SIGALRM)
        return gm.forward

    with pytest.raises(Late):
        magneto.compile(step, backend=backend)(X)


class Watched:
    pass


def test_a_signal_while_the_context_of_symbols_ends(handler_raises):
    watched = []

    def backend(gm, example_inputs):
        mode = torch._guards.TracingContext.get().fake_mode
        mode.watched = Watched()
        watched.append(weakref.ref(mode.watched, lambda ref: signal.raise_signal(signal.SIGALRM)))
        return gm.forward

    import torch.fx.experimental.symbolic_shapes  # back ends only find symbols where it is loaded

    with pytest.raises(Late):
        magneto.compile(step, backend=backend, dynamic=True)(X)
    assert not watched[0]()


WAITING = {
    "break": "def f(x, flag):\n    while not flag:\n        y = x + 1\n        magneto.graph_break()\n    return x\n",
    "loop": "def f(x, flag):\n    n = 0\n    while not flag:\n        n += 1\n    return x\n",
}


@pytest.mark.parametrize("name", WAITING)
def test_a_waiting_loop_sees_signals(alarm, name):
    with pytest.raises(Late):
        alarm(late, 0.05)
        magneto.compile(make(WAITING[name]))(X, [])


def test_a_waiting_loop_lets_other_threads_run():
    flag = []
    threading.Timer(0.05, flag.append, (1,)).start()
    assert magneto.compile(make(WAITING["break"]))(X, flag) is X


def test_interrupts_at_any_moment_leave_a_clean_state(alarm):
    def train(net, x):
        loss = net(x).sum()
        magneto.graph_break()
        loss.backward()
        return loss

    for k in range(12):
        net = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU(), torch.nn.Linear(3, 1))
        want = net(X).sum()
        c = magneto.compile(train)
        try:
            alarm(signal.default_int_handler, 0.001 + 0.003 * k)
            for _ in range(3):
                c(net, X)
        except KeyboardInterrupt:
            pass
        signal.setitimer(signal.ITIMER_REAL, 0)
        assert is_clean()
        assert torch.allclose(c(net, X), want)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_fork_while_another_thread_records():
    c = magneto.compile(
        make("def f(x):\n    n = 0\n    for i in range(50000):\n        n += 1\n    return x + n\n")
    )
    thread = threading.Thread(target=c, args=(X,))
    thread.start()
    end = time.monotonic() + 30
    while not torch.compiler._is_compiling_flag and time.monotonic() < end:
        pass
    pid = os.fork()
    if not pid:
        signal.alarm(60)  # a hanging child must not outlive the test
        ok = is_clean() and magneto.compile(lambda x: x * 2 + 1, fullgraph=True)(X).tolist() == [3] * 3
        os._exit(0 if ok and is_clean() else 1)
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert is_clean() and c(X).tolist() == [50001] * 3


@pytest.mark.parametrize("switch", [sys.settrace, sys.setprofile])
def test_a_tracing_function_turned_on_inside_is_not_compiled(switch):
    events = []

    def tracer(frame, event, arg):
        events.append((frame.f_code.co_name, event))
        return tracer

    def f(x):
        y = x + 1
        switch(tracer)
        z = step(y)
        switch(None)
        return z * 2

    c = magneto.compile(f)
    for run in (f, c, c):
        events.clear()
        assert run(X).tolist() == [6] * 3
        assert ("step", "call") in events and ("step", "return") in events
    assert not [e for e in _magneto.entries() if e["code"] is tracer.__code__]


@pytest.mark.skipif(not hasattr(sys, "monitoring"), reason="CPython 3.12 has it")
@pytest.mark.parametrize("local", [False, True])
def test_monitoring_sees_the_frames(local):
    monitoring, tool, seen = sys.monitoring, sys.monitoring.DEBUGGER_ID, []
    f = make("def f(x):\n    y = step(x)\n    return y * 2\n")
    c = magneto.compile(f)
    c(X)
    monitoring.use_tool_id(tool, "test")
    monitoring.register_callback(
        tool, monitoring.events.LINE, lambda code, line: seen.append(line) if code is f.__code__ else None
    )
    try:
        if local:
            monitoring.set_local_events(tool, f.__code__, monitoring.events.LINE)
        else:
            monitoring.set_events(tool, monitoring.events.LINE)
        assert c(X).tolist() == [4] * 3
    finally:
        monitoring.set_events(tool, 0)
        monitoring.set_local_events(tool, f.__code__, 0)
        monitoring.free_tool_id(tool)
    assert seen == [2, 3]
    hits = counts().hits
    c(X)
    assert counts().hits == hits + 1
