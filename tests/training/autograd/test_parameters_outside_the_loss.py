"""A parameter that a graph computes with, but the loss does not depend on, has no gradient: None, never zeros, which an optimizer with
weight decay would take. Which parameters these are is eager's choice: `x * 0` depends on x, `x.detach()` does not."""

import pytest
import torch
from torch import nn

import magneto

OUTSIDE = {  # what the result h gets out of d, through which the loss may reach d's parameters
    "not used": lambda h, d: h,
    "detach": lambda h, d: h + d.detach(),
    "data": lambda h, d: h + d.data,
    "detach_": lambda h, d: h + d.clone().detach_(),
    "no_grad": lambda h, d: h + torch.no_grad()(torch.sin)(d),
    "index": lambda h, d: h[torch.arange(len(h)), d.argmax(-1)],
    "comparison": lambda h, d: h + (d > 0).double(),
    "integers": lambda h, d: h * d.long(),
    "sizes": lambda h, d: h.view(d.shape),
    "zeros_like": lambda h, d: h + torch.zeros_like(d),
    "new_ones": lambda h, d: h + d.new_ones(d.shape),
    "overwritten": lambda h, d: d.clone().copy_(h),
    "overwritten item": lambda h, d: torch.stack([d, d]).index_fill_(0, torch.arange(2), 0.0)[0] + h,
    "times zero": lambda h, d: h + d * 0,
    "other part": lambda h, d: torch.cat([h, d]).chunk(2)[0],
    "other row": lambda h, d: torch.stack([h, d])[0],
    "never chosen": lambda h, d: torch.where(torch.ones_like(h, dtype=torch.bool), h, d),
    "sign": lambda h, d: h + d.sign(),
    "floor": lambda h, d: h + d.floor(),
    "filled": lambda h, d: h + d.clone().fill_(3.0),
    "zeroed": lambda h, d: h + d.clone().zero_(),
    "masked": lambda h, d: h + d.masked_fill(torch.ones_like(d, dtype=torch.bool), 0.0),
    "random": lambda h, d: h + torch.bernoulli(torch.full_like(d, 1.0)),
}


class Net(nn.Module):
    """With many > 0 there are so many results more, each of a parameter of its own."""

    def __init__(self, mix, many):
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b, self.c = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)
        self.own = nn.ParameterList(torch.randn(4) for _ in range(many))
        self.mix = mix
        self.double()

    def forward(self, x):
        h = self.a(x)
        d = self.c(self.b(h).sin())
        return self.mix(h, d), d, *(p * h for p in self.own)


def gradients(kind, many, reached, whole, wrap):
    m = Net(OUTSIDE[kind], many)

    def step(model, x):
        results = model(x)
        sum(results[k].sum() for k in reached).backward()

    x = torch.linspace(-1, 1, 12, dtype=torch.float64).view(3, 4)
    wrap(step)(m, x) if whole else step(wrap(m), x)
    return {name: p.grad for name, p in m.named_parameters()}


@pytest.mark.parametrize("many", [0, 2, 63, 70])
@pytest.mark.parametrize("whole", [False, True], ids=["module", "step"])
@pytest.mark.parametrize("kind", OUTSIDE)
def test_parameters_without_gradients(kind, whole, many):
    for reached in [(0,), (0, 1), (0, many + 1), (0, 1, many + 1)]:
        want = gradients(kind, many, reached, whole, lambda f: f)
        got = gradients(kind, many, reached, whole, magneto.compile)
        assert {n for n, g in got.items() if g is None} == {n for n, g in want.items() if g is None}, reached
        for name, g in want.items():
            if g is not None:
                torch.testing.assert_close(got[name], g, msg=f"{name} {reached}")
        magneto.reset()


def test_weight_decay_leaves_them_alone():
    """AdamW decays what has a gradient of zeros."""
    m, e = (Net(OUTSIDE["detach"], 70) for _ in range(2))
    for model, wrap in (m, magneto.compile), (e, lambda f: f):
        opt = torch.optim.AdamW(model.parameters(), 0.1, weight_decay=0.5)
        compiled = wrap(model)
        for _ in range(2):
            opt.zero_grad()
            compiled(torch.ones(3, 4, dtype=torch.float64))[0].sum().backward()
            opt.step()
    for (name, got), want in zip(m.named_parameters(), e.parameters(), strict=True):
        torch.testing.assert_close(got, want, msg=name)
