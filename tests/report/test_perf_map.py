"""MAGNETO_PERF=1: compiled kernels have names for profilers of machine code."""

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

PROGRAM = """
    import os
    import torch, magneto

    def f(x):
        return (x * 2 + 1).relu()

    x = torch.randn(1000)
    fast = magneto.compile(f)
    for _ in range(2):
        fast(x)
        magneto.compile(f)(x)  # the same kernel: no second line
    magneto.compile(lambda x: (x @ x.t()).exp().sum())(x.view(10, 100))
    print(os.getpid(), flush=True)
    if not os.fork():
        magneto.compile(lambda x: x.sin() * 3)(x)
        print(os.getpid(), flush=True)
        os._exit(0)
    os.wait()
"""


def run(program, **env):
    """Standard output and error of the program, and what its processes left as maps, by process."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        env={**os.environ, "MAGNETO_TRIALS": "0", **env},
        capture_output=True,
        text=True,
        check=True,
    )
    maps = {}
    for pid in map(int, done.stdout.split()):
        path = Path(f"/tmp/perf-{pid}.map")
        if path.is_file() and not path.is_symlink():
            maps[pid] = path.read_text()
        path.unlink(missing_ok=True)
    return done, maps


def test_kernels_have_names():
    _, maps = run(PROGRAM, MAGNETO_PERF="1")
    parent, child = maps.values()
    for line in (parent + child).splitlines():
        assert re.fullmatch(r"[0-9a-f]+ [0-9a-f]+ magneto::[\w+.]+( \(.+\))?", line)
        start, size = (int(n, 16) for n in line.split()[:2])
        assert start > 2**20 and 16 < size < 2**20
    names = [line.split(" ", 2)[2] for line in parent.splitlines()]
    assert names.count("magneto::mul+add+relu") == 1
    assert any("exp" in name for name in names)
    assert child.startswith(parent) and "sin+mul" in child


def test_functions_do_not_overlap():
    _, maps = run(PROGRAM, MAGNETO_PERF="1")
    spans = sorted([int(n, 16) for n in line.split()[:2]] for line in next(iter(maps.values())).splitlines())
    assert all(a + size <= b for (a, size), (b, _) in zip(spans, spans[1:], strict=False))


def test_a_name_has_the_programs_lines(tmp_path):
    path = tmp_path / "model.py"
    path.write_text(textwrap.dedent(PROGRAM))
    _, maps = run(f"import runpy; runpy.run_path({str(path)!r})", MAGNETO_PERF="1")
    assert "magneto::mul+add+relu (model.py:6)\n" in next(iter(maps.values()))


def test_without_the_variable_there_is_no_map():
    _, maps = run(PROGRAM)
    assert maps == {}


def test_a_link_in_the_place_of_the_map_is_left_alone(tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("before")
    program = f"""
        import os, warnings
        import torch, magneto

        os.symlink({str(victim)!r}, f"/tmp/perf-{{os.getpid()}}.map")
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            magneto.compile(lambda x: x * 2 + 1)(torch.ones(9))
            magneto.compile(lambda x: x * 3 + 1)(torch.ones(9))
        assert len([w for w in told if "MAGNETO_PERF: /tmp/perf-" in str(w.message)]) == 1, told
        print(os.getpid())
    """
    run(program, MAGNETO_PERF="1")
    assert victim.read_text() == "before"


@pytest.mark.skipif(not Path("/usr/bin/perf").exists(), reason="needs perf")
def test_perf_resolves_a_kernel(tmp_path):
    program = """
        import torch, magneto

        def f(x):
            for _ in range(8):
                x = (x * 0.5 + 1).sin() / 3
            return x

        x, fast = torch.randn(1 << 18), magneto.compile(f)
        for _ in range(150):
            fast(x)
    """
    data = tmp_path / "perf.data"
    record = ["perf", "record", "-q", "-o", str(data), sys.executable, "-c", textwrap.dedent(program)]
    done = subprocess.run(
        record, env={**os.environ, "MAGNETO_PERF": "1", "MAGNETO_TRIALS": "0"}, capture_output=True, text=True
    )
    if done.returncode or not data.exists():
        pytest.skip(f"perf cannot record here: {done.stderr.strip()[:200]}")
    said = subprocess.run(
        ["perf", "report", "-i", str(data), "--stdio", "-q", "--sort", "symbol"],
        capture_output=True,
        text=True,
    )
    if not re.search(r"\d%", said.stdout):
        pytest.skip("perf saw no samples")
    assert "magneto::mul+add+sin+div" in said.stdout
