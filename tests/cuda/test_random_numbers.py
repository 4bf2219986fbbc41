"""Random calls on a GPU: after the same seed, eager's numbers, also from CUDA graphs."""

import copy
import random

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import magneto
from support.gpu import close, rnd

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.usefixtures("compiled_kernels"),
]


def state():
    return torch.cuda.get_rng_state()


def side_by_side(f, g, x, calls=6):
    """f and g from the same seed, each with its own numbers in every call; the generators end alike."""
    wants = []
    torch.cuda.manual_seed(5)
    for _ in range(calls):
        wants.append(f(x))
    end = state()
    torch.cuda.manual_seed(5)
    for want in wants:
        close(g(x), want)
    assert torch.equal(state(), end)
    return wants


def noise(x):
    return x + torch.rand_like(x), torch.randn(7, 3, device="cuda"), torch.randint(0, 9, (5,), device="cuda")


def drops(x):
    return F.dropout(F.gelu(F.dropout(x, 0.3)) + 1, 0.5) * 2


def odd(x):
    return F.dropout(x[:, :-1] * 2, 0.3), F.dropout(x[:3, :2] + 1, 0.1), F.dropout(x[0, :3] + 1, 0.1)


def channels(x):
    y = x.reshape(2, 4, 8, -1)
    return F.dropout2d(y, 0.5), F.alpha_dropout(y, 0.2), F.feature_alpha_dropout(y, 0.3)


def turned(x):
    return F.dropout(x.t() * 2, 0.25), F.dropout(x.reshape(4, 2, 8, -1).permute(0, 2, 3, 1) + 1, 0.25)


def filled(x):
    y = torch.empty_like(x)
    return (
        y.uniform_(-1, 2) + x,
        torch.bernoulli(x.sigmoid()),
        x.clone().exponential_(),
        x.clone().normal_(1, 2),
    )


def halves(x):
    return F.dropout(x.half() + 1, 0.3), F.dropout(x.bfloat16() * 2, 0.3), F.dropout(x.double() * 2, 0.3)


@pytest.mark.parametrize("f", [noise, drops, odd, channels, turned, filled, halves], ids=lambda f: f.__name__)
def test_numbers_are_eagers_and_runs_are_replayed(f, replays):
    wants = side_by_side(f, magneto.compile(f), rnd(64, 48))
    first, last = (
        torch.cat([t.flatten().float() for t in (w if isinstance(w, tuple) else (w,))])
        for w in (wants[0], wants[-1])
    )
    assert not torch.equal(first, last)
    assert replays() > 2


