"""PyTorch's autograd around a compiled function: hooks, errors, second derivatives, modes, threads."""

import contextlib
import threading

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import magneto
from magneto import _magneto
from support import counts
from training import same


def leaf(*size, **kw):
    return torch.randn(*size, **kw).requires_grad_()


def compiled_once():
    stats = counts()
    assert stats.joint_graphs == stats.graphs == 1 and stats.fallbacks == 0, stats


def mlp():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))


def both(f, program):
    """Runs program(f) with f eager and compiled; equal lists of tensors or equal errors."""
    got = []
    for g in (f, magneto.compile(f)):
        torch.manual_seed(0)
        try:
            got.append(program(g))
        except Exception as e:
            got.append(f"{type(e).__name__}: {e}")
    want, mine = got
    if isinstance(want, str):
        assert mine == want
        return
    assert not isinstance(mine, str), mine
    for i, (x, y) in enumerate(zip(mine, want, strict=True)):
        if isinstance(y, torch.Tensor):
            same(x.detach(), y.detach(), f"value {i}")
        else:
            assert x == y, f"value {i}"


# ---- torch.autograd.grad, backward and their options ----


def test_autograd_grad():
    def program(f):
        x, y = leaf(3, 4), leaf(4)
        o = f(x, y)
        return torch.autograd.grad(o.sum(), [x, y])

    both(lambda x, y: (x * y).tanh(), program)
    compiled_once()


def test_grad_of_some_inputs():
    def program(f):
        x, y = leaf(3), leaf(3)
        g = torch.autograd.grad(f(x, y).sum(), y)
        return [*g, x.grad is None, y.grad is None]

    both(lambda x, y: x * y, program)


def test_retain_graph():
    def program(f):
        x = leaf(3)
        o = f(x).sum()
        o.backward(retain_graph=True)
        o.backward()
        return [x.grad]

    both(lambda x: x.sin() * x, program)


def test_backward_twice():
    def program(f):
        x = leaf(3)
        o = f(x).sum()
        o.backward()
        o.backward()

    both(lambda x: x.sin() * x, program)
    compiled_once()


@pytest.mark.parametrize("f", [lambda x: x * 2 + 1, lambda x: x + 1, lambda x: -x.view(-1)])
def test_backward_twice_without_saved_tensors(f):
    """Numbers are saved, too: eager's error, or none."""

    def program(f):
        x = leaf(3)
        o = f(x)
        o.backward(torch.ones(3))
        o.backward(torch.ones(3))
        return [x.grad]

    both(f, program)


def test_loss_not_scalar():
    both(lambda x: x * 2, lambda f: f(leaf(3)).backward())


def test_accumulation():
    def program(f):
        x = leaf(3)
        for i in range(3):
            f(x, torch.full((3,), float(i))).sum().backward()
        return [x.grad]

    both(lambda x, y: x * y.exp(), program)
    compiled_once()


def test_gradient_of_a_view_of_the_result():
    def program(f):
        x = leaf(3, 4)
        o = f(x)
        o[0, 1:].sum().backward()
        return [x.grad]

    both(lambda x: x.sin(), program)


def test_tangents_in_other_layouts():
    def program(f):
        x = leaf(3, 4)
        o = f(x)
        return [
            torch.autograd.grad(o, x, torch.randn(4, 3).t(), retain_graph=True)[0].contiguous(),
            *torch.autograd.grad(o, x, torch.randn(()).expand(3, 4), retain_graph=True),
            *torch.autograd.grad(o, x, torch.randn(6, 4)[::2], retain_graph=True),
        ]

    both(lambda x: x.sin() * 2, program)


def test_result_unused_in_loss():
    def program(f):
        x, y = leaf(3), leaf(3)
        a, b = f(x, y)
        b.sum().backward()
        return [x.grad is None, y.grad]

    both(lambda x, y: (x.sin(), y.cos()), program)


# ---- hooks ----


def test_tensor_hooks():
    def program(f):
        seen = []
        x = leaf(3)
        x.register_hook(lambda g: seen.append(g.clone()) or g * 2)
        h = x * 3
        h.register_hook(lambda g: seen.append(g.clone()))
        o = f(h)
        o.register_hook(lambda g: seen.append(g.clone()) or g + 1)
        o.retain_grad()
        o.sum().backward()
        return [*seen, x.grad, o.grad]

    both(lambda x: x.sin() * 2, program)


def test_post_accumulate_hook():
    def program(f):
        seen = []
        x = leaf(3)
        x.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.clone()))
        f(x).sum().backward()
        return seen

    both(lambda x: x.sin() * 2, program)


