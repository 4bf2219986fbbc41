"""Retries of a recording (record/core/retries.def): each row fires for its program, in the order of the table."""

import random

import pytest
import torch
from torch._higher_order_ops.scan import scan

import magneto
from magneto import _magneto


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * 2


class Asks(torch.autograd.Function):
    """Its backward asks for a value, which no graph has."""

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * 2 if g.sum().item() > 0 else g


def reads_text(x):
    return x + len(f"{x.sum()}")


def switches_leaf(w, x):
    w.requires_grad_(True)
    return w * x


def selects_with_grad(x):
    return (x[x > 0] * 2).sum()


def returns_a_picked_row(x, i):
    return (x * 2)[i]


def selects_beside_function(x, y):
    return Twice.apply(y).detach() + (x[x > 0] * 2).sum()


def breaks_in_loop(x):
    for _ in range(6):
        x = x + 1
        print(end="")
    return x


def raises_after_sizes(x):
    if x.shape[0] > 3:
        raise ValueError("too long")
    return x + 1


def breaks_in_scan(x):
    def body(c, a):
        print(end="")
        return c + a, c * a

    return scan(body, torch.zeros(2), x)[1]


def raises_while_compiling(x):
    if torch.compiler.is_compiling():
        raise ValueError("a compiler")
    return x + 1


def asks_in_backward(x):
    return Asks.apply(x) + 1


def returns_id_and_object(x):
    o = [x]
    assert id(o)
    return x + 1, o, id(o)


class Counter:
    calls = 0


def counts_calls(x):
    Counter.calls += 1
    return x * Counter.calls


def hooks_result(x):
    y = x * 2
    y.register_hook(lambda g: g + 1)
    return y + 1


def counts_to_each(x, n):
    for e in n:
        print(end="")
        for _ in range(e):
            x = x + 1
    return x


def draws_under_condition(x):
    if x.sum() < 0:
        raise ValueError("negative")
    return x * random.random()


def catches_index_error(x, i):
    try:
        return x[i]
    except IndexError:
        return x


def leaf(*size):
    return torch.ones(*size, requires_grad=True)


# Row of retries.def: program, its arguments, options of compile, rows that fire.
PROGRAMS = {
    "texts": (reads_text, lambda: [torch.ones(4)], {}, {"texts": 1}),
    "switch": (switches_leaf, lambda: [torch.ones(3), torch.ones(3)], {}, {"switch": 1}),
    "grad": (selects_with_grad, lambda: [leaf(3)], {}, {"grad": 1}),
    "data": (selects_beside_function, lambda: [torch.ones(3), leaf(3)], {}, {"data": 1}),
    "picked": (
        returns_a_picked_row,
        lambda: [leaf(3, 2), torch.tensor(1)],
        {},
        {"grad": 1, "picked": 1},
    ),
    "unroll": (breaks_in_loop, lambda: [torch.ones(3)], {}, {"unroll": 1}),
    "sizes": (raises_after_sizes, lambda: [torch.ones(5)], {"dynamic": True}, {"sizes": 1}),
    "loops": (breaks_in_scan, lambda: [torch.ones(40, 2)], {}, {"loops": 1}),
    "compiling": (raises_while_compiling, lambda: [torch.ones(3)], {}, {"compiling": 1}),
    "function": (asks_in_backward, lambda: [leaf(3)], {}, {"function": 1}),
    "ids": (returns_id_and_object, lambda: [torch.ones(3)], {}, {"ids": 1}),
    "numbers": (counts_calls, lambda: [torch.ones(3)], {}, {"numbers": 1}),
    "hook": (hooks_result, lambda: [leaf(3)], {"backend": "aot_eager"}, {"hook": 1, "links": 1}),
    "claims": (draws_under_condition, lambda: [torch.ones(3)], {}, {"claims": 1}),
    "raises": (
        catches_index_error,
        lambda: [leaf(3), torch.tensor([1])],
        {"backend": "eager"},
        {"raises": 1},
    ),
    "links": (hooks_result, lambda: [leaf(3)], {}, {"hooked": 1, "links": 1}),
    "hooked": (hooks_result, lambda: [leaf(3)], {}, {"hooked": 1, "links": 1}),
    "contents": (counts_to_each, lambda: [torch.ones(3), torch.arange(6)], {}, {"unroll": 1, "contents": 1}),
}

# What torch runs eagerly by compiling it, without torch.compile.
EAGER = {breaks_in_scan: lambda x: torch.stack([x[:i].sum(0) * x[i] for i in range(len(x))])}


def tensor_of(f, args):
    """The result, or its first tensor; the name of the exception instead."""
    random.seed(0)
    Counter.calls = 0
    try:
        out = f(*args)
    except ValueError as e:
        return str(e)
    return out[0] if isinstance(out, tuple) else out


def rows_fired(before):
    return {k: n - before[k] for k, n in _magneto.retries().items() if n != before[k]}


def test_each_row_has_a_program():
    assert PROGRAMS.keys() == _magneto.retries().keys()


@pytest.mark.parametrize("row", PROGRAMS)
def test_a_row_fires_once_and_the_result_is_eagers(row):
    f, args, options, fired = PROGRAMS[row]
    magneto.reset()
    before = _magneto.retries()
    got, want = tensor_of(magneto.compile(f, **options), args()), tensor_of(EAGER.get(f, f), args())
    assert rows_fired(before) == fired
    if torch.is_tensor(want):
        torch.testing.assert_close(got, want)
    else:
        assert got == want


def test_grad_that_is_denied_fails_as_data():
    def f(x):
        w = torch.ones(3).requires_grad_()
        return w * x[x > 0].sum()

    magneto.reset()
    before = _magneto.retries()
    torch.testing.assert_close(magneto.compile(f)(torch.ones(3)), f(torch.ones(3)))
    assert rows_fired(before) == {"grad": 1, "data": 1}


def test_grad_does_not_fail_where_a_break_is_an_error():
    magneto.reset()
    before = _magneto.retries()
    got = magneto.compile(selects_with_grad, fullgraph=True)(leaf(3))
    torch.testing.assert_close(got, selects_with_grad(leaf(3)))
    assert rows_fired(before) == {}


def test_a_kept_row_is_denied_from_the_start_when_the_code_is_recorded_again():
    magneto.reset()
    before = _magneto.retries()
    compiled = magneto.compile(raises_after_sizes, dynamic=True)
    assert tensor_of(compiled, [torch.ones(5)]) == "too long"
    assert rows_fired(before) == {"sizes": 1}
    assert tensor_of(compiled, [torch.ones(6)]) == "too long"
    torch.testing.assert_close(compiled(torch.ones(2)), raises_after_sizes(torch.ones(2)))
    assert rows_fired(before) == {"sizes": 1}
