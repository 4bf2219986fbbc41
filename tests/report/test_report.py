"""The page of a run: its facts fit the program, and it is whole."""

import pathlib
import re
import subprocess
import sys
import textwrap

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


GUARDED = """
import torch, magneto


def f(x):
    if x.shape[0] > 3:
        x = x * 2
    for i in range(x.shape[1]):
        x = x + i
    return x


g = magneto.compile(f)
for rows, columns in ((4, 5), (5, 5), (6, 5), (7, 6), (8, 6), (8, 6), (3, 6)):
    g(torch.ones(rows, columns))
"""


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    return made(tmp_path_factory.mktemp("guards"), GUARDED)


def test_each_guard_has_a_cost_and_the_line_that_asked_for_it(guarded):
    timed = [g for e in guarded["entries"] for g in e["guards"] if e["hits"] > 1]
    assert timed and all(0 <= g["ns"] < 1e6 for g in timed)
    asked = {g["text"]: g["line"] for e in guarded["entries"] for g in e["guards"]}
    assert asked["(L['x'].size(0) > 3) computes to True"] == 6
    assert asked["L['x'] tensor of the recorded kind"] in (6, 7, 8, 9)


def test_guards_are_counted_when_they_turn_a_call_away(guarded):
    first = guarded["entries"][0]
    failed = {g["text"]: g["failed"] for g in first["guards"] if g["failed"]}
    assert list(failed) == ["L['x'] tensor of the recorded kind"] and failed.popitem()[1] >= 5
    assert all(not g["failed"] for g in guarded["entries"][-1]["guards"])


STRINGS = """
import torch, magneto

@magneto.compile
def breaks_at_once(x, name):
    return x * 2 if name.startswith("a") else x + 1

@magneto.compile
def breaks_behind_an_op(x, name):
    y = x * 2
    return y + 1 if name.startswith("t") else y

for i in range(400):
    for f in (breaks_at_once, breaks_behind_an_op):
        f(torch.ones(4), f"t{i}")
"""


def test_guards_that_have_failed_for_long_are_asked_less(tmp_path):
    """Each of eight entries failed twice a call: by 800 to 1600 calls, for half a microsecond each."""
    entries = made(tmp_path, STRINGS)["entries"]
    failed = [g["failed"] for e in entries for g in e["guards"] if "== 't" in g["text"]]
    assert len(failed) == 16 and max(failed) < 150
    assert sum(e["hits"] for e in entries) > 700


def test_a_size_that_the_program_fixes_has_the_line(guarded):
    (entry,) = [e for e in guarded["entries"] if any(s["fixed"] and s["value"] == 6 for s in e["sizes"])][:1]
    rows, columns = entry["sizes"]
    assert (rows["source"], rows["fixed"], columns["fixed"]) == ("L['x'].size(0)", False, True)
    assert [d["line"] for d in rows["decided"]] == [6] and [d["line"] for d in columns["decided"]] == [8]
    assert rows["range"] == "2 or more"


def test_a_line_that_makes_all_sizes_constants_is_named(tmp_path):
    program = """
    import torch, magneto

    def f(x):
        lengths = torch.tensor([x.shape[0]])
        packed = torch.nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        return packed.data * 2

    g = magneto.compile(f)
    for n in (3, 4, 5):
        g(torch.ones(1, n, 2))
    """
    facts = made(tmp_path, textwrap.dedent(program))
    assert all(v["line"] and v["text"] for v in facts["static"])


CALLING = """
import torch, magneto


class Block(torch.nn.Module):
    def forward(self, x):
        y = x.sin()
        print("", end="")
        return y + x


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.ModuleList(Block() for _ in range(2))

    def forward(self, x):
        for b in self.blocks:
            x = b(x)
        return x


@magneto.compile
def alone(x):
    return x.cos()


net = magneto.compile(Net())
for _ in range(3):
    net(torch.ones(4))
    alone(torch.ones(4))
magneto.reset()
for _ in range(5):
    net(torch.ones(4))
    alone(torch.ones(4))
"""


def test_the_tree_of_calls_has_who_called_what(tmp_path):
    """Of what ran since the reset."""
    facts = made(tmp_path, CALLING)
    calls = {c["name"]: c for c in facts["calls"]}
    assert (calls["Net"]["depth"], calls["Net"]["calls"], calls["Net"]["callable"]) == (0, 5, True)
    assert (calls["alone"]["depth"], calls["alone"]["calls"]) == (0, 5)
    assert (calls["Block.forward"]["calls"], calls["Block.forward"]["callable"]) == (10, False)
    assert calls["Block.forward"]["depth"] > calls["Net.forward"]["depth"] > 0
    assert calls["Block.forward"]["breaks"] >= 1 and calls["alone"]["graphs"]
    names = [c["name"] for c in facts["calls"]]
    assert names.index("Net") < names.index("Net.forward") < names.index("Block.forward")
    assert sum(c["own_ms"] for c in facts["calls"]) == pytest.approx(
        sum(c["ms"] for c in facts["calls"] if not c["depth"]), rel=1e-3
    )


