"""The Python package: every module is installed, and the table of those that C code calls names them."""

import importlib
import pathlib
import re

import magneto

ROOT = pathlib.Path(__file__).parents[3]
PACKAGE = ROOT / "python" / "magneto"
TABLE = (ROOT / "src" / "host" / "python" / "glue.h").read_text()


def test_all_modules_are_installed():
    listed = re.findall(r"'([\w/.]+\.(?:pyi?|typed))'", (PACKAGE / "meson.build").read_text())
    found = [p for p in PACKAGE.rglob("*") if p.suffix in (".py", ".pyi") or p.name == "py.typed"]
    assert sorted(listed) == sorted(str(p.relative_to(PACKAGE)) for p in found)


def test_modules_that_c_code_calls_exist():
    called = re.findall(r'MODULE\(\w+, "([\w.]+)"\)', TABLE)
    for name in called:
        importlib.import_module(name)
    assert {f"magneto._glue.{p.stem}" for p in (PACKAGE / "_glue").glob("[a-z]*.py")} <= set(called)


def test_c_code_imports_modules_of_the_package_by_the_table_only():
    wrong = [p for p in (ROOT / "src").rglob("*.c") if 'mg_import("magneto' in p.read_text()]
    assert not wrong


def test_modules_that_programs_see():
    assert {p.stem for p in PACKAGE.glob("[a-z]*.py")} == {
        "backend",
        "bisect",
        "compiler",
        "control",
        "doctor",
        "explain",
        "module",
    }
    assert all(hasattr(magneto, name) for name in magneto.__all__)
