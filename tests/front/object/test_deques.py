"""Deques older than a call that are appended to: one graph, however long they have become."""

from collections import deque

import pytest
import torch

import magneto
from support import assert_counts, assert_same


class Keeps:
    def __init__(self, limit):
        self.seen = deque(maxlen=limit)

    def last(self, x):
        y = x.sin()
        self.seen.append(y)
        return y * 2

    def twice(self, x):
        self.seen.append(x.sin())
        self.seen.append(x.cos())
        return x + 1

    def looks(self, x):
        self.seen.append(x.mean())
        return x * torch.stack(list(self.seen)).mean()

    def length(self, x):
        self.seen.append(x + 1)
        return x * len(self.seen)


def run(name, limit, compiled):
    keeps, results = Keeps(limit), []
    f = magneto.compile(getattr(keeps, name)) if compiled else getattr(keeps, name)
    for i in range(7):
        results.append(f(torch.full((3,), float(i))))
    return results, list(keeps.seen), keeps.seen.maxlen


@pytest.mark.parametrize("limit", [None, 0, 1, 3, 100])
@pytest.mark.parametrize("name", ["last", "twice", "looks", "length"])
def test_content_is_eagers(name, limit):
    if name == "looks" and limit == 0:
        pytest.skip("stack() of nothing raises")
    assert_same(run(name, limit, True), run(name, limit, False))


@pytest.mark.parametrize("limit", [None, 3, 100])
def test_an_append_is_one_graph(limit):
    run("last", limit, True)
    assert_counts(graphs=1, recompiles=0, breaks=0)


def test_another_limit_is_guarded():
    def f(d, x):
        d.append(x + 1)
        return x * 2

    c, x = magneto.compile(f), torch.ones(2)
    for limit in (2, 3, None, 2):
        a, b = deque([x] * 2, limit), deque([x] * 2, limit)
        assert_same((c(a, x), a), (f(b, x), b))


def test_what_a_full_deque_drops_ends_where_it_does_in_eager():
    log = []

    class Ends:
        def __init__(self, i):
            self.i = i

        def __del__(self):
            log.append((self.i, seen.get("at")))

    def f(d, x):
        seen["at"] = 1
        d.append(x)
        seen["at"] = 2
        return x + 1

    def runs(f):
        log.clear()
        d = deque([0, 0], 2)
        for i in range(4):
            f(d, torch.ones(2))
            d.append(Ends(i))
        d.clear()
        return log.copy()

    seen = {}
    want = runs(f)
    assert_same(runs(magneto.compile(f)), want)
