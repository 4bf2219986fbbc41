"""Names of parameters, and the module that each node of a graph belongs to."""

from __future__ import annotations

import gc
import re
from typing import Any

import torch

_ATTRIBUTE = re.compile(r"\[['\"](\w+)['\"]\]|\.(\w+)|\[(\d+)\]")
_INNER = {"_parameters", "_buffers", "_modules", "self"}


def names() -> dict[int, str]:
    """By id: the path of each parameter, buffer and module from the outermost module that has it.

    What optimizers keep for a parameter is named by it.
    """
    alive = [
        o for o in gc.get_objects() if issubclass(type(o), torch.nn.Module)
    ]  # asks no proxy for its class
    inner = {id(child) for m in alive for child in m.__dict__.get("_modules", {}).values()}
    found: dict[int, str] = {}
    for m in alive:
        if id(m) in inner:
            continue
        for named in (m.named_parameters, m.named_buffers, m.named_modules):
            for name, t in named(remove_duplicate=False):
                if name:
                    found.setdefault(id(t), name)
    for optimizer in [o for o in gc.get_objects() if issubclass(type(o), torch.optim.Optimizer)]:
        for p, state in optimizer.state.items():
            for key, t in state.items() if isinstance(state, dict) else ():
                found.setdefault(id(t), f"{found.get(id(p), 'parameter')}: {key}")
    return found


def path(source: str) -> list[str]:
    """The modules of a parameter's path: ["layer1", "0", "conv1"] of "layer1.0.conv1.weight"."""
    if not source.startswith(("L[", "G[")):
        return source.split(".")[:-1] if "." in source else []
    parts = [next(g for g in m.groups() if g) for m in _ATTRIBUTE.finditer(source)]
    return [p for p in parts if p not in _INNER][:-1]


def place(nodes: list[dict[str, Any]], inputs: list[str]) -> None:
    """Gives each node its module: that of its parameters, else the one before it."""
    last: list[str] = []
    paths = [path(s) for s in inputs]
    for n in nodes:
        of = [paths[i] for i in n.pop("inputs") if i < len(paths) and paths[i]]
        if of:
            last = max(of, key=len)
        n["module"] = ".".join(last)
