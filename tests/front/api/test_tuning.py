"""The table of limits and thresholds: each row is used, and says what it counts and why."""

import pathlib
import re

SRC = pathlib.Path(__file__).resolve().parents[3] / "src"
ROW = re.compile(r'^TUNE(?:_REAL)?\((\w+),\s*([^",]+),\s*"((?:[^"\\]|\\.)*)",\s*"((?:[^"\\]|\\.)*)"\)', re.M)


def rows():
    return ROW.findall((SRC / "tuning.def").read_text())


def test_each_row_can_be_read():
    text = (SRC / "tuning.def").read_text()
    assert len(rows()) == len(re.findall(r"^TUNE", text, re.M)) > 100


def test_each_row_is_used():
    used = set()
    for path in SRC.rglob("*.[ch]"):
        used |= set(re.findall(r"\bMG_TUNE_(\w+)", path.read_text()))
    assert {name for name, *_ in rows()} == used - {"_LAST"}


def test_each_row_has_a_unit_and_a_reason():
    assert [name for name, _, unit, why in rows() if not unit or not why] == []
