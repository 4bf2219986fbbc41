"""Custom back ends: what they receive, that what they return is what runs, registration, and PyTorch's own."""

import copy
import gc
import shutil
import weakref

import pytest
import torch

import magneto
from support import counts


def fn(x, w):
    y = torch.nn.functional.relu(x @ w)
    y += 1
    return y.sum(0), x.T


X, W = torch.randn(5, 4), torch.randn(4, 3)


class Keep:
    """Keeps what it receives, runs the graph as it is."""

    def __init__(self):
        self.graphs, self.inputs = [], []

    def __call__(self, gm, example_inputs):
        self.graphs.append(gm)
        self.inputs.append(example_inputs)
        return gm.forward


def targets(gm):
    return [n.target for n in gm.graph.nodes if n.op in ("call_function", "call_method")]


def test_graph():
    keep = Keep()
    c = magneto.compile(fn, backend=keep)
    for got, want in zip(c(X, W), fn(X, W)):
        torch.testing.assert_close(got, want)
    (gm,) = keep.graphs
    assert isinstance(gm, torch.fx.GraphModule)
    names = [n.target for n in gm.graph.nodes if n.op == "placeholder"]
    assert names == ["L_x_", "L_w_"]
    assert keep.inputs[0][0] is X and keep.inputs[0][1] is W
    assert torch.nn.functional.relu in targets(gm)
    gm.graph.lint()
    for got, want in zip(gm(X, W), fn(X, W)):
        torch.testing.assert_close(got, want)


def test_module_parameters_are_inputs():
    keep = Keep()
    m = torch.nn.Linear(4, 3)
    torch.testing.assert_close(magneto.compile(m, backend=keep)(X), m(X))
    assert any(t is m.weight for t in keep.inputs[0]) and any(t is m.bias for t in keep.inputs[0])


def test_gradients_go_through():
    m = torch.nn.Linear(4, 3)
    c = magneto.compile(m, backend=lambda gm, ex: gm.forward)
    c(X).sum().backward()
    got = m.weight.grad.clone()
    m.zero_grad()
    m(X).sum().backward()
    torch.testing.assert_close(got, m.weight.grad)


def test_what_it_returns_runs():
    c = magneto.compile(lambda x: x + 1, backend=lambda gm, ex: lambda x: (x * 100,))
    for _ in range(2):
        torch.testing.assert_close(c(X), X * 100)


def test_lone_tensor_and_list_are_fine():
    for wrap in (lambda t: t, lambda t: [t], lambda t: (t,)):
        c = magneto.compile(lambda x: x + 1, backend=lambda gm, ex: lambda x: wrap(x + 5))
        torch.testing.assert_close(c(X), X + 5)


def test_factories_constants_and_grad_mode():
    def g(x):
        with torch.no_grad():
            y = x * 2
        return y + torch.arange(4) + torch.tensor([1.0, 2.0, 3.0, 4.0]) + torch.zeros(4), x * 3

    keep = Keep()
    x = X.clone().requires_grad_()
    got, want = magneto.compile(g, backend=keep)(x), g(x)
    for a, b in zip(got, want):
        torch.testing.assert_close(a, b)
        assert a.requires_grad == b.requires_grad
    assert torch.arange in targets(keep.graphs[0]) and torch.zeros in targets(keep.graphs[0])


def test_batch_norm_statistics():
    def make():
        torch.manual_seed(0)
        return torch.nn.Sequential(torch.nn.Conv1d(4, 4, 1), torch.nn.BatchNorm1d(4)).train()

    a, b = make(), make()
    c = magneto.compile(a, backend=lambda gm, ex: gm.forward)
    x = torch.randn(3, 4, 8)
    for _ in range(3):
        torch.testing.assert_close(c(x), b(x))
    torch.testing.assert_close(a[1].running_mean, b[1].running_mean)
    assert a[1].num_batches_tracked == b[1].num_batches_tracked


def test_ops_without_a_torch_level_call():
    """Results of autograd reach the graph; when a value has no torch-level call, ATen ops are used."""

    def g(x):
        (d,) = torch.autograd.grad((x * x).sum(), x)
        return d

    x = X.clone().requires_grad_()
    torch.testing.assert_close(magneto.compile(g, backend=lambda gm, ex: gm.forward)(x), 2 * X)


def test_backend_raises():
    class Mine(Exception):
        pass

    def backend(gm, ex):
        raise Mine("no")

    import torch._dynamo  # from here on a back end's exceptions are what torch.compile makes of them

    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match="Mine: no") as e:
        magneto.compile(lambda x: x + 1, backend=backend)(X)
    assert isinstance(e.value.inner_exception, Mine) and e.value.backend_name == "backend"
    assert e.traceback[-1].name == "backend"


