"""The option "verify": the first calls are compared with eager, nothing changes for the program, and defects are found."""

import copy
import os
import subprocess
import sys

import pytest
import torch

import magneto
from magneto import _magneto
from magneto._trust import repro


@pytest.fixture(autouse=True)
def no_defect():
    yield
    _magneto.plant(None)


def counts():
    stats = _magneto.stats()
    return stats["verified"], stats["differed"]


def minus(x, y):
    return torch.tanh(torch.softmax(torch.relu(x) * 2, -1) - y)


def test_first_calls_and_one_in_k_are_verified():
    f = magneto.compile(minus, options={"verify": 2, "verify_every": 4})
    for _ in range(12):
        f(torch.randn(3, 4), torch.randn(3, 4))
    assert counts() == (5, 0)  # calls 1, 2, 4, 8 and 12


def test_nothing_is_verified_without_the_option():
    f = magneto.compile(minus)
    f(torch.randn(3, 4), torch.randn(3, 4))
    assert counts() == (0, 0)


def test_graphs_of_all_sizes_of_one_recording_count_together():
    f = magneto.compile(lambda a: torch.softmax(a * 2, -1).sum(0), dynamic=True, options={"verify": 3})
    g = magneto.compile(lambda a: (a * 2).sin().sum(), dynamic=True, options={"verify": 3})
    for n in range(3, 8):
        f(torch.randn(n, n))
    assert counts() == (3, 0)
    for n in range(3, 8):
        g(torch.randn(n, n, requires_grad=True)).backward()
    assert counts() == (6, 0)


def test_a_training_step_is_what_it_is_without():
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.Dropout(0.3)
    )
    plain, verified = copy.deepcopy(model), copy.deepcopy(model)
    runs = (magneto.compile(plain), magneto.compile(verified, options={"verify": 2}))
    for step in range(3):
        x = torch.randn(2, 3, 8, 8)
        for run in runs:
            torch.manual_seed(step)
            run(x).square().sum().backward()
    assert counts() == (2, 0)
    for a, b in zip(plain.parameters(), verified.parameters(), strict=True):
        assert torch.equal(a.grad, b.grad)
    for a, b in zip(plain.buffers(), verified.buffers(), strict=True):
        assert torch.equal(a, b)


def test_written_inputs_and_random_numbers_are_those_of_one_run():
    @magneto.compile(options={"verify": 3})
    def f(a):
        a.add_(torch.rand_like(a))
        return torch.nn.functional.dropout(a, 0.5)

    a, b = torch.zeros(5), torch.zeros(5)
    torch.manual_seed(3)
    got = [f(a) for _ in range(3)]
    torch.manual_seed(3)
    for x in got:
        b.add_(torch.rand_like(b))
        assert torch.equal(x, torch.nn.functional.dropout(b, 0.5))
    assert torch.equal(a, b)
    assert a._version == 3
    assert counts() == (3, 0)


def test_a_view_of_an_input_stays_one():
    @magneto.compile(options={"verify": 1})
    def f(a):
        a.mul_(2)
        return a.view(-1), a.sin()

    a = torch.ones(2, 3)
    view, _ = f(a)
    assert view.data_ptr() == a.data_ptr()
    assert torch.equal(a, torch.full((2, 3), 2.0))
    assert counts() == (1, 0)


def test_16_bit_results_may_be_more_exact_than_eagers():
    f = magneto.compile(lambda x: torch.exp(x * 1.1 + 0.3).sin() / 3, options={"verify": 1})
    for dtype in (torch.bfloat16, torch.float16):
        f(torch.randn(1000).to(dtype))
    assert counts() == (2, 0)


DEFECT = """
import warnings, torch, magneto
from magneto import _magneto
def f(x, y):
    return torch.tanh(torch.softmax(torch.relu(x) * 2, -1) - y)
_magneto.plant("simplify")
fast = magneto.compile(f, dynamic={dynamic}, options={{"verify": 1}})
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    for n in range(2, 5):
        x, y = torch.randn(n, 4, requires_grad={grad}), torch.randn(n, 4)
        assert torch.equal(fast(x, y), f(x, y))  # eager's, from the first call on
assert len(seen) == 1, seen
assert _magneto.stats()["differed"] == 1 and _magneto.stats()["fallbacks"] >= 1
print(seen[0].message)
"""


def run(code, **more):
    env = {**os.environ, "MAGNETO_STRICT": "0", **more}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_defect_is_told_once_and_shown_by_a_program(tmp_path):
    text = run(DEFECT.format(dynamic=True, grad=True), MAGNETO_REPRO=str(tmp_path))
    assert "first wrong: aten.sub.Tensor" in text
    assert "pass: simplify" in text
    assert "kernel: magneto::sub" in text
    (program,) = tmp_path.glob("repro-*.py")
    assert str(program) in text
    assert len(program.read_text().splitlines()) <= 40
    assert program.read_text().count("torch.ops.") == 1
    assert "no difference" in run(program.read_text())
    with_defect = f"from magneto import _magneto\n_magneto.plant('simplify')\n{program.read_text()}"
    done = subprocess.run([sys.executable, "-c", with_defect], capture_output=True, text=True)
    assert done.returncode == 1
    assert "first wrong: aten.sub.Tensor" in done.stderr


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("dynamic", [True, False])
@pytest.mark.parametrize("stage", ["lower", "decompose", "patterns", "simplify", "layout", "fold"])
def test_operator_and_pass_of_a_defect_are_told(monkeypatch, stage, dynamic, grad):
    monkeypatch.setattr(repro, "write", lambda *args: "")
    _magneto.plant(stage)
    f = magneto.compile(minus, dynamic=dynamic, options={"verify": 1})
    x, y = torch.randn(3, 4, requires_grad=grad), torch.randn(3, 4)
    with pytest.raises(RuntimeError, match=rf"first wrong: aten\.sub\.Tensor at .*pass: {stage}"):
        f(x, y)
    assert torch.equal(f(x, y), minus(x, y))  # op by op
    assert counts() == (1, 1)


@pytest.mark.parametrize("name", ["verify", "verify_every"])
def test_bad_numbers_are_refused(name):
    with pytest.raises(TypeError, match=f"option '{name}' must be of type int"):
        magneto.compile(minus, options={name: True})
    with pytest.raises(ValueError, match=f"option '{name}' must not be negative"):
        magneto.compile(minus, options={name: -1})


def test_torch_compile_takes_the_option():
    f = torch.compile(minus, backend="magneto", options={"verify": 1})
    f(torch.randn(3, 4), torch.randn(3, 4))
    assert counts() == (1, 0)
    torch._dynamo.reset()
