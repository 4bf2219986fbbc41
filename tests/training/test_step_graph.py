"""Whole training steps in one graph: forward, backward and optimizer recorded together, compared with eager after every step."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import magneto

OPTIM = torch.optim
OPTIMIZERS = {
    "sgd": (OPTIM.SGD, {"lr": 0.1}),
    "momentum": (OPTIM.SGD, {"lr": 0.1, "momentum": 0.9, "dampening": 0.1, "weight_decay": 0.01}),
    "nesterov": (OPTIM.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True, "maximize": True}),
    "rmsprop": (OPTIM.RMSprop, {"lr": 0.01}),
}
KINDS = [None, False, True]


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))


def batches(n: int):
    g = torch.Generator().manual_seed(1)
    for _ in range(n):
        yield torch.randn(32, 8, generator=g), torch.randint(0, 4, (32,), generator=g)


def train(cls, options, compiled: bool, n: int = 6, set_to_none: bool = True):
    m = model()
    opt = cls(m.parameters(), **options)

    def step(x, y):
        opt.zero_grad(set_to_none=set_to_none)
        loss = nn.functional.cross_entropy(m(x), y)
        loss.backward()
        opt.step()
        return loss

    f = magneto.compile(step) if compiled else step
    return m, opt, [f(x, y) for x, y in batches(n)]


def assert_same(eager, ours):
    (m1, o1, l1), (m2, o2, l2) = eager, ours
    for a, b in zip(l1, l2):
        torch.testing.assert_close(a.detach(), b.detach(), rtol=1e-4, atol=1e-5)
        assert b.requires_grad and not b.is_leaf
    for p, q in zip(m1.parameters(), m2.parameters()):
        torch.testing.assert_close(p, q, rtol=1e-4, atol=1e-5)
        assert (p.grad is None) == (q.grad is None)
        if p.grad is not None:
            torch.testing.assert_close(p.grad, q.grad, rtol=1e-3, atol=1e-5)
        assert list(o1.state[p]) == list(o2.state[q])
        for k in o1.state[p]:
            torch.testing.assert_close(o1.state[p][k], o2.state[q][k], rtol=1e-3, atol=1e-5)


def assert_one_graph():
    s = magneto._magneto.stats()
    assert not s["breaks"], s["breaks"]
    assert not s["fallbacks"]
    assert s["graphs"] <= 2 and s["recompiles"] <= 1, s  # the first step makes the optimizer's state


@pytest.fixture(autouse=True)
def fresh():
    magneto.reset()
    yield
    magneto.reset()


@pytest.mark.parametrize("foreach", KINDS)
@pytest.mark.parametrize("name", list(OPTIMIZERS))
def test_optimizers(name, foreach):
    cls, options = OPTIMIZERS[name]
    options = {**options, "foreach": foreach}
    assert_same(train(cls, options, False), train(cls, options, True))
    assert_one_graph()


def test_zero_grad_keeps_the_tensors():
    """With set_to_none=False the gradients are zeroed and added to in place: the same objects after every step."""
    assert_same(train(OPTIM.SGD, {"lr": 0.1}, False, set_to_none=False), train(OPTIM.SGD, {"lr": 0.1}, True, set_to_none=False))
    assert_one_graph()


def test_accumulation_adds_to_the_older_gradient():
    def run(compiled):
        m = model()

        def micro(x, y):
            loss = nn.functional.cross_entropy(m(x), y)
            loss.backward()
            return loss.detach()

        f = magneto.compile(micro) if compiled else micro
        first = None
        for i, (x, y) in enumerate(batches(4)):
            f(x, y)
            if i == 0:
                first = [p.grad for p in m.parameters()]
        assert all(p.grad is g for p, g in zip(m.parameters(), first))
        return [p.grad.clone() for p in m.parameters()]

    for a, b in zip(run(False), run(True)):
        torch.testing.assert_close(a, b)
    s = magneto._magneto.stats()
    assert s["graphs"] == 2 and not s["breaks"]


def test_backward_of_the_result_is_eagers_error():
    _, _, losses = train(OPTIM.SGD, {"lr": 0.1}, True, 3)
    with pytest.raises(RuntimeError, match="Trying to backward through the graph a second time"):
        losses[-1].backward()


def test_autograd_grad_inside():
    m = model()

    def f(x):
        x = x.clone().requires_grad_()
        y = m(x).square().sum()
        (g,) = torch.autograd.grad(y, [x])
        return g

    def h(x):
        y = m(x).square().sum()
        return torch.autograd.grad(y, list(m.parameters()))

    x = torch.randn(5, 8)
    for a, b in zip(h(x), magneto.compile(h)(x)):
        torch.testing.assert_close(a, b)
    assert not magneto._magneto.stats()["breaks"]
    torch.testing.assert_close(magneto.compile(f)(x), f(x))


def test_step_alone():
    def run(compiled):
        m = model()
        opt = OPTIM.SGD(m.parameters(), lr=0.1, momentum=0.9)
        step = magneto.compile(opt.step) if compiled else opt.step
        for x, y in batches(5):
            opt.zero_grad()
            nn.functional.cross_entropy(m(x), y).backward()
            step()
        return m

    for a, b in zip(run(False).parameters(), run(True).parameters()):
        torch.testing.assert_close(a, b)
    assert_one_graph()


def test_state_dicts_go_between_eager_and_compiled():
    cls, options = OPTIMIZERS["momentum"]
    m, opt, _ = train(cls, options, True)
    m2 = model()
    m2.load_state_dict(m.state_dict())
    opt2 = cls(m2.parameters(), **options)
    opt2.load_state_dict(opt.state_dict())
    for p, q in zip(m.parameters(), m2.parameters()):
        torch.testing.assert_close(opt.state[p]["momentum_buffer"], opt2.state[q]["momentum_buffer"])


def test_step_after_torchs_own_compiler_was_imported():
    """torch._dynamo replaces methods of the optimizers by wrappers that keep its tracer out."""
    import torch._dynamo  # noqa: F401

    cls, options = OPTIMIZERS["momentum"]
    assert_same(train(cls, options, False), train(cls, options, True))
    assert_one_graph()
