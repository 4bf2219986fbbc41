"""Both halves of a joint graph against eager: outputs, gradients, write-backs, and what is saved."""

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

import magneto
from support import counts
from tests import joint

torch.manual_seed(0)
x = torch.randn(8, 16, requires_grad=True)
w = torch.randn(16, 16, requires_grad=True)
b = torch.randn(16, requires_grad=True)


def logsigmoid_twice(t):
    s = F.logsigmoid(t)
    return (s - torch.logsumexp(s, -1, True)).exp(), s


CASES = {
    "linear in x": (lambda: x * 2, [x]),
    "sin of a sum": (lambda: (x + 1).sin(), [x]),
    "mlp": (lambda: F.relu(x @ w + b).sum(), [x, w, b]),
    "layer norm": (lambda: F.layer_norm(x, (16,), b, b), [x, b]),
    "softmax": (lambda: F.softmax(x @ w, -1), [x, w]),
    "gelu": (lambda: F.gelu(x @ w), [x, w]),
    "two outputs": (lambda: (x.exp(), (x * w[:8]).sum(0)), [x, w]),
    "saved views": (lambda: x.t() * w[:, :8], [x, w]),
    "output is a view": (lambda: (x * 2).t(), [x]),
    "output is an input": (lambda: (x + b, x), [x, b]),
    "gradient is a view of the tangent": (lambda: x.sum(), [x]),
    "the same gradient twice": (lambda: x + w[:8], [x, w]),
    "dropout": (lambda: F.dropout(x, 0.5) * 2, [x]),
    "output without gradient": (lambda: (x.sin(), x.argmax(1)), [x]),
    "one result saved, the other made again": (lambda: logsigmoid_twice(x), [x]),
    "the same of a product": (lambda: logsigmoid_twice(x @ w), [x, w]),
    "unused leaf": (lambda: x.sin(), [x, b]),
}


@pytest.mark.parametrize("name", CASES)
def test_halves(name):
    joint.check(joint.record(*CASES[name]))


def saved(fn, leaves, extra=()):
    return joint.check(joint.record(fn, leaves, extra=extra)).info()["saved"]


def test_nothing_is_saved_when_backward_reads_nothing():
    assert saved(lambda: x * 2 + b, [x, b]) == []


def test_primals_and_outputs_are_not_copied():
    assert saved(lambda: x * w[:8], [x, w]) == [("primal", 0), ("primal", 1)]
    assert saved(lambda: x.exp(), [x]) == [("output", 0)]


@pytest.mark.parametrize("fn", [torch.sin, nn.functional.softplus, nn.functional.gelu])
def test_backward_computes_no_long_row_of_functions_again(fn):
    """A few are computed again, since that is less memory; of many each value is saved, since time goes into them."""

    d = (
        x.detach().double().requires_grad_()
    )  # the rounding of 40 functions in float32 is more than is allowed

    def row(n):
        y = d
        for _ in range(n):
            y = fn(y)
        return y

    assert saved(lambda: row(4), [d]) == [("primal", 0)]
    assert len(saved(lambda: row(40), [d])) == 40


def test_written_buffers_are_written_once_by_forward():
    buf = torch.zeros(16)

    def fn():
        with torch.no_grad():
            buf.add_(x.detach().mean(0))
        return x * w[:8]

    joint.check(joint.record(fn, [x, w], extra=[buf]))


def test_batch_norm_does_not_save_running_statistics():
    bn = nn.BatchNorm1d(16)
    leaves = [x, w, *bn.parameters()]
    kinds = saved(lambda: bn(x @ w), leaves, list(bn.buffers()))
    assert ("primal", 4) not in kinds and ("primal", 5) not in kinds


def test_the_old_value_of_a_written_input_is_kept():
    buf = torch.randn(8, 16)

    def fn():
        old = buf.clone()
        y = x * old
        with torch.no_grad():
            buf.mul_(2)
        return y

    assert saved(fn, [x], [buf]) in ([("intermediate", 0)], [("primal", 1)])


def test_backward_that_writes_an_input_is_refused():
    text = """%1 = input f32[4]
%2 = input f32[4]
%3 = aten::sin(%1) : f32[4]
%4 = aten::mul.Tensor(%2, %3) : f32[4]
%5 = aten::add_.Tensor(%1, %4) : f32[4]
return %3, %4
"""
    r = joint.Recorded()
    r.text, r.nprimal, r.nfwd, r.backward = text, 1, 1, 0
    with pytest.raises(NotImplementedError, match="backward writes to an input"):
        joint.compile(r)


VIEWS = {
    "slice": lambda x: x[: x.shape[0] // 2],
    "called": lambda x: x[: int(x.shape[0] * 0.5)],
    "several": lambda x: (x.t(), x[:, 1:], x.view(-1)),
    "reshaped": lambda x: x.reshape(-1, 2)[1:],
}


@pytest.mark.parametrize("case", VIEWS)
def test_views_of_changing_sizes(case):
    """Where every result is a view of an input, PyTorch's own graph has the backward; sizes stay symbols all the same."""
    magneto.reset()
    f, g = VIEWS[case], magneto.compile(VIEWS[case], dynamic=True, fullgraph=True)
    for size in ((4, 6), (6, 8), (9, 4), (12, 10)):
        x = torch.randn(size)
        grads = []
        for h in (f, g):
            y = x.clone().requires_grad_()
            r = h(y)
            sum(v.square().sum() for v in (r if isinstance(r, tuple) else (r,))).backward()
            grads.append(y.grad)
        torch.testing.assert_close(grads[1], grads[0])
    assert counts().entries == 1
