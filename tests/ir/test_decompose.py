"""decompose: the simpler ops give what the whole op gives, and the whole op is gone."""

import pathlib
import subprocess
import sys

import pytest
import torch

sys.path[:0] = [str(p) for p in pathlib.Path(__file__).resolve().parents[:2]]
import graphs  # noqa: E402
from graphs import clone_inputs  # noqa: E402
from test_functionalize import MGOPT  # noqa: E402

PASSES = ["-functionalize", "-decompose", "-dce"]


def check(fn, *args, gone):
    text, inputs = graphs.graph_text(fn, *args)
    run = subprocess.run([MGOPT, *PASSES], input=text, capture_output=True, text=True)
    note = f"{run.stderr}\n{text}\n-->\n{run.stdout}"
    assert run.returncode == 0, note
    assert gone in text, text
    assert gone not in run.stdout, note
    infer = subprocess.run([MGOPT, "-q", "-infer"], input=run.stdout, capture_output=True, text=True)
    assert "failed" not in infer.stderr, infer.stderr
    want_in, got_in = clone_inputs(inputs), clone_inputs(inputs)
    want, got = graphs.run_text(text, want_in), graphs.run_text(run.stdout, got_in)
    for a, b in zip(want + want_in, got + got_in):
        torch.testing.assert_close(b, a, msg=lambda m: f"{m}\n{note}")
        assert a.stride() == b.stride()


def tensors(n=3):
    return [torch.rand(2, 3 + i) + 0.5 for i in range(n)]


FOREACH = {
    "add": lambda a, b: torch._foreach_add(a, 2.0),
    "add_list": lambda a, b: torch._foreach_add(a, b, alpha=3),
    "add_scalars": lambda a, b: torch._foreach_add(a, [1.0, 2.0, 3.0]),
    "add_": lambda a, b: torch._foreach_add_(a, b),
    "sub": lambda a, b: torch._foreach_sub(a, b),
    "mul": lambda a, b: torch._foreach_mul(a, b),
    "mul_tensor": lambda a, b: torch._foreach_mul(a, torch.tensor(2.0)),
    "div": lambda a, b: torch._foreach_div(a, [1.0, 2.0, 3.0]),
    "addcmul": lambda a, b: torch._foreach_addcmul(a, b, b, 0.5),
    "addcmul_scalars": lambda a, b: torch._foreach_addcmul(a, b, b, [0.5, 1.0, 2.0]),
    "addcdiv_": lambda a, b: torch._foreach_addcdiv_(a, b, b, -0.5),
    "lerp": lambda a, b: torch._foreach_lerp(a, b, 0.3),
    "lerp_list": lambda a, b: torch._foreach_lerp(a, b, b),
    "sqrt": lambda a, b: torch._foreach_sqrt(a),
    "neg_": lambda a, b: torch._foreach_neg_(a),
    "abs": lambda a, b: torch._foreach_abs(a),
    "reciprocal": lambda a, b: torch._foreach_reciprocal(a),
    "pow": lambda a, b: torch._foreach_pow(a, 2.0),
    "maximum": lambda a, b: torch._foreach_maximum(a, b),
    "clamp_min": lambda a, b: torch._foreach_clamp_min(a, 0.7),
    "minimum_scalar": lambda a, b: torch._foreach_minimum(a, 0.7),
    "norm": lambda a, b: torch._foreach_norm(a),
    "zero_": lambda a, b: torch._foreach_zero_(a),
    "copy_": lambda a, b: torch._foreach_copy_(a, b),
}


@pytest.mark.parametrize("name", FOREACH)
def test_foreach(name):
    a, b = tensors(), tensors()
    check(lambda *x: (FOREACH[name](a, b), a), *a, gone="_foreach_")


def optimizer(make, steps):
    p = [torch.nn.Parameter(t) for t in tensors()]
    opt = make(p)
    for _ in range(steps):  # state exists
        for t in p:
            t.grad = torch.randn_like(t)
        opt.step()
    for t in p:
        t.grad = torch.randn_like(t)

    def step(*args):
        # the arithmetic below the optimizer's hooks and checks
        opt._cuda_graph_capture_health_check = lambda: None
        opt.step()

    return step


@pytest.mark.parametrize("amsgrad", [False, True])
@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.AdamW])
def test_fused_adam(kind, amsgrad):
    step = optimizer(lambda p: kind(p, lr=0.1, weight_decay=0.01, amsgrad=amsgrad, fused=True), 2)
    check(step, gone="_fused_adam")


@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_fused_sgd(momentum, nesterov):
    if nesterov and not momentum:
        pytest.skip("needs momentum")
    make = lambda p: torch.optim.SGD(
        p, lr=0.1, momentum=momentum, nesterov=nesterov, weight_decay=0.01, fused=True
    )
    check(optimizer(make, 2), gone="_fused_sgd")


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD, torch.optim.RMSprop])
def test_foreach_optimizers(kind):
    check(optimizer(lambda p: kind(p, lr=0.1, foreach=True), 2), gone="_foreach_")


I = torch.tensor([2, 0])
DENSE = {
    "mv": (lambda x, y: torch.mv(x, y), "::mv("),
    "dot": (lambda x, y: torch.dot(x[0], y), "::dot("),
    "addmv": (lambda x, y: torch.addmv(x[:, 0], x, y, beta=0.5, alpha=2), "::addmv("),
    "addmv_nan": (lambda x, y: torch.addmv(x[:, 0] / 0, x, y, beta=0), "::addmv("),
    "addr": (lambda x, y: torch.addr(x, x[:, 0], y), "::addr("),
    "trace": (lambda x, y: x.trace(), "::trace("),
    "index_add": (lambda x, y: x.index_add(0, I, x[:2], alpha=2), "::index_add("),
    "index_copy": (lambda x, y: x.index_copy(0, I, x[:2]), "::index_copy("),
    "index_fill": (lambda x, y: x.index_fill(1, torch.tensor([-1, 1]), 3.0), "::index_fill."),
    "index_add_": (lambda x, y: x.index_add_(1, I, x[:, 1:3].clone()), "::index_add_("),
}


@pytest.mark.parametrize("name", DENSE)
def test_dense(name):
    fn, gone = DENSE[name]
    check(fn, torch.randn(3, 4), torch.randn(4), gone=gone)