def test_recursion_and_threads_have_places_of_their_own_in_the_tree(tmp_path):
    program = """
    import threading
    import torch, magneto

    def down(x, n):
        print("", end="")
        return down(x + 1, n - 1) if n else x

    g = magneto.compile(down)

    def work():
        for _ in range(50):
            g(torch.ones(3), 2)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    try:
        g(torch.ones(3), "no number")
    except TypeError:
        pass
    g(torch.ones(3), 0)
    """
    facts = made(tmp_path, textwrap.dedent(program))
    depths = [c["depth"] for c in facts["calls"]]
    assert depths and depths[0] == 0 and all(b <= a + 1 for a, b in zip(depths, depths[1:], strict=False))
    assert max(depths) <= 3 and sum(c["calls"] for c in facts["calls"] if not c["depth"]) == 152


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


def test_what_backward_saves_has_names_types_and_lines(tmp_path):
    program = """
    import torch, magneto

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Linear(16, 16)

        def forward(self, x):
            y = self.inner(x)
            return y.exp().tanh()

    net = Net()
    magneto.compile(net)(torch.randn(8, 16, requires_grad=True)).sum().backward()
    """
    facts = made(tmp_path, textwrap.dedent(program))
    (joint,) = [p for p in facts["plans"] if p["what"] == "joint"]
    saved = {s["name"]: s for s in joint["saved"]}
    assert (saved["inner.weight"]["type"], saved["inner.weight"]["bytes"]) == ("f32[16, 16]", 1024)
    others = [s for s in joint["saved"] if s["kind"] != "input"]
    assert others and all(s["type"] == "f32[8, 16]" and s["bytes"] == 512 for s in others)
    assert {s["line"] for s in others} == {10, 11}
    # Op by op: the product, exp and tanh at least, until backward has read them.
    assert max(joint["eager"]) >= 3 * 512


def test_memory_op_by_op_stands_beside_that_of_the_plan(tmp_path):
    program = """
    import torch, magneto

    def f(x):
        for _ in range(10):
            x = (x.sin() @ x).cos()
        return x

    g = magneto.compile(f)
    g(torch.ones(64, 64))
    magneto.report("checked.html", check=(g, torch.ones(64, 64)))
    """
    made(tmp_path, textwrap.dedent(program))
    from magneto._report import diff

    facts = diff.load(tmp_path / "checked.html")
    (plan,) = facts["plans"]
    assert 2 * 64 * 64 * 4 <= max(plan["eager"]) <= 4 * 64 * 64 * 4
    assert 2 * 64 * 64 * 4 <= facts["check"]["eager_peak"] <= 5 * 64 * 64 * 4


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


def test_a_place_that_is_compiled_for_several_reasons_is_one_line_of_what_costs_time():
    from magneto._report import collect

    none = {key: [] for key in ("breaks", "fallbacks", "places", "left", "plans")}
    row = {"file": "/a/b.py", "line": 3, "function": "f", "total_ms": 9.0, "entries": 3}
    rows = [{**row, "source": "x", "what": f"== {i}", "id": f"r{i}"} for i in range(3)]
    other = {**row, "line": 4, "source": "y", "what": "is None", "id": "r9"}
    found = collect._warnings({**none, "recompiles": [*rows, other]})
    assert [w["text"] for w in found] == [
        "b.py:3: compiled 3 times, x == 0; and 2 other reasons",
        "b.py:4: compiled 3 times, y is None",
    ]
    assert found[0]["ms"] == 9 and found[0]["to"] == "r0"


def test_files_of_a_package_are_shown_with_its_name():
    from magneto._report.numbers import file_name

    assert file_name("/torch/autograd/__init__.py") == "autograd/__init__.py"
    assert file_name("/a/b.py") == "b.py" and file_name("__init__.py") == "__init__.py"


def test_a_function_with_a_closure_begins_at_its_first_line(tmp_path):
    program = """
    import magneto, torch

    def deco(f):
        def inner(x):
            return f(x) * 2
        return inner

    g = magneto.compile(deco(lambda x: x + 1))
    for n in (3, 4, 5):
        g(torch.ones(n))
    """
    facts = made(tmp_path, textwrap.dedent(program))
    assert facts["recompiles"] and all(r["line"] == 5 for r in facts["recompiles"])
