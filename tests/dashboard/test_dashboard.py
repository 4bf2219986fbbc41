"""The dashboard: what a cell measures, what counts as trouble, and what the page shows."""

import gc
import html.parser
import json
import os
import subprocess
import sys

import numpy
import pytest
import torch

from bench import cell, dashboard
from bench.models import MODELS, Model, resized


def times(speed, least, most):
    return {
        "eager": {"ms": speed},
        "magneto": {"ms": 1.0, "speed": speed, "least": least, "most": most},
        "rounds": 9,
    }


def figures(speed=1.5, least=1.4, most=1.6, **other):
    return {
        "cold_ms": 90.0,
        "warm_ms": 9.0,
        "difference": 1e-7,
        "judge": True,
        "error": 1e-7,
        "eager_error": 1e-7,
        "right": True,
        "times": times(speed, least, most),
        "host_us": 1.0,
        "peak_mib": {"eager": 2.0, "magneto": 1.0},
        "fallbacks": 0,
        "peers_failed": {},
        **other,
    }


def a_run(date, **cells):
    return {
        "date": date,
        "commit": "abc1234",
        "machine": "a <machine>",
        "device": "cpu",
        "threads": 1,
        "quick": True,
        "load": 0.5,
        "versions": {"torch": "2"},
        "cells": {f"{k} infer float32": v for k, v in cells.items()},
    }


def test_there_are_71_models():
    groups = [m.group for m in MODELS.values()]
    counts = {g: groups.count(g) for g in groups}
    assert counts == {"transformers": 29, "timm": 18, "torchvision": 9, "language": 5, "programs": 10}


@pytest.mark.parametrize("name", [name for name, m in MODELS.items() if m.group == "programs"])
def test_programs_run_in_training_and_over_five_sizes(name):
    model = MODELS[name]
    module, args, kwargs = model.make()
    for batch in model.sizes:
        some, named = resized(model, args, kwargs, batch)
        with torch.no_grad():
            assert cell.tensors(module.train()(*some, **named))


def test_rows_are_repeated_but_not_of_whole_arguments():
    model = Model("", lambda: (), whole=(1, "w"))
    args, kwargs = resized(model, (torch.arange(2), torch.arange(2)), {"w": torch.arange(2), "x": 3}, 5)
    assert args[0].tolist() == [0, 1, 0, 1, 0] and args[1].tolist() == [0, 1]
    assert kwargs["w"].tolist() == [0, 1] and kwargs["x"] == 3


def test_dropout_is_off():
    net = torch.nn.Sequential(torch.nn.Dropout(0.5), torch.nn.TransformerEncoderLayer(8, 2, 8)).train()
    cell.without_dropout(net)
    x = torch.randn(3, 2, 8)
    assert torch.equal(net(x), net(x))


@pytest.mark.parametrize("mode", ["infer", "train"])
def test_a_cell_is_measured_and_right(mode):
    c = cell.measure("programs/sac", mode, "float32", "cpu", 0.01, [])
    assert c["right"] and c["judge"] and not c["fallbacks"]
    assert c["times"]["magneto"]["least"] <= c["times"]["magneto"]["speed"] <= c["times"]["magneto"]["most"]
    assert c["sizes"]["breaks"] == 0 and c["sizes"]["graphs"] >= 1
    assert dashboard.verdict(c) in ("pass", "slow")


def test_a_wrong_result_is_not_right():
    net = torch.nn.Linear(4, 4)
    runs = cell.Runs(net, (torch.randn(2, 4),), {}, "infer", "float32")
    eager = runs.call(net, net)
    assert cell.accuracy(runs, eager, eager)["right"]
    assert not cell.accuracy(runs, eager, lambda: [eager()[0] * 1.001])["right"]
    assert not cell.accuracy(runs, eager, lambda: [eager()[0] * torch.nan])["right"]
    assert not cell.accuracy(runs, eager, lambda: [])["right"]


