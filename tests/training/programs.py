"""Programs that train: each is run with an identity and with magneto.compile for `C`, and must leave the same behind.

A program returns a nest of tensors and plain values; its tensors are compared by value, dtype, strides, requires_grad,
and is_leaf, its errors by type and text."""
from __future__ import annotations

import warnings

import torch
from magneto import _magneto

import magneto


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
        same(got, want, name, **close)
        s = _magneto.stats()
        assert not s["fallbacks"], s
        if numbers[0] is not None:
            mine = (s["graphs"], s["joint_graphs"], sum(s["breaks"].values()))
            assert all(b is None or a == b for a, b in zip(mine, numbers)), f"graphs, joint graphs, breaks: {mine}, {s['breaks']}"


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


def same(got, want, what="", rtol=1e-4, atol=1e-5):
    if isinstance(want, Exception) or isinstance(got, Exception):
        if not isinstance(want, Exception):
            raise got
        assert type(got) is type(want), f"{what}: {got!r}, eager {want!r}"
        assert text(got) == text(want), f"{what}: {got!r}, eager {want!r}"
    elif isinstance(want, torch.Tensor):
        assert isinstance(got, torch.Tensor), f"{what}: {got!r}"
        for fact in ("dtype", "shape", "requires_grad", "is_leaf", "layout"):
            a, b = getattr(got, fact), getattr(want, fact)
            assert a == b, f"{what}: {fact} {a}, eager {b}"
        if want.layout == torch.strided:
            assert got.stride() == want.stride(), f"{what}: strides {got.stride()}, eager {want.stride()}"
        assert (got.grad_fn is None) == (want.grad_fn is None), f"{what}: grad_fn {got.grad_fn}"
        torch.testing.assert_close(got.detach(), want.detach(), rtol=rtol, atol=atol, equal_nan=True, msg=lambda m: f"{what}: {m}")
    elif isinstance(want, dict):
        assert list(got) == list(want), f"{what}: {list(got)}, eager {list(want)}"
        for k in want:
            same(got[k], want[k], f"{what}.{k}", rtol, atol)
    elif isinstance(want, (list, tuple)):
        assert len(got) == len(want), f"{what}: {len(got)} values, eager {len(want)}"
        for i, (a, b) in enumerate(zip(got, want)):
            same(a, b, f"{what}[{i}]", rtol, atol)
    else:
        assert got == want, f"{what}: {got!r}, eager {want!r}"


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
