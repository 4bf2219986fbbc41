"""The environment variables: one table, one warning for each wrong value and each unknown name, and all of it in doctor."""

import os
import pathlib
import subprocess
import sys

import pytest

import magneto
from magneto import doctor

ROOT = pathlib.Path(__file__).parents[3]
PROGRAM = """
import warnings
seen = []
warnings.showwarning = lambda message, category, *rest: seen.append(f"{category.__name__} {message}")
import torch, magneto
for k in (1, 2):
    a = torch.ones(3, 3)
    torch.testing.assert_close(magneto.compile(lambda x: (torch.sin(x) + k) @ x)(a), (torch.sin(a) + k) @ a)
print(len(seen), *seen, sep="\\n")
print("--")
from magneto import doctor
for f in doctor.examine():
    print(f)
"""


def run(tmp_path, **env):
    """The warnings of a program that compiles twice, and doctor's lines."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("MAGNETO_")}
    env = {**clean, "MAGNETO_CACHE_DIR": str(tmp_path / "cache"), **env}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    told, lines = done.stdout.split("\n--\n")
    count, *warned = told.split("\n")
    assert len(warned) == int(count)
    return warned, lines


def test_right_values_are_silent(tmp_path):
    right = {
        "STRICT": "off",
        "CACHE": "1",
        "CACHE_MB": "16",
        "CPU": "v2",
        "LLVM": "",
        "BLAS": "0",
        "LOGS": "timing, graph_breaks",
        "ONLY": "1-1000",
        "ONEDNN": "0",
        "STOP": "",
        "EXAMPLES": "anything",
    }
    warned, lines = run(tmp_path, **{"MAGNETO_" + k: v for k, v in right.items()})
    assert warned == [], warned
    assert "MAGNETO_CACHE_MB=16" in lines and "of 16 MiB" in lines and "noticed" not in lines
    assert "x86-64-v2 by MAGNETO_CPU" in lines


WRONG = {
    "MAGNETO_STRICT": ("maybe", "on, off"),
    "MAGNETO_CACHE": ("2", "on, off"),
    "MAGNETO_CACHE_MB": ("abc", "from 0 to 1048576"),
    "MAGNETO_CPU": ("v9", "v2, v3, v4"),
    "MAGNETO_BLAS": ("mkl", "1, 0"),
    "MAGNETO_GEMM": ("mkl", "1, 0"),
    "MAGNETO_LOGS": ("graph_breaks,no_such_channel", "output_code"),
    "MAGNETO_STOP": ("nowhere", "functionalize, patterns"),
    "MAGNETO_ONLY": ("5-", "n and a-b"),
    "MAGNETO_LLVM": ("/no/such/libLLVM.so", "the path of an LLVM library"),
    "MAGNETO_ONEDNN": ("/no/such/libdnnl.so", "the path of a libdnnl.so.3"),
    "MAGNETO_CASHE": ("1", "CACHE_DIR"),
}


def test_each_wrong_value_and_name_is_one_warning(tmp_path):
    warned, lines = run(tmp_path, **{name: value for name, (value, _) in WRONG.items()})
    assert len(warned) == len(WRONG), warned
    for name, (value, accepted) in WRONG.items():
        (text,) = [w for w in warned if f"{name}={value}" in w]
        assert text.startswith("RuntimeWarning magneto: ") and accepted in text, text
        assert text.removeprefix("RuntimeWarning magneto: ") in lines, name


@pytest.mark.parametrize("value", ["-1", "1048577", "5 ", "0x10", "1e3", "99999999999999999999999"])
def test_numbers_are_numbers(value, monkeypatch):
    monkeypatch.setenv("MAGNETO_CACHE_MB", value)
    assert "from 0 to 1048576" in next(v for v in doctor.variables() if v.name == "MAGNETO_CACHE_MB").wrong
    assert magneto._magneto.disk_cache_info()["limit"] == 512 << 20


@pytest.mark.parametrize("value", ["0", "2-1", "a", "1-2-3", "-", "1,2", "99999999999"])
def test_spans_are_spans(value, monkeypatch):
    monkeypatch.setenv("MAGNETO_ONLY", value)
    assert next(v for v in doctor.variables() if v.name == "MAGNETO_ONLY").wrong


def test_a_library_that_is_no_llvm_is_named(tmp_path):
    import torch

    other = str(pathlib.Path(torch.__file__).parent / "lib" / "libc10.so")
    (text,), _ = run(tmp_path, MAGNETO_LLVM=other)
    assert f"MAGNETO_LLVM={other} is ignored: it lacks " in text


def test_a_variable_set_later_is_looked_at_when_something_compiles(tmp_path):
    program = PROGRAM.replace(
        "import torch, magneto\n", "import os, torch, magneto\nos.environ['MAGNETO_STOP'] = 'lowering'\n"
    )
    env = {**os.environ, "MAGNETO_CACHE_DIR": str(tmp_path), "MAGNETO_CACHE": "0"}
    out = subprocess.run(
        [sys.executable, "-c", program], env=env, capture_output=True, text=True, timeout=300
    ).stdout
    assert out.startswith("1\n") and "MAGNETO_STOP=lowering is not understood" in out


def test_warnings_that_are_errors_do_not_break_a_program(tmp_path):
    (tmp_path / "file").write_text("")
    program = "import torch, magneto, warnings\nwarnings.simplefilter('error')\n"
    program += "print(magneto.compile(lambda x: x + 1)(torch.ones(1)))"
    env = {**os.environ, "MAGNETO_CACHE": "1", "MAGNETO_CACHE_DIR": str(tmp_path / "file")}
    done = subprocess.run(
        [sys.executable, "-c", program], env=env, capture_output=True, text=True, timeout=300
    )
    assert done.stdout == "tensor([2.])\n" and "not kept on disk" in done.stderr


def test_the_documents_have_the_table():
    assert doctor.table() in (ROOT / "docs" / "environment.md").read_text()


def test_every_variable_in_the_sources_is_in_the_table():
    import re

    names = {v.name for v in doctor.variables()}
    for folder in ("src", "python", "tests", "bench", "tools", "docs"):
        for path in (ROOT / folder).rglob("*"):
            if (
                path.suffix not in (".c", ".h", ".py", ".md", ".build", ".sh")
                or path.name == pathlib.Path(__file__).name
            ):
                continue
            found = set(re.findall(r"MAGNETO_[A-Z]+(?:_[A-Z]+)*", path.read_text()))
            assert found <= names, (path, found - names)
    assert not re.search(r'getenv\("MAGNETO_', "".join(p.read_text() for p in (ROOT / "src").rglob("*.c")))
