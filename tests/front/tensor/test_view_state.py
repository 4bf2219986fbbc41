"""What tensors are beside their memory: version counters, views and bases, inference tensors, nodes of the gradient graph, `.data`."""

import pytest
import torch

import magneto
from support import assert_same


def plain():
    return (torch.arange(12.0).view(3, 4),)


def leaf():
    return (torch.arange(12.0).view(3, 4).requires_grad_(),)


def result():
    return (torch.arange(12.0).view(3, 4).requires_grad_() * 1,)


def older():
    return (torch.zeros(3, 4).add_(1).add_(1),)


def view():
    return (torch.arange(16.0).view(4, 4)[1:],)


def weights():
    return torch.arange(12.0).view(3, 4).clone(), torch.arange(4.0).requires_grad_()


def two_leaves():
    return torch.arange(1.0, 13).view(3, 4).requires_grad_(), torch.arange(4.0).requires_grad_()


def pair():
    y = torch.zeros(3, 4)
    return y, y[0], torch.arange(4.0).requires_grad_()


def versions(x):
    a = x._version
    x.add_(1)
    b = x._version
    x[0].mul_(2)
    return a, b, x._version, x[0]._version, x.detach()._version, x.data._version


def decided_by_version(x):
    return x + 1 if x._version == 2 else x - 1


def versions_over_a_break(x):
    x.add_(1).mul_(2)
    magneto.graph_break()
    x.add_(1)
    return x._version


def foreach(x):
    torch._foreach_add_([x], 1.0)
    torch._foreach_addcmul_([x], [x], [x])
    return x._version


def through_data(p):
    p.data.add_(1)
    p.data[0] = 2
    return p._version


def through_numpy(x):
    n = x.numpy()
    n += 1
    return x * 2, x._version


def views(x):
    y = x * 2
    v = y[1]
    return (
        x._is_view(),
        x._base is None,
        x[0]._is_view(),
        y._is_view(),
        v._base is y,
        v[1:]._base is y,
        y.detach()._is_view(),
    )


def base(x):
    x._base.add_(1)
    return x._base is x._base, x[0]._base is x._base, x * 2, x._base


def same_data(x):
    y, z = x * 2, x + 1
    y.data = z
    y.add_(1)
    return y, z, y is z


def detached(x):
    x.detach_()
    return x.requires_grad, x * 2


def write_to_a_view(y, w):
    v, u = y[0], y[1:]
    magneto.graph_break()
    v.copy_(w * 2)
    magneto.graph_break()
    return y.sum(), u.sum(), v


def write_to_a_base(y, w):
    v = y[0]
    magneto.graph_break()
    y.mul_(2).add_(w)
    return v.sum(), v


def view_of_a_result(y, w):
    z = torch.zeros(3, 4) + 1
    v = z[0]
    magneto.graph_break()
    v.mul_(w)
    return z.sum(), v


def view_of_a_tracked_result(y, w):
    z = y * 2
    v = z[0]
    magneto.graph_break()
    z.mul_(w)
    magneto.graph_break()
    return v.sum(), z


def view_as_argument(y, v, w):
    v.copy_(w * 2)
    return y.sum(), y


def names(x):
    y = x * 2
    z = y.sum()
    node, _ = z.grad_fn.next_functions[0]
    return (
        y.grad_fn.name(),
        type(z.grad_fn).__name__,
        node.name(),
        node is y.grad_fn,
        node.next_functions[0][0].name(),
        z,
    )


def retained(x):
    x.retain_grad()
    return (x * x).sum(), x.retains_grad


def overlapping_write(x):
    y = x.view(-1).unfold(0, 3, 1)
    y.add_(1)
    y.mul_(2)
    return y


def set_to(x):
    return x.contiguous().is_set_to(x), x[:].is_set_to(x), x[1:].is_set_to(x), (x * 1).is_set_to(x)


def conjugates(x):
    y = torch.complex(x, x + 1) * 2
    return y.conj(), y, y.conj().is_conj(), y.is_conj()