class Amplifies(torch.nn.Module):
    """Rounding decides most of the result, as in batch norms of small batches."""

    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(()))

    def forward(self, x):
        return ((x * self.scale + 1e4) - 1e4) * 1e4


def test_a_choice_that_goes_the_other_way_by_rounding_is_not_wrong():
    x = torch.full((1,), 0.3)
    exact = [torch.ones(1)]

    def eager():
        return [(x * 1 > 0.3 + 1e-9).float() + 1]

    assert cell.error(eager(), exact) == 0 and cell.noisy_error(eager, exact) == 1


def test_over_five_sizes_float64_tells_rounding_from_wrong_results():
    net = Amplifies()
    runs = cell.Runs(net, (torch.rand(4, 8) * 1e-2,), {}, "infer", "float32")

    def other_order(x):
        return (x * net.scale + (1e4 - 1e4)) * 1e4

    def wrong(x):
        return net(x) * 1.5

    eager = runs.call(net, net)
    assert cell.error(runs.call(other_order, net)(), eager()) > cell.SIZES_DIFFER
    assert cell._beyond_rounding(runs, other_order, net) == 0
    assert cell._beyond_rounding(runs, wrong, net) > cell.SIZES_DIFFER


def test_over_five_sizes_eager_runs_only_where_rows_depend_on_one_another():
    class Net(torch.nn.Module):
        def __init__(self, mixes):
            super().__init__()
            self.mixes, self.calls = mixes, 0

        def forward(self, x):
            self.calls += 1
            return x - x.sum(0) if self.mixes else x * 2

    for net in Net(False), Net(True):
        x = torch.rand(2, 8)
        runs = cell.Runs(net, (x[torch.arange(5) % 2],), {}, "infer", "float32")
        likely = cell.repeated([net(x)], 2, 5)
        net.calls = 0
        other = Net(net.mixes)
        assert cell._beyond_rounding(runs, net, other, likely) <= cell.SIZES_DIFFER
        assert other.calls == net.mixes
        assert cell._beyond_rounding(runs, lambda x: net(x) * 1.5, other, likely) > cell.SIZES_DIFFER
    assert cell.repeated([torch.ones(())], 2, 5) is None
    assert cell.repeated([torch.ones(3, 2)], 2, 5) is None


def test_the_guards_of_a_slow_model_are_timed_without_running_it(monkeypatch):
    from magneto import _magneto

    asked = []
    monkeypatch.setattr(_magneto, "guard_time", lambda *a: asked.append(a) or [{"holds": True, "ns": 5e3}])
    runs = cell.Runs(torch.nn.Linear(2, 2), (torch.ones(1, 2),), {}, "infer", "float32")
    assert cell._host_us(runs) == 5 and len(asked[0]) == 3


def test_what_cells_share_is_made_without_computing(monkeypatch):
    from bench import warm

    def make():
        assert torch.empty(()).is_meta
        raise RuntimeError

    monkeypatch.setitem(MODELS, "nowhere/x", Model("timm", make))
    warm.make(["nowhere/x", "programs/dcgan"])
    gc.unfreeze()


def test_the_process_that_cells_are_forked_from_has_not_imported_magneto():
    code = "import sys, bench.warm; sys.exit(any(m.partition('.')[0] == 'magneto' for m in sys.modules))"
    env = {**os.environ, "BENCH_MODELS": "programs/dcgan timm/resnet26 transformers/Bert"}
    subprocess.run([sys.executable, "-c", code], env=env, check=True)


def test_over_five_sizes_both_draw_the_same_random_numbers():
    class Draws(torch.nn.Module):
        def forward(self, x):
            return x + torch.rand(()) + float(numpy.random.rand())

    net = Draws()
    runs = cell.Runs(net, (torch.rand(4, 8),), {}, "infer", "float32")
    assert cell._beyond_rounding(runs, net, net) == 0


