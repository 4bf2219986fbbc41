"""Answers about numbers in 0-dim tensors that live in objects: one graph while the answer stays, right results when it changes."""

import math

import pytest
import torch

import magneto
from support import assert_same, counts


class State:
    def __init__(self, dtype=torch.float32):
        self.n = torch.zeros((), dtype=dtype)
        self.m = torch.ones(())
        self.w = torch.zeros(3)


def step(s, x):
    s.n += 1
    if s.n > 5:
        return x * s.n
    return x - s.n


def arithmetic(s, x):
    s.n.add_(1)
    rho = 9 - 2 * s.n * (0.9**s.n) / (1 - 0.9**s.n)
    return x * rho if rho > 2.0 else x + 1


def of_numbers(s, x):
    s.n.add_(1)
    k = s.n.item()
    return x * (k**-0.5) / (1 + 1 / k) if 1 / k < 0.2 else x * max(1, k - 3)


def equal(s, x):
    s.n.add_(2)
    return x if s.n == 9 else x / s.n


def both(s, x):
    torch._foreach_add_([s.n, s.m], 1)
    torch._foreach_mul_([s.m], [s.n])
    return x + 1 if s.m < 30 and not s.n > 4 else x * s.m


def written_later(s, x):
    small = s.n < 2
    s.n.fill_(0 if s.n > 3 else s.n + 1)
    return x + s.n if small else x - s.n


def copied(s, x):
    before = s.n.clone()
    s.n.copy_(s.n + 1)
    return x * 2 if before.detach() == 4 else x * s.n


def returned(s, x):
    s.n += 1
    k = s.n.item()
    return (x, k, k / 2, k > 3) if k > 2 else (x, k, 0, False)


PROGRAMS = [step, arithmetic, of_numbers, equal, both, written_later, copied, returned]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64], ids=str)
@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
def test_counters(f, dtype):
    mine, eager = State(dtype), State(dtype)
    g = magneto.compile(f)
    for i in range(9):
        x = torch.linspace(1, 2, 3)
        assert_same(g(mine, x), f(eager, x))
        for k in ("n", "m"):
            assert torch.equal(getattr(mine, k), getattr(eager, k)), (i, k)
    s = counts()
    assert not s.fallbacks and s.recompiles <= 4, s
    if dtype != torch.int64:  # division and powers of ints are those of float32
        assert not s.reasons, s


def test_writes_from_outside_are_seen():
    s = State()
    g = magneto.compile(lambda x: x + 1 if s.n > 0 else x - 1)
    for value in (0, 1, 1, -3, 2, math.nan, 7, 0):
        s.n.fill_(value) if value != 7 else setattr(s, "n", torch.tensor(7.0))
        assert g(torch.zeros(1)).item() == (1 if value > 0 else -1)
    assert counts().graphs == 2 and not counts().reasons


def test_memory_that_two_tensors_share():
    s = State()
    s.m = s.n.view(())

    def f(s, x):
        s.n += 1
        return x + 1 if s.m > 2 else x - 1

    g, t = magneto.compile(f), State()
    t.m = t.n.view(())
    for _ in range(5):
        assert_same(g(s, torch.zeros(2)), f(t, torch.zeros(2)))


def test_an_exception_belongs_to_the_numbers():
    s = State()
    g = magneto.compile(lambda x: x * (1 / s.n.item()))
    for value in (1, 2, 0, 4):
        s.n.fill_(value)
        if value:
            assert g(torch.ones(1)).item() == 1 / value
        else:
            with pytest.raises(ZeroDivisionError):
                g(torch.ones(1))


def test_answers_that_keep_changing_end_the_graph_at_last():
    s = State()

    def f(x):
        if s.n > 1:
            x = x + 1
        if s.n > 2:
            x = x * 2
        if s.n > 3:
            x = x + 3
        if s.n > 4:
            x = x * 4
        if s.n > 5:
            x = x + 5
        return x.sin()

    g = magneto.compile(f)
    for i in range(24):
        s.n.fill_(i % 7)
        torch.testing.assert_close(g(torch.ones(2)), f(torch.ones(2)))
    assert not counts().fallbacks and counts().reasons


def test_arguments_are_data():
    g = magneto.compile(lambda n, x: x + 1 if n > 2 else x - 1)
    for i in range(5):
        assert g(torch.tensor(float(i)), torch.zeros(1)).item() == (1 if i > 2 else -1)
    assert counts().reasons == {"data_dependent": 1}


