"""Compiled modules: an instance of a subclass of the module's own class that shares the original's state.

They share the instance dictionary: parameters, buffers, hooks, attributes, train(), to() and state_dict() are
those of the original, in both directions.  Only ``__call__`` differs.
"""

from __future__ import annotations

import copy
import types
from collections.abc import Callable
from typing import Any

import torch

from . import _magneto


def original(module: torch.nn.Module) -> torch.nn.Module:
    """The module itself, or the one that a compiled module stands for."""
    return getattr(type(module), "_magneto_original", module)


def written(module: torch.nn.Module) -> torch.nn.Module:
    """The module, with its forward(): lazy graph modules of torch.fx write it at their first call."""
    write = getattr(module, "real_recompile", None) if isinstance(module, torch.fx.GraphModule) else None
    if write:
        write()
    return module


def each_call(cls: type, mark: Callable[[Any], Any]) -> type | None:
    """The class itself, with the function that calls of its instances end in replaced by ``mark`` of it.

    None when that is not a Python function.
    """
    name = "_call_impl" if issubclass(cls, torch.nn.Module) else "__call__"
    call = getattr(cls, name)
    if isinstance(call, _magneto.Callable):
        call = call.__wrapped__
    if not isinstance(call, types.FunctionType):
        return None
    setattr(cls, name, mark(call))
    return cls


def _deepcopy(self: torch.nn.Module, memo: dict[int, Any]) -> torch.nn.Module:
    cls: Any = type(self)
    return compile_module(copy.deepcopy(cls._magneto_original, memo), cls._magneto_config)


def _copy(self: torch.nn.Module) -> torch.nn.Module:
    cls: Any = type(self)
    return compile_module(copy.copy(cls._magneto_original), cls._magneto_config)


def _itself(module: torch.nn.Module) -> torch.nn.Module:
    return module


def _reduce_ex(self: torch.nn.Module, protocol: int) -> Any:
    return _itself, (original(self),)  # compiled code is not state: a pickle holds the original


class _Forward:
    """``forward`` of a compiled module, compiled too: what the module's hooks do is not in it.

    The class has the function as it is written, which tools that trace modules read.
    """

    def __init__(self, module: torch.nn.Module, config: dict[str, Any]) -> None:
        self.module, self.config = module, config
        self.compiled: Any = None

    def __get__(self, twin: torch.nn.Module | None, cls: type) -> Any:
        if twin is None:
            return type(self.module).forward
        function = self.module.forward
        if self.compiled is None or self.compiled.__wrapped__ != function:  # it may be assigned
            self.compiled = _magneto.Callable(function, **self.config)
        return self.compiled


def compile_module(module: torch.nn.Module, config: dict[str, Any]) -> torch.nn.Module:
    """A compiled twin of ``module``; config are the arguments of ``_magneto.Callable``."""
    module = original(module)
    compiled = _magneto.Callable(module, **config)
    base = type(module)
    namespace = {
        "__module__": base.__module__,
        "__qualname__": base.__qualname__,
        "__doc__": base.__doc__,
        "__call__": staticmethod(compiled),
        "forward": _Forward(module, config),
        "__deepcopy__": _deepcopy,
        "__copy__": _copy,
        "__reduce_ex__": _reduce_ex,
        "_magneto_original": module,
        "_magneto_config": config,
        "_magneto_callable": compiled,
    }
    metaclass: Any = type(base)
    cls = metaclass(base.__name__, (base,), namespace)
    twin = object.__new__(cls)
    object.__setattr__(twin, "__dict__", module.__dict__)
    return twin
