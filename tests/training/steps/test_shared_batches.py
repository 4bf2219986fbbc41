"""Batches that are views of one tensor: a step that writes to others only is compiled, and any sharing is right."""

import pytest
import torch

import magneto
from magneto import _magneto
from support import assert_counts, assert_same


def kernels() -> int:
    info = _magneto.kernel_cache_info()
    return info["hits"] + info["misses"]


def next_tokens(tokens):
    """What a language model is trained on: two views that overlap."""
    return tokens[:, :-1], tokens[:, 1:]


def training(compiled):
    torch.manual_seed(0)
    embedding, head = torch.nn.Embedding(20, 8), torch.nn.Linear(8, 20)
    parameters = [*embedding.parameters(), *head.parameters()]
    opt = torch.optim.AdamW(parameters, 0.1)

    def step(x, y):
        loss = torch.nn.functional.cross_entropy(head(embedding(x)).flatten(0, 1), y.flatten())
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss.detach()

    return magneto.compile(step) if compiled else step, parameters


@pytest.mark.parametrize("later", [(5, 9, 9), (5, 9, 7)], ids=["one length", "lengths"])
def test_a_step_with_views_of_one_batch_is_compiled(later):
    _magneto.reset()
    (step, mine), (eager, theirs) = training(True), training(False)
    before = kernels()
    for n in later:
        x, y = next_tokens(torch.randint(20, (3, n)))
        assert_same(step(x, y), eager(x, y), rtol=1e-5, atol=1e-6)
    assert_same(mine, theirs, rtol=1e-4, atol=1e-5)
    assert kernels() > before, "it ran op by op"
    assert_counts(breaks=0)


def ran_compiled(f, *inputs) -> bool:
    """Kernels of ATen are seen by a profiler one by one."""
    with torch.profiler.profile() as p:
        f(*inputs)
    return not any(event.key in ("aten::mul", "aten::add_") for event in p.key_averages())


def test_batches_may_share_memory_in_one_call_and_not_in_the_next():
    _magneto.reset()
    total = torch.zeros(4)

    @magneto.compile
    def f(x, y):
        total.add_((x * y).sum(0))
        return x * y + total

    tokens = torch.randn(3, 5)
    shared = tokens[:, :-1], tokens[:, 1:]
    for inputs in (shared, [t.clone() for t in shared], shared, (shared[0], shared[0])):
        expected = total + (inputs[0] * inputs[1]).sum(0)
        assert_same(f(*inputs), inputs[0] * inputs[1] + expected, rtol=1e-5, atol=1e-6)
        assert_same(total, expected, rtol=1e-5, atol=1e-6)
        assert ran_compiled(f, *inputs)


def test_what_is_written_through_another_input_is_seen():
    _magneto.reset()
    p = torch.nn.Parameter(torch.ones(4), requires_grad=False)

    def f(x, y):
        p.add_(1)
        return x * y + p

    compiled = magneto.compile(f)
    for make in (lambda: torch.full((4,), 2.0), lambda: p.detach(), lambda: torch.full((4,), 3.0)):
        results = []
        for one in (f, compiled):
            p.fill_(1)
            x = make()
            results.append([one(x, x.view(4)), p.clone(), x.clone()])
        assert_same(*results)


def test_a_parameter_that_gets_the_memory_of_another_one():
    """Parameters are the same objects in each call: what they share is looked at all the same."""
    _magneto.reset()
    a, b = (torch.nn.Parameter(torch.ones(4), requires_grad=False) for _ in range(2))

    def f(x):
        a.add_(x)
        return a + b

    compiled = magneto.compile(f)
    for tied in (False, True, False):
        results = []
        for one in (f, compiled):
            a.data = torch.ones(4)
            b.data = a.data if tied else torch.ones(4)
            results.append([one(torch.ones(4)), a.clone(), b.clone()])
        assert_same(*results)
