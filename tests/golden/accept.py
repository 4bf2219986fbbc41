"""Comparison with a file of expected text, which `make accept` rewrites."""

import os


def assert_text(got, path):
    if os.environ.get("MAGNETO_ACCEPT"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(got)
    assert path.exists(), f"{path} is missing: make accept"
    assert got == path.read_text(), f"not the text of {path}; if the new one is right: make accept"
