"""Schemas: every one that torch prints parses, and each row of tensor_ops.def is the installed torch's."""

import pathlib
import re
import subprocess

import pytest
import torch

ROOT = pathlib.Path(__file__).resolve().parents[2]
MGOPT = ROOT / "build" / "mgopt"


def parsed(schemas):
    """The lines `mgopt -schema` prints for schema texts, split at '|'."""
    run = subprocess.run([MGOPT, "-schema"], input="\n".join(schemas), capture_output=True, text=True)
    lines = run.stdout.split("\n")[:-1]
    assert len(lines) == len(schemas)
    assert not [line for line in lines if line.startswith("error")], run.stdout
    return [line.split("|", 6) for line in lines]


@pytest.fixture(scope="module")
def schemas():
    return torch._C._jit_get_all_schemas()


def test_every_schema_parses(schemas):
    rows = parsed([str(s) for s in schemas])
    for s, row in zip(schemas, rows):
        if "..." in str(s):
            continue
        assert row[0] == s.name and row[1] == s.overload_name
        params = [p.split(":")[0] for p in row[6].split()]
        names = [a.name for a in s.arguments]
        assert len(params) >= len(names) and params[0:1] == names[0:1]
        assert int(row[3]) == len(s.returns)
        writes = any(a.alias_info is not None and a.alias_info.is_write for a in s.arguments)
        assert row[4][0] == str(int(writes)), s


def test_numbered_alias_sets():
    """custom_op names its alias sets a0, a1, ...: each is a set of its own, and a writing result belongs to its argument's."""
    text = "my::op(Tensor(a0!) x, Tensor y, Tensor(a2!) z) -> Tensor(a2!)"
    row = parsed([text, text.replace("a0", "a").replace("a2", "b")])
    assert row[0][3:] == row[1][3:] and row[0][4][0] == "1"
    assert row[0][6].count("!") == 2


def rows_of_table():
    text = "".join(p.read_text() for p in sorted((ROOT / "src" / "ir" / "graph").glob("ops_*.def")))
    return re.findall(r'(?m)^TOP\((\w+), "([^"]*)",\s*"((?:[^"\\]|\\.)*)"', text)


def test_rows_are_torchs(schemas):
    known = {str(s) for s in schemas}
    # Operators that another version of torch has, not this one: no row can differ from theirs.
    removed = {
        full for _, full, _ in rows_of_table() if not hasattr(torch.ops.aten, full[6:].partition(".")[0])
    }
    rows = [(full, text) for _, full, text in rows_of_table() if full.startswith("aten::")]
    wrong = [full for full, text in rows if full not in removed and text.replace('\\"', '"') not in known]
    assert len(rows) > 1000 and len({full for full, _ in rows} & removed) < 10
    assert not wrong


def test_inplace_rows_have_twins():
    rows = [(full, text.replace('\\"', '"')) for _, full, text in rows_of_table()]
    lack = [
        full for (full, _), row in zip(rows, parsed([t for _, t in rows])) if row[4][0] == "1" and not row[5]
    ]
    # out= factories have no twin (the functional form takes dtype and device); the rest needs more than one twin.
    allowed = {
        "aten::rrelu_with_noise",
        "aten::fill_diagonal_",
        "aten::polygamma_",
        "aten::resize_",
        "aten::set_.source_Tensor",
    }
    assert not [
        n for n in lack if n not in allowed and "out" not in n and "fused" not in n and "_batch_norm" not in n
    ]
