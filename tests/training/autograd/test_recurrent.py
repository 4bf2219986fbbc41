"""Recurrent modules while autograd records: one graph with its backward, results and gradients as eager's, states kept over calls."""

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import magneto
from support import counts
from training import check_module, clone, same

KINDS = [nn.LSTM, nn.GRU, nn.RNN]
OPTIONS = [
    {},
    {"num_layers": 2, "batch_first": True},
    {"bidirectional": True},
    {"num_layers": 2, "bidirectional": True, "dropout": 0.5},
    {"bias": False},
    {"num_layers": 2, "proj_size": 3},
]


def name(v):
    return v.__name__ if isinstance(v, type) else "-".join(v) or "plain"


def flat(r):
    return r[0], *(r[1] if isinstance(r[1], tuple) else (r[1],))


class Net(nn.Module):
    """Between other layers, as in programs."""

    def __init__(self, kind, options):
        super().__init__()
        self.first, self.rnn = nn.Linear(6, 8), kind(8, 16, **options)

    def forward(self, x):
        out, *states = flat(self.rnn(self.first(x).tanh()))
        return [out.relu(), *states]


@pytest.mark.parametrize("kind", KINDS, ids=name)
@pytest.mark.parametrize("options", OPTIONS, ids=name)
def test_one_graph(kind, options):
    if "proj_size" in options and kind is not nn.LSTM:
        pytest.skip("projections are LSTM's")
    torch.manual_seed(3)
    check_module(lambda: Net(kind, options), [torch.randn(5, 4, 6)], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("kind", KINDS, ids=name)
def test_states_go_in_and_gradients_come_out(kind):
    torch.manual_seed(4)
    m = kind(3, 5, 2)
    c = magneto.compile(lambda x, *h: flat(m(x, h if kind is nn.LSTM else h[0])))
    for _ in range(3):
        a = [
            torch.randn(4, 2, 3, requires_grad=True),
            torch.randn(2, 2, 5, requires_grad=True),
            torch.randn(2, 2, 5, requires_grad=True),
        ]
        b = [clone(t) for t in a]
        for leaves, f in ((a, lambda x, *h: flat(m(x, h if kind is nn.LSTM else h[0]))), (b, c)):
            m.zero_grad()
            x, *h = leaves
            first = f(x, *h)  # truncated backpropagation: the second call starts from detached states
            second = f(x, *(t.detach() for t in (first[1:] * 2)[:2]))
            (first[0].square().sum() + second[0].sum() + second[1].square().sum()).backward()
            leaves += [p.grad.clone() for p in m.parameters()]
        for i, (p, q) in enumerate(zip(a, b)):
            if i < 3:
                same(q.grad, p.grad, f"gradient of argument {i}")
            else:
                same(q, p, f"gradient of parameter {i - 3}")
    s = counts()
    assert s.joint_graphs == s.graphs and not s.reasons and not s.fallbacks, s


def test_evaluation_after_training_and_frozen_weights():
    torch.manual_seed(5)
    m = nn.LSTM(3, 5)
    c = magneto.compile(m)
    x = torch.randn(4, 2, 3)
    c(x)[0].sum().backward()
    with torch.no_grad():
        same(c(x)[0], m(x)[0])
    m.requires_grad_(False)
    same(c(x)[0], m(x)[0])
    y = x.clone().requires_grad_()
    z = x.clone().requires_grad_()
    c(y)[0].square().sum().backward()
    m(z)[0].square().sum().backward()
    same(y.grad, z.grad)
    assert not counts().reasons


def test_a_kept_graph_runs_again():
    torch.manual_seed(6)
    m = nn.LSTM(3, 5)
    x = torch.randn(4, 2, 3)
    want = torch.autograd.grad(m(x)[0].square().sum(), list(m.parameters()))
    loss = magneto.compile(m)(x)[0].square().sum()
    for keep in (True, False):
        torch.testing.assert_close(torch.autograd.grad(loss, list(m.parameters()), retain_graph=keep), want)
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()


@pytest.mark.parametrize("kind", KINDS, ids=name)
def test_packed_sequences(kind):
    """Lengths are values of a tensor: the module runs as it is, one graph before and one behind, whatever the lengths."""
    torch.manual_seed(7)
    m = kind(3, 5, bidirectional=True)

    def f(x, lengths):
        out, state = m(pack_padded_sequence(x.sin(), lengths, enforce_sorted=False))
        return pad_packed_sequence(out)[0].cos()

    c = magneto.compile(f, dynamic=True)
    for lengths in ([4, 1, 3], [2, 4, 4], [4, 4, 4], [1, 4, 2], [3, 4, 1]):
        grads = []
        x = torch.randn(4, 3, 3)
        for g in (f, c):
            y = x.clone().requires_grad_()
            m.zero_grad()
            g(y, torch.tensor(lengths)).square().sum().backward()
            grads.append([y.grad, *(p.grad.clone() for p in m.parameters())])
        torch.testing.assert_close(grads[1], grads[0])
    s = counts()
    assert s.graphs == 2 and s.reasons == {"data_dependent": 1} and not s.fallbacks, s


@pytest.mark.parametrize("dynamic", [None, True])
def test_backends_that_trace(dynamic):
    """AOTAutograd cuts the backward of oneDNN's LSTM out of a forward that kept nothing for it: a graph before and one behind."""
    torch.manual_seed(8)
    m, other = nn.LSTM(3, 5), nn.LSTM(3, 5)
    other.load_state_dict(m.state_dict())
    c = magneto.compile(lambda x: m(x.sin())[0].cos(), backend="aot_eager", dynamic=dynamic)
    for n in (2, 3):
        x = torch.randn(n, 2, 3)
        y, want = c(x), other(x.sin())[0].cos()
        y.square().sum().backward()
        want.square().sum().backward()
        same(want, y)
        for p, q in zip(m.parameters(), other.parameters()):
            same(q.grad, p.grad)
    with torch.no_grad():
        same(other(x.sin())[0].cos(), c(x))
