"""Models that are compiled, called, copied and dropped leave nothing behind: no object, no entry, no memory."""

import copy
import gc
import pickle
import weakref

import pytest
import torch

import magneto
from magneto import _magneto


class Model(torch.nn.Module):
    def __init__(self, cycle, hook):
        super().__init__()
        self.first = torch.nn.Linear(8, 8)
        self.rest = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU())
        if cycle:
            self.cycle = [self]
        if hook:
            self.first.register_forward_hook(lambda m, args, out, me=self: out + me.rest[0].bias)

    def forward(self, x):
        y = self.rest(self.first(x))
        print(end="")
        return y * 2


def live(refs, *, cycle=False, hook=False, part=False, grad=False, copied=False, shared=False):
    """One model's life."""
    m = Model(cycle, hook)
    backend = "magneto" if grad else "aten"
    if part:
        m.rest = magneto.compile(m.rest, backend=backend)
    compiled = magneto.compile(m, backend=backend)
    wrapped = magneto.compile(lambda x: m(x) + 1, backend=backend) if shared else m
    x = torch.randn(2, 8)
    with torch.set_grad_enabled(grad):
        compiled(x)
        wrapped(x)
        out = compiled(x)
        if grad:
            out.sum().backward()
    if copied:
        copy.deepcopy(compiled)(x)
        if not part:
            pickle.loads(pickle.dumps(m))(x)
    refs += [weakref.ref(m), weakref.ref(m.first.weight), weakref.ref(m.rest)]


@pytest.fixture(autouse=True)
def small_heap():
    """Collections look only at what a test makes."""
    magneto.reset()
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


KINDS = [
    {},
    {"cycle": True},
    {"hook": True},
    {"part": True},
    {"grad": True},
    {"copied": True},
    {"shared": True},
    {"cycle": True, "hook": True, "grad": True, "shared": True},
    {"cycle": True, "part": True, "copied": True},
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda k: "-".join(k) or "plain")
def test_dropped_models(kind):
    counts = []
    for _ in range(4):
        refs = []
        for _ in range(2):
            live(refs, **kind)
        gc.collect()
        gc.collect()
        assert not [r for r in refs if r()]
        assert not [e for e in _magneto.entries() if e["code"] is Model.forward.__code__]
        counts.append(len(gc.get_objects()))
    assert counts[3] - counts[1] <= 20


def test_compile_and_reset():
    def f(x):
        return (x * 2).sin()

    counts = []
    for _ in range(4):
        for n in range(5):
            compiled = magneto.compile(f)
            compiled(torch.ones(n + 1))
            magneto.reset()
        gc.collect()
        counts.append(len(gc.get_objects()))
    assert counts[3] - counts[1] <= 10
