"""``magneto.compile`` and its small companions: argument checks, and one C object per compiled callable."""

from __future__ import annotations

import functools
import os
import sys
import types
from collections.abc import Callable
from typing import Any, TypeVar, overload

import torch

from . import _interpreter, _magneto
from ._backends import inductor_options, registry
from ._report import each_graph
from .module import compile_module, each_call, original, written

# What has no Python frame of its own, or one in torch that is not to be compiled.
FRAMELESS = (
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    torch._ops.OpOverload,
    torch._ops.OpOverloadPacket,
)

# What torch.compile is switched off by, in the environment.
SWITCHES = ("TORCHDYNAMO_DISABLE", "TORCH_COMPILE_DISABLE")

F = TypeVar("F", bound=Callable[..., Any])

# Names that torch.compile takes.  Other back ends get the mode; magneto's own has two ways to compile.
MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs", "lite")

# Those of them in which library calls of any size are timed.
SEARCHING = ("max-autotune", "max-autotune-no-cudagraphs")

# Options of magneto's own back end: type, and the keyword of _magneto.Callable.
OPTIONS: dict[str, type] = {
    "freeze": bool,  # parameters never change: fold and pack them once
    "keep_layout": bool,  # do not choose memory formats inside of the graph
    "threads": int,  # 0: as many as torch uses
    "recompile_limit": int,  # entries of one piece of code before it runs eagerly
    "verify": int,  # calls of each graph that are compared with eager
    "verify_every": int,  # and one in so many after; 0: none
    "numerics": str,  # how near to eager's the numbers are: one of NUMERICS
}

# Values of that option, with their numbers in C (MgNumerics).
NUMERICS = {"fast": 0, "rounded": 1, "eager": 2}


def _check_flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"magneto.compile: {name} must be a bool, got {type(value).__name__}")
    return value


def _check_mode(mode: Any, known: bool = True) -> None:
    if mode is None:
        return
    if not isinstance(mode, str):
        raise TypeError(f"magneto.compile: mode must be a string or None, got {type(mode).__name__}")
    if known and mode not in MODES:
        raise ValueError(
            f"magneto.compile: unknown mode {mode!r}; valid modes: {', '.join(map(repr, MODES))}"
        )


def _check_name(name: Any) -> None:
    if name is not None and not isinstance(name, str):
        raise TypeError(f"magneto.compile: name must be a string or None, got {type(name).__name__}")


def _check_specs(**specs: Any) -> None:
    for name, value in specs.items():
        if value is not None:
            raise NotImplementedError(
                f"magneto.compile: {name} is not supported; mark sizes with magneto.mark_dynamic, "
                "maybe_mark_dynamic or mark_static, or use dynamic="
            )


def _check_options(options: Any) -> dict[str, Any]:
    if options is None:
        return {}
    if not isinstance(options, dict):
        raise TypeError(f"magneto.compile: options must be a dict or None, got {type(options).__name__}")
    out: dict[str, Any] = {}
    for name, value in options.items():
        want = OPTIONS.get(name)
        if want is None:
            theirs = inductor_options.translate(name, value) if isinstance(name, str) else None
            if theirs is None:
                raise ValueError(
                    f"magneto.compile: unknown option {name!r}; valid options: "
                    f"{', '.join(map(repr, OPTIONS))}, and those of torch._inductor.list_options()"
                )
            if "numerics" in theirs:  # the stricter of two
                theirs["numerics"] = max(theirs["numerics"], out.get("numerics", 0))
            out.update(theirs)
            continue
        if not isinstance(value, want) or (want is int and isinstance(value, bool)):
            raise TypeError(
                f"magneto.compile: option {name!r} must be of type {want.__name__}, "
                f"got {type(value).__name__}"
            )
        if name == "numerics" and value not in NUMERICS:
            known = ", ".join(map(repr, NUMERICS))
            raise ValueError(f"magneto.compile: option 'numerics' must be one of {known}, got {value!r}")
        if isinstance(value, int) and value < 0:
            raise ValueError(f"magneto.compile: option {name!r} must not be negative, got {value}")
        out[name] = max(NUMERICS[str(value)], out.get(name, 0)) if name == "numerics" else value
    return out


