"""What a program says to the compiler: marks on functions and tensors, and switches.

Marks of ``torch.compiler`` and ``torch._dynamo`` of the same names are honoured, too.
"""

from __future__ import annotations

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
    """A function that runs as written, with everything it calls, also inside of compiled functions.

    With ``recursive=False`` only the function itself does, and what it calls is compiled; it is marked and returned as it is.
    A module gives a module of a subclass of its own class that shares all of its state.  ``reason`` is shown by explain().
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
        inner = fn.forward if isinstance(fn, torch.nn.Module) else fn
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
    """Marks a function as one operation: its Python is not looked at, only the operations that it issues are recorded.

    A back end of one's own sees a single call of the function.  Also a decorator; takes a list of functions, too.
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
    """The same as allow_in_graph(): inputs and outputs may be any nesting of containers."""
    _callable("nonstrict_trace", fn)
    return allow_in_graph(fn)


def assume_constant_result(fn: F) -> F:
    """Marks a function that always gives the same result for the same arguments: called once, while compiling."""
    _callable("assume_constant_result", fn)
    getattr(fn, "__func__", fn)._dynamo_marked_constant = True  # type: ignore[attr-defined]  # torch's own mark
    return fn


def substitute_in_graph(
    original_fn: Callable[..., Any], *, can_constant_fold_through: bool = False, skip_signature_check: bool = False
) -> Callable[[F], F]:
    """A decorator: compiled code calls the decorated Python function wherever the program calls ``original_fn``.

    Meant for C functions that the recorder cannot run.  Raises TypeError when one of both is not callable.  The other parameters are
    those of torch.compiler's function and change nothing: signatures are not compared.
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


def mark_dynamic(t: torch.Tensor, index: int | Iterable[int], **bounds: int | None) -> None:
    """Says that these sizes of ``t`` differ from call to call.  Accepted: sizes that change are noticed without it."""
    unknown = set(bounds) - {"min", "max", "hint_override", "specialize_on"}
    if unknown:
        raise TypeError(f"magneto.mark_dynamic: unknown argument {sorted(unknown)[0]!r}")
    _mark(t, "_dynamo_dynamic_indices", _indices("mark_dynamic", t, index))


def maybe_mark_dynamic(t: torch.Tensor, index: int | Iterable[int]) -> None:
    """mark_dynamic() that is no promise."""
    _mark(t, "_dynamo_weak_dynamic_indices", _indices("maybe_mark_dynamic", t, index))


def mark_static(t: torch.Tensor, index: int | Iterable[int] | None = None) -> None:
    """Says that these sizes (default: all) are the same in every call."""
    _mark(t, "_dynamo_static_indices", _indices("mark_static", t, index))


class set_stance:  # noqa: N801
    """What compiled functions do from now on, as a function, a context manager or a decorator.

    "default"; "force_eager": everything runs as written; "eager_on_recompile": what is compiled already is used, nothing
    is compiled; "fail_on_recompile": compiling raises RuntimeError; "eager_then_compile", "aot_eager_then_compile": the first call runs as
    written, and what differs in the second one is an input of the graph.  While it is "default", that of torch.compiler counts, and
    ``force_backend`` is what compiled functions use instead of their own back end.
    Raises ValueError for other names.  Guards are looked at whatever skip_guard_eval_unsafe says.
    """

    def __init__(self, stance: str = "default", *, skip_guard_eval_unsafe: bool = False, force_backend: Any = None) -> None:
        if force_backend is not None and stance != "default":
            raise RuntimeError(f'magneto.set_stance: force_backend goes with the stance "default" only, got {stance!r}')
        if stance not in _magneto.stances:
            known = ", ".join(map(repr, _magneto.stances))
            raise ValueError(f"magneto.set_stance: unknown stance {stance!r}; valid stances: {known}")
        self.stance: tuple[Any, ...] = (stance,)
        if force_backend is not None:
            from . import backends

            own = isinstance(force_backend, str) and force_backend in backends.OWN
            self.stance += (None if own else backends.find(force_backend, None, None),)
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
    """A function that uses what ``fn`` has compiled already and compiles nothing new."""
    _callable("run", fn)

    @functools.wraps(fn)
    def running(*args: Any, **kwargs: Any) -> Any:
        with set_stance("eager_on_recompile"):
            return fn(*args, **kwargs)

    return running  # type: ignore[return-value]


def is_compiling() -> bool:
    """True while a function is being recorded (as torch.compiler.is_compiling())."""
    return torch.compiler.is_compiling()


def cudagraph_mark_step_begin() -> None:
    """Accepted: results of CUDA graphs stay valid after the next call here."""
