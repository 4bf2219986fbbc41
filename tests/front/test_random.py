"""Python's random numbers: drawn anew in every run, in the program's order, from the program's generators; what only computes
with them stays in the graph, what asks for a value breaks it."""

from __future__ import annotations

import random

import pytest
import torch

import magneto


def scaled(x, g):
    return (x + 1) * random.uniform(0, 1) - g.random()


def several(x, g):
    a = random.randint(1, 9)
    y = x + random.uniform(10, 20)
    return y + a, random.randrange(0, 10), g.gauss(0, 1) + 1, random.getrandbits(8) ** 2 % 7


def made_inside(x, g):
    h = random.Random(42)
    return x + random.randint(1, 9) + g.randint(1, 9) + h.randint(1, 9), h


def moved(x, g):
    g.seed(42)
    h = random.Random(9002)
    y = x * g.random()
    g.setstate(h.getstate())
    return y + g.randrange(10) + h.uniform(0, 1)


def in_a_loop(x, g):
    t = 0
    for _ in range(3):
        t = t + g.uniform(-1, 1)
        x = x + t
    return x, t


def with_integers(x, g):
    return x.long() + g.randint(1, 5), x.int() * g.random(), x.sum() / (g.random() + 1)


def asked(x, g):
    return x + 1 if g.random() < 0.5 else x - random.random()


def collected(x, g):
    items = list(range(10))
    g.shuffle(items)
    return x + items[0], items, random.choice([1, 2, 3]), g.sample(range(9), 3), f"{random.random()}"


def sized(x, g):
    return x + 2, torch.zeros(g.randrange(1, 5), random.randrange(1, 5))


def until_other(x, g):
    a = b = g.randrange(3)
    while a == b:
        b = g.randrange(3)
    return x * 2, a, b


def again(x, g):
    state = g.getstate()
    y = x + g.random()
    g.setstate(state)
    return y, x + g.random()


def of_the_system(x, g):
    return x + random.SystemRandom(3).random() * 0, random.Random().random() * 0


def flat(v):
    if isinstance(v, random.Random):
        return v.getstate()
    return tuple(flat(i) for i in v) if isinstance(v, (tuple, list)) else v


def assert_same(a, b):
    if isinstance(b, torch.Tensor):
        assert a.dtype == b.dtype
        torch.testing.assert_close(a, b)
    elif isinstance(b, tuple):
        assert len(a) == len(b)
        for p, q in zip(a, b):
            assert_same(p, q)
    else:
        assert type(a) is type(b) and a == b


class Own(random.Random):
    def random(self):
        return super().random() / 2


def custom(seed):
    g = random.Random(seed)
    draw = g.random
    g.random = lambda: draw() / 4
    return g


WHOLE = [scaled, several, made_inside, moved, in_a_loop, with_integers]
BROKEN = [asked, collected, sized, until_other, again, of_the_system]


@pytest.mark.parametrize("backend", ["magneto", "eager"])
@pytest.mark.parametrize("f", WHOLE + BROKEN, ids=lambda f: f.__name__)
def test_the_same_numbers_as_eager(f, backend):
    x = torch.rand(3, 3)
    g = magneto.compile(f, backend=backend, fullgraph=f in WHOLE)
    for seed in range(4):
        runs = []
        for fn in (f, g):
            random.seed(seed)
            own = random.Random(seed + 7)
            runs.append((flat(fn(x, own)), own.getstate(), random.getstate()))
        assert_same(runs[1], runs[0])
    if f in WHOLE:
        s = magneto._magneto.stats()
        assert s["graphs"] == 1 and not s["fallbacks"], s


@pytest.mark.parametrize("make", [Own, custom], ids=["subclass", "method of its own"])
@pytest.mark.parametrize("f", [scaled, several, asked], ids=lambda f: f.__name__)
def test_generators_with_other_methods(f, make):
    x = torch.rand(3)
    g = magneto.compile(f)
    for seed in range(3):
        runs = []
        for fn in (f, g):
            random.seed(seed)
            own = make(seed)
            runs.append((flat(fn(x, own)), own.getstate(), random.getstate()))
        assert_same(runs[1], runs[0])


def test_errors_are_pythons():
    f = magneto.compile(lambda x: x + random.randint(5, 1))
    for _ in range(2):
        with pytest.raises(ValueError, match="empty range"):
            f(torch.ones(2))