def test_module_hooks():
    def program(f):
        m = mlp()
        c = f(m)
        seen = []
        c.register_full_backward_hook(lambda mod, gi, go: seen.extend([*gi, *go]))
        c.register_forward_hook(lambda mod, i, o: o * 2)
        x = leaf(2, 4)
        for _ in range(2):
            c(x).sum().backward()
        return [*[s for s in seen if s is not None], x.grad, *[p.grad for p in m.parameters()]]

    got = [program(lambda m: m), program(magneto.compile)]
    for a, b in zip(*got, strict=True):
        same(b.detach(), a.detach())


def test_grad_fn_hooks():
    def program(f):
        seen = []
        x = leaf(3)
        o = f(x)
        o.grad_fn.register_hook(lambda gi, go: seen.append(len(gi)))
        o.grad_fn.register_prehook(lambda go: seen.append(go[0].clone()))
        o.sum().backward()
        return [*seen, x.grad]

    both(lambda x: x.sin(), program)


def test_saved_tensors_hooks():
    def program(f):
        count = [0, 0]

        def pack(t):
            count[0] += 1
            return t.numpy(force=True).copy()

        def unpack(a):
            count[1] += 1
            return torch.from_numpy(a)

        x = leaf(3)
        with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
            o = f(x)
        o.sum().backward()
        return [x.grad, count[0] > 0, count[1] > 0]

    both(lambda x: (x.sin() * x).exp(), program)
    compiled_once()


# ---- tensors changed between forward and backward ----


def test_saved_view_of_memory_that_is_written():
    """Autograd's graph then refers to itself, in eager for ever; what was recorded is let go."""

    def fn(x):
        r = x * 1
        r[:, 0] = r[:, 0] ** 2
        return r

    for f in fn, magneto.compile(fn):
        out = f(torch.randn(4, 3, requires_grad=True))
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            out.sum().backward()


def test_version_error_of_input():
    def program(f):
        x, y = leaf(3), torch.randn(3)
        o = f(x, y)
        y.add_(1)
        o.sum().backward()

    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        program(lambda x, y: x * y)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        program(magneto.compile(lambda x, y: x * y))
    compiled_once()


def test_version_error_of_parameter():
    def program(f):
        w, x = leaf(3), leaf(3)
        o = f(x, w)
        with torch.no_grad():
            w.add_(1)
        o.sum().backward()

    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        program(magneto.compile(lambda x, y: x * y))


def test_version_error_of_result():
    c = magneto.compile(lambda x: x.exp())
    x = leaf(3)
    o = c(x)
    o.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        o.sum().backward()


def test_change_of_what_eager_does_not_save():
    def program(f):
        x, y = leaf(3), torch.randn(3)
        o = f(x, y)
        y.add_(1)
        o.add_(1)
        o.sum().backward()
        return [x.grad, o]

    both(lambda x, y: (x.sin() + y) * 2, program)
    compiled_once()


def test_inplace_on_result():
    def program(f):
        x = leaf(3, 4)
        o = f(x)
        o.mul_(2)
        o[0].zero_()
        o.sum().backward()
        return [x.grad, o]

    both(lambda x: x.sin() + 1, program)


# ---- second derivatives ----


def test_double_backward():
    def program(f):
        x, y = leaf(3), leaf(3)
        o = f(x, y)
        gx, gy = torch.autograd.grad(o.sum(), [x, y], create_graph=True)
        s = (gx * gy).sum()
        return [gx, gy, *torch.autograd.grad(s, [x, y])]

    both(lambda x, y: x.sin() * y.exp(), program)
    compiled_once()


def test_gradient_penalty():
    def program(f):
        m = mlp()
        c = f(m)
        x = leaf(2, 4)
        for _ in range(2):
            (g,) = torch.autograd.grad(c(x).sum(), x, create_graph=True)
            ((g.norm() - 1) ** 2 + c(x).sum()).backward()
        return [x.grad, *[p.grad for p in m.parameters()]]

    for a, b in zip(program(lambda m: m), program(magneto.compile), strict=True):
        same(b, a)


def test_third_derivative():
    def program(f):
        x = leaf(3)
        g = f(x).sum()
        out = []
        for _ in range(3):
            (g,) = torch.autograd.grad(g.sum(), x, create_graph=True)
            out.append(g)
        return out

    both(lambda x: x.sin() * x * x, program)


def test_double_backward_keeps_dropout():
    def program(f):
        x = leaf(20)
        torch.manual_seed(3)
        (g,) = torch.autograd.grad(f(x).sum(), x, create_graph=True)
        state = torch.get_rng_state()
        g.sum().backward()
        return [g, x.grad, state]

    both(lambda x: torch.nn.functional.dropout(x * x * x, 0.5), program)


