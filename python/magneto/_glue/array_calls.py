"""What a graph calls for one operation on NumPy arrays.

It is torch._numpy's operation, on tensors that share the arrays' memory.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
import torch._numpy as tnp


def _array(obj: Any, dtype: Any = None, **options: Any) -> Any:
    """`array` of a list with arrays in it, which torch._numpy does not take."""

    def join(o: Any) -> Any:
        return (
            tnp.stack([join(x) for x in o])
            if isinstance(o, (list, tuple)) and _has_array(o)
            else tnp.asarray(o)
        )

    return tnp.array(join(obj), dtype=dtype, **options)


def _is_int(o: Any) -> bool:
    return (
        isinstance(o, int)
        or isinstance(o, tnp.ndarray)
        and not o.tensor.is_floating_point()
        and not o.tensor.is_complex()
    )


def _by_zero(plain: Callable[..., Any], inplace: bool = False) -> Callable[..., Any]:
    """Integer division, which gives 0 for a divisor of 0: torch raises."""

    def call(a: Any, b: Any, *more: Any, **options: Any) -> Any:
        if not _is_int(a) or not _is_int(b) or isinstance(b, int) and b:
            return plain(a, b, *more, **options)
        if more or options.get("out") is not None:
            raise NotImplementedError("out= of an integer division")
        zero = tnp.asarray(b) == 0
        r = plain(a * 1 if inplace else a, tnp.where(zero, tnp.ones_like(b), b), *more, **options)
        r = (
            tuple(tnp.where(zero, tnp.zeros_like(x), x) for x in r)
            if isinstance(r, tuple)
            else tnp.where(zero, tnp.zeros_like(r), r)
        )
        if not inplace:
            return r
        a[...] = r
        return a

    return call


@_by_zero
def _divmod(a: Any, b: Any) -> Any:
    return a // b, a % b


def _diag(v: Any, k: int = 0) -> Any:
    return tnp.diagonal(v, k) if v.ndim == 2 else tnp.diag(v, k)  # of a matrix: a view


def _whole(name: str) -> Callable[..., Any]:
    """`floor` or `ceil`, which torch does not have for truth values."""
    plain = getattr(tnp, name)

    def call(x: Any, *more: Any, **options: Any) -> Any:
        return (
            tnp.logical_or(x, x, *more, **options)
            if tnp.asarray(x).dtype == tnp.bool_
            else plain(x, *more, **options)
        )

    return call


_INSTEAD: dict[Any, Callable[..., Any]] = {
    "diag": _diag,
    "divmod": _divmod,
    divmod: _divmod,
    "floor": _whole("floor"),
    "ceil": _whole("ceil"),
}
_INSTEAD |= {name: _by_zero(getattr(tnp, name)) for name in ("floor_divide", "remainder", "mod", "fmod")}
_INSTEAD |= {f: _by_zero(f) for f in (operator.floordiv, operator.mod)}
_INSTEAD |= {f: _by_zero(f, inplace=True) for f in (operator.ifloordiv, operator.imod)}


def _has_array(o: Any) -> bool:
    return isinstance(o, tnp.ndarray) or isinstance(o, (list, tuple)) and any(_has_array(x) for x in o)


def _map(o: Any, source: Any, convert: Callable[[Any], Any]) -> Any:
    """`o` with every `source` in it converted: lists, tuples and slices are gone through."""
    if isinstance(o, source):
        return convert(o)
    if isinstance(o, list):
        return [_map(x, source, convert) for x in o]
    if isinstance(o, tuple):
        return tuple(_map(x, source, convert) for x in o)
    if isinstance(o, slice):
        return slice(*(_map(x, source, convert) for x in (o.start, o.stop, o.step)))
    return o


class ArrayCall:
    """Calls `what`: a function of torch._numpy by its name ("linalg.norm"), a method (".sum"), a callable."""

    def __init__(self, what: Any) -> None:
        self.what = what
        name = what if isinstance(what, str) else what.__name__
        self.__name__ = "wrapped_" + name.strip(".").replace(".", "_")

    def __repr__(self) -> str:
        return self.__name__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        args = _map(args, torch.Tensor, tnp.ndarray)
        kwargs = {k: _map(v, torch.Tensor, tnp.ndarray) for k, v in kwargs.items()}
        what = self.what
        if what in _INSTEAD:
            what = _INSTEAD[what]
        elif isinstance(what, str):
            if what.startswith("."):
                what, args = getattr(args[0], what[1:]), args[1:]
            elif (
                what in ("array", "asarray") and _has_array(args[0]) and not isinstance(args[0], tnp.ndarray)
            ):
                what = _array
            else:
                for part in what.split("."):
                    what = getattr(tnp if what is self.what else what, part)
        return _map(what(*args, **kwargs), tnp.ndarray, lambda a: a.tensor)
