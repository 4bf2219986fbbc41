"""Exception handlers around ops whose kernels may raise: those that cannot catch it, and those that only raise again, break nothing."""

import pytest
import torch

import magneto
from magneto import _magneto
from support import counts


def graphs_of(c, calls):
    """Calls c with each tuple of arguments: the results, and how many graphs that took."""
    _magneto.reset()
    before = counts().graphs
    return [c(*a) for a in calls], counts().graphs - before


class Cache(torch.nn.Module):
    """Static caches of a decoder."""

    def __init__(self, layers, refuse=None):
        super().__init__()
        self.keys = [torch.zeros(4, 8) for _ in range(layers)]
        self.refuse = refuse


class OfGlobals(Cache):
    """The fallback is for devices whose kernel does not exist."""

    def forward(self, x, i):
        for k in self.keys:
            x = x.sin()
            try:
                k.index_copy_(0, i, x)
            except (NotImplementedError, KeyError, torch.OutOfMemoryError):
                k[i] = x
            x = x + k.sum(0)
        return x


def test_a_handler_for_what_the_kernel_never_raises_is_no_break():
    calls = [(torch.rand(1, 8), torch.tensor([j])) for j in range(4)]
    eager, mine = OfGlobals(5), OfGlobals(5)
    got, graphs = graphs_of(magneto.compile(mine), calls)
    for a, b in zip(got, [eager(*c) for c in calls]):
        torch.testing.assert_close(a, b)
    for a, b in zip(mine.keys, eager.keys):
        torch.testing.assert_close(a, b)
    assert graphs == 1
    with pytest.raises((IndexError, RuntimeError)):
        magneto.compile(mine)(torch.rand(1, 8), torch.tensor([9]))


Refused = KeyError


class OfName(Cache):
    def forward(self, x, i):
        for k in self.keys:
            x = x.sin()
            try:
                k.index_copy_(0, i, x)
            except Refused:
                x = x - 1
            x = x + k.sum(0)
        return x


def test_the_class_that_a_handler_names_is_guarded(monkeypatch):
    mine, eager = OfName(3), OfName(3)
    c, x, bad = magneto.compile(mine), torch.rand(1, 8), torch.tensor([9])
    torch.testing.assert_close(c(x, torch.tensor([1])), eager(x, torch.tensor([1])))
    with pytest.raises((IndexError, RuntimeError)):
        c(x, bad)
    monkeypatch.setitem(globals(), "Refused", IndexError)
    for i in (bad, torch.tensor([2]), bad):
        torch.testing.assert_close(c(x, i), eager(x, i))


class OfAttribute(Cache):
    def forward(self, x, i):
        for k in self.keys:
            try:
                k.index_copy_(0, i, x)
            except self.refuse:
                x = x - 1
            x = x + k.sum(0)
        return x


def test_a_handler_whose_class_is_no_global_still_catches():
    mine, eager = OfAttribute(2, IndexError), OfAttribute(2, IndexError)
    c = magneto.compile(mine)
    for i in (1, 9, 2, 9):
        x, at = torch.rand(1, 8), torch.tensor([i])
        torch.testing.assert_close(c(x, at), eager(x, at))


def bare(n, x, i):
    try:
        return n(x).index_select(0, i)
    except IndexError:
        raise


def named(n, x, i):
    try:
        return n(x).index_select(0, i)
    except (IndexError, RuntimeError) as e:
        raise e


def other(n, x, i):
    try:
        return n(x).index_select(0, i)
    except Exception as e:
        raise ValueError(f"rows {tuple(i.shape)}") from e


def asked(n, x, i):
    """As torch_geometric's aggregations."""
    try:
        return n(x).index_select(0, i)
    except (IndexError, RuntimeError) as e:
        if i.numel() > 0 and int(i.max()) >= x.shape[0]:
            raise ValueError(f"found {int(i.max())}") from e
        raise e


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("f", [bare, named, other, asked])
def test_handlers_that_only_raise_again_are_no_breaks(f, grad):
    """The batch norm writes its statistics, so no run can be given up."""

    def make():
        torch.manual_seed(0)
        return torch.nn.BatchNorm1d(8)

    def net(n):
        return lambda x, i: f(n, f(n, x, i).cos(), i)

    mine, eager = make(), make()
    calls = [(torch.rand(4, 8), torch.tensor([0, 1, 2, j])) for j in range(3)]
    with torch.set_grad_enabled(grad):
        got, graphs = graphs_of(magneto.compile(net(mine)), calls)
        want = [net(eager)(*c) for c in calls]
    for a, b in zip(got, want):
        torch.testing.assert_close(a, b)
    torch.testing.assert_close(mine.running_var, eager.running_var)
    assert graphs == 1


@pytest.mark.parametrize("f", [bare, named, other, asked])
def test_what_they_raise_is_what_eager_raises(f):
    def net(x, i):
        return f(torch.sin, x, i) * 2

    c, x = magneto.compile(net), torch.rand(4, 8)
    torch.testing.assert_close(c(x, torch.tensor([1])), net(x, torch.tensor([1])))
    for call in (c, net):
        with pytest.raises(ValueError if f in (other, asked) else IndexError) as e:
            call(x, torch.tensor([9]))
        assert (e.value.__cause__ is not None) == (f in (other, asked))


def notes(n, x, i):
    try:
        return n(x).index_select(0, i)
    except IndexError:
        seen.append(1)
        raise


def goes_on(n, x, i):
    try:
        return n(x).index_select(0, i)
    except IndexError:
        if x.shape[0] > 100:
            raise
        return n(x)


def around(n, x, i):
    try:
        return asked(n, x, i)
    except ValueError:
        return n(x) - 1


seen = []


@pytest.mark.parametrize("f", [notes, goes_on, around])
def test_handlers_that_do_more_than_raise_run(f):
    """Also where the run writes to its inputs, and cannot be given up."""

    def net(n):
        return lambda x, i: f(n, x, i).cos()

    torch.manual_seed(0)
    mine, eager = torch.nn.BatchNorm1d(8), torch.nn.BatchNorm1d(8)
    c, e = magneto.compile(net(mine)), net(eager)
    for k in (1, 9, 9, 2):
        x, i = torch.rand(4, 8), torch.tensor([k])
        if f is notes and k == 9:
            for call in (c, e):
                with pytest.raises(IndexError):
                    call(x, i)
        else:
            torch.testing.assert_close(c(x, i), e(x, i))
        torch.testing.assert_close(mine.running_mean, eager.running_mean)
    assert len(seen) == (4 if f is notes else 0)
    seen.clear()


def in_rows(index):
    """The numbers as rows of three; None if they do not fit."""
    try:
        return index.view(-1, 3) + 1
    except RuntimeError:
        return None


def test_sizes_in_a_block_with_a_handler_stay_symbolic():
    calls = [(torch.arange(n),) for n in (6, 9, 15, 30)]
    got, graphs = graphs_of(magneto.compile(in_rows), calls)
    for a, b in zip(got, [in_rows(*c) for c in calls]):
        torch.testing.assert_close(a, b)
    assert graphs == 2


def test_sizes_that_raise_in_a_block_with_a_handler_are_caught():
    c = magneto.compile(in_rows)
    for n in (6, 9, 15):
        c(torch.arange(n))
    assert c(torch.arange(10)) is None
    assert c(torch.arange(30)).shape == (10, 3)
