"""Which tensors require grad: guarded where the recording depends on it, and nowhere else."""

import pytest
import torch

import magneto
from tests.support.counts import assert_counts, counts


def _flags(x, flag):
    return x.detach().requires_grad_(flag)


def test_switching_requires_grad_without_gradients_costs_nothing():
    model, x = torch.nn.Linear(4, 4), torch.randn(2, 4)
    fast = magneto.compile(model)
    with torch.no_grad():
        for flag in (True, False, True):
            model.requires_grad_(flag)
            for argument in (x, _flags(x, True), _flags(x, True) * 2):
                torch.testing.assert_close(fast(argument), model(argument))
    assert_counts(graphs=1, misses=1, breaks=0)


def test_a_function_that_turns_gradients_off_itself_does_not_depend_on_them():
    @torch.no_grad()
    def scaled(x):
        return x.view(-1) * 3

    fast, x = magneto.compile(scaled), torch.randn(2, 3)
    for flag in (False, True, False):
        out = fast(_flags(x, flag))
        torch.testing.assert_close(out, x.view(-1) * 3)
        assert not out.requires_grad
    assert_counts(graphs=1, misses=1)


def test_a_graph_with_gradients_depends_on_them():
    def scaled(x):
        with torch.no_grad():
            y = x * 2
        return x * y

    fast, x = magneto.compile(scaled), torch.randn(3)
    assert [fast(_flags(x, flag)).requires_grad for flag in (False, True, False)] == [False, True, False]


def test_gradients_that_the_function_turns_on_depend_on_them():
    def norm(x):
        with torch.enable_grad():
            return x * 2

    fast, x = magneto.compile(norm), torch.randn(3)
    with torch.no_grad():
        assert [fast(_flags(x, flag)).requires_grad for flag in (False, True, False)] == [False, True, False]


def _asks_flag(x):
    return x * (2 if x.requires_grad else 3)


def _asks_leaf(x):
    return x * (2 if x.is_leaf else 3)


def _asks_function(x):
    return x * (2 if x.grad_fn is None else 3)


def _asks_grad(x):
    return x * (2 if x.grad is None else 3)


def _switches(x):
    y = x + 1
    if not x.requires_grad:
        x.requires_grad_()
    return y * 2


@pytest.mark.parametrize("asks", [_asks_flag, _asks_leaf, _asks_grad, _switches])
def test_what_asks_for_it_is_guarded(asks):
    fast, x = magneto.compile(asks), torch.randn(3)
    with torch.no_grad():
        for flag in (False, True, False, True):
            expected, given = _flags(x, flag), _flags(x, flag)
            torch.testing.assert_close(fast(given), asks(expected))
            assert given.requires_grad == expected.requires_grad


def test_a_result_of_another_graph_is_told_from_a_leaf():
    fast, x = magneto.compile(_asks_function), torch.randn(3)
    results = [x, (_flags(x, True) * 1), x, _flags(x, True)]
    with torch.no_grad():
        for given in results:
            torch.testing.assert_close(fast(given), _asks_function(given))


class _Needs(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * (2 if ctx.needs_input_grad[0] else 3)

    @staticmethod
    def backward(ctx, grad):
        return grad


def test_functions_see_whether_their_inputs_need_gradients():
    fast, x = magneto.compile(lambda x: _Needs.apply(x)), torch.randn(3)
    with torch.no_grad():
        for flag in (False, True, False):
            given = _flags(x, flag)
            torch.testing.assert_close(fast(given), _Needs.apply(given))


def test_arrays_of_tensors_that_require_grad_are_refused_with_gradients_only():
    fast, x = magneto.compile(lambda x: torch.from_numpy(x.numpy() * 2)), torch.randn(3)
    with torch.no_grad():
        for flag in (True, False, True):
            torch.testing.assert_close(fast(_flags(x, flag)), x * 2)
        assert_counts(breaks=0)
    with pytest.raises(RuntimeError, match="requires grad"):
        fast(_flags(x, True))


def test_writes_keep_the_flag_of_what_they_write_to():
    def bump(x):
        x.add_(1)
        return x

    fast, x = magneto.compile(bump), torch.randn(3)
    with torch.no_grad():
        for flag in (False, True, False):
            given = _flags(x.clone(), flag)
            out = fast(given)
            assert out is given and out.requires_grad == flag
            torch.testing.assert_close(out.detach(), x + 1)
    assert counts().graphs == 1
