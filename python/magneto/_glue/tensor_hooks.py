"""Hooks of tensors.

- Hooks that a compiled function registers on tensors which its graph makes.
- Hooks of leaves, while a backward pass is recorded.
- Hooks of results that share their node of the gradient graph.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.utils.hooks import RemovableHandle

traced: list[bool] = []  # one item per run on tensors without data: the op was traced


class Late:
    """A hook whose function is known when the graph has run."""

    def __init__(self) -> None:
        self.hook: Callable[[Any], Any] | None = None

    def __call__(self, grad: torch.Tensor) -> Any:
        return self.hook(grad) if self.hook else None


def _run(t: torch.Tensor) -> torch.Tensor:
    mark, late = t.new_empty(0), Late()
    if not t.requires_grad and not torch.is_grad_enabled():
        raise RuntimeError("a hook is registered on a tensor that the back end made without autograd")
    handle = t.register_hook(late) if t.requires_grad else RemovableHandle(OrderedDict())
    mark._magneto_hook = late, handle  # type: ignore[attr-defined]
    return mark


def _trace(t: torch.Tensor) -> torch.Tensor:
    traced.append(True)
    return t.new_empty(0)


_library = torch.library.Library("magneto_hook", "DEF")
_library.define("point(Tensor self) -> Tensor")
_library.impl("point", torch.library.fallthrough_kernel, "Autograd")
for _key in ("CPU", "CUDA"):
    _library.impl("point", _run, _key)
_library.impl("point", _trace, "Meta")
point = torch.ops.magneto_hook.point.default


def finish(mark: torch.Tensor, hook: Callable[[Any], Any]) -> RemovableHandle:
    """``hook`` is what the place ``mark`` calls; the handle that removes it."""
    late, handle = mark._magneto_hook  # type: ignore[attr-defined]
    late.hook = hook
    return handle


class Reached:
    """A leaf's hook, in a pass of which nothing may reach the leaf: eager would not call the hook then."""

    def __init__(self, hook: Callable[[Any], Any]) -> None:
        self.hook = hook

    def __call__(self, grad: torch.Tensor | None) -> Any:
        return None if grad is None else self.hook(grad)


def spare(node: Any, grads: tuple[torch.Tensor | None, ...], hooked: tuple[Any, ...] | None) -> None:
    """Keeps hooks of inputs whose gradient ``node`` leaves undefined from being called with None.

    This holds until the pass ends.
    ``hooked`` says where the hooks of inputs with a gradient graph are: in a dict, or in the tensor's.
    """
    for k, ((function, _), grad) in enumerate(zip(node.next_functions, grads, strict=False)):
        if grad is not None:
            continue
        hooks: Any = hooked[k] if hooked else None
        if not isinstance(hooks, dict):
            tensor = hooks() if hooks else getattr(function, "variable", None)
            hooks = None if tensor is None else tensor._backward_hooks
        for key, hook in list(hooks.items()) if hooks else ():
            if not isinstance(hook, Reached) and not _counts(hook):
                hooks[key] = Reached(hook)
                torch.autograd.Variable._execution_engine.queue_callback(partial(_unspare, hooks, key))


def _unspare(hooks: dict[int, Any], key: int) -> None:
    if isinstance(hooks.get(key), Reached):
        hooks[key] = hooks[key].hook


def run_gradient(hooks: dict[int, Callable[[Any], Any]], grad: torch.Tensor) -> torch.Tensor:
    """What a leaf's ``_backward_hooks`` make of its gradient."""
    for hook in list(hooks.values()):
        result = hook(grad)
        if result is not None:
            grad = result
    return grad


def run_accumulated(hooks: dict[int, Callable[[Any], Any]], leaf: torch.Tensor) -> None:
    for hook in list(hooks.values()):
        if hook(leaf) is not None:
            raise RuntimeError("Tensor post accumulate grad hooks should return None.")


class _Reached:
    """The hooks of one of several results of a compiled function.

    The node that these results have in common calls it.
    In eager code each result has a node of its own, which the engine only runs when a gradient reaches it.
    """

    def __init__(self, hooks: dict[int, Callable[[Any], Any]]) -> None:
        self.hooks = hooks
        self.__name__ = "hook"

    def __call__(self, grad: torch.Tensor | None) -> Any:
        result = None
        for hook in list(self.hooks.values()):
            if grad is None and not _counts(hook):
                continue
            got = hook(grad)
            if got is None:
                continue
            grad = result = got
            self.__name__ = getattr(
                hook, "__name__", repr(hook)
            )  # for torch's errors about what a hook returned
            if not isinstance(got, torch.Tensor):
                break
        return result


def _counts(hook: Callable[[Any], Any]) -> bool:
    """Is it register_multi_grad_hook's, which waits for all tensors whose nodes run?"""
    return getattr(hook, "__qualname__", "").startswith("register_multi_grad_hook.<locals>.get_inner_hook")


def register_reached(register: Callable[..., Any], node: Any, tensor: torch.Tensor) -> None:
    """``register(node, tensor)``, torch's own, with one hook that calls those which the tensor then has."""
    hooks = tensor._backward_hooks
    tensor._backward_hooks = {0: _Reached(hooks)}  # type: ignore[arg-type]
    try:
        register(node, tensor)
    finally:
        tensor._backward_hooks = hooks
