"""Recurrent networks at lengths that differ from call to call: one operator, not a loop over the steps."""

import copy
import time

import pytest
import torch
from torch._dynamo.testing import CompileCounter

import magneto
from support import assert_same, counts

LENGTHS = (5, 9, 14, 3, 40)
NETS = {
    "gru": lambda: torch.nn.GRU(4, 6),
    "gru_2_both": lambda: torch.nn.GRU(4, 6, num_layers=2, bidirectional=True),
    "gru_batch_first": lambda: torch.nn.GRU(4, 6, batch_first=True),
    "gru_both_batch_first": lambda: torch.nn.GRU(4, 6, batch_first=True, bidirectional=True),
    "gru_no_bias": lambda: torch.nn.GRU(4, 6, bias=False),
    "rnn": lambda: torch.nn.RNN(4, 6, num_layers=2),
    "rnn_relu": lambda: torch.nn.RNN(4, 6, nonlinearity="relu", bidirectional=True),
    "lstm_f64": lambda: torch.nn.LSTM(4, 6, num_layers=2).double(),
    "lstm_f64_projected": lambda: torch.nn.LSTM(
        4, 6, proj_size=3, bidirectional=True, batch_first=True
    ).double(),
    "lstm": lambda: torch.nn.LSTM(4, 6, bidirectional=True),
}


@pytest.fixture(autouse=True)
def fresh():
    magneto.reset()
    torch.manual_seed(0)


def input_of(net, steps, batch=3):
    dtype = next(net.parameters()).dtype
    return torch.randn(*((batch, steps) if net.batch_first else (steps, batch)), 4, dtype=dtype)


def compare(want, got):
    assert_same(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("grad", [False, True])
def test_lengths(name, grad):
    net = NETS[name]()
    for backend, recordings in ((None, 2), (CompileCounter(), 2)):
        if name == "lstm" and grad and backend:
            continue  # ATen's operator for it leaves no backward to back ends that trace
        magneto.reset()
        g = magneto.compile(net, fullgraph=True, **({"backend": backend} if backend else {}))
        with torch.set_grad_enabled(grad):
            for steps in LENGTHS:
                x = input_of(net, steps)
                compare(net(x), g(x))
        assert counts().entries == recordings
        assert not backend or backend.frame_count == recordings


@pytest.mark.parametrize(
    "name,backend",
    [
        *(
            (name, backend)
            for name in NETS
            for backend in (None, "eager")
            if (name, backend) != ("lstm", "eager")
        ),
        ("gru", "aot_eager"),
    ],
)
def test_training(name, backend):
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = NETS[name]()
            out = self.net.proj_size or 6
            self.head = torch.nn.Linear(
                out * (2 if self.net.bidirectional else 1), 2, dtype=next(self.net.parameters()).dtype
            )

        def forward(self, x):
            y, _ = self.net(x * 2)
            return self.head(y).pow(2).mean()

    model = Model()
    other = copy.deepcopy(model)
    step = magneto.compile(other, fullgraph=True, **({"backend": backend} if backend else {}))
    opts = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (model, other)]
    for steps in LENGTHS[:4]:
        x = [input_of(model.net, steps).requires_grad_()]
        x.append(x[0].detach().clone().requires_grad_())
        for f, opt, own in zip((model, step), opts, x):
            opt.zero_grad()
            f(own).backward()
            opt.step()
        torch.testing.assert_close(x[1].grad, x[0].grad, rtol=1e-3, atol=1e-5)
        for p, q in zip(model.parameters(), other.parameters()):
            torch.testing.assert_close(q, p, rtol=1e-3, atol=1e-5)
    assert counts().entries == 2


def test_states_and_both_sizes():
    """The number of sequences changes as well, and states are given."""
    net = NETS["gru_2_both"]()

    def f(x, h):
        y, last = net(x, h)
        return y.sum(0), last[-1] + 1

    g = magneto.compile(f, fullgraph=True)
    for steps, batch in zip(LENGTHS, (2, 4, 3, 7, 6)):
        x, h = input_of(net, steps, batch), torch.randn(4, batch, 6)
        compare(f(x, h), g(x, h))
    assert counts().entries == 2


def test_step_that_calls_backward():
    net, other = NETS["gru"](), NETS["gru"]()
    other.load_state_dict(net.state_dict())

    def step(net, x):
        net.zero_grad()
        net(x)[0].pow(2).sum().backward()

    g = magneto.compile(step)
    for steps in LENGTHS:
        x = input_of(net, steps)
        step(net, x)
        g(other, x)
        for p, q in zip(net.parameters(), other.parameters()):
            torch.testing.assert_close(q.grad, p.grad, rtol=1e-3, atol=1e-4)


def test_long_sequence_is_one_operator():
    """A loop of so many steps would take long to compile, also where the length never changes."""
    net = NETS["gru"]()
    seen = []

    def backend(gm, examples):
        seen.append(gm)
        return gm.forward

    x = input_of(net, 700)
    with torch.no_grad():
        compare(net(x), magneto.compile(net, fullgraph=True)(x))
        start = time.perf_counter()
        magneto.reset()
        compare(net(x), magneto.compile(net, fullgraph=True)(x))
        assert time.perf_counter() - start < 2
        compare(net(x), magneto.compile(net, fullgraph=True, backend=backend)(x))
    assert len(seen) == 1


def test_dropout_keeps_its_random_numbers():
    net = torch.nn.GRU(4, 6, num_layers=2, dropout=0.5)
    g = magneto.compile(net)
    for steps in LENGTHS[:3]:
        x = input_of(net, steps)
        torch.manual_seed(1)
        want = net(x)
        torch.manual_seed(1)
        compare(want, g(x))


@pytest.mark.parametrize("whole", [False, True])
def test_gradients_of_gradients(whole):
    """As for a penalty on gradients: those of one operator are differentiated as torch's own loop is."""

    def run(wrap):
        torch.manual_seed(0)
        m = torch.nn.GRU(3, 4).double()
        x = torch.randn(300, 2, 3, dtype=torch.double, requires_grad=True)

        def loss(x):
            return m(x)[0].square().mean()

        def step(x):
            (g,) = torch.autograd.grad(loss(x), x, create_graph=True)
            g.square().sum().backward()

        if not whole:
            loss = wrap(loss)
        (wrap(step) if whole else step)(x)
        return [x.grad, *[p.grad for p in m.parameters() if p.grad is not None]]

    torch.testing.assert_close(run(magneto.compile), run(lambda f: f))
