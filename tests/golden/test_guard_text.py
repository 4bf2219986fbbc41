"""The guards of guard_programs.py, as MAGNETO_LOGS=guards prints them; guards/<program>.out has them (`make accept`)."""

import pathlib
import re

import pytest
import torch

import guard_programs
from accept import assert_text

HERE = pathlib.Path(__file__).resolve().parent

# What differs between processes, folders, and versions of torch and Python.  Long lines are cut, so paths go to the end.
VOLATILE = [
    (r" at 0x[0-9a-f]+", ""),
    (r"<(code|function) (.+?), [^,<>]*:\d+>", r"<\1 \2>"),
    (r"<module '([\w.]+)' from .*", r"<module '\1'>"),
    (r"(class .*), \d+ attributes", r"\1"),
    (r"pybind11_detail_function_record_\w+", "pybind11_detail_function_record"),
]


def settled(text):
    """Without what is volatile; the guards of dicts, which come in the order of their addresses, in that of their text."""
    for pattern, by in VOLATILE:
        text = re.sub(pattern, by, text)
    dicts = re.compile(r"(?:^dict of .*\n(?:^  .*\n)*)+", re.MULTILINE)
    return dicts.sub(lambda m: "".join(sorted(re.split(r"^(?=dict of )", m[0], flags=re.MULTILINE))), text)


@pytest.mark.parametrize("program", guard_programs.PROGRAMS, ids=lambda f: f.__name__)
def test_guards(program, capfd):
    import magneto
    from magneto import _magneto

    magneto.reset()
    _magneto.set_logs("guards")
    try:
        with torch.no_grad():
            program(magneto.compile)
    finally:
        _magneto.set_logs("")
        magneto.reset()
    text = capfd.readouterr().err.replace("[magneto guards] ", "")
    assert_text(settled(text), HERE / "guards" / f"{program.__name__}.out")
