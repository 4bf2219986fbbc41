"""tools/layers.py: each breach of the layout is found, and a clean tree has none."""

import importlib.util
import pathlib

import pytest

ROOT = pathlib.Path(__file__).parents[2]
spec = importlib.util.spec_from_file_location("layers", ROOT / "tools" / "layers.py")
layers = importlib.util.module_from_spec(spec)
spec.loader.exec_module(layers)

CLEAN = {
    "src/base/bits.h": "int mg_bits_count(int x);\n",
    "src/base/bits.c": '#include "base/bits.h"\nint mg_bits_count(int x) { return x; }\n',
    "src/driver/plan.h": "enum { PLAN_most = 4 };\nint mg_plan_run(int x);\n",
    "src/driver/plan.c": '#include "driver/plan.h"\nint mg_plan_run(int x) { return mg_bits_count(x); }\n',
    "src/api/call.c": '#include "driver/plan.h"\nstatic int call_run(int x) { return mg_plan_run(x); }\n',
    "python/magneto/face.py": '"""A module."""\n\n\ndef short():\n    """Says so."""\n    return 1\n',
    "tools/tool.py": "X = 1\n",
}
USED = {
    "src/driver/parts.def": "PART(low)\n",
    "src/driver/parts.c": "#define PART(file) mg_##file##_init,\n",
    "src/driver/low.c": "int mg_low_init(void) { return 1; }\n",
    "src/base/named.c": 'int mg_named_run(void) { return 1; }\n__asm__("call mg_named_run");\n',
    "src/base/tested.c": "int mg_tested_run(void) { return 1; }\n",
    "tests/unit/test_it.c": "int main(void) { return mg_tested_run(); }\n",
}
LONG = "\n".join(f"  x += {n};" for n in range(70))
CIRCLE = {
    f"src/driver/c{n}.c": f"int mg_c{n}_run(int x) {{ return mg_c{(n + 1) % 7}_run(x); }}\n" for n in range(7)
}
BREACHES = {
    "upward include": {"src/base/low.c": '#include "driver/plan.h"\n'},
    "upward name": {"src/base/low.c": "int mg_low_run(void) { return mg_plan_run(1); }\n"},
    "foreign declaration": {"src/driver/other.h": "int mg_plan_run(int x);\n"},
    "long function": {"src/base/low.c": f"int mg_low_run(int x) {{\n{LONG}\n  return x;\n}}\n"},
    "long file": {"src/base/low.c": "int mg_low;\n" * 900},
    "full folder": {f"src/driver/f{n}.h": f"enum {{ F{n}_one }};\n" for n in range(24)},
    "large circle": CIRCLE,
    "unused function": {"src/base/low.c": "int mg_low_run(void) { return 1; }\n"},
    "unexplained clear": {"src/host/python/low.c": "void mg_low_run(void) { PyErr_Clear(); }\n"},
}
PYTHON = {
    "full folder": {f"tests/front/room/test_{n}.py": "" for n in range(26)},
    "long function": {"python/magneto/long.py": "def f(x):\n" + "    x += 1\n" * 70 + "    return x\n"},
    "long file": {"tools/long.py": "X = 1\n" * 900},
}
PROBLEMS = {
    "Python.h below host": {"src/base/low.c": "#include <Python.h>\n"},
    "belongs to host/python/pyframe.c": {"src/host/python/low.c": '#include "internal/pycore_frame.h"\n'},
    "in no line of ROOMS": {"src/attic/old.c": "int mg_old_run(void) { return 1; }\n"},
    "is defined in": {"src/base/low.c": "int mg_plan_run(int x) { return x; }\n"},
    "plan.c stands in": {"src/base/plan.c": "int mg_base_plan;\n"},
}


def report(tmp_path, capsys, files):
    """What is printed of a tree with these files besides the clean ones."""
    for name, text in (CLEAN | files).items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    failed = layers.check(tmp_path / "src", True)
    return failed, capsys.readouterr().out


def test_a_clean_tree_is_ok(tmp_path, capsys):
    failed, text = report(tmp_path, capsys, {})
    assert not failed and text.endswith("layers: ok\n"), text


def test_names_made_by_macros_in_assembler_and_in_tests_are_used(tmp_path, capsys):
    failed, text = report(tmp_path, capsys, USED)
    assert not failed, text


@pytest.mark.parametrize("kind", BREACHES)
def test_each_breach_is_found(kind, tmp_path, capsys):
    failed, text = report(tmp_path, capsys, BREACHES[kind])
    assert failed and f"{kind}: 1 cases, at most 0" in text, text


@pytest.mark.parametrize("kind", PYTHON)
def test_python_stays_short(kind, tmp_path, capsys):
    failed, text = report(tmp_path, capsys, PYTHON[kind])
    assert failed and f"{kind}: 1 cases, at most 0" in text, text


def test_docstrings_do_not_count(tmp_path, capsys):
    text = 'def f(x):\n    """One.\n' + "    More.\n" * 70 + '    """\n    return x\n'
    failed, printed = report(tmp_path, capsys, {"python/magneto/long.py": text})
    assert not failed, printed


@pytest.mark.parametrize("words", PROBLEMS)
def test_what_no_number_excuses(words, tmp_path, capsys):
    failed, text = report(tmp_path, capsys, PROBLEMS[words])
    assert failed and words in text, text
