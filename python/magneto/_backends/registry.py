"""Names of back ends: magneto's own, those that users register, and PyTorch's.

A back end in this sense is a callable ``(gm, example_inputs) -> callable`` as torch.compile defines it.
``gm`` is a torch.fx.GraphModule of torch-level calls, and ``example_inputs`` the list of its tensors.
What a back end returns is called with such tensors and gives a tuple of results.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar, overload

import torch

from .. import _magneto
from . import backend_symbols

Backend = Callable[..., Callable[..., Any]]
B = TypeVar("B", bound=Backend)

# magneto's compiler; and running the recorded ATen ops one by one, which tells problems of recording from
# those of compiling.
OWN = ("magneto", "aten")
_registered: dict[str, Backend] = {}
_tags: dict[str, frozenset[str]] = {}


@overload
def register_backend(fn: B, name: str | None = None, tags: Iterable[str] = ()) -> B: ...
@overload
def register_backend(
    fn: None = None, name: str | None = None, tags: Iterable[str] = ()
) -> Callable[[B], B]: ...
def register_backend(fn: Any = None, name: str | None = None, tags: Iterable[str] = ()) -> Any:
    """Makes a back end known by name.

    Arguments:
        fn: a callable ``(gm, example_inputs) -> callable``.  Without it the result is a decorator.
        name: the name; None: the ``__name__`` of ``fn``.
        tags: words by which list_backends() can leave it out.

    Returns:
        ``fn`` itself.

    Raises:
        TypeError: ``fn`` is not callable, or has no name.
        ValueError: the name is one of magneto's own.

    Example:
        >>> import torch, magneto
        >>> @magneto.register_backend(name="plain")
        ... def backend(gm, example_inputs):
        ...     return gm.forward
        >>> magneto.compile(lambda x: x + 1, backend="plain")(torch.ones(2))
        tensor([2., 2.])
    """
    if fn is None:
        return lambda f: register_backend(f, name, tags)
    if not callable(fn):
        raise TypeError(f"magneto.register_backend: fn must be callable, got {type(fn).__name__}")
    name = name or getattr(fn, "__name__", None)
    if not isinstance(name, str):
        raise TypeError("magneto.register_backend: name must be given for a callable without __name__")
    if name in OWN:
        raise ValueError(f"magneto.register_backend: {name!r} is magneto's own")
    _registered[name], _tags[name] = fn, frozenset(tags)
    return fn


def list_backends(exclude_tags: Iterable[str] | None = ()) -> list[str]:
    """Every name that ``backend=`` takes: magneto's own, registered ones, PyTorch's.

    Arguments:
        exclude_tags: back ends with one of these tags are left out; None: nothing is.

    Returns:
        A sorted list.

    Raises:
        Nothing.

    Example:
        >>> import magneto
        >>> "magneto" in magneto.list_backends()
        True
    """
    without = frozenset(exclude_tags or ())
    return sorted({*OWN, *[n for n in _registered if not without & _tags[n]], *_torch_backends(without)})


def _torch_backends(without: Iterable[str] = ()) -> Sequence[str]:
    import torch._dynamo

    return [n for n in torch._dynamo.list_backends(exclude_tags=tuple(without)) if n != "magneto"]


def find(backend: str | Backend, mode: str | None, options: dict[str, Any] | None) -> Backend:
    """The callable of a back end other than magneto's own; mode and options as torch.compile has them."""
    if isinstance(backend, str):
        fn = _registered.get(backend)
        if fn is None:
            fn = _find_torch(backend, mode, options)
            if backend == "inductor":
                return fn  # took mode and options itself
    elif callable(backend):
        fn = backend
    else:
        raise TypeError(
            f"magneto.compile: backend must be a name or a callable (gm, example_inputs) -> callable, "
            f"got {type(backend).__name__}"
        )
    kwargs = {k: v for k, v in (("mode", mode), ("options", options)) if v is not None}
    if not kwargs:
        return fn
    return lambda gm, example_inputs: fn(gm, example_inputs, **kwargs)


