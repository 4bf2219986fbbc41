"""torch.compile's door to magneto: the code of the function torch.compile is exchanged, not its name.

In: ``turn(True)`` by magneto.install().  Out: every torch.compile, also one that was imported by name or that
a framework has wrapped (Lightning does), asks here who compiles.  ``turn(False)`` puts the old code back.
Because the function object stays the same, wrappers and installations may come and go in any order.
"""

from __future__ import annotations

import inspect
import sys
import types
from typing import Any

import torch

from .. import compiler
from .optimized_module import Context

takes_default = False  # calls without a back end are ours, too
_torch_compile: types.FunctionType | None = None  # PyTorch's own, while the door is open


def _door(*args: Any, **kwargs: Any) -> Any:  # runs with the globals of torch
    from magneto._install.torch_door import enter

    return enter(args, kwargs)


def _function() -> types.FunctionType:
    """The function that torch.compile is, below what others have wrapped around it."""
    fn: Any = torch.compile
    while hasattr(fn, "__wrapped__"):
        fn = fn.__wrapped__
    if not isinstance(fn, types.FunctionType) or fn.__globals__ is not torch.__dict__:
        raise RuntimeError(
            f"magneto.install: torch.compile has been replaced by {torch.compile!r}, which does not say "
            "by __wrapped__ what it replaces; install magneto before that"
        )
    return fn


def turn(on: bool) -> None:
    """Opens or closes the door."""
    global _torch_compile
    fn = _function()
    if on and _torch_compile is None:
        _torch_compile = types.FunctionType(
            fn.__code__, fn.__globals__, fn.__name__, fn.__defaults__, fn.__closure__
        )
        _torch_compile.__kwdefaults__ = fn.__kwdefaults__
        fn.__signature__ = inspect.signature(fn)  # type: ignore[attr-defined]  # what it still takes
        fn.__code__ = _door.__code__
    elif not on and _torch_compile is not None:
        fn.__code__ = _torch_compile.__code__
        del fn.__signature__  # type: ignore[attr-defined]
        _torch_compile = None


def _default_backend() -> Any:
    """What calls without a back end get, as torch.compiler.set_default_backend has it."""
    registry: Any = sys.modules.get("torch._dynamo.backends.registry")
    get = getattr(registry, "get_default_backend", None)
    return get() if get else "inductor"


def is_ours(backend: Any) -> bool:
    """Does a call with this back end (None: without one) come to magneto?"""
    if backend is None:
        backend = _default_backend()
        if takes_default and backend == "inductor":
            return True
    return isinstance(backend, str) and backend == "magneto"


def enter(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """torch.compile(*args, **kwargs)."""
    theirs = _torch_compile or _function()  # None: closed by another thread a moment ago
    given = inspect.signature(theirs).bind(*args, **kwargs).arguments  # TypeErrors are those of torch.compile
    if not is_ours(given.pop("backend", None)) or torch.compiler.is_exporting():
        return theirs(*args, **kwargs)
    model = given.pop("model", None)
    if given.get("mode") is not None and given.get("options") is not None:
        raise RuntimeError(
            "Either mode or options can be specified, but both can't be specified at the same time."
        )
    off = compiler.is_off(given.pop("disable", False))
    context = Context(compiler.checked(**given))
    if model is None:
        return lambda fn: _compile(fn, context, off)
    return _compile(model, context, off)


def _compile(f: Any, context: Context, off: bool) -> Any:
    return f if off else context(f)
