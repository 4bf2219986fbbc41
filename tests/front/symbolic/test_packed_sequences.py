"""Packed sequences: one graph where no gradients are recorded, whatever the lengths are; else as eager."""

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pack_sequence, pad_packed_sequence

import magneto
from support import assert_counts, assert_same


@pytest.fixture(autouse=True)
def fresh():
    magneto.reset()
    torch.manual_seed(0)


class Tagger(nn.Module):
    def __init__(self, layer, batch_first=True, enforce_sorted=False, total=None):
        super().__init__()
        self.rnn, self.first, self.ordered, self.total = layer, batch_first, enforce_sorted, total
        features = (getattr(layer, "proj_size", 0) or layer.hidden_size) * (2 if layer.bidirectional else 1)
        self.out = nn.Linear(features, 3)

    def forward(self, x, lengths):
        packed = pack_padded_sequence(x * 2, lengths, batch_first=self.first, enforce_sorted=self.ordered)
        y, state = self.rnn(packed)
        y, n = pad_packed_sequence(y, self.first, padding_value=0.5, total_length=self.total)
        return self.out(y.relu()) + 1, state, n


TAGGERS = {
    "lstm": lambda: Tagger(nn.LSTM(6, 8, batch_first=True)),
    "lstm of two layers, both ways": lambda: Tagger(nn.LSTM(6, 8, 2, batch_first=True, bidirectional=True)),
    "lstm with projections": lambda: Tagger(nn.LSTM(6, 8, batch_first=True, proj_size=4)),
    "gru, steps first": lambda: Tagger(nn.GRU(6, 8), batch_first=False),
    "rnn, sorted": lambda: Tagger(nn.RNN(6, 8, nonlinearity="relu", batch_first=True), enforce_sorted=True),
}


def batch(model, *lengths):
    n = max(7, *lengths)
    x = torch.randn(len(lengths), n, 6)
    return (x if model.first else x.transpose(0, 1)), torch.tensor(lengths)


@pytest.mark.parametrize("name", TAGGERS)
def test_one_graph_whatever_the_lengths_are(name):
    model = TAGGERS[name]().eval()
    compiled = magneto.compile(model)
    with torch.no_grad():
        for lengths in ((7, 5, 3, 2), (6, 6, 2, 1), (5, 4, 4, 4)):
            x = batch(model, *lengths)
            assert_same(compiled(*x), model(*x))
    assert_counts(graphs=1, recompiles=0, breaks=0)


@pytest.mark.parametrize("name", ["lstm", "gru, steps first"])
def test_batches_and_steps_are_symbols_where_they_change(name):
    model = TAGGERS[name]().eval()
    compiled = magneto.compile(model, dynamic=True)
    with torch.no_grad():
        for lengths in ((7, 5, 3, 2), (9, 6, 2), (8, 8, 4, 3, 3)):
            x = batch(model, *lengths)
            assert_same(compiled(*x), model(*x))
    assert_counts(graphs=1, recompiles=0, breaks=0)


@pytest.mark.parametrize("lengths", [(1, 1, 1, 1), (1,), (7,), (4, 1)])
def test_sizes_of_one_are_eagers(lengths):
    model = TAGGERS["lstm"]().eval()
    compiled = magneto.compile(model)
    with torch.no_grad():
        for _ in range(2):
            x = batch(model, *lengths)
            assert_same(compiled(*x), model(*x))


def test_lengths_as_a_list_and_a_state_that_is_given():
    class Decoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = nn.GRU(6, 8, batch_first=True)

        def forward(self, x, state):
            y, state = self.rnn(pack_padded_sequence(x, [4, 2], batch_first=True), state)
            return y.data.sin(), state

    model = Decoder().eval()
    compiled = magneto.compile(model)
    with torch.no_grad():
        for _ in range(2):
            x = torch.randn(2, 5, 6), torch.randn(1, 2, 8)
            assert_same(compiled(*x), model(*x))


def test_a_total_length_is_compared_with_the_longest():
    model = Tagger(nn.GRU(6, 8, batch_first=True), total=7).eval()
    compiled = magneto.compile(model)
    with torch.no_grad():
        for lengths in ((7, 5, 3, 2), (6, 6, 2, 1), (5, 4, 4, 4)):
            x = batch(model, *lengths)
            assert_same(compiled(*x), model(*x))
        with pytest.raises(ValueError, match="total_length"):
            compiled(*batch(model, 8, 1))


def test_a_length_of_zero_raises_as_eager_does():
    model = TAGGERS["lstm"]().eval()
    compiled = magneto.compile(model)
    with torch.no_grad():
        compiled(*batch(model, 7, 5, 3, 2))
        with pytest.raises(RuntimeError, match="greater than 0"):
            compiled(*batch(model, 7, 0, 3, 2))


def test_packed_sequences_as_results():
    def f(a, b):
        return pack_sequence([a * 2, b + 1], enforce_sorted=False)

    with torch.no_grad():
        for n in (2, 3):
            x = torch.randn(n, 3), torch.randn(4, 3)
            assert_same(tuple(magneto.compile(f)(*x)), tuple(f(*x)))


@pytest.mark.parametrize("name", TAGGERS)
def test_training_is_eagers(name):
    model = TAGGERS[name]()
    compiled = magneto.compile(model)
    for lengths in ((7, 5, 3, 2), (6, 6, 2, 1)):
        x = batch(model, *lengths)
        steps = []
        for m in (compiled, model):
            model.zero_grad()
            m(*x)[0].square().mean().backward()
            steps.append([p.grad for p in model.parameters()])
        assert_same(*steps)
