"""torch.profiler shows compiled calls: a scope for each plan, and in it one for each kernel and each call of a library."""

import json
import threading

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

import magneto
from magneto import _magneto
from support import counts

if not _magneto.machine(None)["profiler"]:
    pytest.skip("this torch cannot show scopes", allow_module_level=True)


def scopes(p):
    """(name, name of magneto's scope around it) of what magneto ran, in order."""
    ours = [e for e in p.events() if e.name.startswith("magneto::")]
    ours.sort(key=lambda e: (e.time_range.start, -e.time_range.end))
    return [(e.name, around(e)) for e in ours]


def shapes(p):
    """By name without lines: the shapes that the scope shows, without empty ones."""
    ours = [e for e in p.events() if e.name.startswith("magneto::")]
    return {e.name.split(" (")[0].removeprefix("magneto::"): e.input_shapes for e in ours}


def around(e):
    parent = e.cpu_parent.name if e.cpu_parent else ""
    return parent if parent.lower().startswith("magneto") else None


def profiled(f, *args, **options):
    with profile(activities=[ProfilerActivity.CPU], **options) as p:
        f(*args)
    return p


def fused(x, w):
    y = torch.relu(x + 1)
    y = (y * 2).sum(-1)
    return y, (x @ w).tanh()


FIRST = fused.__code__.co_firstlineno


@pytest.mark.parametrize("option", ["", "record_shapes", "with_stack", "profile_memory", "with_modules"])
def test_inference(option, tmp_path):
    options = {option: True} if option else {}
    f, x, w = magneto.compile(fused), torch.randn(64, 64), torch.randn(64, 64)
    f(x, w)
    before = counts().graphs
    p = profiled(f, x, w, **options)
    assert counts().graphs == before
    plan = f"magneto::fused (test_profiler.py:{FIRST + 1})"
    assert scopes(p) == [
        (plan, None),
        (f"magneto::add+relu+mul+sum (test_profiler.py:{FIRST + 1}-{FIRST + 2})", plan),
        (f"magneto::matmul+tanh (test_profiler.py:{FIRST + 3})", plan),
    ]
    p.export_chrome_trace(str(tmp_path / "trace.json"))
    trace = json.loads((tmp_path / "trace.json").read_text())
    assert plan in {e.get("name") for e in trace["traceEvents"]}
    assert plan in {e.key for e in p.key_averages()}


def test_graphs_and_their_steps_have_shapes():
    f, x, w = magneto.compile(fused), torch.randn(64, 32), torch.randn(32, 16)
    f(x, w)
    assert shapes(profiled(f, x, w, record_shapes=True)) == {
        "fused": [[64, 32], [32, 16]],
        "add+relu+mul+sum": [[64, 32]],
        "matmul+tanh": [[64, 32], [32, 16]],
    }
    assert not any(shapes(profiled(f, x, w)).values())


def test_shapes_of_sizes_that_change_are_those_of_the_call():
    f, w = magneto.compile(fused), torch.randn(8, 4)
    for n in (3, 4, 5, 6):
        seen = shapes(profiled(f, torch.randn(n, 8), w, record_shapes=True))
        assert seen["fused"] == [[n, 8], [8, 4]], n
        assert seen["add+relu+mul+sum"] == [[n, 8]], n


def test_what_a_kernel_makes_for_itself_has_no_shape():
    f = magneto.compile(lambda x, y: ((x + y).exp() * x).sum(0).cos())
    x, y = torch.randn(6, 5), torch.randn(5)
    f(x, y)
    seen = shapes(profiled(f, x, y, record_shapes=True))
    assert [s for name, s in seen.items() if "exp" in name] == [[[6, 5], [5]]]


@pytest.mark.parametrize("stack", [False, True])
def test_a_first_call_is_shown_too(stack):
    x, w = torch.randn(8, 8), torch.randn(8, 8)
    p = profiled(magneto.compile(fused), x, w, with_stack=stack)
    assert any(name.startswith("magneto::fused") for name, _ in scopes(p))


