"""Modules that are changed while magneto is installed: at once where they are imported, else when they are.

In: ``turn(True)`` by magneto.install().  Out: accelerate's DynamoBackend, which transformers' Trainer goes
through, has a member MAGNETO: it refuses names that are not on its list.
Dynamo has the doors of dynamo_doors.py.
``turn(False)`` undoes it all.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any

from . import dynamo_doors


def _add_member(cls: Any, name: str) -> None:
    """Adds a member ``name`` with the same value to an Enum of strings."""
    if name in cls.__members__:
        return  # a later version knows us
    member = str.__new__(cls, name)
    member._name_ = member._value_ = name
    member.__objclass__ = cls
    member._sort_order_ = len(cls._member_names_)
    cls._member_names_.append(name)
    cls._member_map_[name] = member
    cls._value2member_map_[name] = member
    type.__setattr__(cls, name, member)
    _undo.append(lambda: _drop_member(cls, name))


def _drop_member(cls: Any, name: str) -> None:
    cls._member_names_.remove(name)
    member = cls._member_map_.pop(name)
    cls._value2member_map_.pop(member.value)
    type.__delattr__(cls, name)


_undo: list[Callable[[], None]] = []  # what turn(False) calls, from the last to the first

# What is done with a module of a framework once it is imported.
_WITH: dict[str, Callable[[types.ModuleType], None]] = {
    "accelerate.utils.dataclasses": lambda module: _add_member(module.DynamoBackend, "MAGNETO"),
    "torch._dynamo": lambda module: _undo.append(dynamo_doors.open_dynamo(module)),
    "torch._dynamo.eval_frame": lambda module: _undo.append(dynamo_doors.open_eval_frame(module)),
}


def _prepare(module: types.ModuleType) -> None:
    try:
        _WITH[module.__name__](module)
    except AttributeError:
        pass  # a version that is built in another way; the framework works as it does without magneto


class _Loader(importlib.abc.Loader):
    """The loader of a module, and then _prepare()."""

    def __init__(self, loader: Any) -> None:
        self.loader = loader

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: types.ModuleType) -> None:
        module.__loader__ = self.loader  # the module looks as it would without us
        if module.__spec__:
            module.__spec__.loader = self.loader
        self.loader.exec_module(module)
        if _finder in sys.meta_path:
            _prepare(module)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the modules of _WITH as others do, and gives them the loader above."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in _WITH:
            return None
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(name, path, target)
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _Loader(spec.loader)
                return spec
        return None


_finder = _Finder()


def turn(on: bool) -> None:
    """Adds our name to the frameworks' lists, or takes it from them."""
    if on == (_finder in sys.meta_path):
        return
    if on:
        sys.meta_path.insert(0, _finder)
        _undo.append(dynamo_doors.open_compiler())
        for name in _WITH:
            if name in sys.modules:
                _prepare(sys.modules[name])
    else:
        sys.meta_path.remove(_finder)
        while _undo:
            _undo.pop()()
