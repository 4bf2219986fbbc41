"""magneto makes unmodified PyTorch programs faster.

``magneto.compile(f)`` is used as ``torch.compile(f)`` is.
It takes a function, a method, a module or any other callable, and returns one that gives the same results.
"""

import torch as _torch  # noqa: F401  (the extension finds torch's libraries already loaded)

from . import _interpreter, _magneto  # noqa: F401  (in this order: the first says what the second is)
from ._backends.registry import list_backends, register_backend
from ._install.installer import install, uninstall
from .compiler import compile, graph_break, reset
from .control import (
    allow_in_graph,
    assume_constant_result,
    cudagraph_mark_step_begin,
    disable,
    is_compiling,
    mark_dynamic,
    mark_static,
    maybe_mark_dynamic,
    nonstrict_trace,
    run,
    set_stance,
    substitute_in_graph,
)
from .explain import BreakReason, Explanation, ExportResult, explain, export, onnx
from .report import _at_exit, measure, report

__version__ = "0.1.0"
_at_exit()
is_dynamo_compiling = is_compiling
__all__ = [
    "BreakReason",
    "Explanation",
    "ExportResult",
    "allow_in_graph",
    "assume_constant_result",
    "compile",
    "cudagraph_mark_step_begin",
    "disable",
    "explain",
    "export",
    "graph_break",
    "install",
    "is_compiling",
    "is_dynamo_compiling",
    "list_backends",
    "mark_dynamic",
    "mark_static",
    "maybe_mark_dynamic",
    "measure",
    "nonstrict_trace",
    "onnx",
    "register_backend",
    "report",
    "reset",
    "run",
    "set_stance",
    "substitute_in_graph",
    "uninstall",
]


def __dir__() -> list[str]:
    """The public names: other modules of the package are for the compiler itself."""
    return sorted([*__all__, "__doc__", "__file__", "__name__", "__path__", "__version__"])
