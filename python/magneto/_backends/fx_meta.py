"""What an FX graph says beside its calls, as torch.compile's says it.

- Parameters are named after their modules.
- ``stack_trace``: the source lines of a call.
- ``tensor_meta``: what a tensor is; ``example_value``: a fake tensor, made when asked for.
"""

from __future__ import annotations

import functools
import inspect
import linecache
import os
import re
import sys
import types
from collections.abc import Iterator
from typing import Any

import torch
from torch.fx.passes.shape_prop import TensorMetadata

_TORCH = os.path.dirname(torch.__file__) + os.sep
_MODULES = os.path.join(_TORCH, "nn", "modules") + os.sep
_LAZY = "example_value"

Frame = tuple[str, int, str]
Facts = tuple[tuple[int, ...], tuple[int, ...], torch.dtype, torch.device, bool]


def frames(root: types.CodeType) -> tuple[Frame, ...]:
    """File, line and function of the user's frames that are being recorded, outermost first.

    root: the outermost one's code.
    """
    out: list[Frame] = []
    f = sys._getframe(1)
    while f is not None:
        code = f.f_code
        if not code.co_filename.startswith(_TORCH) or (
            code.co_filename.startswith(_MODULES) and not code.co_filename.endswith("module.py")
        ):
            out.append((code.co_filename, f.f_lineno, code.co_name))
        if code is root:
            break
        f = f.f_back  # type: ignore[assignment]
    return tuple(reversed(out))


def _trace(where: tuple[Frame, ...]) -> str:
    lines = []
    for file, line, name in where:
        lines.append(f'  File "{file}", line {line}, in {name}\n')
        text = linecache.getline(file, line).strip()
        if text:
            lines.append(f"    {text}\n")
    return "".join(lines)


@functools.lru_cache(maxsize=1)
def _fake_mode() -> Any:
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    return FakeTensorMode(allow_non_fake_inputs=True, shape_env=ShapeEnv())


class Meta(dict):  # type: ignore[type-arg]
    """A node's dict whose ``example_value`` is made when somebody asks for it.

    Fake tensors take seconds to import.
    """

    facts: Facts

    def _make(self) -> None:
        size, stride, dtype, device, requires_grad = self.facts
        with _fake_mode():
            t = torch.empty_strided(size, stride, dtype=dtype, device=device)
            self[_LAZY] = t.requires_grad_() if requires_grad else t

    def __missing__(self, key: str) -> Any:
        if key != _LAZY:
            raise KeyError(key)
        self._make()
        return self[key]

    def __contains__(self, key: object) -> bool:
        return key == _LAZY or super().__contains__(key)

    def get(self, key: str, default: Any = None) -> Any:
        return self[key] if key in self else default

    def copy(self) -> Meta:
        new = Meta(self)
        new.facts = self.facts
        return new

    __copy__ = copy

    def __deepcopy__(self, memo: Any) -> Meta:
        return self.copy()

    def __reduce__(self) -> Any:
        return dict, (dict(self),)


def _modules(func: types.FunctionType, local: dict[str, Any]) -> Iterator[tuple[str, torch.nn.Module]]:
    """Modules that the frame can reach by one name, with how torch.compile writes it."""
    for name, v in local.items():
        if isinstance(v, torch.nn.Module):
            yield f"L_{name}_", v
    for name, cell in zip(func.__code__.co_freevars, func.__closure__ or (), strict=True):
        v = None
        try:
            v = cell.cell_contents
        except ValueError:
            continue
        if isinstance(v, torch.nn.Module):
            yield f"L_{name}_", v
    for name in func.__code__.co_names:
        v = func.__globals__.get(name)
        if isinstance(v, torch.nn.Module):
            yield f"G_{name}_", v


def _submodules(
    prefix: str, module: torch.nn.Module, seen: set[int]
) -> Iterator[tuple[str, torch.nn.Module]]:
    """As named_modules(), but some may be half made: their __init__ is running, or they are being copied."""
    if id(module) in seen:
        return
    seen.add(id(module))
    yield prefix, module
    for name, m in module.__dict__.get("_modules", {}).items():
        if m is not None:
            yield from _submodules(f"{prefix}modules_{name}_", m, seen)


def _tensor_names(func: types.FunctionType, local: dict[str, Any]) -> dict[int, str]:
    out: dict[int, str] = {}
    for prefix, module in _modules(func, local):
        for owner, m in _submodules(prefix, module, set()):
            for kind in ("parameters", "buffers"):
                for name, t in m.__dict__.get(f"_{kind}", {}).items():
                    if t is not None:
                        out.setdefault(id(t), f"{owner}{kind}_{name}_")
    return out


def _argument_name(func: types.FunctionType, local: dict[str, Any], target: str) -> str:
    """Arguments of a module are named as its forward() names them."""
    module = local.get("self")
    if func.__name__ != "_wrapped_call_impl" or not isinstance(module, torch.nn.Module):
        return target
    found = re.fullmatch(r"L_args_(\d+)_(.*)", target)
    if found:
        names = [
            p.name
            for p in inspect.signature(module.forward).parameters.values()
            if p.kind <= p.POSITIONAL_OR_KEYWORD
        ]
        if int(found[1]) < len(names):
            return f"L_{names[int(found[1])]}_{found[2]}"
    return re.sub(r"^L_kwargs_", "L_", target)


def _rename(node: torch.fx.Node, target: str, used: set[str]) -> None:
    if target == node.target or target in used:
        return
    used.add(target)
    node.target = target
    node._rename(node.graph._target_to_str(target))


def finish(
    nodes: list[torch.fx.Node],
    facts: list[Facts | None],
    where: list[tuple[Frame, ...] | None],
    func: types.FunctionType,
    local: dict[str, Any],
    inputs: dict[torch.fx.Node, torch.Tensor],
) -> None:
    """Names placeholders and fills the nodes' dicts.  facts and where belong to nodes, item by item."""
    names = _tensor_names(func, local)
    used = {str(n.target) for n in inputs}
    traces: dict[tuple[Frame, ...], str] = {}
    for node, real in inputs.items():
        target = str(node.target)
        known = names.get(id(real)) if target.startswith(("param_", "tensor_")) else None
        _rename(node, re.sub(r"\W", "_", known or _argument_name(func, local, target)), used)
        node.type = type(real)
    for node, fact, at in zip(nodes, facts, where, strict=True):
        if at:
            if at not in traces:
                traces[at] = _trace(at)
            node.meta["stack_trace"] = traces[at]
        if fact is None:
            continue
        node.meta = Meta(node.meta)
        node.meta.facts = fact
        size, stride, dtype, _, requires_grad = fact
        node.meta["tensor_meta"] = TensorMetadata(
            torch.Size(size), dtype, requires_grad, stride, None, False, {}
        )
