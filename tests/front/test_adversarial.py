"""Each program runs in two fresh namespaces, eagerly and compiled; results and state must agree after every call."""
import contextlib
import copy
import io
import warnings

import adversarial_programs
import pytest
import torch
from harness import forced_breaks, same
from magneto import _magneto

# Reading the state ends it (iterators): looked at after the last call only.
CONSUMED = {"global_iter", "count", "genext"}


def trace(name, source, compiled, calls=4):
    ns = {"torch": torch, "__name__": "case"}
    exec(compile(source, f"<{name}>", "exec"), ns)
    f = _magneto.Callable(ns["f"]) if compiled else ns["f"]
    out = []
    for i in range(calls):
        torch.manual_seed(i)
        x = torch.randn(3)
        text = io.StringIO()
        with contextlib.redirect_stdout(text):
            try:
                r = f(x)
            except Exception as e:
                r = f"{type(e).__name__}: {e}"
        state = copy.deepcopy(ns["S"]()) if name not in CONSUMED or i == calls - 1 else None
        out.append((r, state, text.getvalue(), x))
        if "between" in ns:
            ns["between"]()
    return out


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("k", [0, 1, 3])
@pytest.mark.parametrize("name", adversarial_programs.CASES)
def test_adversarial(name, k):
    source = adversarial_programs.CASES[name]
    want = trace(name, source, False)
    with forced_breaks(k):
        got = trace(name, source, True)
    for i, (a, b) in enumerate(zip(want, got)):
        assert same(a, b), f"call {i}: eager {a}, compiled {b}"
