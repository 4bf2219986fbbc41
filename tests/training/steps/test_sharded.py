"""FSDP2: compiled modules whose parameters are sharded over two processes train as in eager."""

from __future__ import annotations

import os

import pytest
import torch
import torch.distributed as dist
from torch import nn

import magneto
from support import counts

pytestmark = pytest.mark.skipif(
    not dist.is_available() or not dist.is_gloo_available(), reason="torch without gloo"
)


def train(where, rank, mesh, cls=torch.optim.SGD, **options):
    """Losses of five steps, and the whole parameters after them."""
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(0)
    m = nn.Sequential(
        nn.Linear(8, 16),
        nn.Tanh(),
        nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.LayerNorm(16)),
        nn.Linear(16, 4),
    )
    for part in (m[0], m[2], m):
        fully_shard(part, mesh=mesh, **options)
    f = magneto.compile(m) if where == "outside" else m
    opt = cls(m.parameters(), lr=0.01)

    def step(x):
        opt.zero_grad()
        loss = f(x).pow(2).mean()
        loss.backward()
        opt.step()
        return loss.detach()

    if where == "step":
        step = magneto.compile(step)
    g = torch.Generator().manual_seed(rank)
    losses = [step(torch.randn(6, 8, generator=g)) for _ in range(5)]
    return losses, [p.full_tensor().detach() for p in m.parameters()]


def worker(rank, file):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=2)
    mesh = dist.device_mesh.init_device_mesh("cpu", (2,))
    cases = [("outside", {"cls": torch.optim.Adam}), ("step", {"reshard_after_forward": False})]
    for where, options in cases:
        want = train("eager", rank, mesh, **options)
        magneto.reset()
        got = train(where, rank, mesh, **options)
        s = counts()
        assert s.joint_graphs and not s.fallbacks, (where, s)
        torch.testing.assert_close(got, want)
    dist.destroy_process_group()


def test_parameters_of_two_processes(tmp_path):
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    torch.multiprocessing.spawn(worker, (str(tmp_path / "store"),), nprocs=2)
