"""Who shares compiled entries: equal options share them, instances of one class do not get into each other's way."""

import collections
import dataclasses
import gc
import os
import warnings

import pytest
import torch
from torch import nn
from torch._subclasses import FakeTensorMode

import magneto
from magneto import _magneto
from support import counts


@pytest.fixture(autouse=True)
def no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def recordings():
    return counts().attempts


def test_functions_made_anew_share_their_entries():
    x = torch.ones(3)

    def make(k):
        return lambda x: x * 2 + k.shape[0]

    for i in range(30):
        assert magneto.compile(lambda x: x * 2 + 1)(x).tolist() == [3, 3, 3]
    assert recordings() == 1
    for i in range(30):
        assert magneto.compile(make(x))(x).tolist() == [5, 5, 5]
    assert recordings() == 2


def test_a_rehearsal_with_other_kinds_of_tensors():
    """Fake or sparse tensors are not recorded; what was compiled for others stays, and what was not will be."""

    def f(x):
        return x * 2 * 3

    x, fake, sparse = torch.ones(3), FakeTensorMode().from_tensor(torch.ones(3)), torch.eye(3).to_sparse()
    for first in (fake, sparse, x):
        magneto.reset()
        c = magneto.compile(f)
        for t in (first, first, x, fake, sparse, *[fake] * 20, x, x):
            assert c(t).shape == t.shape and c(t).layout == t.layout
        assert counts().graphs == 1
        before = counts()
        assert c(x).tolist() == [6, 6, 6]
        assert counts().hits == before.hits + 1 and counts().attempts == before.attempts < 60


def test_compiled_twice():
    def f(x):
        return x + 1

    x = torch.ones(3)
    magneto.compile(f)(x)
    magneto.compile(f)(x)
    assert recordings() == 1
    magneto.compile(f, fullgraph=True)(x)
    assert recordings() == 2


def test_closures_over_different_values():
    def make(k, m):
        def f(x):
            return m(x) * k

        return magneto.compile(f)

    modules = [nn.Linear(2, 2) for _ in range(12)]
    x = torch.ones(1, 2)
    for _ in range(2):
        for i, m in enumerate(modules):
            assert torch.allclose(make(i, m)(x), m(x) * i, atol=1e-6)
    assert recordings() == 12


class Block(nn.Module):
    def __init__(self, i):
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.i = i

    def forward(self, x):
        y = self.linear(x)
        print(end="")
        return y.relu() + self.i


