"""Leaves of autograd that a compiled function makes, and gradients that it assigns."""

import pytest
import torch
from torch import nn

import magneto
from support import counts

MAKERS = {
    "ones": lambda: torch.ones(3, requires_grad=True),
    "tensor": lambda: torch.tensor([1.0, 2.0, 3.0], requires_grad=True),
    "rand": lambda: torch.rand(3, requires_grad=True),
    "zeros_like": lambda: torch.zeros_like(torch.ones(3), requires_grad=True),
    "eye": lambda: torch.eye(3, requires_grad=True),
}


@pytest.mark.parametrize("backend", ["magneto", "aten", "eager", "aot_eager"])
@pytest.mark.parametrize("name", MAKERS)
def test_factory_with_requires_grad(name, backend):
    def f(x):
        leaf = MAKERS[name]()
        return leaf, (leaf * x).sum()

    x = torch.tensor([2.0, 3.0, 4.0])
    c = magneto.compile(f, backend=backend)
    for seed in range(2):
        torch.manual_seed(seed)
        leaf, out = f(x)
        torch.manual_seed(seed)
        leaf2, out2 = c(x)
        assert leaf2.requires_grad and leaf2.is_leaf
        out.backward()
        out2.backward()
        torch.testing.assert_close(out2, out)
        torch.testing.assert_close(leaf2.grad, leaf.grad)


def test_gradient_inside_of_a_leaf_made_inside():
    def f(x):
        leaf = torch.ones(3, requires_grad=True)
        (g,) = torch.autograd.grad((leaf.sin() * x).sum(), leaf)
        return g

    x = torch.rand(3)
    torch.testing.assert_close(magneto.compile(f)(x), f(x))


def test_both_names_of_grad():
    def f(x, y):
        x._grad = y + 1
        y.grad = x + 2
        return x.grad.data, y._grad.data

    c = magneto.compile(f)
    for _ in range(2):
        pairs = [
            (torch.ones(3, requires_grad=True), torch.full((3,), 2.0, requires_grad=True)) for _ in range(2)
        ]
        want, got = f(*pairs[0]), c(*pairs[1])
        torch.testing.assert_close(got, want)
        for a, b in zip(*pairs):
            torch.testing.assert_close(b.grad, a.grad)
            a.grad = b.grad = None  # they refer to each other


def test_whether_an_input_is_a_leaf_is_guarded_when_it_matters():
    def ask(x):
        return x + 1, x.is_leaf, x.grad_fn is None

    def step(x):
        y = (x * 2).sum()
        y.backward()
        return y.detach()

    for order in ("leaf inner", "inner leaf"):
        asks, steps = magneto.compile(ask), magneto.compile(step)
        for kind in order.split():
            base = torch.ones(3, requires_grad=True)
            x = base * 3 if kind == "inner" else base
            assert asks(x)[1:] == ask(x)[1:]
            steps(x)
            assert base.grad.tolist() == [6.0 if kind == "inner" else 2.0] * 3


def adversarial(m, d, om, od, x, on):
    for p in d.parameters():
        p.requires_grad_(True)
    od.zero_grad()
    loss = (d(m(x).detach()) - d(x)).mean()
    loss.backward()
    od.step()
    for p in d.parameters():
        p.requires_grad = False
    om.zero_grad()
    other = -d(m(x)).mean()
    other.backward()
    om.step()
    return loss + other


def frozen(m, d, om, od, x, on):
    m.requires_grad_(on)
    om.zero_grad(), od.zero_grad()
    loss = d(m(x)).square().mean()
    loss.backward()
    om.step(), od.step()
    return loss


def attack(m, d, om, od, x, on):
    x.requires_grad_(True)
    (g,) = torch.autograd.grad(d(m(x)).square().sum(), x)
    x.requires_grad_(False)
    od.zero_grad()
    loss = d(m(x + 0.1 * g.sign())).square().mean()
    loss.backward()
    od.step()
    return loss


