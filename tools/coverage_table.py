"""Prints how much of src/ and python/magneto tests ran, and fails if that is less than it has to be.

    coverage_table.py BUILD [--least-c PERCENT] [--least-python PERCENT] [--never]

BUILD: a folder that was built with --coverage, in which tests ran; it has what coverage_probe.py wrote, too.
Out: a table of lines by folder of src/, and one of statements by module of python/magneto.
--never: the functions of src/ that did not run, and the modules of python/magneto that nobody imported.
A line of a header counts once, however many files include it.
Exit status 1: less ran than --least-c or --least-python says.
"""

import argparse
import ast
import collections
import json
import pathlib
import subprocess
import sys

from coverage_statements import Probes

ROOT = pathlib.Path(__file__).resolve().parents[1]
SOURCES = ROOT / "src"
PACKAGE = ROOT / "python" / "magneto"


def c_run(build):
    """source -> line -> did it run?  And: (source, line, function) -> did it run?"""
    found, functions = collections.defaultdict(dict), {}
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
                if not path.is_relative_to(SOURCES):
                    continue
                lines = found[path]
                for line in file["lines"]:
                    number = line["line_number"]
                    lines[number] = lines.get(number, False) or line["count"] > 0
                for function in file["functions"]:
                    key = path, function["start_line"], function["name"]
                    functions[key] = functions.get(key, False) or function["execution_count"] > 0
    return found, functions


def python_run(folder, package):
    """source -> line of a statement -> did it run?"""
    found = {}
    for path in package.rglob("*.py"):
        probes = Probes({})  # what no process imported did not run
        probes.visit(ast.parse(path.read_text()))
        found[path] = probes.lines
    for file in folder.glob("python-*.json"):
        for path, lines in json.loads(file.read_text()).items():
            known = found[pathlib.Path(path)]
            if {int(number) for number in lines} - known.keys():
                raise SystemExit(f"coverage: {path} has changed since the tests ran")
            for number, ran in lines.items():
                known[int(number)] |= ran
    return found


def show(title, found, name_of):
    """Prints the table; the percentage of all."""
    rows = collections.defaultdict(lambda: [0, 0])
    for path, lines in found.items():
        for row in (rows[name_of(path)], rows["all"]):
            row[0] += sum(lines.values())
            row[1] += len(lines)
    print(f"{title:<32}{'ran':>8}{'of':>8}")
    for name in sorted(rows, key=lambda n: (n == "all", n)):
        ran, of = rows[name]
        if of:
            print(f"{name:<32}{ran:>8}{of:>8}{100 * ran / of:>7.1f}%")
    print()
    ran, of = rows["all"]
    return 100 * ran / of if of else 0.0


def show_never(functions, statements):
    for path, line, name in sorted(key for key, ran in functions.items() if not ran):
        print(f"never ran: {path.relative_to(ROOT)}:{line}: {name}")
    for path, lines in sorted(statements.items()):
        if lines and not any(lines.values()):
            print(f"never imported: {path.relative_to(ROOT)}")


def main():
    parser = argparse.ArgumentParser(description="what tests ran")
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--least-c", type=float, default=0)
    parser.add_argument("--least-python", type=float, default=0)
    parser.add_argument("--never", action="store_true")
    options = parser.parse_args()
    lines, functions = c_run(options.build)
    statements = python_run(options.build, PACKAGE)
    reached = {
        "lines of C": show("lines of src/", lines, lambda p: str(p.parent.relative_to(SOURCES)) or "."),
        "statements of Python": show(
            "statements of magneto", statements, lambda p: str(p.relative_to(PACKAGE))
        ),
    }
    if options.never:
        show_never(functions, statements)
    least = {"lines of C": options.least_c, "statements of Python": options.least_python}
    missed = [what for what in least if reached[what] < least[what]]
    for what in missed:
        print(f"coverage: {reached[what]:.1f}% of the {what} ran; at least {least[what]:g}% have to")
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main())