def test_the_interval_holds_the_median():
    middle, low, high = cell.interval([float(i) for i in range(101)])
    assert middle == 50 and 38 <= low < 50 < high <= 62


@pytest.mark.parametrize(
    "c, verdict",
    [
        (figures(), "pass"),
        (figures(0.9, 0.8, 0.96), "pass"),
        (figures(0.9, 0.8, 0.94), "slow"),
        (figures(right=False), "wrong"),
        (figures(fallbacks=1), "fallback"),
        (figures(sizes_failed="RuntimeError: x"), "failed"),
        (figures(sizes_failed="ArithmeticError: x"), "wrong"),
        ({"failed": "x"}, "failed"),
        ({"late": True}, "late"),
        ({"absent": "timm"}, "absent"),
        ({"refused": "RuntimeError: x"}, "refused"),
    ],
)
def test_verdicts(c, verdict):
    assert dashboard.verdict(c) == verdict


def test_movers_are_changes_beyond_noise_and_of_verdicts():
    old = a_run("1", a=figures(), b=figures(), c=figures(), d={"late": True})
    new = a_run(
        "2", a=figures(1.45, 1.35, 1.55), b=figures(1.0, 0.98, 1.1), c=figures(right=False), d=figures()
    )
    moved = {m["cell"].split()[0]: m for m in dashboard.movers(old, new)}
    assert set(moved) == {"b", "c"}
    assert moved["b"]["times"] == pytest.approx(1 / 1.5) and moved["c"]["to"] == "wrong"


def test_a_library_that_is_missing_is_no_failure_and_no_mover(monkeypatch, tmp_path):
    def make():
        raise ModuleNotFoundError("No module named 'nowhere'", name="nowhere")

    monkeypatch.setitem(MODELS, "nowhere/x", Model("timm", make))
    c = cell.measure("nowhere/x", "infer", "float32", "cpu", 0.01, [])
    assert c == {"absent": "nowhere"} and dashboard.verdict(c) == "absent"
    old, new = a_run("1", a=figures()), a_run("2", a=c)
    assert dashboard.movers(old, new) == [] == dashboard.movers(new, old)
    (tmp_path / "x.json").write_text(json.dumps(new))
    assert "not installed: nowhere" in dashboard.write_page(tmp_path).read_text()


def test_a_model_that_eager_itself_refuses_is_no_failure(monkeypatch, tmp_path):
    class Refuses(torch.nn.Module):
        def forward(self, x):
            raise RuntimeError("no <bfloat16>")

    monkeypatch.setitem(MODELS, "nowhere/x", Model("timm", lambda: (Refuses(), (torch.ones(2),), {})))
    c = cell.measure("nowhere/x", "infer", "bf16", "cpu", 0.01, [])
    assert c == {"refused": "RuntimeError: no <bfloat16>"} and dashboard.verdict(c) == "refused"
    (tmp_path / "x.json").write_text(json.dumps(a_run("1", a=c)))
    text = dashboard.write_page(tmp_path).read_text()
    assert "eager refuses: RuntimeError: no &lt;bfloat16&gt;" in text and '<td class="bad">' not in text


def test_a_run_goes_on_where_it_was_stopped(monkeypatch, tmp_path, capsys):
    asked = []
    monkeypatch.setattr(dashboard, "one", lambda context, name, *_: asked.append(name) or figures())
    go = [
        "--models",
        "sac|dcgan",
        "--kinds",
        "infer float32",
        "--out",
        str(tmp_path),
        "--commit",
        "x",
        "--resume",
    ]
    dashboard.main([*go, "--minutes", "0.01"])
    assert asked == []
    dashboard.main(go)
    assert len(asked) == 2
    dashboard.main([*go, "--kinds", "infer"])
    assert len(asked) == 6
    (path,) = tmp_path.glob("*.json")
    assert len(json.loads(path.read_text())["cells"]) == 6
    dashboard.main([*go, "--commit", "y"])
    assert len(asked) == 8 and len(list(tmp_path.glob("*.json"))) == 2
    assert "pass" in capsys.readouterr().out


