"""Collectives, tensor parallelism and checkpoints of compiled modules, on two processes: eager's results, few graphs."""

from __future__ import annotations

import os

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import magneto
from support import assert_counts, counts

pytestmark = pytest.mark.skipif(
    not dist.is_available() or not dist.is_gloo_available(), reason="torch without gloo"
)


def functional_calls(rank, group):
    import torch.distributed._functional_collectives as functional

    def f(x, unused):
        a = functional.all_reduce(x * 2, "sum", group)
        rows = functional.all_gather_single(a + rank, 0, group)
        part = functional.reduce_scatter_single(rows.sin(), "sum", 0, group)
        swapped = functional.all_to_all_single(part * 1, None, None, group)
        only_here = functional.broadcast(swapped + rank, 0, group)
        return (a + 1, rows * 2, part, swapped) if unused else (a + 1, rows * 2, part, only_here)

    return f, (torch.ones(4, 3) * (rank + 1), rank == 0)


def functional_gradients(rank, group):
    import torch.distributed._functional_collectives as functional

    def f(x):
        rows = functional.all_gather_single_autograd(x * 2, 0, group).sin() * 3
        return rows.sum() + functional.reduce_scatter_single_autograd(x.cos(), "sum", 0, group).sum()

    def run(x):
        x = x.clone().requires_grad_()
        loss = wrapped(x)
        loss.backward()
        return loss.detach(), x.grad

    wrapped = f

    def compiled(x):
        nonlocal wrapped
        wrapped = magneto.compile(f, fullgraph=True)
        try:
            return run(x)
        finally:
            wrapped = f

    run.compiled = compiled
    return run, (torch.arange(8.0).view(4, 2) * (rank + 1),)


def calls_that_write(rank, group):
    def f(x):
        y, z = x * 2, x.clone()
        dist.all_reduce(y)
        dist.all_reduce(z, op=dist.ReduceOp.MAX, group=group)
        rows = [torch.empty_like(x) for _ in range(2)]
        dist.all_gather(rows, y + rank)
        whole = torch.empty(x.shape[0] * 2, 3)
        dist.all_gather_single(whole, x.sin())
        part, swapped = torch.empty(x.shape[0] // 2, 3), torch.empty_like(x)
        dist.reduce_scatter_single(part, x * 3)
        dist.all_to_all_single(swapped, x + rank)
        w = x + 10 * rank
        dist.broadcast(w, 1)
        return y + 1, z, rows[0] + rows[1], whole, part, swapped, w

    return f, (torch.arange(12.0).view(4, 3) * (rank + 1),)


def writes_to_an_argument(rank, group):
    def f(x):
        x.mul_(2)
        dist.all_reduce(x[1:3])
        return x.sum()

    return f, (torch.arange(12.0).view(4, 3) * (rank + 1),)


def questions_to_a_group(rank, group):
    def f(x):
        return x * (group.rank() + 1) / group.size() + dist.get_rank() + dist.get_world_size(group)

    return f, (torch.ones(3),)


WHOLE = (
    functional_calls,
    functional_gradients,
    calls_that_write,
    writes_to_an_argument,
    questions_to_a_group,
)


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.w1, self.w2 = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x):
        return self.w2(F.relu(self.w1(x)))


def steps(m, wrap, whole, cls=torch.optim.SGD):
    """Losses of four steps and the whole parameters after them."""
    f, opt = (m if whole else wrap(m)), cls(m.parameters(), lr=0.05)

    def step(x):
        opt.zero_grad()
        loss = f(x).square().mean()
        loss.backward()
        opt.step()
        return loss.detach()

    step = wrap(step) if whole else step
    g = torch.Generator().manual_seed(7)
    losses = [step(torch.randn(4, 8, generator=g)) for _ in range(4)]
    return losses, [getattr(p, "full_tensor", lambda p=p: p)().detach() for p in m.parameters()]


def column_and_row(mesh, wrap, whole, **options):
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    torch.manual_seed(0)
    m = nn.Sequential(MLP(), nn.LayerNorm(8), MLP())
    for block in (m[0], m[2]):
        parallelize_module(block, mesh, {"w1": ColwiseParallel(), "w2": RowwiseParallel()})
    return steps(m, wrap, whole, **options)


def sequence(mesh, wrap, whole):
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor import parallel as tp

    torch.manual_seed(0)
    m = nn.Sequential(nn.LayerNorm(8), MLP())
    plan = {
        "0": tp.SequenceParallel(sequence_dim=0),
        "1": tp.PrepareModuleInput(input_layouts=Shard(0), desired_input_layouts=Replicate()),
        "1.w1": tp.ColwiseParallel(),
        "1.w2": tp.RowwiseParallel(output_layouts=Replicate()),
    }
    tp.parallelize_module(m, mesh, plan)
    return steps(m, wrap, whole)