@pytest.mark.parametrize(
    "f",
    [
        lambda k: max(1.0, k),
        lambda k: max(k, 1.0),
        lambda k: min(k, 2.0),
        lambda k: min(2.0, k),
        lambda k: 3 / max(1.0, k),
    ],
)
def test_min_and_max_as_python_has_them(f):
    """Of NaN too, in Python and in tensor operations."""

    def h(x):
        k = f(x.sum().item())
        return x * k, k

    g = magneto.compile(h)
    for value in (0.5, 1.5, 2.5, math.nan, math.inf):
        x = torch.tensor([value, 0.0])
        (a, k), (b, j) = g(x), h(x)
        torch.testing.assert_close(a, b, equal_nan=True)
        assert k == j or (k != k and j != j)
    assert not counts().reasons


@pytest.fixture(autouse=True)
def fresh():
    magneto.reset()
    yield
    magneto.reset()


def test_counters_beside_state_that_is_made_in_the_first_step():
    """The optimizer's state is filled by the first step: the scheduler's counters are seen to change nevertheless."""
    lin = torch.nn.Linear(3, 3)
    opt = torch.optim.SGD(lin.parameters(), 0.1, momentum=0.9)
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda e: 0.5 * (1 + math.cos(math.pi * e / 20)))

    def step(x):
        loss = lin(x).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        return loss.detach(), sched.get_last_lr()[0]

    c = magneto.compile(step)
    graphs = []
    for i in range(6):
        assert c(torch.randn(2, 3))[1] == pytest.approx(0.05 * (1 + math.cos(math.pi * (i + 1) / 20)))
        graphs.append(counts().graphs)
    assert graphs[1] == graphs[-1] == 2


def test_a_number_that_is_taken_twice_is_one():
    def f(x, t):
        return x * t[0], t[0] is t[0], t[0] is t[1]

    c = magneto.compile(f)
    for k in (1, 1000, 2000):
        y, same, other = c(torch.ones(1), (k, k + 1))
        assert y.item() == k and same and not other


class Padded(torch.nn.Module):
    """Kernel, stride and padding are buffers, as in EnCodec."""

    def __init__(self, kernel=3, stride=2):
        super().__init__()
        self.register_buffer("kernel", torch.tensor(kernel))
        self.register_buffer("stride", torch.tensor(stride))
        self.register_buffer("padding", torch.tensor(kernel - stride))
        self.conv = torch.nn.Conv1d(2, 2, kernel, stride)

    def forward(self, x):
        length = x.shape[-1]
        frames = torch.ceil((length - self.kernel + self.padding) / self.stride + 1).to(torch.int64) - 1
        right = frames * self.stride + self.kernel - self.padding - length
        if length <= max(self.padding, right):
            x = torch.nn.functional.pad(x, (0, 3))
        return self.conv(torch.nn.functional.pad(x, (self.padding, right), "reflect"))


def test_sizes_and_buffers_compute_a_padding():
    m = Padded()
    f = magneto.compile(m)
    for n in (20, 20, 21, 22, 23, 24, 31):
        x = torch.randn(1, 2, n)
        torch.testing.assert_close(f(x), m(x))
    assert counts().graphs <= 3 and not counts().breaks, counts()


def test_a_buffer_with_another_value_is_another_entry():
    m = Padded()
    f, x = magneto.compile(m), torch.randn(1, 2, 20)
    torch.testing.assert_close(f(x), m(x))
    m.padding += 2
    for _ in range(2):
        torch.testing.assert_close(f(x), m(x))
    assert counts().graphs == 2 and not counts().breaks, counts()


class Rows:
    def __init__(self):
        self.n = torch.tensor(1)


def test_integers_that_change_at_every_call_are_guarded_a_few_times():
    """Then asking for one ends the graph, as it did; results stay right."""
    s = Rows()

    def f(s, x):
        y = x.sin()
        return y[:, None].expand(-1, range(8)[s.n]) + 1

    compiled = magneto.compile(f)
    x = torch.ones(3)
    for _ in range(7):
        assert_same(compiled(s, x), f(s, x))
        s.n += 1
    assert counts().recompiles <= 8 and not counts().fallbacks, counts()


@pytest.mark.parametrize("whole", [torch.ceil, torch.floor, torch.trunc])
@pytest.mark.parametrize("x", [2.5, -2.5, 0.0, float("inf"), float("nan")])
def test_whole_numbers(whole, x):
    s = State()
    s.n.fill_(x)

    def f(s, x):
        k = whole(s.n / 2)
        return x + k if k > 0 else x - 1

    compiled = magneto.compile(f)
    for _ in range(2):
        assert_same(compiled(s, torch.ones(2)), f(s, torch.ones(2)))
    assert not counts().fallbacks
