#!/usr/bin/env python3
"""Checks the comments of C and Python sources: python3 tools/check_comments.py [ROOT]

What a comment names has to exist:

- functions and variables (`mg_fail`), types (`MgGraph`), codes and macros (`MG_OK`).
- `mg_graph_` is the beginning of a name.
- files with an extension: `graph_verify.c`, `base/env.c`.
- files and folders of the sources without one: `middle/check`, `record/snapshot`.

In: C comments, and the comments and docstrings of Python.  Out: a line for each name that does not exist.
Exit status 1: there is one.
"""

from __future__ import annotations

import ast
import io
import pathlib
import re
import sys
import tokenize
from collections.abc import Iterator

import layers

ROOMS = {room.split("/")[0] for level in layers.ROOMS for room in level if room}
FOLDERS = ("src", "python", "tests", "tools", "bench", "docs", "requirements")
C = (".c", ".h", ".def")
EXTENSIONS = "c|h|def|py|pyi|md|mg|toml|sh|yml"
# Files of others that comments may name.
OTHERS = {
    "Python.h",
    "opcode.h",
    "pycore_intrinsics.h",
    "MemoryFormat.h",
    # the programs of examples
    "a.py",
    "model.py",
}
TEXT = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
NAME = re.compile(r"\b(?:mg_\w+|MG_\w+|Mg[A-Z]\w*)")
FILE = re.compile(rf"(?<![\w/.<-])((?:[\w.-]+/)*\w+\.(?:{EXTENSIONS}))\b(?![\w(*])")
PATH = re.compile(r"(?<![\w/.<$-])([a-z_]\w*(?:/[a-z_]\w*)+)(?![\w/(*{-]|\.\w)")


def c_comments(text: str) -> Iterator[tuple[int, str]]:
    """Each C comment with its first line."""
    for m in TEXT.finditer(text):
        if m.group().startswith(("/*", "//")):
            yield text.count("\n", 0, m.start()) + 1, m.group()


def c_code(text: str) -> str:
    """The text without comments; strings stay, since names in them are looked up at run time."""
    return TEXT.sub(lambda m: " " if m.group().startswith(("/*", "//")) else m.group(), text)


def py_comments(text: str) -> Iterator[tuple[int, str]]:
    """Each comment and docstring of Python with its first line."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            body = node.body[0] if node.body else None
            if (
                isinstance(body, ast.Expr)
                and isinstance(body.value, ast.Constant)
                and isinstance(body.value.value, str)
            ):
                yield body.lineno, body.value.value


class Names:
    """What there is: identifiers of the code, beginnings of names that macros make, files and folders."""

    def __init__(self, root: pathlib.Path) -> None:
        self.sources: list[pathlib.Path] = []
        self.paths: set[str] = set()
        self.words: set[str] = set()
        self.pasted: set[str] = set()
        for folder in FOLDERS:
            for path in sorted((root / folder).rglob("*")):
                if "__pycache__" not in path.parts and path.suffix != ".so":
                    self._add(root, path)
        self.paths |= {p.name for p in root.iterdir() if not p.name.startswith(".")}

    def _add(self, root: pathlib.Path, path: pathlib.Path) -> None:
        name = str(path.relative_to(root))
        self.paths |= {name, name.removeprefix("src/"), name.removeprefix("python/"), path.name}
        if path.is_dir() or path.suffix not in (*C, ".py"):
            return
        self.sources.append(path)
        if path.suffix == ".py":
            return
        code = c_code(path.read_text())
        self.words |= set(re.findall(r"[A-Za-z_]\w*", code))
        self.pasted |= set(re.findall(r"\b([A-Za-z_]\w*)##", code))

    def has(self, name: str) -> bool:
        """Is there this name, or, for one that ends in an underscore, a name that begins so?"""
        if name in self.words:
            return True
        if name.endswith("_"):
            return any(w.startswith(name) for w in self.words | self.pasted)
        return any(name.startswith(p) and name[len(p) :] in self.words for p in self.pasted if len(p) > 2)

    def file(self, name: str) -> bool:
        """Is there this file, perhaps in a folder that the name leaves out?"""
        return name in self.paths or any(p.endswith("/" + name) for p in self.paths)

    def place(self, name: str) -> bool:
        """Is there a folder or source of this path?  Rooms may be left out: middle/check, entry/exec."""
        if self.file(name):
            return True
        first, last = name.split("/")[0], name.split("/")[-1]
        ends = (*(last + e for e in (*C, ".py")), last)
        return any(
            p.startswith((first + "/", f"src/{first}/")) and p.split("/")[-1] in ends for p in self.paths
        )


def problems(names: Names, comment: str) -> Iterator[str]:
    """What the comment names and what does not exist."""
    for m in NAME.finditer(comment):
        if not names.has(m.group()):
            yield m.group()
    for m in FILE.finditer(comment):
        first = m[1].split("/")[0]
        ours = "/" not in m[1] or first in ROOMS or first in FOLDERS
        if ours and m[1] not in OTHERS and not names.file(m[1]):
            yield m[1]
    for m in PATH.finditer(comment):
        if m[1].split("/")[0] in (*ROOMS, *FOLDERS) and not names.place(m[1]):
            yield m[1]


def check(root: pathlib.Path) -> int:
    """Prints every problem; returns how many there are."""
    names, bad = Names(root), 0
    for path in names.sources:
        text = path.read_text()
        for line, comment in py_comments(text) if path.suffix == ".py" else c_comments(text):
            for name in problems(names, comment):
                print(f"{path.relative_to(root)}:{line}: {name} does not exist")
                bad += 1
    print("comments: ok" if not bad else f"comments: {bad} name(s) that do not exist")
    return bad


if __name__ == "__main__":
    sys.exit(bool(check(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "."))))
