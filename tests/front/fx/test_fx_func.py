"""torch.func in graphs for a custom backend: the calls that torch.compile shows, and right results of every backend."""

import pytest
import torch
from torch.func import functional_call, grad, grad_and_value, hessian, jacfwd, jacrev, jvp, vjp, vmap

import magneto

LINEAR = torch.nn.Linear(4, 4)


class Ten(torch.autograd.Function):
    """Backward is on purpose no derivative."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx, g):
        return g * ctx.saved_tensors[0] * 10


def in_place(row):
    z = torch.zeros_like(row)
    z += row
    z[0] = 1
    return z


def pull(x):
    out, back = vjp(torch.sin, x)
    return out, back(x)


def per_sample(x):
    p = {k: v.detach() for k, v in LINEAR.named_parameters()}
    return vmap(grad(lambda p, x: (functional_call(LINEAR, p, (x,)) ** 2).sum()), in_dims=(None, 0))(p, x)


def plain_wrapped(x):  # a wrapper that nothing shown has made: the graph is ATen's
    return vmap(lambda a: torch._C._functorch.get_unwrapped(a).sum() + a)(x)


CASES = [
    (lambda x: grad(lambda x: x.sin().sum())(x), 14),
    (lambda x: grad(lambda x: (x.sin().sum(), x), has_aux=True)(x), 15),
    (lambda x: grad_and_value(lambda x, y: (x.sin() * y).sum(), argnums=(0, 1))(x, x + 1), 22),
    (lambda x: vmap(grad(grad(lambda t: t.sin())))(x[0]), 31),
    (lambda x: vmap(lambda a: vmap(lambda b: a.sum() + b)(x))(x), 12),
    (lambda x: vmap(lambda a, b: a * b, in_dims=(1, None), out_dims=1)(x, x[:, 0]), 7),
    (lambda x: vmap(lambda r: r.sin().sum(), chunk_size=2)(x), 17),
    (lambda x: vmap(in_place)(x), 8),
    (lambda x: vmap(lambda d: {"a": d["x"] + d["y"], "b": d["x"].sum()})({"x": x, "y": x}), 9),
    (lambda x: jvp(lambda x: x.sin().sum(), (x,), (x,)), 15),
    (pull, 12),
    (lambda x: jacrev(torch.sin)(x[0]), 25),
    (lambda x: jacfwd(torch.sin)(x[0]), 29),
    (lambda x: hessian(lambda x: x.sin().sum())(x[0]), 53),
    (per_sample, None),
    (plain_wrapped, None),
    (lambda x: grad(lambda x: Ten.apply(x).sum())(x), None),
    (lambda x: vmap(grad(lambda x: Ten.apply(x).sum()))(x), None),
]


def leaves(o):
    return torch.utils._pytree.tree_leaves(o)


@pytest.mark.parametrize("f, ops", CASES)
def test_calls_and_results(f, ops):
    from torch._dynamo.testing import CompileCounter

    counter, x = CompileCounter(), torch.randn(3, 4)
    want = leaves(f(x))
    compiled = magneto.compile(f, backend=counter, fullgraph=True)
    for _ in range(2):
        assert all(map(torch.allclose, leaves(compiled(x)), want))
    assert counter.frame_count == 1
    assert ops in (None, counter.op_count) or torch.__version__ < "2.12"  # transforms made other calls there
    assert all(map(torch.allclose, leaves(magneto.compile(f, backend="aot_eager", fullgraph=True)(x)), want))


def test_gradients_through_a_transform_are_the_users():
    x = torch.randn(3, 4, requires_grad=True)
    f = magneto.compile(lambda x: vmap(Ten.apply)(x).sin(), backend="eager", fullgraph=True)
    (got,), (want,) = (
        torch.autograd.grad(f(x).sum(), x),
        torch.autograd.grad(vmap(Ten.apply)(x).sin().sum(), x),
    )
    assert torch.allclose(got, want)