def test_calls_of_torch_lie_in_their_scope():
    @magneto.compile
    def f(a):
        return torch.linalg.eigh(a)[0] + 1

    a = torch.eye(4)
    f(a)
    p = profiled(f, a)
    eigh = [e for e in p.events() if e.name == "aten::_linalg_eigh"]
    assert [e.cpu_parent.name.split(" ")[0] for e in eigh] == ["magneto::linalg_eigh"]


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a = torch.nn.Linear(8, 8)

    def forward(self, x):
        return torch.sin(self.a(x) * 3).sum()


def test_training():
    line = Net.forward.__code__.co_firstlineno + 1
    m = magneto.compile(Net())
    x = torch.randn(4, 8)
    m(x).backward()
    p = profiled(lambda: m(x).backward())
    seen = scopes(p)
    plans = [s for s in seen if s[0].startswith("magneto::Net")]
    forward = f"magneto::Net (test_profiler.py:{line})"
    assert plans == [(forward, None), (f"{forward} backward", "MagnetoBackward")]
    inner = [s for s in seen if s not in plans]
    assert {parent for _, parent in inner} == {name for name, _ in plans}
    assert any("sin" in name and "sum" in name and "mul" in name for name, _ in inner)


def lines_of_gradients(x, w):
    y = x @ w
    y = torch.nn.functional.softmax(y * 3, -1)
    return y.logsumexp(0).sum()


@pytest.mark.parametrize("inside", [False, True], ids=["of_results", "inside"])
def test_steps_of_backward_have_the_lines_of_what_they_are_gradients_of(inside):
    def step(x, w):
        loss = lines_of_gradients(x, w)
        if inside:
            loss.backward()
        return loss

    f = magneto.compile(step)
    x, w = torch.randn(32, 64, requires_grad=True), torch.randn(64, 48, requires_grad=True)

    def run():
        loss = f(x, w)
        if not inside:
            loss.backward()

    run()
    names = [name for name, _ in scopes(profiled(run))]
    first = lines_of_gradients.__code__.co_firstlineno
    products = [n for n in names if n.startswith("magneto::matmul")]
    assert len(products) >= 2 and all(f"(test_profiler.py:{first + 1}" in n for n in products[-2:])
    (softmax,) = [n for n in names if "softmax_backward" in n]
    place = softmax.partition("(test_profiler.py:")[2].rstrip(")")
    assert int(place.split("-")[0]) in (first + 2, first + 3), softmax


def test_nothing_is_shown_before_and_after():
    f, x, w = magneto.compile(fused), torch.randn(8, 8), torch.randn(8, 8)
    f(x, w)
    p = profiled(lambda: None)
    f(x, w)
    assert scopes(p) == []
    assert len(scopes(profiled(f, x, w))) == 3


def test_threads():
    """A profiler is one of its thread, as it is for torch's own operators; each thread's scopes nest by themselves."""
    f, x, w = magneto.compile(fused), torch.randn(8, 8), torch.randn(8, 8)
    f(x, w)

    def calls():
        for _ in range(50):
            f(x, w)
            torch.add(x, 1)

    def run():
        threads = [threading.Thread(target=calls) for _ in range(3)]
        for t in threads:
            t.start()
        calls()
        for t in threads:
            t.join()

    p = profiled(run)
    eager = sum(e.name == "aten::add" for e in p.events())
    names = [name for name, _ in scopes(p)]
    assert sum(n.startswith("magneto::fused") for n in names) == eager >= 50
    assert all(parent is None or parent.startswith("magneto::fused") for _, parent in scopes(p))


def test_a_run_that_raises_ends_its_scopes():
    @magneto.compile
    def f(v, i):
        return v[i] + 1

    v = torch.arange(4.0)
    f(v, torch.tensor([1]))

    def run():
        with pytest.raises(IndexError):
            f(v, torch.tensor([9]))
        f(v, torch.tensor([1]))

    plans = [parent for name, parent in scopes(profiled(run)) if "::test_a_run_that_raises" in name]
    assert plans == [None, None]


