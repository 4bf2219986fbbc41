"""Programs that train: each is run with an identity and with magneto.compile for `C`, and must leave the same behind.

A program returns a nest of tensors and plain values; its tensors are compared by value, dtype, strides, requires_grad,
and is_leaf, its errors by type and text."""

from __future__ import annotations

import warnings

import torch

import magneto
from magneto import _magneto
from support import assert_same, counts


class Registry:
    """Programs of one test file, and what compiling each is expected to give."""

    def __init__(self):
        self.programs, self.expected = {}, {}

    def __call__(self, graphs=1, joint=1, breaks=0, close=None):
        def add(f):
            assert f.__name__ not in self.programs
            self.programs[f.__name__] = f
            self.expected[f.__name__] = ((graphs, joint, breaks), close or {})
            return f

        return add

    def check(self, name):
        want = outcome(self.programs[name], lambda f, **k: f)
        _magneto.reset()
        got = outcome(self.programs[name], magneto.compile)
        numbers, close = self.expected[name]
        compare(got, want, name, **close)
        s = counts()
        assert not s.fallbacks, s
        if numbers[0] is not None:
            mine = (s.graphs, s.joint_graphs, s.breaks)
            assert all(b is None or a == b for a, b in zip(mine, numbers)), (
                f"graphs, joint graphs, breaks: {mine}, {s.reasons}"
            )


def outcome(program, compiler):
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return program(compiler)
        except Exception as e:
            return e


def text(e):
    s = str(e)
    if "modified by an inplace operation" in s:
        return "modified by an inplace operation"
    return s.split("\n")[0]


def compare(got, want, what, **close):
    if isinstance(got, Exception) and not isinstance(want, Exception):
        raise got
    assert_same(got, want, what, **{"rtol": 1e-4, "atol": 1e-5, "error_text": text, **close})


def leaf(*size, **kw):
    return torch.randn(*size, **kw).requires_grad_()


def grads(*of):
    """Gradients of leaves, or of every parameter of a module."""
    out = []
    for x in of:
        out.append({n: p.grad for n, p in x.named_parameters()} if isinstance(x, torch.nn.Module) else x.grad)
    return out


def mlp(*widths):
    layers = []
    for a, b in zip(widths or (4, 8, 3), (widths or (4, 8, 3))[1:]):
        layers += [torch.nn.Linear(a, b), torch.nn.Tanh()]
    return torch.nn.Sequential(*layers[:-1])