CASES = [
    (versions, plain), (versions, older), (versions, result), (decided_by_version, older), (decided_by_version, plain),
    (versions_over_a_break, older), (versions_over_a_break, result), (foreach, older), (through_data, leaf), (through_numpy, older),
    (views, plain), (views, view), (base, view), (same_data, plain), (detached, plain), (detached, leaf), (detached, result),
    (write_to_a_view, weights), (write_to_a_base, weights), (view_of_a_result, weights), (view_of_a_tracked_result, two_leaves),
    (view_as_argument, pair), (names, leaf), (retained, result), (overlapping_write, plain), (set_to, view),
    (conjugates, plain),
]  # fmt: skip


def state(o):
    if isinstance(o, torch.Tensor):
        return (
            o.detach().clone(),
            o.requires_grad,
            o.is_leaf,
            o.is_inference(),
            o.stride(),
            None if not o.is_leaf else o.grad,
        )
    return [state(x) for x in o] if isinstance(o, (tuple, list)) else o


def run(fn, make):
    args = make()
    try:
        got = fn(*args)
    except RuntimeError as e:
        return str(e)
    tracked = [o for o in got if isinstance(o, torch.Tensor) and o.grad_fn] if isinstance(got, tuple) else []
    for o in tracked:
        o.sum().backward(retain_graph=True)
    return state(got), state(args), [a._version for a in args if not a.is_inference()]


@pytest.mark.parametrize("fn,make", CASES, ids=[f"{f.__name__}-{m.__name__}" for f, m in CASES])
def test_like_eager(fn, make):
    opt = magneto.compile(fn)
    for _ in range(3):
        got, want = run(opt, make), run(fn, make)
        assert_same(got, want, rtol=0, atol=0)


def test_view_state_is_part_of_one_graph():
    for fn, make in (
        (versions, older),
        (decided_by_version, plain),
        (views, view),
        (names, leaf),
        (through_data, leaf),
    ):
        magneto.compile(fn, fullgraph=True)(*make())


def inside(x):
    with torch.inference_mode():
        y = x * 2
        with torch.inference_mode(False):
            z = x * 3
        v = y[0]
    return y, z, v, y.is_inference(), z.is_inference(), y[1].is_inference(), x[0].is_inference(), y + 1


def saved(x):
    with torch.inference_mode():
        y = x.detach() * 2
    return x * y


def written(x):
    with torch.inference_mode():
        y = x * 2
    y.add_(1)
    return y


def version(x):
    with torch.inference_mode():
        y = x * 2
    return y._version


def asked_for_gradients(x):
    with torch.inference_mode():
        y = x * 2
    return y.requires_grad_()


@pytest.mark.parametrize("fn", [inside, saved, written, version, asked_for_gradients])
@pytest.mark.parametrize("make", [plain, leaf])
def test_inference_mode_entered_inside(fn, make):
    opt = magneto.compile(fn)
    for _ in range(2):
        got, want = run(opt, make), run(fn, make)
        assert_same(got, want, rtol=0, atol=0)
    with torch.inference_mode():
        assert_same(run(opt, plain), run(fn, plain), rtol=0, atol=0)


def test_inference_mode_is_no_break_and_keeps_aliasing():
    def fn(x):
        with torch.inference_mode():
            y = x * 2
            return y, y[0]

    y, v = magneto.compile(fn, fullgraph=True)(*plain())
    assert y.is_inference() and v.is_inference() and v.data_ptr() == y.data_ptr()


def test_named_tuples_of_torch_are_not_guarded_by_identity():
    def fn(r):
        return r.values * 2, r[1] + 1, r[0] is r.values, r

    seen = []
    opt = magneto.compile(fn, backend=lambda gm, inputs: seen.append(1) or gm.forward)
    for k in range(3):
        r = torch.max(torch.arange(12.0).view(3, 4) * (k + 1), 1)
        got = opt(r)
        assert (
            torch.equal(got[0], r.values * 2)
            and torch.equal(got[1], r.indices + 1)
            and got[2]
            and got[3] is r
        )
    assert len(seen) == 1


