"""The page of a run: its facts fit the program, and it is whole."""

import pathlib
import re
import subprocess
import sys

import pytest

from pages import BREAKING, written

pytest.importorskip("jinja2")

PROGRAM = f"""{BREAKING}
for n in (8, 8, 9, 9):
    g(torch.ones(n, 16))
model = magneto.compile(torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.LayerNorm(16)))
for _ in range(40):
    model(torch.ones(4, 16)).square().mean().backward()
"""


def made(folder, program):
    """Its facts."""
    from magneto._report import diff

    return diff.load(written(folder, program))


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    return written(tmp_path_factory.mktemp("report"), PROGRAM)


@pytest.fixture(scope="module")
def facts(page):
    from magneto._report import diff

    return diff.load(page)


def test_every_step_has_nodes_of_its_graph(facts):
    steps = 0
    for p in facts["plans"]:
        nodes = {n["node"] for n in p["graph"]}
        for s in p["steps"]:
            steps += 1
            assert s["nodes"] and set(s["nodes"]) <= nodes, s["label"]
    assert steps >= 6


def test_each_kernel_has_a_code_of_its_own(facts):
    own = [s for p in facts["plans"] for s in p["steps"] if s["own"]]
    assert all(re.fullmatch("[0-9a-f]{32}", s["text"]) for s in own)
    assert len({s["text"] for s in own}) > 3


def test_times_of_steps_and_between_them_add_up_to_those_of_the_graph(facts):
    for p in facts["plans"]:
        if p["runs"] > 1 and p["own_ms"] > 0:
            assert sum(s["total_ms"] for s in p["steps"]) + p["own_total_ms"] == pytest.approx(
                p["total_ms"], rel=1e-6
            )


def test_the_break_is_at_its_line_and_has_a_cost(facts):
    line = PROGRAM.split("\n").index('    print("", end="")') + 1
    (b,) = [b for b in facts["breaks"] if b["kind"] == "c_function"]
    assert (pathlib.Path(b["file"]).name, b["line"], b["function"]) == ("prog.py", line, "f")
    assert b["total_ms"] > 0 and b["hint"]
    states = {x["n"]: x["state"] for f in facts["files"] if f["name"] == "prog.py" for x in f["lines"]}
    assert (states[line - 1], states[line], states[line + 1]) == ("compiled", "break", "compiled")


def test_the_recompile_has_both_values(facts):
    assert ["8", "9"] in [v for r in facts["recompiles"] for v in r["values"]]


def test_ids_are_unique_and_links_land(page):
    text = page.read_text()
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    links = set(re.findall(r'href="#([^"]+)"', text))
    assert links and links <= set(ids), links - set(ids)


def test_nothing_of_the_network_is_named(page):
    text = page.read_text()
    outside = re.sub(r'<script type="application/json".*?</script>', "", text, flags=re.S)
    assert not re.findall(r"(?:src|href)=[\"']?(?:https?:)?//", outside)


TRAINED = """
import torch, magneto


def f(x, w):
    a = torch.nn.functional.gelu(x)
    b = a @ w
    return torch.nn.functional.softmax(b, -1)


g = magneto.compile(f)
for _ in range(3):
    g(torch.randn(8, 16, requires_grad=True), torch.randn(16, 16, requires_grad=True)).square().sum().backward()
"""
LINES = {"gelu": 6, "matmul": 7, "softmax": 8}


def test_kernels_of_backward_have_the_line_of_their_operation(tmp_path):
    facts = made(tmp_path, TRAINED)
    (backward,) = [p for p in facts["plans"] if p["what"] == "backward"]
    assert len(backward["steps"]) >= 4
    for s in backward["steps"]:
        assert s["places"], s["label"]
        (word,) = [w for w in LINES if w in s["label"]]
        assert [line for _, line in s["places"]] == [LINES[word]], s["label"]


def test_a_report_compared_with_itself_differs_in_nothing(page):
    done = subprocess.run(
        [sys.executable, "-m", "magneto.report", "--diff", page, page],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0 and "graphs" in done.stdout and "differs" not in done.stdout, done.stderr
    assert "Warning" not in done.stderr


def test_a_file_that_is_no_report_is_named(tmp_path):
    (tmp_path / "x.html").write_text("no")
    done = subprocess.run(
        [sys.executable, "-m", "magneto.report", "--diff", tmp_path / "x.html", tmp_path / "x.html"],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 2 and "x.html is no report" in done.stderr
