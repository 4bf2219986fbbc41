"""What programs say to a compiler: marks on functions, stances, wrappers of torch.compile; ours and torch's own."""

import dataclasses
import operator

import pytest
import torch
import torch._dynamo
from torch._dynamo.testing import CompileCounter

import magneto
from support import counts

X = torch.linspace(-1, 1, 16).reshape(4, 4)
LINEAR = torch.nn.Linear(4, 4)


class Keep:
    """A back end that keeps its graphs."""

    def __init__(self):
        self.graphs = []

    def __call__(self, gm, example_inputs):
        gm.graph.lint()
        self.graphs.append(gm)
        return gm.forward

    def ops(self):
        return [n.target for gm in self.graphs for n in gm.graph.nodes if n.op.startswith("call")]


def run(f, graphs, breaks=0, x=X):
    """Two calls with magneto's compiler and two with Keep; returns the latter."""
    want, keep = f(x.clone()), Keep()
    for backend in ("magneto", keep):
        magneto.reset()
        c = magneto.compile(f, backend=backend)
        for _ in range(2):
            torch.testing.assert_close(c(x.clone()), want)
        stats = counts()
        assert (stats.graphs, stats.breaks) == (graphs, breaks), stats
    return keep


def inner(x):
    return x.cos() * 2 + 1


def wrap(mark, fn=inner):
    def copy(x):
        return fn(x)

    return mark(copy)


@pytest.mark.parametrize("mark", [magneto.disable, torch.compiler.disable, torch._dynamo.disable])
def test_disable(mark):
    f = wrap(mark)
    run(lambda x: f(x * 2) + 1, 2, 1)
    g = wrap(lambda fn: mark(fn, recursive=False))
    run(lambda x: g(x * 2) + 1, 3, 1)  # what it calls is compiled
    m = mark(torch.nn.Linear(4, 4))
    run(lambda x: m(x * 2) + 1, 2, 1)
    assert isinstance(m, torch.nn.Module)


def test_disable_shows_its_reason():
    f = magneto.disable(inner, reason="it is slow anyway")
    e = magneto.explain(lambda x: f(x) + 1)(X)
    assert "it is slow anyway" in e.break_reasons[0].reason
    with pytest.raises(TypeError, match="reason"):
        magneto.disable(inner, reason=3)


def test_graph_break_of_torch():
    def f(x):
        y = x * 2
        torch._dynamo.graph_break()
        return y + 1

    run(f, 2, 1)
    with pytest.raises(RuntimeError, match="graph_break"):
        magneto.compile(f, fullgraph=True)(X)


@pytest.mark.parametrize(
    "mark",
    [
        magneto.allow_in_graph,
        magneto.nonstrict_trace,
        torch.compiler.allow_in_graph,
        torch._dynamo.nonstrict_trace,
    ],
)
def test_allow_in_graph(mark):
    f = wrap(mark)
    keep = run(lambda x: f(x * 2) + 1, 1)
    assert len(keep.ops()) == 3 and f in keep.ops()
    assert magneto.allow_in_graph([torch.sin]) == [torch.sin]


def test_disallow_in_graph():
    def f(x):
        return torch.add(torch.sub(torch.add(x, 1), 1), 2)

    torch._dynamo.disallow_in_graph(torch.sub)
    try:
        assert torch.sub not in run(f, 2, 1).ops()
    finally:
        torch._dynamo.trace_rules._disallowed_callable_ids.remove(id(torch.sub))
    run(f, 1)


def test_a_function_of_the_graph_reads_tensors_from_outside():
    ones = torch.ones(4)
    f = magneto.allow_in_graph(lambda x: x * 2 + ones)
    for backend in ("eager", "aot_eager"):
        torch.testing.assert_close(
            magneto.compile(lambda x: f(x) + 1, backend=backend, fullgraph=True)(X), X * 2 + 2
        )


@pytest.mark.parametrize("mark", [magneto.assume_constant_result, torch.compiler.assume_constant_result])
def test_assume_constant_result(mark):
    calls = []

    @mark
    def scale(n):
        calls.append(n)
        return n * 2

    c = magneto.compile(lambda x: x * scale(3))
    for _ in range(3):
        torch.testing.assert_close(c(X), X * 6)
    assert calls == [3]


