"""Tensors that a function replaces by larger ones, as caches: their sizes are symbols from 1 on at once."""

import pytest
import torch
import torch.nn.functional as F

import magneto
from harness import forced_breaks
from magneto import _magneto
from tests.support import assert_same
from tests.support.counts import assert_counts, counts


class Cache:
    def __init__(self, n=1):
        self.rows = torch.randn(2, n, 4) if n else None
        self.steps = 0


def _append(x, cache):
    cache.rows = torch.cat([cache.rows, x], 1)
    return cache.rows


# What is done with the rows that were there, h, and the rows with the new one, r; x has one row.
OPS = {
    "sum": lambda h, r, x: (h.sum(1), r.sum(), h.sum(1, keepdim=True)),
    "broadcast": lambda h, r, x: (h + x, r * x, h * h.sum(1, keepdim=True)),
    "outer": lambda h, r, x: h.unsqueeze(2) + h.unsqueeze(1),
    "scores": lambda h, r, x: torch.softmax(x @ r.transpose(1, 2), -1) @ r,
    "scores_before": lambda h, r, x: torch.softmax(x @ h.transpose(1, 2), -1) @ h,
    "attention": lambda h, r, x: F.scaled_dot_product_attention(x, r, r),
    "attention_before": lambda h, r, x: F.scaled_dot_product_attention(h, h, h, is_causal=True),
    "view": lambda h, r, x: (h.reshape(2, -1), h.view(2, -1, 2, 2), r.flatten(1)),
    "transposed": lambda h, r, x: (h.transpose(1, 2).contiguous(), h.transpose(1, 2).reshape(8, -1)),
    "contiguous": lambda h, r, x: (h.transpose(0, 1).is_contiguous(), h.is_contiguous(), h.stride()),
    "transposed_view": lambda h, r, x: h.transpose(0, 1).contiguous().view(-1, 8),
    "permuted": lambda h, r, x: h.permute(2, 1, 0) * 2,
    "squeeze": lambda h, r, x: (h.squeeze(1), h.squeeze(), h.shape),
    "expand": lambda h, r, x: (x.expand(2, h.shape[1], 4) + h, h[:, :1].expand(-1, h.shape[1], -1)),
    "last": lambda h, r, x: (h[:, -1], r[:, -1:], h[:, 0], r[:, -2]),
    "window": lambda h, r, x: (h[:, -3:] * 2, r[:, 1:] + 1, h[:, :2].sum()),
    "mean": lambda h, r, x: (h.mean(1), h.var(1, correction=0), h.amax(1), h.argmax(1)),
    "norm": lambda h, r, x: F.layer_norm(h, (4,)),
    "cumulative": lambda h, r, x: (h.cumsum(1), r.flip(1), h.roll(1, 1)),
    "stack": lambda h, r, x: (torch.stack([h, h]), torch.cat([h, r], 1), torch.cat([h, h], 0)),
    "pad": lambda h, r, x: F.pad(h, (0, 0, 2, 1)),
    "range": lambda h, r, x: torch.arange(h.shape[1]) + torch.ones(h.shape[1]),
    "mask": lambda h, r, x: torch.ones(h.shape[1], h.shape[1]).tril() @ h,
    "where": lambda h, r, x: torch.where(torch.arange(r.shape[1]) > 0, r.transpose(1, 2), 0.0),
    "matmul": lambda h, r, x: (h @ h.transpose(1, 2), h.transpose(1, 2) @ h, h @ torch.ones(4, 3)),
    "linear": lambda h, r, x: F.linear(h, torch.ones(3, 4)),
    "question": lambda h, r, x: h * 2 if h.shape[1] > 1 else h * 3,
    "equal_one": lambda h, r, x: h * 2 if h.size(1) == 1 else h * 3,
    "number": lambda h, r, x: (h * h.shape[1], h / r.size(1), h.numel()),
    "index": lambda h, r, x: h[:, torch.tensor([0, 0])] + h.gather(1, torch.zeros(2, 1, 4, dtype=torch.long)),
    "split": lambda h, r, x: r.split([h.shape[1], 1], 1),
    "chunk": lambda h, r, x: h.chunk(2, 2),
    "conv": lambda h, r, x: F.conv1d(h.transpose(1, 2), torch.ones(4, 1, 3), padding=1, groups=4),
    "repeat": lambda h, r, x: (
        h.repeat(1, 2, 1),
        h.repeat_interleave(2, 1),
        h.unsqueeze(0).expand(3, -1, -1, -1),
    ),
    "sort": lambda h, r, x: (h.sort(1).values, h.topk(1, 1).values),
    "in_place": lambda h, r, x: r.clone().mul_(2).add_(x),
    "einsum": lambda h, r, x: torch.einsum("bld,bmd->blm", h, h),
    "unbind": lambda h, r, x: h.unbind(2),
    "like": lambda h, r, x: torch.zeros_like(h).copy_(h) + torch.empty_like(h).fill_(1),
    "logsumexp": lambda h, r, x: (h.logsumexp(1), torch.log_softmax(h, 1)),
}


def _step(op):
    def step(x, cache):
        held = cache.rows
        return OPS[op](held, _append(x, cache), x)

    return step


def _follows(fast, f, op, lengths, steps=5):
    for n in lengths:
        mine = Cache(n)
        other = Cache(n)
        other.rows = mine.rows
        for _ in range(steps):
            x = torch.randn(2, 1, 4)
            assert_same(fast(x, mine), f(x, other), rtol=1e-4, atol=1e-5)
            assert_same(mine.rows, other.rows)


