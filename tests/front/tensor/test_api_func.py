"""torch.func transforms, switches of torch and context managers inside of compiled frames: one graph, eager's results."""

import pytest
import torch
import torch.nn.functional as F
from torch.func import (
    functional_call,
    grad,
    grad_and_value,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    stack_module_state,
    vjp,
    vmap,
)
from torch.nn.attention import SDPBackend, sdpa_kernel

import magneto
from support import CountingBackend, counts

X = torch.randn(4, 4, generator=torch.Generator().manual_seed(0))
V = X[0].clone()
LINEAR = torch.nn.Linear(4, 4)


def nested_grad(x):
    return grad(lambda a: grad(lambda b: (b**3).sum())(a).sum())(x)


def closure_grad(x):
    y = x * 2
    return grad(lambda a: (a.sin() * y).sum())(x)


def use_vjp(x):
    out, back = vjp(lambda a: a.sin(), x)
    return out, back(torch.ones_like(out))


def per_sample(x):
    p = {k: v.detach() for k, v in LINEAR.named_parameters()}
    return vmap(grad(lambda p, x: functional_call(LINEAR, p, (x.unsqueeze(0),)).sum()), in_dims=(None, 0))(
        p, x
    )


def use_sdpa(x):
    q = x.reshape(1, 1, 4, 4)
    with sdpa_kernel(SDPBackend.MATH):
        return F.scaled_dot_product_attention(q, q, q)


