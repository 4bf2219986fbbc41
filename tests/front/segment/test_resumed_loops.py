"""Loops that go on after a break in an earlier turn: what is left of them is recorded as a whole, or one entry serves all turns."""

import pytest
import torch

import magneto
from harness import forced_breaks
from magneto import _magneto
from support import assert_counts, assert_same, counts


def compare(make, calls, **options):
    """Calls a compiled and an eager function on equal arguments; how many graphs that took."""
    _magneto.reset()
    c, e = magneto.compile(make(), **options), make()
    for args in calls:
        assert_same(c(*args), e(*args), rtol=1e-5, atol=1e-6)
    assert_counts()
    return counts().graphs


def large(x):
    return bool(x.sum() > 1e9)


def linears(n):
    torch.manual_seed(0)
    return torch.nn.ModuleList([torch.nn.Linear(8, 8) for _ in range(n)])


def asked_in_the_first_turn(layers):
    def f(x):
        for i, layer in enumerate(layers):
            x = layer(x)
            if i == 0 and x.sum() > 1e9:
                x = x + 1
            x = x.cos()
        return x * 2

    return f


def iterated(layers):
    def f(x):
        many = None
        for layer in layers:
            x = layer(x)
            if many is None:
                many = bool(x.sum() > 1e9)
            if many:
                x = x + 1
        return x * 2

    return f


def paired(layers):
    def f(x):
        first = True
        for layer, scale in zip(layers, [1 / (1 + i) for i in range(len(layers))]):
            x = layer(x) * scale
            if first and x.sum() > 1e9:
                x = x + 1
            first = False
        return x * 2

    return f


@pytest.mark.parametrize("f", [asked_in_the_first_turn, iterated, paired])
@pytest.mark.parametrize("n", [3, 12])
def test_the_rest_of_a_loop_over_modules_is_one_graph(f, n):
    assert compare(lambda: f(linears(n)), [(torch.rand(4, 8),) for _ in range(4)]) <= 3


@pytest.mark.parametrize("k", [1, 3, 7])
@pytest.mark.parametrize("f", [asked_in_the_first_turn, iterated, paired])
def test_with_forced_breaks(f, k):
    with forced_breaks(k):
        compare(lambda: f(linears(3)), [(torch.rand(4, 8),) for _ in range(2)])


def test_an_encoder_that_looks_at_its_mask_has_as_many_graphs_for_any_depth():
    def make(depth):
        torch.manual_seed(0)
        layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0)
        return torch.nn.TransformerEncoder(layer, depth)

    mask = torch.triu(torch.full((4, 4), float("-inf")), 1)
    calls = [(torch.rand(2, 4, 8), m) for m in (mask, mask, torch.zeros(4, 4))]
    few, many = (compare(lambda n=n: make(n), calls) for n in (2, 6))
    assert few == many


def test_a_loop_with_a_break_in_every_turn_compiles_one_body():
    def f(x):
        for i in range(6):
            x = x.cos() * 2
            if x.sum() > 1e9:
                x = x + 1
        return x

    assert compare(lambda: f, [(torch.rand(4, 8),) for _ in range(4)]) <= 3


def test_an_iterator_that_others_hold_is_used_up():
    kept = []

    def make():
        layers = linears(4)

        def f(x):
            it = iter(list(layers))
            kept.append(it)
            first = True
            for layer in it:
                x = layer(x)
                if first and x.sum() > 1e9:
                    x = x + 1
                first = False
            return x, len(list(it)), len(list(kept[-1]))

        return f

    compare(make, [(torch.rand(4, 8),) for _ in range(3)])


def test_a_loop_that_is_left_early_leaves_the_rest():
    def make():
        layers = linears(5)

        def f(x, stop):
            it = enumerate(layers)
            for i, layer in it:
                x = layer(x)
                if i == 0 and x.sum() > 1e9:
                    x = x + 1
                if i == stop:
                    break
            return x, [i for i, _ in it]

        return f

    compare(make, [(torch.rand(4, 8), stop) for stop in (2, 2, 3, 4, 7)])


@pytest.mark.parametrize("fresh", [False, True])
def test_keys_that_nobody_reads_share_an_entry(fresh):
    """`for k, v in d.items()`, with a break in the body: 30 keys would be 30 entries."""
    numbers = {f"k{i}": i / 7 for i in range(30)}

    def f(x):
        d = {k: x * v for k, v in numbers.items()} if fresh else numbers
        for k, v in d.items():
            x = x * 0.5 + v
            if x.sum() > 1e9:
                x = x + 1
        return x

    assert compare(lambda: f, [(torch.rand(4, 8),) for _ in range(3)]) <= 4


def test_what_a_call_outside_of_the_graph_returns_is_taken_apart():
    @magneto.disable
    def outside(x, i):
        return [f"name {i}", (x.sum().item(), i)]

    def f(x):
        name = None
        for i in range(20):
            name, (total, k) = outside(x, i)
            x = x.cos() + total * 0
        return x, name, k

    assert compare(lambda: f, [(torch.rand(4, 8),) for _ in range(3)]) <= 4


def test_what_cannot_be_taken_apart_raises_in_its_place():
    @magneto.disable
    def outside(x):
        return (x,)

    def f(x):
        x = x + 1
        try:
            a, b = outside(x)
        except ValueError as e:
            return x * 2, str(e)
        return a, b

    compare(lambda: f, [(torch.rand(4, 8),) for _ in range(3)])
