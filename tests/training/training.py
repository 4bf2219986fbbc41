"""Comparing a compiled function with eager under autograd: results, gradients, layouts, what was compiled."""

import copy

import torch

import magneto
from support import assert_counts, assert_same, tensors


def same(got, want, what="value", rtol=1e-4, atol=1e-5, **options):
    """assert_same with the tolerances of gradients."""
    assert_same(got, want, what, rtol=rtol, atol=atol, **options)


def assert_same_on_both_ranks(want, got):
    """Parameters as eager's, and equal to the bit on the two processes."""
    for p, q in zip(want, got, strict=True):
        torch.testing.assert_close(q, p)
        others = [torch.empty_like(q) for _ in range(2)]
        torch.distributed.all_gather(others, q)
        assert torch.equal(others[0], others[1])


def clone(t):
    """An equal leaf in the same layout."""
    return t.detach().clone().requires_grad_(t.requires_grad)


def backward(outs, seed):
    """Runs backward from the results that require grad with reproducible tangents."""
    g = torch.Generator().manual_seed(seed)
    outs = [t for t in outs if t.requires_grad]
    if outs:
        torch.autograd.backward(outs, [torch.randn(t.shape, generator=g, dtype=t.dtype) for t in outs])


def check(f, *args, calls=3, graphs=1, joint=1, breaks=0, rtol=1e-4, atol=1e-5, **options):
    """Calls f eagerly and compiled on equal leaves, and backward from all results; returns the compiled function."""
    compiled = magneto.compile(f, **options)
    for i in range(calls):
        a, b = ([clone(t) if isinstance(t, torch.Tensor) else t for t in args] for _ in range(2))
        torch.manual_seed(i)
        want = f(*a)
        torch.manual_seed(i)
        got = compiled(*b)
        w, g = tensors(want), tensors(got)
        assert len(w) == len(g)
        for k, (x, y) in enumerate(zip(g, w)):
            same(x, y, f"call {i}, result {k}", rtol, atol)
        backward(w, i)
        backward(g, i)
        for k, (x, y) in enumerate(zip(b, a)):
            if isinstance(x, torch.Tensor):
                same(x.detach(), y.detach(), f"call {i}, argument {k}")
                same(x.grad, y.grad, f"call {i}, gradient {k}", rtol, atol)
                assert x._version == y._version, f"version of argument {k}"
    expected = {} if graphs is None else dict(graphs=graphs, joint_graphs=joint, breaks=breaks)
    assert_counts(**expected)
    return compiled


def check_module(make, args, steps=3, graphs=1, joint=1, loss=None, lr=0.05, rtol=1e-4, atol=1e-5, **options):
    """Trains two copies of a module by plain SGD; parameters and buffers stay equal to eager's."""
    torch.manual_seed(0)
    eager = make()
    mine = copy.deepcopy(eager)
    compiled = magneto.compile(mine, **options)
    loss = loss or (lambda out: sum(t.float().pow(2).mean() for t in tensors(out) if t.requires_grad))
    for i in range(steps):
        got = []
        for model, call in ((eager, eager), (mine, compiled)):
            torch.manual_seed(i)
            model.zero_grad()
            out = call(*args)
            value = loss(out)
            value.backward()
            got.append((tensors(out), value.detach()))
            with torch.no_grad():
                for p in model.parameters():
                    if p.grad is not None:
                        p.sub_(p.grad, alpha=lr)
        for k, (x, y) in enumerate(zip(*[g[0] for g in reversed(got)])):
            same(x.detach(), y.detach(), f"step {i}, result {k}", rtol, atol)
        for (n, p), (_, q) in zip(mine.named_parameters(), eager.named_parameters()):
            same(p.grad, q.grad, f"step {i}, gradient of {n}", rtol, atol)
            same(p.detach(), q.detach(), f"step {i}, {n}", rtol, atol)
        for (n, p), (_, q) in zip(mine.named_buffers(), eager.named_buffers()):
            same(p, q, f"step {i}, {n}", rtol, atol)
    assert_counts(**({} if graphs is None else dict(graphs=graphs, joint_graphs=joint)))
    return compiled
