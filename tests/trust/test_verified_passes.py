"""In strict mode the driver verifies the graph after every pass, and each promise of a pass is checked."""

import os
import subprocess
import sys

import pytest
import torch

import magneto
from magneto import _magneto

PASSES = [
    "recording",
    "settle",
    "functionalize",
    "dce",
    "patterns",
    "decompose",
    "simplify",
    "layout",
    "fold",
]
FUNCTIONAL = PASSES[PASSES.index("functionalize") :]


@pytest.fixture(autouse=True)
def nothing_illegal():
    yield
    _magneto.plant_illegal(None)


def minus(x, y):
    return torch.addr(torch.tanh(x) - y, x[:, 0], x[0])


def run(dynamic=False, grad=False):
    f = magneto.compile(minus, dynamic=dynamic)
    x, y = torch.randn(3, 4, requires_grad=grad), torch.randn(3, 4)
    return torch.equal(f(x, y), minus(x, y))


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", PASSES)
def test_the_graph_is_verified_after_each_pass(name, dynamic, grad):
    _magneto.plant_illegal(name)
    with pytest.raises(
        RuntimeError, match=rf"after {name}: node \d+ \(aten::sub.Tensor\) uses value \d+ before"
    ):
        run(dynamic, grad)


@pytest.mark.parametrize("name", FUNCTIONAL)
def test_nothing_writes_after_functionalize(name):
    _magneto.plant_illegal(name, "write")
    with pytest.raises(
        RuntimeError, match=rf"after {name}: node \d+ \(aten::sub_.Tensor\) still writes an argument"
    ):
        run()


@pytest.mark.parametrize("name", PASSES[: PASSES.index("functionalize")])
def test_a_recorded_graph_may_write(name):
    """Passes if nothing raises."""
    _magneto.plant_illegal(name, "write")
    run()


def test_only_primitives_are_left_after_decompose():
    _magneto.plant_illegal("decompose", "whole")
    with pytest.raises(RuntimeError, match=r"after decompose: aten::addr is no primitive"):
        run()


def test_without_strict_mode_passes_are_not_verified():
    """A compound op that is left is a call of ATen."""
    program = (
        "import torch, magneto\n"
        "from magneto import _magneto\n"
        "_magneto.plant_illegal('decompose', 'whole')\n"
        "x, y = torch.randn(3), torch.randn(4)\n"
        "f = lambda: torch.addr(torch.zeros(3, 4), x, y) - 1\n"
        "assert torch.equal(magneto.compile(f)(), f())\n"
    )
    for strict in (False, True):
        env = {**os.environ, "MAGNETO_STRICT": str(int(strict))}
        done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True)
        assert ("aten::addr is no primitive" in done.stderr) == strict, done.stderr
        assert (done.returncode != 0) == strict


def test_what_is_planted_is_checked():
    with pytest.raises(ValueError, match="what must be order, write or whole, got 'x'"):
        _magneto.plant_illegal("dce", "x")
