"""``magneto.install()``: programs that call torch.compile get magneto's own front end."""

from __future__ import annotations

import threading
from types import TracebackType

from . import frameworks, torch_door

# What is installed now.  The lock is held while it changes; torch.compile reads the two flags of torch_door.
_lock = threading.Lock()
_program: Installation | None = None  # the last install() that is no `with` block
_blocks: list[Installation] = []  # `with` blocks that are open, in any thread


def _apply() -> None:
    """Brings torch.compile and the frameworks in line with what is installed.  The lock is held."""
    active = [*_blocks, _program] if _program else _blocks
    torch_door.takes_default = any(one.default for one in active)
    torch_door.turn(bool(active))
    frameworks.turn(bool(active))


class Installation:
    """What ``install()`` returns.  As a context manager it ends with its block."""

    def __init__(self, default: bool) -> None:
        self.default = default
        self._replaced: Installation | None = None

    def __repr__(self) -> str:
        return f"magneto.install(default={self.default})"

    def __enter__(self) -> Installation:
        global _program
        with _lock:
            if _program is self:  # it is a block, so the program's own setting is what it was before
                _program = self._replaced
            elif _program and _program._replaced is self:
                _program._replaced = None
            self._replaced = None
            _blocks.append(self)
            _apply()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        with _lock:
            _blocks.remove(self)
            _apply()


def install(default: bool = False) -> Installation:
    """Sends ``torch.compile(..., backend="magneto")`` to magneto's own front end instead of Dynamo's.

    So do ``nn.Module.compile`` and whatever a framework compiles through torch.compile.
    Without install() Dynamo records such a program and magneto compiles what it recorded.

    Arguments:
        default: torch.compile() calls that name no back end go to magneto, too,
            unless the program has chosen another one by ``torch.compiler.set_default_backend``.

    Returns:
        A context manager.  In a ``with`` statement the installation ends with the block; blocks may nest.
        Without one it holds until ``uninstall()``, and the last such call decides about ``default``.
        Both are of the whole process, not of one thread.

    Raises:
        TypeError: default is no bool.

    Example:
        >>> import torch, magneto
        >>> with magneto.install():
        ...     f = torch.compile(lambda x: x.relu() + 1, backend="magneto", fullgraph=True)
        >>> f(torch.tensor([-1.0, 2.0]))
        tensor([1., 3.])
    """
    global _program
    if not isinstance(default, bool):
        raise TypeError(f"magneto.install: default must be a bool, got {type(default).__name__}")
    made = Installation(default)
    with _lock:
        made._replaced, _program = _program, made
        if made._replaced:
            made._replaced._replaced = None  # of earlier calls nobody can ask for again
        _apply()
    return made


def uninstall() -> None:
    """Ends what ``install()`` did.  Open ``with`` blocks of install() end by themselves.

    What was compiled stays compiled.  Without an installation nothing happens.

    Returns:
        None.

    Raises:
        Nothing.

    Example:
        >>> import magneto
        >>> _ = magneto.install()
        >>> magneto.uninstall()
    """
    global _program
    with _lock:
        _program = None
        _apply()
