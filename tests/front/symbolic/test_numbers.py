"""Numbers that change between calls: from the second value on they are inputs, computed by Python in every run, and only
the answers that the program took from them are guarded."""

from __future__ import annotations

import math
import re

import pytest
import torch

import magneto
from support import assert_same, counts

VALUES = (1, 2, 3, 5, 6, 7, 8, 9)


def recompiles(f, values=VALUES):
    g = magneto.compile(f)
    x = torch.rand(6) + 0.5
    for n in values:
        assert_same(g(x, n), f(x, n))
    s = counts()
    assert not s.reasons and not s.fallbacks, s
    return s.recompiles


@pytest.mark.parametrize(
    "f",
    [
        lambda x, n: x * n,
        lambda x, n: n * x + n,
        lambda x, n: x / n + n / x,
        lambda x, n: (
            x.sum() * n,
            x.long() * n,
            x.long().sum() * n,
            x.int() * n,
            x.int().sum() * n,
            x.bool().sum() + n,
        ),
        lambda x, n: x * (0.5**n) + n * 0.25,
        lambda x, n: (x + 1, [n, [n + 1]], n - 2, n * 3, n // 2, n % 3, n / 2, -n, abs(n), 10 - n, n + 0.5),
        lambda x, n: x + (n > 0) + (n != 77),
        lambda x, n: x * max(n, -3),
        lambda x, n: (
            torch.tensor(n),
            torch.tensor([n, 2], dtype=torch.float64, device=x.device),
            torch.tensor([(n, 0.5)]),
            x + n,
        ),
        lambda x, n: (
            torch.as_tensor(n),
            torch.as_tensor([n, 2]),
            x.new_tensor(n),
            x.new_tensor([n], dtype=torch.int64),
            x + n,
        ),
        lambda x, n: (
            torch.full((2,), n),
            torch.full((2,), n, dtype=x.dtype),
            x.new_full((2, 1), n),
            x.long().new_full((2,), n),
        ),
        lambda x, n: (
            x.clamp(max=n),
            x.masked_fill(x > 0, n),
            torch.where(x > 0, x, n),
            x.add(x, alpha=n),
            x**n,
            torch.full_like(x, n),
            torch.roll(x, n),
        ),
        lambda x, n: (
            x.clone().fill_(n),
            torch.empty(2, dtype=torch.int64).fill_(n),
            x.masked_fill(x > 1, n),
        ),
    ],
)
def test_arithmetic_of_an_int_is_not_guarded(f):
    assert recompiles(f) == 1


@pytest.mark.parametrize(
    "f",
    [
        lambda x: (x + torch.tensor(x.shape[0]), x * torch.tensor(x.shape[-1], dtype=x.dtype).sqrt()),
        lambda x: (
            x + 1,
            torch.tensor(x.shape),
            torch.tensor([x.shape[0] // 2, 3.0]),
            torch.as_tensor(x.shape[0]),
        ),
        lambda x: (
            x + 1,
            torch.full((3,), x.shape[0]),
            x.new_tensor([x.shape[0]]),
            x.new_full((2,), x.numel()),
        ),
    ],
)
def test_tensors_made_of_sizes_are_not_guarded(f):
    g = magneto.compile(f)
    for n in (4, 5, 6, 9):
        assert_same(g(torch.ones(n)), f(torch.ones(n)))
    s = counts()
    assert s.recompiles == 1 and not s.fallbacks, s


@pytest.mark.parametrize(
    "f,most",
    [
        (lambda x, n: x + 1 if n % 2 == 0 else x - 1, 2),
        (lambda x, n: x[n % 4], 4),
        (lambda x, n: (x + 1, n in (1, 2)), 3),
        (lambda x, n: x * min(n, 3), 3),
    ],
)
def test_answers_are_guarded(f, most):
    assert recompiles(f) <= most


@pytest.mark.parametrize(
    "f",
    [
        lambda x, n: sum(x * i for i in range(n)),
        lambda x, n: (x.long() ** n, torch.nn.functional.leaky_relu(x, n)),
        lambda x, n: (x + 1, f"{n}", str(n), "%d" % n, repr(n), "{:03d}".format(n), [n] * 2, (0,) * n),
        lambda x, n: (x + 1, n << 1, n & 1, n | 8, ~n, divmod(n, 2), 2**n, n**2, (n << 70) % 7),
        lambda x, n: (x + {i: i for i in range(20)}[n], hash(n), n.bit_length()),
    ],
)
def test_the_number_itself_is_guarded(f):
    assert recompiles(f, VALUES[:5]) == 4


def test_an_int_that_becomes_a_float_or_a_bool():
    def f(x, n):
        return x * n, n + 1

    recompiles(f, (1, 2, 3, 1.5, 2.5, 4, True, 5))


def test_zero_division_is_the_programs():
    def f(x, n):
        return x + 6 // n

    g = magneto.compile(f)
    x = torch.ones(2)
    for n in (1, 2, 3):
        assert_same(g(x, n), f(x, n))
    with pytest.raises(ZeroDivisionError):
        g(x, 0)
    assert_same(g(x, 4), f(x, 4))


class Counter:
    def __init__(self):
        self.n, self.total, self.betas = 0, 0.0, (0.9, 0.99)

    def step(self, x):
        self.n += 1
        self.total += 0.5 * self.n
        b1, b2 = self.betas
        return x * b1 + b2 * self.n if self.n % 4 else x


def test_counters_of_objects():
    a, b = Counter(), Counter()
    g = magneto.compile(b.step)
    x = torch.ones(3)
    for i in range(20):
        a.betas = b.betas = (0.9 - i / 100, 0.99)
        assert_same(g(x), a.step(x))
        assert (a.n, a.total) == (b.n, b.total) and type(b.n) is int
    s = counts()
    assert s.recompiles <= 4 and not s.reasons, s


def test_counters_in_dicts_globals_and_cells():
    count = {"calls": 0}
    cell = 0

    def f(x):
        nonlocal cell
        count["calls"] += 1
        cell += 2
        return x + count["calls"] * cell

    g = magneto.compile(f)
    x = torch.zeros(2)
    for i in range(1, 15):
        assert g(x)[0].item() == i * 2 * i
    assert count == {"calls": 14} and cell == 28
    s = counts()
    assert s.recompiles <= 2 and not s.reasons, s


class Shared(torch.nn.Module):
    calls, scale, last = 0, 1.0, (0, 1)

    def forward(self, x):
        Shared.calls += 1
        type(self).scale = 1.5 * self.calls
        return x * self.scale + self.calls + self.last[0]

    @classmethod
    def step(cls, x):
        cls.calls += 2
        return x + cls.calls if cls.calls % 8 else x


class Derived(Shared):
    pass


@pytest.mark.parametrize("cls", [Shared, Derived])
@pytest.mark.parametrize("how", ["forward", "step"])
def test_counters_of_classes(cls, how):
    def run(f):
        for c in (Shared, Derived):
            for name in ("calls", "scale", "last"):
                if c is Shared or name in vars(c):
                    setattr(c, name, {"calls": 0, "scale": 1.0, "last": (0, 1)}[name])
        got = []
        for i in range(12):
            Shared.last = (i, 1)
            got += [f(torch.ones(2)), Shared.calls, cls.calls, cls.scale]
        assert all(type(v) is int for v in got[1::4] + got[2::4])
        return got

    want = run(cls() if how == "forward" else cls.step)
    assert_same(run(magneto.compile(cls() if how == "forward" else cls.step)), want)
    s = counts()
    assert s.recompiles <= 4 and not s.reasons and not s.fallbacks, s


def chunks(x):
    return x.view(torch.div(x.size(0), 2, rounding_mode="trunc"), -1).sum(-1)


def branch(x):
    return x + 1 if (torch.arange(4) < 3).any() else x - 1


def last(x):
    return x * int(torch.ones(3).cumsum(0)[-1])


def written(x):
    t = torch.zeros(2)
    t[0] = x.size(0)
    return x * (t[0] + 1).item()


@pytest.mark.parametrize("f", [chunks, branch, last], ids=lambda f: f.__name__)
@pytest.mark.parametrize("backend", ["magneto", "eager"])
def test_values_of_tensors_that_follow_from_constants_are_known(f, backend):
    c = magneto.compile(f, fullgraph=True, backend=backend)
    for n in (6, 8):
        torch.testing.assert_close(c(torch.linspace(-1, 1, n)), f(torch.linspace(-1, 1, n)))


def test_a_constant_that_was_written_to_is_none():
    c = magneto.compile(written)
    for n in (6, 8):
        torch.testing.assert_close(c(torch.linspace(-1, 1, n)), written(torch.linspace(-1, 1, n)))


WHERE = {
    "two numbers": lambda c, i, s: torch.where(c, s, s * 2),
    "int tensor": lambda c, i, s: torch.where(c, i, s),
    "number first": lambda c, i, s: torch.where(c, s, i),
    "half": lambda c, i, s: torch.where(c, s, i.half()),
    "bool": lambda c, i, s: torch.where(c, c, s),
    "constants": lambda c, i, s: torch.where(c, 5, s),
    "keywords": lambda c, i, s: torch.where(condition=c, input=i, other=s),
}


@pytest.mark.parametrize("name", WHERE)
@pytest.mark.parametrize("values", [(2.5, 3.5, 4.5), (2, 3, 4)])
def test_where_keeps_the_dtype(name, values):
    f = magneto.compile(WHERE[name])
    c, i = torch.tensor([True, False, True]), torch.tensor([1, 2, 3], dtype=torch.int32)
    for s in values:
        assert_same(f(c, i, s), WHERE[name](c, i, s))


def test_c_functions_that_insist_on_an_int():
    f = magneto.compile(lambda x, n: x * math.ldexp(1.5, n) + len("ab".center(n)))
    x = torch.rand(3)
    for n in (1, 2, 3, 4):
        torch.testing.assert_close(f(x, n), x * math.ldexp(1.5, n) + max(n, 2))


def test_functions_of_one_number_are_computed_by_runs():
    def f(x, n):
        kinds = type(n), isinstance(n, int), isinstance(n, float), bool(n)
        return (
            x * math.sqrt(n) + math.floor(n / 3),
            int(n / 2),
            round(n / 3),
            int(n),
            float(n),
            math.cos(n),
            math.isfinite(n),
            kinds,
        )

    assert recompiles(f) <= 2
    g = magneto.compile(f)
    for n in (4, 9, 16):
        g(torch.ones(3), n)
    with pytest.raises(ValueError) as expected:
        f(torch.ones(3), -1)
    with pytest.raises(ValueError, match=re.escape(str(expected.value))):
        g(torch.ones(3), -1)


@pytest.mark.parametrize("make", [lambda: {3: 1, 7: 1}, lambda: {3, 7}, lambda: frozenset([3, 7])])
def test_numbers_among_constants(make):
    """Whether it is among them is the answer; what they are is guarded."""
    box = [make()]

    def f(x, n):
        return (x + 1 if n in box[0] else x * 2), n not in box[0]

    assert recompiles(f) <= 4
    g = magneto.compile(f)
    for n in (1, 2, 4, 3, 5):
        if n == 4 and not isinstance(box[0], frozenset):
            box[0].add(n) if isinstance(box[0], set) else box[0].update({n: 1})
        assert_same(g(torch.ones(2), n), f(torch.ones(2), n))


NUMBERS = [1.0, 2.0, 3]


def of_a_list(x):
    returns, total = [], 0.0
    for r in NUMBERS[::-1]:
        total = r + 0.9 * total
        returns.insert(0, total)
    return x * torch.tensor(returns), x * NUMBERS[1], x + sum(NUMBERS)


def test_numbers_in_a_list_that_is_known_by_identity():
    magneto.reset()
    compiled, x = magneto.compile(of_a_list), torch.ones(3)
    for k in range(6):
        NUMBERS[:] = [k + 0.5, k * k + 2.0, k + 7]
        for want, got in zip(of_a_list(x), compiled(x), strict=True):
            torch.testing.assert_close(got, want)
    assert counts().entries == 2
    NUMBERS.pop()
    torch.testing.assert_close(compiled(x[:2])[2], of_a_list(x[:2])[2])


@pytest.mark.parametrize("dtype", [torch.int64, torch.float32])
def test_factor_that_changes(dtype):
    fns = [
        torch.add,
        torch.sub,
        torch.rsub,
        lambda x, y, alpha: x.sub_(y, alpha=alpha),
        lambda x, y, alpha: torch.rsub(x, 5, alpha=alpha),
    ]
    for fn in fns:
        magneto.reset()
        c = magneto.compile(lambda x, y, a, fn=fn: fn(x, y, alpha=a))
        for a in (1, 2, 3, 1.5, 2.5):
            x, y = torch.full((3,), 7, dtype=dtype), torch.full((3,), 2, dtype=dtype)
            if dtype.is_floating_point or isinstance(a, int):
                torch.testing.assert_close(c(x.clone(), y, a), fn(x, y, alpha=a))
            else:
                with pytest.raises(RuntimeError, match="alpha must not be a floating point"):
                    c(x, y, a)
