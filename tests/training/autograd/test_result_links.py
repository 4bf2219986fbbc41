"""A result that other results are computed from, such as (features, logits): whoever looks at its gradient sees eager's."""

import pytest
import torch
from torch import nn

import magneto
from magneto import _magneto


class Net(nn.Module):
    """Returns features and logits; with `deep`, also what lies between them."""

    def __init__(self, deep=False):
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b, self.c = nn.Linear(4, 5), nn.Linear(5, 5), nn.Linear(5, 3)
        self.deep = deep
        self.double()

    def forward(self, x):
        f = self.a(x).tanh()
        h = self.b(f).sin()
        logits = self.c(h) + f.sum()
        return (f, h, logits) if self.deep else (f, logits)


def input_of_grad(m, f, out):
    return torch.autograd.grad(out.pow(2).sum(), f)


def input_of_grad_with_parameters(m, f, out):
    return torch.autograd.grad(out.pow(2).sum(), [f, m.a.weight, m.c.weight])


def inputs_of_backward(m, f, out):
    out.sum().backward(inputs=[f])
    return f.grad


def retained(m, f, out):
    f.retain_grad()
    (out.sum() + f.pow(2).sum()).backward()
    return f.grad, m.a.weight.grad, m.c.weight.grad


def hook_that_logs(m, f, out):
    log = []
    f.register_hook(log.append)
    out.pow(2).sum().backward()
    return log, m.a.weight.grad


def hook_that_changes(m, f, out):
    f.register_hook(lambda g: g * 2)
    out.pow(2).sum().backward()
    return m.a.weight.grad, m.b.weight.grad, m.c.weight.grad


def hook_of_the_node(m, f, out):
    log = []
    f.grad_fn.register_prehook(lambda g: log.append(g[0]))
    out.sum().backward()
    return log


def hooks_of_several(m, f, out):
    log = []
    torch.autograd.graph.register_multi_grad_hook([f, out], log.append)
    out.sum().backward()
    return log


def gradient_penalty(m, f, out):
    (d,) = torch.autograd.grad(out.pow(2).sum(), f, create_graph=True)
    d.pow(2).sum().backward()
    return d, m.a.weight.grad, m.b.weight.grad, m.c.weight.grad


def retained_and_differentiated(m, f, out):
    f.retain_grad()
    grads = torch.autograd.grad(out.pow(2).sum(), list(m.parameters()), create_graph=True)
    return torch.autograd.grad(sum(g.pow(2).sum() for g in grads), list(m.parameters()))


def batched(m, f, out):
    return torch.autograd.grad(
        out, f, torch.eye(3, dtype=torch.float64)[:, None].expand(3, 2, 3), is_grads_batched=True
    )


def both_passes(m, f, out):
    (g,) = torch.autograd.grad(out.sum(), f, retain_graph=True)
    out.pow(2).sum().backward()
    return g, m.a.weight.grad


def written_later(m, f, out):
    f.add_(1)
    return torch.autograd.grad(out.sum(), f, allow_unused=True)


def parameters_only(m, f, out):
    return torch.autograd.grad(out.sum() + f.sum(), list(m.parameters()))


ASKS = [
    input_of_grad, input_of_grad_with_parameters, inputs_of_backward, retained, hook_that_logs, hook_that_changes,
    hook_of_the_node, hooks_of_several, gradient_penalty, retained_and_differentiated, batched, both_passes, written_later,
    parameters_only,
]  # fmt: skip


def see(ask, compiled, deep):
    """What three calls show: later ones know that somebody asks."""
    m = Net(deep)
    f = magneto.compile(m) if compiled else m
    seen = []
    for i in range(3):
        m.zero_grad()
        results = f(torch.linspace(-1, 1, 8, dtype=torch.float64).view(2, 4) * (i + 1))
        seen.append(ask(m, results[0], results[-1]))
        if deep and ask is not written_later:
            results = f(torch.linspace(-1, 1, 8, dtype=torch.float64).view(2, 4) * (i + 1))
            seen.append(torch.autograd.grad(results[2].sum() + results[0].sum(), results[:2]))
    return seen


@pytest.mark.parametrize("deep", [False, True], ids=["two", "three"])
@pytest.mark.parametrize("ask", ASKS)
def test_gradients_of_a_result_that_others_are_computed_from(ask, deep):
    torch.testing.assert_close(see(ask, True, deep), see(ask, False, deep))


