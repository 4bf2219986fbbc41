"""Keywords of torch.compile: each has its effect, is said to have none, or is refused."""

import inspect
import pathlib
import re
import typing

import pytest
import torch
import torch._dynamo
from torch._dynamo.testing import CompileCounter

import magneto
from magneto import _magneto

ROOT = pathlib.Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "torch-compiler.md").read_text()
X = torch.linspace(-1, 1, 12).reshape(3, 4)


def f(x):
    return x.sin() + 1


def entries(fn=f):
    return [e for e in _magneto.entries() if e["code"] is fn.__code__]


def test_every_keyword_of_torch_compile_is_known():
    theirs = set(inspect.signature(torch.compile).parameters) - {"model"}
    assert theirs <= set(inspect.signature(magneto.compile).parameters)
    overloads = [inspect.signature(o) for o in typing.get_overloads(magneto.compile)]
    real = list(inspect.signature(magneto.compile).parameters)
    assert len(overloads) == 2 and all(list(o.parameters) == real for o in overloads)


def test_modes_share_what_is_compiled():
    for mode in None, "default", "reduce-overhead":
        torch.testing.assert_close(magneto.compile(f, mode=mode)(X), f(X))
    assert _magneto.stats()["entries"] == len(entries()) == 1
    for mode in "max-autotune", "max-autotune-no-cudagraphs":  # these time library calls
        torch.testing.assert_close(magneto.compile(f, mode=mode)(X), f(X))
    assert _magneto.stats()["entries"] == len(entries()) == 2
    with pytest.raises(ValueError, match="unknown mode 'fast'"):
        magneto.compile(f, mode="fast")
    with pytest.raises(TypeError, match="mode must be a string"):
        magneto.compile(f, mode=1)


def test_other_back_ends_get_the_mode():
    seen = []

    def backend(gm, example_inputs, **kwargs):
        seen.append(kwargs)
        return gm.forward

    magneto.compile(f, backend=backend, mode="fast")(X)
    assert seen == [{"mode": "fast"}]


def test_names_have_no_effect():
    torch.testing.assert_close(magneto.compile(f, name="a")(X), f(X))
    torch.testing.assert_close(magneto.compile(name="b")(f)(X), f(X))
    assert len(entries()) == 1
    with pytest.raises(TypeError, match="name must be a string"):
        magneto.compile(f, name=3)


def test_specifications_of_shapes_are_refused():
    with pytest.raises(NotImplementedError, match="shapes_spec is not supported; mark sizes"):
        magneto.compile(f, shapes_spec=object())
    with pytest.raises(NotImplementedError, match="shapes_spec"):
        magneto.compile(shapes_spec={})  # the error belongs to the line of the decorator


@pytest.mark.parametrize("backend", ["magneto", "counter"])
def test_isolated_recompiles(backend):
    backend = CompileCounter() if backend == "counter" else backend

    def g(x, flag):
        return x + 1 if flag else x - 1

    a, b = (magneto.compile(g, backend=backend, isolate_recompiles=True, recompile_limit=1) for _ in range(2))
    shared = magneto.compile(g, backend=backend, recompile_limit=1)
    a(X, True), b(X, False), shared(X, True)
    assert len(entries(g)) == 3
    for c, flag in ((a, True), (b, False), (shared, True)):
        hits = _magneto.stats()["hits"]
        torch.testing.assert_close(c(X, flag), g(X, flag))
        assert _magneto.stats()["hits"] == hits + 1
    del a, c
    assert len(entries(g)) == 2  # nobody can call it any more
    with magneto.set_stance(force_backend="eager"):
        torch.testing.assert_close(b(X, True), g(X, True))
        before = _magneto.stats()["entries"]
        torch.testing.assert_close(b(X, True), g(X, True))
    assert _magneto.stats()["entries"] == before
    with pytest.raises(TypeError, match="isolate_recompiles must be a bool"):
        magneto.compile(g, isolate_recompiles=1)


def test_no_back_end_means_magnetos():
    c = magneto.compile(f, backend=None)
    assert c.options() == magneto.compile(f).options() and c.options()["backend"] is None
    torch.testing.assert_close(c(X), f(X))


# ---- docstrings ----

PUBLIC = sorted({*magneto.__all__} - {"is_dynamo_compiling"})


@pytest.mark.parametrize("name", PUBLIC)
def test_public_names_are_described_with_an_example(name):
    value = getattr(magneto, name)
    text = inspect.getdoc(value)
    data = inspect.isclass(value) and name != "set_stance"
    parts = ["Example:", "Attributes:"] if data else ["Returns:", "Raises:", "Example:"]
    parts += ["Arguments:"] if "Attributes:" not in parts and inspect.signature(value).parameters else []
    assert [p for p in parts if p not in text] == []
    assert ">>> " in text  # tests/docs/test_examples.py runs them


def test_modules_of_the_compiler_are_not_listed():
    assert {n for n in dir(magneto) if not n.startswith("__")} == set(magneto.__all__)
    assert not [n for n in magneto.__all__ if inspect.ismodule(getattr(magneto, n))]