def checked(
    *,
    fullgraph: Any = False,
    dynamic: Any = None,
    backend: Any = "magneto",
    mode: Any = None,
    options: Any = None,
    name: Any = None,
    recompile_limit: Any = None,
    isolate_recompiles: Any = False,
    shapes_spec: Any = None,
    dynamic_shapes: Any = None,
) -> dict[str, Any]:
    """Checks the arguments of compile() and turns them into those of ``_magneto.Callable``."""
    _check_name(name)
    _check_specs(shapes_spec=shapes_spec, dynamic_shapes=dynamic_shapes)
    out: dict[str, Any] = {"fullgraph": _check_flag("fullgraph", fullgraph)}
    if dynamic is not None:
        out["dynamic"] = int(_check_flag("dynamic", dynamic))
    if backend is None:
        backend = "magneto"
    if isinstance(backend, str) and backend in registry.OWN:
        _check_mode(mode)
        out.update(_check_options(options))
        if mode in SEARCHING:
            out["search"] = True
        if os.environ.get("MAGNETO_REPRO") or each_graph.wanted():
            out.setdefault("verify", 1)
        out["eager_backend"] = backend == "aten"
    else:
        _check_mode(mode, known=False)
        out["backend"] = registry.find(backend, mode, options)
    if recompile_limit is not None:
        if not isinstance(recompile_limit, int) or isinstance(recompile_limit, bool):
            raise TypeError(
                f"magneto.compile: recompile_limit must be an int, got {type(recompile_limit).__name__}"
            )
        if recompile_limit < 1:
            raise ValueError(f"magneto.compile: recompile_limit must be positive, got {recompile_limit}")
        out["recompile_limit"] = recompile_limit
    if _check_flag("isolate_recompiles", isolate_recompiles):
        out["isolated"] = True
    return out


def frameless(fn: Callable[..., Any]) -> bool:
    """Is ``fn``, or what it is a partial of, such a function?"""
    while type(fn) is functools.partial:
        fn = fn.func
    return isinstance(fn, FRAMELESS)


