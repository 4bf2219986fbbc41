"""``python -m magneto.bisect PROGRAM [arguments]``: the smallest graph that is wrong in a program.

The program runs with MAGNETO_REPRO, so the first call of each graph is compared with eager.
What differs, cannot be compiled or crashes is traced to a pass and an operator.
It is then written as a program of its own.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import signal
import subprocess
import sys
import tempfile

import torch

from ._trust import beside, locate, repro


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m magneto.bisect", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument(
        "--out", default="magneto-repro", help="folder of the programs (default: %(default)s)"
    )
    parser.add_argument(
        "--seconds", type=float, default=300.0, help="that looking for the place of a crash may take"
    )
    parser.add_argument("program", nargs=argparse.REMAINDER, help="prog.py or -m module, and its arguments")
    args = parser.parse_args(argv)
    if not args.program:
        parser.error("a program is needed")
    return args


def _signal_name(status: int) -> str:
    try:
        return signal.Signals(-status).name
    except ValueError:
        return f"signal {-status}"


def _crash(case: locate.Case, limit: int = -1) -> beside.Found | None:
    """Does a process that compiles and runs the case end by a signal?"""
    env = {name: value for name, value in os.environ.items() if name != "MAGNETO_REPRO"}
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "case.pt"
        torch.save(case, file)
        command = [sys.executable, "-m", "magneto._trust.trial", str(file), str(limit)]
        status = subprocess.run(command, env=env, capture_output=True).returncode
    return beside.Found(f"it ends the process by {_signal_name(status)}", []) if status < 0 else None


def _after_crash(file: pathlib.Path, status: int, seconds: float) -> str | None:
    """The program that shows it; None: the graph that was at work does not crash by itself."""
    p, inputs, diff = torch.load(file, weights_only=False)
    if not _crash((p, inputs, diff)):
        return None
    place = locate.locate(p, inputs, diff, _crash, seconds)
    return repro.write(place, f"it ends the process by {_signal_name(status)}", (p, inputs, diff), _crash)


def _title(file: pathlib.Path) -> str:
    """The docstring of a written program."""
    return file.read_text().split('"""')[1].strip()


def main(argv: list[str] | None = None) -> int:
    """Runs the program and says what was found.  0: nothing; 1: something."""
    args = _arguments(argv)
    out = pathlib.Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    os.environ["MAGNETO_REPRO"] = str(out)
    before = set(out.iterdir())
    status = subprocess.run([sys.executable, *args.program]).returncode
    crashed = [file for file in out.glob("running-*.pt") if file not in before]
    for file in crashed:
        if status < 0:
            print(f"bisect: the program ended by {_signal_name(status)}; looking for the graph", flush=True)
            if not _after_crash(file, status, args.seconds):
                print("bisect: the graph that was at work does not crash by itself")
        file.unlink()
    found = sorted(file for file in out.glob("repro-*.py") if file not in before)
    for file in found:
        print(f"bisect: {file}\n{_title(file)}")
    if not found:
        print(f"bisect: nothing found; the program ended with status {status}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
