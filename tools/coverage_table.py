"""Prints how many lines of each folder of src/ ran, and how many statements of each module of python/magneto.

    coverage_table.py BUILD [FOLDER]

BUILD: a folder that was built with --coverage and in which tests ran.
FOLDER: with what coverage_probe.py wrote.
A line of a header counts once, however many files include it.
"""

import ast
import collections
import json
import pathlib
import subprocess
import sys

from coverage_statements import Probes

ROOT = pathlib.Path(__file__).resolve().parents[1]


def c_lines(build):
    """source -> line -> did it run?"""
    found = collections.defaultdict(dict)
    notes = [str(p.resolve()) for p in sorted(build.rglob("*.gcno"))]
    for start in range(0, len(notes), 50):
        run = subprocess.run(
            ["gcov", "--json-format", "--stdout", *notes[start : start + 50]],
            capture_output=True, text=True, cwd=build, check=True,
        )  # fmt: skip
        for text in run.stdout.splitlines():
            unit = json.loads(text)
            for file in unit["files"]:
                path = pathlib.Path(unit["current_working_directory"], file["file"]).resolve()
                lines = found[path]
                for line in file["lines"]:
                    number = line["line_number"]
                    lines[number] = lines.get(number, False) or line["count"] > 0
    return found


def python_lines(folder):
    found = {}
    for path in (ROOT / "python" / "magneto").glob("*.py"):
        probes = Probes({})  # what no process imported did not run
        probes.visit(ast.parse(path.read_text()))
        found[path] = probes.lines
    for file in folder.glob("python-*.json"):
        for path, lines in json.loads(file.read_text()).items():
            for number, ran in lines.items():
                found[pathlib.Path(path)][int(number)] |= ran
    return found


def show(title, found, name_of):
    rows = collections.defaultdict(lambda: [0, 0])
    for path, lines in found.items():
        name = name_of(path)
        if name is None:
            continue
        for row in (rows[name], rows["all"]):
            row[0] += sum(lines.values())
            row[1] += len(lines)
    print(f"{title:<28}{'ran':>8}{'of':>8}{'':>8}")
    for name in sorted(rows, key=lambda n: (n == "all", n)):
        ran, of = rows[name]
        print(f"{name:<28}{ran:>8}{of:>8}{100 * ran / of if of else 0:>7.1f}%")


def c_folder(path):
    inside = path.is_relative_to(ROOT / "src")
    return str(path.parent.relative_to(ROOT / "src")) if inside else None


def main(build, folder=None):
    show("lines of src/", c_lines(pathlib.Path(build)), c_folder)
    if folder:
        print()
        show("statements of magneto", python_lines(pathlib.Path(folder)), lambda path: path.name)


if __name__ == "__main__":
    main(*sys.argv[1:])
