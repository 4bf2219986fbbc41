"""Backward hooks of modules in steps that run their own backward pass: one graph, their side effects replayed."""

import pytest
import torch

from programs import Registry, grads, mlp

program = Registry()


def steps(C, m, backward=None, n=4, before=None):
    """Losses of n steps of plain SGD over m, then its gradients."""
    opt = torch.optim.SGD(m.parameters(), lr=0.1)

    @C
    def step(x):
        opt.zero_grad()
        loss = m(x).pow(2).mean()
        loss.backward() if backward is None else backward(loss)
        opt.step()
        return loss.detach()

    losses = []
    for i in range(n):
        if before:
            before(i)
        losses.append(step(torch.randn(5, 4)))
    return [losses, grads(m), list(m.parameters())]


@program(graphs=2, joint=0)
def hooks_that_change_gradients(C):
    m = mlp()
    m[2].register_full_backward_hook(lambda mod, gi, go: (gi[0].clamp(-0.01, 0.01),))
    m[2].register_full_backward_pre_hook(lambda mod, go: (go[0] * 2,))
    m[1].register_full_backward_hook(lambda mod, gi, go: None)
    return steps(C, m)


@program(graphs=2, joint=0)
def hooks_that_keep_what_they_see(C):
    m = mlp()

    def keep(mod, gi, go):
        mod.calls += 1
        mod.seen = gi, go

    for k in m:
        k.calls = 0
        k.register_full_backward_hook(keep)
    return [steps(C, m), [(k.calls, k.seen) for k in m]]


@program(graphs=None, joint=0)
def hooks_that_collect(C):
    seen = []
    m = mlp()
    m[2].register_full_backward_hook(lambda mod, gi, go: seen.append((gi, go)))
    return [steps(C, m), seen]


@program(graphs=3, joint=0)
def a_hook_that_is_removed(C):
    m = mlp()
    handle = m[2].register_full_backward_hook(lambda mod, gi, go: (gi[0] * 3,))
    return steps(C, m, before=lambda i: i == 2 and handle.remove())


@program(graphs=2, joint=0)
def hooks_of_all_modules(C):
    handle = torch.nn.modules.module.register_module_full_backward_pre_hook(lambda mod, go: (go[0] * 2,))
    try:
        return steps(C, mlp())
    finally:
        handle.remove()


@program(graphs=2, joint=0)
def two_backward_passes(C):
    def backward(loss):
        loss.backward(retain_graph=True)
        loss.backward()

    m = mlp()
    m.calls = 0
    m[2].register_full_backward_hook(lambda mod, gi, go: setattr(m, "calls", m.calls + 1))
    return [steps(C, m, backward), m.calls]


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a * b

    @staticmethod
    def backward(ctx, g):
        a, b = ctx.saved_tensors
        return g * b, g * a


@program(graphs=None, joint=None, breaks=None)
def inputs_whose_gradient_graph_is_from_outside(C):
    m, seen = torch.nn.Linear(4, 2), []
    m.register_full_backward_hook(lambda mod, gi, go: seen.append(gi))

    @C
    def through_a_hook(x):
        m(x).sum().backward()

    @C
    def through_a_function(x):
        Product.apply(x, x.detach() + 1).sum().backward()

    w = torch.randn(3, 4, requires_grad=True)
    for f in (through_a_hook, through_a_function) * 2:
        f(w * 2)
    return [w.grad, seen, grads(m)]


@program(graphs=None, joint=None, breaks=None)
def a_hook_that_raises(C):
    def hook(mod, gi, go):
        raise ValueError("not this one")

    m = mlp()
    m[2].register_full_backward_hook(hook)
    return steps(C, m)


@program(graphs=None, joint=None, breaks=None)
def a_hook_that_asks_for_values(C):
    m = mlp()
    m[2].register_full_backward_hook(lambda mod, gi, go: (gi[0] * 2,) if go[0].sum() > 0 else None)
    return steps(C, m)


@program(graphs=None, joint=None, breaks=None)
def hooks_of_results_that_are_tracked(C):
    m = mlp()
    m[2].register_full_backward_hook(lambda mod, gi, go: (gi[0] * 2,))
    f = C(m)
    for _ in range(3):
        x = torch.randn(5, 4, requires_grad=True)
        (g,) = torch.autograd.grad(f(x).sum(), x, create_graph=True)
        g.pow(2).sum().backward()
    return [x.grad, grads(m)]


@program(graphs=None, joint=None, breaks=None)
def a_step_and_a_result_that_is_tracked(C):
    m = mlp()
    m[2].register_full_backward_hook(lambda mod, gi, go: (gi[0] * 2,))

    @C
    def f(x):
        m(x).sum().backward()
        return m(x)

    for _ in range(3):
        f(torch.randn(5, 4)).sum().backward()
    return grads(m)


@pytest.mark.parametrize("name", program.programs)
def test_program(name):
    program.check(name)
