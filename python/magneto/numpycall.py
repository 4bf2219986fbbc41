"""What a graph calls for one operation on NumPy arrays: torch._numpy's, on tensors that share the arrays' memory."""

import torch
import torch._numpy as tnp


def _array(obj, dtype=None, **options):
    """`array` of a list with arrays in it, which torch._numpy does not take."""

    def join(o):
        return tnp.stack([join(x) for x in o]) if isinstance(o, (list, tuple)) and _has_array(o) else tnp.asarray(o)

    return tnp.array(join(obj), dtype=dtype, **options)


def _divmod(a, b):
    return a // b, a % b


def _diag(v, k=0):
    return tnp.diagonal(v, k) if v.ndim == 2 else tnp.diag(v, k)  # of a matrix: a view


def _whole(name):
    """`floor` or `ceil`, which torch does not have for truth values."""
    plain = getattr(tnp, name)

    def call(x, *more, **options):
        return tnp.logical_or(x, x, *more, **options) if tnp.asarray(x).dtype == tnp.bool_ else plain(x, *more, **options)

    return call


_INSTEAD = {"diag": _diag, "divmod": _divmod, "floor": _whole("floor"), "ceil": _whole("ceil")}


def _has_array(o):
    return isinstance(o, tnp.ndarray) or isinstance(o, (list, tuple)) and any(_has_array(x) for x in o)


def _map(o, source, convert):
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
    """Calls `what`, a function of torch._numpy by its name ("linalg.norm"), a method (".sum"), or any callable."""

    def __init__(self, what):
        self.what = what
        name = what if isinstance(what, str) else what.__name__
        self.__name__ = "wrapped_" + name.strip(".").replace(".", "_")

    def __repr__(self):
        return self.__name__

    def __call__(self, *args, **kwargs):
        args = _map(args, torch.Tensor, tnp.ndarray)
        kwargs = {k: _map(v, torch.Tensor, tnp.ndarray) for k, v in kwargs.items()}
        what = _divmod if self.what is divmod else self.what
        if isinstance(what, str):
            if what.startswith("."):
                what, args = getattr(args[0], what[1:]), args[1:]
            elif what in ("array", "asarray") and _has_array(args[0]) and not isinstance(args[0], tnp.ndarray):
                what = _array
            elif what in _INSTEAD:
                what = _INSTEAD[what]
            else:
                for part in what.split("."):
                    what = getattr(tnp if what is self.what else what, part)
        return _map(what(*args, **kwargs), tnp.ndarray, lambda a: a.tensor)
