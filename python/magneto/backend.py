"""``torch.compile(f, backend="magneto")``: Dynamo's front end, magneto's recorder and compiler behind it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from . import _magneto
from .compiler import checked
from .module import written


def magneto(
    gm: torch.fx.GraphModule,
    example_inputs: list[torch.Tensor],
    *,
    mode: str | None = None,
    options: dict[str, Any] | None = None,
) -> Callable[..., Any]:
    """The back end "magneto" of torch.compile: compiles an FX graph.

    It is recorded from the tensors of its first call.

    Arguments:
        gm: the graph, as Dynamo gives it.
        example_inputs: has no effect.
        mode: has no effect; checked as by magneto.compile().
        options: those of magneto.compile().

    Returns:
        A callable with the arguments and results of the graph.

    Raises:
        TypeError: an option has the wrong type.
        ValueError: an unknown mode or option, or a number out of range.

    Example:
        >>> import torch
        >>> torch.compile(lambda x: x.relu() + 1, backend="magneto")(torch.tensor([-1.0, 2.0]))
        tensor([1., 3.])
    """
    return _magneto.Callable(written(gm).forward, **checked(mode=mode, options=options))
