"""Graphs of few nodes are timed beside CPython, which gets the calls where it is faster."""

import pytest
import torch
import torch.nn.functional as F

import magneto
from magneto import _magneto
from support import trials_take

ENOUGH = 40  # calls, more than a trial takes


@pytest.fixture(autouse=True)
def trials(monkeypatch):
    """CPython is the faster one, if a test does not say anything else."""
    monkeypatch.setenv("MAGNETO_TRIALS", "1")
    with trials_take(compiled=2, eager=1):
        yield


def _is_compiled(result) -> bool:
    return type(result.grad_fn).__name__ == "MagnetoBackward"


def _calls(fast, *args, times=ENOUGH):
    for _ in range(times):
        result = fast(*args)
    return result


def _tiny(x):
    return x.relu()


def test_a_tiny_op_with_a_gradient_is_left_to_cpython():
    x = torch.randn(10, requires_grad=True)
    fast = magneto.compile(_tiny)
    assert _is_compiled(fast(x))
    result = _calls(fast, x)
    assert not _is_compiled(result)
    assert _magneto.stats()["left"] >= 1
    assert torch.equal(result, x.relu())
    (grad,) = torch.autograd.grad(result.sum(), x)
    assert torch.equal(grad, (x > 0).float())


@pytest.mark.parametrize("eager, left", [(2, 0), (0.98, 0), (0.95, 1)])
def test_what_gains_or_hardly_loses_stays_compiled(eager, left):
    with trials_take(compiled=1, eager=eager):
        _calls(magneto.compile(_tiny), torch.randn(10))
    assert _magneto.stats()["left"] == left


@pytest.mark.parametrize("backward, left", [(1.5, True), (4, False)])
def test_backward_is_weighed_with_the_forward(backward, left):
    """Forward alone is faster in CPython; both together may not be."""
    x = torch.randn(10, requires_grad=True)
    fast = magneto.compile(_tiny)
    with trials_take(compiled=2, eager=1):
        _calls(fast, x, times=24)  # forward is known
    with trials_take(compiled=2, eager=backward):
        result = _calls(fast, x)
    assert _is_compiled(result) != left


def test_a_call_that_takes_long_is_not_timed_any_more():
    fast = magneto.compile(_tiny)
    with trials_take(compiled=1000, eager=1):
        assert _is_compiled(_calls(fast, torch.randn(10, requires_grad=True)))


def test_the_clock_decides_where_no_test_feeds_it():
    """CPython runs a loop that the compiled function does not have: ten times as long, and more."""

    def f(x):
        n = 0
        for _ in range(20_000):
            n += 1
        return x.relu()

    _magneto.feed_trials()
    x = torch.randn(10, requires_grad=True)
    assert _is_compiled(_calls(magneto.compile(f), x))


def test_without_trials_everything_stays_compiled(monkeypatch):
    monkeypatch.setenv("MAGNETO_TRIALS", "0")
    fast = magneto.compile(_tiny)
    assert _is_compiled(_calls(fast, torch.randn(10, requires_grad=True)))


def test_other_sizes_are_compiled_after_one_was_left():
    fast = magneto.compile(_tiny, dynamic=False, fullgraph=True)
    _calls(fast, torch.randn(10, requires_grad=True))
    assert _is_compiled(fast(torch.randn(11, requires_grad=True)))
    assert not _is_compiled(fast(torch.randn(10, requires_grad=True)))


def test_timed_calls_of_one_way_follow_each_other():
    """In turns each way would find the other's code in cache, which costs CPython most."""
    fast = magneto.compile(_tiny)
    x = torch.randn(10, requires_grad=True)
    with trials_take(compiled=1, eager=2):
        ways = [_is_compiled(fast(x)) for _ in range(26)]
    changes = sum(a != b for a, b in zip(ways, ways[1:]))
    assert ways.count(False) == 8
    assert changes <= 4


def test_the_program_sees_nothing_of_a_trial():
    """Neither hooks nor gradients nor hooks of saved tensors nor generators."""
    x = torch.randn(10, requires_grad=True)
    seen = []
    x.register_hook(lambda g: seen.append("hook"))
    fast = magneto.compile(_tiny)
    state = torch.get_rng_state()
    _calls(fast, x)
    assert seen == []
    assert x.grad is None
    assert torch.equal(state, torch.get_rng_state())


def test_hooks_of_saved_tensors_see_only_the_calls_of_the_program():
    x = torch.randn(10, requires_grad=True)
    fast = magneto.compile(_tiny)
    packed = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: packed.append(t.shape) or t, lambda t: t):
        _calls(fast, x)
    assert len(packed) <= ENOUGH


def test_graphs_that_write_inputs_are_not_repeated():
    x = torch.zeros(10)
    w = torch.ones(10, requires_grad=True)

    def f(x, w):
        x.add_(1)
        return w * x.sum()

    _calls(magneto.compile(f), x, w)
    assert torch.equal(x, torch.full((10,), float(ENOUGH)))


def test_random_numbers_are_drawn_once_a_call():
    x = torch.randn(64, requires_grad=True)
    f = lambda x: F.dropout(x, 0.5) * 2
    fast = magneto.compile(f)
    torch.manual_seed(1)
    _calls(fast, x)
    after = torch.get_rng_state()
    torch.manual_seed(1)
    _calls(f, x)
    assert torch.equal(after, torch.get_rng_state())


