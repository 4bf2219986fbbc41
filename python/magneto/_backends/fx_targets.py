"""What nodes of FX graphs call when it has no name that generated code could write."""

from __future__ import annotations

from types import CellType, FunctionType, MethodType
from typing import Any

import torch


class FunctionCall:
    """``cls.apply`` of a torch.autograd.Function; its results as a tuple, or (``flat``) the tensors in them.
    ``template``: None, or how the arguments are made of the tensors that the call is given."""

    flat = False

    def __init__(self, cls: type, template: Any = None) -> None:
        self.cls = cls
        self.template = template
        self.__name__ = "autograd_function_apply"
        self.__qualname__ = f"{cls.__qualname__}.apply"
        self.__module__ = __name__

    def __call__(self, *args: Any) -> tuple[Any, ...]:
        if self.template is not None:
            args = _make(self.template, args)
        res = self.cls.apply(*args)  # type: ignore[attr-defined]
        res = res if isinstance(res, tuple) else (res,)
        if not self.flat:
            return res
        leaves: list[torch.Tensor] = []
        _collect(res, leaves)
        return tuple(leaves)

    def __repr__(self) -> str:
        return self.__qualname__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FunctionCall) and other.cls is self.cls and other.template is self.template

    def __hash__(self) -> int:
        return hash(self.cls)


def _make(template: Any, leaves: tuple[Any, ...]) -> Any:
    """The object of a template (src/record/autograd/object_template.c)."""
    kind, of, parts = template
    if kind == "leaf":
        return leaves[of]
    if kind == "same":
        return of
    if kind == "method":
        return MethodType(of, _make(parts, leaves))
    if kind == "function":
        code, namespace, name, defaults = of
        cells = tuple(CellType(_make(t, leaves)) for t in parts)
        return FunctionType(code, namespace, name, defaults, cells)
    if kind == "items":
        return of(_make(t, leaves) for t in parts)
    values = {k: _make(t, leaves) for k, t in parts.items()}
    if kind == "dict":
        return of(values)
    result = object.__new__(of)
    result.__dict__.update(values)
    return result


def _collect(value: Any, leaves: list[torch.Tensor]) -> None:
    """In the order in which a template has them."""
    if isinstance(value, torch.Tensor):
        leaves.append(value)
        return
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, (tuple, list)):
        value = () if isinstance(value, type) else getattr(value, "__dict__", {}).values()
    for v in value:
        _collect(v, leaves)
