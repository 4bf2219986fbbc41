"""A question about a tensor whose two answers lead to the same place is not asked: no graph break, no claim."""

from collections import defaultdict

import pytest
import torch

import magneto
from support import assert_counts, assert_same, counts

DEBUG = False
SEEN = []


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    monkeypatch.setitem(globals(), "DEBUG", False)
    monkeypatch.setitem(globals(), "SEEN", [])
    magneto.reset()


def tensors(x):
    return {"nan": x.sum(0) / x, "inf": x.cos() / 0, "good": x.sin(), "row": x[0] * 2}


def render(x):
    """As nerf-pytorch's render_rays ends."""
    ret = tensors(x)
    for k in ret:
        if (torch.isnan(ret[k]).any() or torch.isinf(ret[k]).any()) and DEBUG:
            SEEN.append(k)
    return ret


def three(x):
    y = x.log()
    if torch.isnan(y).any() or y.isinf().any() or torch.isnan(y.sum()):
        pass
    return y + 1


def number(x):
    if x.sum().item() > 0 and DEBUG:
        return x
    if not torch.isfinite(x).all() and DEBUG:
        return x * 2
    return x + 1


def parameter(x, verbose):
    if x.sum() > 0 and verbose:
        SEEN.append(1)
    return x + 1


ZEROS, ONES = torch.zeros(4, 5), torch.ones(4, 5)


@pytest.mark.parametrize("options", [{}, {"fullgraph": True}])
@pytest.mark.parametrize("f", [render, three, number, lambda x: parameter(x, False)])
def test_one_graph_whatever_the_answer(f, options):
    compiled = magneto.compile(f, **options)
    for x in (ZEROS, ONES, ZEROS, -ONES, ONES * float("nan"), ONES):
        assert_same(compiled(x), f(x))
    assert_counts(graphs=1, breaks=0, left=0, recompiles=0)


def test_what_is_followed_is_guarded():
    compiled = magneto.compile(render)
    compiled(ZEROS)
    assert_counts(graphs=1, breaks=0)
    globals()["DEBUG"] = True
    assert_same(compiled(ZEROS), tensors(ZEROS))
    assert SEEN == ["nan", "inf"]
    globals()["DEBUG"] = False
    compiled(ONES)
    assert SEEN == ["nan", "inf"]


def test_a_parameter_is_followed():
    compiled = magneto.compile(parameter)
    for x, verbose in ((ONES, False), (ONES, True), (-ONES, True), (ONES, False)):
        assert_same(compiled(x, verbose), x + 1)
    assert SEEN == [1]


def appends(x):
    seen = []
    if torch.isnan(x).any() or seen.append(1) or torch.isinf(x).any():
        pass
    return x + len(seen)


def inner(x, seen):
    seen.append(1)
    return torch.isinf(x)


def appends_inside(x):
    seen = []
    if torch.isnan(x).any() or inner(x, seen).any():
        pass
    return x + len(seen)


def fills(x):
    made = defaultdict(lambda: x)
    if torch.isnan(x).any() or torch.isinf(made["a"]).any():
        pass
    return x + len(made)


def writes(x):
    out = torch.ones(4, 5, dtype=torch.bool)
    if torch.isnan(x).any() or torch.isneginf(x, out=out).any():
        pass
    return x + out


def takes(x):
    items = iter([x, x, x])
    if torch.isnan(x).any() or any(items) or torch.isinf(x).any():
        pass
    return x + len(list(items))


@pytest.mark.parametrize("f", [appends, appends_inside, fills, writes, takes])
def test_a_way_that_does_something_is_not_left_out(f):
    x = torch.tensor(float("nan")) if f is takes else ONES * float("nan")
    good = torch.tensor(0.0) if f is takes else ZEROS
    compiled = magneto.compile(f)
    for t in (good, x, good, x):
        assert_same(compiled(t), f(t))


def test_the_truth_of_many_numbers_stays_an_error():
    def many(x):
        if x > 0:
            pass
        return x + 1

    with pytest.raises(RuntimeError, match="ambiguous"):
        magneto.compile(many)(ONES)


def test_ways_that_meet_after_a_store_break():
    def stores(x):
        k = 1
        if x.sum() > 0:
            k = 2
        return x + k

    before = counts()
    compiled = magneto.compile(stores)
    for x in (ONES, -ONES, ONES):
        assert_same(compiled(x), stores(x))
    assert counts(before).breaks