def test_an_error_of_a_call_that_cpython_runs_is_the_programs():
    fast = magneto.compile(lambda x, y: x @ y)
    x, y = torch.randn(3, 4), torch.randn(4, 5)
    for _ in range(ENOUGH):
        fast(x, y)
    with pytest.raises(RuntimeError):
        fast(x, x)
    assert torch.allclose(fast(x, y), x @ y, atol=1e-5)


def test_backward_runs_twice_and_is_differentiated_after_a_trial():
    x = torch.randn(10, dtype=torch.float64, requires_grad=True)
    fast = magneto.compile(lambda x: x.tanh())
    _calls(fast, x)
    assert torch.autograd.gradgradcheck(fast, x)


def test_each_size_of_a_graph_with_symbols_is_judged():
    fast = magneto.compile(_tiny, dynamic=True)
    x, y = torch.randn(10, requires_grad=True), torch.randn(11, requires_grad=True)
    fast(x), fast(y)
    assert _magneto.stats()["entries"] == 1
    assert not _is_compiled(_calls(fast, x))
    assert _is_compiled(fast(y))
    with trials_take(compiled=1, eager=2):
        assert _is_compiled(_calls(fast, y))
    assert not _is_compiled(fast(x))


def test_a_graph_with_symbols_without_gradients_is_left():
    fast = magneto.compile(_tiny, dynamic=True)
    _calls(fast, torch.randn(10))
    assert _magneto.stats()["left"] == 1
    assert torch.equal(fast(torch.ones(12)), torch.ones(12))


def test_a_graph_whose_sizes_depend_on_data_is_left():
    def f(i):
        return torch.bincount(i)

    fast = magneto.compile(f)
    i = torch.tensor([1, 4, 1])
    assert torch.equal(_calls(fast, i), torch.tensor([0, 2, 0, 0, 1]))
    assert _magneto.stats()["left"] == 1


def test_the_time_of_a_plan_has_its_guards():
    """A list of many numbers, each of them guarded, beside an op of a microsecond."""
    _magneto.feed_trials()
    values = list(range(20_000))

    def f(x, values):
        return x.relu() if values[-1] else sum(values)

    x = torch.randn(10)
    fast = magneto.compile(f)
    _calls(fast, x, values)
    assert _magneto.stats()["left"] == 1


def test_what_stands_for_a_function_in_c_is_not_called_once_it_is_left():
    """A Python function is compiled in the place of one in C, which CPython then calls itself."""
    called = []

    def in_c(x):
        called.append(x)
        return x.relu()

    fast = _magneto.Callable(_tiny, plain=in_c)
    x = torch.randn(10)
    _calls(fast, x)
    assert called and torch.equal(fast(x), x.relu())


@pytest.mark.parametrize("eager, left", [(1.05, 1), (1.2, 0)])
def test_a_graph_that_only_calls_aten_has_to_gain_something(eager, left):
    with trials_take(compiled=1, eager=eager):
        _calls(magneto.compile(lambda x: x.sort()[0]), torch.randn(10))
    assert _magneto.stats()["left"] == left


def test_a_graph_that_autograd_runs_op_by_op_is_left():
    """Views of an input have nodes of ATen's."""
    x = torch.randn(4, 6, requires_grad=True)
    fast = magneto.compile(lambda x: x.unbind(0))
    results = _calls(fast, x)
    assert _magneto.stats()["left"] == 1
    torch.autograd.backward(fast(x), [torch.ones(6)] * 4)
    assert torch.equal(x.grad, torch.ones(4, 6))
    assert all(t.grad_fn.name() == "UnbindBackward0" for t in results)


def _left_function():
    """A function of its own that was left to CPython, and its compiled callable."""

    def f(x):
        return x.relu()

    fast = magneto.compile(f)
    _calls(fast, torch.randn(10, requires_grad=True), times=4000)
    assert _magneto.stats()["left"] == 1
    return f, fast


def test_a_function_that_is_left_is_compiled_after_a_reset():
    _, fast = _left_function()
    x = torch.randn(10, requires_grad=True)
    assert not _is_compiled(fast(x))
    magneto.reset()
    assert _is_compiled(fast(x))


def test_a_function_that_is_left_is_compiled_when_its_code_is_replaced():
    f, fast = _left_function()
    x = torch.randn(10, requires_grad=True)
    f.__code__ = (lambda x: x.tanh() * 2).__code__
    assert _is_compiled(fast(x))


def test_a_function_that_is_left_goes_to_the_back_end_that_a_stance_forces():
    _, fast = _left_function()
    compiled = []

    def backend(gm, inputs):
        compiled.append(gm)
        return gm.forward

    with magneto.set_stance(force_backend=backend):
        fast(torch.randn(10))
    assert compiled


def test_the_function_of_a_module_that_is_left_is_compiled_for_another_module():
    def f(module, x):
        return module(x)

    fast = magneto.compile(f)
    x = torch.randn(10, requires_grad=True)
    one, other = torch.nn.ReLU(), torch.nn.Tanh()
    assert not _is_compiled(_calls(fast, one, x, times=4000))
    assert _is_compiled(fast(other, x))


def test_a_function_that_is_left_is_recorded_as_a_part_of_another():
    _, fast = _left_function()
    x = torch.randn(10, requires_grad=True)
    outer = magneto.compile(lambda x: fast(x) + 1, fullgraph=True)
    assert _is_compiled(outer(x))
    assert torch.equal(outer(x), x.relu() + 1)
