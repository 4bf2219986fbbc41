"""Two values are equal in all that a program can see, and if not: where they differ, and how."""

from __future__ import annotations

import enum
import functools
import types
from collections import defaultdict, deque
from collections.abc import ItemsView, KeysView, ValuesView
from dataclasses import dataclass

import numpy as np
import torch


def assert_same(got, want, what="value", **options):
    """Raises unless got is what eager gave.

    Types are equal, containers are compared part by part, objects by their attributes.  Of tensors are compared:
    dtype, shape, layout, device, strides, values, the conj, neg and inference bits, and what autograd knows.
    Of errors: type, text and attributes.

    what: the name of the value in messages.
    rtol, atol: as of torch.testing.assert_close, whose defaults hold if both are None.  NumPy's doubles: 1e-9.
    float_rtol: Python's floats may differ by that much (default: not at all; NaN equals NaN).
    strides: "all", "used" (dimensions of more than one element of tensors that are not empty), or None.
    autograd: requires_grad, is_leaf, whether there is a grad_fn, and the gradients of leaves (True), or only
        requires_grad ("flag"), or nothing (False).
    aliasing: parts of got that are one object, or tensors of one memory, are so in want, and the other way round.
    zero_signs: 0.0 is not -0.0.
    namesakes: classes and functions that were made from the same source twice count as equal.
    iterators: what iterators have left is compared, not their types.
    error_text: what of an error's text is compared (default: str, all of it).
    """
    Comparison(**options).value(got, want, what)


ATOMS = (int, str, bytes, bool, type(None), complex, range, slice, torch.dtype, torch.device, torch.layout)


