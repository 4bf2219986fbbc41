"""Programs around the compiler: what else goes on in a process must not disturb it, nor it them."""

import os
import subprocess
import sys

import pytest
import torch

import magneto
from life_programs import CASES

# These end the process, or their signals and children are better off away from the test runner.
APART = {
    "exit_live",
    "atexit_call",
    "del_at_exit",
    "sys_exit",
    "fork",
    "fork_teams",
    "fork_threads",
    "sigint_everywhere",
    "dataloader",
    "deep_recursion",
}
PRELUDE = "import sys, os\nimport torch, magneto\ntorch.set_num_threads(1)\n"


@pytest.mark.parametrize("name", sorted(APART))
def test_apart(name):
    if "fork" in name and not hasattr(os, "fork"):
        pytest.skip("needs fork")
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", PRELUDE + CASES[name]],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0 and "Traceback" not in done.stderr and "ignored in" not in done.stderr, (
        done.stderr
    )


@pytest.mark.parametrize("name", sorted(set(CASES) - APART))
def test_inside(name, monkeypatch):
    import gc

    thresholds, limit, unraisable = gc.get_threshold(), sys.getrecursionlimit(), sys.unraisablehook
    magneto.reset()
    try:
        exec(
            compile(CASES[name], f"<{name}>", "exec"),
            {"sys": sys, "os": os, "torch": torch, "magneto": magneto},
        )
    finally:
        sys.settrace(None)
        sys.setprofile(None)
        gc.set_threshold(*thresholds)
        sys.setrecursionlimit(limit)
        sys.unraisablehook = unraisable
        magneto.reset()
