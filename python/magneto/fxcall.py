"""What nodes of FX graphs call when it has no name that generated code could write."""

from __future__ import annotations

from typing import Any


class FunctionCall:
    """``cls.apply`` of a torch.autograd.Function; its results as a tuple."""

    def __init__(self, cls: type) -> None:
        self.cls = cls
        self.__name__ = "autograd_function_apply"
        self.__qualname__ = f"{cls.__qualname__}.apply"
        self.__module__ = __name__

    def __call__(self, *args: Any) -> tuple[Any, ...]:
        res = self.cls.apply(*args)  # type: ignore[attr-defined]
        return res if isinstance(res, tuple) else (res,)

    def __repr__(self) -> str:
        return self.__qualname__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FunctionCall) and other.cls is self.cls

    def __hash__(self) -> int:
        return hash(self.cls)
