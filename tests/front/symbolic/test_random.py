"""Python's random numbers: drawn anew in every run, in the program's order, from the program's generators; what only computes
with them stays in the graph, what asks for a value breaks it."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

import magneto
from support import assert_same, counts


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
        s = counts()
        assert s.graphs == 1 and not s.fallbacks, s


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


def numpy_arrays(x):
    a = np.random.normal(size=3)
    b = np.random.randint(0, 5, size=(3,))
    a[0] = 7
    return x + torch.from_numpy(a), a, b, torch.tensor(b) * x, b.shape


def numpy_numbers(x):
    return x * np.random.rand() + np.random.randint(1, 9), np.random.uniform(2, 3)


def numpy_seeded(x):
    np.random.seed(7)
    return torch.from_numpy(np.random.randn(3)) * x


def numpy_alone(x):
    y = np.random.randn(2, 2)
    return y - 2 * y, np.random.permutation(5)


@pytest.mark.parametrize("backend", ["magneto", "eager", "aot_eager"])
@pytest.mark.parametrize("f", [numpy_arrays, numpy_numbers, numpy_seeded, numpy_alone])
def test_numpys_generator(f, backend):
    """Each run draws eager's numbers and leaves the generator where eager leaves it; one graph, one entry."""
    x, states = torch.ones(3, dtype=torch.double), []
    magneto.reset()
    for fn in (f, magneto.compile(f, backend=backend, fullgraph=True)):
        np.random.seed(5)
        states.append(([fn(x) for _ in range(3)], np.random.rand()))
    (want, after), (got, same) = states
    assert after == same
    for a, b in zip(got, want, strict=True):
        for p, q in zip(*[r if isinstance(r, tuple) else (r,) for r in (a, b)], strict=True):
            assert type(p) is type(q)
            np.testing.assert_allclose(np.asarray(p), np.asarray(q))
    assert [e["break"] for e in magneto._magneto.entries()] == [None]


@pytest.mark.parametrize("make", [np.random.RandomState, np.random.default_rng])
def test_numpys_generators_of_modules(make):
    class Noisy(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.rng = make(3)
            self.w = torch.nn.Parameter(torch.ones(3, dtype=torch.double))

        def forward(self, x):
            return x * torch.from_numpy(self.rng.normal(size=3)) * self.w + self.rng.uniform(0, 1)

    a, b = Noisy(), Noisy()
    c, x = magneto.compile(b, fullgraph=True), torch.ones(3, dtype=torch.double)
    for _ in range(3):
        y, z = a(x), c(x)
        torch.testing.assert_close(z, y)
        y.sum().backward()
        z.sum().backward()
        torch.testing.assert_close(b.w.grad, a.w.grad)
    b.rng = make(4)  # another generator
    a.rng = make(4)
    torch.testing.assert_close(c(x), a(x))


def test_numpys_numbers_that_are_asked_for():
    f = lambda x: x + 1 if np.random.rand() < 0.5 else x - 1
    results = []
    for fn in (f, magneto.compile(f)):
        np.random.seed(3)
        results.append([fn(torch.ones(2)) for _ in range(8)])
    torch.testing.assert_close(results[1], results[0])
