"""Programs about objects and side effects: each runs in plain Python and compiled, in namespaces of its own.

A program defines f (called on ARGS(), by default one tensor), and maybe S() (the state it leaves behind) and between()
(what happens outside between two calls).  A file of obj_programs holds many: `# === name breaks=1 graphs=2` starts one.
They are not functions of a module, because each run needs classes, globals and code of its own: a program is compiled
anew for each.
breaks=1: it may break, else it is compiled with fullgraph=True; graphs: how many the first call makes; entries: the most
entries that three calls may make (default 3).
before=14: it is for CPython before 3.14.
A line `# Forced break 3 fails: reason` says that the program is wrong with a break forced there; with `from 3.14` or
`before 3.14` in front of `fails`, on these versions, whose instructions are others."""

import contextlib
import copy
import io
import pathlib
import re
import sys
import warnings
from collections import deque
from collections.abc import ItemsView, KeysView, ValuesView
from dataclasses import dataclass
from enum import Enum
from types import SimpleNamespace

import pytest
import torch

import magneto
from magneto import _magneto
from support import CountingBackend, counts

HERE = pathlib.Path(__file__).resolve().parent
CALLS = 3


@dataclass
class Program:
    path: pathlib.Path
    line: int  # of its text
    text: str
    options: dict[str, int]

    def code(self):
        """New code, with the lines of the file."""
        return compile("\n" * (self.line - 1) + self.text, self.path, "exec")

    def forced_break_fails(self, k):
        """Why a break forced at k fails, or None."""
        line = rf"^# Forced break {k} (?:(from|before) 3\.(\d+) )?fails: (.*)"
        for when, version, why in re.findall(line, self.text, re.MULTILINE):
            if not when or (when == "from") == (sys.version_info >= (3, int(version))):
                return why
        return None


def load(*files):
    """The programs of these files of obj_programs, by name."""
    programs = {}
    for file in files:
        path = HERE / "obj_programs" / f"{file}.py"
        line, *parts = path.read_text().split("\n# === ")
        line = line.count("\n") + 2
        for part in parts:
            head, _, text = part.partition("\n")
            name, *options = head.split()
            assert name not in programs, name
            numbers = {k: int(v) for k, v in (o.split("=") for o in options)}
            if sys.version_info < (3, numbers.pop("before", 99)):
                programs[name] = Program(path, line + 1, text, numbers)
            line += part.count("\n") + 1
    return programs


def attributes(o):
    """What hangs on an instance: its dict and its slots."""
    slots = [n for k in type(o).__mro__ for n in getattr(k, "__slots__", ()) if hasattr(o, n)]
    return dict(getattr(o, "__dict__", {}), **{n: getattr(o, n) for n in slots if n != "__dict__"})


def same(a, b):
    """Equal values of equal types; tensors bit for bit except rounding, plain objects by their attributes."""
    if isinstance(a, torch.Tensor):
        return (
            isinstance(b, torch.Tensor)
            and type(a) is type(b)
            and a.shape == b.shape
            and a.dtype == b.dtype
            and a.requires_grad == b.requires_grad
            and torch.allclose(a, b, atol=1e-6, equal_nan=True)
        )
    if type(a) is not type(b) and (type(a).__name__ != type(b).__name__):
        return False
    if isinstance(a, (list, tuple, deque)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if type(a).__module__ == "numpy":
        return same(a.tolist(), b.tolist())
    if isinstance(a, SimpleNamespace):
        return same(vars(a), vars(b))
    if isinstance(a, (KeysView, ValuesView, ItemsView)):
        return same(list(a), list(b))
    if hasattr(a, "__next__") and not isinstance(a, type):
        return same(a.__reduce__(), b.__reduce__())
    if isinstance(a, Enum):
        return a.name == b.name
    if isinstance(a, type) and a.__module__ == "program":
        return a is b or (a.__qualname__, list(vars(a)), a.__doc__) == (
            b.__qualname__,
            list(vars(b)),
            b.__doc__,
        )
    if not isinstance(a, type) and not callable(a) and type(a).__module__ == "program":
        return same(attributes(a), attributes(b))
    return bool(a == b) or (a != a and b != b)


def run(program, wrap):
    space, out = {"torch": torch, "__name__": "program"}, []
    torch.manual_seed(0)
    exec(program.code(), space)
    f = wrap(space["f"])
    for i in range(CALLS):
        torch.manual_seed(i)
        args = space["ARGS"]() if "ARGS" in space else (torch.arange(3.0) + i,)
        text = io.StringIO()
        with contextlib.redirect_stdout(text), warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            try:
                r = f(*args)
            except Exception as e:
                r = f"{type(e).__name__}: {e}"
            torch.set_grad_enabled(True)
            try:
                state = copy.deepcopy(space["S"]()) if "S" in space else 0
            except Exception as e:
                state = repr(e)
        out.append(
            [
                r,
                state,
                text.getvalue(),
                [str(w.message) for w in seen if "magneto" not in str(w.message)],
                list(args),
            ]
        )
        space.get("between", lambda: 0)()
    reset_torch()
    return out


def reset_torch():
    torch.set_grad_enabled(True)
    torch.set_default_dtype(torch.float32)
    torch.set_default_device(None)
    torch.use_deterministic_algorithms(False)


def compare(program, wrap):
    for i, (a, b) in enumerate(zip(run(program, lambda f: f), run(program, wrap))):
        assert same(a, b), f"call {i}:\n  plain    {a}\n  compiled {b}"
    assert counts().fallbacks == 0, "fallback"


def check(program):
    options = program.options
    _magneto.reset()
    whole = not options.get("breaks")
    compare(program, lambda f: _magneto.Callable(f, fullgraph=whole, eager_backend=True))
    if whole:
        entries = [e for e in _magneto.entries() if e["code"].co_name == "f"]
        assert len(entries) <= options.get("entries", CALLS), f"{len(entries)} entries"
    if "graphs" in options:
        counter = CountingBackend()
        _magneto.reset()
        first = []

        def note(f):
            return lambda *a: (f(*a), first.append(counter.graphs))[0]

        compare(program, lambda f: note(magneto.compile(f, backend=counter)))
        assert first[0] == options["graphs"], f"{first[0]} graphs"


def check_forced(program, k):
    why = program.forced_break_fails(k)
    _magneto.reset()
    _magneto.force_break(k)
    try:
        compare(program, lambda f: _magneto.Callable(f, eager_backend=True))
    except AssertionError:
        if why is None:
            raise
        pytest.xfail(why)
    finally:
        _magneto.force_break(0)
    assert why is None, "it passes now; take the line about the forced break away"


def tests(programs, forced=(1, 3, 7)):
    """test_program and test_forced_breaks over these programs, with a break after each k-th instruction of `forced`."""

    @pytest.mark.parametrize("name", programs)
    def test_program(name):
        check(programs[name])

    @pytest.mark.parametrize("k", forced)
    @pytest.mark.parametrize("name", programs)
    def test_forced_breaks(name, k):
        check_forced(programs[name], k)

    return test_program, test_forced_breaks