def checkpoint(mesh, wrap, folder):
    """Two steps, saved; loaded into another model, which then trains as the first does."""
    import torch.distributed.checkpoint as checkpoints
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
    from torch.distributed.fsdp import fully_shard

    def make(seed):
        torch.manual_seed(seed)
        m = MLP()
        fully_shard(m, mesh=mesh)
        return m, wrap(m), torch.optim.AdamW(m.parameters(), lr=0.1)

    def step(f, opt):
        opt.zero_grad()
        f(torch.ones(4, 8) * (dist.get_rank() + 1)).square().mean().backward()
        opt.step()

    first, f, opt = make(0)
    step(f, opt)
    step(f, opt)
    model, optimizer = get_state_dict(f, opt)
    assert set(model) == {"w1.weight", "w1.bias", "w2.weight", "w2.bias"}
    checkpoints.save({"model": model, "optimizer": optimizer}, checkpoint_id=folder)
    second, g, opt2 = make(5)
    step(g, opt2)
    model, optimizer = get_state_dict(g, opt2)
    state = {"model": model, "optimizer": optimizer}
    checkpoints.load(state, checkpoint_id=folder)
    set_state_dict(g, opt2, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    step(f, opt)
    step(g, opt2)
    for p, q in zip(first.parameters(), second.parameters()):
        torch.testing.assert_close(p.full_tensor(), q.full_tensor())
    return [p.full_tensor().detach() for p in second.parameters()]


def check_whole(rank, group):
    for make in WHOLE:
        f, args = make(rank, group)
        want = f(*(a.clone() if isinstance(a, torch.Tensor) else a for a in args))
        magneto.reset()
        compiled = getattr(f, "compiled", None) or magneto.compile(f, fullgraph=True)
        for _ in range(2):
            given = [a.clone() if isinstance(a, torch.Tensor) else a for a in args]
            torch.testing.assert_close(
                compiled(*given), want, msg=lambda text, make=make: f"{make.__name__}: {text}"
            )
        assert_counts(graphs=1, breaks=0)


def check_groups(rank, group):
    """Another group is another entry; what is asynchronous or has gradients stays as it is."""

    def f(x, group):
        dist.all_reduce(x, group=group)
        return x * group.size()

    alone = dist.new_group([0]), dist.new_group([1])
    compiled = magneto.compile(f)
    for g in (group, alone[rank], group):
        torch.testing.assert_close(compiled(torch.ones(2) + rank, g), f(torch.ones(2) + rank, g))

    def later(x):
        work = dist.all_reduce(x, async_op=True)
        work.wait()
        return x + 1

    torch.testing.assert_close(magneto.compile(later)(torch.ones(2) + rank), torch.full((2,), 4.0))


def check_sizes(rank, group):
    f, _ = calls_that_write(rank, group)
    magneto.reset()
    compiled = magneto.compile(f, fullgraph=True)
    for n in (4, 6, 8, 10, 2):
        x = torch.randn(n, 3)
        torch.testing.assert_close(compiled(x), f(x))
    assert counts().graphs <= 3, counts()

    def wrong(x):
        dist.all_gather_single(torch.empty(8, 1), x)

    for f in (wrong, magneto.compile(wrong)):
        with pytest.raises(RuntimeError, match="invalid tensor size"):
            f(torch.ones(4, 3))


def check_exceptions(rank, group):
    """The recording that is told it is none does not meet tensors that wait."""
    import torch.distributed._functional_collectives as functional

    def f(x):
        try:
            y = functional.all_reduce(x * 2, "sum", group) + 1
            return {}["absent"] + y
        finally:
            x.add_(1)

    for _ in range(2):
        x = torch.ones(3)
        with pytest.raises(KeyError, match="absent"):
            magneto.compile(f)(x)
        assert x.tolist() == [2.0] * 3


def check_parallel(rank, mesh):
    cases = [
        (column_and_row, {"whole": False}, 1),
        (column_and_row, {"whole": True, "cls": torch.optim.Adam}, 2),
        (sequence, {"whole": False}, 1),
    ]
    for make, options, graphs in cases:
        want = make(mesh, lambda f: f, **options)
        magneto.reset()
        torch.testing.assert_close(make(mesh, magneto.compile, **options), want)
        s = counts()
        assert s.graphs <= graphs and not s.fallbacks, (make.__name__, options, s)


def worker(rank, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    mesh = dist.device_mesh.init_device_mesh("cpu", (2,))
    check_whole(rank, mesh.get_group())
    check_groups(rank, mesh.get_group())
    check_sizes(rank, mesh.get_group())
    check_exceptions(rank, mesh.get_group())
    check_parallel(rank, mesh)
    want = checkpoint(mesh, lambda f: f, f"{folder}/eager")
    torch.testing.assert_close(checkpoint(mesh, magneto.compile, f"{folder}/compiled"), want)
    dist.destroy_process_group()


def test_two_processes(tmp_path):
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    torch.multiprocessing.spawn(worker, (str(tmp_path),), nprocs=2)