def test_a_constant_result_for_tensors():
    @magneto.assume_constant_result
    def positive(t, more):
        return None if t.item() < 0 else more["x"][0] * 2

    def fn(x):
        y = x.sin()
        two = positive(y.sum() + 1, {"x": (x,)})
        return x if two is None else y + two

    c = magneto.compile(fn, fullgraph=True)
    x = torch.ones(3)
    torch.testing.assert_close(c(x), x.sin() + 2)
    torch.testing.assert_close(c(x * -4), (x * -4).sin() + 2)  # what it was for the first arguments
    written = magneto.compile(lambda x: x.add_(1) * positive(x.sum(), {"x": [x]}))
    torch.testing.assert_close(written(torch.ones(3)), torch.full((3,), 8.0))


def test_substitute_in_graph():
    @magneto.substitute_in_graph(operator.length_hint, skip_signature_check=True)
    def length_hint(obj, default=0):
        return len(obj)

    run(lambda x: x + operator.length_hint([1, 2, 3]), 1)
    with pytest.raises(TypeError, match="callable"):
        magneto.substitute_in_graph(3)


def test_functions_that_torch_compiled_are_part_of_the_graph():
    f, m = torch.compile(inner, backend="eager"), torch.compile(LINEAR, backend="eager")
    run(lambda x: f(x * 2) + 1, 1)
    run(lambda x: m(x * 2) + 1, 1)
    run(lambda x: torch.compile(inner, backend="eager")(x) + 1, 1)


def test_functions_that_magneto_compiled_are_part_of_the_graph():
    f, m = magneto.compile(inner), magneto.compile(LINEAR)
    run(lambda x: f(x * 2) + 1, 1)
    run(lambda x: m(x * 2) + 1, 1)
    run(lambda x: magneto.compile(inner)(x) + 1, 1)


def test_torch_compile_calls_a_magneto_function():
    f = magneto.compile(inner)
    c = torch.compile(lambda x: f(x * 2) + 1, backend="eager")
    for _ in range(2):
        torch.testing.assert_close(c(X), inner(X * 2) + 1)
    torch.testing.assert_close(
        magneto.compile(lambda x: x + 1)(X), X + 1
    )  # after torch's hook has been below ours


def graphs():
    return counts().graphs


@pytest.mark.parametrize("api", [magneto, torch.compiler])
def test_stances(api):
    c = magneto.compile(lambda x: x + 1)
    with api.set_stance("force_eager"):
        torch.testing.assert_close(c(X), X + 1)
        assert graphs() == 0
    with api.set_stance("fail_on_recompile"), pytest.raises(RuntimeError, match="fail_on_recompile"):
        c(X)
    c(X)
    assert graphs() == 1
    with api.set_stance("fail_on_recompile"):
        torch.testing.assert_close(c(X), X + 1)
    with api.set_stance("eager_on_recompile"):
        torch.testing.assert_close(c(X.double()), X.double() + 1)
        assert graphs() == 1

    @api.set_stance("force_eager")
    def eager(x):
        return c(x)

    hits = counts().hits
    eager(X)
    assert counts().hits == hits
    c(X)
    assert counts().hits == hits + 1
    with pytest.raises(ValueError, match="unknown stance 'sideways'"):
        magneto.set_stance("sideways")
    with pytest.raises(RuntimeError, match="force_backend"):
        magneto.set_stance("force_eager", force_backend="eager")


@pytest.mark.parametrize("stance", ["eager_then_compile", "aot_eager_then_compile"])
def test_the_first_call_shows_what_changes(stance):
    counter = CompileCounter()

    def fn(x, y, z):
        return x * y * z[0]

    c = magneto.compile(fn, backend=counter)
    with magneto.set_stance(stance):
        for n in range(1, 5):
            y, z = torch.rand(n), torch.rand(n)
            torch.testing.assert_close(c(n, y, {0: z}), fn(n, y, [z]))
            assert counter.frame_count == (n > 1)
    assert counter.op_count == 2
    c(7, torch.rand(9), {0: torch.rand(9)})
    assert counter.frame_count == 1


def test_a_stance_with_a_back_end():
    own, forced = CompileCounter(), CompileCounter()
    c = magneto.compile(lambda x: x + 1, backend=own)
    c(X)
    for _ in range(2):
        with magneto.set_stance("default", force_backend=forced):
            torch.testing.assert_close(c(X), X + 1)
            with magneto.set_stance("default", force_backend="eager"):
                c(X)
            c(X)
    c(X)
    assert (own.frame_count, forced.frame_count) == (1, 1)


