"""Python code around breaks that differs from call to call: where no entry of a place has an op, the limit loses nothing."""

import io
import warnings

import pytest
import torch
from tqdm import tqdm

import magneto
from support import assert_same, counts


def plain_words(x, words):
    print(words, end="", file=io.StringIO())
    return x.sin() * 2


def inner(text):
    return print(text + "!", end="", file=io.StringIO())


def words_in_a_call(x, words):
    inner(words)
    return x.sin() * 2


def a_bar(x, words):
    for i in tqdm(range(6), desc=words, file=io.StringIO()):
        x = torch.sin(x) + i
    return x


def a_bar_with_a_postfix(x, words):
    bar = tqdm(range(6), file=io.StringIO())
    for i in bar:
        x = torch.sin(x) + i
        bar.set_postfix(loss=x.sum().item())
        bar.set_description(f"loss {x.sum().item():.3f}")
    return x


@pytest.mark.parametrize("f", [plain_words, words_in_a_call, a_bar, a_bar_with_a_postfix])
def test_the_limit_is_no_fallback(f):
    magneto.reset()
    c = magneto.compile(f)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        for i in range(24):
            x = torch.full((4,), float(i))
            assert_same(c(x, f"words {i}"), f(x, f"words {i}"))
    assert counts().fallbacks == 0


def test_an_op_that_comes_after_many_plain_calls_is_compiled():
    def f(x, mode):
        if mode != "compute":
            return mode
        return x.sin() + x.cos()

    magneto.reset()
    c = magneto.compile(f)
    for i in range(12):
        assert c(torch.ones(3), f"mode {i}") == f"mode {i}"
    for _ in range(3):
        assert_same(c(torch.ones(3), "compute"), f(torch.ones(3), "compute"))
    assert counts().fallbacks == 0 and counts().graphs == 1


def test_with_an_op_the_limit_is_told():
    def f(x, mode):
        return x.sin() if mode else x

    f.__code__ = f.__code__.replace()
    magneto.reset()
    c = magneto.compile(f)
    with pytest.warns(RuntimeWarning, match="runs eagerly"):
        for i in range(12):
            c(torch.ones(3), (None,) * (i + 1))
    assert counts().fallbacks == 1
