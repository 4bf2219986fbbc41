"""The Python examples of the documents run: the blocks of a page one after the other, in one namespace."""

import pathlib
import re
import warnings

import pytest

ROOT = pathlib.Path(__file__).parents[2]
PAGES = sorted(
    p for p in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")] if "```python\n" in p.read_text()
)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_examples_run(page, capsys):
    space = {"__name__": "example"}
    text = page.read_text()
    for found in re.finditer(r"^```python\n(.*?)^```", text, re.M | re.S):
        line = text.count("\n", 0, found.start()) + 1
        code = compile("\n" * line + found[1], str(page), "exec")
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)  # nothing falls back
            exec(code, space)


def test_pages_with_examples_are_found():
    assert {
        "README",
        "getting-started",
        "training",
        "dynamic-sizes",
        "numpy",
        "backends",
        "troubleshooting",
    } <= {p.stem for p in PAGES}
