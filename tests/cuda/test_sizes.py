"""Sizes that change on a GPU: graphs with symbols are captured for the sizes that come again."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import magneto

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.usefixtures("compiled_kernels"),
]


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(64), nn.Linear(64, 192), nn.Linear(64, 64)

    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).reshape(*x.shape[:2], 3, 4, 16).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + F.gelu(self.out(y.transpose(1, 2).reshape(x.shape)))


def close(got, want):
    torch.testing.assert_close(got, want, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("dynamic", [None, True])
def test_sizes_that_come_again_are_replayed(dynamic, graph_counts):
    net = nn.Sequential(Block(), Block()).cuda().eval()
    compiled, kept = magneto.compile(net, dynamic=dynamic), []
    with torch.no_grad():
        for turn in range(6):
            for n in (32, 17, 32, 48):
                x = torch.randn(2, n, 64, device="cuda") + turn
                y = compiled(x)
                close(y, net(x))
                kept.append((y, y.clone()))
    assert all(torch.equal(a, b) for a, b in kept)
    captures, replays = graph_counts()
    assert 0 < captures <= 4 and replays >= 12


def test_sizes_that_never_come_again_are_not_captured(graph_counts):
    net = Block().cuda().eval()
    compiled = magneto.compile(net, dynamic=True)
    with torch.no_grad():
        for n in range(8, 60):
            x = torch.randn(1, n, 64, device="cuda")
            close(compiled(x), net(x))
    assert graph_counts() == (0, 0)


def test_training_with_a_smaller_last_batch(graph_counts):
    net = nn.Sequential(Block(), nn.Linear(64, 8)).cuda()
    other = copy.deepcopy(net)
    sizes = [8, 8, 8, 5] * 5
    data = [torch.randn(n, 16, 64, device="cuda") for n in sizes]

    def train(net):
        optimizer = torch.optim.SGD(net.parameters(), 0.05)
        losses = []
        for x in data:
            loss = net(x).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.detach())
        return torch.stack(losses)

    close(train(magneto.compile(other)), train(net))
    for a, b in zip(other.parameters(), net.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-2, atol=1e-3)
    assert graph_counts()[1] >= 20


def test_backward_after_other_sizes():
    """What forward saved for one size outlives the graphs of others."""
    net = Block().cuda()
    compiled = magneto.compile(net, dynamic=True)
    for turn in range(5):
        xs = [torch.randn(2, n, 64, device="cuda") for n in (8, 12, 8, 20, 12)]
        losses = [compiled(x).square().sum() for x in xs]
        wants = [net(x).square().sum() for x in xs]
        for a, b in zip(reversed(losses), reversed(wants), strict=True):
            got, want = (torch.autograd.grad(v, net.qkv.weight)[0] for v in (a, b))
            torch.testing.assert_close(got, want, rtol=1e-2, atol=1e-2)
        del losses, turn


def test_many_sizes_keep_few_graphs(graph_counts):
    f = magneto.compile(lambda x: (F.gelu(x) * 2).sum(-1), dynamic=True)
    before = torch.cuda.memory_allocated()
    for turn in range(4):
        for n in range(2, 40):
            for _ in range(2):
                x = torch.full((n, 1000), float(turn), device="cuda")
                close(f(x), (F.gelu(x) * 2).sum(-1))
    del x
    assert graph_counts()[0] <= 10
    assert torch.cuda.memory_allocated() - before < 8 << 20
