"""The Python examples of documents and docstrings run.

The blocks of a page run one after the other, in one namespace.  The examples of a docstring print what it says.
"""

import doctest
import importlib
import inspect
import pathlib
import re
import warnings

import pytest

import magneto

ROOT = pathlib.Path(__file__).parents[2]
PAGES = sorted(
    p for p in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")] if "```python\n" in p.read_text()
)

# Packages of examples that run under `make test-integrations`.
OTHERS = ("onnx", "onnxscript", "openvino")

MODULES = (
    "magneto",
    "magneto.backend",
    "magneto.compiler",
    "magneto.control",
    "magneto.doctor",
    "magneto.explain",
)


def described():
    """Everything with a docstring that has examples: the public names, and what else their modules define."""
    found = {f"magneto.{name}": getattr(magneto, name) for name in magneto.__all__}
    for module in map(importlib.import_module, MODULES):
        for name, value in vars(module).items():
            if inspect.isfunction(value) and value.__module__ == module.__name__:
                found.setdefault(f"{module.__name__}.{name}", value)
    by_object = {
        id(value): name for name, value in reversed(found.items())
    }  # the public name, if there is one
    return {name: found[name] for name in by_object.values() if ">>> " in (inspect.getdoc(found[name]) or "")}


DESCRIBED = described()


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_examples_run(page, capsys):
    space = {"__name__": "example"}
    text = page.read_text()
    for found in re.finditer(r"^```python\n(.*?)^```", text, re.M | re.S):
        line = text.count("\n", 0, found.start()) + 1
        code = compile("\n" * line + found[1], str(page), "exec")
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)  # nothing falls back
            try:
                exec(code, space)
            except ModuleNotFoundError as missing:
                if missing.name not in OTHERS:
                    raise
                pytest.skip(f"{missing.name} is not installed")


def test_pages_with_examples_are_found():
    assert {
        "README",
        "getting-started",
        "training",
        "dynamic-sizes",
        "numpy",
        "backends",
        "troubleshooting",
    } <= {p.stem for p in PAGES}


@pytest.mark.parametrize("name", DESCRIBED)
def test_examples_of_docstrings_print_what_they_say(name):
    examples = doctest.DocTestParser().get_doctest(inspect.getdoc(DESCRIBED[name]), {}, name, None, 0)
    magneto.reset()
    runner, told = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE), []
    runner.run(examples, out=told.append)
    assert runner.failures == 0, "".join(told)


def test_docstrings_with_examples_are_found():
    aliases = {"is_dynamo_compiling": "is_compiling"}
    assert {f"magneto.{aliases.get(name, name)}" for name in magneto.__all__} <= set(DESCRIBED)
