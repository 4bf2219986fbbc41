"""Strings that are others in each call: at the recompile limit, what looks at one breaks the graph instead of ending it."""

import warnings

import pytest
import torch

import magneto
from support import assert_same, counts


def asks_truth(x, name):
    return x + 1 if name else x


def makes_a_key(x, name):
    return {name: x * 2}


def formats(x, name):
    return x * 2, f"{name}: {x.shape[0]}"


def calls_a_method(x, name):
    if name.startswith("layer"):
        return x * 2
    return x * 3


def calls_methods_behind_an_op(x, name):
    y = x.sin() * 2
    return y, name.upper(), len(name), name.split("_")[1]


def joins(x, name):
    return x * 2, "/".join(["a", name])


def searches(x, name):
    return x * 2 if name in ("layer_3", "layer_30") else x * 3


def compares(x, name):
    y = x.cos()
    return y + 1 if name == "layer_31" else y - 1


def calls_c_code(x, name):
    return x * ord(name[-1]), hash(name) == hash(name + "")


def inner(x, name):
    return x * 2 if name.endswith("1") else x.exp()


def hands_on(x, name):
    return inner(x + 1, name) + inner(x, name)


def passes_a_keyword(x, name):
    return inner(name=name, x=x.sin())


def catches(x, name):
    try:
        return x * int(name)
    except ValueError:
        return x + len(name)


PROGRAMS = [
    asks_truth,
    makes_a_key,
    formats,
    calls_a_method,
    calls_methods_behind_an_op,
    joins,
    searches,
    compares,
    calls_c_code,
    hands_on,
    passes_a_keyword,
    catches,
]


@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda f: f.__name__)
def test_results_are_eagers_and_compiling_ends(fn):
    magneto.reset()
    fast = magneto.compile(fn)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the recompile limit would warn
        for i in range(40):
            if i == 32:
                after = counts()
            assert_same(fast(torch.ones(3), f"layer_{i}"), fn(torch.ones(3), f"layer_{i}"))
    assert counts().fallbacks == 0 and counts(after).attempts == 0


class Named(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.name = ""

    def forward(self, x):
        y = x.sin() * 2
        return y + 1 if self.name.endswith("3") else y


def test_an_attribute_that_is_another_string_in_each_call():
    magneto.reset()
    model = Named()
    fast = magneto.compile(model)
    for i in range(40):
        model.name = f"step_{i}"
        assert_same(fast(torch.ones(3)), model(torch.ones(3)))
    assert counts().fallbacks == 0


def test_gradients_go_through_the_break():
    def fn(x, name):
        return (x.sin() * 2 if name.startswith("a") else x.cos()).sum()

    magneto.reset()
    fast = magneto.compile(fn)
    for i in range(24):
        x, y = (torch.linspace(-1, 1, 5, requires_grad=True) for _ in range(2))
        fast(x, "ab"[i % 2] + str(i)).backward()
        fn(y, "ab"[i % 2] + str(i)).backward()
        assert_same(x.grad, y.grad)
    assert counts().fallbacks == 0


def test_few_strings_are_graphs_of_their_own():
    magneto.reset()
    fast = magneto.compile(compares)
    for i in [*range(7)] * 2:
        assert_same(fast(torch.ones(3), str(i)), compares(torch.ones(3), str(i)))
    assert counts().graphs == 7 and counts().breaks == 0


def test_fullgraph_reaches_the_limit():
    magneto.reset()
    fast = magneto.compile(compares, fullgraph=True)
    with pytest.raises(Exception, match="compiled 8 times"):
        for i in range(9):
            fast(torch.ones(3), str(i))


def test_a_limit_that_the_program_sets_holds():
    magneto.reset()
    fast = magneto.compile(compares, recompile_limit=3)
    with pytest.warns(RuntimeWarning, match="compiled 3 times"):
        for i in range(6):
            assert_same(fast(torch.ones(3), str(i)), compares(torch.ones(3), str(i)))
    assert counts().graphs == 3 and counts().breaks == 0
