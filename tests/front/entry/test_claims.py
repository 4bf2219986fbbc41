"""PYTEST_DONT_REWRITE: the assertions of the programs are what is tested.

Assertions about tensors do not break the graph: the answer is taken for granted and looked at by each run, before anything is
written; when it is the other one, the program goes on as it would have without a compiler."""

import pytest
import torch
from torch._dynamo.testing import CompileCounter
from torch.distributions import Bernoulli, Categorical, Normal

import magneto
from magneto import _magneto
from support import counts


def asserted(x):
    y = x.sin()
    assert x[0] == 3, "the first"
    return x.cos() + y


@pytest.fixture(autouse=True)
def fresh():
    magneto.reset()


@pytest.mark.parametrize("fullgraph", [True, False])
def test_assertion(fullgraph):
    f = magneto.compile(asserted, fullgraph=fullgraph)
    good, bad = torch.tensor([3.0, 4.0]), torch.tensor([2.0, 4.0])
    before = counts().graphs
    for _ in range(2):
        assert torch.allclose(f(good), asserted(good))
    assert counts().graphs == before + 1
    for x in (bad, bad):
        with pytest.raises(AssertionError, match="^the first$") as e:
            f(x)
        assert (
            e.traceback[-1].name == "asserted"
            and e.traceback[-1].lineno == asserted.__code__.co_firstlineno + 1
        )
    assert torch.allclose(f(good), asserted(good))


def divided(x, y):
    return y * (1 / x.sum().item()), 3 / (x.mean().item() + 1)


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize(
    "options", [{}, {"fullgraph": True}, {"fullgraph": True, "backend": "eager"}, {"backend": "eager"}]
)
def test_divisors(options, grad):
    f, y = magneto.compile(divided, **options), torch.randn(2, requires_grad=grad)
    for x in (2.0, 3.0, 0.0, 2.0, -1.0, 0.0, 5.0):
        x = torch.tensor([x])
        if x == 0 or x == -1:
            with pytest.raises(ZeroDivisionError, match="division by zero"):
                f(x, y)
        else:
            torch.testing.assert_close(f(x, y), divided(x, y))


def test_divisors_keep_one_graph():
    f = magneto.compile(divided)
    for x in (2.0, 3.0):
        f(torch.tensor([x]), torch.randn(2))
    assert [e["break"] for e in _magneto.entries()] == [None]


def test_handled_by_the_program():
    def f(x):
        try:
            assert (x > 0).all()
            return x + 1
        except AssertionError:
            return x - 1
        finally:
            seen.append(x.shape)

    seen = []
    g = magneto.compile(f)
    for x in (torch.ones(2), -torch.ones(2), torch.ones(2)):
        assert torch.equal(g(x), f(x))
    assert len(seen) == 6


def test_conditions():
    def f(x, n):
        assert n.item() > 0 and not x.sum() > 10, f"{n}"
        return x + 1

    g = magneto.compile(f, fullgraph=True)
    assert torch.equal(g(torch.ones(2), torch.tensor(3)), torch.full((2,), 2.0))
    for args in ((torch.ones(2), torch.tensor(-3)), (10 * torch.ones(2), torch.tensor(3))):
        with pytest.raises(AssertionError):
            g(*args)


def test_nothing_is_written_before():
    def f(x):
        x.add_(1)
        log.append(len(log))
        assert (x > 0).all()
        return x * 2

    def h(x):
        log.append(x.sum())
        assert (x > 0).all()
        log.append(1)
        return x * 2

    for fn in (f, h):
        log = []
        g = magneto.compile(fn)
        assert torch.equal(g(torch.ones(2)), 2 * torch.ones(2) + (2 if fn is f else 0))
        x, n = torch.full((2,), -3.0), len(log)
        with pytest.raises(AssertionError):
            g(x)
        assert torch.equal(x, torch.full((2,), -2.0 if fn is f else -3.0)) and len(log) == n + 1


def test_gradients():
    def f(x):
        y = x * 2
        assert (y > 0).all()
        return (y * x).sum()

    x = torch.ones(2, requires_grad=True)
    g = magneto.compile(f, fullgraph=True)
    g(x).backward()
    assert torch.equal(x.grad, torch.full((2,), 4.0))
    with pytest.raises(AssertionError):
        g(-x)


@pytest.mark.parametrize("n", [3, 5, 9])
def test_gradients_of_several_results(n):
    def f(x):
        out = []
        for i in range(n):
            out.append(x @ w + i)
            assert (out[-1] == out[-1]).all()
        return out

    w = torch.ones(2, 2, requires_grad=True)
    sum(t.sum() for t in magneto.compile(f, fullgraph=True)(torch.ones(2))).backward()
    assert torch.equal(w.grad, torch.full((2, 2), float(n)))


def normal(mean, scale):
    d = Normal(mean, scale, validate_args=True)  # a compiler of torch may have turned it off
    z = d.rsample()
    return z, d.log_prob(z), d.entropy()


def test_distributions_check_their_arguments():
    f = magneto.compile(normal, fullgraph=True)
    good, bad = (torch.zeros(3), torch.ones(3)), (torch.zeros(3), -torch.ones(3))
    for fn in (f, normal):
        torch.manual_seed(0)
        r = [fn(*good), fn(*good)]
        with pytest.raises(ValueError, match="Expected parameter scale"):
            fn(*bad)
        r += [fn(*good), torch.rand(2)]  # a run that was given up has drawn nothing
        if fn is f:
            ours = r
    for a, b in zip(ours[:3], r[:3]):
        assert all(torch.allclose(x, y, atol=1e-6) for x, y in zip(a, b))
    assert torch.equal(ours[3], r[3])


