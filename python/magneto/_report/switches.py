"""What is not as by default: variables, torch's own switches, and options of compiled callables."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import torch

from .. import _magneto, doctor

Facts = dict[str, Any]

# Name, its value by default, how it is read, what it does.
_TORCH: tuple[tuple[str, Any, Callable[[], Any], str], ...] = (
    (
        "torch.get_float32_matmul_precision()",
        "highest",
        torch.get_float32_matmul_precision,
        "how exact products of float32 are",
    ),
    (
        "torch.are_deterministic_algorithms_enabled()",
        False,
        torch.are_deterministic_algorithms_enabled,
        "only deterministic kernels",
    ),
    ("torch.get_default_dtype()", torch.float32, torch.get_default_dtype, "the type of new floats"),
    ("torch.is_anomaly_enabled()", False, torch.is_anomaly_enabled, "graphs run op by op"),
    (
        "torch.backends.cuda.matmul.allow_tf32",
        False,
        lambda: torch.backends.cuda.matmul.allow_tf32,
        "products of float32 on a GPU round to TF32",
    ),
    (
        "torch.backends.cudnn.benchmark",
        False,
        lambda: torch.backends.cudnn.benchmark,
        "cuDNN times its convolutions",
    ),
    ("torch.backends.mkldnn.enabled", True, lambda: torch.backends.mkldnn.enabled, "ATen may call oneDNN"),
)


def _text(x: Any) -> str:
    return getattr(x, "__qualname__", None) or str(x)


def _variables() -> list[Facts]:
    return [
        {"name": v.name, "value": v.value, "default": v.default, "meaning": v.meaning}
        for v in doctor.variables()
        if v.value
    ]


def _torch() -> list[Facts]:
    found = [(name, read(), default, meaning) for name, default, read, meaning in _TORCH]
    return [
        {"name": name, "value": _text(value), "default": _text(default), "meaning": meaning}
        for name, value, default, meaning in found
        if value != default
    ]


def _options() -> list[Facts]:
    """Of each compiled callable that lives, the options that somebody set."""
    default = _magneto.Callable(len).options()
    out: list[Facts] = []
    for c in [o for o in gc.get_objects() if type(o) is _magneto.Callable]:
        of = getattr(c.__wrapped__, "__qualname__", type(c.__wrapped__).__name__)
        for name, value in c.options().items():
            one = {
                "name": f"compile({of}) {name}",
                "value": _text(value),
                "default": _text(default[name]),
                "meaning": "an option of this compiled callable",
            }
            if value != default[name] and one not in out:
                out.append(one)
    return sorted(out, key=lambda o: str(o["name"]))


def rows() -> list[Facts]:
    """All of them: name, value, what it is by default, and what it means."""
    return _variables() + _torch() + _options()
