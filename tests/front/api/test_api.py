"""magneto.compile as an API: every way of calling it, its companions, and what the result looks like."""

import functools
import inspect

import pytest
import torch
from torch._dynamo.testing import CompileCounter

import magneto
from support import assert_same, counts


def f(x, y=1.0, *, scale=2):
    """Doc of f."""
    return torch.sin(x) * scale + y


X = torch.linspace(-1, 1, 12).reshape(3, 4)


def test_call():
    c = magneto.compile(f)
    for _ in range(2):
        assert_same(c(X), f(X))
        assert_same(c(X, 3.0), f(X, 3.0))
        assert_same(c(X, y=2.0, scale=5), f(X, y=2.0, scale=5))


def test_decorators():
    @magneto.compile
    def a(x):
        return x + 1

    @magneto.compile()
    def b(x):
        return x + 1

    @magneto.compile(fullgraph=True, mode="max-autotune", options={"freeze": True})
    def c(x):
        return x + 1

    for fn in (a, b, c):
        assert_same(fn(X), X + 1)


def test_looks_like_the_function():
    c = magneto.compile(f)
    assert c.__name__ == "f" and c.__doc__ == "Doc of f." and c.__wrapped__ is f
    assert c.__qualname__ == f.__qualname__ and c.__module__ == f.__module__
    assert inspect.signature(c) == inspect.signature(f)
    assert callable(c)


def test_function_attributes_are_kept():
    def g(x):
        return x

    g.tag = 3
    assert magneto.compile(g).tag == 3


def test_methods_and_callables():
    class C:
        k = 3

        @magneto.compile
        def decorated(self, x):
            return x * self.k

        def plain(self, x, *, add):
            return x * self.k + add

        @classmethod
        def of_class(cls, x):
            return x * cls.k

        @staticmethod
        def static(x):
            return x * 7

        def __call__(self, x):
            return x - self.k

    o = C()
    assert_same(o.decorated(X), X * 3)
    assert_same(C.decorated(o, X), X * 3)
    assert_same(magneto.compile(o.plain)(X, add=1), X * 3 + 1)
    assert_same(magneto.compile(C.of_class)(X), X * 3)
    assert_same(magneto.compile(C.static)(X), X * 7)
    assert_same(magneto.compile(o)(X), X - 3)
    assert_same(magneto.compile(functools.partial(f, scale=4))(X), f(X, scale=4))
    assert_same(magneto.compile(lambda x: x / 2)(X), X / 2)
    assert_same(magneto.compile(torch.sin)(X), torch.sin(X))


def test_compiling_twice():
    c = magneto.compile(magneto.compile(f), fullgraph=True)
    assert c.__wrapped__ is f
    assert_same(c(X), f(X))


@pytest.mark.parametrize("name", ["TORCHDYNAMO_DISABLE", "TORCH_COMPILE_DISABLE"])
def test_disabled_by_the_environment(monkeypatch, name):
    monkeypatch.setenv(name, "1")
    assert magneto.compile(f) is f
    monkeypatch.setenv(name, "0")
    assert magneto.compile(f) is not f


def test_disabled_by_torchs_config():
    counter = CompileCounter()
    c = magneto.compile(f, backend=counter, fullgraph=True)
    with torch._dynamo.config.patch(disable=True):
        torch.testing.assert_close(c(X), f(X))
    assert counter.frame_count == 0
    torch.testing.assert_close(c(X), f(X))
    assert counter.frame_count == 1


def test_disable():
    assert magneto.compile(f, disable=True) is f
    assert magneto.compile(disable=True)(f) is f
    seen = []

    @magneto.disable
    def hidden(x):
        seen.append(magneto.is_compiling())
        return x.cos()

    @magneto.compile
    def g(x):
        return hidden(x * 2) + 1

    for _ in range(2):
        assert_same(g(X), (X * 2).cos() + 1)
    assert seen == [False, False]
    assert hidden.__name__ == "hidden"
    assert magneto.disable()(f)(X).shape == X.shape


def test_is_compiling():
    assert not magneto.is_compiling()

    @magneto.compile
    def g(x):
        return x + 1 if magneto.is_compiling() else x - 1

    assert_same(g(X), X + 1)
    assert_same(g(X), X + 1)
    assert not magneto.is_compiling()


def test_graph_break():
    def g(x):
        y = x * 2
        magneto.graph_break()
        return y + 1

    assert g(X) is not None
    e = magneto.explain(g)(X)
    assert e.graph_count == 2 and e.graph_break_count == 1
    assert e.break_reasons[0].kind == "user"
    assert_same(magneto.compile(g)(X), X * 2 + 1)
    with pytest.raises(RuntimeError, match="graph_break"):
        magneto.compile(g, fullgraph=True)(X)


def test_reset():
    c = magneto.compile(f)
    c(X)
    assert counts().graphs == 1
    magneto.reset()
    assert counts().graphs == 0
    assert_same(c(X), f(X))


def test_explain():
    def toy(a, b):
        x = a / (torch.abs(a) + 1)
        if b.sum() < 0:
            b = b * -1
        return x * b

    e = magneto.explain(toy)(torch.ones(10), torch.ones(10))
    assert (e.graph_count, e.graph_break_count, e.op_count) == (2, 1, 6)
    (why,) = e.break_reasons
    first = inspect.getsourcelines(toy)[1]
    assert why.line == first + 2 and why.function.endswith("toy") and why.kind == "data_dependent"
    assert why.file == __file__ and why.hint
    assert torch.ops.aten.abs.default in e.ops_per_graph[0]
    assert len(e.guards) >= 2 and "L['a']" in e.guards[0]
    assert_same(e.result, toy(torch.ones(10), torch.ones(10)))
    text = str(e)
    assert "graphs: 2" in text and "toy" in text and "hint:" in text and repr(e) == text


def test_explain_module_and_compiled():
    m = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU())
    for what in (m, magneto.compile(m)):
        assert magneto.explain(what)(torch.ones(2, 4)).graph_count == 1
    assert magneto.explain(magneto.compile(f))(X).graph_count == 1


def test_backend_names():
    names = magneto.list_backends()
    assert {"magneto", "aten", "eager", "inductor"} <= set(names) and names == sorted(names)


def test_aten_backend():
    c = magneto.compile(f, backend="aten")
    assert_same(c(X), f(X))


@pytest.mark.parametrize(
    "f",
    [
        torch.sin,
        torch.Tensor.cos,
        torch.ops.aten.exp.default,
        torch.ops.aten.tanh,
        functools.partial(torch.mul, other=2),
    ],
)
def test_functions_without_a_frame(f):
    counter = CompileCounter()
    compiled, x = magneto.compile(f, backend=counter, fullgraph=True), torch.randn(3)
    assert torch.allclose(compiled(x), f(x)) and (counter.frame_count, counter.op_count) == (1, 1)
    assert torch.allclose(magneto.compile(compiled)(x), f(x)) and inspect.unwrap(compiled) is f


def test_partials_of_library_functions():
    counter, x = CompileCounter(), torch.randn(3, 4)
    for dim in (0, 1, 1):  # what compiled the function that a partial calls serves the next partial of it
        f = functools.partial(torch.nn.functional.softmax, dim=dim)
        assert torch.allclose(magneto.compile(f, backend=counter, fullgraph=True)(x), f(x))
    assert counter.frame_count == 2
