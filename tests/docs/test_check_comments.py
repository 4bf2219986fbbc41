"""tools/check_comments.py: the names in comments exist, and each kind of name that does not is found."""

import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import check_comments  # noqa: E402

sys.path.remove(str(ROOT / "tools"))

SOURCE = """
#define REASON(name, text) MG_##name,
enum MgRc { REASON(LATE, "late") };
typedef struct MgGraph { int n; } MgGraph;
int mg_graph_size(MgGraph *g) { return g->n; }
"""
RIGHT = [
    "mg_graph_size counts",
    "of the mg_graph_* functions",
    "a MgGraph",
    "MG_LATE when it is late",
    "see graph.c",
    "see ir/graph.c",
    "the files of ir/graph and src/ir",
    "aten/src/ATen/native/Copy.cpp, and/or, 1/n",
    "Python.h",
]
WRONG = [
    ("mg_graph_length counts", "mg_graph_length"),
    ("of the mg_tree_* functions", "mg_tree_"),
    ("a MgTree", "MgTree"),
    ("MG_EARLY when it is early", "MG_EARLY"),
    ("see tree.c", "tree.c"),
    ("see ir/tree.h", "ir/tree.h"),
    ("the files of ir/tree", "ir/tree"),
    ("as cuda/tree does", "cuda/tree"),
    ("as ptx/tree does", "ptx/tree"),
    ("tests/ir/test_tree.py has it", "tests/ir/test_tree.py"),
]


def found(tmp_path, suffix, comment, capsys):
    """What is printed of a repository with this comment."""
    (tmp_path / "src/ir").mkdir(parents=True)
    (tmp_path / "src/ir/graph.c").write_text(SOURCE)
    text = (
        f"/* {comment} */\n"
        if suffix == "c"
        else f'x = 1\n\n\ndef f():\n    """{comment}"""\n    # {comment}\n'
    )
    (tmp_path / f"src/commented.{suffix}").write_text(text)
    check_comments.check(tmp_path)
    return capsys.readouterr().out.splitlines()


def test_the_comments_are_right(capsys):
    assert check_comments.check(ROOT) == 0, capsys.readouterr().out


@pytest.mark.parametrize("suffix", ["c", "py"])
@pytest.mark.parametrize("comment", RIGHT)
def test_names_that_exist_are_right(tmp_path, capsys, suffix, comment):
    assert found(tmp_path, suffix, comment, capsys) == ["comments: ok"]


@pytest.mark.parametrize(("comment", "name"), WRONG)
def test_c_comments_name_what_exists(tmp_path, capsys, comment, name):
    assert found(tmp_path, "c", comment, capsys)[0] == f"src/commented.c:1: {name} does not exist"


@pytest.mark.parametrize(("comment", "name"), WRONG)
def test_python_comments_and_docstrings_name_what_exists(tmp_path, capsys, comment, name):
    lines = found(tmp_path, "py", comment, capsys)
    assert sorted(lines[:2]) == [f"src/commented.py:{n}: {name} does not exist" for n in (5, 6)]


def test_names_in_code_and_strings_are_not_looked_at(tmp_path, capsys):
    (tmp_path / "src").mkdir()
    (tmp_path / "src/a.c").write_text('const char *p = "/* mg_nothing */";\n')
    assert check_comments.check(tmp_path) == 0
