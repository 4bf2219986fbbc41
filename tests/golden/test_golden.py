"""Graph texts through mgopt: passes, loop nests, LLVM, PTX and plans.

Each .mg file starts with its command line; the .out file of that name holds what it prints (`make accept`).
No text depends on the machine: mgopt reads no CPU, and emits for one with AVX2.
"""

import pathlib
import subprocess

import pytest

from accept import assert_text

HERE = pathlib.Path(__file__).resolve().parent
MGOPT = HERE.parents[1] / "build" / "mgopt"


@pytest.mark.parametrize("path", sorted(HERE.glob("*/*.mg")), ids=lambda p: f"{p.parent.name}-{p.stem}")
def test_golden(path):
    first = path.read_text().splitlines()[0]
    assert first.startswith("# mgopt ")
    run = subprocess.run([MGOPT, *first.split()[2:], path], capture_output=True, text=True)
    # messages carry no paths or line numbers of the sources
    errors = "".join(line.split(" (../")[0] + "\n" for line in run.stderr.splitlines())
    assert_text(run.stdout + errors, path.with_suffix(".out"))


@pytest.mark.parametrize("path", sorted(HERE.glob("ptx/*.mg")), ids=lambda p: p.stem)
def test_kernels_run_as_the_reference(path):
    passes = [p for p in path.read_text().splitlines()[0].split()[2:] if p != "-ptx"]
    run = subprocess.run([MGOPT, *passes, "-ptx-run", path], capture_output=True, text=True)
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")


def test_integers_of_what_is_no_integer_may_be_other_ones_on_a_gpu():
    """The logarithm is NaN below -1; what is computed from its integer is not compared."""
    text = """%1 = input f32[64]@cuda:0
%2 = aten::log1p(%1) : f32[64]@cuda:0
%3 = aten::_to_copy(%2, dtype=dtype(i64)) : i64[64]@cuda:0
%4 = aten::bitwise_not(%3) : i64[64]@cuda:0
return %4
"""
    passes = "-functionalize -dce -decompose -simplify -layout -dce -ptx-run".split()
    run = subprocess.run([MGOPT, *passes], input=text, capture_output=True, text=True)
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")
