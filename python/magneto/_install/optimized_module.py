"""What torch.compile(module) returns after magneto.install(): a module that frameworks know.

Frameworks ask ``isinstance(m, torch._dynamo.OptimizedModule)`` and use ``_orig_mod``, ``dynamo_ctx`` and the
keys "_orig_mod.*" of its state.  magneto.compile() returns another kind of module (magneto/module.py): these
names are no part of it.  Importing torch._dynamo takes seconds, so this class is no subclass of Dynamo's; it
says so when it is asked, which nobody can do before that class is there.
"""

from __future__ import annotations

import sys
from collections.abc import Sized
from typing import Any, SupportsIndex

import torch

from .. import _magneto, compiler

# Attributes of the wrapper itself; all others are read, written and deleted in the original.
OWN = frozenset(
    (
        "_orig_mod",
        "dynamo_ctx",
        "_torchdynamo_wrapper_id",
        "get_compiler_config",
        "forward",
        "_forward",
        "__dict__",
        "named_children_walk",
        "_super_module_initialized",
    )
)

_class_of: Any = object.__dict__["__class__"]


class Context:
    """``dynamo_ctx`` of such a module: compiles what it is called with, with the same options."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config

    def __call__(self, f: Any) -> Any:
        f = compiler.innermost(f)
        if not callable(f):
            raise TypeError(f"torch.compile: model must be callable, got {type(f).__name__}")
        if isinstance(f, torch.nn.Module):
            return OptimizedModule(f, self)
        compiled = compiler.compile_plain(f, self.config)
        if isinstance(compiled, _magneto.Callable):
            compiled.__dict__.update(
                _torchdynamo_orig_callable=f,
                _torchdynamo_wrapper_id=id(compiled),
                get_compiler_config=self.get_compiler_config,
            )
        return compiled

    def get_compiler_config(self) -> dict[str, Any]:
        return dict(self.config)


class OptimizedModule(torch.nn.Module):
    """A module around ``mod`` whose calls are compiled."""

    def __init__(self, mod: torch.nn.Module, dynamo_ctx: Context) -> None:
        self._super_module_initialized = False
        torch.nn.Module.__init__(self)
        self._super_module_initialized = True
        self._orig_mod = mod  # registers it
        self.dynamo_ctx = dynamo_ctx
        self._initialize()

    def _initialize(self) -> None:
        mod = self._orig_mod
        self.forward = _magneto.Callable(mod, **self.dynamo_ctx.config)
        self._torchdynamo_wrapper_id = id(self)
        self.get_compiler_config = self.dynamo_ctx.get_compiler_config

    @property
    def _torchdynamo_orig_callable(self) -> torch.nn.Module:
        return self._orig_mod

    @property
    def __class__(self) -> Any:
        dynamo: Any = sys.modules.get("torch._dynamo.eval_frame")
        return getattr(dynamo, "OptimizedModule", type(self))

    @__class__.setter
    def __class__(self, cls: type) -> None:
        _class_of.__set__(self, cls)

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        return type(self), (self._orig_mod, self.dynamo_ctx)  # compiled code is not state

    def __len__(self) -> int:
        if isinstance(self._orig_mod, Sized):
            return len(self._orig_mod)
        raise TypeError(f"{type(self._orig_mod).__name__} does not support len()")

    @property
    def training(self) -> bool:
        return self._orig_mod.training

    @training.setter
    def training(self, value: bool) -> None:
        if self._super_module_initialized:  # Module.__init__ sets its own, which there is none of
            self._orig_mod.training = value

    def __getattr__(self, name: str) -> Any:
        if name == "_orig_mod":
            return self.__dict__["_modules"][name]
        return getattr(self._orig_mod, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in OWN or hasattr(type(self), name):
            torch.nn.Module.__setattr__(self, name, value)
        else:
            setattr(self._orig_mod, name, value)

    def __delattr__(self, name: str) -> None:
        if name in OWN or hasattr(type(self), name):
            torch.nn.Module.__delattr__(self, name)
        else:
            delattr(self._orig_mod, name)

    def __dir__(self) -> list[str]:
        return [*dir(self._orig_mod), *(name for name in OWN if name in self.__dict__)]
