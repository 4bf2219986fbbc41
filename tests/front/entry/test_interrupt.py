"""Signals that come while a frame is recorded or compiled: the work is given up, and the handlers run as they do in eager."""

import copy
import functools
import gc
import signal
import threading
import time
import types

import pytest
import torch

import magneto
from harness import is_clean
from magneto import _magneto
from support import counts

X = torch.full((8, 8), 0.25)


class Late(Exception):
    pass


def late(signum, frame):
    raise Late(signum)


def chain(x, n, tag):
    for i in range(n):
        x = (x + tag).sin()
    return x


def kernels(x, n, tag):
    """Many different kernels: nearly all the time goes into LLVM."""
    out = []
    for i in range(n):
        y = x[:, : i % 7 + 1] @ x[: i % 7 + 1]
        out.append(torch.softmax(y + torch.cos(y * i + tag).sum(0), -1).cumsum(i % 2))
    return torch.stack(out)


def backward(x, n, tag):
    """The second half of the recording is the engine's."""
    x = x.detach().requires_grad_()
    loss = chain(x, n // 2, tag).sum()
    loss.backward()
    return x.grad


# The program, its n, and where in a first call the signal comes: in the recording, in the compilation, in the engine's part of the recording.
PROGRAMS = {"chain": (chain, 10000, 0.15), "kernels": (kernels, 60, 0.4), "backward": (backward, 2000, 0.35)}
tags = iter(range(10**6))


@pytest.fixture(autouse=True)
def no_disk(monkeypatch):
    monkeypatch.setenv("MAGNETO_CACHE", "0")


@pytest.fixture
def alarm():
    """alarm(handler, seconds, again): the timer of this test. cpu: its seconds are the process's own, whatever else the machine does."""
    timers = {signal.SIGALRM: signal.ITIMER_REAL, signal.SIGPROF: signal.ITIMER_PROF}
    before, callbacks = {s: signal.getsignal(s) for s in timers}, gc.callbacks[:]
    gc.callbacks.clear()
    gc.collect()

    def set_alarm(handler, seconds, again=0, cpu=False):
        number = signal.SIGPROF if cpu else signal.SIGALRM
        signal.signal(number, handler)
        signal.setitimer(timers[number], seconds, again)

    yield set_alarm
    for number, timer in timers.items():
        signal.setitimer(timer, 0)
        signal.signal(number, before[number])
    gc.callbacks[:] = callbacks


def new_tag():
    """A constant that no kernel so far has in it."""
    return 0.001 + next(tags) / 7919


def first_call(make):
    """Processor seconds of a first call of make()."""
    took = []
    for _ in range(2):
        _magneto.reset()
        call = make()
        begin = time.process_time()
        call()
        took.append(time.process_time() - begin)
    return min(took)


def interrupted_call(alarm, handler, part, make):
    """The first call of make() into whose recording or compilation the signal falls, and its result or error.

    The signal comes after a part of the time that such a call takes.  It may fall behind the call, or between its parts:
    then the next signal comes earlier, or in the middle of what was left out."""
    calls, whole = [], first_call(make)

    def note(signum, frame):
        calls.append(signum)
        return handler(signum, frame)

    for k in (8, 4, 6, 2, 7, 5, 3, 1) * 2:
        delay = part * whole * k / 8
        _magneto.reset()
        calls.clear()
        call, result, error = make(), None, None
        begin = time.process_time()
        try:
            alarm(note, delay, cpu=True)
            result = call()
            took = time.process_time() - begin
            while not calls:
                pass
        except (Late, KeyboardInterrupt) as e:
            error, took = e, time.process_time() - begin
        if counts().stopped:
            break
    assert counts().stopped == 1
    assert took < delay + 0.5 * (whole - delay) + 0.3 or not error
    return call, result, error


def assert_compiles(c, fn, n, tag):
    """As if nothing had happened: one graph, and eager's result."""
    assert is_clean()
    want = fn(X, n, tag)
    for _ in range(2):
        assert torch.allclose(c(X, n, tag), want, atol=1e-4)
    stats = counts()
    assert (stats.graphs, stats.recompiles, stats.fallbacks, stats.left) == (1, 0, 0, 0)


def first_calls(fn, n):
    """A maker of calls of fn, each compiled anew with a constant of its own."""

    def make():
        return functools.partial(magneto.compile(fn), X, n, new_tag())

    return make


@pytest.mark.parametrize(
    "name, handler, error",
    [(name, late, Late) for name in PROGRAMS] + [("chain", signal.default_int_handler, KeyboardInterrupt)],
)
def test_a_signal_ends_a_first_call_soon(alarm, name, handler, error):
    fn, n, part = PROGRAMS[name]
    call, _, raised = interrupted_call(alarm, handler, part, first_calls(fn, n))
    assert type(raised) is error and counts().graphs == 0
    assert_compiles(call.func, fn, n, call.args[-1])


def test_a_handler_that_returns_leaves_eagers_result(alarm):
    fn, n, part = PROGRAMS["chain"]
    seen = []

    def note(signum, frame):
        seen[:] = [frame.f_code.co_name]

    call, result, _ = interrupted_call(alarm, note, part, first_calls(fn, n))
    assert torch.equal(result, fn(*call.args))
    assert seen == ["chain"]
    assert_compiles(call.func, fn, n, call.args[-1])


def test_the_program_catches_what_a_handler_raises(alarm):
    log = []

    def f(x, n, tag):
        log.clear()
        try:
            magneto.graph_break()  # what is recorded starts inside of the block
            return chain(x, n, tag)
        except Late:
            log.append("caught")
            return x - 1

    call, result, _ = interrupted_call(alarm, late, 0.15, first_calls(f, 10000))
    assert torch.equal(result, X - 1) and log == ["caught"]
    assert is_clean()
    assert torch.allclose(call(), f(*call.args), atol=1e-4)
    assert (counts().graphs, log) == (1, [])


def test_a_timer_that_ticks_all_the_time_does_not_keep_a_program_from_being_compiled(alarm):
    fn, n, _ = PROGRAMS["chain"]
    _magneto.reset()
    c, tag, ticks = magneto.compile(fn), new_tag(), []
    alarm(lambda signum, frame: ticks.append(signum), 0.01, 0.01)
    for _ in range(12):
        c(X, n, tag)
    signal.setitimer(signal.ITIMER_REAL, 0)
    stats = counts()
    assert len(ticks) > 2 and stats.stopped and stats.graphs == 1
    assert_compiles(c, fn, n, tag)


def test_signals_are_the_main_threads_alone(alarm):
    fn, n, part = PROGRAMS["chain"]
    whole = first_call(first_calls(fn, n))
    _magneto.reset()
    c, tag, ticks, out = magneto.compile(fn), new_tag(), [], []
    alarm(lambda signum, frame: ticks.append(threading.current_thread()), part * whole)
    worker = threading.Thread(target=lambda: out.append(c(X, n, tag)))
    worker.start()
    worker.join()
    assert ticks == [threading.main_thread()]
    assert torch.allclose(out[0], fn(X, n, tag), atol=1e-4)
    assert not counts().stopped
    assert_compiles(c, fn, n, tag)


def with_symbols(x, n):
    out = []
    for i in range(n):
        y = x[:, : i % 7 + 1] @ x[: i % 7 + 1]
        out.append(torch.softmax(y + torch.cos(y * i + 0.5).sum(0), -1).cumsum(i % 2))
    return torch.stack(out)


def other_kernels(fn):
    """fn with another constant in its code, and so in its kernels."""
    consts = tuple(new_tag() if c == 0.5 else c for c in fn.__code__.co_consts)
    return types.FunctionType(fn.__code__.replace(co_consts=consts), globals())


def test_a_compilation_inside_of_a_run_ends_soon(alarm):
    """A graph with symbols is compiled when it first runs."""
    n, fns = 60, []

    def make():
        fns[:] = [other_kernels(with_symbols)]
        return functools.partial(magneto.compile(fns[0], dynamic=True), X, n)

    call, _, raised = interrupted_call(alarm, late, 0.5, make)
    assert type(raised) is Late and is_clean()
    c, fn = call.func, fns[0]
    for size in (8, 8, 9, 11):
        x = torch.rand(size, size)
        assert torch.allclose(c(x, n), fn(x, n), atol=1e-4)
    stats = counts()
    assert (stats.graphs, stats.recompiles, stats.fallbacks) == (1, 0, 0)


class Interrupts(type):
    """Raises KeyboardInterrupt once, where the recorder asks its class for a method."""

    armed = False

    def __getattribute__(cls, name):
        if name == "__getnewargs_ex__" and Interrupts.armed:
            Interrupts.armed = False
            raise KeyboardInterrupt
        return type.__getattribute__(cls, name)


@pytest.mark.parametrize("handler", [signal.default_int_handler, signal.SIG_IGN])
def test_a_keyboard_interrupt_in_a_question_of_the_recorder_is_not_lost(handler):
    class Part(metaclass=Interrupts):
        def __init__(self):
            self.number = 2

    def f(x, part):
        y = x + 1
        return y * copy.copy(part).number

    part = Part()
    Interrupts.armed = True
    before = signal.signal(signal.SIGINT, handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            magneto.compile(f)(X, part)
            time.sleep(0.01)  # the signal comes at the next instruction of Python
    finally:
        signal.signal(signal.SIGINT, before)
    assert not Interrupts.armed
    torch.testing.assert_close(magneto.compile(f)(X, part), f(X, part))