@pytest.mark.parametrize("name", PUBLIC)
def test_arguments_are_described(name):
    value = getattr(magneto, name)
    text = inspect.getdoc(value)
    for parameter in inspect.signature(value).parameters:
        assert re.search(rf"^    (\w+, )*{parameter}(, \w+)*:", text, re.M), parameter


# ---- names of torch.compiler ----


def rows(heading):
    """{name: status} of the table under this heading."""
    part = PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]
    found = re.findall(r"^\| (`[^|]*`) \| ([^|]*) \|", part, re.M)
    return {name: status for names, status in found for name in re.findall(r"`(\w+)`", names)}


def test_the_table_has_the_names_of_torch_compiler():
    table = rows("Names")
    assert set(torch.compiler.__all__) - set(table) == set()
    assert set(table.values()) == {"honoured", "no effect", "absent"}
    public = {
        n for n in dir(torch.compiler) if callable(getattr(torch.compiler, n)) and not n.startswith("_")
    }
    types = {
        n
        for n in public
        if isinstance(getattr(torch.compiler, n), type) or n in ("Any", "Callable", "FuncType")
    }
    assert public - types - set(table) == set()


def test_the_table_has_the_keywords_of_torch_compile():
    table = rows("Keywords of torch.compile")
    assert set(inspect.signature(torch.compile).parameters) - set(table) == set()
    assert set(table) == {*inspect.signature(magneto.compile).parameters, "model"}


def test_the_table_has_the_settings_of_torch_compiler():
    table = rows("Settings")
    theirs = {
        n for n in dir(torch.compiler.config) if not n.startswith("_") and n in torch.compiler.config._config
    }
    assert theirs - set(table) == set()


def honoured_stance():
    counter = CompileCounter()
    c = magneto.compile(f, backend=counter)
    with torch.compiler.set_stance("force_eager"):
        c(X)
    return counter.frame_count == 0


def one_graph(fn, want=None):
    counter = CompileCounter()
    torch.testing.assert_close(
        magneto.compile(fn, backend=counter, fullgraph=True)(X), fn(X) if want is None else want
    )
    return counter.frame_count == 1


def kept_after(fn):
    magneto.compile(f)(X)
    before = _magneto.entries()
    fn()
    return len(_magneto.entries()) == len(before)


def keeps_guards(name):
    compiled = magneto.compile(f, options={"guard_filter_fn": getattr(torch.compiler, name)})
    compiled(X)
    return compiled(X.double()).dtype == torch.float64  # the code for float32 is not run on it


def default_backend():
    before = torch.compiler.get_default_backend()
    torch.compiler.set_default_backend("eager")
    try:
        return magneto.compile(f).options()["backend"] is None
    finally:
        torch.compiler.set_default_backend(before)


def refuses_substitute():
    import zlib

    def crc32(data, value=0, /):
        return 7

    try:
        torch.compiler.substitute_in_graph(zlib.crc32, skip_signature_check=True)(crc32)
    except ValueError:  # another test was first
        pass
    with pytest.raises(RuntimeError, match="crc32"):
        magneto.compile(lambda x: x + zlib.crc32(b"a"), fullgraph=True)(X)
    return True


@torch.compiler.nested_compile_region
def region(x):
    return x.sin()


DISABLED = torch.compiler.disable(f)
BY_TORCH = torch.compile(f, backend="eager")
DOUBLE = torch.compiler.wrap_numpy(lambda array: array * 2)
FACTS = {
    "honoured": {
        "compile": lambda: one_graph(BY_TORCH),
        "disable": lambda: not magneto.explain(lambda x: DISABLED(x))(X).graph_count,
        "set_stance": honoured_stance,
        "wrap_numpy": lambda: one_graph(lambda x: DOUBLE(x) + 1, X * 2 + 1),
        "is_compiling": lambda: one_graph(lambda x: x + torch.compiler.is_compiling(), X + 1),
        "is_exporting": lambda: one_graph(lambda x: x + torch.compiler.is_exporting()),
        "nested_compile_region": lambda: one_graph(lambda x: region(x) + region(x)),
    },
    "no effect": {
        "reset": lambda: kept_after(torch.compiler.reset),
        "set_default_backend": default_backend,
        "substitute_in_graph": refuses_substitute,
        "cudagraph_mark_step_begin": lambda: kept_after(torch.compiler.cudagraph_mark_step_begin),
        **{
            name: (lambda name=name: keeps_guards(name))
            for name in torch.compiler.__all__
            if name.startswith(("skip_", "keep_"))
        },
    },
}


@pytest.mark.parametrize("status, name", [(status, name) for status in FACTS for name in FACTS[status]])
def test_the_table_is_right(status, name):
    if not hasattr(torch.compiler, name):
        pytest.skip("not in this version of torch")
    assert rows("Names")[name] == status
    assert FACTS[status][name]()