@pytest.mark.parametrize("lengths", [(1, 1, 3), (4, 1, 2)])
@pytest.mark.parametrize("op", OPS)
def test_ops_on_rows_that_become_more(op, lengths):
    f = _step(op)
    _follows(magneto.compile(f), f, op, lengths)
    assert counts().fallbacks == 0


@pytest.mark.parametrize("op", ["sum", "scores", "attention", "norm", "mean", "stack"])
def test_one_graph_serves_caches_of_any_length(op):
    f = _step(op)
    _follows(magneto.compile(f), f, op, (1, 5, 1))
    assert_counts(graphs=1, misses=1, breaks=0)


@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize("op", ["scores", "squeeze", "contiguous", "question", "window"])
def test_rows_that_become_more_after_forced_breaks(op, k):
    f = _step(op)
    with forced_breaks(k):
        _follows(magneto.compile(f), f, op, (1, 3))


@pytest.mark.parametrize("options", [{"dynamic": False}, {"dynamic": True}, {"backend": "eager"}])
def test_rows_that_become_more_with_options(options):
    f = _step("scores")
    _follows(magneto.compile(f, **options), f, "scores", (1, 3), steps=4)


@pytest.mark.parametrize("op", ["scores", "squeeze", "broadcast", "norm"])
def test_gradients_of_rows_that_become_more(op):
    def grads(call, cache, x):
        call(x, cache)
        out = cache.rows.square().sum()
        return torch.autograd.grad(out, x)[0].contiguous()

    f = _step(op)
    fast = magneto.compile(f)
    for n in (1, 3):
        mine, other = Cache(n), Cache(n)
        other.rows = mine.rows
        for _ in range(4):
            x = torch.randn(2, 1, 4, requires_grad=True)
            assert_same(grads(fast, mine, x), grads(f, other, x), rtol=1e-4, atol=1e-5)
            mine.rows, other.rows = mine.rows.detach(), other.rows.detach()


def test_a_cache_that_begins_empty():
    def f(x, cache):
        cache.rows = x if cache.rows is None else torch.cat([cache.rows, x], 1)
        return cache.rows.sum(1)

    fast = magneto.compile(f)
    _follows(fast, f, "sum", (0, 0, 2), steps=6)
    assert counts().graphs <= 3


def test_a_window_that_is_full_stays_as_it_is():
    def f(x, cache):
        cache.rows = torch.cat([cache.rows, x], 1)[:, -4:]
        return cache.rows.mean(1)

    fast = magneto.compile(f)
    _follows(fast, f, "mean", (1, 4), steps=7)
    assert counts().fallbacks == 0


def test_lists_and_dicts_of_rows():
    def f(x, cache):
        cache.table["k"] = torch.cat([cache.table["k"], x], 1)
        cache.list[0] = torch.cat([cache.list[0], x * 2], 1)
        return cache.table["k"].sum(1) + cache.list[0].mean(1)

    def made(n):
        cache = Cache(0)
        cache.table, cache.list = {"k": torch.ones(2, n, 4)}, [torch.ones(2, n, 4)]
        return cache

    fast = magneto.compile(f)
    for n in (1, 3):
        mine, other = made(n), made(n)
        for _ in range(5):
            x = torch.randn(2, 1, 4)
            assert_same(fast(x, mine), f(x, other), rtol=1e-5, atol=1e-6)
    assert_counts(graphs=1, misses=1)


def test_lengths_that_are_proven_right_are_not_inferred_again():
    """One look at the graph's symbols says at which lengths it is right: not one look for each length."""

    @magneto.compile
    def step(x, cache):
        rows = _append(x, cache)
        mask = torch.arange(rows.shape[1]) < rows.shape[1] - 1
        scores = (x @ rows.transpose(1, 2)).masked_fill(mask, 0.0)
        return scores.softmax(-1) @ rows

    cache = Cache(3)
    with torch.no_grad():
        for _ in range(3):
            step(torch.randn(2, 1, 4), cache)
        before = _magneto.stats()["inferred"]
        for _ in range(20):
            x, rows = torch.randn(2, 1, 4), cache.rows
            got = step(x, cache)
            rows = torch.cat([rows, x], 1)
            mask = torch.arange(rows.shape[1]) < rows.shape[1] - 1
            want = (x @ rows.transpose(1, 2)).masked_fill(mask, 0.0).softmax(-1) @ rows
            assert_same(got, want)
    assert _magneto.stats()["inferred"] == before
    assert_counts(breaks=0)


def test_memory_is_packed_for_blocks_that_grow_shrink_and_vanish():
    """Places of temporaries are kept while these fit; results are eager's whatever the order of sizes."""

    def f(x, y):
        a = x.cumsum(0) @ y
        b = torch.sort(a + 1).values @ y.t()
        c = torch.cat([b, x]).cumsum(1) * 2
        return c.sort(dim=0).values @ y, b @ y

    fast = magneto.compile(f, dynamic=True)
    y = torch.randint(-1, 2, (5, 7)).float()  # whole numbers: the same bits in any order of sums
    with torch.no_grad():
        for n in (3, 4, 5, 6, 7, 40, 41, 300, 2, 299, 8, 9, 1000, 3, 4, 500, 0, 50):
            x = torch.randint(-2, 3, (n, 5)).float()
            assert_same(fast(x, y), f(x, y))
