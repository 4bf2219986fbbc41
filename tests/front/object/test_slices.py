"""Slices from outside: their parts are guarded, whatever they are."""

import pytest
import torch

import magneto
from support import assert_same, counts

ITEMS = list(range(7, 15))


class Number:
    def __init__(self, n):
        self.n = n

    def __index__(self):
        return self.n


PARTS = {
    "stop": lambda o: slice(o),
    "start": lambda o: slice(o, None),
    "step": lambda o: slice(None, None, o),
    "all": lambda o: slice(o, 6, o),
}
NUMBERS = {
    "int": lambda n: n,
    "index": Number,
    "tensor": lambda n: torch.tensor(n),
}
USES = {
    "list": lambda x, s: (x + 1, ITEMS[s]),
    "tuple": lambda x, s: (x + 1, tuple(ITEMS)[s]),
    "text": lambda x, s: (x + 1, "abcdefgh"[s]),
    "tensor": lambda x, s: x[s] * 2,
    "rows": lambda x, s: x.reshape(2, 4)[:, s] * 2,
    "range": lambda x, s: (x + 1, list(range(8)[s])),
    "indices": lambda x, s: (x + 1, s.indices(8)),
    "parts": lambda x, s: (x + 1, [p if p is None else int(p) for p in (s.start, s.stop, s.step)]),
    "made": lambda x, s: x[slice(s.start, s.stop, s.step)] + 1,
    "equal": lambda x, s: (x + 1, s == slice(3)),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("part", PARTS)
def test_given_slices(part, number, use):
    fast, x = magneto.compile(USES[use]), torch.arange(8.0)
    for n in (1, 2, 3, 5, 2, 3, 1):
        s = PARTS[part](NUMBERS[number](n))
        assert_same(fast(x, s), USES[use](x, s))


@pytest.mark.parametrize("use", USES)
def test_the_same_slice_of_a_number_that_changes(use):
    o = Number(1)
    s, fast, x = slice(0, o), magneto.compile(USES[use]), torch.arange(8.0)
    for n in (1, 2, 3, 5, 2, 3, 1):
        o.n = n
        assert_same(fast(x, s), USES[use](x, s))
    assert counts().fallbacks == 0


def test_slices_of_bools_are_others():
    f = lambda x, s: (x + 1, s.start is True)
    fast, x = magneto.compile(f), torch.ones(2)
    for start in (True, 1, True, 1):
        assert fast(x, slice(start, 2))[1] == f(x, slice(start, 2))[1]


def test_slices_of_tensors():
    f = lambda x, s: x[s] + s.stop
    fast, x = magneto.compile(f), torch.arange(8.0)
    for stop in (2, 3, 2):
        s = slice(None, torch.tensor(stop))
        assert_same(fast(x, s), f(x, s))


class Holder:
    def __init__(self, s):
        self.s = s


PLACES = {
    "argument": (lambda s: s, lambda x, s: x[s] * 2),
    "tuple": (lambda s: (s, slice(None, 1)), lambda x, i: x[i] * 2),
    "list": (lambda s: [s], lambda x, a: x[a[0]] * 2),
    "attribute": (Holder, lambda x, o: x[o.s] * 2),
    "written": (lambda s: s, lambda x, s: x.clone().index_fill_(0, torch.arange(len(x))[s], 3.0)),
}


@pytest.mark.parametrize("make, use", PLACES.values(), ids=PLACES)
def test_numbers_of_slices_that_change_are_inputs(make, use):
    fast, x = magneto.compile(use), torch.arange(60.0).reshape(30, 2)
    for n in range(2, 14):
        for s in slice(n, 2 * n), slice(n, 2 * n):
            assert_same(fast(x, make(s)), use(x, make(s)))
    assert counts().recompiles == 1


def test_the_slice_of_a_module_that_changes_is_an_input():
    class Net(torch.nn.Module):
        def forward(self, x):
            return x[self.kept] * 2

    net, x = Net(), torch.arange(30.0)
    fast = magneto.compile(net)
    for n in range(2, 14):
        net.kept = slice(n, 2 * n)
        assert_same(fast(x), net(x))
    assert counts().recompiles == 1
