"""State that forward keeps: statistics, counters, power iterations, moving averages; equal to eager after many steps."""

import copy

import pytest
import torch
import torch.nn as nn
from torch.nn.utils import parametrizations as P

import magneto
from support import counts
from training import same


class Ema(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(6, 6)
        self.register_buffer("mean", torch.zeros(6))
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))

    def forward(self, x):
        y = self.lin(x)
        with torch.no_grad():
            self.mean.lerp_(y.mean(0), 0.1)
            self.steps += 1
        return y - self.mean


class Reassigned(nn.Module):
    """The buffer is a new tensor after every call."""

    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(6, 6)
        self.register_buffer("mean", torch.zeros(6))

    def forward(self, x):
        y = self.lin(x)
        self.mean = 0.9 * self.mean + 0.1 * y.detach().mean(0)
        return y - self.mean


class Attribute(nn.Module):
    """A hidden state that is no buffer, detached between steps."""

    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(6, 6)
        self.hidden = torch.zeros(8, 6)

    def forward(self, x):
        self.hidden = self.cell(x, self.hidden.detach())
        return self.hidden


class InAList(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(6, 6)
        self.states = [torch.zeros(8, 6)]
        self.named = {"h": torch.zeros(8, 6)}

    def forward(self, x):
        self.states[0] = self.cell(x, self.states[0].detach())
        self.named["h"] = self.named["h"] + self.states[0].detach()
        return self.states[0] * self.named["h"]


class Quantizer(nn.Module):
    """Codebook moved by averages of what was assigned to it."""

    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(6, 6)
        self.register_buffer("codes", torch.randn(5, 6))
        self.register_buffer("counts", torch.ones(5))

    def forward(self, x):
        y = self.lin(x)
        i = torch.cdist(y, self.codes).argmin(-1)
        if self.training:
            hot = torch.eye(5)[i]
            self.counts.mul_(0.9).add_(hot.sum(0), alpha=0.1)
            self.codes.mul_(0.9).add_((hot.t() @ y.detach()) / self.counts[:, None], alpha=0.1)
        q = self.codes[i]
        return y + (q - y).detach() + 0.25 * (y - q.detach()).pow(2).mean()


def old_spectral():
    return nn.Sequential(torch.nn.utils.spectral_norm(nn.Linear(6, 6)), nn.Tanh(), nn.Linear(6, 6))


def old_weight():
    return nn.Sequential(torch.nn.utils.weight_norm(nn.Linear(6, 6)), nn.Tanh(), nn.Linear(6, 6))


MODELS = {
    "batch_norm": (lambda: nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6), nn.Tanh()), 1),
    "batch_norm_cumulative": (
        lambda: nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6, momentum=None), nn.Tanh()),
        None,
    ),
    "batch_norm_untracked": (
        lambda: nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6, track_running_stats=False), nn.Tanh()),
        1,
    ),
    "batch_norm_frozen": (lambda: nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6).eval(), nn.Tanh()), 1),
    "instance_norm": (
        lambda: nn.Sequential(
            nn.Linear(6, 6), nn.Unflatten(1, (2, 3)), nn.InstanceNorm1d(2, track_running_stats=True)
        ),
        1,
    ),
    "spectral_norm": (
        lambda: nn.Sequential(P.spectral_norm(nn.Linear(6, 6)), nn.Tanh(), nn.Linear(6, 6)),
        None,
    ),
    "weight_norm": (lambda: nn.Sequential(P.weight_norm(nn.Linear(6, 6)), nn.Tanh(), nn.Linear(6, 6)), None),
    "orthogonal": (lambda: nn.Sequential(P.orthogonal(nn.Linear(6, 6)), nn.Tanh(), nn.Linear(6, 6)), None),
    "old_spectral_norm": (old_spectral, None),
    "old_weight_norm": (old_weight, None),
    "ema": (Ema, 1),
    "reassigned": (Reassigned, None),
    "attribute": (Attribute, None),
    "in_a_list": (InAList, None),
    "quantizer": (Quantizer, 1),
    "shared_layer": (
        lambda: (lambda l: nn.Sequential(l, nn.BatchNorm1d(6), nn.Tanh(), l))(nn.Linear(6, 6)),
        1,
    ),
    "gru": (lambda: nn.GRUCell(6, 6), 1),
}


@pytest.mark.parametrize("name", MODELS)
def test_state_after_many_steps(name):
    make, graphs = MODELS[name]
    torch.manual_seed(0)
    eager = make()
    torch.manual_seed(0)
    mine = make()
    compiled = magneto.compile(mine)
    opts = [torch.optim.SGD(m.parameters(), 0.05) for m in (eager, mine)]
    for i in range(12):
        for call, opt in zip((eager, compiled), opts):
            torch.manual_seed(i)
            opt.zero_grad()
            call(torch.randn(8, 6)).pow(2).mean().backward()
            opt.step()
    want, got = eager.state_dict(), mine.state_dict()
    assert list(want) == list(got)
    for k, v in vars(eager).items():
        if isinstance(v, torch.Tensor):
            same(getattr(mine, k).detach(), v.detach(), k, 1e-3, 1e-4)
    for k in want:
        same(got[k], want[k], k, 1e-3, 1e-4)
    eager.eval()
    compiled.eval()
    x = torch.randn(8, 6)
    same(compiled(x).detach(), eager(x).detach(), "eval", 1e-3, 1e-4)
    s = counts()
    if name != "batch_norm_cumulative":  # a Python number that every step changes
        assert not s.fallbacks
        assert s.recompiles <= 3, s
    if graphs:
        assert graphs <= s.joint_graphs <= graphs + 1 and not s.reasons, s  # train, and eval where it differs


def test_statistics_move_only_in_train_mode():
    m = nn.BatchNorm1d(3)
    f = magneto.compile(m)
    f(torch.randn(5, 3))
    before = m.running_mean.clone()
    m.eval()
    f(torch.randn(5, 3))
    assert torch.equal(before, m.running_mean) and m.num_batches_tracked == 1
    m.train()
    f(torch.randn(5, 3))
    assert m.num_batches_tracked == 2


@pytest.mark.parametrize("options", [{}, {"affine": False}])
def test_running_mean_of_all_batches(options):
    """momentum=None: the momentum is computed from a counter; nothing breaks in training, evaluation and a whole step."""
    torch.manual_seed(0)
    mine = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3, momentum=None, **options))
    eager = copy.deepcopy(mine)
    runs = []
    for m in (eager, mine):
        opt = torch.optim.SGD(m.parameters(), lr=0.1)

        def step(x, m=m, opt=opt):
            opt.zero_grad()
            loss = m(x).sin().sum()
            loss.backward()
            opt.step()
            return loss.detach()

        runs.append([step, m])
    runs[1] = [magneto.compile(f, fullgraph=True) for f in runs[1]]
    for i in range(4):
        mine.train(i != 2)
        eager.train(i != 2)
        x = torch.randn(5, 4)
        for f, g in zip(*runs):
            same(g(x).detach(), f(x).detach())
    for (name, p), q in zip(mine.state_dict().items(), eager.state_dict().values()):
        same(p, q, name)
