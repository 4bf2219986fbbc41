"""Methods of DTensor that take it apart or move it, as one call of a graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def bind(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Callable[[torch.Tensor], torch.Tensor]:
    """``function`` of its tensor alone: meshes and placements are no values of a graph."""

    def call(tensor: torch.Tensor) -> torch.Tensor:
        return function(tensor, *args, **kwargs)

    call.__name__ = function.__name__
    return call
