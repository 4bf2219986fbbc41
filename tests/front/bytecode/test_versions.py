"""What the versions of CPython do differently in a frame that a segment or a breaking instruction ends in."""

import sys
import traceback

import pytest
import torch

import magneto


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