def test_stance_as_a_function_and_inside():
    c = magneto.compile(lambda x: x + 1)
    magneto.set_stance("force_eager")
    try:
        c(X)
        assert graphs() == 0
    finally:
        magneto.set_stance("default")

    def f(x):
        y = x * 2
        with torch.compiler.set_stance("force_eager"):
            y = y.sin()
        return y + 1

    c = magneto.compile(f)
    for _ in range(2):
        torch.testing.assert_close(c(X), f(X))
    assert torch._dynamo.eval_frame._stance.stance == "default"


def test_run_compiles_nothing():
    c = magneto.compile(lambda x: x + 1)
    torch.testing.assert_close(magneto.run(c)(X), X + 1)
    assert graphs() == 0


def test_marks_on_sizes_are_accepted():
    t = torch.ones(3, 4)
    magneto.mark_dynamic(t, 0)
    magneto.maybe_mark_dynamic(t, [-1])
    magneto.mark_static(torch.ones(2))
    assert t._dynamo_dynamic_indices == {0} and t._dynamo_weak_dynamic_indices == {1}
    torch.testing.assert_close(magneto.compile(lambda x: x + 1)(t), t + 1)
    with pytest.raises(IndexError, match="dimension 2"):
        magneto.mark_dynamic(t, 2)
    with pytest.raises(TypeError, match="tensor"):
        magneto.mark_static(3)

    def f(x):
        torch._dynamo.mark_dynamic(x, 0)
        torch._dynamo.mark_static(x, 1)
        torch.compiler.cudagraph_mark_step_begin()
        return x + (1 if torch.compiler.is_dynamo_compiling() else 2) * 0

    torch.testing.assert_close(magneto.compile(f)(X.clone()), X)


def test_export():
    e = magneto.export(LINEAR)(X)
    gm, guards = e
    assert isinstance(gm, torch.fx.GraphModule) and "x" in guards or "input" in guards
    torch.testing.assert_close(gm(*e.example_inputs)[0], LINEAR(X))
    with pytest.raises(RuntimeError, match="graph_break"):
        magneto.export(lambda x: (x + 1, magneto.graph_break()))(X)
    with pytest.raises(RuntimeError, match="no tensor"):
        magneto.export(lambda x: x)(X)


@torch.library.custom_op("magneto_marks::add_one_", mutates_args=("x",))
def add_one_(x: torch.Tensor) -> None:
    x.add_(1)


def test_custom_operators_that_only_write_stay_in_the_fx_graph():
    def f(x):
        y = x * 2
        add_one_(y)
        add_one_(y[0])
        add_one_(x)
        return y + x

    assert len(run(f, 1).ops()) == 6


@dataclasses.dataclass(frozen=True)
class Frozen:
    x: torch.Tensor
    y: torch.Tensor
    n: int = 3
    extra: list = dataclasses.field(default_factory=lambda: [5])


class Plain:
    def __init__(self, x, y, n):
        self.x, self.y, self.n, self.extra = x, y, n, [5]


@pytest.mark.parametrize("mark", [magneto.allow_in_graph, torch._dynamo.allow_in_graph])
@pytest.mark.parametrize("cls", [Frozen, Plain])
@pytest.mark.parametrize("backend", ["magneto", "eager"])
def test_objects_are_given_to_a_function_of_the_graph(mark, cls, backend):
    g = wrap(mark, lambda o: o.x + o.y * o.n + o.extra[0])
    listed = wrap(mark, lambda o: o[0].x + o[0].n)
    given = magneto.compile(lambda o: g(o) + 1, backend=backend, fullgraph=cls is Frozen)
    made = magneto.compile(lambda x, y: g(cls(x, y, n=2)) + 1, backend=backend, fullgraph=True)
    inside = magneto.compile(lambda o: listed([o]) + 1, backend=backend)
    for i in range(3):
        x, y = X * i, X + i
        torch.testing.assert_close(given(cls(x, y, i)), x + y * i + 6)
        torch.testing.assert_close(made(x, y), x + y * 2 + 6)
        torch.testing.assert_close(inside(cls(x, y, i)), x + i + 1)


def test_disable_without_recursion_runs_the_function_itself_as_written():
    def told(x):
        return x - 1 if torch.compiler.is_compiling() else inner(x)

    left = torch._dynamo.disable(told, recursive=False)
    c = magneto.compile(lambda f, x: f(x))
    for _ in range(2):
        torch.testing.assert_close(c(left, X), inner(X))
        torch.testing.assert_close(c(told, X), X - 1)
    torch.testing.assert_close(magneto.compile(left)(X), X - 1)  # compiled by itself it is compiled


