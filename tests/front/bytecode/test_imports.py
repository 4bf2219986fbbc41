"""Imports while a function is recorded: the program's own happen where it has them, those of kernels leave the recording as it is."""

import importlib
import itertools
import os
import sys
import warnings

import pytest
import torch

import magneto
from support import counts

MODULE = """
import os, warnings, torch, {state}
warnings.filterwarnings("ignore", message="{name}")
{state}.registry["{name}"] = len({state}.registry)
{state}.Counter.n += 1
os.environ["LOADED_BY_A_TEST"] = "{name}"
torch.set_default_dtype(torch.float64)
value = 3
"""

PACKAGE = """
import importlib
def relative():
    from . import sub
    return sub.value
def deep():
    from .sub import value
    return value
def __getattr__(name):
    if name == "lazy":
        return importlib.import_module(__name__ + ".sub")
    raise AttributeError(name)
"""

number = itertools.count()


@pytest.fixture
def fresh(tmp_path, monkeypatch):
    """Makes a module, a package with a submodule, and what importing them changes; gives a function that makes the next ones."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("LOADED_BY_A_TEST", "")
    state = f"magneto_state{next(number)}"
    (tmp_path / f"{state}.py").write_text("registry = {}\nclass Counter:\n  n = 0\n")

    def make():
        name = f"magneto_import{next(number)}"
        package = tmp_path / f"{name}p"
        package.mkdir()
        for file in tmp_path / f"{name}.py", package / "sub.py":
            file.write_text(MODULE.format(state=state, name=name))
        (package / "__init__.py").write_text(PACKAGE)
        importlib.invalidate_caches()
        return name, importlib.import_module(name + "p"), importlib.import_module(state)

    with warnings.catch_warnings():
        yield make
    torch.set_default_dtype(torch.float32)
    for name in [m for m in sys.modules if m.startswith(("magneto_import", "magneto_state"))]:
        del sys.modules[name]


def reading(statement, name, package, state):
    """A function that reads what an import changes before and behind it."""
    lines = ["def f(x):", "  a, b, c, d = len(warnings.filters), len(state.registry), state.Counter.n, os.environ['LOADED_BY_A_TEST'] == 'no'",
             "  y = x * 2 + torch.zeros(1)", "  " + statement.format(name=name),
             "  z = y + torch.zeros(1) + v + (len(warnings.filters) - a) * 10",
             "  return z, len(state.registry) - b, state.Counter.n - c, 'import' in os.environ['LOADED_BY_A_TEST'], d"]  # fmt: skip
    space = {
        "warnings": warnings,
        "os": os,
        "torch": torch,
        "package": package,
        "state": state,
        "importlib": importlib,
    }
    exec("\n".join(lines), space)
    return space["f"]


@pytest.mark.parametrize("statement", [
    "import {name} as m; v = m.value",
    "from {name}p import sub; v = sub.value",
    "import {name}p.sub; v = {name}p.sub.value",
    "v = package.relative()",
    "v = package.deep()",
    "v = package.lazy.value",
    "v = __import__('{name}').value",
    "v = importlib.import_module('{name}').value",
], ids=["import", "from", "dotted", "relative", "deep", "getattr", "builtin", "importlib"])  # fmt: skip
def test_the_program_s_import_happens_where_it_is(fresh, statement):
    seen = []
    for compiled in False, True:
        torch.set_default_dtype(torch.float32)
        os.environ["LOADED_BY_A_TEST"] = ""
        f = reading(statement, *fresh())
        if compiled:
            f = magneto.compile(f)
        results = [f(torch.ones(2, dtype=torch.float32)) for _ in range(3)]
        seen.append([(r[0].tolist(), r[0].dtype, *r[1:]) for r in results])
    assert seen[0] == seen[1]
    assert counts().fallbacks == 0


def imports_in_its_kernel(name):
    """An op whose meta function imports the module, as sympy is imported by some of torch's: eager never runs it."""
    op = torch.library.custom_op(
        f"magneto_imports::{name}", lambda x: x + 1, mutates_args=(), schema="(Tensor x) -> Tensor"
    )

    @op.register_fake
    def _(x):
        importlib.import_module(name)
        return torch.empty_like(x)

    return op


@pytest.mark.parametrize("n", [1, 3])
def test_an_import_of_a_kernel_repeats_the_recording(fresh, n):
    """What the recording has read before is read again; strict mode has no error, and later calls use the entry."""
    made = [fresh() for _ in range(n)]
    ops = [imports_in_its_kernel(name) for name, _, _ in made]
    state = made[0][2]

    def f(x):
        a, b, c = len(warnings.filters), len(state.registry), state.Counter.n
        before = os.environ["LOADED_BY_A_TEST"]
        for op in ops:
            x = op(x)
        return (
            x * 2 + len(warnings.filters) - a,
            len(state.registry) - b,
            state.Counter.n - c,
            before == os.environ["LOADED_BY_A_TEST"],
        )

    compiled = magneto.compile(f)
    results = [compiled(torch.ones(2, dtype=torch.float32)) for _ in range(3)]
    assert all(name in sys.modules for name, _, _ in made)
    for r in results:
        assert r[0].tolist() == [2.0 + 2 * n] * 2 and r[1:] == (0, 0, True)
    stats = counts()
    assert stats.fallbacks == 0 and stats.graphs == 1


def test_imports_without_end_leave_the_frame_to_cpython(fresh):
    """A kernel that imports another module each time it is asked: no endless repetition."""
    op = torch.library.custom_op(
        "magneto_imports::endless", lambda x: x + 1, mutates_args=(), schema="(Tensor x) -> Tensor"
    )
    state = fresh()[2]
    asked = []

    @op.register_fake
    def _(x):
        asked.append(1)
        importlib.import_module(fresh()[0])
        return torch.empty_like(x)

    def f(x):
        n = len(state.registry)
        return op(x) * 2 + (len(state.registry) - n) * 0

    compiled = magneto.compile(f)
    assert compiled(torch.ones(2)).tolist() == [4.0, 4.0]
    assert len(asked) < 100
