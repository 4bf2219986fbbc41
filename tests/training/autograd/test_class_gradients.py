"""Gradients of losses of classes: rows of which one number is not 0 before softmax's gradient."""

import itertools

import pytest
import torch
import torch.nn.functional as F

import magneto

SHAPES = ((5, 7), (1, 1), (3, 1), (1, 9), (4, 6, 5), (2, 3, 1, 4), (33, 100))
OPTIONS = (
    {},
    {"reduction": "sum"},
    {"reduction": "none"},
    {"ignore_index": 0},
    {"label_smoothing": 0.1},
    {"weight": True},
)


def gradient(f, x, t):
    a = x.clone().requires_grad_()
    loss = f(a, t)
    (loss * torch.linspace(1, 2, loss.numel()).view_as(loss)).sum().backward()
    return loss.detach(), a.grad


@pytest.mark.parametrize("options", OPTIONS, ids=lambda o: next(iter(o), "mean"))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_cross_entropy(dtype, options):
    for shape, special in itertools.product(SHAPES, (False, True)):
        torch.manual_seed(1)
        x = torch.randn(shape, dtype=dtype)
        t = torch.randint(0, shape[1], (shape[0], *shape[2:]))
        t.view(-1)[:: t.numel() // 2 + 1] = options.get("ignore_index", -100)
        if special:
            x.view(-1)[0], x.view(-1)[-1] = float("inf"), float("nan")
        given = dict(options)
        if given.get("weight"):
            given["weight"] = torch.rand(shape[1], dtype=dtype)
        compiled = magneto.compile(lambda a, b, g=given: F.cross_entropy(a, b, **g))
        for _ in range(2):
            want = gradient(lambda a, b, g=given: F.cross_entropy(a, b, **g), x, t)
            tolerance = {torch.float32: 2e-6, torch.float64: 1e-12, torch.bfloat16: 2e-2}[dtype]
            torch.testing.assert_close(
                gradient(compiled, x, t), want, rtol=tolerance, atol=tolerance, equal_nan=True
            )


def test_a_mask_that_is_no_one_hot_row():
    """Comparisons with several places of a row are summed up."""

    def f(x, k):
        i = torch.arange(x.shape[1])
        y = x.log_softmax(1)
        return (torch.where(i == k, y, 0) + torch.where(i % 3 == 0, y, 0)).sum()

    compiled = magneto.compile(f)
    for k in (0, 4, 11, -1):
        x = torch.randn(6, 10)
        grads = []
        for g in (f, compiled):
            a = x.clone().requires_grad_()
            g(a, torch.tensor(k)).backward()
            grads.append(a.grad)
        torch.testing.assert_close(*grads)
