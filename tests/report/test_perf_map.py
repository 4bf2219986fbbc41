"""MAGNETO_PERF=1: compiled kernels have names for profilers of machine code."""

import os
import re
import shutil
import struct
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


IMAGES = []  # files with symbols that the last run left, each with its process


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
    IMAGES.clear()
    for pid in map(int, done.stdout.split()):
        for image in Path("/tmp").glob(f"magneto-{pid}-*.so"):
            IMAGES.append((pid, image.read_bytes()))
            image.unlink()
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


def symbols(image):
    """Of an ELF file: the names of its functions, with their offsets and sizes."""
    sections, size, count = (*struct.unpack_from("<Q", image, 40), *struct.unpack_from("<HH", image, 58))
    heads = [struct.unpack_from("<IIQQQQIIQQ", image, sections + i * size) for i in range(count)]
    ((_, _, _, _, offset, length, link, *_),) = [h for h in heads if h[1] == 2]
    texts = image[heads[link][4] :]
    found = {}
    for at in range(offset + 24, offset + length, 24):
        name, _, _, _, value, reach = struct.unpack_from("<IBBHQQ", image, at)
        found[texts[name : texts.index(b"\0", name)].decode()] = value, reach
    return found


def test_kernels_are_symbols_of_files():
    """py-spy reads these, and no maps."""
    _, maps = run(PROGRAM, MAGNETO_PERF="1")
    parent, child = maps
    named = {pid: {line.split(" ", 2)[2] for line in text.splitlines()} for pid, text in maps.items()}
    seen = {pid: {} for pid in maps}
    for pid, image in IMAGES:
        assert image[:4] == b"\x7fELF"
        seen[pid] |= symbols(image)
    assert set(seen[parent]) == named[parent] and set(seen[child]) == named[child] - named[parent]
    assert all(value >= 4096 and 16 < size < 2**20 for s in seen.values() for value, size in s.values())


def test_files_of_code_that_is_gone_are_gone():
    program = """
        import glob, os
        import torch, magneto
        from magneto import _magneto

        def images():
            return len(glob.glob(f"/tmp/magneto-{os.getpid()}-*.so"))

        fast = magneto.compile(lambda x: x * 2 + 1)
        fast(torch.ones(9))
        assert images() == 1, images()
        del fast
        magneto.reset()
        _magneto.kernel_cache_clear()
        assert images() == 0, images()
    """
    run(program, MAGNETO_PERF="1")


@pytest.mark.skipif(not shutil.which("py-spy"), reason="needs py-spy")
def test_py_spy_resolves_a_kernel():
    program = """
        import torch, magneto

        torch.set_num_threads(1)
        x, fast = torch.randn(1 << 22), magneto.compile(lambda x: (x * 0.5 + 1).sin() / 3)
        fast(x)
        print("ready", flush=True)
        while True:
            fast(x)
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    env = {**os.environ, "MAGNETO_PERF": "1", "MAGNETO_TRIALS": "0"}
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == "ready\n"
            spied = [
                subprocess.run(
                    ["py-spy", "dump", "--native", "--pid", str(process.pid)], capture_output=True, text=True
                )
                for _ in range(3)
            ]
        finally:
            process.kill()
        for left in Path("/tmp").glob(f"*-{process.pid}*"):
            left.unlink()
    if any(s.returncode for s in spied):
        pytest.skip(f"py-spy cannot look at a process here: {spied[0].stderr.strip()[:200]}")
    assert any("magneto::mul+add+sin+div" in s.stdout for s in spied)


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