@dataclass
class Comparison:
    rtol: float | None = None
    atol: float | None = None
    float_rtol: float = 0.0
    strides: str | None = "all"
    autograd: bool | str = True
    aliasing: bool = True
    zero_signs: bool = False
    namesakes: bool = False
    iterators: bool = False
    error_text: object = str

    def __post_init__(self):
        assert self.strides in ("all", "used", None) and self.autograd in (True, "flag", False)
        self.begun = set()  # pairs of objects that are or were compared
        self.firsts = {}, {}  # object or memory -> where it was seen first; of got and of want
        self.kept = []  # what has an entry in firsts lives until the end

    def value(self, got, want, what):
        if self.iterators and hasattr(got, "__next__") and hasattr(want, "__next__"):
            got, want = list(got), list(want)
        if not self.alike(got, want, what) or not self.first_time(got, want, what):
            return
        if isinstance(want, torch.Tensor):
            self.tensor(got, want, what)
        elif isinstance(want, (np.ndarray, np.generic)):
            self.array(got, want, what)
        elif isinstance(want, float):
            self.number(got, want, what)
        elif isinstance(want, ATOMS) and not hasattr(want, "__dict__"):
            differ(got == want, got, want, what)
        elif isinstance(want, enum.Enum):
            differ(got.name == want.name, got, want, what)
        elif isinstance(want, BaseException):
            self.error(got, want, what)
        elif isinstance(want, (tuple, list, deque)):
            self.items(got, want, what)
            self.attributes(got, want, what)
            if isinstance(want, deque):
                differ(got.maxlen == want.maxlen, got.maxlen, want.maxlen, f"{what}.maxlen")
        elif isinstance(want, (dict, types.MappingProxyType)):
            self.mapping(got, want, what)
            self.attributes(got, want, what)
        elif isinstance(want, (KeysView, ValuesView, ItemsView)):
            self.items(list(got), list(want), what)
        elif isinstance(want, (set, frozenset)):
            differ(got == want, got, want, what)
            self.attributes(got, want, what)
        else:
            self.other(got, want, what)

    def other(self, got, want, what):
        if isinstance(want, type):
            self.named(got, want, what)
        elif isinstance(want, types.MethodType):
            self.value(got.__func__, want.__func__, f"{what}.__func__")
            self.value(got.__self__, want.__self__, f"{what}.__self__")
        elif isinstance(want, (types.BuiltinMethodType, types.MethodWrapperType)):
            differ(got.__name__ == want.__name__, got, want, what)
            self.value(got.__self__, want.__self__, f"{what}.__self__")
        elif isinstance(want, types.FunctionType):
            self.named(got, want, what)
        elif isinstance(want, types.GeneratorType):
            differ(got.__qualname__ == want.__qualname__, got, want, what)
            self.items(list(got), list(want), what)
        elif isinstance(want, functools.partial):
            for name in ("func", "args", "keywords"):
                self.value(getattr(got, name), getattr(want, name), f"{what}.{name}")
            self.attributes(got, want, what)
        elif hasattr(want, "__next__"):
            self.iterator(got, want, what)
        elif isinstance(want, types.ModuleType):
            differ(got is want, got, want, what)
        elif (
            attributes(got) or attributes(want) or type(want).__eq__ is object.__eq__ and has_attributes(want)
        ):
            self.attributes(got, want, what)
        else:
            differ(got == want or (got != got and want != want), got, want, what)

    def alike(self, got, want, what):
        """Equal types; False if there is nothing left to compare."""
        g, w = type(got), type(want)
        if g is not w and not (
            self.namesakes and (g.__module__, g.__qualname__) == (w.__module__, w.__qualname__)
        ):
            if isinstance(got, BaseException) and not isinstance(want, BaseException):
                raise AssertionError(f"{what}: error {got!r}, eager has {shown(want)}") from got
            raise AssertionError(
                f"{what}: type {g.__qualname__} ({shown(got)}), eager has {w.__qualname__} ({shown(want)})"
            )
        return True

    def first_time(self, got, want, what):
        """Compares aliasing; False if the two are being compared already (cycles) or were compared before."""
        if isinstance(want, (*ATOMS, float, type, types.FunctionType, types.BuiltinFunctionType, enum.Enum)):
            return True
        if isinstance(want, (tuple, frozenset)) and not want:
            return True
        if self.aliasing and not isinstance(want, (tuple, frozenset, np.generic)):
            self.shared(id(got), id(want), what, "object")
        self.kept.append((got, want))
        pair = id(got), id(want)
        new = pair not in self.begun
        self.begun.add(pair)
        return new

    def shared(self, got, want, what, kind):
        """got and want: identities of what may be shared with an earlier part."""
        g, w = (of.setdefault((kind, key), what) for of, key in zip(self.firsts, (got, want)))
        if g != w:
            told = ["its own" if at == what else f"that of {at}" for at in (g, w)]
            raise AssertionError(f"{what}: aliasing: the {kind} is {told[0]}, eager's is {told[1]}")

    def items(self, got, want, what):
        if len(got) != len(want):
            raise AssertionError(
                f"{what}: {len(got)} items {shown(got)}, eager has {len(want)}: {shown(want)}"
            )
        names = getattr(want, "_fields", None)
        for i, (g, w) in enumerate(zip(got, want)):
            self.value(g, w, f"{what}.{names[i]}" if names else f"{what}[{i}]")

    def mapping(self, got, want, what):
        for k, m in zip(got, want):
            if not (k is m or isinstance(m, torch.Tensor)):
                self.value(k, m, f"{what}: key")
        if len(got) != len(want):
            raise AssertionError(f"{what}: keys {shown(list(got))}, eager has {shown(list(want))}")
        for k, m in zip(got, want):
            self.value(got[k], want[m], f"{what}[{shown(repr(m))}]")
        if isinstance(want, defaultdict):
            self.value(got.default_factory, want.default_factory, f"{what}.default_factory")

    def attributes(self, got, want, what):
        g, w = attributes(got), attributes(want)
        differ(list(g) == list(w), list(g), list(w), f"{what}: attributes")
        for name in w:
            self.value(g[name], w[name], f"{what}.{name}")

    def iterator(self, got, want, what):
        try:
            parts = got.__reduce__(), want.__reduce__()
        except TypeError:
            return differ(got is want, got, want, what)
        return self.value(*parts, f"{what} (what is left)")

    def named(self, got, want, what):
        """Classes and functions."""
        equal = got is want
        if (
            not equal
            and self.namesakes
            and (got.__module__, got.__qualname__) == (want.__module__, want.__qualname__)
        ):
            if isinstance(want, type):
                equal = (list(vars(got)), got.__doc__) == (list(vars(want)), want.__doc__)
            else:
                equal = got.__code__.co_code == want.__code__.co_code
        differ(equal, got, want, what)

    def number(self, got, want, what):
        near = got == want or (got != got and want != want) or abs(got - want) <= self.float_rtol * abs(want)
        differ(near, got, want, what)
        if self.zero_signs and want == 0:
            differ(str(got) == str(want), got, want, f"{what}: sign")

    def error(self, got, want, what):
        text = self.error_text
        differ(text(got) == text(want), text(got), text(want), f"{what}: text of the error")
        if text is str:
            self.value(got.args, want.args, f"{what}.args")
            self.attributes(got, want, what)

    def array(self, got, want, what):
        differ(got.dtype == want.dtype, got.dtype, want.dtype, f"{what}: dtype")
        differ(got.shape == want.shape, got.shape, want.shape, f"{what}: shape")
        if isinstance(want, np.ndarray) and self.strides and want.size:
            g, w = (used(a.shape, a.strides, self.strides) for a in (got, want))
            differ(g == w, g, w, f"{what}: strides")
        try:
            bound = {} if self.rtol is None else {"rtol": self.rtol, "atol": self.atol}
            if self.rtol is None and want.dtype in (np.float64, np.complex128):
                bound = {"rtol": 1e-9, "atol": 1e-9}  # torch's default is 1e-7
            torch.testing.assert_close(
                torch.from_numpy(np.array(got)), torch.from_numpy(np.array(want)), **bound, equal_nan=True
            )
        except TypeError:  # a dtype that torch lacks
            differ(np.array_equal(got, want), got, want, what)
        except AssertionError as e:
            raise AssertionError(
                f"{what}: values differ: {e}\ngot {shown(got)}\neager has {shown(want)}"
            ) from None

    def tensor(self, got, want, what):
        with torch._C.DisableTorchFunctionSubclass():
            self.tensor_as_such(got, want, what)
        if type(want) not in (torch.Tensor, torch.nn.Parameter) and not want.is_nested:
            self.attributes(got, want, what)

    def tensor_as_such(self, got, want, what):
        for fact in ("dtype", "layout", "device", "is_inference", "is_conj", "is_neg", "is_nested"):
            g, w = (getattr(t, fact) for t in (got, want))
            g, w = (f() if callable(f) else f for f in (g, w))
            differ(g == w, g, w, f"{what}: {fact}")
        g, w = ([n if isinstance(n, int) else "ragged" for n in t.shape] for t in (got, want))
        differ(g == w, tuple(g), tuple(w), f"{what}: shape")
        self.graph(got, want, what)
        if hasattr(want, "__tensor_flatten__"):
            return self.wrapper(got, want, what)
        if self.strides and want.layout is torch.strided and (want.numel() or self.strides == "all"):
            g, w = (used(t.shape, t.stride(), self.strides) for t in (got, want))
            differ(g == w, g, w, f"{what}: strides")
        if self.aliasing and want.layout is torch.strided and want.numel():
            self.shared(got.untyped_storage().data_ptr(), want.untyped_storage().data_ptr(), what, "memory")
        self.values(got, want, what)

    def wrapper(self, got, want, what):
        """Of tensors that hold others: those, and what they are made with."""
        (g_names, g_made), (w_names, w_made) = got.__tensor_flatten__(), want.__tensor_flatten__()
        differ(g_names == w_names, g_names, w_names, f"{what}: tensors inside")
        if want.is_nested:  # what they are made with has a number of its own for each tensor of offsets
            differ(
                got._ragged_idx == want._ragged_idx,
                got._ragged_idx,
                want._ragged_idx,
                f"{what}: ragged dimension",
            )
        else:
            self.value(g_made, w_made, f"{what}: context")
            differ(got.stride() == want.stride(), got.stride(), want.stride(), f"{what}: strides")
        for name in w_names:
            self.value(getattr(got, name), getattr(want, name), f"{what}.{name}")

    def graph(self, got, want, what):
        if not self.autograd:
            return
        differ(
            got.requires_grad == want.requires_grad,
            got.requires_grad,
            want.requires_grad,
            f"{what}: requires_grad",
        )
        if self.autograd == "flag":
            return
        differ(got.is_leaf == want.is_leaf, got.is_leaf, want.is_leaf, f"{what}: is_leaf")
        differ((got.grad_fn is None) == (want.grad_fn is None), got.grad_fn, want.grad_fn, f"{what}: grad_fn")
        if want.is_leaf and want.requires_grad:
            self.value(got.grad, want.grad, f"{what}.grad")

    def values(self, got, want, what):
        with torch.no_grad():
            g, w = got.detach(), want.detach()
            try:
                torch.testing.assert_close(
                    g, w, rtol=self.rtol, atol=self.atol, equal_nan=True, check_stride=False
                )
            except AssertionError as e:
                raise AssertionError(f"{what}: values differ{worst(g, w)}: {e}") from None
            if self.zero_signs and w.is_floating_point() and w.numel():
                wrong = (torch.signbit(g) != torch.signbit(w)) & ~w.isnan()  # NaN has no sign
                assert not wrong.any(), (
                    f"{what}: sign of the zero at {wrong.nonzero()[0].tolist()} is not eager's"
                )


