#!/usr/bin/env python3
"""Checks that arguments of ops are named: python3 tools/check_arguments.py [ROOT]

A rule reads `mg_node_arg(n, "eps")`, not `n->arg[7]`: overloads, and versions of PyTorch, differ in where an
argument stands.  In `src`:

- A number is no position of an argument, neither in `n->arg[2]` nor in `mg_infer_nth(in, 2)`.
  Positions that have a name (`a[MM_bias]`) or are counted (`n->arg[k]`) are.
- A string that is taken as the name of a parameter is one of a schema in `src/ir/graph/ops_*.def`.

Out: a line for each place.  Exit status 1: there is one.
"""

from __future__ import annotations

import pathlib
import re
import sys
from collections.abc import Iterator

ROOMS = ("ir", "middle", "back", "driver", "record/dispatch", "record/segment")
NUMBER = re.compile(r"\b(?:n|node|rw->n|\w+n)(?:->|\.)arg\[\d+\]|\bmg_infer_nth\([^()]*, [1-9]\d*\)")
# A function of a node that takes the name of one of its parameters.
FUNCTION = re.compile(r"\b(\w+)\(([^()]*\bconst char \*name\b[^()]*)\)")
OF_NODE = re.compile(r"\b(?:MgNode|MgOp|MgInfer|MgRewrite|Check|LwPt)\b")
STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')
COMMENT = re.compile(r"/\*.*?\*/", re.S)


def parameters(folder: pathlib.Path) -> set[str]:
    """The names of all parameters of all schemas."""
    found = set()
    for table in folder.glob("ops_*.def"):
        for schema in re.finditer(r'"\w+::[\w.]+(\(.*?\)) ->', table.read_text()):
            found.update(re.findall(r"[\w\]?)] (\w+)(?=[,=)])", schema.group(1)))
    return found


def arguments(text: str, start: int) -> list[str]:
    """The arguments of a call, whose opening parenthesis ends at start."""
    depth, begin, found = 0, start, []
    for i in range(start, len(text)):
        if text[i] in "([{":
            depth += 1
        elif text[i] in ")]}":
            if not depth:
                return [*found, text[begin:i]]
            depth -= 1
        elif text[i] == "," and not depth:
            found.append(text[begin:i])
            begin = i + 1
    return found


def readers(root: pathlib.Path) -> dict[str, list[int]]:
    """Functions that take names of parameters: which of their arguments are names."""
    found = {"ARG": [0]}  # a macro of the inference rules
    for room in ("ir", "middle", "back/lower"):
        for file in sorted((root / "src" / room).rglob("*.[ch]")):
            for m in FUNCTION.finditer(COMMENT.sub(" ", file.read_text())):
                if OF_NODE.search(m.group(2)):
                    names = ("const char *name", "const char *other")
                    found[m.group(1)] = [i for i, p in enumerate(m.group(2).split(",")) if p.strip() in names]
    return found


def problems(text: str, takes: dict[str, list[int]], known: set[str]) -> Iterator[tuple[int, str]]:
    """What is wrong in one file, with its line."""
    text = COMMENT.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), text)
    for m in NUMBER.finditer(text):
        yield text.count("\n", 0, m.start()) + 1, f"{m.group()}: name the argument"
    for m in re.finditer(r"\b(\w+)\(", text):
        given = arguments(text, m.end()) if m.group(1) in takes else []
        for i in takes.get(m.group(1), ()):
            if i >= len(given):
                continue
            line = text.count("\n", 0, m.start()) + 1
            if re.fullmatch(r"\s*(?:\d+|NULL)\s*", given[i]):
                yield line, f"{m.group(1)}: {given[i].strip()} is no name"
            inner = re.sub(r"\w+\(.*\)", " ", given[i])  # another call answers for itself
            for name in STRING.findall(inner):
                if name not in known:
                    yield line, f'{m.group(1)}: no schema has a parameter "{name}"'


def main(root: pathlib.Path) -> int:
    known, takes = parameters(root / "src/ir/graph"), readers(root)
    bad = 0
    for room in ROOMS:
        for file in sorted((root / "src" / room).rglob("*.[ch]")):
            for line, what in problems(file.read_text(), takes, known):
                bad += 1
                print(f"{file.relative_to(root)}:{line}: {what}")
    print(f"arguments: {bad} problems" if bad else "arguments: ok")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".")))
