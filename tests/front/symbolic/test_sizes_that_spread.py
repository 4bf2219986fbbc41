"""A size that has changed is symbolic in tensors that are met later, as the cache that a first run makes."""

import torch

import magneto
from tests.support.counts import assert_counts, counts


class Cache:
    def __init__(self):
        self.rows = None


def _append(x, cache):
    cache.rows = x if cache.rows is None else torch.cat([cache.rows, x])
    return cache.rows.sum(0)


def _follows(fast, lengths, mine, other):
    for n in lengths:
        x = torch.randn(n, 3)
        torch.testing.assert_close(fast(x, mine), _append(x, other))


def test_a_cache_grows_with_one_graph_from_its_first_use():
    fast = magneto.compile(_append)
    _follows(fast, (7, 1, 1, 1, 1), Cache(), Cache())
    assert_counts(graphs=2, misses=2)
    _follows(fast, (9, 1, 1), Cache(), Cache())
    before = counts()
    _follows(fast, (5, 1, 1), Cache(), Cache())
    assert_counts(before, misses=0)
    assert before.graphs == 3


def test_a_size_that_was_there_before_stays_a_constant():
    def scaled(x, y):
        return x.sum() * y * y.size(0)

    fast, y = magneto.compile(scaled), torch.randn(7)
    for n in (7, 8, 9):
        x = torch.randn(n)
        torch.testing.assert_close(fast(x, y), scaled(x, y))
    before = counts()
    for n in (5, 6):
        y = torch.randn(n)
        torch.testing.assert_close(fast(x, y), scaled(x, y))
    assert counts(before).misses == 1
