"""Answers taken for granted in graphs with gradients that write to their inputs: batch norm in training."""

import copy

import pytest
import torch
from torch import nn
from torch.distributions import Normal

import magneto
from support import assert_same, counts


class Boxes(nn.Module):
    """Checks in the ways that detection models do, before and after statistics are written."""

    def __init__(self):
        super().__init__()
        self.convolution, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)

    def forward(self, x, boxes):
        for each in boxes:
            bad = each[:, 2:] <= each[:, :2]
            if bad.any():
                first = torch.where(bad.any(dim=1))[0][0]
                torch._assert(False, f"box {each[first].tolist()} is empty")
        y = self.norm(self.convolution(x))
        if (y.detach() > 1e6).any():
            raise ValueError("too large")
        return y.relu().sum()


GOOD = torch.tensor([[0.0, 0.0, 2.0, 3.0], [1.0, 1.0, 2.0, 2.0]])
BAD = torch.tensor([[0.0, 0.0, 2.0, 3.0], [3.0, 1.0, 2.0, 2.0]])


def outcome(f, m, *args):
    """What a step gives: gradients, or the error."""
    m.zero_grad()
    try:
        f(*args).backward()
    except (AssertionError, ValueError) as e:
        return type(e), str(e)
    return [p.grad for p in m.parameters()]


@pytest.mark.parametrize("grows", [False, True])
def test_statistics_are_as_eager_leaves_them_whatever_the_answers(grows):
    eager, m = Boxes().double(), Boxes().double()
    m.load_state_dict(eager.state_dict())
    f = magneto.compile(m, dynamic=grows or None)
    calls = [((GOOD, GOOD), 0), ((GOOD, BAD), 0), ((GOOD, GOOD), 1e9), ((GOOD, GOOD), 0), ((BAD, GOOD), 0)]
    for i, (boxes, bias) in enumerate([*calls, ((GOOD, GOOD), 0)]):
        x = torch.randn(2, 3, 8 + i * grows, 8).double()
        for module in (eager, m):
            nn.init.constant_(module.norm.bias, bias)
        assert_same(outcome(f, m, x, boxes), outcome(eager, eager, x, boxes))
        assert_same(m.state_dict(), eager.state_dict())
        if not i:
            assert counts().graphs == 1 and not counts().breaks


def test_distributions_over_batch_norm_are_one_graph():
    eager = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).double()
    m = copy.deepcopy(eager)

    def loss(m, x):
        y = m(x)
        # a compiler of torch may have turned the check off
        return -Normal(y.mean(), y[0, 0].exp(), validate_args=True).log_prob(x).sum()

    f = magneto.compile(loss)
    for i, x in enumerate((torch.randn(5, 3), torch.full((5, 3), torch.nan), torch.randn(5, 3))):
        want = outcome(loss, eager, eager, x.double())
        assert isinstance(want, tuple) == (i == 1)
        assert_same(outcome(f, m, m, x.double()), want)
        for module in (eager, m) if i == 1 else ():
            module[1].reset_running_stats()
        assert_same(m.state_dict(), eager.state_dict())
        assert i or (counts().graphs == 1 and not counts().breaks)
