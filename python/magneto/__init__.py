"""magneto makes unmodified PyTorch programs faster.

``magneto.compile(f)`` is used as ``torch.compile(f)`` is: it takes a function, a method, a module or any other
callable and returns one that gives the same results.
"""

import torch as _torch  # noqa: F401  (the extension finds torch's libraries already loaded)

from . import _magneto  # noqa: F401
from .backends import list_backends, register_backend
from .compiler import compile, disable, graph_break, is_compiling, reset  # noqa: A004
from .explain import Explanation, explain

__version__ = "0.1.0"
__all__ = [
    "Explanation",
    "compile",
    "disable",
    "explain",
    "graph_break",
    "is_compiling",
    "list_backends",
    "register_backend",
    "reset",
]
