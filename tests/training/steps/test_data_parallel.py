"""DistributedDataParallel: gradients leave a compiled backward pass while the rest of it is still to run, so that their reduction
overlaps with it; parameters as eager's, on two processes."""

from __future__ import annotations

import os

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import magneto
from support import assert_rounding, counts
from training import assert_same_on_both_ranks

pytestmark = pytest.mark.skipif(
    not dist.is_available() or not dist.is_gloo_available(), reason="torch without gloo"
)
events = []


@torch.library.custom_op("overlap_test::mark", mutates_args=())
def mark(x: torch.Tensor, n: int) -> torch.Tensor:
    return x.clone()


@torch.library.custom_op("overlap_test::mark_backward", mutates_args=())
def mark_backward(x: torch.Tensor, n: int) -> torch.Tensor:
    events.append(f"layer {n}")
    return x.clone()


mark.register_fake(lambda x, n: torch.empty_like(x))
mark_backward.register_fake(lambda x, n: torch.empty_like(x))
mark.register_autograd(
    lambda ctx, g: (mark_backward(g, ctx.n), None),
    setup_context=lambda ctx, inputs, output: setattr(ctx, "n", inputs[1]),
)


class Chain(nn.Module):
    """Four layers that tell when their backward pass is through; the second is used on demand."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(4))

    def forward(self, x, second=True):
        for i, layer in enumerate(self.layers):
            if second or i != 1:
                x = torch.ops.overlap_test.mark(layer(x).relu(), i)
        return x


def reduce(state, bucket):
    events.append("reduce")
    return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(mean)


def mean(future):
    return future.value()[0] / dist.get_world_size()


KINDS = {
    "plain": {},
    "views": {"gradient_as_bucket_view": True},
    "unused": {"find_unused_parameters": True},
    "static": {"static_graph": True},
}


def run(kind, where, rank, cap=0.001, forward=None):
    """Eight steps; the parameters, and the events of the last step."""
    from torch.nn.parallel import DistributedDataParallel as DDP

    m = Chain()
    wrap = magneto.compile if where != "eager" else (lambda f: f)
    d = DDP(wrap(m) if where == "inside" else m, bucket_cap_mb=cap, **KINDS[kind])
    d.register_comm_hook(None, magneto.disable(reduce))
    f = wrap(d) if where == "outside" else d
    opt = torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9)

    def step(x, y, second):
        F.cross_entropy(f(x, second), y).backward()
        opt.step()
        opt.zero_grad()

    if where == "step":
        step = magneto.compile(step)
    g = torch.Generator().manual_seed(rank)
    for i in range(8):
        x, y = torch.randn(8, 16, generator=g), torch.randint(0, 16, (8,), generator=g)
        events.clear()
        if i == 5 and kind != "static":
            with d.no_sync():
                F.cross_entropy(f(x), y).backward()
            assert "reduce" not in events
        step(x, y, kind != "unused" or i % 2 == 0)
    return [p.detach().clone() for p in m.parameters()], list(events)


def worker(rank, file):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=2)
    for kind in KINDS:
        want, _ = run(kind, "eager", rank)
        for where in ("inside", "outside", "step"):
            magneto.reset()
            got, order = run(kind, where, rank)
            s = counts()
            assert s.joint_graphs and not s.fallbacks, (kind, where, s)
            assert "layer 0" in order[1:] and "reduce" in order[: order.index("layer 0")], (
                kind,
                where,
                order,
            )
            assert order.count("reduce") >= 3, (kind, where, order)
            assert_same_on_both_ranks(want, got)
    dist.destroy_process_group()


def test_reduction_overlaps_with_backward(tmp_path):
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    torch.multiprocessing.spawn(worker, (str(tmp_path / "store"),), nprocs=2)


@pytest.fixture
def alone(tmp_path):
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def wrapped(m, **options):
    return nn.parallel.DistributedDataParallel(magneto.compile(m), bucket_cap_mb=0.001, **options)


def nodes(t):
    """Nodes of the compiled backward in the gradient graph of t."""
    seen, todo = set(), [t.grad_fn]
    while todo:
        f = todo.pop()
        if f is not None and f not in seen:
            seen.add(f)
            todo += [n for n, _ in f.next_functions]
    return sum(type(f).__name__ == "MagnetoBackward" for f in seen)


def test_parts_of_backward_are_asked_for_one_by_one(alone):
    m, x = Chain(), torch.randn(8, 16)
    want = torch.autograd.grad(m(x).square().sum(), list(m.parameters()))
    d = wrapped(m)
    loss = d(x).square().sum()
    assert nodes(loss) == 4
    some = [m.layers[3].weight, m.layers[2].bias]
    events.clear()
    with d.no_sync():
        got = torch.autograd.grad(loss, some, retain_graph=True)
    assert events == ["layer 3", "layer 2"]
    torch.testing.assert_close(got, (want[6], want[5]))
    for _ in range(2):  # a graph that is kept runs again, and its parts with it
        torch.testing.assert_close(torch.autograd.grad(loss, list(m.parameters()), retain_graph=True), want)
    torch.testing.assert_close(torch.autograd.grad(loss, list(m.parameters())), want)
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        loss.backward()


def test_parts_under_create_graph_and_anomaly_mode(alone):
    m, x = Chain(), torch.randn(8, 16)

    def penalty(f, p, x):
        grads = torch.autograd.grad(f(x).square().sum(), p, create_graph=True)
        return torch.autograd.grad(sum(g.square().sum() for g in grads), p)

    def eager(p, x):
        return penalty(
            lambda x: F.linear(F.linear(x, *p[:2]).tanh(), *p[2:4]) + sum(q.sum() for q in p[4:]), p, x
        )

    p = list(m.parameters())
    want, exact = eager(p, x), eager([q.detach().double().requires_grad_() for q in p], x.double())

    class Smooth(Chain):
        def forward(self, x):
            a, b, c, d = self.layers
            return b(a(x).tanh()) + c.weight.sum() + c.bias.sum() + d.weight.sum() + d.bias.sum()

    smooth = Smooth()
    smooth.load_state_dict(m.state_dict())
    p = list(smooth.parameters())
    d = wrapped(smooth)
    assert nodes(d(x)) > 1
    for g, w, e in zip(penalty(d, p, x), want, exact):
        assert_rounding(g, w, e)
    with torch.autograd.detect_anomaly(check_nan=False):
        d(x).sum().backward()
    assert all(t.grad is not None for t in p)


def test_a_large_bucket_is_one_part(alone):
    d = nn.parallel.DistributedDataParallel(magneto.compile(Chain()))
    assert nodes(d(torch.randn(8, 16))) == 1


@pytest.mark.parametrize("cap", [0.01, 25])
def test_a_hook_sees_the_buckets_of_eager(cap, alone):
    """Buckets are made of gradients that come one after another, and hooks as PowerSGD's compute by bucket."""

    def buckets(wrap):
        torch.manual_seed(0)
        m = nn.Sequential(
            nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 64), nn.LayerNorm(64), nn.ReLU(), nn.Linear(64, 4)
        )
        d = nn.parallel.DistributedDataParallel(wrap(m), bucket_cap_mb=cap)
        name, seen = {id(p): n for n, p in m.named_parameters()}, []

        def note(state, bucket):
            seen.append([name[id(p)] for p in bucket.parameters()])
            return reduce(state, bucket)

        d.register_comm_hook(None, magneto.disable(note))
        for _ in range(3):
            d(torch.ones(6, 32)).square().sum().backward()
        return seen, [p.grad for p in m.parameters()]

    want, grads = buckets(lambda m: m)
    got, ours = buckets(magneto.compile)
    assert got == want
    torch.testing.assert_close(ours, grads)