def test_a_dead_result_with_a_hook_changes_gradients():
    def run(f, m):
        features, logits = f(torch.ones(2, 4, dtype=torch.float64))
        features.register_hook(lambda g: g * 3)
        del features
        logits.sum().backward()
        return m.a.weight.grad

    m, n = Net(), Net()
    torch.testing.assert_close(run(magneto.compile(m), m), run(n, n))


def test_dropout_between_results_is_drawn_once():
    drop = nn.Dropout(0.5)

    def f(x):
        y = x * 2
        return y, drop(y).sin()

    def run(f):
        torch.manual_seed(3)
        x = torch.ones(50, requires_grad=True)
        y, z = f(x)
        (g,) = torch.autograd.grad(z.sum(), y)
        assert ((g != 0) == (z != 0)).all()
        return g

    torch.testing.assert_close(run(magneto.compile(f)), run(f))


@pytest.mark.parametrize("grad", [False, True], ids=["backward", "grad"])
def test_ordinary_passes_stay_one_plan(grad):
    """(loss, logits) and (features, logits) where nobody looks at gradients between them."""
    m = Net(True)
    f = magneto.compile(m)
    for _ in range(3):
        with torch.profiler.profile() as p:
            *_, logits = f(torch.ones(2, 4, dtype=torch.float64))
            if grad:
                torch.autograd.grad(logits.sum(), list(m.parameters()))
            else:
                logits.sum().backward()
    names = [e.name for e in p.events()]
    assert not any("TanhBackward" in n for n in names)
    assert sum(n.startswith("magneto::Net") and "backward" in n for n in names) == 1, sorted(set(names))


def test_results_and_graphs_are_freed():
    import gc
    import weakref

    m = Net(True)
    f = magneto.compile(m)
    gc.disable()
    try:
        for ask in (False, True):
            features, h, logits = f(torch.ones(2, 4, dtype=torch.float64))
            alive = [weakref.ref(t) for t in (features, h, logits)]
            if ask:
                features.register_hook(lambda g: g)
                logits.sum().backward()
            del features, h, logits
            assert [r() for r in alive] == [None] * 3
    finally:
        gc.enable()


def test_nothing_falls_back():
    before = _magneto.stats()["fallbacks"]
    see(retained, True, True)
    assert _magneto.stats()["fallbacks"] == before


def two(x, y):
    return x * 2, x * y


def with_hooks(f, how):
    """Hooks of inputs with a gradient graph, in passes that reach some of the results."""
    log = []
    leaf = torch.ones(3, requires_grad=True)
    x, y = leaf * 2, leaf * 3
    if how == "before":
        y.register_hook(lambda g: log.append(g) or g * 2)
    if how == "several":
        torch.autograd.graph.register_multi_grad_hook([x, y], log.append)
    if how == "leaves":
        x, y = (t.detach().requires_grad_() for t in (x, y))
        torch.autograd.graph.register_multi_grad_hook([x, y], log.append)
    a, b = f(x, y)
    if how == "after":
        y.register_hook(lambda g: log.append(g) or g * 2)
    a.sum().backward(retain_graph=True)
    seen = None if "several" in how or "leaves" in how else list(log)
    b.sum().backward()
    return seen, log, leaf.grad, x.is_leaf and x.grad


@pytest.mark.parametrize("how", ["before", "after"])
def test_hooks_of_inputs_are_not_called_without_a_gradient(how):
    torch.testing.assert_close(with_hooks(magneto.compile(two), how), with_hooks(two, how))


@pytest.mark.parametrize("how", ["several", "leaves"])
def test_hooks_of_several_inputs_are_called_in_each_pass(how):
    assert len(with_hooks(magneto.compile(two), how)[1]) == 2


def test_hooks_of_single_results_are_not_called_without_a_gradient():
    def run(c):
        one, g = c(torch.sin), c(two)
        leaf = torch.ones(3, requires_grad=True)
        y = one(leaf)
        y.register_hook(lambda g: g * 2)
        a, _ = g(leaf * 1, y)
        a.sum().backward()
        return leaf.grad

    torch.testing.assert_close(run(magneto.compile), run(lambda f: f))