def test_classes_as_decorated_objects():
    keep = Keep()

    @magneto.compile(backend=keep)
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = torch.nn.Linear(4, 4)

        def forward(self, x):
            return self.fc(x.sin())

    @magneto.compile(backend=keep)
    class Scale:
        def __init__(self, k):
            self.k = k

        def __call__(self, x):
            return x * self.k

    @magneto.disable
    class Plain(torch.nn.Module):
        def forward(self, x):
            return x + 1

    net, plain = Net(), Plain()
    assert isinstance(net, Net) and not keep.graphs
    torch.testing.assert_close(net(X), net.fc(X.sin()))
    torch.testing.assert_close(Scale(3)(X), X * 3)
    assert len(keep.graphs) == 2
    run(lambda x: plain(x.sin()).cos(), 2, 1)


class Sized:
    def __init__(self):
        self.n = 0

    @torch.compiler.disable
    def __len__(self):
        return self.n


def test_disabled_method_behind_a_slot_sees_what_was_written_before():
    def f(x, s):
        s.n = x.shape[0]
        return x + len(s)

    c = magneto.compile(f)
    assert torch.equal(c(X, Sized()), X + 4)
    assert torch.equal(c(X[:2], Sized()), X[:2] + 2)


@pytest.mark.parametrize("mark", [torch.compiler.disable, torch._dynamo.disable])
def test_disabled_closure_made_inside_shares_its_cells(mark):
    def f(x):
        def read():
            return v

        read, v, seen = mark(read), 1, []
        for v in (2, 3):
            torch._dynamo.graph_break()
            seen.append(read())
        v = 4
        return x + 1, seen, read()

    want = f(X)
    got = magneto.compile(f)(X)
    assert torch.equal(want[0], got[0]) and want[1:] == got[1:]


def strict_part(x, on):
    x = x + 1
    with torch._dynamo.error_on_graph_break(on):
        torch._dynamo.graph_break()
    return x * 2


@torch._dynamo.error_on_graph_break(True)
def strict_function(x):
    print(end="")
    return x + 1


def test_error_on_graph_break():
    assert torch.equal(magneto.compile(strict_part)(X, False), (X + 1) * 2)
    with pytest.raises(RuntimeError, match=r"error_on_graph_break\(True\), but the graph breaks: user"):
        magneto.compile(strict_part)(X, True)
    with pytest.raises(RuntimeError, match=r"error_on_graph_break\(True\).*print"):
        magneto.compile(lambda x: strict_function(x) * 2)(X)
    assert not torch._dynamo.utils._error_on_graph_break
    with pytest.raises(RuntimeError, match="fullgraph=True"):
        magneto.compile(strict_part, fullgraph=True)(X, False)


def test_error_on_graph_break_without_a_break_is_part_of_the_graph():
    def f(x):
        with torch._dynamo.error_on_graph_break(True):
            return x.sin()

    run(f, 1)


def test_contexts_of_torch_are_left_once():
    def f(x):
        with torch._dynamo.error_on_graph_break(False):

            class Local:
                pass

        return x + 1, Local.__name__

    for _ in range(3):
        assert magneto.compile(f)(X)[1] == "Local"


def test_random_from_is_a_keyword():
    def f(x):
        return x.clone().random_(**{"from": -3, "to": 9}) + x.clone().uniform_(**{"from": 2, "to": 3})

    for backend in ("magneto", Keep()):
        torch.manual_seed(3)
        want = f(X)
        torch.manual_seed(3)
        assert torch.equal(magneto.compile(f, backend=backend)(X), want)


def test_a_function_of_the_graph_that_gives_nothing_runs_each_time():
    seen = []
    note = wrap(
        magneto.allow_in_graph, lambda x: seen.append(float(x.sum())) if type(x) is torch.Tensor else None
    )

    def f(x):
        y = x * 2
        note(y)
        return y + 1

    g = magneto.compile(f, backend=Keep(), fullgraph=True)
    for i in range(3):
        g(X + i)
    assert len(seen) == 3


def test_modules_that_are_being_made_when_the_graph_ends():
    class Two(torch.nn.Sequential):
        def __init__(self, *layers):
            magneto.graph_break()
            super().__init__(*layers)

    def f(x):
        torch.manual_seed(3)
        return Two(torch.nn.Linear(4, 4), torch.nn.ReLU())(x)

    for backend in ("magneto", "eager"):
        torch.testing.assert_close(magneto.compile(f, backend=backend)(X), f(X))