def test_double_backward_with_dependent_inputs():
    def program(f):
        x = leaf(3)
        y = x * 2
        (g,) = torch.autograd.grad(f(x, y).sum(), x, create_graph=True)
        g.sum().backward()
        return [g, x.grad]

    both(lambda x, y: x * y * y, program)


def test_double_backward_with_batch_norm():
    def program(f):
        torch.manual_seed(0)
        m = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.BatchNorm1d(6), torch.nn.Sigmoid())
        c = f(m)
        x = leaf(5, 4)
        (g,) = torch.autograd.grad(c(x).sum(), x, create_graph=True)
        g.pow(2).sum().backward()
        return [x.grad, *[p.grad for p in m.parameters()], *m.buffers()]

    for a, b in zip(program(lambda m: m), program(magneto.compile), strict=True):
        same(b, a)


# ---- modes ----


def test_anomaly_mode():
    f = lambda x: torch.sqrt(x) * 0
    c = magneto.compile(f)
    c(leaf(3).detach().abs().requires_grad_()).sum().backward()
    texts = []
    for g in (f, c):
        with (
            torch.autograd.detect_anomaly(check_nan=True),
            pytest.raises(RuntimeError) as e,
            pytest.warns(UserWarning),
        ):
            g(torch.zeros(3, requires_grad=True)).sum().backward()
        texts.append(str(e.value))
    assert texts[0] == texts[1] and "SqrtBackward0" in texts[0]
    compiled_once()


def test_recorded_under_anomaly_mode():
    c = magneto.compile(lambda x: x.sin())
    x = leaf(3)
    with torch.autograd.set_detect_anomaly(True):
        c(x).sum().backward()
    assert c(x).grad_fn.name() == "MagnetoBackward"


@pytest.mark.parametrize("inside", [False, True])
def test_anomaly_mode_of_a_whole_step(inside):
    """Backward that is part of the graph ends it there: PyTorch looks at each gradient."""

    def step(x):
        with torch.autograd.set_detect_anomaly(True) if inside else contextlib.nullcontext():
            loss = (torch.sqrt(x) * 0).sum()
            loss.backward()
        return loss

    c = magneto.compile(step)
    if not inside:
        for _ in range(2):  # compiled before
            c(torch.ones(3, requires_grad=True))
    texts = []
    for f in (step, c, c):
        with torch.autograd.set_detect_anomaly(not inside), pytest.raises(RuntimeError) as e:
            f(torch.zeros(3, requires_grad=True))
        texts.append(str(e.value))
    assert texts[0] == texts[1] == texts[2] and "SqrtBackward0" in texts[0]


def test_the_question_whether_anomaly_mode_is_on():
    c = magneto.compile(lambda x: x + 1 if torch.is_anomaly_enabled() else x - 1)
    x = torch.zeros(1)
    for on in (False, True, False):
        with torch.autograd.set_detect_anomaly(on):
            assert c(x).item() == (1 if on else -1)


def test_autocast():
    def program(f):
        m = mlp()
        c = f(m)
        x = leaf(2, 4)
        out = []
        for _ in range(2):
            with torch.autocast("cpu", torch.bfloat16):
                o = c(x)
                loss = o.float().pow(2).sum()
            loss.backward()
            out.append(o.detach())
        return [*out, x.grad, *[p.grad for p in m.parameters()]]

    for a, b in zip(program(lambda m: m), program(magneto.compile), strict=True):
        same(b, a, rtol=5e-2, atol=5e-2)
    assert counts().joint_graphs == 1


def test_backward_under_autocast():
    m = mlp()
    c = magneto.compile(m)
    x = leaf(2, 4)
    want = torch.autograd.grad(m(x).sum(), x)
    o = c(x)
    with torch.autocast("cpu", torch.bfloat16):
        got = torch.autograd.grad(o.sum(), x)
    same(got[0], want[0], rtol=5e-2, atol=5e-2)


