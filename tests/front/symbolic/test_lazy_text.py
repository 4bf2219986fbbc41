"""Text made of tensors and of sizes that change: no graph break as long as nobody reads it; who does gets eager's."""

import logging

import pytest
import torch

import magneto
from support import assert_same, counts

LOG = logging.getLogger(__name__)
LOG.setLevel(logging.WARNING)  # whatever the other tests of the process set


def check(condition, message):
    """As libraries do it: the text is made on every call, and looked at when something is wrong."""
    if not callable(message):

        def text():
            return message

    if isinstance(condition, bool) and isinstance(message, str) and not condition:
        raise ValueError(message)


class Note:
    def __init__(self, text):
        self.text = text


def handed_around(x):
    n = (x > 0).sum()
    check(True, f"{n} of {x.numel()}: {x.mean():.2f}, {x.mean()!r:>40}, {[n]} {type(f'{n}').__name__}")
    note = Note(f"{n}")
    return (
        x * n,
        isinstance(note.text, str),
        isinstance(note.text, (int, list)),
        note.text is None,
        type(note.text) is str,
    )


def logged(x):
    y = x * 2
    LOG.debug(f"y is {y}")
    return y + 1


def number(x):
    n = int(x.sum().item())
    check(True, f"{n:5d}")
    return x * n


def caught(x):
    y = x + 1
    try:
        raise ValueError(f"{x.sum()}")
    except ValueError:
        y = y * 2
    return y


def returned(x):
    return x + 1, f"{x.sum():.3f}|{x.shape}"


def kept(x):
    x.note = f"{x.sum()}"
    return x * 2


def length(x):
    return x * 2, len(f"{x.sum()}")


def key(x):
    return x * 2, {f"{x.sum()}": 1}


def compared(x):
    return x + 1 if f"{x.sum()}".startswith("t") else x


def joined(x):
    try:
        return x * 2, " ".join(["a", f"{x.sum()}"])
    except TypeError:
        return x * 3, ""


def percent(x):
    return (
        x * 2,
        "%s %s" % (f"{x.sum()}", 1),
        "{}".format(f"{x.sum()}"),
        f"{x.sum()}" + "b",
        "b" + f"{x.sum()}",
    )


def of_an_exception(x):
    try:
        raise ValueError(f"{x.sum()}")
    except ValueError as e:
        return x * 2, str(e)


def raised(x):
    y = x * 2
    raise ValueError(f"{y}")


def wrong_specification(x):
    try:
        return x * 2, f"{x:d}"
    except TypeError as e:
        return x * 3, str(e)


def wrong_for_a_float(x):
    try:
        return x * 2, f"{x.sum():d}"
    except ValueError as e:
        return x * 3, str(e)


def truth(x):
    return x + 1 if f"{x.sum()}" else x


def result(f, x):
    try:
        return f(x), getattr(x, "note", None)
    except ValueError as e:
        return str(e)


@pytest.mark.parametrize("f", [handed_around, logged, number, caught])
def test_nobody_reads_it(f):
    magneto.reset()
    LOG.debug(
        "a logger remembers which levels are on, until some level is set: the first question takes a lock, which breaks"
    )
    compiled = magneto.compile(f, fullgraph=True)
    for i in range(3):
        x = torch.tensor([1.0, 2.0, 3.0 + i])
        assert_same(result(compiled, x), result(f, x), rtol=0, atol=0)


@pytest.mark.parametrize(
    "f",
    [
        returned,
        kept,
        length,
        key,
        compared,
        joined,
        percent,
        of_an_exception,
        raised,
        wrong_specification,
        wrong_for_a_float,
        truth,
    ],
)
def test_who_reads_it_gets_the_text(f):
    magneto.reset()
    compiled = magneto.compile(f)
    for i in range(3):
        x, y = torch.tensor([1.0, 2.0, 3.0 + i]), torch.tensor([1.0, 2.0, 3.0 + i])
        assert_same(result(compiled, x), result(f, y), rtol=0, atol=0)


def test_sizes_stay_symbols():
    def f(x):
        check(True, f"{x.shape[0]} rows of {x.shape}, {x.shape[0] * 2:4d}")
        return x * 2

    magneto.reset()
    compiled, before = magneto.compile(f), counts().entries
    for n in range(3, 9):
        assert compiled(torch.ones(n)).shape == (n,)
    assert counts().entries - before == 2


def test_a_size_in_a_name_is_guarded():
    layers = torch.nn.ModuleDict({f"layer{n}": torch.nn.Linear(n, 1) for n in range(2, 7)})

    def f(x):
        return getattr(layers, f"layer{x.shape[1]}")(x), layers[f"layer{x.shape[1]}"](x)

    magneto.reset()
    compiled = magneto.compile(f)
    for n in range(2, 7):
        x = torch.randn(3, n)
        for a, b in zip(compiled(x), f(x)):
            torch.testing.assert_close(a, b)


class Loud(torch.Tensor):
    said = []

    def __format__(self, spec):
        Loud.said.append(spec)
        return "loud"


def test_formatting_of_other_classes_runs():
    def f(x):
        check(True, f"{x:a}")
        return x + 1

    x = torch.ones(2).as_subclass(Loud)
    compiled = magneto.compile(f)
    for _ in range(3):
        compiled(x)
    assert Loud.said == ["a"] * 3
