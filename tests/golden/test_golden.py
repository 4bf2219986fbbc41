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