def test_inference_tensor_is_refused():
    def program(f):
        with torch.inference_mode():
            y = torch.randn(3)
        f(leaf(3), y)

    both(lambda x, y: x * y, program)


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint_around(reentrant):
    def program(f):
        m = mlp()
        c = f(m)
        x = leaf(2, 4)
        for _ in range(2):
            checkpoint(c, x, use_reentrant=reentrant).sum().backward()
        return [x.grad, *[p.grad for p in m.parameters()]]

    for a, b in zip(program(lambda m: m), program(magneto.compile), strict=True):
        same(b, a)


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint_inside(reentrant):
    class M(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = mlp(), torch.nn.Linear(3, 2)

        def forward(self, x):
            return self.b(checkpoint(self.a, x, use_reentrant=reentrant))

    def program(f):
        torch.manual_seed(0)
        m = M()
        c = f(m)
        x = leaf(2, 4)
        for _ in range(2):
            c(x).sum().backward()
        return [x.grad, *[p.grad for p in m.parameters()]]

    for a, b in zip(program(lambda m: m), program(magneto.compile), strict=True):
        same(b, a)


def test_autograd_function_inside():
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return 3 * g * x

    def program(f):
        x = leaf(3)
        for _ in range(2):
            f(x).sum().backward()
        return [x.grad]

    both(lambda x: Double.apply(x.sin()) + 1, program)


def test_other_threads():
    f = lambda x: x.sin() * x
    c = magneto.compile(f)
    x = leaf(100)
    (want,) = torch.autograd.grad(f(x).sum(), x)
    got, outs = [None] * 8, [c(x) for _ in range(8)]

    def work(i):
        (got[i],) = torch.autograd.grad(outs[i].sum() if i % 2 else c(x).sum(), x)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for g in got:
        same(g, want)


def test_graph_outlives_its_entry():
    c = magneto.compile(lambda x: x.sin() * x)
    x = leaf(3)
    o = c(x)
    _magneto.reset()
    del c
    o.sum().backward()
    same(x.grad, (x.cos() * x + x.sin()).detach())


def test_nothing_leaks():
    import gc
    import weakref

    c = magneto.compile(lambda x, y: (x.sin() * y).exp())
    refs = []
    for _ in range(3):
        x, y = leaf(10), leaf(10)
        o = c(x, y)
        o.sum().backward()
        refs += [weakref.ref(x), weakref.ref(y), weakref.ref(o)]
        del x, y, o
    assert all(r() is None for r in refs)
    gc.collect()


def test_backward_frees_what_was_saved():
    import weakref

    c = magneto.compile(lambda x, y: (x + y).sin())
    for _ in range(2):
        x = leaf(10)
        y = torch.randn(10)
        r = weakref.ref(y)
        o = c(x, y)
        o.sum().backward()
        del y
        assert r() is None


@pytest.mark.parametrize("reduction", ["none", "mean"])
@pytest.mark.parametrize(
    "dtypes", [(torch.float32, torch.float64), (torch.float64, torch.float32), (torch.float32, torch.int64)]
)
def test_margins_of_another_dtype(dtypes, reduction):
    """The kernel gives self's dtype and layout, the meta kernel those that both promote to."""

    def program(f):
        x = torch.randn(4, 3, dtype=dtypes[0], requires_grad=True)
        o = f(x, torch.randn(3, 4).sign().to(dtypes[1]).t())
        return [o, *torch.autograd.grad(o.sum(), x)]

    both(lambda x, t: torch.nn.functional.soft_margin_loss(x, t, reduction=reduction), program)


WRITES = {
    "leaf's data": lambda p, x, b: p.data.clamp_(-1, 1),
    "data": lambda p, x, b: b.data.add_(x),
    "twice": lambda p, x, b: b.add_(1).mul_(2),
    "once": lambda p, x, b: b.add_(1),
}


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("dynamic", [None, True])
def test_version_counters_of_inputs_of_a_compiled_forward(write, dynamic):
    """As eager leaves them: what others saved before it may still be differentiated after writes to .data."""

    def f(p, x, b):
        WRITES[write](p, x, b)
        return (p * b).sum()

    c, res = magneto.compile(f, dynamic=dynamic), []
    for g in (f, c):
        res.append([])
        for n in (3, 4, 3):
            torch.manual_seed(n)
            p, x, b = leaf(n), torch.randn(n), torch.randn(n)
            before = (p.exp() * b * p).sum()
            g(p, x, b).backward()
            res[-1] += [p._version, b._version, p.detach().clone(), p.grad.clone()]
            try:
                before.backward()
                res[-1].append(p.grad)
            except RuntimeError:
                res[-1].append("modified")
    for x, y in zip(*res, strict=True):
        assert torch.allclose(x, y) if isinstance(x, torch.Tensor) else x == y


def test_writes_to_data_do_not_count_in_a_graph_that_autograd_itself_runs():
    class Quotient(torch.autograd.Function):
        @staticmethod
        def forward(ctx, w, a):
            ctx.save_for_backward(w, a)
            return w / a

        @staticmethod
        def backward(ctx, grad):
            w, a = ctx.saved_tensors
            return grad / a, (-w / a / a * grad).sum().unsqueeze(0)

    def f(w, a, x):
        a.data.copy_(w.abs().mean() * 2)
        x.add_(1)
        return (Quotient.apply(w, a) * x).sum()

    res = []
    for g in (f, magneto.compile(f)):
        torch.manual_seed(0)
        w, a = leaf(3), leaf(1)
        g(w, a, torch.ones(3)).backward()
        res.append([w.grad, a.grad, a.detach(), torch.tensor(a._version)])
    torch.testing.assert_close(*res)