def layouts():
    """Sizes and orders of dimensions: ones, odd ones, more elements than PyTorch's kernels have threads."""
    rand = random.Random(7)
    for size in [(1100, 1100), (1, 3, 2200, 512), (2, 1, 4), (1, 1), (5, 3, 7), (6, 1, 2), (4096, 4100)]:
        yield size, tuple(range(len(size)))
    for _ in range(20):
        size = tuple(rand.choice([1, 2, 3, 4, 8, 24, 40]) for _ in range(rand.randint(1, 5)))
        yield size, tuple(rand.sample(range(len(size)), len(size)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_dropout_of_any_layout(dtype):
    for size, order in layouts():
        p = 0.1 + 0.8 * (sum(size) % 9) / 9

        def f(x, order=order, p=p):
            y = F.dropout(x.permute(order) * 2 + 1, p)
            return F.dropout(y + 1, p).sum(-1), torch.native_dropout(y * 1, 0.5, True)[1], y

        x, g = rnd(*size, dtype=dtype), magneto.compile(f)
        torch.manual_seed(1)
        want = f(x)
        torch.manual_seed(1)
        got = g(x)
        for a, b in zip(got, want, strict=True):
            assert a.stride() == b.stride(), (size, order)
            torch.testing.assert_close(a, b, rtol=2e-2, atol=2e-1 if a.ndim < len(size) else 1e-3)


def test_results_and_masks_stay_valid():
    f = magneto.compile(lambda x: F.dropout(x + 1, 0.5))
    x, kept = rnd(32, 32), []
    for _ in range(8):
        y = f(x)
        kept.append((y, y.clone()))
    assert all(torch.equal(a, b) for a, b in kept)
    assert len({tuple((y == 0).flatten().tolist()) for y, _ in kept}) == len(kept)


def test_a_seed_set_in_between_counts():
    f = magneto.compile(lambda x: F.dropout(x + 1, 0.5))
    x, seen = rnd(32, 32), []
    for _ in range(4):
        torch.manual_seed(3)
        seen.append(f(x))
        torch.rand(3, device="cuda")
    assert all(torch.equal(seen[0], y) for y in seen)


def test_a_state_that_is_put_back_counts():
    f = magneto.compile(lambda x: F.dropout(x + 1, 0.5))
    x = rnd(32, 32)
    for _ in range(4):
        before = state()
        a = f(x)
        torch.cuda.set_rng_state(before)
        assert torch.equal(f(x), a)
        with torch.random.fork_rng(devices=[0]):
            f(x)


class Attention(nn.Module):
    def __init__(self, p, causal=False):
        super().__init__()
        self.qkv, self.out, self.p, self.causal = nn.Linear(64, 192), nn.Linear(64, 64), p, causal

    def forward(self, x):
        q, k, v = (t.reshape(*x.shape[:2], 4, 16).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=self.p, is_causal=self.causal)
        return F.dropout(self.out(y.transpose(1, 2).reshape(x.shape)), self.p) + x


def train(net, x, calls):
    torch.cuda.manual_seed(9)
    optimizer = torch.optim.SGD(net.parameters(), 0.05)
    losses = []
    for _ in range(calls):
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    return torch.stack(losses)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("causal", [False, True])
def test_attention_with_dropout_trains_as_in_eager(dtype, causal, replays):
    net = nn.Sequential(Attention(0.2, causal), Attention(0.1)).cuda().to(dtype)
    x, other = rnd(4, 32, 64, dtype=dtype), copy.deepcopy(net)
    want = train(net, x, 8)
    end = state()
    got = train(magneto.compile(other), x, 8)
    torch.testing.assert_close(got, want, rtol=2e-2, atol=2e-3)
    assert torch.equal(state(), end)
    for a, b in zip(net.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=5e-2, atol=5e-3)
    assert replays() > 6


def test_a_whole_step_with_dropout(replays):
    net = nn.Sequential(Attention(0.2), nn.Linear(64, 8)).cuda()
    x, other = rnd(4, 32, 64), copy.deepcopy(net)

    def make(net):
        optimizer = torch.optim.AdamW(net.parameters(), 1e-2)

        def step(x):
            loss = net(x).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss.detach()

        return step

    side_by_side(make(net), magneto.compile(make(other)), x, 8)
    assert replays() > 3


def test_forward_without_its_backward_and_two_forwards():
    """Backward gets the seeds of its own forward, from a graph or not."""
    net = Attention(0.3).cuda()
    compiled, x = magneto.compile(net), rnd(4, 32, 64)

    def grads(f, n):
        torch.cuda.manual_seed(n)
        ys = [f(x) for _ in range(n)]
        return [torch.autograd.grad(y.square().sum(), net.qkv.weight)[0] for y in ys]

    for n in (1, 2, 1, 3, 1, 1, 2):
        for a, b in zip(grads(compiled, n), grads(net, n), strict=True):
            close(a, b)
        with torch.no_grad():
            compiled(x)


@pytest.mark.parametrize("keeps", [True, False])
def test_checkpointed_attention_with_dropout(keeps):
    net = Attention(0.3).cuda()
    x = rnd(4, 32, 64)

    def f(x):
        return checkpoint(net, x, use_reentrant=False, preserve_rng_state=keeps).square().sum()

    def grad(f):
        torch.cuda.manual_seed(4)
        return torch.autograd.grad(f(x), net.qkv.weight)[0]

    want, g = grad(f), magneto.compile(f)
    for _ in range(4):
        close(grad(g), want)


def test_an_unread_random_call_draws():
    def f(x):
        F.scaled_dot_product_attention(x, x, x, dropout_p=0.5)
        F.dropout(x, 0.5)
        return torch.rand(3, device="cuda")

    side_by_side(f, magneto.compile(f), rnd(2, 4, 8, 16))


def test_equal_random_calls_differ():
    def f(x):
        a, b = (F.scaled_dot_product_attention(x, x, x, dropout_p=0.5) for _ in range(2))
        return a - b, F.dropout(x, 0.5) - F.dropout(x, 0.5)

    for a, b in side_by_side(f, magneto.compile(f), rnd(2, 4, 8, 16)):
        assert a.any() and b.any()


def test_a_call_that_waits_for_the_device_is_not_captured():
    """The capture fails; eager's generator goes on after it."""

    def f(x):
        return torch.multinomial(x.softmax(-1), 2), torch.randperm(9, device="cuda"), F.dropout(x, 0.5)

    side_by_side(f, magneto.compile(f), rnd(8, 16))
    torch.rand(3, device="cuda")


def test_the_programs_own_graph_of_a_random_function():
    f = magneto.compile(lambda x: F.dropout(x + 1, 0.5))
    x = rnd(32, 32)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            f(x)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = f(x)
    graph.replay()
    first = y.clone()
    graph.replay()
    assert not torch.equal(first, y)
    f(x)


def test_a_generator_of_the_programs_own():
    mine = torch.Generator("cuda")

    def f(x):
        return x + torch.rand(x.shape, device="cuda", generator=mine)

    g, x = magneto.compile(f), rnd(8, 8)
    for _ in range(4):
        mine.manual_seed(2)
        a = g(x)
        mine.manual_seed(2)
        close(a, f(x))
