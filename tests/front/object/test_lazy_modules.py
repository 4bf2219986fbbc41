"""Lazy modules get their parameters in the first call of a compiled function, as in eager, and the call is one graph."""

import pytest
import torch
from torch import nn

import magneto
from support import counts


class Own(nn.modules.lazy.LazyModuleMixin, nn.Module):
    """A lazy module that stays what it is, and takes a keyword."""

    def __init__(self):
        super().__init__()
        self.w = nn.UninitializedParameter()

    def initialize_parameters(self, x, scale):
        if self.has_uninitialized_params():
            with torch.no_grad():
                self.w.materialize(x.shape[-1:])
                self.w.normal_()

    def forward(self, x, scale):
        return x * self.w * scale


class Holder(nn.Module):
    def __init__(self):
        super().__init__()
        self.own = Own()

    def forward(self, x):
        return self.own(x.sin(), scale=3)


class Drops(nn.Module):
    """Random numbers come before the parameters."""

    def __init__(self):
        super().__init__()
        self.fc = nn.LazyLinear(3)

    def forward(self, x):
        return self.fc(nn.functional.dropout(x))


NETS = {
    "one": lambda: nn.LazyLinear(3),
    "many": lambda: nn.Sequential(*[nn.LazyLinear(3) for _ in range(15)]),
    "norm": lambda: nn.Sequential(nn.LazyConv1d(4, 1), nn.LazyBatchNorm1d(), nn.ReLU()),
    "own": Holder,
}


def steps(make, compiled):
    torch.manual_seed(0)
    net = make()
    f = compiled(net)
    out = []
    for i in range(3):
        torch.manual_seed(i)
        y = f(torch.linspace(-1, 1, 24).reshape(2, 3, 4) + i)
        y.sum().backward()
        out.append(y.detach().clone())
    return out + [p.grad for p in net.parameters()], net


@pytest.mark.parametrize("make", NETS.values(), ids=NETS)
@pytest.mark.parametrize("backend", ["magneto", "eager"])
def test_first_call_is_one_graph(make, backend):
    magneto.reset()
    want, eager = steps(make, lambda m: m)
    got, net = steps(make, lambda m: magneto.compile(m, fullgraph=True, backend=backend))
    torch.testing.assert_close(got, want, atol=1e-3, rtol=1e-3)  # sums behind a batch norm cancel
    assert [type(m) for m in net.modules()] == [type(m) for m in eager.modules()]
    assert counts().graphs == 1


def test_random_numbers_come_first():
    magneto.reset()
    want, _ = steps(Drops, lambda m: m)
    torch.testing.assert_close(steps(Drops, magneto.compile)[0], want)


def test_an_error_is_the_programs():
    def call(compiled):
        with pytest.raises(RuntimeError) as e:
            compiled(nn.LazyConv1d(4, 1))(torch.ones(3))
        return str(e.value)

    assert call(magneto.compile) == call(lambda m: m)
