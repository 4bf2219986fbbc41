"""How many graphs a program takes on a fresh start: at most as many as with torch.compile, where that compiles it."""

import pytest
import torch
from torch import nn

import magneto
from support import assert_same, counts


class Experts(nn.Module):
    """Rows go to the experts that a gate chooses; only experts that some row has chosen run."""

    def __init__(self, named):
        super().__init__()
        self.gate, self.named, n = nn.Linear(8, 4), named, 4
        experts = [nn.Sequential(nn.Linear(8, 16), nn.SiLU(), nn.Linear(16, 8)) for _ in range(n)]
        if named:
            for i, e in enumerate(experts):
                self.add_module(f"expert_{i}", e)
        else:
            self.experts = nn.ModuleList(experts)

    def forward(self, x):
        weight, chosen = self.gate(x).softmax(-1).topk(2)
        out = torch.zeros_like(x)
        mask = nn.functional.one_hot(chosen, 4).permute(2, 1, 0)
        for e in mask.sum((-1, -2)).greater(0).nonzero():
            k, row = torch.where(mask[e[0]])
            expert = getattr(self, f"expert_{e[0]}") if self.named else self.experts[e[0]]
            out.index_add_(0, row, expert(x[row]) * weight[row, k, None])
        return out


class Decoder(nn.Module):
    """Viterbi of a conditional random field: as many steps back as a row has."""

    def __init__(self):
        super().__init__()
        self.step = nn.Parameter(torch.randn(5, 5))

    def forward(self, emission, mask):
        score, history = emission[0], []
        for i in range(1, len(emission)):
            best, at = (score[:, :, None] + self.step + emission[i][:, None]).max(1)
            score = torch.where(mask[i][:, None], best, score)
            history.append(at)
        ends, paths = mask.long().sum(0) - 1, []
        for b in range(mask.shape[1]):
            path = [score[b].argmax().item()]
            for at in reversed(history[: ends[b]]):
                path.append(at[b][path[-1]].item())
            paths.append(path[::-1])
        return paths


def lengths(n):
    mask = torch.zeros(6, len(n), dtype=torch.bool)
    for i, k in enumerate(n):
        mask[:k, i] = True
    return mask


def nested(a, b):
    rows = torch.nested.nested_tensor([a, b], layout=torch.jagged)
    return torch.stack([t.sum(0) for t in (rows.sin() * 2).unbind()])


PROGRAMS = {
    "experts in a list": (lambda: Experts(False), lambda: (torch.randn(12, 8),), 2),
    "experts by name": (lambda: Experts(True), lambda: (torch.randn(12, 8),), 2),
    "Viterbi": (Decoder, lambda: (torch.randn(6, 3, 5), lengths([6, 4, 5])), 1),
    "unbind of a nested tensor": (lambda: nested, lambda: (torch.randn(3, 4), torch.randn(5, 4)), 1),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_graphs_on_a_fresh_start(name):
    make, arguments, most = PROGRAMS[name]
    f = make()
    c = magneto.compile(f)
    with torch.no_grad():
        for i in range(4):
            args = arguments()
            assert_same(c(*args), f(*args), rtol=1e-5, atol=1e-6)
            if not i:
                assert counts().graphs <= most
