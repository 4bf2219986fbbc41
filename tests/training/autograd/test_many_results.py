"""Which gradients exist is eager's choice, however many results a compiled graph has: results that a loss does not reach leave no
gradients of zeros, and no NaN where a derivative is infinite."""

import pytest
import torch

import magneto

COUNTS = [1, 2, 3, 63, 64, 65, 127, 128, 129, 300]


class Heads(torch.nn.Module):
    """Head k is a function of parameter k, of its own and of a shared one."""

    def __init__(self, n):
        super().__init__()
        torch.manual_seed(0)
        self.own = torch.nn.ParameterList(torch.randn(3) for _ in range(n))
        self.shared = torch.nn.Parameter(torch.randn(3))

    def forward(self, x):
        return [(p * x).sin() if k % 3 else (p * x).sin() * self.shared for k, p in enumerate(self.own)]


def gradients(n, used, compiled, whole):
    m = Heads(n)

    def step(m, x):
        results = m(x)
        loss = sum(results[k].sum() for k in used)
        loss.backward()

    x = torch.ones(3)
    if whole:
        (magneto.compile(step) if compiled else step)(m, x)
    else:
        step(magneto.compile(m) if compiled else m, x)
    return [p.grad for p in m.parameters()]


@pytest.mark.parametrize("whole", [False, True], ids=["module", "step"])
@pytest.mark.parametrize("n", COUNTS)
def test_gradients_that_exist(n, whole):
    for used in ([0], [n - 1], [n // 2, n - 1], range(0, n, 2), range(n)):
        want, got = gradients(n, used, False, whole), gradients(n, used, True, whole)
        assert [g is None for g in got] == [g is None for g in want], (n, used)
        for a, b in zip(want, got):
            torch.testing.assert_close(b, a)
        magneto.reset()


@pytest.mark.parametrize("n", COUNTS)
def test_undefined_gradients_do_not_meet_infinite_derivatives(n):
    """sqrt has an infinite derivative at zero: zeros in place of an undefined gradient would make it NaN."""

    def f(x):
        return [x * (k + 1) if k == n - 1 else (x * k).sqrt() for k in range(n)]

    def run(g):
        x = torch.zeros(2, requires_grad=True)
        g(x)[n - 1].sum().backward()
        return x.grad

    torch.testing.assert_close(run(magneto.compile(f)), run(f))


@pytest.mark.parametrize("n", COUNTS)
def test_results_are_differentiated_one_after_the_other(n):
    def f(ps):
        return [(p * 2).sin() for p in ps]

    def run(g):
        ps = [torch.full((2,), float(k), requires_grad=True) for k in range(n)]
        results = g(ps)
        seen = []
        for k in (n - 1, 0, n // 2):
            try:
                results[k].sum().backward()
                seen.append([p.grad is not None for p in ps])
            except RuntimeError as e:
                seen.append(str(e).split("\n")[0][:60])
        return seen, [p.grad for p in ps if p.grad is not None]

    want, got = run(f), run(magneto.compile(f))
    assert got[0] == want[0]
    for a, b in zip(want[1], got[1]):
        torch.testing.assert_close(b, a)


@pytest.mark.parametrize("n", COUNTS)
def test_autograd_grad_of_unused_inputs(n):
    def f(ps):
        return [(p * 2).sin() for p in ps]

    for materialize in (False, True):
        for g in (f, magneto.compile(f)):
            ps = [torch.full((2,), float(k), requires_grad=True) for k in range(n)]
            grads = torch.autograd.grad(g(ps)[0].sum(), ps, allow_unused=True, materialize_grads=materialize)
            assert [x is None for x in grads] == [not materialize and k > 0 for k in range(n)]
            assert all(not x.any() for x in grads[1:] if x is not None)
