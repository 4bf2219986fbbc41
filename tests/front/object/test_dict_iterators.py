"""Iterators of dicts that are alive at a graph break are iterators of that dict afterwards."""

import pytest
import torch

import magneto
from magneto import _magneto, graph_break

X = torch.arange(3.0)
MAKERS = {
    "keys": lambda d: iter(d),
    "values": lambda d: iter(d.values()),
    "items": lambda d: iter(d.items()),
    "reversed-keys": lambda d: reversed(d),
    "reversed-values": lambda d: reversed(d.values()),
    "reversed-items": lambda d: reversed(d.items()),
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_an_iterator_of_a_new_dict_keeps_its_class_and_place(make):
    def f(x):
        i = make({"a": 1, "b": 2, "c": 3})
        first = next(i)
        y = x + 1
        graph_break()
        return y, first, type(i).__name__, i.__length_hint__(), list(i)

    fast = magneto.compile(f)
    for _ in range(3):
        assert fast(X)[1:] == f(X)[1:]


def test_a_method_of_an_iterator_survives_a_break():
    def f(x):
        take = iter({"a": 1, "b": 2}).__next__
        first = take()
        y = x + 1
        graph_break()
        return y, first, take()

    fast = magneto.compile(f)
    for _ in range(3):
        assert fast(X)[1:] == ("a", "b")


@pytest.mark.parametrize("k", range(1, 6))
def test_a_method_is_called_where_a_break_is_between_looking_it_up_and_the_call(k):
    def f(x):
        i = iter({"a": x}.values())
        return i.__next__() + 1, list(iter({"b": 2}.items()))

    fast = magneto.compile(f)
    _magneto.force_break(k)
    try:
        for _ in range(3):
            got, want = fast(X), f(X)
            assert torch.equal(got[0], want[0]) and got[1] == want[1]
    finally:
        _magneto.force_break(0)


def test_a_dict_that_changes_its_size_after_the_break_is_an_error():
    def f(x, d):
        i = iter(d)
        next(i)
        y = x + 1
        graph_break()
        d["new"] = 1
        try:
            next(i)
        except RuntimeError as e:
            return y, str(e)

    fast = magneto.compile(f)
    for _ in range(3):
        assert (
            fast(X, {"a": 1, "b": 2})[1]
            == f(X, {"a": 1, "b": 2})[1]
            == "dictionary changed size during iteration"
        )


def test_an_iterator_of_an_argument_follows_its_values():
    def f(x, d):
        i = iter(d.values())
        next(i)
        y = x + 1
        d["b"] = 5
        graph_break()
        d["c"] = 6
        return y, list(i), next(i, None)

    fast = magneto.compile(f)
    for _ in range(3):
        assert fast(X, dict(a=1, b=2, c=3))[1:] == f(X, dict(a=1, b=2, c=3))[1:] == ([5, 6], None)


def test_a_loop_over_a_dict_goes_on_after_a_break_in_it():
    def f(x, d):
        for k, v in d.items():
            x = x + v
            graph_break()
            x = x * len(k)
        return x

    d = {"a": 1, "bb": 2, "ccc": 3}
    fast = magneto.compile(f)
    for _ in range(3):
        assert torch.equal(fast(X, d), f(X, d))


def test_an_exhausted_iterator_stays_exhausted():
    def f(x):
        i = iter({"a": 1})
        list(i)
        y = x + 1
        graph_break()
        return y, type(i).__name__, list(i), next(i, None)

    assert magneto.compile(f)(X)[1:] == f(X)[1:]
