"""``torch.compile(f, backend="magneto")``: Dynamo's front end, magneto's recorder and compiler behind it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from . import _magneto
from .compiler import checked


def magneto(
    gm: torch.fx.GraphModule,
    example_inputs: list[torch.Tensor],
    *,
    mode: str | None = None,
    options: dict[str, Any] | None = None,
) -> Callable[..., Any]:
    """Compiles an FX graph; recorded from the real tensors of its first call."""
    recompile = getattr(gm, "real_recompile", None)
    if recompile:  # a lazy module writes its forward() at the first call; the recording wants the final one
        recompile()
    return _magneto.Callable(gm.forward, **checked(mode=mode, options=options))
