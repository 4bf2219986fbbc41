"""python/magneto/_magneto.pyi, the types of the C core, says what the C core has."""

import ast
import pathlib

import torch

import magneto
from magneto import _magneto

STUB = ast.parse((pathlib.Path(magneto.__file__).parent / "_magneto.pyi").read_text())


def names(body):
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, ast.AnnAssign):
            yield node.target.id
        elif isinstance(node, ast.Assign):
            yield from (target.id for target in node.targets)


def keys(name):
    """Of one of the stub's typed dicts."""
    for node in STUB.body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            return set(names(node.body))
        if isinstance(node, ast.Assign) and node.targets[0].id == name:
            return {key.value for key in node.value.args[1].keys}
    raise LookupError(name)


def test_names_of_the_module():
    assert {n for n in names(STUB.body) if not n.startswith("_")} == {
        n for n in dir(_magneto) if not n.startswith("_")
    }


def test_names_of_its_classes():
    for node in STUB.body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            has = {n for n in vars(getattr(_magneto, node.name)) if not n.startswith("__")}
            assert {n for n in names(node.body) if not n.startswith("__")} == has, node.name


def test_keyword_arguments_of_a_callable():
    [init] = [
        f
        for node in STUB.body
        if isinstance(node, ast.ClassDef) and node.name == "Callable"
        for f in node.body
        if isinstance(f, ast.FunctionDef) and f.name == "__init__"
    ]
    said = {a.arg: ast.literal_eval(d) for a, d in zip(init.args.kwonlyargs, init.args.kw_defaults)}
    made = _magneto.Callable(len, **said)
    assert made.options() == {
        name: value for name, value in said.items() if name not in ("explained", "plain")
    }


def test_keys_of_its_dicts():
    def f(x):
        return x + 1

    magneto.compile(f)(torch.ones(2))
    [entry] = [e for e in _magneto.entries() if e["code"] is f.__code__]
    assert keys("_Entry") == set(entry)
    assert keys("_Stats") == set(_magneto.stats())
    assert keys("_Machine") == set(_magneto.machine(None))
    assert keys("_DiskCache") == set(_magneto.disk_cache_info())
    assert keys("_KernelCache") == set(_magneto.kernel_cache_info())
