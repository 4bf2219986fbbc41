"""Options of torch.compile that are PyTorch's: Inductor's, and two that torch.compile itself takes out."""

from __future__ import annotations

import importlib
import logging
import sys
import warnings
from collections.abc import Callable
from typing import Any, get_origin

Options = dict[str, Any]


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"magneto.compile: option {name!r} must be of type bool, got {type(value).__name__}")
    return value


def _threads(name: str, value: Any) -> Options:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"magneto.compile: option {name!r} must be of type int, got {type(value).__name__}")
    return {"threads": max(value, 0)}  # Inductor's -1: as many as torch has


def _search(name: str, value: Any) -> Options:
    return {"search": True} if _flag(name, value) else {}


# Those that mean something here, as options of our own.
HONOURED: dict[str, Callable[[str, Any], Options]] = {
    "freezing": lambda name, value: {"freeze": _flag(name, value)},
    "layout_optimization": lambda name, value: {"keep_layout": not _flag(name, value)},
    "cpp.threads": _threads,
    "max_autotune": _search,
    "max_autotune_gemm": _search,
    "emulate_precision_casts": lambda name, value: {"numerics": 1} if _flag(name, value) else {},
}

# Those that change what is guarded or what is returned: the program runs without, and is told.
NOT_HONOURED = {
    "guard_filter_fn": "every guard is kept, so the results are right but some calls may compile again",
    "use_aoti": "the program is compiled when it is called",
}

_told: set[str] = set()
_log = logging.getLogger("magneto")


def _checked_by_inductor(name: str, value: Any) -> bool:
    """Is there such a setting of Inductor?  Raises TypeError if it has another type, as torch.compile raises.

    All of these settings are about how Inductor makes its kernels.
    """
    config: Any = importlib.import_module("torch._inductor.config")
    known, attribute = config.get_config_copy(), name.replace("-", "_")
    if attribute not in known:
        return False
    want = config.get_type(attribute)
    if get_origin(want) is None and not isinstance(value, want):  # torch does not check generic types either
        raise TypeError(
            f"magneto.compile: option {name!r} must be of type {type(known[attribute]).__name__}, "
            f"got {type(value).__name__}"
        )
    return True


def _tell_once(name: str, tell: Callable[[], None]) -> None:
    if name not in _told:
        _told.add(name)
        tell()


def _programs_line() -> int:
    """The stacklevel, for a warning of the caller, of the innermost frame outside of torch and us."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] in ("magneto", "torch"):
        level, frame = level + 1, frame.f_back
    return level


def translate(name: str, value: Any) -> Options | None:
    """The option as options of magneto's own back end.  None: PyTorch does not know it either."""
    honour = HONOURED.get(name)
    if honour:
        return honour(name, value)
    why = NOT_HONOURED.get(name)
    if why is None:
        if not _checked_by_inductor(name, value):
            return None
        text = "option %r has no effect: it is about Inductor's kernels"
        _tell_once(name, lambda: _log.info(text, name))
    else:
        text = f"magneto: option {name!r} has no effect: {why}"
        _tell_once(name, lambda: warnings.warn(text, RuntimeWarning, _programs_line()))
    return {}
