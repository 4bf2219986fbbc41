"""The helpers themselves: what assert_same sees, what it says, and what it lets pass."""

import collections
import types

import numpy as np
import pytest
import torch

import magneto
from support import CountingBackend, assert_calls_same, assert_counts, assert_same, counts


class Holder:
    def __init__(self, **parts):
        self.__dict__.update(parts)


class Slots:
    __slots__ = ("a", "__hidden")

    def __init__(self, a, hidden):
        self.a, self.__hidden = a, hidden


class MyList(list):
    pass


class Sub(torch.Tensor):
    pass


def with_grad(g):
    t = torch.ones(2, requires_grad=True)
    t.grad = None if g is None else torch.full((2,), g)
    return t


def shared(once):
    t = torch.ones(2)
    return [t, t if once else t.clone()]


def viewed(once):
    t = torch.ones(3, 2)
    return {"base": t, "row": t[0] if once else t[0].clone()}


def tagged(n):
    t = torch.ones(2).as_subclass(Sub)
    t.tag = n
    return t


def raised(e):
    try:
        raise e
    except type(e) as caught:
        return caught


def cyclic(n):
    a = [n]
    a.append(a)
    return a


def later(values):
    it = iter(values)
    next(it)
    return it


ONES = torch.ones(2, 3)
# What differs, two values, and what the message says about it.
DIFFERENT = [
    ("dtype", ONES, ONES.double(), r"value: dtype: torch.float32, eager has torch.float64"),
    ("shape", ONES, torch.ones(3, 2), r"value: shape: \(2, 3\), eager has \(3, 2\)"),
    ("strides", ONES, torch.ones(3, 2).t(), r"value: strides: \(3, 1\), eager has \(1, 2\)"),
    ("layout", ONES, ONES.to_sparse(), r"value: layout"),
    (
        "element",
        torch.tensor([[1.0, 2], [3, 4]]),
        torch.tensor([[1.0, 2], [9, 4]]),
        r"at \[1, 0\]: 3.0, eager has 9.0",
    ),
    ("nan", torch.tensor([1.0, torch.nan]), torch.ones(2), r"at \[1\]: nan, eager has 1.0"),
    ("conj", torch.ones(2, dtype=torch.cfloat).conj(), torch.ones(2, dtype=torch.cfloat), "is_conj"),
    (
        "requires_grad",
        torch.ones(2, requires_grad=True),
        torch.ones(2),
        "value: requires_grad: True, eager has False",
    ),
    ("is_leaf", with_grad(None) * 1, with_grad(None), "value: is_leaf"),
    ("grad", with_grad(1.0), with_grad(2.0), r"value.grad: values differ at \[0\]: 1.0, eager has 2.0"),
    ("no grad", with_grad(None), with_grad(2.0), r"value.grad: type NoneType"),
    (
        "same object",
        shared(True),
        shared(False),
        r"value\[1\]: aliasing: the object is that of value\[0\], eager's is its own",
    ),
    (
        "other object",
        shared(False),
        shared(True),
        r"aliasing: the object is its own, eager's is that of value\[0\]",
    ),
    (
        "view",
        viewed(False),
        viewed(True),
        r"value\['row'\]: aliasing: the memory is its own, eager's is that of value\['base'\]",
    ),
    ("subclass", ONES.as_subclass(Sub), ONES, "value: type Sub"),
    ("tag", tagged(1), tagged(2), "value.tag: 1, eager has 2"),
    ("leaf", [{"a": (1, 2)}], [{"a": (1, 3)}], r"value\[0\]\['a'\]\[1\]: 2, eager has 3"),
    ("length", [1, 2], [1], r"2 items \[1, 2\], eager has 1: \[1\]"),
    ("list", [1], (1,), r"type list \(\[1\]\), eager has tuple"),
    ("order", {"a": 1, "b": 2}, {"b": 2, "a": 1}, "value: key: a, eager has b"),
    ("key", {"a": 1, "b": 2}, {"a": 1}, "value: keys"),
    ("bool", True, 1, "type bool"),
    ("int", 1.0, 1, "type float"),
    ("float", 1.0, 1.0 + 1e-12, "eager has 1.00"),
    ("attribute", Holder(a=1), Holder(a=2), "value.a: 1, eager has 2"),
    ("attributes", Holder(a=1), Holder(b=1), "value: attributes"),
    ("slot", Slots(1, 2), Slots(3, 2), "value.a: 1, eager has 3"),
    ("private slot", Slots(1, 2), Slots(1, 3), "value._Slots__hidden: 2, eager has 3"),
    ("of a list", MyList([1]), Holder(), "type MyList"),
    ("error type", raised(KeyError("a")), raised(ValueError("a")), "error KeyError|type KeyError"),
    ("error text", raised(ValueError("a")), raised(ValueError("b")), "text of the error: a, eager has b"),
    ("an error", raised(ValueError("a")), 1, "value: error ValueError"),
    ("maxlen", collections.deque([1], 2), collections.deque([1], 3), "maxlen: 2, eager has 3"),
    ("factory", collections.defaultdict(int), collections.defaultdict(list), "default_factory"),
    ("function", len, sum, "len"),
    ("bound", [].append, [1].append, "__self__"),
    ("set", {1}, {2}, r"\{1\}, eager has \{2\}"),
    ("iterator", later([1, 2, 3]), later([1, 2, 4]), "what is left"),
    ("generator", (i for i in (1, 2)), (i for i in (1, 3)), r"value\[1\]"),
    ("array", np.ones(2), np.ones(2, np.float32), "dtype"),
    ("array strides", np.ones((2, 2)), np.ones((2, 2)).T, "strides"),
    ("array value", np.ones(2), np.array([1.0, 2.0]), "values differ"),
    ("array of doubles", np.ones(2), np.ones(2) + 1e-8, "values differ"),
    ("view of keys", {1: 2}.keys(), {2: 2}.keys(), r"value\[0\]"),
    ("namespace", types.SimpleNamespace(a=1), types.SimpleNamespace(a=2), "value.a"),
    ("cycle", cyclic(1), cyclic(2), r"value\[0\]: 1, eager has 2"),
]


