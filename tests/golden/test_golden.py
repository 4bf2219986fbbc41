"""Passes on graph texts: Each .mg file starts with the command line, the .out file of that name holds what it prints (`make accept`)."""

import os
import pathlib
import subprocess

import pytest

HERE = pathlib.Path(__file__).resolve().parent
MGOPT = HERE.parents[1] / "build" / "mgopt"


@pytest.mark.parametrize("path", sorted(HERE.glob("*.mg")), ids=lambda p: p.stem)
def test_golden(path):
    first = path.read_text().splitlines()[0]
    assert first.startswith("# mgopt ")
    run = subprocess.run([MGOPT, *first.split()[2:], path], capture_output=True, text=True)
    # messages carry no paths or line numbers of the sources
    errors = "".join(line.split(" (../")[0] + "\n" for line in run.stderr.splitlines())
    got = run.stdout + errors
    want = path.with_suffix(".out")
    if os.environ.get("MAGNETO_ACCEPT"):
        want.write_text(got)
    assert got == want.read_text()
