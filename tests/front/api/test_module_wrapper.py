"""Compiled modules are modules: their state, class, copies and pickles are the original's."""

import copy
import inspect
import io
import pickle

import pytest
import torch
from torch import nn

import magneto
from support import counts


class Net(nn.Module):
    """A module with parameters, a buffer, a submodule and state of its own."""

    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 4)
        self.drop = nn.Dropout(0.5)
        self.register_buffer("shift", torch.ones(4))
        self.calls = 0

    def forward(self, x, *, twice=False):
        y = self.drop(self.lin(x)) + self.shift
        return y * 2 if twice else y

    def helper(self):
        return self.calls + 1


@pytest.fixture
def pair():
    torch.manual_seed(0)
    net = Net().eval()
    return net, magneto.compile(net)


X = torch.randn(3, 4)


def check(compiled, net):
    for _ in range(2):
        torch.testing.assert_close(compiled(X), net(X))


def test_is_a_module(pair):
    net, c = pair
    assert isinstance(c, nn.Module) and isinstance(c, Net) and type(c).__name__ == "Net"
    assert repr(c) == repr(net)
    check(c, net)
    torch.testing.assert_close(c(X, twice=True), net(X, twice=True))


def test_state_is_shared(pair):
    net, c = pair
    assert list(c.state_dict()) == list(net.state_dict())
    assert [n for n, _ in c.named_parameters()] == [n for n, _ in net.named_parameters()]
    assert c.lin is net.lin and c.shift is net.shift
    c.calls = 5
    assert net.calls == 5 and net.helper() == 6 and c.helper() == 6
    net.extra = nn.Linear(1, 1)
    assert c.extra is net.extra
    del c.extra
    assert not hasattr(net, "extra")


def test_parameter_changes_are_seen(pair):
    net, c = pair
    check(c, net)
    with torch.no_grad():
        net.lin.weight.mul_(2)
    check(c, net)
    c.lin.weight = nn.Parameter(torch.eye(4))
    check(c, net)
    assert net.lin.weight is c.lin.weight
    c.load_state_dict({k: torch.full_like(v, 0.5) for k, v in net.state_dict().items()})
    check(c, net)
    net.lin = nn.Linear(4, 2).eval()
    net.shift = torch.zeros(2)
    check(c, net)


def test_train_and_eval(pair):
    net, c = pair
    check(c, net)
    c.train()
    assert net.training and net.drop.training
    torch.manual_seed(1)
    got = c(X)
    torch.manual_seed(1)
    torch.testing.assert_close(got, net(X))
    net.eval()
    assert not c.training
    check(c, net)


def test_to_dtype(pair):
    net, c = pair
    check(c, net)
    assert c.to(torch.float64) is c
    x = X.double()
    torch.testing.assert_close(c(x), net(x))
    assert c(x).dtype == torch.float64


def test_hooks(pair):
    net, c = pair
    seen = []
    check(c, net)
    handle = c.register_forward_hook(lambda mod, args, out: seen.append(type(mod).__name__) or out + 1)
    check(c, net)
    assert seen
    handle.remove()
    pre = net.lin.register_forward_pre_hook(lambda mod, args: (args[0] * 3,))
    check(c, net)
    pre.remove()
    check(c, net)


def test_gradients(pair):
    net, c = pair
    c(X).sum().backward()
    got = net.lin.weight.grad.clone()
    c.zero_grad()
    net(X).sum().backward()
    torch.testing.assert_close(got, net.lin.weight.grad)


def test_deepcopy(pair):
    net, c = pair
    d = copy.deepcopy(c)
    assert isinstance(d, Net) and d.lin.weight is not net.lin.weight
    check(d, net)
    with torch.no_grad():
        d.lin.weight.zero_()
    assert not torch.equal(d(X), net(X))
    check(c, net)
    s = copy.copy(c)
    assert s.lin.weight is net.lin.weight
    check(s, net)


def test_pickle_gives_the_original():
    c = magneto.compile(nn.Sequential(nn.Linear(4, 4), nn.ReLU()))
    p = pickle.loads(pickle.dumps(c))
    assert type(p) is nn.Sequential
    torch.testing.assert_close(p(X), c(X))
    buf = io.BytesIO()
    torch.save(c, buf)
    buf.seek(0)
    q = torch.load(buf, weights_only=False)
    assert type(q) is nn.Sequential


def test_inside_of_another_module():
    inner = magneto.compile(nn.Linear(4, 4))
    outer = nn.Sequential(inner, nn.ReLU())
    assert list(outer.state_dict()) == ["0.weight", "0.bias"]
    want = torch.relu(torch.nn.functional.linear(X, inner.weight, inner.bias))
    torch.testing.assert_close(outer(X), want)
    torch.testing.assert_close(magneto.compile(outer)(X), want)


def test_compiled_again(pair):
    net, c = pair
    d = magneto.compile(c, fullgraph=True)
    assert type(d).__mro__[1] is Net
    check(d, net)


def test_original_stays_eager(pair):
    net, c = pair
    check(c, net)
    magneto.reset()
    net(X)
    assert counts().misses == 0


def test_containers():
    c = magneto.compile(nn.Sequential(nn.Linear(4, 4), nn.ReLU()))
    assert len(c) == 2 and isinstance(c[0], nn.Linear) and [type(m) for m in c] == [nn.Linear, nn.ReLU]


class Bare(nn.Module):
    def __init__(self):
        pass

    def forward(self, x):
        return x + 1


def test_a_module_that_was_not_initialised_is_eagers_error():
    for f in (lambda m: m(X), lambda m: [m(X) for _ in range(3)]):
        with pytest.raises(AttributeError, match="_backward_hooks"):
            magneto.compile(f)(Bare())


def test_forward_is_compiled_too(pair):
    net, c = pair
    graphs = []
    c = magneto.compile(net, backend=lambda gm, args: graphs.append(gm) or gm.forward)
    net.register_forward_hook(lambda *args: 1 / 0)
    for _ in range(2):
        torch.testing.assert_close(c.forward(X, twice=True), net.forward(X, twice=True))
    assert len(graphs) == 1 and inspect.signature(c.forward) == inspect.signature(net.forward)
    net.forward = lambda x: x * 7
    assert c.forward is net.forward
    del net.forward
    torch.testing.assert_close(
        magneto.compile(lambda x: c.forward(x) * 2, fullgraph=True)(X), net.forward(X) * 2
    )
    with pytest.raises(NotImplementedError):
        magneto.compile(nn.Module()).forward(X)
