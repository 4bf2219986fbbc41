"""``python -m magneto.bisect``: from a program to the smallest graph that differs, fails or crashes."""

import os
import subprocess
import sys

import pytest

from magneto import bisect as bisecting

PROGRAM = """
import torch, magneto
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Linear(8, 16), torch.nn.Linear(16, 4)
    def forward(self, x):
        h = torch.nn.functional.gelu(self.a(x))
        h = torch.nn.functional.layer_norm(h, (16,))
        return self.b(h).sigmoid() - x[:, :4].exp() * 0.5
torch.manual_seed(0)
net = Net()
fast = magneto.compile(net)
for _ in range(2):
    {call}
print("the end")
"""
SMALL = """
import torch, magneto
fast = magneto.compile(lambda x, y: x.exp() - y)
fast(torch.randn(3), torch.randn(3))
"""  # each step of a search for a crash is a process
TRAINING = "fast(torch.randn(3, 8)).sum().backward()"


@pytest.fixture
def bisect(tmp_path):
    """Runs it on a program, in processes that all have a defect."""

    def run(program, defect="", options=(), site_code="", **more):
        site = tmp_path / "site"
        site.mkdir()
        (site / "sitecustomize.py").write_text(
            f"from magneto import _magneto\n_magneto.plant({defect})\n" if defect else site_code
        )
        file = tmp_path / "prog.py"
        file.write_text(program)
        env = {**os.environ, "MAGNETO_STRICT": "0", **more}
        env["PYTHONPATH"] = os.pathsep.join([str(site), env.get("PYTHONPATH", "")])
        done = subprocess.run(
            [sys.executable, "-m", "magneto.bisect", "--out", str(tmp_path / "out"), *options, str(file)],
            capture_output=True,
            text=True,
            env=env,
        )
        return done, sorted((tmp_path / "out").glob("repro-*.py")), env

    return run


def test_a_wrong_pass_is_found_and_shown_by_a_small_program(bisect):
    done, (program,), env = bisect(PROGRAM.format(call=TRAINING), "'simplify'")
    assert done.returncode == 1, done.stderr
    assert "the end" in done.stdout
    assert "Operator: aten.sub.Tensor" in done.stdout
    assert "Pass: simplify" in done.stdout
    text = program.read_text()
    assert len(text.splitlines()) <= 40
    assert text.count("torch.ops.") == 1
    shown = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, env=env)
    assert shown.returncode == 1
    assert "first wrong: aten.sub.Tensor" in shown.stderr


def test_a_crash_is_found_and_shown_by_a_small_program(bisect):
    done, (program,), env = bisect(SMALL, "'lower', True")
    assert done.returncode == 1, done.stderr
    assert "ended by SIGABRT" in done.stdout
    assert "Operator: aten.sub.Tensor" in done.stdout
    assert "Pass: lower" in done.stdout
    assert program.read_text().count("torch.ops.") == 1
    shown = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, env=env)
    assert shown.returncode == -6


@pytest.mark.parametrize(
    ("status", "wanted", "alike"),
    [(-6, -6, True), (-11, -6, True), (bisecting.HUNG, -6, False), (-6, bisecting.HUNG, False)]
    + [(bisecting.HUNG, bisecting.HUNG, True), (0, -6, False), (1, bisecting.HUNG, False)],
)
def test_a_trial_that_is_late_is_no_crash(status, wanted, alike):
    """On a busy machine trials were late, and a node that is right was shown."""
    assert bisecting._ends_alike(status, wanted) == alike


def test_a_graph_that_cannot_be_compiled_is_shown(bisect):
    done, (program,), env = bisect(PROGRAM.format(call=TRAINING), MAGNETO_STOP="simplify")
    assert done.returncode == 1, done.stderr
    assert "stopped after simplify" in done.stdout
    shown = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, env=env)
    assert shown.returncode == 1
    assert "stopped after simplify" in shown.stderr