def use_autocast(x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        with torch.autocast("cpu", enabled=False):
            y = x @ x
        z = x @ x
    return y, z, x @ x


def use_default_dtype(x):
    torch.set_default_dtype(torch.float64)
    y = torch.ones(4)
    torch.set_default_dtype(torch.float32)
    return x + y


def use_default_dtypes_by_turns(x):
    n, r = (x > 0).long(), []
    for dtype in (torch.float32, torch.float64, torch.float32):
        torch.set_default_dtype(dtype)
        r += [n + 1.5, n / 2, torch.arange(0.0, 1.0, 0.5), n.sin(), torch.full((2,), 1.5)]
    return r


def use_dual(x):
    import torch.autograd.forward_ad as fwd

    with fwd.dual_level():
        return tuple(fwd.unpack_dual(fwd.make_dual(x, torch.ones_like(x)).sin()))


PARAMS, _ = stack_module_state([torch.nn.Linear(4, 4) for _ in range(3)])
BASE = torch.nn.Linear(4, 4, device="meta")


def ensemble(x):
    """The module itself has no memory; its parameters are looked at, but no op takes them."""
    return vmap(lambda p, a: functional_call(BASE, p, (a,)).sin(), in_dims=(0, None))(
        {k: v.detach() for k, v in PARAMS.items()}, x
    )


PROGRAMS = {
    "grad": (lambda x: grad(lambda a: a.sin().sum())(x), X),
    "grad_argnums": (lambda x: grad(lambda a, b: (a.sin() * b).sum(), argnums=(0, 1))(x, x.cos()), X),
    "grad_aux": (lambda x: grad(lambda a: (a.sin().sum(), a.cos()), has_aux=True)(x), X),
    "grad_and_value": (lambda x: grad_and_value(lambda a: a.sin().sum())(x), X),
    "nested_grad": (nested_grad, X),
    "closure_grad": (closure_grad, X),
    "vmap": (lambda x: vmap(lambda a, b: a * b, in_dims=(0, 1), out_dims=1)(x, x), X),
    "vmap_none": (lambda x: vmap(lambda a, b: a + b, in_dims=(0, None))(x, x[0]), X),
    "vmap_nested": (lambda x: vmap(vmap(lambda a: a.sin()))(x), X),
    "vmap_grad": (lambda x: vmap(grad(lambda a: a.sin().sum()))(x), X),
    "vmap_chunk": (lambda x: vmap(lambda a: a.sin(), chunk_size=2)(x), X),
    "jvp": (lambda x: jvp(lambda a: a.sin(), (x,), (torch.ones_like(x),)), V),
    "vjp": (use_vjp, V),
    "jacrev": (lambda x: jacrev(lambda a: a.sin() * a.sum())(x), V),
    "jacfwd": (lambda x: jacfwd(lambda a: a.sin() * a.sum())(x), V),
    "hessian": (lambda x: hessian(lambda a: (a.sin() * a).sum())(x), V),
    "per_sample": (per_sample, X),
    "ensemble": (ensemble, X),
    "sdpa_kernel": (use_sdpa, X),
    "autocast": (use_autocast, X),
    "default_dtype": (use_default_dtype, X),
    "default_dtypes_by_turns": (use_default_dtypes_by_turns, X),
    "forward_ad": (use_dual, X),
}


@pytest.mark.parametrize("backend", ["magneto", "counter"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_one_graph(name, backend):
    f, x = PROGRAMS[name]
    want = f(x)
    counter = CountingBackend()
    c = magneto.compile(f, backend=counter if backend == "counter" else backend)
    for _ in range(2):
        torch.testing.assert_close(c(x), want)
    graphs = counter.graphs if backend == "counter" else counts().graphs
    assert graphs == 1
    assert counts().breaks == 0


def test_switches_stay_changed_and_are_guarded():
    before = torch.backends.cuda.flash_sdp_enabled()

    def flip(x):
        torch.backends.cuda.enable_flash_sdp(not torch.backends.cuda.flash_sdp_enabled())
        return x + 1

    c = magneto.compile(flip)
    try:
        for i in range(4):
            c(X)
            assert torch.backends.cuda.flash_sdp_enabled() == (before if i % 2 else not before)
    finally:
        torch.backends.cuda.enable_flash_sdp(before)


def test_break_inside_of_a_transform_leaves_no_transform_behind():
    def f(x):
        return vmap(lambda a: a * float(x.sum()))(x)

    torch.testing.assert_close(magneto.compile(f)(X), f(X))
    assert torch._C._functorch.peek_interpreter_stack() is None


def test_text_of_what_a_transform_wraps():
    texts = []

    def f(x):
        return vmap(grad(lambda a: (texts.append(str(a)), a.sin().sum())[1]))(x)

    want, n = f(X), len(texts)
    torch.testing.assert_close(magneto.compile(f)(X), want)
    assert texts[:n] == texts[n:]
    torch.testing.assert_close(f(X), want)


def test_error_inside_of_vmap_is_eagers():
    c = magneto.compile(lambda x: vmap(lambda a: a.sum().item())(x))
    for _ in range(2):
        with pytest.raises(RuntimeError, match="vmap"):
            c(X)


def test_the_first_vmap_of_a_process_is_one_graph():
    import subprocess
    import sys

    program = (
        "import torch, magneto\n"
        "c = magneto.compile(lambda x: torch.func.vmap(lambda a: a.sin())(x))\n"
        "c(torch.ones(2, 2))\n"
        "s = magneto._magneto.stats()\n"
        "assert s['graphs'] == 1 and not s['breaks'], s\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


def test_a_tracer_inside_breaks():
    def f(x):
        out, linear = torch.func.linearize(torch.sin, x * 2)
        return out + 1, linear(x)

    c = magneto.compile(f)
    for _ in range(2):
        torch.testing.assert_close(c(X), f(X))


def break_before_the_pullback(x):
    out, back = vjp(lambda a: (a * V).sin(), x)
    magneto.graph_break()
    return out, back(torch.ones_like(x))[0]


def break_inside_of_vjp(x):
    def inner(a):
        b = a * V
        magneto.graph_break()
        return b.sin() * V

    out, back = vjp(inner, x)
    return out, back(torch.ones_like(x))[0]


@pytest.mark.parametrize("f", [break_before_the_pullback, break_inside_of_vjp])
def test_a_pullback_is_of_its_own_call(f):
    g = magneto.compile(f)
    for i in range(4):
        x = V + i
        torch.testing.assert_close(g(x), f(x))


def test_a_pullback_from_outside_is_read_anew():
    def call(back, v):
        return back(v)[0] * 2

    g = magneto.compile(call)
    for i in range(3):
        back = vjp(lambda a: (a * V).sin(), V + i)[1]
        torch.testing.assert_close(g(back, V), call(back, V))


def test_disabled_closures_over_tensors_are_called():
    def f(x, y):
        h = magneto.disable(lambda a: a * y)
        return grad(lambda a: h(a.sin()).sum())(x) + h(x)

    g = magneto.compile(f)
    for i in range(2):
        torch.testing.assert_close(g(V + i, V - i), f(V + i, V - i))


def test_gradients_of_gradients_inside_are_one_graph():
    w = torch.randn(4, 4, requires_grad=True)

    def penalty(x):
        (g,) = torch.autograd.grad((x @ w).tanh().sum(), x, create_graph=True)
        return (g.norm() - 1) ** 2

    x = torch.randn(4, requires_grad=True)
    got, want = magneto.compile(penalty, fullgraph=True)(x), penalty(x)
    torch.testing.assert_close(got, want)
    torch.testing.assert_close(torch.autograd.grad(got, w), torch.autograd.grad(want, w))


@torch.jit.script
def scripted(x, k: float = 2.0):
    if x.dim() == 1:
        x = x.cos()
    return x * k


class Scripted(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.act = scripted

    def forward(self, x):
        return self.act(x, 3.0) + scripted(x)


def test_scripted_functions_are_recorded():
    net, count = Scripted(), CountingBackend()
    g = magneto.compile(net, backend=count, fullgraph=True)
    for x in (V, X, V + 1):
        torch.testing.assert_close(g(x), net(x))
    assert count.graphs == 2