def test_operators_as_arguments_are_guarded():
    def fn(op, x):
        return op(x)

    opt, x = magneto.compile(fn), torch.arange(4.0)
    for op in (
        torch.ops.aten.sin.default,
        torch.ops.aten.cos.default,
        torch.ops.aten.neg,
        torch.ops.aten.abs,
    ):
        torch.testing.assert_close(opt(op, x), op(x))


@pytest.mark.parametrize("brk", [False, True])
def test_views_of_a_constant_whose_detached_alias_is_returned(brk):
    def fn(x):
        y = (torch.arange(3) * 500).detach()
        parts = [y, y[1], *y, y[1:]]
        if brk:
            magneto.graph_break()
        return *parts, x + 1

    want = fn(torch.ones(2))
    got = magneto.compile(fn)(torch.ones(2))
    assert_same(got, want, rtol=0, atol=0)
    for r in (got, want):
        r[0].add_(7)
    assert_same(got, want, rtol=0, atol=0)


def test_counter_after_a_break_in_an_inlined_frame():
    """The break is within Tensor.backward: what was written before it counts for the gradient graph that runs there."""

    def f(h, q):
        q.add_(h)
        (q @ w).sum().backward()

    w, x = torch.ones(3, 1, requires_grad=True), torch.ones(2, 3, requires_grad=True)
    g = magneto.compile(f)
    for n in range(2):
        q = torch.zeros(2, 3)
        g(x * 2, q)
        assert q._version == 1 and torch.equal(x.grad, torch.full((2, 3), 2.0 * (n + 1)))


@pytest.mark.parametrize("momentum", [0.1, None])
@pytest.mark.parametrize("grad", [True, False])
def test_counters_of_running_statistics(momentum, grad):
    """Torch does not count what batch norm writes."""
    m = torch.nn.BatchNorm1d(3, momentum=momentum)

    def f(x):
        y = m(x)
        if grad:
            y.square().sum().backward()
        return y.detach()

    c = magneto.compile(f)
    before = [b._version for b in m.buffers()]
    with torch.set_grad_enabled(grad):
        for _ in range(3):
            c(torch.randn(4, 3))
    assert [b._version - n for b, n in zip(m.buffers(), before)] == [0, 0, 3]
    m.running_mean.add_(1)
    assert m.running_mean._version == before[0] + 1


KINDS_OF_VIEWS = {
    "bits": lambda x: (x.view(torch.int8), x.hypot(x)),
    "bits of a part": lambda x: (x[1:].view(torch.int32), x.sin()),
    "bits and back": lambda x: (x.view(torch.int32)[1:].view(torch.float32), x.sin()),
    "complex": lambda x: (torch.view_as_complex(x), x.sin()),
    "of a complex": lambda x: (torch.view_as_complex(x)[1:].imag, x.sin()),
    "none of it": lambda x: (x[:0], x.narrow(0, 1, 0), x.sin()),
}


@pytest.mark.parametrize("name", KINDS_OF_VIEWS)
@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad, torch.enable_grad])
@pytest.mark.parametrize("made_in_inference_mode", [False, True])
def test_views_of_inputs_of_the_other_kind(name, mode, made_in_inference_mode):
    f = KINDS_OF_VIEWS[name]
    fast = magneto.compile(f)
    for n in (3, 3, 4, 5):
        with torch.inference_mode(made_in_inference_mode):
            x = torch.randn(n, 4, 2)
        with mode():
            got, want = fast(x), f(x)
        for g, w in zip(got, want):
            torch.testing.assert_close(g, w)
            assert g.is_inference() == w.is_inference()
            assert mode is not torch.inference_mode or g._is_view() == w._is_view()
            assert g is got[-1] or not w.numel() or g.data_ptr() == w.data_ptr()
