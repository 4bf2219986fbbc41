"""python -m bench doors: first calls of programs of PyTorch's libraries (bench/libraries.py).

Each first call has a process and a cache folder of its own.  Prints a table in Markdown.
Programs whose package is missing are left out.

    python -m bench.doors <program> torch.compile|magneto
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time


def _first(name: str, which: str) -> float:
    """Milliseconds from wrapping to the end of the first call."""
    import torch

    import magneto
    from bench.libraries import PROGRAMS

    torch.manual_seed(0)
    f, calls = PROGRAMS[name][0]()
    with torch.no_grad():
        f(*calls[0])  # libraries initialised: the same for both
        with magneto.install():
            start = time.perf_counter()
            torch.compile(f, backend="magneto" if which == "magneto" else "inductor")(*calls[0])
            return (time.perf_counter() - start) * 1e3


def _measure(name: str, which: str) -> str:
    with tempfile.TemporaryDirectory() as cache:
        environment = {
            **os.environ,
            "TORCHINDUCTOR_CACHE_DIR": cache,
            "MAGNETO_CACHE_DIR": cache,
            "MAGNETO_STRICT": "0",
        }
        command = [sys.executable, "-m", "bench.doors", name, which]
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
    lines = done.stdout.strip().splitlines()
    if not done.returncode and lines:
        return lines[-1]
    words = done.stderr.strip().splitlines() or ["failed"]
    if "ModuleNotFoundError" in words[-1]:
        return ""
    print(f"{name}, {which}: {words[-1]}", file=sys.stderr)
    return "fails"


def main() -> None:
    from bench.libraries import PROGRAMS

    print("| program | torch.compile | magneto |\n| --- | --- | --- |", flush=True)
    for name in PROGRAMS:
        ours = _measure(name, "magneto")
        if ours:
            print(f"| {name} | {_measure(name, 'torch.compile')} | {ours} |", flush=True)


if __name__ == "__main__":
    import tests.conftest  # noqa: F401  # operators that torchvision's wheel lacks

    took = _first(*sys.argv[1:3])
    print(f"{took / 1e3:.1f} s" if took >= 1e3 else f"{took:.0f} ms")
