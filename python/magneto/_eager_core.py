"""Stands for the C core on interpreters that it does not know: functions run as they are.

In: what the Python face asks of ``_magneto``.  What only a recording asks for is missing.
"""

from __future__ import annotations

import types
from collections.abc import Callable as _Function
from typing import Any

break_hints: dict[str, str] = {}
stances = [
    "default",
    "force_eager",
    "eager_on_recompile",
    "fail_on_recompile",
    "eager_then_compile",
    "aot_eager_then_compile",
]


class Callable:
    """Calls the function that was given."""

    config_id = 0

    def __init__(self, fn: _Function[..., Any], /, **config: Any) -> None:
        if not callable(fn):
            raise TypeError(f"magneto: a callable is needed, got {type(fn).__name__}")
        self.__wrapped__ = fn
        self._config = config

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return self.__wrapped__(*args, **kwargs)

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def options(self) -> dict[str, Any]:
        return dict(self._config)


def graph_break(reason: str = "graph_break()", /) -> None:
    """Nothing to break."""


def call_uncompiled(fn: _Function[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], /) -> Any:
    return fn(*args, **kwargs)


def call_holding(
    hold: bool, fn: _Function[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], /
) -> Any:
    return fn(*args, **kwargs)


def set_stance(*stance: Any) -> tuple[Any, ...]:
    """Every stance runs everything eagerly."""
    return ("default",)


def substitute(original: _Function[..., Any], replacement: _Function[..., Any], /) -> None:
    """Only a recording would call the replacement."""


def reset() -> None:
    """Nothing to forget."""


def measure(on: bool, /) -> bool:
    return False


def report_data() -> dict[str, Any]:
    return {"plans": [], "events": [], "calls": []}


def entries() -> list[Any]:
    return []


def left() -> list[Any]:
    return []


def stats() -> dict[str, Any]:
    names = (
        "graphs joint_graphs entries recompiles hits misses fallbacks attempts bytecodes left stopped "
        "inferred record_ms compile_ms cuda_captures cuda_replays cuda_failed verified differed"
    )
    return {**dict.fromkeys(names.split(), 0), "breaks": {}}
