"""MAGNETO_REPORT_CHECK: the first call of each graph, beside eager and float64."""

import pytest

from pages import written

pytest.importorskip("jinja2")

PROGRAM = """
import torch, magneto


def f(x):
    y = (x.sin() @ x).exp()
    print("", end="")
    return y.cos() * 2


net = torch.nn.Linear(16, 16)
g, trained = magneto.compile(f), magneto.compile(net)
state = torch.random.get_rng_state()
for _ in range(6):
    with torch.no_grad():
        g(torch.ones(16, 16))
    trained(torch.ones(4, 16)).sum().backward()
assert torch.equal(torch.random.get_rng_state(), state)
"""


@pytest.fixture(scope="module")
def checked(tmp_path_factory):
    from magneto._report import diff

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MAGNETO_REPORT_CHECK", "1")
        patch.setenv("MAGNETO_TRIALS", "0")
        return diff.load(written(tmp_path_factory.mktemp("checked"), PROGRAM))


def test_each_graph_has_both_times_and_errors_of_each_result(checked):
    rows = {r["label"].partition(" ")[0]: r for r in checked["beside"]}
    assert len(rows) >= 2 and all(r["runs"] == 6 for r in rows.values())
    for r in rows.values():
        assert r["compiled_ms"] > 0 and r["eager_ms"] > 0
        for o in r["outputs"]:
            assert 0 <= o["eager"] < 1e-4 and 0 <= o["float64"] < 1e-4 and 0 <= o["eager_float64"] < 1e-4
    (training,) = [r for r in rows.values() if r["backward"]]
    names = [o["name"] for o in training["outputs"]]
    assert sorted(names) == ["result 0", "the gradient of bias", "the gradient of weight"]
    shapes = {o["name"]: o["shape"] for o in training["outputs"]}
    assert shapes["the gradient of weight"] == [16, 16] and shapes["the gradient of bias"] == [16]
    assert checked["verdict"]["graphs_speed"] > 0


def test_what_runs_beside_is_not_counted(checked):
    assert all(p["runs"] in (0, 6) for p in checked["plans"])
    assert checked["verdict"]["calls"] == 12
    assert checked["verdict"]["running_ms"] < sum(c["ms"] for c in checked["calls"] if not c["depth"])


def test_what_is_not_as_by_default_is_told(tmp_path):
    from magneto._report import diff

    program = PROGRAM.replace("compile(f)", "compile(f, options={'numerics': 'rounded'}, dynamic=False)")
    program = program.replace(
        "import torch, magneto", "import torch, magneto\ntorch.set_float32_matmul_precision('high')"
    )
    told = diff.load(written(tmp_path, program))["environment"]["switches"]
    values = {s["name"]: (s["value"], s["default"]) for s in told}
    assert values["torch.get_float32_matmul_precision()"] == ("high", "highest")
    assert values["compile(f) numerics"] == ("1", "0") and values["compile(f) dynamic"] == ("0", "-1")
    assert "MAGNETO_REPORT" in values and not any("mkldnn" in name for name in values)


def test_without_the_variable_nothing_runs_beside(tmp_path):
    from magneto._report import diff

    facts = diff.load(written(tmp_path, PROGRAM))
    assert facts["beside"] == [] and facts["verdict"]["graphs_speed"] is None
