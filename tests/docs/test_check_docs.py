"""tools/check_docs.py: the documents are right, and each rule finds what breaks it."""

import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
PREFIX = "MAGNETO" + "_"  # no variable of ours
sys.path.insert(0, str(ROOT / "tools"))
import check_docs  # noqa: E402

sys.path.remove(str(ROOT / "tools"))


def problems(root, **files):
    """What is wrong with a repository of these documents (README, or docs/NAME)."""
    (root / "docs").mkdir(exist_ok=True)
    for name, text in files.items():
        (root / (f"{name}.md" if name.isupper() else f"docs/{name}.md")).write_text(text)
    return [f"{p.where}: {p.text}" for p in check_docs.check(root)]


def test_the_documents_are_right():
    assert [p for p in check_docs.check(ROOT) if not p.source] == []


def test_a_right_page_has_no_problems(tmp_path):
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "x.py").write_text("")
    text = (
        "# Top\n\nA sentence. [Here](#top), [there](other.md#a-b-c).\n\n```\n"
        + "word " * 30
        + "\n```\n| "
        + "word " * 30
        + "|\n`tools/x.py`\n"
    )
    assert problems(tmp_path, page=text, other="# A `b`: c?\n") == []


LONG = "one " * 26


@pytest.mark.parametrize(
    "text",
    [
        LONG + ".",
        f"- {LONG}",
        f"Short one. {LONG}",
        f"# {LONG}",
        f"> {LONG}",
        "[" + LONG + "](#x)",
        f"Next come lower words. oneDNN {LONG}",
        "one\n" * 26,
    ],
)
def test_long_sentences(tmp_path, text):
    assert any("words:" in p for p in problems(tmp_path, page="# x\n\n" + text))


def test_sentences_of_the_limit_pass(tmp_path):
    right = "one " * 25
    assert (
        problems(tmp_path, page=f"# x\n\n{right}. {right}\n\n- {right}\n- {right}\n\n`{LONG}` {right[:-4]}\n")
        == []
    )


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("[a](missing.md)", "no such file"),
        ("[a](other.md#nothing)", "no heading"),
        ("[a](#nothing)", "no heading"),
        ("`tools/missing.py`", "no such file"),
        ("`tests/front/test_missing.py`", "no such file"),
        ("`mg_missing()`", "no such name in src"),
        ("`make missing`", "no such target"),
        ("`magneto.missing`", "no such name in the package"),
        ("`src/a.c`", "a page for users names a source"),
        (PREFIX + "MISSING", "not in src/env.def"),
    ],
)
def test_names_and_links(tmp_path, text, wrong):
    for folder, name, content in (
        ("src", "a.c", ""),
        ("python/magneto", "__init__.py", '__all__ = ["compile"]'),
    ):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / name).write_text(content)
    right = "# right\n\n[a](page.md#x), `make right`, `magneto.compile`\n"
    (tmp_path / "Makefile").write_text("right:\n")
    found = [p for p in problems(tmp_path, page=f"# x\n\n{text}\n", other=right) if "architecture" not in p]
    assert len(found) == 1 and wrong in found[0] and found[0].startswith("docs/page.md")


def test_sources_on_pages_for_developers(tmp_path):
    (tmp_path / "src" / "ir").mkdir(parents=True)
    (tmp_path / "src" / "ir" / "graph.def").write_text("")
    right = "`graph.def`, `ir/graph.def`, `src/ir`, `src/ir/*.def`, `Python.h`\n"
    assert problems(tmp_path, glossary=right) == []
    for wrong in "`missing.def`", "`middle/graph.def`", "`src/it/graph.def`", "`m*.def`":
        (found,) = problems(tmp_path, glossary=right + wrong)
        assert "no such file" in found


def test_lengths(tmp_path):
    line = "A line.\n\n"
    found = problems(tmp_path, README=line * 76, page=line * 76, architecture=line * 76)
    assert [p.split(":")[0] for p in found] == ["README.md", "docs/architecture.md"]


def tables(root, variables):
    (root / "src").mkdir()
    (root / "src" / "env.def").write_text(
        'ENV(ONE, switch, "", "0", "what it means")\nENV(TWO, words, X, "", "more")\n'
    )
    (root / "src" / "dumps.def").write_text('DUMP(graph, "the graph")\n')
    text = f"# E\n\n## Variables\n\n{variables}\n\n## Log channels\n\n| `graph` | the graph |\n"
    return problems(root, environment=text)


RIGHT = f"| `{PREFIX}ONE` | what it means |\n| `{PREFIX}TWO` | more |"


@pytest.mark.parametrize(
    ("variables", "wrong"),
    [
        (RIGHT.replace(f"| `{PREFIX}TWO` | more |", ""), f"`{PREFIX}TWO` is missing"),
        (RIGHT.replace("more", "else"), "the sources say 'more'"),
        (RIGHT + "\n| `OTHER` | |", "`OTHER` under 'Variables' is not in the sources"),
    ],
)
def test_tables_of_the_sources(tmp_path, variables, wrong):
    (found,) = tables(tmp_path, variables)
    assert wrong in found


def test_right_tables_have_no_problems(tmp_path):
    assert tables(tmp_path, RIGHT) == []


def test_breaks_are_listed(tmp_path):
    (tmp_path / "src" / "x").mkdir(parents=True)
    (tmp_path / "src" / "x" / "breaks.def").write_text(
        'BREAKCODE(op, "call (it) elsewhere")\nBREAKCODE(none, "")\n'
    )
    assert (
        problems(
            tmp_path, troubleshooting="# T\n\n## Kinds of graph breaks\n\n| `op` | call (it) elsewhere |\n"
        )
        == []
    )
    (found,) = problems(tmp_path, troubleshooting="# T\n\n## Kinds of graph breaks\n\n| `op` | here |\n")
    assert "call (it) elsewhere" in found


def test_questions(tmp_path):
    rows = "| Is it? | [Yes it is](page.md#yes-it-is) |\n" * 20
    page = "# Yes it is\n"
    assert problems(tmp_path, page=page, questions=rows) == []
    assert any(
        "19 questions" in p for p in problems(tmp_path, page=page, questions=rows.replace(rows[:43], "", 1))
    )
    assert any(
        "the heading is" in p
        for p in problems(tmp_path, page=page, questions=rows.replace("[Yes it is]", "[No]", 1))
    )
    assert any("no heading" in p for p in problems(tmp_path, page="# Now\n", questions=rows))
    assert any("not one link" in p for p in problems(tmp_path, page=page, questions=rows + "| Why? | so |\n"))


def test_each_c_file_is_named(tmp_path):
    (tmp_path / "src" / "ir").mkdir(parents=True)
    (tmp_path / "src" / "ir" / "graph.c").write_text("")
    assert any("names this file" in p for p in problems(tmp_path, architecture="# A\n"))
    assert problems(tmp_path, architecture="# A\n\n`graph.c`\n") == []
