"""Containers of any size: what a recording does with one that is older than it never reaches the original before the run does."""

import collections
import sys

import pytest
import torch

import harness
import magneto

LARGE = 20_000


class Slotted(collections.defaultdict):
    """Has state beside its dict, so that it is not copied at any size."""

    __slots__ = ("extra",)


class Missing(dict):
    def __missing__(self, key):
        self[key] = torch.ones(3) * key
        return self[key]


def counted(d, x):
    d["count"] = d.get("count", 0) + 1
    return x * d["count"]


def appended(d, x):
    d["last"] = x + 1
    return d["last"] * len(d)


def missed(d, x):
    return x + d["absent"].sum()


def imported(d, x):
    """sys.modules grows while programs run, and has no copy."""
    names = {**sys.modules, "a": 1}
    return x * names["a"] + (sys.modules.get("torch") is torch) + ("math" in sys.modules) + len(d)


def merged(d, x):
    d |= {"a": x}
    return d["a"] * 2


def updated(d, x):
    d.update(b=x * 2)
    return d.setdefault("c", x) + d["b"]


def popped(d, x):
    return x * d.pop(3) + d.popitem()[1]


def walked(d, x):
    return (
        x + sum(v for v in d.values() if not isinstance(v, torch.Tensor)) % 7 + len([k for k in d if k == 5])
    )


def copied(d, x):
    e = dict(d, z=x)
    return e["z"] + len(e) + {**d, "y": 1}["y"]


def removed(d, x):
    del d[1]
    return x + len(d)


def cleared(d, x):
    d.clear()
    d[0] = x * 3
    return d[0]


PROGRAMS = [imported, counted, appended, merged, updated, popped, walked, copied, removed, cleared]


def plain(d):
    return {k: v.tolist() if isinstance(v, torch.Tensor) else v for k, v in d.items()}


def check(f, make):
    """Results and what is left in the dict are eager's, call after call, and no stand-in stays in it."""
    want, got = make(), make()
    g = magneto.compile(f)
    for i in range(3):
        x = torch.full((3,), float(i + 1))
        outcome = []
        for function, d in (f, want), (g, got):
            try:
                outcome.append(function(d, x).tolist())
            except KeyError as e:
                outcome.append(repr(e))
        assert outcome[0] == outcome[1]
        assert plain(want) == plain(got)
        assert all(type(v) in (int, torch.Tensor) for v in got.values())


@pytest.mark.parametrize("size", [511, 512, 513, 4097, LARGE])
@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
def test_a_dict_of(f, size):
    check(f, lambda: dict.fromkeys(range(size), 2))


@pytest.mark.parametrize("size", [512, LARGE])
@pytest.mark.parametrize("f", [counted, appended, missed, updated], ids=lambda f: f.__name__)
@pytest.mark.parametrize("factory", [
    lambda n: collections.defaultdict(lambda: torch.zeros(3), dict.fromkeys(range(n), 2)),
    lambda n: Slotted(lambda: torch.zeros(3), dict.fromkeys(range(n), 2)),
    lambda n: collections.OrderedDict.fromkeys(range(n), 2),
    lambda n: collections.Counter(dict.fromkeys(range(n), 2)),
], ids=["defaultdict", "slots", "ordered", "counter"])  # fmt: skip
def test_a_dict_subclass_of(factory, f, size):
    if f is missed and factory(0).__class__ not in (collections.defaultdict, Slotted):
        pytest.skip("raises, or has numbers only")
    check(f, lambda: factory(size))


@pytest.mark.parametrize("size", [10, LARGE])
def test_a_missing_key_is_the_class_s_own(size):
    def f(d, x):
        return d[-3] + x

    check(f, lambda: Missing(dict.fromkeys(range(size), 2)))


@pytest.mark.parametrize("size", [511, 512, 700])
@pytest.mark.parametrize(
    "make",
    [lambda p: torch.optim.AdamW(p, 0.1), lambda p: torch.optim.SGD(p, 0.1, momentum=0.9)],
    ids=["adamw", "sgd"],
)
def test_an_optimizer_with_as_many_parameters(make, size):
    def trained(compiled):
        torch.manual_seed(0)
        ps = [torch.nn.Parameter(torch.randn(3)) for _ in range(size)]
        inputs = [torch.linspace(0.5, 1, 3) * (i + 1) for i in range(3)]
        return ps, *harness.trained(ps, make, compiled, inputs)

    (ps, losses, ends, state), (qs, losses2, ends2, state2) = trained(False), trained(True)
    torch.testing.assert_close(losses2, losses, rtol=1e-5, atol=0)
    torch.testing.assert_close(ends2, ends)
    assert len(state2) == size
    for p, q in zip(ps, qs):
        assert state[p].keys() == state2[q].keys()
        for k, v in state[p].items():
            torch.testing.assert_close(state2[q][k], v)
