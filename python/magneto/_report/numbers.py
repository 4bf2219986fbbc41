"""Numbers as people read them."""

from __future__ import annotations

import os

_UNITS = ((1e9, "G"), (1e6, "M"), (1e3, "k"))


def milliseconds(ms: float) -> str:
    """Three digits, in the unit that suits."""
    if ms <= 0:
        return "0"
    if ms < 1e-3:
        return f"{ms * 1e6:.3g} ns"
    if ms < 1:
        return f"{ms * 1e3:.3g} µs"
    return f"{ms:.3g} ms" if ms < 1e3 else f"{ms / 1e3:.3g} s"


def amount(x: float) -> str:
    """Three digits with k, M or G."""
    unit = next(((by, name) for by, name in _UNITS if x >= by), (1.0, ""))
    return f"{x / unit[0]:.3g}{unit[1]}"


def size(n: float) -> str:
    """Bytes in KiB, MiB or GiB."""
    for by, name in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if n >= by:
            return f"{n / by:.3g} {name}"
    return f"{n:.0f} B"


def percent(x: float) -> str:
    return f"{x * 100:.3g} %"


def file_name(path: str) -> str:
    """The last part of a path, with its folder where many files have that name: autograd/__init__.py."""
    folder, name = os.path.split(path)
    return f"{os.path.basename(folder)}/{name}" if name == "__init__.py" and folder else name
