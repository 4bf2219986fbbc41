"""Programs whose reports are looked at."""

import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[2]
# A function with a break; a program goes on from there.
BREAKING = """
import torch, magneto


def f(x):
    y = x.sin() + 1
    print("", end="")
    return y.cos() * x.sum()


g = magneto.compile(f)"""


def written(folder, program):
    """The page of a program."""
    (folder / "prog.py").write_text(program)
    env = {
        **os.environ,
        "MAGNETO_REPORT": str(folder / "out.html"),
        "PYTHONPATH": f"{ROOT / 'python'}:{ROOT}",
    }
    done = subprocess.run(
        [sys.executable, "prog.py"], cwd=folder, env=env, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    return folder / "out.html"