class Net(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.blocks = nn.ModuleList(Block(i) for i in range(n))

    def forward(self, x):
        for b in self.blocks:
            x = b(x)
        return x


def test_many_instances_of_one_class_that_breaks():
    net = Net(20)
    c = magneto.compile(net)
    x = torch.randn(2, 3)
    with torch.no_grad():
        for _ in range(2):
            assert torch.allclose(c(x), net(x), atol=1e-6)
        before = recordings()
        c(x)
    assert recordings() == before
    stats = counts()
    assert stats.graphs == 40 and not stats.fallbacks and not stats.recompiles


def test_many_compiled_modules():
    modules = [nn.Linear(3, 3) for _ in range(20)]
    compiled = [magneto.compile(m) for m in modules]
    x = torch.randn(2, 3)
    for _ in range(2):
        for m, c in zip(modules, compiled):
            assert torch.allclose(c(x), m(x), atol=1e-6)
    assert recordings() == 20 and not counts().recompiles
    del modules, compiled, m, c
    gc.collect()
    assert not _magneto.entries()


def test_modules_that_come_and_go():
    x = torch.randn(2, 3)
    for i in range(300):
        m = Block(i)
        with torch.no_grad():
            assert torch.allclose(magneto.compile(m)(x), m(x), atol=1e-6)
        del m
        gc.collect(0)
    gc.collect()
    assert len(_magneto.entries()) < 40


def test_the_limit_counts_one_instance():
    class Scale(nn.Module):
        def forward(self, x, k):
            return x * k

    a, b = Scale(), Scale()
    f, g = magneto.compile(a, dynamic=False), magneto.compile(b, dynamic=False)
    x = torch.ones(2)
    for k in range(7):
        assert f(x, str(k) if k < 0 else k)[0] == k and g(x, k)[0] == k
    assert not counts().fallbacks
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for k in range(7, 20):
            assert f(x, k)[0] == k
    assert len(said) <= 2  # the call of the module, then its forward as a frame of its own
    assert g(x, 3)[0] == 3


def test_a_function_that_was_given_up_uses_what_fits_again():
    f = magneto.compile(lambda x, k: x * len(k), dynamic=False)
    x = torch.ones(2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for k in range(60):
            assert f(x, "." * k)[0] == k
    before = counts()
    for _ in range(40):
        assert f(x, "...")[0] == 3
    after = counts()
    assert after.hits >= before.hits + 20 and after.attempts == before.attempts


class State(nn.Module):
    def __init__(self):
        super().__init__()
        self.plain, self.rows, self.named = (
            torch.zeros(3),
            [torch.zeros(3), torch.ones(3)],
            {"k": torch.ones(3)},
        )
        self.register_buffer("buffer", torch.zeros(3))


def test_tensors_that_a_recording_replaces_are_inputs_at_once():
    def attribute(s, x):
        s.plain = s.plain * 0.5 + x
        return s.plain

    def buffer(s, x):
        s.buffer = s.buffer + x
        return s.buffer * 2

    def items(s, x):
        s.rows[0], s.rows[1] = s.rows[1] + x, s.rows[0]
        s.named["k"] = s.named["k"] + s.rows[0]
        return s.named["k"]

    def split(s, x):
        s.plain = s.plain + x
        print(end="")
        s.plain = s.plain * 2
        return s.plain

    for step in attribute, buffer, items, split:
        magneto.reset()
        ours, theirs = State(), State()
        f = magneto.compile(lambda x, s=ours, step=step: step(s, x))
        for _ in range(4):
            x = torch.randn(3)
            assert torch.allclose(f(x), step(theirs, x))
        assert counts().recompiles == 0, step.__name__
        assert (
            torch.equal(ours.plain, theirs.plain)
            and torch.equal(ours.rows[1], theirs.rows[1])
            and torch.equal(ours.buffer, theirs.buffer)
        )


def test_copies_of_tensors_and_objects_compile_once():
    import copy

    class Box:
        def __init__(self, x):
            self.x, self.d = x, {"q": [1]}

    def f(x):
        a, b = Box(x), [x, [x + 1]]
        c, d, e = copy.deepcopy(a), copy.deepcopy(b), copy.copy(a)
        c.d["q"].append(2)
        return a.x * len(a.d["q"]) + c.x * len(c.d["q"]) + d[1][0] + e.x, d[0] is x

    g = magneto.compile(f)
    for _ in range(3):
        x = torch.randn(3)
        got, want = g(x), f(x)
        assert torch.allclose(got[0], want[0]) and got[1] == want[1]
    assert recordings() == 1


class TestFramesThatGainNothing:
    """From a place that no op follows, CPython runs the frame; it is looked at again now and then."""

    @staticmethod
    def driven(f, args, calls):
        before = counts().hits
        for a in (args(i) for i in range(calls)):
            f(*a)
        return counts().hits - before

    def test_python_between_breaks(self):
        def f(n):
            items = [str(n)]
            os.getpid()
            items.append(len(items))
            os.getpid()
            return items

        g = magneto.compile(f)
        for i in range(100):
            assert g(i % 3) == f(i % 3)
        assert self.driven(g, lambda i: (i % 3,), 200) < 40

    def test_the_part_of_a_frame_after_its_last_op(self):
        def f(x):
            y = x + 1
            n = 0
            for i in range(5):
                n += i
                os.getpid()
            return y, n

        g = magneto.compile(f)
        x = torch.randn(3)
        for _ in range(100):
            assert torch.equal(g(x)[0], x + 1) and g(x)[1] == 10
        assert 100 <= self.driven(g, lambda i: (x,), 100) < 200

    def test_frames_in_which_entries_died_are_measured_later(self):
        """What CPython runs faster it gets, although entries of another function died inside of the first frame."""
        todo = [1]

        @magneto.disable
        def drop():
            if todo:
                todo.pop()
                other = magneto.compile(eval("lambda x: x + 2"))
                other(torch.ones(2))
                del other
                gc.collect()

        def f(x):
            drop()
            n = 0
            for i in range(40):
                n += i * os.getpid()
            return x.sin()

        g = magneto.compile(f)
        x = torch.randn(3)
        for _ in range(100):
            assert torch.allclose(g(x), x.sin())
        assert not todo and self.driven(g, lambda i: (x,), 100) < 100

    def test_ops_that_come_late_are_compiled(self):
        def f(x, late):
            os.getpid()
            return x * 2 + 1 if late else x

        g = magneto.compile(f)
        x = torch.randn(3)
        for _ in range(300):
            assert g(x, False) is x
        graphs = counts().graphs
        for _ in range(300):
            assert torch.equal(g(x, True), x * 2 + 1)
        assert counts().graphs == graphs + 1 and self.driven(g, lambda i: (x, True), 50) >= 50

    def test_callees_with_ops_are_compiled(self):
        def callee(x):
            return x.sin() + 1

        def f(x):
            os.getpid()
            return list(map(callee, [x, x]))

        g = magneto.compile(f)
        x = torch.randn(3)
        for _ in range(60):
            assert torch.allclose(g(x)[1], x.sin() + 1)
        assert self.driven(g, lambda i: (x,), 50) >= 50


def test_methods_that_dataclasses_and_named_tuples_write_are_not_compiled_by_themselves():
    @dataclasses.dataclass
    class Data:
        name: str

    Named = collections.namedtuple("Named", "name other")

    def f(x, name):
        both = eval("Data(name), Named(name, 1)", {"Data": Data, "Named": Named, "name": name})  # breaks
        return x * 2, both

    c = magneto.compile(f)
    for i in range(2):
        assert c(torch.ones(2), str(i))[1] == (Data(str(i)), (str(i), 1))
    assert {e["code"].co_name for e in _magneto.entries()} <= {"f", "<module>"}


def test_warnings_of_c_code_that_are_collected_compile_once():
    f = magneto.compile(lambda x: x.type(torch.get_autocast_gpu_dtype()), fullgraph=True)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for _ in range(4):
            assert f(torch.ones(2)).dtype == torch.float16
    assert said and "deprecated" in str(said[0].message)
    assert not counts().recompiles
