"""autograd.Function and checkpoints, as Dynamo hands them to the back end "magneto": parts of the graph."""

import functools

import pytest
import torch
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

import magneto  # noqa: F401  # registers the back end
from magneto import _magneto
from support import assert_counts, assert_same


class Weighted(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x.square() * w

    @staticmethod
    def backward(ctx, grad):
        x, w = ctx.saved_tensors
        return 3 * grad * x * w, (grad * x * x).sum()  # 3: nobody else's gradient


class Marked(torch.autograd.Function):
    """Attributes of ctx, results that nobody differentiates, several results."""

    @staticmethod
    def forward(ctx, x, scale):
        ctx.scale, ctx.middle = scale, x.cos()
        y, index = x.sin() * scale, x.argmax()
        ctx.mark_non_differentiable(index)
        return y, index, x + 1

    @staticmethod
    def backward(ctx, grad, _, other):
        return 5 * grad * ctx.middle * ctx.scale + other, None


class Clamped(torch.autograd.Function):
    """Writes to its argument."""

    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        x.clamp_(-1, 1)
        return x

    @staticmethod
    def backward(ctx, grad):
        return 7 * grad


class Straight(torch.autograd.Function):
    """Saves an intermediate result; one argument may need no gradient."""

    @staticmethod
    def forward(ctx, x, step):
        q = torch.round(x / step)
        ctx.save_for_backward(q.abs() < 3, step)
        return q * step

    @staticmethod
    def backward(ctx, grad):
        inside, step = ctx.saved_tensors
        return grad * inside, (grad * step).sum() if ctx.needs_input_grad[1] else None


def marked(x, w):
    y, index, z = Marked.apply(x * w, 0.5)
    return y.sum() + z.square().sum() + index, index


def block(x, w, scale=1.0):
    return torch.tanh(x * w) * scale + torch.nn.functional.dropout(x, 0.5)


def selective(x, w):
    save = functools.partial(create_selective_checkpoint_contexts, [torch.ops.aten.mm.default])
    return checkpoint(lambda x: (x @ x.mT).sin() * w, x, use_reentrant=False, context_fn=save).sum()


PROGRAMS = {
    "saved tensors": lambda x, w: Weighted.apply(x.sin(), w).sum(),
    "twice": lambda x, w: Weighted.apply(Weighted.apply(x, w), w).sum(),
    "attributes and marks": marked,
    "writes": lambda x, w: (Clamped.apply(x * 2) * w).sum(),
    "an intermediate": lambda x, w: Straight.apply(x, w.detach().abs()).sum() + Straight.apply(x, w).sum(),
    "a checkpoint": lambda x, w: checkpoint(block, x, w, use_reentrant=False).sum(),
    "two checkpoints": lambda x, w: checkpoint(
        block, checkpoint(block, x, w, scale=2.0, use_reentrant=False), w, use_reentrant=False
    ).sum(),
    "a selective checkpoint": selective,
    "a function in a checkpoint": lambda x, w: checkpoint(Weighted.apply, x, w, use_reentrant=False).sum(),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_they_are_part_of_the_graph(name):
    f = PROGRAMS[name]
    torch._dynamo.reset()
    _magneto.reset()
    compiled = torch.compile(f, backend="magneto", fullgraph=True)
    torch.manual_seed(0)
    for n in (4, 4, 6):
        results = []
        x, w = torch.randn(n, 3), torch.randn(())
        for run in (f, compiled):
            leaves = [x.clone().requires_grad_(), w.clone().requires_grad_()]
            torch.manual_seed(n)
            result = run(*leaves)
            (result[0] if isinstance(result, tuple) else result).backward()
            results.append([result, [leaf.grad for leaf in leaves]])
        assert_same(*results, rtol=1e-5, atol=1e-6)
    assert_counts(breaks=0, joint_graphs=None, graphs=None)


def test_without_gradients():
    torch._dynamo.reset()
    _magneto.reset()
    compiled = torch.compile(PROGRAMS["twice"], backend="magneto")
    x, w = torch.randn(4, 3), torch.tensor(2.0)
    for _ in range(2):
        assert_same(compiled(x, w), PROGRAMS["twice"](x, w), rtol=1e-5, atol=1e-6)
    assert_counts(breaks=0)
