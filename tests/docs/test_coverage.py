"""tools/coverage_*.py: what ran is counted, for all modules of a package, and too little of it is an error."""

import json
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import coverage_statements  # noqa: E402
import coverage_table  # noqa: E402

sys.path.remove(str(ROOT / "tools"))

MODULE = '''"""A module."""

from __future__ import annotations


def f(x):
    """Doubles what is positive."""
    if x > 0:
        return 2 * x
    return 0


Y = f(1)
'''


def test_probes_note_what_runs_and_nothing_else():
    import ast

    lines = {}
    tree = ast.fix_missing_locations(coverage_statements.Probes(lines).visit(ast.parse(MODULE)))
    assert not any(lines.values())
    names = {"__seen__": lines}
    exec(compile(tree, "module", "exec"), names)
    assert names["Y"] == 2 and names["f"].__doc__ == "Doubles what is positive."
    assert lines == {6: True, 8: True, 9: True, 10: False, 13: True}


def test_every_module_of_the_package_counts(tmp_path):
    package, build = tmp_path / "package", tmp_path / "build"
    (package / "inner").mkdir(parents=True)
    build.mkdir()
    (package / "a.py").write_text("X = 1\nY = 2\n")
    (package / "inner" / "b.py").write_text("X = 1\nY = 2\n")
    (package / "inner" / "c.py").write_text("X = 1\n")
    for process, line in ((1, 1), (2, 2)):
        seen = {str(package / "inner" / "b.py"): {"1": line == 1, "2": line == 2}}
        (build / f"python-{process}.json").write_text(json.dumps(seen))
    found = coverage_table.python_run(build, package)
    assert found[package / "inner" / "b.py"] == {1: True, 2: True}
    assert found[package / "a.py"] == {1: False, 2: False}
    assert len(found) == 3


@pytest.mark.parametrize(
    "least, status", [(("0", "0"), 0), (("76", "0"), 1), (("75", "60"), 0), (("75", "61"), 1)]
)
def test_too_little_is_an_error(least, status, monkeypatch, capsys):
    source, module = coverage_table.SOURCES / "base/bits.c", coverage_table.PACKAGE / "face.py"
    lines = {source: {1: True, 2: True, 3: True, 4: False}}
    functions = {(source, 1, "mg_bits_set"): True, (source, 4, "mg_bits_clear"): False}
    monkeypatch.setattr(coverage_table, "c_run", lambda build: (lines, functions))
    statements = {module: {1: True, 2: True, 3: True, 4: False, 5: False}}
    monkeypatch.setattr(coverage_table, "python_run", lambda build, package: statements)
    arguments = ["table", "build", "--never", "--least-c", least[0], "--least-python", least[1]]
    monkeypatch.setattr(sys, "argv", arguments)
    assert coverage_table.main() == status
    printed = capsys.readouterr().out
    assert "75.0%" in printed and "60.0%" in printed
    assert "never ran: src/base/bits.c:4: mg_bits_clear" in printed and "mg_bits_set" not in printed
    assert ("have to" in printed) == bool(status)
