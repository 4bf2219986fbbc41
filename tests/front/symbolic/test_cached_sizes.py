"""Cached functions (functools.lru_cache) that are asked about sizes which differ from call to call."""

import functools

import pytest
import torch

import magneto
from support import counts

SIZES = (3, 5, 8, 13, 4)


@functools.lru_cache(64)
def plan(order, shape, *, heads):
    """As libraries work out what to do with a shape: new lists and tuples, some of which do not depend on it."""
    if shape[-1] % heads:
        raise ValueError(f"{shape[-1]} for {heads} heads")
    first = [*shape[:-1], heads, shape[-1] // heads]
    return first, list(order), {}, tuple(shape[:1]) + (-1,), len(shape)


def split(x):
    first, order, _, last, n = plan((0, 2, 1, 3), tuple(x.shape), heads=2)
    return x.reshape(first).permute(order[: n + 1]).reshape(last)


def test_values_made_of_sizes_are_made_of_symbols():
    c = magneto.compile(split, fullgraph=True)
    for n in SIZES:
        x = torch.randn(n, n + 2, 6)
        torch.testing.assert_close(c(x), split(x))
    assert counts().entries == 2


def test_an_exception_of_a_cached_function():
    def f(x):
        try:
            return split(x)
        except ValueError as e:
            return x + 1, str(e)

    c = magneto.compile(f)
    for n in SIZES:
        x = torch.randn(n, 2, 2 * n + 1)
        torch.testing.assert_close(c(x)[0], f(x)[0])
        assert c(x)[1] == f(x)[1]


def tables():
    """Functions whose results have a state: what was cached is what the next call gets."""

    @functools.lru_cache
    def table(n):
        return torch.zeros(n)

    @functools.lru_cache
    def noise(n):
        return torch.randn(n)

    @functools.lru_cache
    def notes(n):
        return []

    @functools.lru_cache
    def known(n):
        return {"seen": 0}

    def writes(x):
        table(x.shape[0]).add_(1)
        return x + table(x.shape[0])

    def draws(x):
        return x + noise(x.shape[0])

    def appends(x):
        notes(x.shape[0]).append(1)
        return x * len(notes(x.shape[0]))

    def counts_up(x):
        known(x.shape[0])["seen"] += 1
        return x * known(x.shape[0])["seen"]

    return {"a tensor": writes, "random numbers": draws, "a list": appends, "a dict": counts_up}


@pytest.mark.parametrize("name", tables())
def test_what_has_a_state_stays_in_the_cache(name):
    results = []
    for compile in (lambda f: f, magneto.compile):
        torch.manual_seed(0)
        f = compile(tables()[name])
        results.append([f(torch.ones(n)) for n in (3, 5, 8, 3, 5)])
    torch.testing.assert_close(*results)
