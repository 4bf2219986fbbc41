"""What users see when something is missing: the program still runs, one warning names the reason, doctor tells the rest."""

import os
import subprocess
import sys

import magneto
from magneto import doctor

PROGRAM = """
import torch, magneto, warnings
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    for k in range(2):
        f = magneto.compile(lambda x: torch.sin(x) + k)
        for _ in range(2):
            torch.testing.assert_close(f(torch.ones(3)), torch.sin(torch.ones(3)) + k)
print(len(seen), seen[0].category.__name__, seen[0].message, magneto._magneto.stats()["fallbacks"])
"""


TWICE = """
import torch, magneto
lib = torch.library.Library("twice", "DEF")
lib.define("write(Tensor(a!) x, Tensor(b!) y) -> ()")
lib.impl("write", lambda x, y: (x.add_(1), y.mul_(2)) and None, "CPU")
def f(x):
    y = x + 1
    torch.ops.twice.write(x, x.view(-1))
    torch.ops.twice.write(y, y)
    return y
a, b = torch.ones(2, 2), torch.ones(2, 2)
for _ in range(2):
    assert torch.equal(magneto.compile(f)(a), f(b)) and torch.equal(a, b)
"""


def run(program=PROGRAM, **env):
    env = {k: v for k, v in {**os.environ, **env}.items() if v is not None}
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=env, timeout=120
    )


def test_one_warning_and_the_right_result():
    r = run(MAGNETO_STRICT=None, MAGNETO_STOP="functionalize")
    assert r.returncode == 0, r.stderr
    count, kind, rest = r.stdout.split(maxsplit=2)
    assert (count, kind) == ("1", "RuntimeWarning") and "op by op" in rest and rest.split()[-1] == "2"


def test_strict_mode_makes_it_an_error():
    r = run(MAGNETO_STRICT="1", MAGNETO_STOP="functionalize")
    assert r.returncode != 0 and "cannot compile the graph" in r.stderr


def test_operators_that_get_memory_twice_run_as_they_are():
    r = run(TWICE, MAGNETO_STRICT=None)
    assert r.returncode == 0 and "op by op" in r.stderr, r.stderr


def test_doctor(capsys):
    findings = {f.name: f for f in doctor.examine()}
    assert {"torch", "torch C ABI", "LLVM", "oneDNN", "threads", "vector width", "OpenMP", "GPU"} <= set(
        findings
    )
    assert all(f.mend for f in findings.values() if not f.ok)
    status = doctor.main()
    out = capsys.readouterr().out
    assert status == int(any(f.needed and not f.ok for f in findings.values()))
    assert magneto.__version__ in out and "LLVM" in out


WRAPPED = """
import torch, magneto

class Later(torch.Tensor):  # has no memory of its own
    @staticmethod
    def __new__(cls, inner):
        t = torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)
        t.inner = inner
        return t

    @classmethod
    def __torch_dispatch__(cls, func, types, args, kwargs=None):
        plain = torch.utils._pytree.tree_map_only(Later, lambda t: t.inner, (args, kwargs or {}))
        return func(*plain[0], **plain[1])

lib = torch.library.Library("later", "DEF")
lib.define("start(Tensor x) -> Tensor")
lib.impl("start", lambda x: Later(x.sin()), "CPU")
lib.impl("start", lambda x: torch.empty_like(x), "Meta")
f = lambda x: torch.ops.later.start(x * 2) + 1
for _ in range(2):
    torch.testing.assert_close(magneto.compile(f)(torch.ones(3)), f(torch.ones(3)))
print(magneto._magneto.stats()["fallbacks"])
"""


def test_an_operator_whose_result_has_no_memory():
    r = run(WRAPPED, MAGNETO_STRICT=None, MAGNETO_TRIALS="0")
    assert r.returncode == 0 and "a tensor without memory" in r.stderr, r.stderr
    assert int(r.stdout) >= 1