def differ(equal, got, want, what):
    if not equal:
        raise AssertionError(f"{what}: {shown(got)}, eager has {shown(want)}")


def shown(value):
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= 300 else f"{text[:300]}..."


def used(shape, strides, which):
    return tuple(s for n, s in zip(shape, strides) if n != 1 or which == "all")


def has_attributes(o):
    return hasattr(o, "__dict__") or any("__slots__" in vars(k) for k in type(o).__mro__)


def attributes(o):
    """What hangs on an instance: its dict and its slots."""
    found = dict(getattr(o, "__dict__", {}))
    for k in type(o).__mro__:
        slots = vars(k).get("__slots__", ())
        for n in (slots,) if isinstance(slots, str) else slots:
            private = n.startswith("__") and not n.endswith("__")
            n = f"_{k.__name__.lstrip('_')}{n}" if private else n
            if n not in ("__dict__", "__weakref__") and hasattr(o, n):
                found[n] = getattr(o, n)
    return found


def worst(got, want):
    """The element that is farthest off, with its index."""
    if got.layout is not torch.strided or not want.numel() or got.is_quantized:
        return ""
    wide = torch.complex128 if want.is_complex() else torch.float64
    off = (got.to(wide) - want.to(wide)).abs()
    off[got.eq(want) | (got.isnan() & want.isnan())] = 0  # the same infinity
    at = torch.where(off.isnan(), torch.inf, off).argmax()
    index = tuple(int(i) for i in torch.unravel_index(at, want.shape))
    return f" at {list(index)}: {got[index].item()!r}, eager has {want[index].item()!r}"


def tensors(value):
    """The tensors in containers and plain objects, in order; modules are not looked into."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        return [t for v in value.values() for t in tensors(v)]
    if isinstance(value, (list, tuple)):
        return [t for v in value for t in tensors(v)]
    if hasattr(value, "__dict__") and not isinstance(value, torch.nn.Module):
        return [t for v in vars(value).values() for t in tensors(v)]
    return []