def test_stored_plans_have_names(tmp_path):
    """A plan of an earlier process is named as the program that runs it is, whose lines may be others."""
    import os
    import subprocess
    import sys

    text = (
        "import torch, magneto\nfrom torch.profiler import profile\n{}\n"
        "def f(x):\n    for _ in range(8): x = (x.sin() + 1) * x.cos()\n"
        "    y = x.sum(-1)\n    z = (y.cos() * 2).softmax(0)\n    return (z - y).exp().sum(), torch.relu(x * 3).amax(0)\n"
        "c = magneto.compile(f)\nx = torch.randn(16, 16)\nc(x)\n"
        "with profile(record_shapes=True) as p:\n    c(x)\n"
        "print([(e.name, e.input_shapes) for e in p.events() if 'magneto' in e.name])\n"
        "print(magneto._magneto.kernel_cache_info()['plans_loaded'])\n"
    )
    env = {**os.environ, "MAGNETO_CACHE_DIR": str(tmp_path / "cache"), "MAGNETO_CACHE": "1"}
    seen = []
    for lines in ("", "\n\n\n"):
        (tmp_path / "prog.py").write_text(text.format(lines))
        run = subprocess.run(
            [sys.executable, str(tmp_path / "prog.py")], env=env, capture_output=True, text=True, check=True
        )
        seen += [eval(line) for line in run.stdout.strip().splitlines()[-2:]]
    first, loaded, second, loaded_again = seen
    assert loaded == 0 and loaded_again == 1
    assert len(first) == len(second) >= 3
    assert "(prog.py:5)" in first[0][0] and "(prog.py:8)" in second[0][0]
    assert [(n.split(" ")[0], s) for n, s in first] == [(n.split(" ")[0], s) for n, s in second]
    assert all(s for _, s in first)


@pytest.mark.parametrize("grad", [False, True])
def test_graphs_with_sizes_that_change(grad):
    f = magneto.compile(fused)
    w = torch.randn(8, 8)
    for n in (3, 4, 5, 6):
        x = torch.randn(n, 8, requires_grad=grad)
        p = profiled(f, x, w)
        plans = [name for name, parent in scopes(p) if parent is None]
        assert plans == [f"magneto::fused (test_profiler.py:{FIRST + 1})"], n


def test_graphs_with_sizes_that_depend_on_data():
    @magneto.compile(fullgraph=True)
    def f(x):
        y = x[x > 0]
        return (y * 2 + 1).sum()

    x = torch.randn(50)
    f(x)
    p = profiled(f, x)
    assert all("test_profiler.py" in name for name, _ in scopes(p)) and scopes(p)


def test_other_observers_of_a_thread_see_the_same_scopes():
    """As emit_nvtx and emit_itt are: they add a callback to the thread's own list."""
    f = magneto.compile(fused)
    x, w = torch.randn(16, 8), torch.randn(8, 4)
    f(x, w)
    with torch.autograd.profiler_legacy.profile() as p:
        f(x, w)
    assert [e.name for e in p.function_events] == [name for name, _ in scopes(profiled(f, x, w))] != []
    with torch.autograd.profiler.emit_itt(enabled=torch.profiler.itt.is_available()):
        assert torch.allclose(f(x, w)[0], fused(x, w)[0])


def test_observers_of_all_threads_see_graphs_that_take_long(tmp_path):
    f = magneto.compile(fused)
    x, w = torch.randn(512, 256), torch.randn(256, 64)
    f(x, w)
    observer = torch.profiler.ExecutionTraceObserver().register_callback(str(tmp_path / "trace.json"))
    observer.start()
    f(x, w)
    observer.stop()
    observer.unregister_callback()
    nodes = json.loads((tmp_path / "trace.json").read_text())["nodes"]
    ours = {n["id"]: n for n in nodes if n["name"].startswith("magneto::")}
    assert {n["name"] for n in ours.values()} == {name for name, _ in scopes(profiled(f, x, w))}
    assert sum(n["ctrl_deps"] in ours for n in ours.values()) == len(ours) - 1  # all but the graph's own