@pytest.mark.parametrize("got, want, text", [pytest.param(*row[1:], id=row[0]) for row in DIFFERENT])
def test_a_difference_is_seen_and_named(got, want, text):
    with pytest.raises(AssertionError, match=text):
        assert_same(got, want)


@pytest.mark.parametrize(
    "make",
    [
        lambda: [ONES, ONES.t(), torch.empty(0, 3), torch.tensor([torch.nan, torch.inf])],
        lambda: (with_grad(None), with_grad(1.0), with_grad(1.0) * 2),
        lambda: [*shared(True), *shared(False), viewed(True)],
        lambda: {1: [None, True, 1, 1.0, float("nan"), "a", b"a", 1j, slice(1, 2), range(3)], "a": {1, 2}},
        lambda: [
            Holder(a=Slots(1, torch.ones(2))),
            collections.deque([1], 3),
            collections.defaultdict(list, a=[1]),
        ],
        lambda: [raised(KeyError("a")), raised(RuntimeError("a", 1))],
        lambda: [cyclic(1), tagged(1), (i for i in (1, 2)), later([1, 2]), [].append, len, Holder],
        lambda: [np.ones((2, 3)).T, np.float32(2), np.array(["a"])],
    ],
)
def test_equal_values_pass(make):
    assert_same(make(), make())


@pytest.mark.parametrize(
    "options, got, want",
    [
        (dict(strides="used"), torch.ones(1, 2).as_strided((1, 2), (7, 1)), torch.ones(1, 2)),
        (dict(strides=None), ONES, torch.ones(3, 2).t()),
        (dict(autograd=False), torch.ones(2, requires_grad=True), torch.ones(2)),
        (dict(autograd="flag"), with_grad(1.0), with_grad(None)),
        (dict(aliasing=False), shared(True), shared(False)),
        (dict(float_rtol=1e-6), 1.0, 1.0 + 1e-9),
        (dict(rtol=0.1, atol=0), ONES, ONES * 1.05),
        (dict(error_text=lambda e: str(e)[:1]), raised(ValueError("ab")), raised(ValueError("ac"))),
    ],
)
def test_an_option_lets_its_difference_pass(options, got, want):
    with pytest.raises(AssertionError):
        assert_same(got, want)
    assert_same(got, want, **options)


def test_signs_of_zeros():
    for got, want in (torch.tensor([0.0, torch.nan]), torch.tensor([-0.0, torch.nan])), (0.0, -0.0):
        assert_same(got, want)
        with pytest.raises(AssertionError, match="sign"):
            assert_same(got, want, zero_signs=True)


def test_namesakes():
    classes = []
    for n in (1, 1, 2):
        space = {"__name__": "elsewhere"}
        exec(f"class A:\n    '''{n}'''\n    def f(self): return {n}", space)
        classes.append(space["A"])
    a, b, c = classes
    with pytest.raises(AssertionError, match="type A"):
        assert_same(a(), b())
    assert_same([a(), a, a.f], [b(), b, b.f], namesakes=True)
    with pytest.raises(AssertionError):
        assert_same(a, c, namesakes=True)


@pytest.mark.parametrize(
    "wrong, text",
    [
        (lambda x, l: x + 1, "call 0: values differ|result"),
        (lambda x, l: x if len(l) < 2 else x * 1, "aliasing"),
        (lambda x, l: (l.append(1), x)[1], "arguments"),
        (lambda x, l: (x.add_(1), x)[1], "call 0"),
        (lambda x, l: (print("a"), x)[1], "call 0: printed"),
        (lambda x, l: 1 / 0, r"call 0 raises ZeroDivisionError\('division by zero'\), eager returns"),
        (lambda x, l: (torch.rand(1), x)[1] if torch.rand(1) < 0 else None, "call 0"),
    ],
)
def test_a_call_that_does_something_else_is_seen(wrong, text):
    with pytest.raises(AssertionError, match=text):
        assert_calls_same(wrong, lambda x, l: x, [(torch.ones(2), [1]), lambda: (torch.rand(2), [1, 2])])


def test_calls_get_equal_arguments():
    seen = []

    def f(x):
        seen.append(x.tolist())
        return x.add_(1)

    assert_calls_same(f, f, [lambda: (torch.rand(2),), (torch.ones(2),)], times=2)
    assert seen[0] == seen[1] and seen[2] == seen[3] != seen[0] and seen[4:] == [[1, 1]] * 4


def test_counts():
    def f(x):
        y = x.sin()
        magneto.graph_break()
        return y + len(x.shape)

    backend = CountingBackend()
    c = magneto.compile(f, backend=backend)
    c(torch.ones(2))
    first = counts()
    assert backend.graphs == first.graphs == len(backend.inputs) == 2
    assert first.breaks == sum(first.reasons.values()) == 1
    c(torch.ones(2, 2))
    assert_counts(since=first, breaks=1, recompiles=counts().recompiles)
    with pytest.raises(AssertionError, match="breaks: 1, expected 0.*counted: .*break: "):
        assert_counts(since=first, breaks=0)
    magneto.reset()
    assert_counts(graphs=0, breaks=0, recompiles=0)
    assert str(counts()) == "nothing"
