"""ExportedPrograms as what is compiled and as what export() gives; PyTorch's tracers on compiled modules."""

import io
import warnings

import pytest
import torch
from torch import nn

import magneto
from support import assert_counts

X = torch.linspace(-1, 1, 24).reshape(3, 8)
ROWS = {0: torch.export.Dim("rows", min=2)}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.a = nn.Linear(8, 16)
        self.norm = nn.BatchNorm1d(16)
        self.b = nn.Linear(16, 4)

    def forward(self, x, y=None):
        h = self.norm(self.a(x)).relu()
        h = h if y is None else h + y
        return {"out": self.b(h).view(x.shape[0] * 2, -1), "sum": h.sum(0)}


def saved(program):
    """The program after a way through a file."""
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    return torch.export.load(file)


@pytest.mark.parametrize("form", [lambda p: p, lambda p: p.module()], ids=["program", "module"])
def test_a_program_is_compiled(form):
    m = Net().eval()
    f = magneto.compile(form(torch.export.export(m, (X,), dynamic_shapes={"x": ROWS})), fullgraph=True)
    for n in (3, 5, 9, 12):
        x = torch.randn(n, 8)
        torch.testing.assert_close(f(x), m(x))
    assert_counts(graphs=2, breaks=0)


def test_a_program_refuses_what_it_refuses_in_eager():
    program = torch.export.export(Net().eval(), (X,), dynamic_shapes={"x": ROWS})
    f = magneto.compile(program)
    for bad in (torch.ones(3, 9), torch.ones(3, 8, dtype=torch.float64)):
        with pytest.raises(Exception) as want:
            program.module()(bad)
        with pytest.raises(want.type) as got:
            f(bad)
        assert str(got.value) == str(want.value)
    assert f(X).keys() == {"out", "sum"}


def test_config_patches_of_dynamo_are_part_of_the_graph():
    seen = []

    @torch._dynamo.dont_skip_tracing
    def inner(x):
        seen.append(torch._dynamo.config.dont_skip_tracing)
        return x.sin()

    f = magneto.compile(lambda x: inner(x) + 1, fullgraph=True)
    for _ in range(2):
        torch.testing.assert_close(f(X), X.sin() + 1)
    assert seen == [True, True] and torch._dynamo.config.dont_skip_tracing is False


def test_a_config_patch_around_a_graph_break():
    seen = []

    @torch._dynamo.dont_skip_tracing
    def inner(x):
        y = x.sin()
        magneto.graph_break()
        seen.append(torch._dynamo.config.dont_skip_tracing)
        return y + 1

    f = magneto.compile(lambda x: inner(x) * 2)
    for _ in range(2):
        torch.testing.assert_close(f(X), (X.sin() + 1) * 2)
    assert seen == [True, True] and torch._dynamo.config.dont_skip_tracing is False


def test_export_gives_a_program():
    m = Net().eval()
    program = magneto.export(m)(X, y=X[:, :1]).program
    assert isinstance(program, torch.export.ExportedProgram)
    assert program.state_dict.keys() == m.state_dict().keys()
    for p in (program, saved(program)):
        torch.testing.assert_close(p.module()(X * 2, y=X[:, 1:2]), m(X * 2, y=X[:, 1:2]))


def test_sizes_of_an_exported_program_change():
    m = Net().eval()
    program = saved(magneto.export(m, dynamic_shapes={"x": ROWS})(X).program)
    f = lambda x, w: ((x @ w).view(x.shape[0] * 2, -1) + x.shape[0] * 3, x.shape[0])
    of_function = magneto.export(f, dynamic_shapes=(ROWS, None))(X, torch.ones(8, 4)).program
    for n in (3, 7, 11):
        x, w = torch.randn(n, 8), torch.randn(8, 4)
        torch.testing.assert_close(program.module()(x), m(x))
        torch.testing.assert_close(of_function.module()(x, w), f(x, w))


def test_a_program_of_a_module_that_writes_to_its_buffers():
    m, other = Net(), Net()
    program = magneto.export(m)(X).program
    other(X)
    module = program.module()
    torch.testing.assert_close(module(X), other(X))
    for name, buffer in other.named_buffers():
        torch.testing.assert_close(dict(module.named_buffers())[name], buffer)


def test_a_program_of_a_function():
    m, k = Net().eval(), torch.randn(8)
    f = lambda x, *, scale=2.0: [m(x * k)["out"] * scale, x, None]
    module = saved(magneto.export(f)(X, scale=3.0).program).module()
    for got, want in zip(module(X * 2, scale=3.0), f(X * 2, scale=3.0)):
        torch.testing.assert_close(got, want) if isinstance(want, torch.Tensor) else None
        assert type(got) is type(want)


def test_hooks_are_in_the_program():
    m = nn.Linear(8, 4)
    m.register_forward_pre_hook(lambda module, args: (args[0] * 2,))
    module = magneto.export(m)(X).program.module()
    torch.testing.assert_close(module(X + 1), m(X + 1))


class Replaces(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(2))

    def forward(self, x):
        self.count = self.count + 1
        return x * 2


class Holder:
    pass


def in_a_holder(x):
    h = Holder()
    h.x = x.sin()
    return h


@pytest.mark.parametrize(
    ("f", "why"), [(Replaces(), "replaces a parameter or buffer"), (in_a_holder, "the result has a Holder")]
)
def test_what_no_program_can_say_is_refused(f, why):
    exported = magneto.export(f)(X)
    with pytest.raises(RuntimeError, match=why):
        exported.program  # noqa: B018


@pytest.mark.parametrize("called", [False, True])
def test_tracers_of_pytorch_see_the_original(called):
    m = Net().eval()
    f, want = magneto.compile(m), m(X)
    if called:
        f(X)
    program = torch.export.export(f, (X,))
    assert program.state_dict.keys() == m.state_dict().keys()
    torch.testing.assert_close(program.module()(X), want)
    simple = nn.Sequential(nn.Linear(8, 4), nn.ReLU())
    f, want = magneto.compile(simple), simple(X)
    if called:
        f(X)
    graph = torch.fx.symbolic_trace(f)
    assert [n.op for n in graph.graph.nodes] == ["placeholder", "call_module", "call_module", "output"]
    torch.testing.assert_close(graph(X), want)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.jit is deprecated
        traced = torch.jit.trace(f, (X,))
    assert "aten::relu" in str(traced.inlined_graph)
    torch.testing.assert_close(traced(X), want)


def test_a_compiled_function_tells_its_code():
    def f(x, k=2, *, n=3):
        return x * k + n

    g = magneto.compile(f)
    assert g.__code__ is f.__code__ and g.__globals__ is f.__globals__ and g.__closure__ is None
    assert g.__defaults__ == (2,) and g.__kwdefaults__ == {"n": 3}
    with pytest.raises(AttributeError, match="__code__"):
        magneto.compile(nn.ReLU()).__call__.__code__  # noqa: B018
