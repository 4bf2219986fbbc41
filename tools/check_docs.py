#!/usr/bin/env python3
"""Checks the documents: python3 tools/check_docs.py [--src warn|error] [ROOT]

- A sentence has at most 25 words; code, tables and quoted output do not count.
- README.md and each architecture page have at most 150 lines.
- Links lead to files that exist; anchors are headings, under GitHub's rule and under the site's.
- The variables, log channels and stages of src/*.def are in docs/environment.md, and nothing else is.
- The kinds of graph breaks are in docs/troubleshooting.md, with the hints that users see.
- Each C file is named on a page of the architecture.
- Names in backticks exist: files, C functions, targets of make, names of the Python package.
- Pages for users name no sources.
- Each answer of docs/questions.md is the text of the heading that it links to.

Names of sources that do not exist are warnings with --src warn (the default).
Exit status 1: something is wrong.
"""

from __future__ import annotations

import argparse
import ast
import fnmatch
import os
import pathlib
import re
import sys
from collections.abc import Iterator
from typing import NamedTuple

import layers

WORDS = 25
LINES = 150
QUESTIONS = 20
SHOWN = 10  # warnings
ROOMS = {room.split("/")[0] for level in layers.ROOMS for room in level if room}
TOP = ("src", "python", "tests", "bench", "tools", "docs", "requirements", ".ci")
SOURCE = (".c", ".h", ".def")
FILES = (*SOURCE, ".py", ".md", ".sh", ".txt", ".toml", ".yml", ".mg")
FOR_DEVELOPERS = ("architecture", "contributing", "questions", "glossary", "CONTRIBUTING", "CHANGELOG")
OTHERS = ("Python.h",)  # names of files that are not ours
SKIPPED = (".git", ".venv", ".venv-docs", "site", "build", "build-asan", "build-asan-ext", "__pycache__")


class Problem(NamedTuple):
    """One thing that is wrong."""

    where: str
    text: str
    source: bool = False  # a name of a source that does not exist


class Page:
    """A document: its lines without code, comments and front matter, its headings and their anchors."""

    def __init__(self, root: pathlib.Path, path: pathlib.Path) -> None:
        self.path = path
        self.name = str(path.relative_to(root))
        self.text = path.read_text()
        self.lines = list(_without_code(self.text))
        self.headings = [m[1].strip() for line in self.lines if (m := re.match(r"#{1,6}\s+(.*)", line))]

    def anchors(self) -> set[str]:
        """Anchors that lead to a heading on GitHub and in the site alike."""
        return {_github(h) for h in self.headings} & {_site(h) for h in self.headings}


def _without_code(text: str) -> Iterator[str]:
    """The lines; those of code blocks and comments are empty."""
    fence, comment = "", False
    for line in text.splitlines():
        found = re.match(r"\s*(```+|~~~+)", line)
        if fence:
            if found and found[1].startswith(fence):
                fence = ""
            yield ""
        elif found:
            fence = found[1]
            yield ""
        elif comment or line.lstrip().startswith("<!--"):
            comment = "-->" not in line
            yield ""
        else:
            yield line


def _plain(text: str) -> str:
    """Markdown as it is read: links and emphasis are their text, code is one word."""
    text = re.sub(r"``[^`]+``|`[^`]+`", "CODE", text)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return re.sub(r"\*\*|__|<[^>]+>", "", text)


def _github(heading: str) -> str:
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower().replace("`", "")
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def _site(heading: str) -> str:
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower().replace("`", "")
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", text).strip())


def _is_table(line: str) -> bool:
    return line.lstrip().startswith("|")


# ---- sentences ----


