"""Kernels of one graph that differ in numbers only are compiled once: each reads its own numbers."""

import pytest
import torch
import torch.nn.functional as F

import magneto
from magneto import _magneto

torch.manual_seed(0)
WIDTHS = (8, 24, 40, 33, 56)


def norms():
    layers = [torch.nn.BatchNorm2d(c).eval() for c in WIDTHS]
    for layer in layers:
        torch.nn.init.normal_(layer.running_mean)
        torch.nn.init.uniform_(layer.running_var, 0.5, 2)
    return [lambda x, f=f: F.relu(f(x)) for f in layers], [torch.randn(2, c, 7, 9) for c in WIDTHS]


def each(f, *shape):
    return [f] * len(WIDTHS), [torch.randn(*(w if d is None else d for d in shape)) for w in WIDTHS]


PROGRAMS = {
    "norms": norms,
    "rows": lambda: each(lambda x: x.softmax(-1) + x.amax(-1, keepdim=True), None, 50),
    "columns": lambda: each(lambda x: (x * x).sum(0), 30, None),
    "inner columns": lambda: each(lambda x: x.cos().sum((0, 2)), 6, None, 11),
    "transposes": lambda: each(lambda x: x.transpose(1, 2).contiguous() * 2, 3, None, 20),
    "slices": lambda: each(lambda x: x[:, 1:, ::2] - x[:, :-1, 1::2], 5, None, 12),
    "windows": lambda: each(lambda x: F.max_pool2d(x, 3, 2, 1), 2, None, 9, 10),
    "gathered": lambda: each(lambda x: x[torch.arange(7, 0, -1)] + x.flip(1)[:7], 9, None),
    "numbers": lambda: each(
        lambda x: x + torch.arange(x.shape[0], dtype=torch.int64)[:, None] % 5 + x.shape[0], None, 6
    ),
    "random views": lambda: each(lambda x: torch.cat([x, x.roll(3, 1)], 1).sigmoid(), 4, None, 5),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_kernels_that_differ_in_numbers(name):
    functions, inputs = PROGRAMS[name]()
    together = magneto.compile(lambda xs: [f(x) for f, x in zip(functions, xs)])
    with torch.no_grad():
        for alone, got in zip(
            [magneto.compile(lambda x, f=f: f(x))(x) for f, x in zip(functions, inputs)], together(inputs)
        ):
            assert torch.equal(got, alone)
        for x, f, got in zip(inputs, functions, together(inputs)):
            torch.testing.assert_close(got, f(x))


def test_one_kernel_serves_layers_of_many_widths():
    functions, inputs = norms()
    with torch.no_grad():
        before = _magneto.kernel_cache_info()["kernels"]
        magneto.compile(lambda xs: [f(x + 0.5) for f, x in zip(functions, xs)])(inputs)
        assert _magneto.kernel_cache_info()["kernels"] - before < len(WIDTHS)
