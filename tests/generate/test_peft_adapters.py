"""Adapters of peft: added, scaled, switched, merged and deleted.  The next call has what changed."""

import pytest
import torch

import magneto
from tests.support.counts import assert_counts, counts

peft = pytest.importorskip("peft")


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(8, 16), torch.nn.Linear(16, 8)

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))


def _config(kind, rank=4):
    if kind == "ia3":
        return peft.IA3Config(
            target_modules=["first", "second"], feedforward_modules=["second"], init_ia3_weights=False
        )
    return peft.LoraConfig(
        r=rank, target_modules=["first", "second"], use_dora=kind == "dora", init_lora_weights=False
    )


def _adapted(kind):
    model = peft.get_peft_model(Net(), _config(kind)).eval()
    return model, magneto.compile(model), torch.randn(3, 8)


def _follows(model, fast, x):
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(fast(x), model(x))


def _layers(model):
    return [m for m in model.modules() if hasattr(m, "set_scale")]


@pytest.mark.parametrize("kind", ["lora", "dora", "ia3"])
def test_adapters_in_any_order(kind):
    model, fast, x = _adapted(kind)
    _follows(model, fast, x)
    model.add_adapter("two", _config(kind, 6))
    _follows(model, fast, x)
    for name in ("two", "default", "two"):
        model.set_adapter(name)
        _follows(model, fast, x)
    with model.disable_adapter():
        _follows(model, fast, x)
    model.merge_adapter()
    _follows(model, fast, x)
    model.unmerge_adapter()
    _follows(model, fast, x)
    model.delete_adapter("default")
    _follows(model, fast, x)
    assert_counts(breaks=0, fallbacks=None)


def test_scales_share_two_graphs():
    model, fast, x = _adapted("lora")
    for scale in (1.0, 0.5, 3.0, 0.25, 7.0):
        for layer in _layers(model):
            layer.set_scale("default", scale)
        _follows(model, fast, x)
    assert counts().graphs <= 2
    assert_counts(breaks=0)


@pytest.mark.parametrize("kind", ["lora", "dora", "ia3"])
def test_an_adapter_that_is_not_active_costs_nothing(kind):
    model, fast, x = _adapted(kind)
    _follows(model, fast, x)
    model.add_adapter("two", _config(kind, 6))
    _follows(model, fast, x)
    model.delete_adapter("two")
    _follows(model, fast, x)
    assert_counts(graphs=1, misses=1)


@pytest.mark.parametrize("kind", ["lora", "dora", "ia3"])
def test_names_ranks_and_scales_share_three_graphs(kind):
    model, fast, x = _adapted(kind)
    for rank in (4, 6, 3, 8, 16):
        name = f"rank{rank}"
        model.add_adapter(name, _config(kind, rank))
        model.set_adapter(name)
        _follows(model, fast, x)
    for layer in _layers(model) if kind != "ia3" else ():
        layer.set_scale("rank8", 0.25)
    for name in ("rank8", "rank3", "default"):
        model.set_adapter(name)
        _follows(model, fast, x)
    assert counts().graphs <= (2 if kind == "ia3" else 3)
    assert_counts(breaks=0)


def test_each_structure_is_one_graph():
    model, fast, x = _adapted("lora")
    model.add_adapter("two", _config("lora", 6))
    for name in ("two", "default"):
        model.set_adapter(name)
        _follows(model, fast, x)
    before = counts()
    for _ in range(2):
        with model.disable_adapter():
            _follows(model, fast, x)
        model.merge_adapter()
        _follows(model, fast, x)
        model.unmerge_adapter()
        _follows(model, fast, x)
    assert counts(before).graphs == 2
    assert_counts(breaks=0)


@pytest.mark.parametrize("kind", ["lora", "dora", "ia3"])
def test_switching_back_costs_nothing(kind):
    model, fast, x = _adapted(kind)
    model.add_adapter("two", _config(kind, 6))
    for name in ("two", "default", "two"):
        model.set_adapter(name)
        _follows(model, fast, x)
    before = counts()
    for name in ("two", "default", "two"):
        model.set_adapter(name)
        _follows(model, fast, x)
    assert_counts(before, graphs=0, misses=0)


def test_trained_adapters_are_in_the_next_call():
    model, fast, x = _adapted("lora")
    _follows(model, fast, x)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "lora" in name:
                p.add_(0.5)
    _follows(model, fast, x)
    assert_counts(graphs=1, breaks=0)
