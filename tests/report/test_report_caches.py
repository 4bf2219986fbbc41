"""What the page says of plans on disk, and of the code of kernels."""

import re

import pytest
import torch

from pages import ROOT, written

pytest.importorskip("jinja2")

PROGRAM = """
import torch, magneto

def f(x):
    for _ in range(40):
        x = (x.sin() @ x).cos()
    return x

g = magneto.compile(f)
g(torch.ones(16, 16))
"""


@pytest.fixture
def plans(tmp_path, monkeypatch):
    """Runs the program with a cache of its own; what the page says of the plan of its graph."""
    from magneto._report import diff

    cache = tmp_path / "cache"
    monkeypatch.setenv("MAGNETO_CACHE_DIR", str(cache))

    def run(program=PROGRAM, **env):
        for name, value in env.items():
            monkeypatch.setenv(name, value)
        (plan,) = diff.load(written(tmp_path, program))["plans"]
        return plan["disk"]["result"], plan["disk"]["why"], plan["origins"]

    run.cache = cache
    return run


def test_a_plan_is_missing_once_and_there_from_then_on(plans):
    result, why, origins = plans()
    assert (result, why) == ("miss", "no plan of this graph was there; it is now")
    assert origins["compiled"] and not origins["disk"]
    result, why, origins = plans()
    assert (result, why) == ("hit", "a run without a report takes it")
    assert origins["disk"] and not origins["compiled"]


def test_what_differs_from_a_plan_of_the_same_graph_is_named(plans):
    plans(OMP_NUM_THREADS="2")
    result, why, _ = plans(OMP_NUM_THREADS="1")
    assert result == "miss" and "another number of torch's threads: 2 there, 1 here" in why
    result, why, _ = plans(PROGRAM.replace("compile(f)", "compile(f, options={'numerics': 'rounded'})"))
    assert result == "miss" and "another option numerics: 0 there" in why


def test_files_that_are_not_read_are_named(plans):
    plans()
    (file,) = plans.cache.glob("*.plan")
    file.chmod(0o666)
    assert plans()[:2] == ("refused", "its file belongs to somebody else, or others may write to it")
    file.unlink(missing_ok=True)
    plans()
    (file,) = plans.cache.glob("*.plan")
    file.write_bytes(file.read_bytes()[:-1])
    result, why, _ = plans()
    assert result == "refused" and "damaged" in why
    assert plans()[0] == "hit"


def test_why_a_plan_is_not_kept(plans):
    small = PROGRAM.replace("range(40)", "range(1)")
    assert plans(small)[0] == "not kept"
    many = PROGRAM + "\nmagneto.reset()\ng = magneto.compile(f, dynamic=True)\ng(torch.ones(5, 5))\n"
    many = many.replace("g(torch.ones(16, 16))", "")
    assert plans(many)[:2] == ("not kept", "its sizes are symbols; the kernels are kept")
    result, why, _ = plans(MAGNETO_CACHE="0")
    assert result == "off" and "MAGNETO_CACHE" in why


def test_every_fate_has_words():
    """The names are those of the C core."""
    from magneto._report import caches

    text = (ROOT / "src/driver/plan_store.c").read_text()
    names = set(re.findall(r'\[MG_SF_\w+\] = "(\w+)"', text)) - {"kept"}
    assert names == set(caches._PLANS)


def step(key, language, ms):
    return {"key": key, "language": language, "code": f"text of {key}", "loops": "", "total_ms": ms}


def test_kernels_of_a_gpu_show_their_ptx_and_no_assembly():
    from magneto._report import collect

    plans = [{"steps": [step("a", "PTX", 2.0), step("b", "PTX", 1.0)]}]
    texts = collect._texts(plans)
    assert texts == {
        "a": {"nests": "", "PTX": "text of a"},
        "b": {"nests": "", "PTX": "text of b"},
    }
    assert [s["text"] for s in plans[0]["steps"]] == ["a", "b"]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_a_page_of_a_gpu_has_the_ptx_of_its_kernels(tmp_path):
    from magneto._report import diff

    program = PROGRAM.replace("torch.ones(16, 16)", "torch.ones(16, 16, device='cuda')")
    (plan,) = diff.load(written(tmp_path, program))["plans"]
    assert plan["language"] == "PTX" and plan["disk"]["result"] == "not kept"
    assert any(s["text"] for s in plan["steps"] if s["own"])
