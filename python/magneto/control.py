"""What a program says to the compiler: marks on functions and tensors, and switches.

Marks of ``torch.compiler`` and ``torch._dynamo`` of the same names are honoured, too.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable
from typing import Any, TypeVar, overload

import torch

from . import _magneto

F = TypeVar("F", bound=Callable[..., Any])


def _callable(who: str, fn: Any) -> None:
    if not callable(fn):
        raise TypeError(f"magneto.{who}: fn must be callable, got {type(fn).__name__}")


@overload
def disable(fn: F, recursive: bool = True, *, reason: str | None = None) -> F: ...
@overload
def disable(fn: None = None, recursive: bool = True, *, reason: str | None = None) -> Callable[[F], F]: ...
def disable(fn: Any = None, recursive: bool = True, *, reason: str | None = None) -> Any:
    """A function that runs as written, also inside of compiled functions.

    Arguments:
        fn: a function, module, class or other callable.  Without it the result is a decorator.
        recursive: what ``fn`` calls runs as written, too.
            False: ``fn`` is only marked, and what it calls is compiled.
        reason: shown by explain().

    Returns:
        A function that does what ``fn`` does.
        For a module, a module of a subclass of its own class with the same state.
        For a class, and with ``recursive=False``, ``fn`` itself.

    Raises:
        TypeError: ``fn`` is not callable, or ``reason`` is no string.

    Example:
        >>> import torch, magneto
        >>> @magneto.disable(reason="it looks at values")
        ... def largest(x):
        ...     return x.max().item()
        >>> magneto.compile(lambda x: x * largest(x))(torch.tensor([1.0, 2.0]))
        tensor([2., 4.])
    """
    if fn is None:
        return functools.partial(disable, recursive=recursive, reason=reason)
    _callable("disable", fn)
    if reason is not None and not isinstance(reason, str):
        raise TypeError(f"magneto.disable: reason must be a string or None, got {type(reason).__name__}")
    if isinstance(fn, torch.nn.Module) and recursive:
        from .module import compile_module

        return compile_module(fn, {"disable": True})
    if isinstance(fn, type):
        from .module import each_call

        if each_call(fn, functools.partial(disable, recursive=recursive, reason=reason)):
            return fn
    if not recursive:
        inner: Any = fn.forward if isinstance(fn, torch.nn.Module) else fn
        inner = getattr(inner, "__func__", inner)
        inner._torchdynamo_disable = True
        inner._torchdynamo_disable_msg = reason
        return fn

    def disabled(*args: Any, **kwargs: Any) -> Any:
        return _magneto.call_uncompiled(fn, args, kwargs)

    functools.update_wrapper(disabled, fn)
    disabled._torchdynamo_disable = True  # type: ignore[attr-defined]  # the marks that torch uses, too
    disabled._torchdynamo_disable_msg = reason  # type: ignore[attr-defined]
    return disabled


def allow_in_graph(fn: Any) -> Any:
    """Marks a function as one operation.

    Its Python is not looked at: only the operations that it issues are recorded.
    A back end of one's own sees a single call of the function.

    Arguments:
        fn: a function, or a list or tuple of them.

    Returns:
        ``fn`` itself, or the list, so that it can be a decorator.

    Raises:
        TypeError: ``fn`` is not callable.

    Example:
        >>> import torch, magneto
        >>> @magneto.allow_in_graph
        ... def double(x):
        ...     return x * 2
        >>> magneto.compile(lambda x: double(x) + 1)(torch.ones(2))
        tensor([3., 3.])
    """
    if isinstance(fn, (list, tuple)):
        return [allow_in_graph(f) for f in fn]
    _callable("allow_in_graph", fn)
    inner = getattr(fn, "__func__", fn)
    if not hasattr(inner, "__code__"):  # C functions record their operations anyway
        return fn
    inner._magneto_in_graph = True
    return fn


def nonstrict_trace(fn: Any) -> Any:
    """The same as allow_in_graph() of one function: inputs and outputs may be any nesting of containers.

    Arguments:
        fn: a function.

    Returns:
        ``fn`` itself.

    Raises:
        TypeError: ``fn`` is not callable.

    Example:
        >>> import torch, magneto
        >>> @magneto.nonstrict_trace
        ... def total(tensors):
        ...     return tensors["a"] + tensors["b"]
        >>> magneto.compile(lambda x: total({"a": x, "b": x}))(torch.ones(2))
        tensor([2., 2.])
    """
    _callable("nonstrict_trace", fn)
    return allow_in_graph(fn)


def assume_constant_result(fn: F) -> F:
    """Marks a function that always gives the same result for the same arguments.

    It is called once, while compiling.

    Arguments:
        fn: a function.

    Returns:
        ``fn`` itself.

    Raises:
        TypeError: ``fn`` is not callable.

    Example:
        >>> import torch, magneto
        >>> @magneto.assume_constant_result
        ... def scale():
        ...     return 3
        >>> magneto.compile(lambda x: x * scale())(torch.ones(2))
        tensor([3., 3.])
    """
    _callable("assume_constant_result", fn)
    inner: Any = getattr(fn, "__func__", fn)
    inner._dynamo_marked_constant = True  # torch's own mark
    return fn


def substitute_in_graph(
    original_fn: Callable[..., Any],
    *,
    can_constant_fold_through: bool = False,
    skip_signature_check: bool = False,
) -> Callable[[F], F]:
    """A decorator: compiled code calls the decorated function wherever the program calls ``original_fn``.

    Meant for C functions that the recorder cannot run.

    Arguments:
        original_fn: what programs call.
        can_constant_fold_through: has no effect.
        skip_signature_check: has no effect: signatures are not compared.

    Returns:
        A decorator that gives its function back.

    Raises:
        TypeError: one of both functions is not callable.

    Example:
        >>> import operator, torch, magneto
        >>> @magneto.substitute_in_graph(operator.length_hint)
        ... def length_hint(obj, default=0):
        ...     return len(obj)
        >>> magneto.compile(lambda x: x + operator.length_hint([1, 2]))(torch.ones(2))
        tensor([3., 3.])
    """
    _callable("substitute_in_graph", original_fn)

    def register(fn: F) -> F:
        _callable("substitute_in_graph", fn)
        _magneto.substitute(original_fn, fn)
        return fn

    return register


def _indices(who: str, t: Any, index: int | Iterable[int] | None) -> list[int]:
    if not isinstance(t, torch.Tensor):
        raise TypeError(f"magneto.{who}: t must be a tensor, got {type(t).__name__}")
    found = range(t.dim()) if index is None else [index] if isinstance(index, int) else list(index)
    for i in found:
        if not -t.dim() <= i < t.dim():
            raise IndexError(f"magneto.{who}: dimension {i} of a tensor with {t.dim()}")
    return [i % t.dim() for i in found]


def _mark(t: torch.Tensor, name: str, found: list[int]) -> None:
    setattr(t, name, {*getattr(t, name, ()), *found})


@dataclasses.dataclass(frozen=True)
class _DimRange:
    """Bounds of one dimension, as torch._dynamo keeps them on the tensor."""

    dim: int
    min: int | None
    max: int | None


def _check_bound(name: str, bound: Any) -> None:
    if bound is not None and (not isinstance(bound, int) or isinstance(bound, bool)):
        raise TypeError(f"magneto.mark_dynamic: {name} must be an int or None, got {type(bound).__name__}")


def mark_dynamic(
    t: torch.Tensor,
    index: int | Iterable[int],
    *,
    hint_override: int | None = None,
    min: int | None = None,
    max: int | None = None,
    specialize_on: list[Any] | None = None,
) -> None:
    """Promises that these sizes of ``t`` differ from call to call: they are symbols from the first call on.

    Compiling then raises torch's ConstraintViolationError where the program leaves such a size one value.
    Examples are a loop over it, ``x.shape[0] == 4``, and ``x + torch.ones(4, 4)``.

    Arguments:
        t: a tensor.
        index: a dimension, or several.  Negative ones count from the end.
        hint_override: has no effect.
        min: the least size; the compiler relies on it.
            A marked size outside of the bounds is a ConstraintViolationError.
            A size outside of the bounds that is not marked is a recompile.
        max: the greatest size.
        specialize_on: has no effect.

    Returns:
        None.

    Raises:
        TypeError: ``t`` is no tensor, or a bound is no int.
        ValueError: ``min`` is greater than ``max``.
        IndexError: ``t`` has no such dimension.

    Example:
        >>> import torch, magneto
        >>> x = torch.ones(5, 2)
        >>> magneto.mark_dynamic(x, 0, min=2, max=64)
        >>> f = magneto.compile(lambda x: x.sum(0))
        >>> f(x), f(torch.ones(7, 2))
        (tensor([5., 5.]), tensor([7., 7.]))
        >>> magneto._magneto.stats()["recompiles"]
        0
    """
    _check_bound("min", min)
    _check_bound("max", max)
    if min is not None and max is not None and min > max:
        raise ValueError(f"magneto.mark_dynamic: min is {min}, which is greater than max, {max}")
    found = _indices("mark_dynamic", t, index)
    ranges = {r for r in getattr(t, "_dynamo_dynamic_range", ()) if r.dim not in found}
    t._dynamo_dynamic_range = ranges | {_DimRange(i, min, max) for i in found}  # type: ignore[attr-defined]
    _mark(t, "_dynamo_dynamic_indices", found)


def maybe_mark_dynamic(t: torch.Tensor, index: int | Iterable[int]) -> None:
    """mark_dynamic() that is no promise: a size that the program leaves one value is a number.

    Arguments:
        t: a tensor.
        index: a dimension, or several.  Negative ones count from the end.

    Returns:
        None.

    Raises:
        TypeError: ``t`` is no tensor.
        IndexError: ``t`` has no such dimension.

    Example:
        >>> import torch, magneto
        >>> x = torch.ones(5, 2)
        >>> magneto.maybe_mark_dynamic(x, 0)
    """
    _mark(t, "_dynamo_weak_dynamic_indices", _indices("maybe_mark_dynamic", t, index))


def mark_static(t: torch.Tensor, index: int | Iterable[int] | None = None) -> None:
    """Says that these sizes of ``t`` are numbers, never symbols: each other one is a recompile.

    Arguments:
        t: a tensor.
        index: a dimension, or several; None: all.  Negative ones count from the end.

    Returns:
        None.

    Raises:
        TypeError: ``t`` is no tensor.
        IndexError: ``t`` has no such dimension.

    Example:
        >>> import torch, magneto
        >>> x = torch.ones(5, 2)
        >>> magneto.mark_static(x, 1)
    """
    _mark(t, "_dynamo_static_indices", _indices("mark_static", t, index))


class set_stance:
    """What compiled functions do from now on, as a function, a context manager or a decorator.

    While the stance is "default", that of torch.compiler counts.

    | stance | compiled functions |
    | --- | --- |
    | "default" | compile what is not compiled yet |
    | "force_eager" | run as written |
    | "eager_on_recompile" | use what is compiled already, and compile nothing |
    | "fail_on_recompile" | raise RuntimeError instead of compiling |
    | "eager_then_compile" | run as written once; what differs in the second call is an input |
    | "aot_eager_then_compile" | the same |

    Arguments:
        stance: one of these names.
        skip_guard_eval_unsafe: has no effect: guards are always looked at.
        force_backend: what compiled functions use instead of their own back end.

    Returns:
        A context manager that restores the stance before at its end.

    Raises:
        ValueError: an unknown stance or back end.
        RuntimeError: ``force_backend`` with another stance than "default".

    Example:
        >>> import torch, magneto
        >>> f = magneto.compile(lambda x: x + magneto.is_compiling())
        >>> with magneto.set_stance("force_eager"):
        ...     f(torch.zeros(1))
        tensor([0.])
    """

    def __init__(
        self, stance: str = "default", *, skip_guard_eval_unsafe: bool = False, force_backend: Any = None
    ) -> None:
        if force_backend is not None and stance != "default":
            raise RuntimeError(
                f'magneto.set_stance: force_backend goes with the stance "default" only, got {stance!r}'
            )
        if stance not in _magneto.stances:
            known = ", ".join(map(repr, _magneto.stances))
            raise ValueError(f"magneto.set_stance: unknown stance {stance!r}; valid stances: {known}")
        self.stance: tuple[Any, ...] = (stance,)
        if force_backend is not None:
            from ._backends import registry

            own = isinstance(force_backend, str) and force_backend in registry.OWN
            self.stance += (None if own else registry.find(force_backend, None, None),)
        self.before = _magneto.set_stance(*self.stance)

    def __enter__(self) -> set_stance:
        return self

    def __exit__(self, *exc: object) -> None:
        _magneto.set_stance(*self.before)

    def __call__(self, fn: F) -> F:
        _magneto.set_stance(*self.before)  # a decorator: only while fn runs
        stance = self.stance

        @functools.wraps(fn)
        def with_stance(*args: Any, **kwargs: Any) -> Any:
            before = _magneto.set_stance(*stance)
            try:
                return fn(*args, **kwargs)
            finally:
                _magneto.set_stance(*before)

        return with_stance  # type: ignore[return-value]


def run(fn: F) -> F:
    """A function that uses what ``fn`` has compiled already and compiles nothing new.

    Arguments:
        fn: a compiled function, or one that calls some.

    Returns:
        A function with the arguments of ``fn``.

    Raises:
        TypeError: ``fn`` is not callable.

    Example:
        >>> import torch, magneto
        >>> f = magneto.compile(lambda x: x + 1)
        >>> magneto.run(f)(torch.ones(2))
        tensor([2., 2.])
        >>> magneto._magneto.stats()["graphs"]
        0
    """
    _callable("run", fn)

    @functools.wraps(fn)
    def running(*args: Any, **kwargs: Any) -> Any:
        with set_stance("eager_on_recompile"):
            return fn(*args, **kwargs)

    return running  # type: ignore[return-value]


def is_compiling() -> bool:
    """True in code that is compiled, as torch.compiler.is_compiling().

    Returns:
        True in what compiled functions record, False elsewhere.

    Raises:
        Nothing.

    Example:
        >>> import magneto
        >>> magneto.is_compiling()
        False
    """
    return torch.compiler.is_compiling()


def cudagraph_mark_step_begin() -> None:
    """Has no effect: results stay valid after the next call here.

    Returns:
        None.

    Raises:
        Nothing.

    Example:
        >>> import magneto
        >>> magneto.cudagraph_mark_step_begin()
    """