@pytest.mark.parametrize("step", [adversarial, frozen, attack])
def test_older_leaves_are_switched_in_a_step(step):
    def run(compiled):
        torch.manual_seed(0)
        m, d = (
            torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.Tanh(), torch.nn.Linear(6, n)).double()
            for n in (4, 1)
        )
        om, od = (torch.optim.SGD(k.parameters(), 0.1, momentum=0.9) for k in (m, d))
        f = magneto.compile(step) if compiled else step
        seen = []
        for i in range(8):
            x = torch.randn(3, 4, dtype=torch.float64)
            seen.append(
                (
                    f(m, d, om, od, x, i % 3 != 0).item(),
                    x.requires_grad,
                    x.grad is None,
                    [(p.requires_grad, p.grad is None) for k in (m, d) for p in k.parameters()],
                )
            )
        return seen, [p.detach() for k in (m, d) for p in k.parameters()]

    magneto.reset()
    (ours, p), (eager, q) = run(True), run(False)
    assert [s[1:] for s in ours] == [s[1:] for s in eager]
    torch.testing.assert_close(([s[0] for s in ours], p), ([s[0] for s in eager], q), rtol=1e-9, atol=1e-12)
    assert not counts().reasons


def test_older_leaves_are_switched_where_results_want_gradients():
    def f(x, on):
        m.requires_grad_(on)
        return m(x).square().sum()

    m = torch.nn.Linear(3, 2)
    g = magneto.compile(f)
    for on in (True, False, True, False):
        res = []
        for fn in (f, g):
            m.zero_grad()
            x = torch.ones(2, 3, requires_grad=True)
            fn(x, on).backward()
            res.append(
                [x.grad] + [torch.zeros(()) if p.grad is None else p.grad.clone() for p in m.parameters()]
            )
            assert all(p.requires_grad == on for p in m.parameters())
        torch.testing.assert_close(*res)
    with pytest.raises(RuntimeError, match="floating point"):
        magneto.compile(lambda x: x.requires_grad_(True))(torch.ones(2, dtype=torch.int64))


class Ascent(torch.optim.Optimizer):
    """Sharpness-aware minimization: up the slope, and from there back to where the step began, whose memory the parameters get again."""

    def __init__(self, params, base, rho=0.05, **kwargs):
        super().__init__(params, dict(rho=rho, **kwargs))
        self.base = base(self.param_groups, **kwargs)
        self.param_groups = self.base.param_groups

    @torch.no_grad()
    def ascend(self):
        held = [p for g in self.param_groups for p in g["params"]]
        norm = torch.stack([p.grad.norm() for p in held]).norm()
        for p in held:
            self.state[p]["old"] = p.data.clone()
            p.add_(p.grad * 0.05 / norm)
        self.zero_grad()

    @torch.no_grad()
    def step(self):
        for g in self.param_groups:
            for p in g["params"]:
                p.data = self.state[p]["old"]
        self.base.step()
        self.zero_grad()


def test_leaves_whose_data_was_assigned_are_updated_in_the_same_graph():
    results = []
    for compile in (lambda f: f, magneto.compile):
        torch.manual_seed(0)
        m = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)).double()
        opt = Ascent(m.parameters(), torch.optim.SGD, lr=0.1, momentum=0.9)

        @compile
        def step(x, y, m=m, opt=opt):
            loss = nn.functional.mse_loss(m(x), y)
            loss.backward()
            opt.ascend()
            nn.functional.mse_loss(m(x), y).backward()
            opt.step()
            return loss.detach()

        losses = [step(torch.randn(5, 4).double(), torch.randn(5, 2).double()) for _ in range(4)]
        same = [p.data_ptr() == opt.state[p]["old"].data_ptr() for p in m.parameters()]
        results.append(
            (
                losses,
                list(m.parameters()),
                [opt.base.state[p]["momentum_buffer"] for p in m.parameters()],
                same,
            )
        )
    torch.testing.assert_close(*results)
    s = counts()
    assert s.graphs == 2 and not s.reasons, s


def test_a_leaf_whose_data_was_assigned_breaks_where_gradients_are_recorded():
    def f(w, x):
        with torch.no_grad():
            w.data = x * 2
            w.mul_(3)
        return (w * x).sum()

    for g in (f, magneto.compile(f)):
        w, x = torch.ones(3, requires_grad=True), torch.arange(3.0)
        g(w, x).backward()
        assert w.tolist() == [0, 6, 12] and w.grad.tolist() == [0, 1, 2]