def _blocks(lines: list[str]) -> Iterator[tuple[int, str]]:
    """Paragraphs, list items and headings with the number of their first line."""
    start, block = 0, ""
    for number, line in enumerate([*lines, ""], 1):
        item = re.match(r"\s*([-*+]|\d+\.)\s+", line)
        ends = (
            not line.strip()
            or item
            or line.startswith("#")
            or _is_table(line)
            or line.startswith(("!!!", ":::"))
        )
        if ends and block:
            yield start, block
            block = ""
        if not line.strip() or _is_table(line) or line.startswith("!!!"):
            continue
        if not block:
            start = number
        block += " " + re.sub(r"^\s*(([-*+]|\d+\.|#+|>)\s+)?", "", line)
        if line.startswith("#"):
            yield start, block
            block = ""


def sentences(lines: list[str]) -> Iterator[tuple[int, str]]:
    """Each sentence with the line on which its paragraph begins."""
    for number, block in _blocks(lines):
        for sentence in re.split(r"(?<=[.!?])[\"')*]*\s+", _plain(block).strip()):
            yield number, sentence


def _words(sentence: str) -> int:
    return sum(any(c.isalnum() for c in word) for word in sentence.split())


def check_sentences(page: Page) -> Iterator[Problem]:
    """No sentence of more than WORDS words."""
    for number, sentence in sentences(page.lines):
        if _words(sentence) > WORDS:
            yield Problem(f"{page.name}:{number}", f"{_words(sentence)} words: {sentence[:70]}...")


def check_length(page: Page) -> Iterator[Problem]:
    """README and architecture pages are short."""
    count = len(page.text.splitlines())
    short = page.name == "README.md" or page.name.startswith("docs/architecture")
    if short and count > LINES:
        yield Problem(page.name, f"{count} lines > {LINES}")


# ---- links ----


def _links(page: Page) -> Iterator[tuple[int, str, str]]:
    for number, line in enumerate(page.lines, 1):
        for text, target in re.findall(
            r"\[([^\]]*)\]\(([^)\s]+)\)", re.sub(r"(?<!\[)`[^`]+`(?!\])", "", line)
        ):
            yield number, text, target


def _target(
    page: Page, target: str, pages: dict[pathlib.Path, Page]
) -> tuple[pathlib.Path, Page | None, str]:
    path, _, anchor = target.partition("#")
    file = (page.path.parent / path).resolve() if path else page.path
    return file, pages.get(file), anchor


def check_links(page: Page, pages: dict[pathlib.Path, Page]) -> Iterator[Problem]:
    """Files and headings that links lead to exist."""
    for number, _, target in _links(page):
        if re.match(r"[a-z]+:", target):
            continue
        file, found, anchor = _target(page, target, pages)
        if not file.exists():
            yield Problem(f"{page.name}:{number}", f"link to {target}: no such file")
        elif anchor and (found is None or anchor not in found.anchors()):
            yield Problem(f"{page.name}:{number}", f"link to {target}: no heading with this anchor")


def check_questions(page: Page, pages: dict[pathlib.Path, Page]) -> Iterator[Problem]:
    """Each row is a question and a link whose text is the heading that answers it."""
    rows = [line for line in page.lines if _is_table(line) and "?" in line]
    if len(rows) < QUESTIONS:
        yield Problem(page.name, f"{len(rows)} questions < {QUESTIONS}")
    for row in rows:
        links = re.findall(r"\[([^\]]+)\]\(([^)\s]+#[^)\s]+)\)", row)
        if len(links) != 1:
            yield Problem(page.name, f"not one link to a heading: {row[:70]}")
            continue
        text, target = links[0]
        _, found, anchor = _target(page, target, pages)
        answers = [h for h in found.headings if _site(h) == anchor] if found else []
        if answers and text not in answers:
            yield Problem(page.name, f"the heading is {answers[0]!r}, not {text!r}")


# ---- names ----