def framed(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A Python function that calls ``fn``.

    ``fn`` is a function in C or an operator of torch, and has no frame to be compiled.
    """

    def call(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    call.__code__ = call.__code__.replace()  # entries belong to code: each has its own
    call.__wrapped__ = fn  # type: ignore[attr-defined]
    return call


def compile_callable(fn: Callable[..., Any], config: dict[str, Any]) -> _magneto.Callable:
    """A compiled callable that looks like ``fn``: name, docstring, signature and attributes."""
    if frameless(fn):
        compiled = _magneto.Callable(framed(fn), plain=fn, **config)
    else:
        compiled = _magneto.Callable(fn, **config)
    inner = getattr(fn, "__func__", fn)
    for name in functools.WRAPPER_ASSIGNMENTS:
        value = getattr(inner, name, None)
        if value is not None:
            compiled.__dict__[name] = value
    compiled.__dict__.update({k: v for k, v in getattr(inner, "__dict__", {}).items() if k != "__wrapped__"})
    return compiled


@overload
def compile(
    f: F,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: str | registry.Backend | None = "magneto",
    mode: str | None = None,
    options: dict[str, Any] | None = None,
    name: str | None = None,
    disable: bool = False,
    recompile_limit: int | None = None,
    isolate_recompiles: bool = False,
    shapes_spec: None = None,
    dynamic_shapes: None = None,
) -> F: ...
@overload
def compile(
    f: None = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: str | registry.Backend | None = "magneto",
    mode: str | None = None,
    options: dict[str, Any] | None = None,
    name: str | None = None,
    disable: bool = False,
    recompile_limit: int | None = None,
    isolate_recompiles: bool = False,
    shapes_spec: None = None,
    dynamic_shapes: None = None,
) -> Callable[[F], F]: ...
def compile(
    f: Any = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: str | registry.Backend | None = "magneto",
    mode: str | None = None,
    options: dict[str, Any] | None = None,
    name: str | None = None,
    disable: bool = False,
    recompile_limit: int | None = None,
    isolate_recompiles: bool = False,
    shapes_spec: None = None,
    dynamic_shapes: None = None,
) -> Any:
    """Returns a callable that does what ``f`` does, faster.  Nothing is compiled until it is called.

    Arguments:
        f: a function, method, ``nn.Module``, class or other callable.  Without it the result is a decorator.
            A ``torch.export.ExportedProgram`` means its ``module()``.
        fullgraph: a graph break is an error instead of a return to Python.
        dynamic: whether sizes of tensors, and ints that are arguments, become inputs of the graph.
            None: at their first change.  True: at once.
            False: never, so each combination of sizes is a recompile.
        backend: "magneto" (None means the same), a name of ``list_backends()``, or a callable
            ``(gm, example_inputs) -> callable``.
        mode: "default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs" or "lite".
            With "max-autotune" and "max-autotune-no-cudagraphs" matrix products of any size are timed in the
            ways that there are, and the fastest is taken.  Without, only small ones are.
            The others have no effect on magneto's own back end.  Other back ends get the mode.
        options: "freeze" (bool), "keep_layout" (bool), "threads" (int), "recompile_limit" (int).
            "verify" (int): so many calls of each graph are compared with eager first.
            "verify_every" (int): and one in so many after.
            "numerics" (str): "fast", "rounded" (each result of an op is rounded to its dtype), or "eager"
            (and pointwise ops give eager's bits).
            Of Inductor's names "freezing", "layout_optimization" and "cpp.threads" mean the first three,
            and "emulate_precision_casts" means numerics="rounded";
            the others are taken and have no effect.  Other back ends get theirs.
        name: has no effect; torch.compile shows it in debug output.
        disable: return ``f`` unchanged.
            TORCHDYNAMO_DISABLE=1 and TORCH_COMPILE_DISABLE=1 in the environment do so, too.
            So does an interpreter that magneto does not know.
        recompile_limit: how often one place is compiled before it runs eagerly.
            None: what the program has set ``torch._dynamo.config.recompile_limit`` to.
            Where it has not, the limit is 8, and 32 for new sizes of tensors.
        isolate_recompiles: share no compiled code with other compile() calls of the same function,
            so that their recompiles do not count here.
        shapes_spec, dynamic_shapes: must be None; mark sizes with mark_dynamic() instead.

    Returns:
        For a function, a callable with its name, signature and attributes.
        For a module, a module of a subclass of its own class that shares all of its state with the original.
        For a class, the class itself: calls of its instances are compiled from then on.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: an unknown back end, mode or option, or a number out of range.
        NotImplementedError: shapes_spec or dynamic_shapes is given.

    Example:
        >>> import torch, magneto
        >>> @magneto.compile(fullgraph=True)
        ... def f(x, y):
        ...     return torch.relu(x) + y
        >>> f(torch.tensor([-1.0, 2.0]), 1)
        tensor([1., 3.])
    """
    config = checked(
        fullgraph=fullgraph,
        dynamic=dynamic,
        backend=backend,
        mode=mode,
        options=options,
        name=name,
        recompile_limit=recompile_limit,
        isolate_recompiles=isolate_recompiles,
        shapes_spec=shapes_spec,
        dynamic_shapes=dynamic_shapes,
    )
    off = is_off(disable)
    if f is None:  # errors belong to the line of the decorator
        return lambda fn: _compile(fn, config, off)
    return _compile(f, config, off)


def is_off(disable: Any) -> bool:
    """Is compiling switched off, by the argument ``disable`` or in the environment, or impossible here?"""
    off = _check_flag("disable", disable) or any(os.environ.get(name) == "1" for name in SWITCHES)
    return off or _interpreter.UNKNOWN is not None


def innermost(f: Any) -> Any:
    """What is compiled when ``f`` is: what torch has wrapped (compile, disable) is wanted all the same."""
    while getattr(f, "_torchdynamo_wrapper_id", None) == id(f):
        f = f._torchdynamo_orig_callable
    if isinstance(f, _magneto.Callable):
        f = f.__wrapped__  # compiled again, with other settings
    if "torch.export" in sys.modules and isinstance(f, torch.export.ExportedProgram):
        f = f.module()  # what it stands for
    return written(original(f)) if isinstance(f, torch.nn.Module) else f


def compile_plain(f: Any, config: dict[str, Any]) -> Any:
    """``f``, which is no module and was not compiled before, compiled."""
    if isinstance(f, type) and each_call(f, lambda fn: compile_callable(fn, config)):
        return f
    return compile_callable(f, config)


def _compile(f: Any, config: dict[str, Any], off: bool) -> Any:
    if not callable(f):
        raise TypeError(f"magneto.compile: f must be callable, got {type(f).__name__}")
    if off:
        return f
    f = innermost(f)
    return compile_module(f, config) if isinstance(f, torch.nn.Module) else compile_plain(f, config)


def reset() -> None:
    """Forgets everything that was compiled and sets the counters to zero.

    Returns:
        None.  Compiled callables stay valid; their next call compiles again.

    Raises:
        Nothing.

    Example:
        >>> import magneto
        >>> magneto.reset()
        >>> magneto._magneto.stats()["graphs"]
        0
    """
    _magneto.reset()


# Ends the current graph at this point; does nothing outside of compiled functions.
# It is a C function, because a Python one would be part of the recording.
graph_break = _magneto.graph_break
