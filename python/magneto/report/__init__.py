"""``MAGNETO_REPORT=out.html``, or ``magneto.report(path)``: one page about a run.

The page is a file without anything of the network: see docs/report.md.
``python -m magneto.report --diff a.html b.html`` compares two of them.
"""

from __future__ import annotations

import atexit
import os
import pathlib
import sys
from collections.abc import Callable, Sequence
from typing import Any

from .. import _magneto

_MISSING = "magneto.report: jinja2, which writes the page, is missing; run: pip install 'magneto[report]'"


def measure(on: bool = True) -> bool:
    """From here on, keeps what a report shows of each compilation and run.

    Call it before the first compiled call.
    Measuring costs at most 5 % of a run, and memory for the texts of the graphs.

    Arguments:
        on: False stops measuring; what was kept stays.

    Returns:
        What it was before.

    Raises:
        TypeError: ``on`` is no bool.

    Example:
        >>> import magneto
        >>> magneto.measure()
        False
        >>> magneto.measure(False)
        True
    """
    if not isinstance(on, bool):
        raise TypeError(f"magneto.measure: on must be a bool, got {type(on).__name__}")
    return _magneto.measure(on)


def report(
    path: str | os.PathLike[str],
    *,
    check: Sequence[Any] | None = None,
) -> pathlib.Path:
    """Writes a page about what was compiled and run since measure(), or since the start with MAGNETO_REPORT.

    Arguments:
        path: the HTML file.  Its folder must exist.
        check: ``(f, *args)``: ``f(*args)`` is run, compiled and eagerly.  The page then has both speeds,
            and how far each result is from eager's and from one in float64.  ``f`` runs some 20 times.

    Returns:
        The path.

    Raises:
        TypeError: ``path`` is no path, or ``check`` does not begin with a callable.
        RuntimeError: nothing was measured.
        ModuleNotFoundError: jinja2 is missing; the message has the command that installs it.
        OSError: the file cannot be written.

    Example:
        >>> import tempfile, torch, magneto
        >>> before = magneto.measure()
        >>> f = magneto.compile(lambda x: x.sin() + 1)
        >>> y = f(torch.ones(3))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     page = magneto.report(f"{folder}/run.html", check=(f, torch.ones(3)))
        ...     "sin" in page.read_text()
        True
        >>> magneto.measure(before)
        True
    """
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(f"magneto.report: path must be a str or a path, got {type(path).__name__}")
    if check is not None and not (isinstance(check, (tuple, list)) and check and callable(check[0])):
        raise TypeError("magneto.report: check must be a tuple that begins with a callable: (f, *args)")
    try:
        from .._report import page
    except ModuleNotFoundError as e:
        if e.name != "jinja2":
            raise
        raise ModuleNotFoundError(_MISSING, name="jinja2") from None
    from .._report import collect

    data = _magneto.report_data()
    if not data["plans"] and not data["events"] and not data["calls"]:
        raise RuntimeError(
            "magneto.report: nothing was measured; set MAGNETO_REPORT, or call magneto.measure() before "
            "the first compiled call"
        )
    checked = None
    if check is not None:
        from .._report import check as check_module

        checked = check_module.run(check[0], tuple(check[1:]))
    out = pathlib.Path(path)
    out.write_text(page.render(collect.facts(data, checked)), encoding="utf-8")
    return out


def _ranked(path: str) -> str:
    """The path for this process: %p is its number; ranks other than 0 have theirs in it."""
    path = path.replace("%p", str(os.getpid()))
    rank = os.environ.get("RANK", "0")
    if rank == "0" or not rank.isdigit():
        return path
    p = pathlib.Path(path)
    return str(p.with_name(f"{p.stem}.rank{rank}{p.suffix}"))


def _tell(write: Callable[..., Any], path: str) -> None:
    """At exit: writes the page, or says in one line why there is none."""
    data = _magneto.stats()
    if not data["entries"] and not data["fallbacks"]:
        print("magneto.report: nothing was compiled, so no report is written", file=sys.stderr)
        return
    try:
        print(f"magneto.report: {write(path)}", file=sys.stderr)
    except (OSError, RuntimeError, ModuleNotFoundError) as e:
        print(e if str(e).startswith("magneto") else f"magneto.report: {e}", file=sys.stderr)


def _at_exit() -> None:
    """Called once, when magneto is imported."""
    path = os.environ.get("MAGNETO_REPORT", "")
    if path:
        atexit.register(_tell, report, _ranked(path))