class Tree:
    """What the repository has: files, C names, targets of make, public names of the package."""

    def __init__(self, root: pathlib.Path) -> None:
        self.files: list[str] = []
        for folder, folders, files in os.walk(root):
            folders[:] = [f for f in folders if f not in SKIPPED]
            self.files += [os.path.relpath(os.path.join(folder, f), root) for f in files]
        self.folders = {str(p) for f in self.files for p in pathlib.PurePath(f).parents}
        self.c_names: set[str] = set()
        for file in self.files:
            if file.startswith("src/") and file.endswith(SOURCE):
                self.c_names |= set(re.findall(r"\bmg_\w+", (root / file).read_text()))
        makefile = root / "Makefile"
        text = makefile.read_text() if makefile.exists() else ""
        self.targets = set(re.findall(r"^([a-z][a-z-]*):", text, re.M))
        self.public = set(_public(root / "python" / "magneto"))

    def has(self, name: str) -> bool:
        """Is there such a file or folder, at the top, in src/, or anywhere?  `*` stands for any letters."""
        name = name.rstrip("/")
        ends = (name, "src/" + name, "*/" + name)
        return any(fnmatch.fnmatchcase(f, e) for e in ends for f in (*self.files, *self.folders))


def _public(package: pathlib.Path) -> Iterator[str]:
    init = package / "__init__.py"
    if not init.exists():
        return
    for file in package.rglob("*.py"):
        yield file.stem
    for folder in package.iterdir():
        yield folder.name
    for node in ast.parse(init.read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            yield from ast.literal_eval(node.value)
    yield from ("__version__", "_magneto")


def _is_file(name: str) -> bool:
    first = name.split("/")[0]
    if not re.fullmatch(r"[\w./*-]+", name) or name.startswith(("/", ".")):
        return False
    return name.endswith(FILES) or ("/" in name and first in (*TOP, *ROOMS))


def _is_source(name: str) -> bool:
    return name.endswith(SOURCE) or name.startswith("src/") or ("/" in name and name.split("/")[0] in ROOMS)


def check_names(page: Page, tree: Tree) -> Iterator[Problem]:
    """What stands in backticks exists."""
    developers = any(word in page.name for word in FOR_DEVELOPERS)
    for number, line in enumerate(page.lines, 1):
        where = f"{page.name}:{number}"
        for name in re.findall(r"`([^`]+)`", line):
            if _is_file(name):
                if not developers and _is_source(name):
                    yield Problem(where, f"`{name}`: a page for users names a source")
                elif name not in OTHERS and not tree.has(name):
                    moved = _is_source(name) or name.startswith("python/") or "/" not in name
                    yield Problem(where, f"`{name}`: no such file", moved)
            for function in re.findall(r"^(mg_\w+)(?:\(.*\))?$", name):
                if function not in tree.c_names:
                    yield Problem(where, f"`{function}`: no such name in src/", True)
            for target in re.findall(r"^make ([a-z][a-z-]*)", name):
                if target not in tree.targets:
                    yield Problem(where, f"`make {target}`: no such target")
            for public in re.findall(r"\bmagneto\.(\w+)", name):
                if public not in tree.public:
                    yield Problem(where, f"`magneto.{public}`: no such name in the package")


def check_mentions(pages: dict[pathlib.Path, Page], tree: Tree) -> Iterator[Problem]:
    """Each C file is named on a page of the architecture."""
    named = {
        name
        for page in pages.values()
        if page.name.startswith("docs/architecture")
        for line in page.lines
        for name in re.findall(r"`([\w*/]+\.c)`", line)
    }
    for file in sorted(tree.files):
        if not file.startswith("src/") or not file.endswith(".c"):
            continue
        if not any(fnmatch.fnmatchcase(file, f"*/{name}") for name in named):
            yield Problem(file, "no page of the architecture names this file", True)


# ---- tables of the sources ----


def _table(path: pathlib.Path, row: str) -> dict[str, str]:
    """Rows ROW(name, "text") of a .def file; the text is its last string."""
    if not path.exists():
        return {}
    text = re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.S)
    return {
        name: rest[-1] if (rest := re.findall(r'"((?:[^"\\]|\\.)*)"', body)) else ""
        for name, body in re.findall(rf"^{row}\((\w+)((?:[^()\"]|\"(?:[^\"\\]|\\.)*\")*)\)", text, re.M)
    }


