"""Results of one compiled call that are differentiated one after the other: what eager frees of them, and when."""

import gc
import weakref

import pytest
import torch
from torch import nn

from programs import Registry, grads

program = Registry()


def pair():
    return nn.Linear(4, 4), nn.Linear(4, 4)


def tried(t):
    try:
        t.backward()
    except RuntimeError as e:
        return str(e)


@program()
def losses_of_two_networks(C):
    a, b = pair()
    f = C(lambda x: (a(x).pow(2).sum(), b(x).exp().sum()))
    for _ in range(3):
        first, second = f(torch.randn(3, 4))
        first.backward()
        second.backward()
    return grads(a, b)


@program()
def one_network_called_twice(C):
    a, b = pair()
    f = C(lambda x: (a(x).pow(2).sum(), a(x + 1).sum() + b(x).exp().sum()))
    for _ in range(3):
        first, second = f(torch.randn(3, 4))
        second.backward()
        first.backward()
    return grads(a, b)


@program()
def a_step_between(C):
    """The first network's parameters change before the second's pass, which does not read them."""
    a, b = pair()
    f = C(lambda x: (a(x).pow(2).sum(), b(x).exp().sum()))
    for _ in range(3):
        x = torch.randn(3, 4, requires_grad=True)
        for loss, m in zip(f(x), (a, b)):
            m.zero_grad()
            loss.backward()
            with torch.no_grad():
                for p in m.parameters():
                    p -= 0.1 * p.grad
    return [list(a.parameters()), list(b.parameters()), x.grad]


@program()
def what_the_second_pass_reads_was_modified(C):
    a, b = pair()
    first, second = C(lambda x: (a(x).pow(2).sum(), b(x * 2).exp().sum()))(
        torch.randn(3, 4, requires_grad=True)
    )
    first.backward()
    with torch.no_grad():
        b.weight.add_(1)
    second.backward()


@program()
def each_only_once(C):
    a, b = pair()
    first, second = C(lambda x: (a(x).pow(2).sum(), b(x).exp().sum()))(torch.randn(3, 4))
    return [tried(t) for t in (first, first, second, second, first, first + second)]


@program()
def graphs_that_are_retained(C):
    a, b = pair()
    first, second = C(lambda x: (a(x).pow(2).sum(), b(x).exp()))(torch.randn(3, 4))
    first.backward(retain_graph=True)
    first.backward()
    second.sum().backward(retain_graph=True)
    second.sum().backward()
    return [[tried(t) for t in (first, second.sum())], grads(a, b)]


@program()
def second_derivatives_of_the_second(C):
    a, b = pair()
    x = torch.randn(3, 4, requires_grad=True)
    first, second = C(lambda x: (a(x).pow(2).sum(), b(x).exp()))(x)
    first.backward()
    (g,) = torch.autograd.grad(second.sum(), x, create_graph=True)
    g.pow(2).sum().backward()
    return [x.grad, grads(a, b)]


@program()
def three_of_which_two_share(C):
    a, b = pair()

    def g(x):
        h = a(x).tanh()
        return h.sum(), (h * h).mean(), b(x).sigmoid().sum()

    f, seen = C(g), []
    for order in ((2, 0), (2, 1), (0, 2), (1, 2), (2, 0, 1), (0, 1, 2)):
        out = f(torch.randn(3, 4))
        seen.append([tried(out[i]) for i in order])
    return [seen, grads(a, b)]


@program()
def sizes_that_change(C):
    a, b = pair()
    f = C(lambda x: (a(x).pow(2).sum(), b(x).exp().sum()), dynamic=True)
    for n in (3, 5, 4):
        first, second = f(torch.randn(n, 4))
        first.backward()
        second.backward()
    return grads(a, b)


@program()
def nothing_keeps_itself_alive(C):
    a, b = pair()
    f = C(lambda x: (a(x).pow(2).sum(), b(x).exp()))
    gc.collect()
    gc.disable()
    try:
        first, second = f(torch.randn(3, 4))
        dead = weakref.ref(second)
        first.backward()
        del first, second
        return dead() is None
    finally:
        gc.enable()


@program()
def what_no_later_pass_reads_is_freed(C):
    a, b = nn.Linear(4, 37), nn.Linear(4, 4)
    f = C(lambda x: (a(x).sigmoid().pow(3).sum(), b(x).exp()))
    first, second = f(torch.randn(5, 4))
    first.backward()
    return [o.shape for o in gc.get_objects() if isinstance(o, torch.Tensor) and o.shape == (5, 37)]


@pytest.mark.parametrize("name", program.programs)
def test_program(name):
    program.check(name)
