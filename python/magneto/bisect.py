"""``python -m magneto.bisect PROGRAM [arguments]``: the smallest graph that is wrong in a program.

The program runs with MAGNETO_REPRO, so the first call of each graph is compared with eager.
What differs, cannot be compiled, crashes, hangs or is slow is traced to a pass and an operator.
It is then written as a program of its own.
"""

from __future__ import annotations

import argparse
import functools
import os
import pathlib
import signal
import subprocess
import sys
import tempfile

import torch

from ._trust import beside, locate, repro

HUNG = -1000  # in place of the status of a process that had to be ended
TRIAL = 60.0  # seconds in which one trial has to end


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
    parser.add_argument(
        "--slow", type=float, metavar="FACTOR", help="also graphs that take so many times as long as eager"
    )
    parser.add_argument(
        "--hang", type=float, metavar="SECONDS", help="end the program after so long, as if it had crashed"
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


def _run(command: list[str], env: dict[str, str], seconds: float | None, quiet: bool = False) -> int:
    """The status of a process; HUNG if it did not end in time."""
    with subprocess.Popen(
        command,
        env=env,
        stdout=subprocess.DEVNULL if quiet else None,
        stderr=subprocess.DEVNULL if quiet else None,
    ) as process:
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            return HUNG


def _how(status: int) -> str:
    if status == HUNG:
        return "it does not end"
    return f"it ends the process by {_signal_name(status)}"


def _ends_alike(status: int, wanted: int) -> bool:
    """Do both hang, or both end by a signal?  On a busy machine a trial may be late, which is no crash."""
    return status < 0 and (status == HUNG) == (wanted == HUNG)


def _crash(wanted: int, case: locate.Case, limit: int = -1) -> beside.Found | None:
    """Does a process that compiles and runs the case end as the program did?"""
    env = {name: value for name, value in os.environ.items() if name != "MAGNETO_REPRO"}
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "case.pt"
        torch.save(case, file)
        command = [sys.executable, "-m", "magneto._trust.trial", str(file), str(limit)]
        status = _run(command, env, TRIAL, quiet=True)
    return beside.Found(_how(status), []) if _ends_alike(status, wanted) else None


def _after_crash(file: pathlib.Path, status: int, seconds: float) -> str | None:
    """The program that shows it; None: the graph that was at work does not crash by itself."""
    p, inputs, diff = torch.load(file, weights_only=False)
    crash = functools.partial(_crash, status)
    if not crash((p, inputs, diff)):
        return None
    place = locate.locate(p, inputs, diff, crash, seconds)
    return repro.write(place, _how(status), (p, inputs, diff), crash)


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
    env = dict(os.environ)
    if args.slow:  # graphs that are left to eager since they are slow are wanted, too
        env |= {"MAGNETO_REPRO_SLOW": str(round(args.slow * 100)), "MAGNETO_TRIALS": "0"}
    status = _run([sys.executable, *args.program], env, args.hang)
    crashed = [file for file in out.glob("running-*.pt") if file not in before]
    for file in crashed:
        if status < 0:
            ended = "did not end" if status == HUNG else f"ended by {_signal_name(status)}"
            print(f"bisect: the program {ended}; looking for the graph", flush=True)
            if not _after_crash(file, status, args.seconds):
                print("bisect: the graph that was at work does not crash by itself")
        file.unlink()
    found = sorted(file for file in out.glob("repro-*.py") if file not in before)
    for file in found:
        print(f"bisect: {file}\n{_title(file)}")
    if not found:
        ended = "did not end" if status == HUNG else f"ended with status {status}"
        print(f"bisect: nothing found; the program {ended}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