def test_a_run_that_is_killed_keeps_its_cells(monkeypatch, tmp_path):
    def one(context, name, *_):
        if list(tmp_path.glob("*.json")):
            raise KeyboardInterrupt
        return figures()

    monkeypatch.setattr(dashboard, "one", one)
    with pytest.raises(KeyboardInterrupt):
        dashboard.main(["--models", "sac|dcgan", "--out", str(tmp_path)])
    (run,) = dashboard.history(tmp_path)
    assert len(run["cells"]) == 1


def test_kinds_that_match_nothing_are_named(tmp_path):
    with pytest.raises(SystemExit, match="infer float32.*int8"):
        dashboard.main(["--kinds", "int8", "--out", str(tmp_path)])


def test_cells_that_a_run_did_not_reach_are_those_of_earlier_runs_of_its_commit():
    runs = [
        a_run("0", x=figures()),
        a_run("1", a=figures(), b=figures()),
        a_run("2", a={"late": True}, b={"failed": "x"}),
    ]
    runs[0]["commit"] = "1234567"
    cells = dashboard.joined(runs)["cells"]
    assert {k.split()[0]: dashboard.verdict(c) for k, c in cells.items()} == {"a": "pass", "b": "failed"}


class Page(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.ids, self.links, self.loads, self.open = set(), [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.ids.add(attrs.get("id"))
        self.links += [attrs["href"]] if tag == "a" else []
        self.loads += [attrs[k] for k in ("src", "href") if k in attrs and tag in ("img", "script", "link")]


def test_the_page_is_offline_and_shows_cells_movers_and_history(tmp_path):
    runs = [
        a_run("2026-01-01", a=figures(), b=figures()),
        a_run("2026-01-02", a=figures(0.5, 0.4, 0.6), b={"failed": "<oops>"}),
    ]
    runs[0]["commit"] = "1234567"
    for k, r in enumerate(runs):
        (tmp_path / f"{k}.json").write_text(json.dumps(r))
    text = dashboard.write_page(tmp_path).read_text()
    page = Page(text)
    assert all(link[1:] in page.ids for link in page.links)
    assert page.loads == ["data:,"] and "default-src 'none'" in text
    assert "a &lt;machine&gt;" in text and "&lt;oops&gt;" in text and "<oops>" not in text
    assert "0.50" in text and "pass, now slow" in text and "pass, now failed" in text and "2026-01-01" in text


def test_a_process_that_dies_or_hangs_is_a_failed_cell(monkeypatch):
    import multiprocessing
    import os
    import time

    context = multiprocessing.get_context("fork")
    monkeypatch.setattr(cell, "run", lambda into, *_: os._exit(3))
    assert "code 3" in dashboard.one(context, "", "", "", {}, 20)["failed"]
    monkeypatch.setattr(cell, "run", lambda into, *_: time.sleep(60))
    assert "more than 0 s" in dashboard.one(context, "", "", "", {}, 0.2)["failed"]


def test_unknown_peers_are_an_error(capsys):
    with pytest.raises(SystemExit):
        dashboard.options(["--peers", "torch.compile,nothing"])
    assert "--peers: unknown nothing" in capsys.readouterr().err


@pytest.mark.parametrize(("quick", "tried"), [(False, True), (True, False)])
def test_quick_runs_try_five_sizes_in_inference_only(quick, tried):
    figures = cell.measure("programs/dlrm", "train", "float32", "cpu", 0.01, [], quick=quick)
    assert ("sizes" in figures) == tried and figures["cpu_s"] > 0
    if quick:
        assert "sizes" in cell.measure("programs/dlrm", "infer", "float32", "cpu", 0.01, [], quick=True)