@pytest.mark.parametrize("make", [lambda p: Categorical(logits=p), lambda p: Bernoulli(p)])
def test_distributions_sample(make):
    def f(p):
        d = make(p)
        z = d.sample()
        return z, d.log_prob(z)

    p = torch.full((4,), 0.3)
    torch.manual_seed(1)
    a = magneto.compile(f, fullgraph=True)(p)
    torch.manual_seed(1)
    assert all(torch.allclose(x, y) for x, y in zip(a, f(p)))


def test_backend_gets_a_node():
    c = CompileCounter()
    f = magneto.compile(asserted, backend=c, fullgraph=True)
    x = torch.tensor([3.0, 4.0])
    assert torch.allclose(f(x), asserted(x)) and (c.frame_count, c.op_count) == (1, 6)
    with pytest.raises(RuntimeError, match="the first"):
        f(x + 1)


def test_backend_gets_messages_that_are_constant():
    """An assertion whose message has to be computed breaks a torch-level graph, and raises what the program says."""

    def tensor(x):
        assert x[0] == 3, x
        return x.cos()

    def text(x):
        assert x[0] == 3, f"first of {len(x)}"
        return x.cos()

    def none(x):
        assert x[0] == 3
        return x.cos()

    for f, error, message, graphs in (
        (tensor, AssertionError, "tensor", 2),
        (text, AssertionError, "first of 2", 2),
        (none, RuntimeError, "assertion error", 1),
    ):
        counter = CompileCounter()
        compiled = magneto.compile(f, backend=counter)
        assert torch.equal(compiled(torch.tensor([3.0, 4.0])), f(torch.tensor([3.0, 4.0])))
        with pytest.raises(error, match=message):
            compiled(torch.tensor([2.0, 4.0]))
        assert counter.frame_count == graphs


def test_jit_trace_sees_the_ops():
    class Add(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.n = 3

        def forward(self, x):
            return x.sin() + self.n

    def f(x):
        return torch.jit.trace(Add(), (x,))

    x = torch.randn(3)
    assert torch.allclose(magneto.compile(f)(x)(x + 1), (x + 1).sin() + 3)
    m = Add()
    g = magneto.compile(m)
    g(x)
    traced = torch.jit.trace(lambda y: g(y) * 2, (x,))
    assert torch.allclose(traced(x + 1), ((x + 1).sin() + 3) * 2)
    assert torch.allclose(g(x), m(x))


def test_classes_of_one_hot():
    def f(x):
        return torch.nn.functional.one_hot(x, 3) + 1

    for g in (
        magneto.compile(f, fullgraph=True),
        magneto.compile(f),
        magneto.compile(lambda x: torch.nn.functional.one_hot(x, 3)),
    ):
        before = counts().graphs
        g(torch.tensor([0, 2])), g(torch.tensor([1, 0]))
        assert counts().graphs == before + 1
        for bad in (torch.tensor([0, 3]), torch.tensor([-1, 0])):
            with pytest.raises(RuntimeError, match="Class values"):
                g(bad)
    assert torch.equal(g(torch.tensor([0, 2])), torch.nn.functional.one_hot(torch.tensor([0, 2]), 3))


def test_checks_of_the_program_that_only_raise():
    """No break as long as they hold; then eager's exception, also where the program catches it, and nothing written twice."""

    def check(x, limit):
        if x.max() >= limit:
            raise ValueError(f"{x.max()} is too large")
        if not (x > -9).all():
            raise ValueError(f"but got {x}")

    def f(x, log):
        y = x * 2
        check(y, 10)
        log.append("checked")
        return y + 1

    def caught(x, log):
        try:
            check(x, 10)
        except ValueError as e:
            log.append(str(e))
            return x - 1
        return x * 3

    def written(x, log):
        x.add_(1)
        check(x, 10)
        return x * 2

    def outcome(fn, x, log):
        try:
            return fn(x, log)
        except ValueError as e:
            return str(e)

    for fn in (f, caught, written):
        _magneto.reset()
        g, logs = magneto.compile(fn), ([], [])
        before = counts()
        for n, x in enumerate((1.0, 2.0, 30.0, 3.0, -30.0, 30.0, 4.0)):
            a, b = torch.tensor([0.5, x]), torch.tensor([0.5, x])
            got, want = outcome(g, a, logs[0]), outcome(fn, b, logs[1])
            assert torch.equal(got, want) if isinstance(want, torch.Tensor) else got == want
            assert torch.equal(a, b) and logs[0] == logs[1]
            if n == 1 and fn is not written:
                assert counts().reasons == before.reasons and counts().entries - before.entries == 1


def test_checks_of_the_program_with_gradients():
    def f(x, w):
        y = (x * w).sin()
        if (y > 2).any():
            raise ValueError("too large")
        return y.sum()

    g = magneto.compile(f)
    before = counts()
    for n in (3, 3, 4):
        x, w = torch.randn(n), torch.randn(n, requires_grad=True)
        v = w.detach().clone().requires_grad_()
        g(x, w).backward()
        f(x, v).backward()
        torch.testing.assert_close(w.grad, v.grad)
    assert counts().reasons == before.reasons


def test_a_break_that_fullgraph_forbids_stays_an_error():
    def f(x):
        if x.sum() > 10:
            raise ValueError("too large")
        return x * 2

    with pytest.raises(RuntimeError, match="graph breaks"):
        magneto.compile(f, fullgraph=True)(torch.ones(2))