def _rows(page: Page, heading: str) -> dict[str, str]:
    """First cell (without backticks) -> line of the tables under a heading."""
    rows: dict[str, str] = {}
    inside = False
    for line in page.lines:
        if line.startswith("#"):
            inside = line.lstrip("# ").strip() == heading
        elif inside and _is_table(line) and "`" in line.split("|")[1]:
            rows[line.split("|")[1].strip(" `")] = line
    return rows


def _compare(page: Page, heading: str, table: dict[str, str], prefix: str = "") -> Iterator[Problem]:
    rows = _rows(page, heading)
    for name in sorted({prefix + n for n in table} - set(rows)):
        yield Problem(page.name, f"`{name}` is missing under {heading!r}")
    for name in sorted(set(rows) - {prefix + n for n in table}):
        yield Problem(page.name, f"`{name}` under {heading!r} is not in the sources")
    for name, text in table.items():
        line = rows.get(prefix + name)
        if line is not None and text not in line:
            yield Problem(page.name, f"`{prefix + name}`: the sources say {text!r}")


def check_tables(root: pathlib.Path, pages: dict[pathlib.Path, Page]) -> Iterator[Problem]:
    """Tables of the documents that repeat tables of the sources."""
    environment = pages.get(root / "docs" / "environment.md")
    variables = _table(root / "src" / "env.def", "ENV")
    if environment:
        yield from _compare(environment, "Variables", variables, "MAGNETO_")
        yield from _compare(environment, "Log channels", _table(root / "src" / "dumps.def", "DUMP"))
        yield from _compare(environment, "Stages", _table(root / "src" / "stages.def", "STAGE"))
    breaks = next(iter(sorted(root.glob("src/**/break*.def"))), None)
    trouble = pages.get(root / "docs" / "troubleshooting.md")
    if trouble and breaks:
        kinds = {k: v for k, v in _table(breaks, "BREAKCODE").items() if k not in ("none", "forced")}
        for problem in _compare(trouble, "Kinds of graph breaks", kinds):
            yield problem._replace(source=True)
    for page in pages.values():
        for name in sorted(set(re.findall(r"MAGNETO_[A-Z]+(?:_[A-Z]+)*", page.text))):
            if name.removeprefix("MAGNETO_") not in variables:
                yield Problem(page.name, f"{name} is not in src/env.def")


# ---- all ----


def documents(root: pathlib.Path) -> dict[pathlib.Path, Page]:
    """Every document of the repository by its path."""
    paths = [*sorted(root.glob("*.md")), *sorted((root / "docs").rglob("*.md"))]
    return {p.resolve(): Page(root, p) for p in paths}


def check(root: pathlib.Path) -> list[Problem]:
    """Everything that is wrong with the documents of a repository."""
    root = root.resolve()
    pages = documents(root)
    tree = Tree(root)
    found: list[Problem] = []
    for page in pages.values():
        found += [
            *check_sentences(page),
            *check_length(page),
            *check_links(page, pages),
            *check_names(page, tree),
        ]
        if page.name == "docs/questions.md":
            found += check_questions(page, pages)
    return [*found, *check_mentions(pages, tree), *check_tables(root, pages)]


def main() -> int:
    """Prints the problems; 1 when one of them is an error."""
    parser = argparse.ArgumentParser(description="checks the documents")
    parser.add_argument(
        "--src", choices=("warn", "error"), default="warn", help="names of sources that do not exist"
    )
    parser.add_argument("root", nargs="?", default=pathlib.Path(__file__).parents[1], type=pathlib.Path)
    options = parser.parse_args()
    found = check(options.root)
    warnings = [p for p in found if p.source and options.src == "warn"]
    errors = [p for p in found if p not in warnings]
    for problem in warnings[:SHOWN]:
        print(f"warning: {problem.where}: {problem.text}")
    for problem in errors:
        print(f"{problem.where}: {problem.text}")
    print(f"documents: {len(errors)} problem(s), {len(warnings)} warning(s)" if found else "documents: ok")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
