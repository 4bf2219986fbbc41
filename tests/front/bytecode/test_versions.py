"""What the versions of CPython do differently in a frame that a segment or a breaking instruction ends in."""

import gc
import sys
import traceback

import pytest
import torch

import magneto
from harness import forced_breaks
from support import assert_same


def raising(x, n):
    try:
        y = x + n
    except ValueError:
        return x
    del n
    print(n, end="")  # noqa: F821 - UnboundLocalError, right behind the try block
    return y


def compared(x, limit):
    magneto.graph_break()
    if x.sum() > limit:
        return x + 1
    return x - 1


def lines(f, *args):
    with pytest.raises(UnboundLocalError) as e:
        f(*args)
    return [row.lineno for row in traceback.extract_tb(e.value.__traceback__) if row.name == f.__name__]


def test_an_exception_behind_a_try_block_has_its_line():
    x = torch.ones(3)
    expected = lines(raising, x, 1)
    fast = magneto.compile(raising)
    fast.__name__ = raising.__name__
    for _ in range(3):
        assert lines(fast, x, 1) == expected


@pytest.mark.parametrize("limit", [1.0, 9.0])
def test_a_compared_tensor_decides_a_jump(limit):
    x = torch.ones(3)
    fast = magneto.compile(compared)
    for _ in range(3):
        assert torch.equal(fast(x, limit), compared(x, limit))


def test_a_frame_that_begins_to_be_traced_goes_on_in_cpython():
    """CPython gets the frame between a comparison and the jump that it decides."""
    x, seen = torch.ones(3), []

    class Limit:
        def __lt__(self, other):
            sys.settrace(lambda *a: None)
            seen.append(other)
            return torch.tensor(False)

    def f(t, limit):
        magneto.graph_break()
        if limit < t:
            return t + 1
        return t - 1

    fast = magneto.compile(f)
    try:
        for _ in range(2):
            assert torch.equal(fast(x, Limit()), x - 1)
            sys.settrace(None)
    finally:
        sys.settrace(None)
    assert len(seen) == 2


# ---- the slots of frames, which CPython tags from 3.14 on ----


class Logs:
    """Its __exit__ is a graph break, after which the exception goes on."""

    def __init__(self, swallows):
        self.swallows = swallows

    def __enter__(self):
        return self

    def __exit__(self, kind, value, traceback):
        magneto.graph_break()
        return self.swallows


def places(f, *args):
    try:
        return f(*args)
    except (ZeroDivisionError, ValueError) as e:
        return type(e), [
            row.lineno for row in traceback.extract_tb(e.__traceback__) if row.name == f.__name__
        ]


@pytest.mark.parametrize("swallows", [False, True])
@pytest.mark.parametrize("step", range(1, 30))
def test_an_exception_that_leaves_a_context_has_its_line(swallows, step):
    """CPython keeps the position of the exception on the value stack; any instruction after it may end a segment."""

    def leaves(x):
        with Logs(False):
            with Logs(swallows):
                y = x + 1
                y = y / (1 // x.ndim - 1 // 1 + 1)
                raise ValueError
            y = y + 1
        return y

    x = torch.ones(3)
    expected = places(leaves, x)
    with forced_breaks(step):
        fast = magneto.compile(leaves)
        fast.__name__ = leaves.__name__
        for _ in range(2):
            got = places(fast, x)
            assert torch.equal(got, expected) if isinstance(expected, torch.Tensor) else got == expected


def writes_locals(of, **values):
    sys._getframe(of).f_locals.update(values)


def test_a_function_that_is_called_writes_the_locals_of_its_caller():
    def f(x, flag):
        if flag:
            late = 3
        magneto.graph_break()
        writes_locals(1, x=None, late=5)
        gc.collect()
        try:
            return x, late
        except UnboundLocalError:
            return "unbound"

    fast = magneto.compile(f)
    for flag in (True, False, True):
        x = torch.ones(3)
        assert_same(fast(x, flag), f(x, flag))


def test_garbage_is_collected_while_frames_wait():
    def inner(x, flag):
        if flag:
            unbound = 1
        gc.collect()
        magneto.graph_break()
        gc.collect()
        return x + 1 if not flag else unbound

    def numbers(x):
        unbound = None
        del unbound
        for i in range(3):
            yield inner(x, False) + i

    def f(x):
        total = inner(x, False)
        for y in numbers(x):
            total = total + y
        return total + inner(total, False)

    x = torch.ones(3)
    fast = magneto.compile(f)
    for _ in range(3):
        assert torch.equal(fast(x), f(x))