@pytest.mark.parametrize("error", [IndexError, KeyboardInterrupt])
def test_backend_raises_what_passes(error):
    import torch._dynamo  # noqa: F401

    def backend(gm, ex):
        raise error("no")

    with pytest.raises(error, match="no"):
        magneto.compile(lambda x: x + 1, backend=backend)(X)


@pytest.mark.parametrize("value", [None, 3, "x"])
def test_backend_returns_no_callable(value):
    with pytest.raises(TypeError, match="must return a callable"):
        magneto.compile(lambda x: x + 1, backend=lambda gm, ex: value)(X)


def test_callable_returns_nonsense():
    with pytest.raises(TypeError, match="tuple"):
        magneto.compile(lambda x: (x + 1, x + 2), backend=lambda gm, ex: lambda *a: 3)(X)
    with pytest.raises(ValueError, match="1 results, the graph has 2"):
        magneto.compile(lambda x: (x + 1, x + 2), backend=lambda gm, ex: lambda x: (x,))(X)


def test_compiled_callable_raises():
    def backend(gm, ex):
        def run(*args):
            raise KeyError("inside")

        return run

    with pytest.raises(KeyError, match="inside"):
        magneto.compile(lambda x: x + 1, backend=backend)(X)


def test_register():
    keep = Keep()
    magneto.register_backend(keep, name="test_keep")

    @magneto.register_backend
    def test_other(gm, ex):
        return gm.forward

    @magneto.register_backend(name="test_third", tags=("debug",))
    def third(gm, ex):
        return gm.forward

    for name in ("test_keep", "test_other", "test_third"):
        assert name in magneto.list_backends()
        torch.testing.assert_close(magneto.compile(lambda x: x + 1, backend=name)(X), X + 1)
    assert keep.graphs
    some = magneto.list_backends(exclude_tags=("debug",))
    assert {"magneto", "test_keep"} <= set(some) and "test_third" not in some
    with pytest.raises(ValueError, match="own"):
        magneto.register_backend(keep, name="magneto")
    with pytest.raises(TypeError):
        magneto.register_backend(3)


def test_mode_and_options_reach_the_backend():
    seen = {}

    def backend(gm, ex, mode=None, options=None):
        seen.update(mode=mode, options=options)
        return gm.forward

    magneto.compile(lambda x: x + 1, backend=backend, mode="fast", options={"a": 1})(X)
    assert seen == {"mode": "fast", "options": {"a": 1}}


@pytest.mark.parametrize("name", ["eager", "aot_eager"])
def test_torch_backends(name):
    m = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.GELU())
    with torch.no_grad():
        torch.testing.assert_close(magneto.compile(m, backend=name)(X), m(X))


@pytest.mark.parametrize("name", ["aot_eager", "aot_eager_decomp_partition", "cudagraphs"])
def test_torch_backends_train(name):
    net = torch.nn.Sequential(torch.nn.Conv2d(2, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU())
    c, twin = magneto.compile(net, backend=name), copy.deepcopy(net)
    for batch in (2, 3):
        x = torch.randn(batch, 2, 5, 5)
        for m in (c, twin):
            m(x).square().sum().backward()
        for a, b in zip((*net.parameters(), *net.buffers()), (*twin.parameters(), *twin.buffers())):
            torch.testing.assert_close(a, b)
            torch.testing.assert_close(a.grad, b.grad)


@pytest.mark.skipif(not shutil.which("g++"), reason="Inductor needs a C++ compiler")
def test_inductor_by_name():
    c = magneto.compile(lambda x: x.sin() + 1, backend="inductor")
    torch.testing.assert_close(c(X), X.sin() + 1)


def test_behind_dynamo():
    m = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.GELU())
    c = torch.compile(m, backend="magneto")
    for _ in range(2):
        torch.testing.assert_close(c(X), m(X))
    with torch.no_grad():
        torch.testing.assert_close(c(X), m(X))
    assert counts().graphs >= 1


class Scaled(torch.nn.Module):
    def __init__(self, k=2):
        super().__init__()
        self.lin = torch.nn.Linear(4, 4)
        self.k = k

    def forward(self, x):
        return self.lin(x) * self.k


def test_equal_graphs_of_module_instances_are_compiled_once():
    """Graphs that differ, by a constant or by what an input is, are compiled each; those of a copy that is gone are remembered."""
    keep = Keep()
    x = torch.randn(2, 4)
    for m in (Scaled(), Scaled(), copy.deepcopy(Scaled())):
        c = magneto.compile(m, backend=keep)
        for _ in range(2):
            torch.testing.assert_close(c(x), m(x))
            m.zero_grad()
            c(x).sum().backward()
            grad, m.lin.weight.grad = m.lin.weight.grad, None
            m(x).sum().backward()
            torch.testing.assert_close(m.lin.weight.grad, grad)
    assert len(keep.graphs) == 1
    for m in (Scaled(3), Scaled().double(), Scaled().requires_grad_(False)):
        i = x.to(m.lin.weight.dtype)
        torch.testing.assert_close(magneto.compile(m, backend=keep)(i), m(i))
    assert len(keep.graphs) == 4
    keep, m = Keep(), Scaled()
    c = magneto.compile(lambda x: copy.deepcopy(m)(x), backend=keep)
    for _ in range(3):
        torch.testing.assert_close(c(x), m(x))
    assert len(keep.graphs) == 1


