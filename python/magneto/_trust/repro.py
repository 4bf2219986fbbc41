"""Programs that show a difference or a crash, written where MAGNETO_REPRO says.

While that variable is set, the graph that is about to be compiled or run lies in ``running-PID.pt``.
After a crash ``python -m magneto.bisect`` finds it there.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import pathlib
import tempfile
from typing import Any

import torch

from . import beside, locate, slow
from .program import Program, Value, of_calls

__all__ = ["Value", "announce", "announce_calls", "tell", "tell_slow", "withdraw", "write"]

SECONDS = 20.0  # that looking for the place of a difference may take
SEED = 0
_numbers = itertools.count(1)

HEAD = '''"""{title}"""

import {needs}

import torch

import magneto


'''
# Program's own run: a difference is a warning of "verify", and so an error here.
TAIL = """

warnings.simplefilter("error")
{inputs}
with torch.{mode}():
    magneto.compile(f, fullgraph=True, options={{"verify": 1}})(*inputs)
print("no difference")
"""


def folder() -> pathlib.Path | None:
    """Where programs go; None: MAGNETO_REPRO is not set."""
    name = os.environ.get("MAGNETO_REPRO")
    if not name:
        return None
    path = pathlib.Path(name)
    path.mkdir(parents=True, exist_ok=True)
    return path


def _running(path: pathlib.Path) -> pathlib.Path:
    return path / f"running-{os.getpid()}.pt"


def announce(p: Program, inputs: list[Any], diff: list[int]) -> None:
    """Keeps what may crash now."""
    path = folder()
    if path is None or beside.collected.get() is not None:
        return
    with contextlib.suppress(beside.NotComparable):
        torch.save((p, _plain(inputs), diff), _running(path))


def announce_calls(described: tuple[Any, ...], inputs: list[Any], diff: list[int]) -> None:
    """The same, called by C before a graph is compiled."""
    announce(of_calls(described), inputs, diff)


def withdraw(why: str | None = None) -> None:
    """It did not crash.  why: but it could not be compiled, which is shown by a program."""
    path = folder()
    if path is None or beside.collected.get() is not None:
        return
    running = _running(path)
    if why and running.exists():
        p, inputs, diff = torch.load(running, weights_only=False)
        place = locate.locate(p, inputs, diff, locate.compile_fails, SECONDS)
        write(place, f"{why} ({place.op})" if place.op else why, (p, inputs, diff), locate.compile_fails)
    running.unlink(missing_ok=True)


def _plain(inputs: list[Any]) -> list[Any]:
    return beside.copies(inputs, [], True)


def tell(text: str, p: Program, inputs: list[Any], diff: list[int]) -> str:
    """Finds the place of a difference and writes a program.  The text for the user."""
    kept = _plain(inputs)
    place = locate.locate(p, kept, diff, locate.in_process, SECONDS)
    said = f"a compiled graph is not what eager is and runs op by op from now on: {text}"
    if place.op:
        said += f"; first wrong: {place.op}" + (f" at {place.where}" if place.where else "")
    if place.stage:
        said += f"; pass: {place.stage}"
    if place.kernel:
        said += f"; kernel: {place.kernel}"
    path = write(place, place.text or text, (p, kept, diff), locate.in_process)
    return said + (f"; shown by {path}" if path else "")


def tell_slow(text: str | None, p: Program, inputs: list[Any], diff: list[int]) -> None:
    """Writes a program for a graph that is slower than eager."""
    if text is None:
        return
    kept = _plain(inputs)
    place = locate.locate(p, kept, diff, slow.trial, SECONDS)
    write(place, place.text or text, (p, kept, diff), slow.trial)


def write(place: locate.Place, text: str, whole: locate.Case, trial: locate.Trial) -> str:
    """The program that shows it; "": it cannot be written.  whole: where no smaller graph shows it."""
    case = place.case or whole
    path = folder() or pathlib.Path(tempfile.mkdtemp(prefix="magneto-"))
    name = path / f"repro-{os.getpid()}-{next(_numbers)}.py"
    title = text.replace("\\", "/").replace('"', "'")
    facts = [f"Operator: {place.op} {place.where}".rstrip()] if place.op else []
    facts += [f"Pass: {place.stage}"] if place.stage else []
    facts += [f"Kernel: {place.kernel}"] if place.kernel else []
    try:
        body = case[0].text()
        inputs = _inputs(case, name, trial)
    except Exception:  # an argument that has no text
        return ""
    title = "\n".join([f"Compiled by magneto: {title}", *([""] if facts else []), *facts])
    mode = "enable_grad" if case[2] else "no_grad"
    timed = trial is slow.trial
    tail = slow.tail(text, inputs, mode) if timed else TAIL.format(inputs=inputs, mode=mode)
    head = HEAD.format(title=title + ("\n" if facts else ""), needs="time" if timed else "warnings")
    name.write_text(head + body + "\n" + tail)
    return str(name)


def _inputs(case: locate.Case, name: pathlib.Path, trial: locate.Trial) -> str:
    """Lines that make `inputs`: random numbers where these show it as well, else a file."""
    p, inputs, diff = case
    lines, values = _seeded(inputs, diff)
    if values is not None and trial((p, values, diff), -1):
        return lines
    data = name.with_suffix(".pt")
    torch.save([x.detach() if isinstance(x, torch.Tensor) else x for x in inputs], data)
    line = 'inputs = torch.load(__file__.removesuffix(".py") + ".pt", weights_only=True)'
    for i in diff:
        line += f"\ninputs[{i}].requires_grad_()"
    return line


def _seeded(inputs: list[Any], diff: list[int]) -> tuple[str, list[Any] | None]:
    """The text, and what it makes; None: not what these inputs are."""
    lines = [f"torch.manual_seed({SEED})", "inputs = ["]
    for i, x in enumerate(inputs):
        if not isinstance(x, torch.Tensor) or not x.is_contiguous() or not x.is_floating_point():
            return "", None
        leaf = ", requires_grad=True" if i in diff else ""
        lines.append(f"    torch.randn({tuple(x.shape)}, dtype={x.dtype}, device='{x.device}'{leaf}),")
    text = "\n".join([*lines, "]"])
    space: dict[str, Any] = {"torch": torch}
    with beside.kept([torch.default_generator]):
        exec(text, space)
    return text, [x.detach() for x in space["inputs"]]
