"""Containers older than a call whose length changes from call to call: after a few lengths, what needs it breaks the graph."""

import collections

import pytest
import torch

import magneto
from support import assert_same, counts


class Keeps(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 8).requires_grad_(False)
        self.layer.weight.copy_(torch.randint(-3, 3, (8, 8)))  # sums and means are exact
        self.layer.bias.zero_()
        self.list, self.deque, self.dict = [], collections.deque(), {}

    def forward(self, x):
        y = self.layer(x).relu()
        return self.note(y, y.mean())


class CutsByDel(Keeps):
    def note(self, y, m):
        self.list.append(float(m))
        del self.list[:-10]
        return y * 2


class CutsByASlice(Keeps):
    def note(self, y, m):
        self.list.append(float(m))
        self.list = self.list[-10:]
        return y * 2


class Pops(Keeps):
    def note(self, y, m):
        self.list.append(m.item())
        if len(self.list) > 10:
            self.list.pop(0)
        return y * 2


class PopsLeft(Keeps):
    def note(self, y, m):
        self.deque.append(m.item())
        while len(self.deque) > 10:
            self.deque.popleft()
        return y * 2


class Averages(Keeps):
    def note(self, y, m):
        self.list.append(m.item())
        return y - sum(self.list) / len(self.list)


class AveragesTensors(Keeps):
    def note(self, y, m):
        self.list.append(y.detach())
        if len(self.list) > 10:
            self.list.pop(0)
        return torch.stack(self.list).mean(0) + y


class Inserts(Keeps):
    def note(self, y, m):
        self.list.insert(0, m.item())
        return y - min(self.list)


class LooksAtTheLast(Keeps):
    def note(self, y, m):
        if self.list and self.list[-1] > 1e9:
            y = y * 2
        self.list.append(m.item())
        return y


class FillsADict(Keeps):
    def note(self, y, m):
        self.dict[len(self.dict)] = m.item()
        return y * 2


PROGRAMS = Keeps.__subclasses__()
CALLS = 24


def run(kind, compiled, **options):
    torch.manual_seed(0)
    model = kind()
    f = magneto.compile(model, **options) if compiled else model
    results, after = [], None
    with torch.no_grad():
        for i in range(CALLS):
            results.append(f(torch.randint(-3, 3, (4, 8)).float()))
            if i == CALLS * 3 // 4:
                after = counts()
    return results, model.list, list(model.deque), model.dict, after


@pytest.mark.parametrize("kind", PROGRAMS)
def test_results_and_contents_are_eagers_and_compiling_ends(kind):
    magneto.reset()
    *got, after = run(kind, True)
    *want, _ = run(kind, False)
    assert_same(got, want)
    assert counts().fallbacks == 0 and counts().left == 0
    assert counts(after).attempts == 0, "the last calls recorded nothing"
    assert counts().graphs < CALLS


@pytest.mark.parametrize("kind", [CutsByDel, Pops])
def test_fullgraph_guards_each_length(kind):
    magneto.reset()
    *got, _ = run(kind, True, fullgraph=True, recompile_limit=64)
    *want, _ = run(kind, False)
    assert_same(got, want)
    assert counts().breaks == 0


def test_a_loop_that_fills_a_dict_around_a_break_is_compiled_once_for_a_few_lengths():
    def f(x, d):
        out = {}
        for k, v in d.items():
            print(end="")
            out[k] = torch.sin(x) * v
            x = out[k]
        return out

    d = {f"k{i}": torch.full((3,), 1.0 + i / 64) for i in range(24)}
    magneto.reset()
    c = magneto.compile(f)
    for _ in range(3):
        assert_same(c(torch.ones(3), d), f(torch.ones(3), d))
    assert counts().fallbacks == 0 and counts().graphs <= 8


def test_few_lengths_are_graphs_of_their_own():
    def f(x, tensors):
        return torch.stack(tensors).sum(0) * x

    magneto.reset()
    c = magneto.compile(f)
    for n in [1, 2, 3, 4] * 2:
        tensors = [torch.full((3,), float(i)) for i in range(n)]
        assert_same(c(torch.ones(3), tensors), f(torch.ones(3), tensors))
    assert counts().graphs == 4 and counts().breaks == 0


def test_tuples_of_many_lengths_are_as_before():
    def f(x, *tensors):
        return sum(tensors) * x

    magneto.reset()
    c = magneto.compile(f)
    for n in range(1, 7):
        tensors = [torch.full((3,), float(i)) for i in range(n)]
        assert_same(c(torch.ones(3), *tensors), f(torch.ones(3), *tensors))
    assert counts().graphs == 6 and counts().breaks == 0