def test_breaks_inside_of_repeated_blocks_compile_once():
    class Block(Scaled):
        def forward(self, x):
            x = self.lin(x).relu()
            magneto.graph_break()
            return x + self.k

    keep, m = Keep(), torch.nn.ModuleList([Block() for _ in range(4)])

    def run(x):
        for b in m:
            x = b(x)
        return x

    x = torch.randn(2, 4)
    torch.testing.assert_close(magneto.compile(run, backend=keep)(x), run(x))
    assert len(keep.graphs) == 3


def test_entries_last_as_long_as_the_backend():
    """Another compile() with the same back end finds what was compiled; names mean the same back end each time."""
    keep = Keep()
    for _ in range(2):
        c = magneto.compile(fn, backend=keep)
        c(X, W)
        del c
    assert len(keep.graphs) == 1
    magneto.compile(fn, backend="eager")(X, W)
    misses = counts().misses
    magneto.compile(fn, backend="eager")(X, W)
    assert counts().misses == misses


def test_calls_of_a_function_compiled_too_often_are_not_compiled():
    def inner(x, n):
        return x * n

    def outer(x, n):
        return inner(x + n, n)

    keep = Keep()
    c = magneto.compile(outer, backend=keep, dynamic=False, recompile_limit=2)
    with pytest.warns(RuntimeWarning, match="2 times"):
        for n in range(5):
            torch.testing.assert_close(c(X, n), outer(X, n))
    assert len(keep.graphs) == 2


def test_backends_end_with_callables_in_cycles():
    def make():
        def backend(gm, inputs):
            return gm

        f = magneto.compile(lambda x: x + 1, backend=backend)
        f(torch.ones(2))
        f.myself = f
        return weakref.ref(backend)

    refs = [make() for _ in range(20)]
    gc.collect()
    assert not any(r() for r in refs)


class Traced(Keep):
    """Counts the graphs that AOTAutograd gets."""

    def __call__(self, gm, inputs):
        super().__call__(gm, inputs)
        return torch._dynamo.lookup_backend("aot_eager")(gm, inputs)


GROWING = {
    "number of rows": (lambda x: (x * x.shape[0]).tanh().sum(0), 2),
    "pairs": (lambda x: x.view(-1, 2).sum(1), 2),
    "two of one size": (lambda x: x + x.new_ones(x.shape[0])[:, None] + torch.arange(x.shape[0])[:, None], 2),
    "a branch": (lambda x: x * 2 if x.shape[0] > 9 else x - 1, 3),
}


@pytest.mark.parametrize("name", GROWING)
def test_backends_that_trace_get_graphs_with_symbols(name):
    import torch._dynamo

    f, graphs = GROWING[name]
    keep = Traced()
    c = magneto.compile(f, backend=keep)
    for n in (4, 6, 8, 11, 12, 5):
        x, y = (torch.linspace(-1, 1, 4 * n).reshape(n, 4).requires_grad_() for _ in range(2))
        want, got = f(x), c(y)
        torch.testing.assert_close(got, want)
        want.sum().backward()
        got.sum().backward()
        torch.testing.assert_close(y.grad, x.grad)
    assert len(keep.graphs) == graphs


def test_sizes_that_a_tracing_backend_does_not_take_are_compiled_for_themselves():
    import torch._dynamo

    def backend(gm, inputs):
        seen.append(inputs)
        if torch._guards.TracingContext.try_get():
            fake = torch._guards.TracingContext.get().fake_mode.from_tensor(inputs[-1])
            assert fake.shape[0] % 2 == 0  # the ShapeEnv takes a note of that
        return lambda *args: gm(*args)

    seen = []
    c = magneto.compile(lambda x: x + 1, backend=backend)
    for n in (3, 4, 6, 7, 7, 8):
        assert torch.equal(c(torch.ones(n)), torch.full((n,), 2.0))
    assert len(seen) == 3  # 3, even ones, 7


def test_a_backend_that_cannot_take_symbols_gets_numbers():
    import torch._dynamo

    def backend(gm, inputs):
        if torch._guards.TracingContext.try_get():
            raise NotImplementedError
        seen.append(inputs[-1].shape[0])
        return lambda *args: gm(*args)

    seen = []
    c = magneto.compile(lambda x: x * x.shape[0], backend=backend)
    for n in (3, 4, 6):
        assert torch.equal(c(torch.ones(n)), torch.full((n,), float(n)))
    assert seen == [3, 4, 6]
