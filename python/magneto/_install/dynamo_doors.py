"""torch.compiler.reset, torch._dynamo.reset and torch._dynamo.optimize while magneto is installed.

In: ``open_...`` when magneto is installed; for torch._dynamo once that is imported, which takes seconds.
Out: reset() forgets what magneto has compiled, too; optimize("magneto") gives magneto's front end.
As in torch_door.py the code of these functions is exchanged, so names that were imported before follow.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any

import torch

from .. import compiler
from . import torch_door
from .optimized_module import Context

_theirs: dict[str, types.FunctionType] = {}  # PyTorch's own functions, while magneto is installed

# Keywords of torch._dynamo.optimize that are keywords of compile(), where they are called otherwise.
_KEYWORDS = {"nopython": "fullgraph"}
_SAME = ("dynamic", "recompile_limit", "isolate_recompiles")


def _compiler_reset() -> None:  # these three run with the globals of torch
    from magneto._install.dynamo_doors import reset_compiler

    reset_compiler()


def _dynamo_reset() -> None:
    from magneto._install.dynamo_doors import reset_dynamo

    reset_dynamo()


def _dynamo_optimize(*args: Any, **kwargs: Any) -> Any:
    from magneto._install.dynamo_doors import optimize

    return optimize(args, kwargs)


def reset_compiler() -> None:
    """torch.compiler.reset().  Dynamo is reset where it is loaded; it calls reset_dynamo()."""
    compiler.reset()
    if "torch._dynamo" in sys.modules and "torch.compiler.reset" in _theirs:
        _theirs["torch.compiler.reset"]()


def reset_dynamo() -> None:
    """torch._dynamo.reset()."""
    compiler.reset()
    if "torch._dynamo.reset" in _theirs:
        _theirs["torch._dynamo.reset"]()


def optimize(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """torch._dynamo.optimize(*args, **kwargs).  What only Dynamo can do is Dynamo's: hooks for its guards."""
    given = dict(kwargs)
    named = bool(args) or "backend" in given
    backend = args[0] if args else given.pop("backend", None)
    ours = torch_door.is_ours(backend) if named else torch_door.takes_default
    options = {_KEYWORDS.get(name, name): given.pop(name) for name in (*_KEYWORDS, *_SAME) if name in given}
    if not ours or len(args) > 1 or any(given.values()):
        return _theirs["torch._dynamo.optimize"](*args, **kwargs)
    return Context(compiler.checked(**options))


def _exchange(name: str, fn: Any, door: Any) -> Callable[[], None]:
    """``fn`` has the code of ``door`` until the result is called."""
    if not isinstance(fn, types.FunctionType) or fn.__closure__:
        return lambda: None  # a later version of PyTorch; it works as it does without magneto
    own = types.FunctionType(fn.__code__, fn.__globals__, fn.__name__, fn.__defaults__)
    own.__kwdefaults__ = fn.__kwdefaults__
    _theirs[name] = own
    fn.__code__ = door.__code__

    def restore() -> None:
        fn.__code__ = own.__code__
        del _theirs[name]

    return restore


def open_compiler() -> Callable[[], None]:
    """For torch.compiler.  Returns what closes the door."""
    return _exchange("torch.compiler.reset", torch.compiler.reset, _compiler_reset)


def open_dynamo(module: types.ModuleType) -> Callable[[], None]:
    """For torch._dynamo, which has just been imported or was already."""
    return _exchange("torch._dynamo.reset", module.reset, _dynamo_reset)


def open_eval_frame(module: types.ModuleType) -> Callable[[], None]:
    """For torch._dynamo.eval_frame."""
    return _exchange("torch._dynamo.optimize", module.optimize, _dynamo_optimize)
