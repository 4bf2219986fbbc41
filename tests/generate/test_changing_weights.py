"""Weights that change between calls, by whatever means: the next call has them."""

import pytest
import torch
from torch.nn.utils import parametrizations, parametrize, prune

import magneto
from tests.support.counts import assert_counts, counts


def _net():
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4)).eval()


def _follows(model, fast, x):
    """The compiled module gives what the module gives, twice in a row."""
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(fast(x), model(x))


def _scaled(model, factor):
    return {k: v.clone() * factor for k, v in model.state_dict().items()}


def test_assigned_state_dicts_cost_at_most_one_graph():
    model, x = _net(), torch.randn(3, 8)
    fast = magneto.compile(model)
    _follows(model, fast, x)
    for factor in (1.5, 0.5, 3.0, -1.0):
        model.load_state_dict(_scaled(model, factor), assign=True)
        _follows(model, fast, x)
    assert counts().graphs <= 2
    assert_counts(breaks=0)


def test_copied_state_dicts_cost_nothing():
    model, x = _net(), torch.randn(3, 8)
    fast = magneto.compile(model)
    for factor in (1.0, 1.5, 0.5):
        model.load_state_dict(_scaled(model, factor))
        _follows(model, fast, x)
    assert_counts(graphs=1, breaks=0)


def test_data_that_is_replaced_is_read():
    model, x = _net(), torch.randn(3, 8)
    fast = magneto.compile(model)
    for _ in range(4):
        _follows(model, fast, x)
        model[0].weight.data = torch.randn(16, 8)
    assert_counts(graphs=1, breaks=0)


def test_functional_calls_share_a_graph():
    model, x = _net(), torch.randn(3, 8)
    fast = magneto.compile(lambda weights, x: torch.func.functional_call(model, weights, (x,)))
    with torch.no_grad():
        for factor in (1.0, 1.5, 0.5):
            weights = _scaled(model, factor)
            expected = torch.func.functional_call(model, weights, (x,))
            torch.testing.assert_close(fast(weights, x), expected)
    assert_counts(graphs=1, breaks=0)


class Doubled(torch.nn.Module):
    def forward(self, w):
        return w * 2


@pytest.mark.parametrize(
    "change, undo",
    [
        (
            lambda m: parametrize.register_parametrization(m, "weight", Doubled()),
            lambda m: parametrize.remove_parametrizations(m, "weight"),
        ),
        (parametrizations.weight_norm, lambda m: parametrize.remove_parametrizations(m, "weight")),
        (
            lambda m: prune.l1_unstructured(m, "weight", amount=0.4),
            lambda m: prune.remove(m, "weight"),
        ),
    ],
    ids=["parametrization", "weight_norm", "pruning"],
)
def test_reparametrized_weights_follow(change, undo):
    model, x = _net(), torch.randn(3, 8)
    fast = magneto.compile(model)
    _follows(model, fast, x)
    change(model[0])
    _follows(model, fast, x)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.25)
    before = counts()
    _follows(model, fast, x)
    assert_counts(before, graphs=0)
    undo(model[0])
    _follows(model, fast, x)
    assert counts().graphs <= 3


def test_offloaded_weights_follow():
    accelerate = pytest.importorskip("accelerate")
    model, x = _net(), torch.randn(3, 8)
    expected = _net()
    expected.load_state_dict(model.state_dict())
    accelerate.cpu_offload(model, execution_device="cpu")
    fast = magneto.compile(model)
    with torch.no_grad():
        for _ in range(6):
            torch.testing.assert_close(fast(x), expected(x))
    assert_counts()