class Pair:
    def __init__(self, a, b):
        self.a, self.b = a, b


def test_a_function_of_the_graph_gives_an_instance():
    @torch._dynamo.nonstrict_trace
    def pair(x):
        return Pair(x, x + 1)

    def fn(x):
        p = pair(x)
        p.b = p.b * 2
        return p.a * p.b, p

    x = torch.arange(4.0)
    got, want = magneto.compile(fn, fullgraph=True)(x), fn(x)
    torch.testing.assert_close(got[0], want[0])
    assert type(got[1]) is Pair and got[1].a is x and torch.equal(got[1].b, want[1].b)


def test_a_disabled_class_of_modules():
    @torch._dynamo.disable
    class Inner(torch.nn.Module):
        def forward(self, x):
            seen.append(torch.compiler.is_compiling())
            return torch.sigmoid(x)

    class Outer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Inner()

        def forward(self, x):
            return self.inner(torch.sin(x)) * 2

    graphs, seen = [], []

    def backend(gm, inputs):
        graphs.append(len([n for n in gm.graph.nodes if n.op.startswith("call")]))
        return gm

    m, x = Outer(), torch.randn(4)
    torch.testing.assert_close(magneto.compile(m, backend=backend)(x), m(x))
    assert graphs == [1, 1] and seen == [False, False]


def test_kernels_of_attention_chosen_by_a_decorator():
    from torch.nn.attention import SDPBackend, sdpa_kernel

    @sdpa_kernel(backends=[SDPBackend.MATH, SDPBackend.FLASH_ATTENTION], set_priority=True)
    def attention(x):
        return torch.nn.functional.scaled_dot_product_attention(x, x, x)

    def fn(x):
        return attention(x) + 1

    x = torch.randn(2, 2, 4, 4)
    torch.testing.assert_close(magneto.compile(fn, fullgraph=True)(x), fn(x))


@pytest.mark.parametrize(
    "f, broken",
    [
        (lambda x: x.sin() if x.shape[0] == 3 else x.cos(), True),
        (lambda x: x.sin() if 3 < x.shape[0] else x.cos() if x.shape[0] < 3 else x + 1, True),
        (lambda x: x.sin() if (x * x).size(0) != 3 else x.cos(), True),
        (lambda x: x.sin() if x.shape[0] == 2 or x.shape[0] >= 5 else x.cos(), False),
        (lambda x: x.sin() if x.shape[1] == 4 else x.cos(), False),
        (lambda x: x[:3] + x.view(-1, 4)[:3], False),
    ],
)
@pytest.mark.parametrize("mark", [torch._dynamo.mark_dynamic, torch._dynamo.maybe_mark_dynamic])
def test_sizes_marked_dynamic_that_have_one_value_only(f, broken, mark):
    from torch.fx.experimental.symbolic_shapes import ConstraintViolationError

    x = torch.ones(3, 4)
    mark(x, 0)
    if broken and mark is torch._dynamo.mark_dynamic:
        with pytest.raises(ConstraintViolationError, match=r"L\['x'\].size\(0\) is marked as dynamic"):
            magneto.compile(f)(x)
    else:
        torch.testing.assert_close(magneto.compile(f)(x), f(x))


@pytest.mark.parametrize(
    "names, f, calls",
    [
        ("L['n']", lambda n: torch.ones(5) * n, [(0,), (1,), (2,), (3,)]),
        ("L['x']", lambda x: x * x, [(torch.ones(n, 2),) for n in (2, 3, 4)]),
        ("L['x'], L['n']", lambda x, n: x * n, [(torch.ones(n), n) for n in (2, 3, 4)]),
        ("L\\['[xn]1'\\]", lambda x1, n1: x1 * n1, [(torch.ones(n), n) for n in (2, 3, 4)]),
        ("L['l'][0]", lambda l: torch.ones(2) * l[0], [([n],) for n in (2, 3, 4)]),
    ],
)
@pytest.mark.parametrize("dynamic", [None, False])
def test_dynamic_sources(names, f, calls, dynamic):
    keep = Keep()
    with torch.compiler.config.patch(dynamic_sources=names):
        c = magneto.compile(f, backend=keep, dynamic=dynamic)
        for args in calls:
            assert torch.equal(c(*args), f(*args))
    assert len(keep.graphs) == 1