@pytest.mark.parametrize("stage", ["decompose", "patterns"])
def test_wrong_passes_of_other_kinds_are_found(bisect, stage):
    done, programs, _ = bisect(PROGRAM.format(call="fast(torch.randn(3, 8))"), f"'{stage}'")
    assert len(programs) == 1, done.stderr
    assert f"Pass: {stage}" in done.stdout and "Operator: aten.sub.Tensor" in done.stdout


SLOW = """
import magneto._trust.slow as slow
slow.best = lambda ways, clock: [way() and 0.05 for way in ways[:1]] + [0.001]
"""  # whatever is compiled takes long


def test_a_graph_slower_than_eager_is_shown_by_a_small_program(bisect):
    done, (program,), env = bisect(PROGRAM.format(call=TRAINING), options=["--slow", "1.5"], site_code=SLOW)
    assert done.returncode == 1, done.stderr
    assert "it takes 50 ms, eager 1 ms" in done.stdout
    text = program.read_text()
    assert text.count("torch.ops.") == 1 and len(text.splitlines()) <= 40
    shown = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, env=env)
    assert shown.returncode == 0, shown.stderr
    assert "compiled: " in shown.stdout and "eager: " in shown.stdout


# Each graph with an exponential computes for 3 ms more, in both ways in which graphs are timed.
SLOW_EXP = """
import os
if "MAGNETO_REPRO" in os.environ:
    import time
    from magneto import _magneto
    from magneto._trust import program, slow

    def late(way, calls):
        def run(*args):
            end = time.thread_time() + 0.003
            result = way(*args)
            while any("exp" in c.op for c in calls) and time.thread_time() < end:
                pass
            return result
        return run

    class Ways:
        def __init__(self, ways):
            self.ways = ways
            self.compiled = late(ways.compiled, program.of_calls(ways.calls(program.Value)).calls)

        def __getattr__(self, name):
            return getattr(self.ways, name)

    class Core:
        def __getattr__(self, name):
            return getattr(_magneto, name)

        def Callable(self, f, **options):
            return late(_magneto.Callable(f, **options), f.calls)

    def function(self, real=program.Program.function):
        f = real(self)
        f.calls = self.calls
        return f

    program.Program.function, slow._magneto = function, Core()
    slow.found = lambda ways, *rest, real=slow.found: real(Ways(ways), *rest)
"""


def test_a_slow_kernel_is_found_on_a_busy_machine(bisect):
    """Beside as many other programs as there are cores, times on the clock told nothing."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 2)]
    try:
        program = PROGRAM.format(call=TRAINING)
        done, programs, env = bisect(program, options=["--slow", "1.5"], site_code=SLOW_EXP)
    finally:
        for process in busy:
            process.kill()
            process.wait()
    assert done.returncode == 1 and len(programs) == 1, done.stdout + done.stderr
    assert "Operator: aten.exp.default" in done.stdout and "on one thread" in done.stdout
    assert programs[0].read_text().count("torch.ops.") == 1
    shown = subprocess.run([sys.executable, str(programs[0])], capture_output=True, text=True, env=env)
    assert shown.returncode == 0 and "eager: " in shown.stdout, shown.stderr


def test_slow_graphs_are_not_looked_for_unless_asked(bisect):
    done, programs, _ = bisect(PROGRAM.format(call=TRAINING), site_code=SLOW)
    assert done.returncode == 0 and not programs, done.stderr


def test_a_program_that_does_not_end_is_ended(bisect):
    program = PROGRAM.format(call=TRAINING) + "import time; time.sleep(1e6)"
    done, programs, _ = bisect(program, options=["--hang", "40"])
    assert done.returncode == 0 and not programs, done.stderr
    assert "nothing found; the program did not end" in done.stdout


def test_nothing_is_found_in_a_program_that_is_right(bisect, tmp_path):
    done, programs, _ = bisect(PROGRAM.format(call=TRAINING))
    assert done.returncode == 0, done.stderr
    assert not programs
    assert "nothing found; the program ended with status 0" in done.stdout
    assert not list((tmp_path / "out").iterdir())


def test_a_program_is_needed():
    done = subprocess.run([sys.executable, "-m", "magneto.bisect"], capture_output=True, text=True)
    assert done.returncode == 2
    assert "a program is needed" in done.stderr
