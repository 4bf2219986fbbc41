"""The kinds of random programs find planted defects, make them smaller, and pass what is right."""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import time

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / "property")]
import kinds  # noqa: E402
import random_graphs  # noqa: E402
import random_kernels  # noqa: E402
import random_models  # noqa: E402
from magneto import _magneto  # noqa: E402


@pytest.fixture
def planted():
    yield _magneto.plant
    _magneto.plant(None)


def test_graphs_finds_a_defect_and_makes_it_smaller(planted, tmp_path):
    kind = kinds.all_kinds()["graphs"]
    planted("lower")
    few = (p for p in map(kind.make, range(40)) if p.text.count("\n") < 40)
    program = next(p for p in few if kind.failure(p))
    small = kind.shrink(program, lambda p: (kind.failure(p) or (None,))[0], 5)
    assert kind.failure(small)[0] == kind.failure(program)[0]
    assert len(small.text) <= len(program.text) and len(small.passes) <= len(program.passes)
    planted(None)
    assert kind.failure(small) is None
    saved = tmp_path / "saved.py"
    saved.write_text(kind.text(small, "planted"))
    done = subprocess.run([sys.executable, saved], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_graphs_refuses_a_text_whose_types_are_wrong():
    text = "%1 = input f32[2,3]\n%2 = aten::exp(%1) : f32[2,3]\nreturn %2\n"
    right = random_graphs.Graph(text, [random_models.torch.ones(2, 3)], ["functionalize", "dce"])
    assert random_graphs.check(right) == 3
    assert kinds.all_kinds()["graphs"].failure(right) is None
    wrong = random_graphs.Graph(text.replace("exp", "sum"), right.inputs, right.passes)
    with pytest.raises(random_graphs.judge.NotAProgram):
        random_graphs.check(wrong)


CACHE = """
import sys
sys.path[:0] = [{here!r}, {tests!r}]
import random, cache_files, judge
from magneto import _magneto

cache_files.folder()
x = cache_files.longer_than_small(cache_files.random_models.Program(
    inputs=["torch.randn(N, 3, generator=g)"], grads=[False], calls=[{{"N": 4, "M": 1, "n": 1}}],
    body=["v1 = x0.sin() + x0.cos()"], result=["v1"], dynamic=False,
))
cache_files.check(cache_files.Damaged(x, []))
before = _magneto.kernel_cache_info()["plans_loaded"]
cache_files.forget()
judge.check(x)
assert _magneto.kernel_cache_info()["plans_loaded"] > before  # programs do read the files that are damaged
names = sorted(p.name for p in cache_files.folder().iterdir())
assert len(names) >= 3, names
for damage in dict.fromkeys(cache_files.DAMAGE):
    for name in names:
        cache_files.empty()
        cache_files.forget()
        judge.check(x)
        files = sorted(cache_files.folder().iterdir())
        damage(cache_files.folder() / files[names.index(name)].name, random.Random(1), files)
        cache_files.forget()
        judge.check(x)
"""


def test_every_damage_of_every_file_leaves_eagers_results(tmp_path):
    code = CACHE.format(here=str(HERE), tests=str(HERE.parent))
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=300,
        env={**os.environ, "TMPDIR": str(tmp_path), "MAGNETO_STRICT": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_a_program_that_ends_its_process_is_made_smaller(tmp_path):
    """As the driver does it: each try is a process."""
    code = """
import os, runpy, sys
sys.argv = ["fuzz"]
sys.path[:0] = [%r, %r, %r]
import kinds
main = runpy.run_path(%r)
statements = kinds.all_kinds()["statements"]
class Ends(kinds.Lines):
    def failure(self, program):
        return os.abort() if "while" in program[0] else None
ends = Ends("statements", statements.write, statements.check, statements.prelude)
kinds.all_kinds = lambda: {"statements": ends}
seed = next(s for s in range(99) if "while" in ends.make(s)[0])
print(len(ends.make(seed)[0].splitlines()))
main["work_apart"]("statements", seed, 60)
"""
    code %= (str(HERE), str(HERE.parent), str(HERE.parent / "property"), str(HERE / "__main__.py"))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    lines, told = done.stdout.splitlines()
    told = json.loads(told)
    assert told["kind"] == "ends with code -6" and "while" in told["text"]
    assert len(told["text"].splitlines()) < int(lines)


def test_eagers_own_kernels_may_differ():
    """oneDNN's gradient of gelu is 0 left of -7, ATen's is a number near 0: divided by 0 that is NaN or infinity."""
    program = random_models.Program(
        inputs=["torch.linspace(-12.0, -7.0, 37)"],
        grads=[True],
        calls=[{"N": 1, "M": 1, "n": 1}],
        body=["y = torch.log10(torch.nn.functional.gelu(x0))"],
        result=["y"],
        mode="enable_grad",
    )
    assert random_graphs.judge.check(program) == 2


@pytest.mark.parametrize(
    "code, starving", [("while True: pass", True), ("import time; time.sleep(60)", False)]
)
def test_a_program_that_gets_no_processor_time_does_not_hang(code, starving):
    spec = importlib.util.spec_from_file_location("fuzz_main", HERE / "__main__.py")
    main = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(main)
    process = subprocess.Popen([sys.executable, "-c", code])
    try:
        end = time.monotonic() + 30
        while main.starves(process.pid, 0.0)[0] != starving and time.monotonic() < end:
            time.sleep(0.1)
        waits, used = main.starves(process.pid, 0.0)
        assert waits == starving
        assert not main.starves(process.pid, used - 2, most=2)[0]  # it had its time
    finally:
        process.kill()
        process.wait()


WIDENED = """%1 = input f32[32,5,3]
%2 = input f32[5]
%3 = input f32[5]
%4 = input f32[5]
%5 = input f32[5]
%6, %7, %8, %9, %10 = aten::_native_batch_norm_legit_functional(%1, %4, %5, %2, %3, True, 0.1, 1e-05) : f32[32,5,3], f32[5], f32[5], f32[5], f32[5]
%11 = aten::_to_copy(%6, dtype=dtype(f64)) : f64[32,5,3]
writeback %2 = %9
writeback %3 = %10
return %11
"""


def test_kernels_are_judged_by_the_type_that_they_compute_in():
    assert random_kernels.check(random_kernels.Graph(WIDENED, [], [])) == 1