def _find_torch(name: str, mode: str | None, options: dict[str, Any] | None) -> Backend:
    """One of PyTorch's registered back ends.  Importing them takes seconds: only unknown names come here."""
    if name == "inductor" and (mode or options):
        return torch._TorchCompileInductorWrapper(mode, options, None)
    return _torch_backend(name)


@functools.cache  # the same object each time: what was compiled for it is found again
def _torch_backend(name: str) -> Backend:
    import torch._dynamo

    if name not in _torch_backends():
        known = ", ".join(repr(n) for n in list_backends())
        raise ValueError(f"magneto.compile: unknown backend {name!r}; valid backends: {known}")
    if name == "inductor":
        return torch._TorchCompileInductorWrapper(None, None, None)
    return _traced(torch._dynamo.lookup_backend(name))


def _traced(fn: Backend) -> Backend:
    """fn with the context in which Dynamo calls PyTorch's back ends: a fake mode with room for symbols."""

    def call(gm: torch.fx.GraphModule, example_inputs: list[Any], **kwargs: Any) -> Callable[..., Any]:
        if backend_symbols.inside.get():
            return fn(gm, example_inputs, **kwargs)
        from torch._guards import TracingContext, tracing
        from torch._subclasses import FakeTensorMode
        from torch.fx.experimental.symbolic_shapes import ShapeEnv

        mode = FakeTensorMode(shape_env=ShapeEnv(), static_shapes=True, allow_non_fake_inputs=True)
        # The mode has to know the tensors as long as these live.
        # AOTAutograd gives others symbolic sizes all the same.
        plain = [
            t
            for t in example_inputs
            if isinstance(t, torch.Tensor) and all(type(n) is int for n in torch.Tensor.size(t))
        ]  # jagged sizes need symbols
        known = [mode.from_tensor(t, static_shapes=True) for t in plain]
        with tracing(TracingContext(mode)):
            compiled = backend_symbols.call_backend(fn, gm, example_inputs, **kwargs)
        del known
        return compiled

    @functools.wraps(fn)
    def held(gm: torch.fx.GraphModule, example_inputs: list[Any], **kwargs: Any) -> Callable[..., Any]:
        # The context ends in callbacks of weak references, which lose what a signal's handler raises in them.
        return _magneto.call_holding(True, call, (gm, example_inputs), kwargs)

    return held


def with_sizes(
    fn: Backend, gm: torch.fx.GraphModule, example_inputs: list[Any], dims: backend_symbols.Dims
) -> Callable[..., Any]:
    """fn(gm, example_inputs), where sizes of these are symbols of the graph."""
    tracer = "torch.fx.experimental.symbolic_shapes" in sys.modules
    return (
        backend_symbols.call(fn, gm, example_inputs, dims)
        if tracer
        else backend_symbols.call_backend(fn, gm, example_inputs)
    )


def with_symbols(fn: Backend, gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
    """fn(gm, example_inputs), for a tracer that needs symbols.

    It does where some of the examples wrap other tensors, or gm has a loop.
    """
    tracer = "torch.fx.experimental.symbolic_shapes" in sys.modules
    return backend_symbols.call_backend(_traced(fn) if tracer else fn, gm, example_inputs)


def failed(fn: Backend, error: Exception) -> Exception:
    """What to raise where fn raised error.

    Once Dynamo is loaded, that is the exception that programs catch of torch.compile.
    """
    exc = sys.modules.get("torch._dynamo.exc")
    if (
        exc is None
        or backend_symbols.from_signal(error)
        or isinstance(
            error, (exc.ShortenTraceback, exc.SkipFrame, exc.TensorifyScalarRestartAnalysis, IndexError)
        )
    ):
        return error
    new = exc.BackendCompilerFailed(fn, error, None).with_traceback(error.__traceback__)
    new.__suppress_context__ = True  # its message has the error's, its traceback is the error's
    return new
